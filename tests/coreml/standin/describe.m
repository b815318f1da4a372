/* describe.m - MLModelDescription and what it holds. */
#include <string.h>

#import "standin.h"

/* --- constraints --- */

struct shape_constraint {
    MLMultiArrayShapeConstraintType type;
    NSArray *ranges, *shapes; /* owned */
};

struct constraint {                 /* of an array, or of a state */
    NSArray *shape;                 /* owned */
    MLMultiArrayShapeConstraint *s; /* owned */
    MLMultiArrayDataType dtype;
};

@implementation MLMultiArrayShapeConstraint

STANDIN_CLASS(COUNT_CONSTRAINT, struct shape_constraint)

static struct shape_constraint *shape_of(MLMultiArrayShapeConstraint *c)
{
    return si_data(c);
}

- (void)dealloc
{
    si_count_add(COUNT_CONSTRAINT, -1);
    [shape_of(self)->ranges release];
    [shape_of(self)->shapes release];
    [super dealloc];
}

- (MLMultiArrayShapeConstraintType)type
{
    return shape_of(self)->type;
}

- (NSArray<NSValue *> *)sizeRangeForDimension
{
    return shape_of(self)->ranges;
}

- (NSArray<NSArray<NSNumber *> *> *)enumeratedShapes
{
    return shape_of(self)->shapes;
}

@end

/* A range's length is the number of allowed sizes. */
static NSArray *ranges_of(const struct mil_feature *f)
{
    NSMutableArray *a = [NSMutableArray array];
    for (int i = 0; i < f->type.rank; i++) {
        int64_t lo = f->has_range ? f->lo[i] : f->type.dims[i];
        int64_t hi = f->has_range ? f->hi[i] : lo;
        NSUInteger n = hi < 0 ? NSIntegerMax : (NSUInteger)(hi - lo + 1);
        [a addObject:[NSValue valueWithRange:NSMakeRange((NSUInteger)lo, n)]];
    }
    return a;
}

static MLMultiArrayShapeConstraint *shape_new(const struct mil_feature *f)
{
    MLMultiArrayShapeConstraint *c = [[MLMultiArrayShapeConstraint alloc] init];
    NSMutableArray *shapes = [NSMutableArray array];
    for (size_t k = 0; k < f->n_shapes; k++) {
        [shapes addObject:si_numbers(f->shapes + k * (size_t)f->type.rank,
                                     f->type.rank)];
    }
    if (f->n_shapes == 0 && !f->has_range) {
        [shapes addObject:si_numbers(f->type.dims, f->type.rank)];
    }
    shape_of(c)->type = f->has_range
                            ? MLMultiArrayShapeConstraintTypeRange
                            : MLMultiArrayShapeConstraintTypeEnumerated;
    shape_of(c)->ranges = [(f->has_range ? ranges_of(f) : nil) retain];
    shape_of(c)->shapes = [shapes retain];
    return c;
}

@implementation MLMultiArrayConstraint

STANDIN_CLASS(COUNT_CONSTRAINT, struct constraint)

static struct constraint *constraint_of(id c)
{
    return si_data(c);
}

- (void)dealloc
{
    si_count_add(COUNT_CONSTRAINT, -1);
    [constraint_of(self)->shape release];
    [constraint_of(self)->s release];
    [super dealloc];
}

- (NSArray<NSNumber *> *)shape
{
    return constraint_of(self)->shape;
}

- (MLMultiArrayDataType)dataType
{
    return constraint_of(self)->dtype;
}

- (MLMultiArrayShapeConstraint *)shapeConstraint
{
    return constraint_of(self)->s;
}

@end

@implementation MLStateConstraint

STANDIN_CLASS(COUNT_CONSTRAINT, struct constraint)

- (void)dealloc
{
    si_count_add(COUNT_CONSTRAINT, -1);
    [constraint_of(self)->shape release];
    [super dealloc];
}

- (NSArray<NSNumber *> *)bufferShape
{
    return constraint_of(self)->shape;
}

- (MLMultiArrayDataType)dataType
{
    return constraint_of(self)->dtype;
}

@end

/* --- MLFeatureDescription --- */

struct feature {
    struct mil_feature f; /* a copy with its own shapes; its name is gone */
    NSString *name;       /* owned */
    bool is_state;
    MLMultiArrayConstraint *array; /* owned; nil of a state */
    MLStateConstraint *state;      /* owned; nil of others */
};

@implementation MLFeatureDescription

STANDIN_CLASS(COUNT_FEATURE, struct feature)

static struct feature *feature_of(MLFeatureDescription *d)
{
    return si_data(d);
}

- (void)dealloc
{
    struct feature *f = feature_of(self);
    si_count_add(COUNT_FEATURE, -1);
    [f->name release];
    [f->array release];
    [f->state release];
    free((void *)(uintptr_t)f->f.shapes);
    [super dealloc];
}

- (id)copyWithZone:(NSZone *)zone
{
    (void)zone;
    return [self retain]; /* it never changes */
}

- (NSString *)name
{
    return feature_of(self)->name;
}

- (MLFeatureType)type
{
    return feature_of(self)->is_state ? MLFeatureTypeState
                                      : MLFeatureTypeMultiArray;
}

- (BOOL)isOptional
{
    return feature_of(self)->f.optional;
}

- (MLMultiArrayConstraint *)multiArrayConstraint
{
    return feature_of(self)->array;
}

