/* describe.c - reads and writes the description: the inputs, outputs and states
 * that callers of the model see.
 *
 * A package with one function describes it at the top level; one with several
 * has a FunctionDescription each and an empty top level (facts 7).
 */
#include <string.h>

#include "mil/spec.h"

/* ArrayFeatureType.ArrayDataType */
static const struct {
    int32_t number;
    enum mil_dtype t;
} array_types[] = {
    {0x10020, MIL_FP32 },
    {0x10040, MIL_FP64 },
    {0x20020, MIL_INT32},
    {0x20008, MIL_INT8 },
    {0x10010, MIL_FP16 },
};

/* --- reading --- */

static int no_memory(struct err *e)
{
    return err_set(e, ERR_TOO_BIG, "the description needs too much memory");
}

/* A shape of n dimensions beside those that f has. Rank 0 says that there was
 * none so far: a multi-array has one dimension at least. */
static int set_rank(struct mil_feature *f, size_t n, struct err *e)
{
    if (n == 0 || n > MIL_RANK_MAX ||
        (f->type.rank != 0 && n != (size_t)f->type.rank)) {
        return err_set(e, ERR_MIL_SHAPE, "a shape of %zu dimensions, rank %d",
                       n, f->type.rank);
    }
    f->type.rank = (int)n;
    return 0;
}

/* Without a shape the lower bounds are the default. */
static int read_range(const Ml__ShapeRange *in, struct mil_feature *f,
                      struct err *e)
{
    bool shaped = f->type.rank > 0;
    int rc = set_rank(f, in->n_sizes, e);
    if (rc < 0) {
        return rc;
    }
    f->has_range = true;
    for (size_t i = 0; i < in->n_sizes; i++) {
        if (in->sizes[i]->lower > INT64_MAX) {
            return err_set(e, ERR_MIL_SHAPE, "lower bound %zu is too large", i);
        }
        f->lo[i] = (int64_t)in->sizes[i]->lower;
        f->hi[i] = in->sizes[i]->upper < 0 ? -1 : in->sizes[i]->upper;
        if (!shaped) {
            f->type.dims[i] = f->lo[i];
        }
    }
    return 0;
}

static int read_enumerated(struct reader *r, const Ml__EnumeratedShapes *in,
                           struct mil_feature *f, struct err *e)
{
    if (in->n_shapes == 0 || in->n_shapes > MIL_SHAPES_MAX) {
        return err_set(e, ERR_MIL_SHAPE, "%zu enumerated shapes", in->n_shapes);
    }
    bool shaped = f->type.rank > 0;
    for (size_t i = 0; i < in->n_shapes; i++) {
        int rc = set_rank(f, in->shapes[i]->n_shape, e);
        if (rc < 0) {
            return rc;
        }
    }
    size_t bytes = (size_t)f->type.rank * sizeof(int64_t);
    char *shapes = arena_array(&r->p->arena, in->n_shapes, bytes);
    if (shapes == NULL) {
        return no_memory(e);
    }
    for (size_t i = 0; i < in->n_shapes; i++) {
        memcpy(shapes + i * bytes, in->shapes[i]->shape, bytes);
    }
    if (!shaped) {
        memcpy(f->type.dims, shapes, bytes);
    }
    f->n_shapes = in->n_shapes;
    f->shapes = (const int64_t *)(const void *)shapes;
    return 0;
}

static void read_default(const Ml__ArrayType *in, struct mil_feature *f)
{
    f->has_default = true;
    if (in->default_value_case == ML__ARRAY_TYPE__DEFAULT_VALUE_INT_DEFAULT) {
        f->default_value = in->int_default;
    } else if (in->default_value_case ==
               ML__ARRAY_TYPE__DEFAULT_VALUE_FLOAT_DEFAULT) {
        f->default_value = (double)in->float_default;
    } else if (in->default_value_case ==
               ML__ARRAY_TYPE__DEFAULT_VALUE_DOUBLE_DEFAULT) {
        f->default_value = in->double_default;
    } else {
        f->has_default = false;
    }
}

