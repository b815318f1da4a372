/* bind.m - the inputs and results of one width. All that a prediction needs is
 * made here: the object that gives Core ML its inputs, and arrays for its
 * results. An array that was an input is none that Core ML writes to without a
 * copy, so these are never the same. */
#include <string.h>

#include "engine/array.h"
#import "engine/coreml/coreml.h"
#include "engine/port.h"

@implementation CoreMLInputs

- (instancetype)initWithModel:(const struct backend_model *)m
{
    self = [super init];
    if (self != nil) {
        names = [[NSSet alloc] initWithArray:m->in_names];
        index = [m->in_index retain];
        values = calloc(m->n_in + 1, sizeof(MLFeatureValue *));
        must(values != NULL); /* MIL_FEATURES_MAX bounds it */
        n = m->n_in;
    }
    return self;
}

- (void)dealloc
{
    for (size_t i = 0; i < n; i++) {
        [values[i] release];
    }
    free(values);
    [index release];
    [names release];
    [super dealloc];
}

- (void)setValue:(MLFeatureValue *)value at:(size_t)i
{
    must(i < n);
    [value retain];
    [values[i] release];
    values[i] = value;
}

- (NSSet<NSString *> *)featureNames
{
    return names;
}

- (MLFeatureValue *)featureValueForName:(NSString *)name
{
    NSNumber *i = [index objectForKey:name];
    return i != nil ? values[[i unsignedLongValue]] : nil;
}

@end

/* --- inputs --- */

static struct binding *own(struct backend_io *io)
{
    return container_of(io, struct binding, io);
}

static int fill(struct backend_array *a, double v, struct err *e)
{
    int64_t at[MIL_RANK_MAX] = {0};
    uint64_t rows = a->rank > 0 ? array_count(a) : 0;
    int last = a->rank - 1;
    RETERR(coreml_lock(a, true, e));
    for (uint64_t r = 0; last >= 0 && r < rows / (uint64_t)a->dims[last]; r++) {
        uint64_t rest = r;
        for (int i = last; i-- > 0; rest /= (uint64_t)a->dims[i]) {
            at[i] = (int64_t)(rest % (uint64_t)a->dims[i]);
        }
        array_set(a, (struct array_line){at, last, (size_t)a->dims[last]},
                  (float)v);
    }
    coreml_unlock(a, true);
    return 0;
}

/* An array of default values for an input that is not given. */
static int add_default(struct binding *b, size_t i, struct err *e)
{
    struct backend_model *m = b->io.m;
    const struct mil_feature *f = m->features[i];
    uint64_t count = 0;
    RETERR(port_default(&m->in[i], f, &count, e));
    RETERR(coreml_array_new(m, i, f->type.dtype, f->type.rank, f->type.dims,
                            &b->defaults[i], e));
    return fill(b->defaults[i], f->default_value, e);
}

static int add_input(struct binding *b, size_t i, struct backend_array *a,
                     struct err *e)
{
    const struct backend_model *m = b->io.m;
    const struct backend_port *p = &m->in[i];
    if (a == NULL) {
        RETERR(add_default(b, i, e));
        a = b->defaults[i];
    } else {
        RETERR(port_check(p, m->features[i], a->dtype, a->rank, a->dims, e));
        b->io.in[i] = a;
    }
    if (a->dtype != p->type.dtype) {
        return err_set(e, ERR_MIL_INPUT, "input %s: %s, not %s", p->name,
                       mil_dtype_name(a->dtype), mil_dtype_name(p->type.dtype));
    }
    const struct memory *x = a->own;
    [b->inputs setValue:x->value at:i];
    return 0;
}

/* --- arrays for results --- */

/* Whether Core ML would take the array for this output. */
static bool allowed(const struct backend_model *m, size_t i,
                    const struct memory *x)
{
    MLModelDescription *d = [[m->runner model] modelDescription];
    MLFeatureDescription *f = [[d outputDescriptionsByName]
        objectForKey:[m->out_names objectAtIndex:i]];
    @try {
        return [f isAllowedValue:x->value];
    } @catch (NSException *raised) {
        return false;
    }
}

