/* validate_description.c - the description by itself (facts 2.7) and against
 * the function it describes. */
#include <string.h>

#include "mil/sig.h"

static int feature_fail(struct err *e, const char *list,
                        const struct mil_feature *f, const char *what)
{
    return err_set(e, ERR_MIL_INVALID, "description: %s %s: %s", list, f->name,
                   what);
}

static int check_unique(const char *list, const struct mil_feature *f, size_t n,
                        struct err *e)
{
    struct names seen = {0};
    int rc = 0;
    for (size_t i = 0; i < n; i++) {
        if (!names_add(&seen, f[i].name, NULL)) {
            rc = feature_fail(e, list, &f[i], "twice the same name");
            goto out;
        }
    }
out:
    names_fini(&seen);
    return rc;
}

static int check_dtype(const char *list, const struct mil_feature *f, int spec,
                       struct err *e)
{
    enum mil_dtype t = f->type.dtype;
    if (t == MIL_FP32 || t == MIL_INT32 || (t == MIL_FP16 && spec >= 7) ||
        (t == MIL_INT8 && spec >= 10)) {
        return 0;
    }
    char what[96];
    (void)snprintf(what, sizeof(what), "dtype %s is not for %s",
                   mil_dtype_name(t), mil_opset(spec));
    return feature_fail(e, list, f, what);
}

static int check_range(const struct mil_feature *f, struct err *e)
{
    for (int k = 0; f->has_range && k < f->type.rank; k++) {
        int64_t d = f->type.dims[k];
        if (f->hi[k] >= 0 && f->hi[k] < f->lo[k]) {
            return feature_fail(e, "input", f,
                                "an upper bound is below the "
                                "lower one");
        }
        if (d < f->lo[k] || (f->hi[k] >= 0 && d > f->hi[k])) {
            return feature_fail(e, "input", f,
                                "the default shape is outside its range");
        }
    }
    return 0;
}

static int check_enumerated(const struct mil_feature *f, struct err *e)
{
    size_t rank = (size_t)f->type.rank;
    bool found = f->n_shapes == 0;
    for (size_t i = 0; i < f->n_shapes; i++) {
        found = found || memcmp(f->shapes + i * rank, f->type.dims,
                                rank * sizeof(*f->shapes)) == 0;
        for (size_t k = 0; k < rank; k++) {
            if (f->shapes[i * rank + k] < 1) {
                return feature_fail(e, "input", f,
                                    "an enumerated shape has an empty "
                                    "dimension");
            }
        }
    }
    return found ? 0
                 : feature_fail(e, "input", f,
                                "the default shape is not among the "
                                "enumerated ones");
}

static int check_input(const struct mil_feature *f, int spec, struct err *e)
{
    if (f->type.state) {
        return feature_fail(e, "input", f, "a state");
    }
    if (f->type.rank < 1) {
        return feature_fail(e, "input", f, "no shape");
    }
    for (int k = 0; k < f->type.rank; k++) {
        if (f->type.dims[k] < 1 && !f->has_range) {
            return feature_fail(e, "input", f, "an empty dimension");
        }
    }
    RETERR(check_dtype("input", f, spec, e));
    RETERR(check_range(f, e));
    return check_enumerated(f, e);
}

static int check_state(const struct mil_feature *f, int spec, struct err *e)
{
    if (!f->type.state) {
        return feature_fail(e, "state", f, "is no state");
    }
    if (spec < 9) {
        return feature_fail(e, "state", f, "needs specification version 9");
    }
    if (f->optional || f->has_default) {
        return feature_fail(e, "state", f, "optional or with a default value");
    }
    if (f->type.rank < 1 || f->has_range || f->n_shapes > 0) {
        return feature_fail(e, "state", f, "its shape must be static");
    }
    for (int k = 0; k < f->type.rank; k++) {
        if (f->type.dims[k] < 1) {
            return feature_fail(e, "state", f, "an empty dimension");
        }
    }
    if (f->type.dtype != MIL_FP16) {
        return feature_fail(e, "state", f, "dtype must be fp16");
    }
    return 0;
}

static int check_features(const struct mil_function *f, int spec, struct err *e)
{
    size_t optional = 0;
    RETERR(check_unique("input", f->in, f->n_in, e));
    RETERR(check_unique("output", f->out, f->n_out, e));
    RETERR(check_unique("state", f->states, f->n_states, e));
    for (size_t i = 0; i < f->n_in; i++) {
        RETERR(check_input(&f->in[i], spec, e));
        optional += f->in[i].optional;
    }
    for (size_t i = 0; i < f->n_states; i++) {
        RETERR(check_state(&f->states[i], spec, e));
    }
    for (size_t i = 0; i < f->n_out; i++) {
        RETERR(f->out[i].type.state
                   ? feature_fail(e, "output", &f->out[i], "a state")
                   : check_dtype("output", &f->out[i], spec, e));
    }
    if (f->n_out == 0) {
        return err_set(e, ERR_MIL_INVALID, "description: no output");
    }
    if (f->n_in == 0 && spec < 9) {
        return err_set(e, ERR_MIL_INVALID,
                       "description: no input needs specification version 9");
    }
    if (f->n_in > 0 && optional == f->n_in) {
        return err_set(e, ERR_MIL_INVALID,
                       "description: every input is optional");
    }
    return 0;
}