- (MLStateConstraint *)stateConstraint
{
    return feature_of(self)->state;
}

- (BOOL)isAllowedValue:(MLFeatureValue *)value
{
    struct feature *f = feature_of(self);
    MLMultiArray *a = [value multiArrayValue];
    return !f->is_state && a != nil && si_description_allows(&f->f, a, NULL);
}

@end

static struct mil_feature copy_feature(const struct mil_feature *f)
{
    struct mil_feature to = *f;
    size_t bytes = f->n_shapes * (size_t)f->type.rank * sizeof(*f->shapes);
    to.name = NULL;
    to.shapes = NULL;
    if (bytes > 0) {
        int64_t *shapes = malloc(bytes);
        must(shapes != NULL);
        memcpy(shapes, f->shapes, bytes);
        to.shapes = shapes;
    }
    return to;
}

static MLFeatureDescription *feature_new(const struct mil_feature *f,
                                         bool is_state)
{
    MLFeatureDescription *d = [[MLFeatureDescription alloc] init];
    struct feature *x = feature_of(d);
    id c = nil;
    x->f = copy_feature(f);
    x->name = [[NSString alloc] initWithUTF8String:f->name];
    x->is_state = is_state;
    if (is_state) {
        c = x->state = [[MLStateConstraint alloc] init];
    } else {
        c = x->array = [[MLMultiArrayConstraint alloc] init];
        constraint_of(c)->s = shape_new(f);
    }
    constraint_of(c)->shape = [si_numbers(f->type.dims, f->type.rank) retain];
    constraint_of(c)->dtype = si_array_dtype(f->type.dtype);
    return d;
}

/* --- what is allowed --- */

static bool in_range(const struct mil_feature *f, const struct array *a)
{
    for (int i = 0; i < a->rank; i++) {
        if (a->dims[i] < f->lo[i] || (f->hi[i] >= 0 && a->dims[i] > f->hi[i])) {
            return false;
        }
    }
    return true;
}

static bool is_one(const int64_t *shapes, size_t n, const struct array *a)
{
    for (size_t k = 0; k < n; k++) {
        if (memcmp(shapes + k * (size_t)a->rank, a->dims,
                   (size_t)a->rank * sizeof(*a->dims)) == 0) {
            return true;
        }
    }
    return false;
}

bool si_description_allows(const struct mil_feature *f, MLMultiArray *m,
                           NSError **error)
{
    const struct array *a = array_of(m);
    bool shape = f->type.rank == 0; /* declared without one */
    if (!shape && a->rank == f->type.rank) {
        shape = f->has_range      ? in_range(f, a)
                : f->n_shapes > 0 ? is_one(f->shapes, f->n_shapes, a)
                                  : is_one(f->type.dims, 1, a);
    }
    if (!shape) {
        (void)si_fail(
            error,
            si_error(MLModelErrorGeneric,
                     @"MultiArray shape (%@) does not match the shape (%@)"
                     @" specified in the model description",
                     si_shape_text(a->dims, a->rank),
                     si_shape_text(f->type.dims, f->type.rank)));
        return false;
    }
    if (a->dtype != si_array_dtype(f->type.dtype)) {
        (void)si_fail(error, si_error(MLModelErrorGeneric,
                                      @"MultiArray data type %ld does not "
                                      @"match the model description's %ld",
                                      (long)a->dtype,
                                      (long)si_array_dtype(f->type.dtype)));
        return false;
    }
    return true;
}

/* --- MLModelDescription --- */

struct description {
    NSDictionary *in, *out, *states; /* owned: MLFeatureDescription by name */
};

@implementation MLModelDescription

STANDIN_CLASS(COUNT_DESCRIPTION, struct description)

static struct description *description_of(MLModelDescription *d)
{
    return si_data(d);
}

- (void)dealloc
{
    struct description *d = description_of(self);
    si_count_add(COUNT_DESCRIPTION, -1);
    [d->in release];
    [d->out release];
    [d->states release];
    [super dealloc];
}

- (NSDictionary<NSString *, MLFeatureDescription *> *)inputDescriptionsByName
{
    return description_of(self)->in;
}

- (NSDictionary<NSString *, MLFeatureDescription *> *)outputDescriptionsByName
{
    return description_of(self)->out;
}

- (NSDictionary<NSString *, MLFeatureDescription *> *)stateDescriptionsByName
{
    return description_of(self)->states;
}

@end

static NSDictionary *features_new(const struct mil_feature *f, size_t n,
                                  bool states)
{
    NSMutableDictionary *d = [[NSMutableDictionary alloc] init];
    for (size_t i = 0; i < n; i++) {
        MLFeatureDescription *x = feature_new(&f[i], states);
        [d setObject:x forKey:[x name]];
        [x release];
    }
    return d;
}

MLModelDescription *si_description_new(const struct mil_function *f)
{
    MLModelDescription *d = [[MLModelDescription alloc] init];
    struct description *x = description_of(d);
    x->in = features_new(f->in, f->n_in, false);
    x->out = features_new(f->out, f->n_out, false);
    x->states = features_new(f->states, f->n_states, true);
    return d;
}

bool si_description_mixed(const struct mil_function *f, const char **fixed,
                          const char **ranged)
{
    for (size_t i = 0; i < f->n_in; i++) {
        *(f->in[i].has_range ? ranged : fixed) = f->in[i].name;
    }
    return f->n_states > 0 && *fixed != NULL && *ranged != NULL;
}