static int read_array(struct reader *r, const Ml__ArrayType *in,
                      struct mil_feature *f, struct err *e)
{
    for (size_t i = 0; i < countof(array_types); i++) {
        if (array_types[i].number == in->data_type) {
            f->type.dtype = array_types[i].t;
        }
    }
    if (f->type.dtype == MIL_NONE) {
        return err_set(e, ERR_MIL_INVALID, "data type %d is unknown",
                       (int)in->data_type);
    }
    int rc = in->n_shape > 0 ? set_rank(f, in->n_shape, e) : 0;
    if (rc < 0) {
        return rc;
    }
    for (size_t i = 0; i < in->n_shape; i++) {
        f->type.dims[i] = in->shape[i];
        if (in->shape[i] < 0) {
            return err_set(e, ERR_MIL_SHAPE, "dimension %zu is negative", i);
        }
    }
    read_default(in, f);
    if (in->flexibility_case == ML__ARRAY_TYPE__FLEXIBILITY_RANGE) {
        return read_range(in->range, f, e);
    }
    if (in->flexibility_case == ML__ARRAY_TYPE__FLEXIBILITY_ENUMERATED) {
        return read_enumerated(r, in->enumerated, f, e);
    }
    return 0;
}

static int read_feature(struct reader *r, const Ml__Feature *in,
                        struct mil_feature *f, struct err *e)
{
    if (in->name[0] == '\0') {
        return err_set(e, ERR_MIL_INVALID, "it has no name");
    }
    f->name = arena_str(&r->p->arena, in->name);
    if (f->name == NULL) {
        return no_memory(e);
    }
    const Ml__FeatureType *t = in->type;
    int rc = 0;
    if (t != NULL && t->kind_case == ML__FEATURE_TYPE__KIND_ARRAY) {
        rc = read_array(r, t->array, f, e);
    } else if (t != NULL && t->kind_case == ML__FEATURE_TYPE__KIND_STATE &&
               t->state->array != NULL) {
        f->type.state = true;
        rc = read_array(r, t->state->array, f, e);
    } else {
        rc = err_set(e, ERR_PKG_UNSUPPORTED, "it is no multi-array");
    }
    if (rc < 0) {
        return err_prefix(e, rc, "%s", f->name);
    }
    f->optional = t->optional;
    return 0;
}

static int read_features(struct reader *r, Ml__Feature *const *in, size_t n,
                         const char *what, struct mil_feature **ret,
                         size_t *ret_n, struct err *e)
{
    if (n > MIL_FEATURES_MAX) {
        return err_set(e, ERR_TOO_BIG, "description: %zu %ss", n, what);
    }
    struct mil_feature *list = arena_array(&r->p->arena, n, sizeof(*list));
    if (list == NULL) {
        return no_memory(e);
    }
    for (size_t i = 0; i < n; i++) {
        int rc = read_feature(r, in[i], &list[i], e);
        if (rc < 0) {
            return err_prefix(e, rc, "description: %s %zu", what, i);
        }
    }
    *ret = list;
    *ret_n = n;
    return 0;
}

/* A list of features, of a function's description or the model's. */
struct features {
    Ml__Feature *const *p;
    size_t n;
};

static int read_ports(struct reader *r, struct mil_function *f,
                      struct features in, struct features out,
                      struct features state, struct err *e)
{
    RETERR(read_features(r, in.p, in.n, "input", &f->in, &f->n_in, e));
    RETERR(read_features(r, out.p, out.n, "output", &f->out, &f->n_out, e));
    return read_features(r, state.p, state.n, "state", &f->states, &f->n_states,
                         e);
}

static bool function_named(const struct mil_program *p, const char *name,
                           size_t *ret)
{
    for (size_t i = 0; i < p->n_functions; i++) {
        if (strcmp(p->functions[i]->name, name) == 0) {
            *ret = i;
            return true;
        }
    }
    return false;
}

static int read_function(struct reader *r, const Ml__FunctionDescription *in,
                         struct err *e)
{
    size_t at = 0;
    struct mil_function *f =
        function_named(r->p, in->name, &at) ? r->p->functions[at] : NULL;
    if (f == NULL || f->n_out > 0) {
        return err_set(e, ERR_MIL_INVALID, "description: function %s is %s",
                       in->name,
                       f == NULL ? "not in the program" : "there twice");
    }
    int rc = read_ports(r, f, (struct features){in->input, in->n_input},
                        (struct features){in->output, in->n_output},
                        (struct features){in->state, in->n_state}, e);
    return rc < 0 ? err_prefix(e, rc, "function %s", f->name) : 0;
}