static int prepare(struct binding *b, size_t i, int64_t width, struct err *e)
{
    const struct backend_model *m = b->io.m;
    const struct mil_type *t = &m->out[i].type;
    struct result *r = &b->results[i];
    int64_t dims[MIL_RANK_MAX];
    if (t->rank == 0 || !ports_shape(t, width, dims)) {
        return 0; /* only Core ML knows the shape */
    }
    RETERR(memory_new(&r->backing, &r->shape, t->dtype, t->rank, dims, e));
    if (!allowed(m, i, &r->backing)) {
        memory_drop(&r->backing);
    }
    r->shape.own = &r->backing;
    return 0;
}

static int prepare_all(struct binding *b, struct backend_array *const *in,
                       struct err *e)
{
    const struct backend_model *m = b->io.m;
    NSMutableDictionary *backings = [NSMutableDictionary dictionary];
    int64_t width = ports_width(m, in);
    for (size_t i = 0; !m->counts.refused && i < m->n_out; i++) {
        RETERR(prepare(b, i, width, e));
        if (b->results[i].backing.array != nil) {
            [backings setObject:b->results[i].backing.array
                         forKey:[m->out_names objectAtIndex:i]];
        }
    }
    if ([backings count] > 0) {
        [b->options setOutputBackings:backings];
    }
    return 0;
}

/* --- bind --- */

static int fill_binding(struct binding *b, struct backend_array *const *in,
                        struct err *e)
{
    struct backend_model *m = b->io.m;
    b->io.in = calloc(m->n_in + 1, sizeof(struct backend_array *));
    b->io.out = calloc(m->n_out + 1, sizeof(*b->io.out));
    b->results = calloc(m->n_out + 1, sizeof(*b->results));
    b->defaults = calloc(m->n_in + 1, sizeof(struct backend_array *));
    if (b->io.in == NULL || b->io.out == NULL || b->results == NULL ||
        b->defaults == NULL) {
        return err_set(e, ERR_NOMEM, "a binding");
    }
    b->inputs = [[CoreMLInputs alloc] initWithModel:m];
    b->options = [[MLPredictionOptions alloc] init];
    for (size_t i = 0; i < m->n_in; i++) {
        RETERR(add_input(b, i, in[i], e));
    }
    return prepare_all(b, in, e);
}

int coreml_bind(struct backend_model *m, struct backend_array *const *in,
                struct backend_io **ret, struct err *e)
{
    struct binding *b = calloc(1, sizeof(*b));
    if (b == NULL) {
        return err_set(e, ERR_NOMEM, "a binding");
    }
    b->io = (struct backend_io){
        .m = m, .n_in = m->n_in, .n_out = m->n_out, .own = b};
    int rc = 0;
    @autoreleasepool {
        @try {
            rc = fill_binding(b, in, e);
        } @catch (NSException *x) {
            rc = coreml_raised(e, x, "binding arrays");
        }
    }
    if (rc < 0) {
        coreml_unbind(&b->io);
        return rc;
    }
    *ret = &b->io;
    return 0;
}

void coreml_unbind(struct backend_io *io)
{
    if (io == NULL) {
        return;
    }
    struct binding *b = own(io);
    @autoreleasepool {
        for (size_t i = 0; b->results != NULL && i < io->n_out; i++) {
            memory_drop(&b->results[i].backing);
            memory_drop(&b->results[i].moved);
        }
        for (size_t i = 0; b->defaults != NULL && i < io->n_in; i++) {
            coreml_array_free(b->defaults[i]);
        }
        [b->inputs release];
        [b->options release];
    }
    free(b->results);
    free(b->defaults);
    free(io->in);
    free(io->out);
    free(b);
}

void coreml_rebind(struct backend_io *io, size_t i, struct backend_array *a)
{
    const struct memory *x = a->own;
    must(i < io->n_in && a->dtype == io->m->in[i].type.dtype);
    io->in[i] = a;
    [own(io)->inputs setValue:x->value at:i];
}