/* --- against the function --- */

static const struct mil_feature *feature_named(const struct mil_feature *f,
                                               size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(f[i].name, name) == 0) {
            return &f[i];
        }
    }
    return NULL;
}

/* An unknown dimension must be flexible, a constant one must not be. */
static int match_dims(const struct mil_value *v, const struct mil_feature *f,
                      struct err *e)
{
    size_t rank = (size_t)f->type.rank;
    bool flexible = f->has_range || f->n_shapes > 0;
    for (size_t k = 0; k < rank; k++) {
        int64_t d = v->type.dims[k];
        if (d == MIL_UNKNOWN) {
            if (!flexible) {
                return feature_fail(e, "input", f,
                                    "an unknown dimension needs a shapeRange "
                                    "or enumeratedShapes");
            }
            continue;
        }
        bool same = f->type.dims[k] == d;
        if (f->has_range) {
            same = same && f->lo[k] == d && f->hi[k] == d;
        }
        for (size_t i = 0; i < f->n_shapes; i++) {
            same = same && f->shapes[i * rank + k] == d;
        }
        if (!same) {
            return feature_fail(e, "input", f,
                                "a dimension differs from the function's");
        }
    }
    return 0;
}

static int match_input(const struct mil_function *f, const struct mil_value *v,
                       struct err *e)
{
    const struct mil_feature *d =
        v->type.state ? feature_named(f->states, f->n_states, v->name)
                      : feature_named(f->in, f->n_in, v->name);
    if (d == NULL) {
        return err_set(e, ERR_MIL_INVALID,
                       "description: %s %s of the function is absent",
                       v->type.state ? "state" : "input", v->name);
    }
    if (mil_name_reserved(v->name)) {
        return feature_fail(e, "input", d, "a reserved word");
    }
    if (v->type.state) {
        return mil_type_equal(&v->type, &d->type)
                   ? 0
                   : feature_fail(e, "state", d, "its type differs");
    }
    if (v->type.dtype != d->type.dtype || v->type.rank != d->type.rank) {
        return feature_fail(e, "input", d, "its dtype or rank differs");
    }
    return match_dims(v, d, e);
}

static int match_outputs(const struct mil_function *f, struct err *e)
{
    const struct mil_block *b = f->body;
    if (b->n_outputs != f->n_out) {
        return err_set(e, ERR_MIL_INVALID,
                       "description: %zu outputs, the function has %zu",
                       f->n_out, b->n_outputs);
    }
    for (size_t i = 0; i < f->n_out; i++) {
        const struct mil_feature *d = &f->out[i];
        const struct mil_value *v = b->outputs[i];
        if (strcmp(d->name, v->name) != 0) {
            return feature_fail(e, "output", d,
                                "not the name the function gives there");
        }
        if (v->type.state) {
            return feature_fail(e, "output", d, "a state");
        }
        struct mil_type declared = d->type;
        if (declared.rank == 0) { /* omitted */
            declared = v->type;
            declared.dtype = d->type.dtype;
        }
        if (!mil_type_agrees(&declared, &v->type)) {
            return feature_fail(e, "output", d, "its type differs");
        }
    }
    return 0;
}

/* Core ML aborts on fixed inputs beside ranged ones in a stateful function
 * (facts 11.2). */
static int check_mixture(const struct mil_function *f, struct err *e)
{
    const struct mil_feature *fixed = NULL;
    bool ranged = false;
    for (size_t i = 0; i < f->n_in; i++) {
        ranged = ranged || f->in[i].has_range;
        if (!f->in[i].has_range && f->in[i].n_shapes == 0) {
            fixed = &f->in[i];
        }
    }
    if (f->n_states > 0 && ranged && fixed != NULL) {
        return feature_fail(e, "input", fixed,
                            "has no shapeRange beside others that have, in a "
                            "function with states");
    }
    return 0;
}

int validate_description(const struct mil_program *p,
                         const struct mil_function *f, struct err *e)
{
    if (!p->multi && f != p->functions[p->default_function]) {
        return err_set(e, ERR_MIL_INVALID, "description: it is not described");
    }
    RETERR(check_features(f, p->spec_version, e));
    RETERR(check_mixture(f, e));
    for (size_t i = 0; i < f->n_inputs; i++) {
        RETERR(match_input(f, f->inputs[i], e));
    }
    if (f->n_in + f->n_states != f->n_inputs) {
        return err_set(e, ERR_MIL_INVALID,
                       "description: %zu inputs and %zu states, the function "
                       "has %zu",
                       f->n_in, f->n_states, f->n_inputs);
    }
    return match_outputs(f, e);
}