static int read_multi(struct reader *r, const Ml__Description *in,
                      struct err *e)
{
    r->p->multi = true;
    if (in->n_input + in->n_output + in->n_state + in->n_training_input > 0 ||
        in->predicted_feature[0] != '\0' ||
        in->predicted_probabilities[0] != '\0') {
        return err_set(e, ERR_MIL_INVALID,
                       "description: functions beside top-level features");
    }
    if (in->n_functions > MIL_FUNCTIONS_MAX) {
        return err_set(e, ERR_TOO_BIG, "description: %zu functions",
                       in->n_functions);
    }
    for (size_t i = 0; i < in->n_functions; i++) {
        int rc = read_function(r, in->functions[i], e);
        if (rc < 0) {
            return rc;
        }
    }
    if (!function_named(r->p, in->default_function, &r->p->default_function)) {
        return err_set(e, ERR_MIL_INVALID,
                       "description: default function \"%s\" is not in the "
                       "program",
                       in->default_function);
    }
    return 0;
}

/* The one function, or "main". */
static int read_single(struct reader *r, const Ml__Description *in,
                       struct err *e)
{
    struct mil_program *p = r->p;
    (void)function_named(p, "main", &p->default_function);
    struct mil_function *f = p->functions[p->default_function];
    return read_ports(r, f, (struct features){in->input, in->n_input},
                      (struct features){in->output, in->n_output},
                      (struct features){in->state, in->n_state}, e);
}

static int read_metadata(struct reader *r, const Ml__Metadata *in,
                         struct err *e)
{
    struct mil_program *p = r->p;
    if (in->short_description[0] != '\0') {
        p->short_description = arena_str(&p->arena, in->short_description);
        if (p->short_description == NULL) {
            return no_memory(e);
        }
    }
    p->meta = arena_array(&p->arena, in->n_user_defined, sizeof(*p->meta));
    if (p->meta == NULL) {
        return no_memory(e);
    }
    for (size_t i = 0; i < in->n_user_defined; i++) {
        p->meta[i].key = arena_str(&p->arena, in->user_defined[i]->key);
        p->meta[i].value = arena_str(&p->arena, in->user_defined[i]->value);
        if (p->meta[i].key == NULL || p->meta[i].value == NULL) {
            return no_memory(e);
        }
        p->n_meta = i + 1;
    }
    return 0;
}

int describe_read(struct reader *r, const Ml__Description *in, struct err *e)
{
    bool multi = in->n_functions > 0 || in->default_function[0] != '\0';
    RETERR(multi ? read_multi(r, in, e) : read_single(r, in, e));
    if (in->metadata != NULL) {
        RETERR(read_metadata(r, in->metadata, e));
    }
    return 0;
}

/* --- writing --- */

static char *text(struct arena *a, const char *s)
{
    char *copy = arena_str(a, s);
    must(copy != NULL);
    return copy;
}

static int64_t *write_dims(struct arena *a, int rank, const int64_t *dims)
{
    int64_t *out = pb_array(a, (size_t)rank, sizeof(*out));
    memcpy(out, dims, (size_t)rank * sizeof(*out));
    return out;
}

static void write_flexibility(struct arena *a, const struct mil_feature *f,
                              Ml__ArrayType *out)
{
    size_t rank = (size_t)f->type.rank;
    if (f->has_range) {
        out->flexibility_case = ML__ARRAY_TYPE__FLEXIBILITY_RANGE;
        out->range = pb_new(a, &ml__shape_range__descriptor);
        out->range->n_sizes = rank;
        out->range->sizes = pb_array(a, rank, sizeof(Ml__SizeRange *));
        for (size_t i = 0; i < rank; i++) {
            Ml__SizeRange *s = pb_new(a, &ml__size_range__descriptor);
            s->lower = (uint64_t)f->lo[i];
            s->upper = f->hi[i];
            out->range->sizes[i] = s;
        }
    } else if (f->n_shapes > 0) {
        out->flexibility_case = ML__ARRAY_TYPE__FLEXIBILITY_ENUMERATED;
        out->enumerated = pb_new(a, &ml__enumerated_shapes__descriptor);
        out->enumerated->n_shapes = f->n_shapes;
        out->enumerated->shapes = pb_array(a, f->n_shapes, sizeof(Ml__Shape *));
        for (size_t i = 0; i < f->n_shapes; i++) {
            Ml__Shape *s = pb_new(a, &ml__shape__descriptor);
            s->n_shape = rank;
            s->shape = write_dims(a, f->type.rank, f->shapes + i * rank);
            out->enumerated->shapes[i] = s;
        }
    }
}

static Ml__ArrayType *write_array(struct arena *a, const struct mil_feature *f)
{
    Ml__ArrayType *out = pb_new(a, &ml__array_type__descriptor);
    for (size_t i = 0; i < countof(array_types); i++) {
        if (array_types[i].t == f->type.dtype) {
            out->data_type = array_types[i].number;
        }
    }
    out->n_shape = (size_t)f->type.rank;
    out->shape = write_dims(a, f->type.rank, f->type.dims);
    write_flexibility(a, f, out);
    if (f->has_default && (double)(float)f->default_value == f->default_value) {
        out->default_value_case = ML__ARRAY_TYPE__DEFAULT_VALUE_FLOAT_DEFAULT;
        out->float_default = (float)f->default_value;
    } else if (f->has_default) { /* which a float cannot hold */
        out->default_value_case = ML__ARRAY_TYPE__DEFAULT_VALUE_DOUBLE_DEFAULT;
        out->double_default = f->default_value;
    }
    return out;
}

static Ml__Feature **write_features(struct arena *a, size_t n,
                                    const struct mil_feature *f)
{
    Ml__Feature **list = pb_array(a, n, sizeof(*list));
    for (size_t i = 0; i < n; i++) {
        Ml__FeatureType *t = pb_new(a, &ml__feature_type__descriptor);
        t->optional = f[i].optional;
        if (f[i].type.state) {
            t->kind_case = ML__FEATURE_TYPE__KIND_STATE;
            t->state = pb_new(a, &ml__state_feature__descriptor);
            t->state->array = write_array(a, &f[i]);
        } else {
            t->kind_case = ML__FEATURE_TYPE__KIND_ARRAY;
            t->array = write_array(a, &f[i]);
        }
        list[i] = pb_new(a, &ml__feature__descriptor);
        list[i]->name = text(a, f[i].name);
        list[i]->type = t;
    }
    return list;
}

static void write_functions(struct arena *a, const struct mil_program *p,
                            Ml__Description *out)
{
    out->n_functions = p->n_functions;
    out->functions = pb_array(a, p->n_functions, sizeof(*out->functions));
    for (size_t i = 0; i < p->n_functions; i++) {
        const struct mil_function *f = p->functions[i];
        Ml__FunctionDescription *d =
            pb_new(a, &ml__function_description__descriptor);
        d->name = text(a, f->name);
        d->n_input = f->n_in;
        d->input = write_features(a, f->n_in, f->in);
        d->n_output = f->n_out;
        d->output = write_features(a, f->n_out, f->out);
        d->n_state = f->n_states;
        d->state = write_features(a, f->n_states, f->states);
        out->functions[i] = d;
    }
    out->default_function = text(a, p->functions[p->default_function]->name);
}

static Ml__Metadata *write_metadata(struct arena *a,
                                    const struct mil_program *p)
{
    Ml__Metadata *out = pb_new(a, &ml__metadata__descriptor);
    if (p->short_description != NULL) {
        out->short_description = text(a, p->short_description);
    }
    out->n_user_defined = p->n_meta;
    out->user_defined = pb_array(a, p->n_meta, sizeof(*out->user_defined));
    for (size_t i = 0; i < p->n_meta; i++) {
        Ml__StringEntry *s = pb_new(a, &ml__string_entry__descriptor);
        s->key = text(a, p->meta[i].key);
        s->value = text(a, p->meta[i].value);
        out->user_defined[i] = s;
    }
    return out;
}

Ml__Description *describe_write(struct arena *a, const struct mil_program *p)
{
    Ml__Description *out = pb_new(a, &ml__description__descriptor);
    if (p->multi) {
        write_functions(a, p, out);
    } else {
        const struct mil_function *f = p->functions[p->default_function];
        out->n_input = f->n_in;
        out->input = write_features(a, f->n_in, f->in);
        out->n_output = f->n_out;
        out->output = write_features(a, f->n_out, f->out);
        out->n_state = f->n_states;
        out->state = write_features(a, f->n_states, f->states);
    }
    if (p->short_description != NULL || p->n_meta > 0) {
        out->metadata = write_metadata(a, p);
    }
    return out;
}
