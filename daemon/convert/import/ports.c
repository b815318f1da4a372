/* ports.c - a package's inputs, outputs and states against the contract
 * (design 5.1), in the names and shapes that the public converter writes.
 *
 * It calls the input of a head `hidden`; the engine knows that as x.
 */
#include <string.h>

#include "convert/import/impl.h"

#define T_HERE (-2) /* in an expected shape: the T dimension */

struct port {
    const char *name;
    int rank;
    int64_t dims[4];
};

/* --- shapes --- */

static bool floats(const struct mil_type *t)
{
    return t->dtype == MIL_FP16 || t->dtype == MIL_FP32;
}

/* The feature has the shape; its T, if it has one, is put into *t. */
static bool fits(const struct mil_feature *f, const struct port *want,
                 struct import_ports *t)
{
    bool ok = f->type.rank == want->rank && floats(&f->type);
    for (int i = 0; ok && i < want->rank; i++) {
        int64_t lo = f->has_range ? f->lo[i] : f->type.dims[i];
        int64_t hi = f->has_range ? f->hi[i] : f->type.dims[i];
        if (want->dims[i] != T_HERE) {
            ok = lo == want->dims[i] && hi == want->dims[i];
            continue;
        }
        hi = hi < 0 || hi > ENGINE_CHUNK_MAX ? ENGINE_CHUNK_MAX : hi;
        ok = lo >= 1 && hi >= lo &&
             (t->t_min == 0 || (t->t_min == lo && t->t_max == hi));
        t->t_min = (uint32_t)lo;
        t->t_max = (uint32_t)hi;
    }
    return ok;
}

static int refuse_shape(const struct mil_feature *f, const struct port *want,
                        struct err *e)
{
    char have[128];
    char text[128];
    size_t n = 0;
    mil_type_print(&f->type, have, sizeof(have));
    for (int i = 0; i < want->rank; i++) {
        const char *sep = i == 0 ? "" : ", ";
        n += (size_t)(want->dims[i] == T_HERE
                          ? snprintf(text + n, sizeof(text) - n, "%sT", sep)
                          : snprintf(text + n, sizeof(text) - n, "%s%lld", sep,
                                     (long long)want->dims[i]));
    }
    return err_set(e, ERR_CONVERT,
                   "%s has shape %s; by the manifest it is [%s], with one T "
                   "for all inputs",
                   f->name, have, text);
}

/* Each feature is one of the wanted ports, which come once. With `all` each of
 * these must be there. */
static int match(const struct mil_feature *f, size_t n, const char *kind,
                 const struct port *want, size_t n_want, bool all,
                 struct import_ports *t, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < n_want && strcmp(want[k].name, f[i].name) != 0) {
            k++;
        }
        if (k == n_want) {
            return err_set(e, ERR_UNSUPPORTED,
                           "%s %.100s is not of the contract that aned serves",
                           kind, f[i].name);
        }
        if (!fits(&f[i], &want[k], t)) {
            return refuse_shape(&f[i], &want[k], e);
        }
    }
    if (all && n < n_want) {
        return err_set(e, ERR_UNSUPPORTED, "%zu %ss of %zu; one is %s", n, kind,
                       n_want, want[n_want - 1].name);
    }
    return 0;
}

/* The program's one function; how many rows it takes is found out later. */
static int one_function(const struct mil_program *p, struct import_ports *t,
                        struct err *e)
{
    if (p->n_functions != 1) {
        return err_set(e, ERR_UNSUPPORTED,
                       "%zu functions; one with a range of "
                       "T is what aned imports",
                       p->n_functions);
    }
    *t = (struct import_ports){.function = p->functions[0]->name};
    return 0;
}

/* The output's type stands in the program: the description may leave it out. */
static int check_output(const struct mil_function *f, const char *name,
                        int64_t rows, struct err *e)
{
    for (size_t i = 0; i < f->body->n_outputs; i++) {
        const struct mil_value *v = f->body->outputs[i];
        if (strcmp(v->name, name) != 0) {
            continue;
        }
        bool ok = v->type.rank == 4 && floats(&v->type) &&
                  (v->type.dims[1] == rows || v->type.dims[1] == MIL_UNKNOWN);
        char have[128];
        mil_type_print(&v->type, have, sizeof(have));
        return ok ? 0
                  : err_set(e, ERR_CONVERT,
                            "output %s has shape %s; by the manifest it is "
                            "[1, %lld, T, 1]",
                            name, have, (long long)rows);
    }
    return err_set(e, ERR_UNSUPPORTED, "there is no output %s", name);
}

/* --- layers --- */

/* "layers_3_k_state" of [1, n_kv, S, d_head]: the layer is counted in the
 * package. */
static int check_states(const struct mil_function *f,
                        const struct import_manifest *m, uint32_t n_layers,
                        struct err *e)
{
    for (uint32_t i = 0; i < 2 * n_layers; i++) {
        char name[64];
        (void)snprintf(name, sizeof(name), "layers_%u_%c_state", i / 2,
                       i % 2 == 0 ? 'k' : 'v');
        const struct port want = {
            name, 4, {1, m->n_kv_heads, m->context, m->d_head}
        };
        struct import_ports none = {.t_min = 0};
        size_t k = 0;
        while (k < f->n_states && strcmp(f->states[k].name, name) != 0) {
            k++;
        }
        if (k == f->n_states) {
            return err_set(e, ERR_CONVERT, "there is no state %s", name);
        }
        if (!fits(&f->states[k], &want, &none)) {
            return refuse_shape(&f->states[k], &want, e);
        }
    }
    return f->n_states == (size_t)2 * n_layers
               ? 0
               : err_set(e, ERR_CONVERT, "%zu states for %u layers",
                         f->n_states, n_layers);
}

int import_layer_ports(const struct mil_program *p,
                       const struct import_manifest *m,
                       const struct import_part *part, struct import_ports *ret,
                       struct err *e)
{
    const int64_t s = m->context;
    const struct port inputs[] = {
        {"x",             4, {1, m->d_model, T_HERE, 1}     },
        {"rope_cos",      2, {T_HERE, m->rope_dim / 2, 0, 0}},
        {"rope_sin",      2, {T_HERE, m->rope_dim / 2, 0, 0}},
        {"attn_mask",     4, {1, 1, T_HERE, s}              },
        {"kv_write_mask", 4, {1, 1, s, T_HERE}              },
    };
    const struct mil_function *f = p->functions[0];
    RETERR(one_function(p, ret, e));
    RETERR(
        match(f->in, f->n_in, "input", inputs, countof(inputs), true, ret, e));
    RETERR(check_states(f, m, part->last - part->first, e));
    return check_output(f, "hidden", m->d_model, e);
}

int import_head_ports(const struct mil_program *p,
                      const struct import_manifest *m,
                      const struct import_part *part, struct import_ports *ret,
                      struct err *e)
{
    const struct port inputs[] = {
        {"x",      4, {1, m->d_model, T_HERE, 1}},
        {"hidden", 4, {1, m->d_model, T_HERE, 1}},
    };
    const struct mil_function *f = p->functions[0];
    RETERR(one_function(p, ret, e));
    RETERR(
        match(f->in, f->n_in, "input", inputs, countof(inputs), false, ret, e));
    if (f->n_in != 1 || f->n_states != 0) {
        return err_set(e, ERR_UNSUPPORTED,
                       "%zu inputs and %zu states; a head has one input, x or "
                       "hidden, and no state",
                       f->n_in, f->n_states);
    }
    return check_output(f, "logits", part->last - part->first, e);
}

/* --- weights --- */

static uint64_t elements(const struct mil_const *c)
{
    uint64_t n = 0;
    return c != NULL && mil_type_count(&c->type, &n) ? n : 0;
}

static enum import_form form_of(const struct mil_const *data,
                                const struct mil_const *scale)
{
    unsigned bits = mil_dtype_bits(data->type.dtype);
    if (bits == 4) {
        return FORM_INT4;
    }
    if (bits != 8) {
        return FORM_OTHER;
    }
    return elements(scale) <= 1 ? FORM_INT8_TENSOR : FORM_INT8;
}

static void add_op(struct import_weights *w, const struct mil_op *op)
{
    bool affine = strcmp(op->type, "constexpr_affine_dequantize") == 0;
    if (affine || strcmp(op->type, "constexpr_blockwise_shift_scale") == 0) {
        const struct mil_const *data =
            mil_op_const(op, affine ? "quantized_data" : "data");
        if (data != NULL) {
            w->n[form_of(data, mil_op_const(op, "scale"))] += elements(data);
        }
    } else if (strcmp(op->type, "constexpr_lut_to_dense") == 0) {
        const struct mil_const *c = mil_op_const(op, "indices");
        if (c != NULL) {
            unsigned bits = mil_dtype_bits(c->type.dtype);
            w->n[bits == 4   ? FORM_LUT4
                 : bits == 6 ? FORM_LUT6
                             : FORM_OTHER] += elements(c);
        }
    } else if (strcmp(op->type, "const") == 0) {
        const struct mil_const *c = mil_op_const(op, "val");
        if (c != NULL && c->type.rank > 1 && floats(&c->type)) {
            w->n[FORM_FP16] += elements(c);
        }
    }
}

void import_weights_add(struct import_weights *w, const struct mil_program *p)
{
    const struct mil_block *b = p->functions[0]->body;
    for (size_t i = 0; i < b->n_ops; i++) {
        add_op(w, b->ops[i]);
    }
}

const char *import_weights_name(const struct import_weights *w)
{
    static const char *const names[] = {
        [FORM_FP16] = "fp16",
        [FORM_INT8] = "int8",
        [FORM_INT8_TENSOR] = "int8-tensor",
        [FORM_INT4] = "int4",
        [FORM_LUT4] = "lut4",
        [FORM_LUT6] = "lut6",
        [FORM_OTHER] = "other",
    };
    size_t most = 0;
    for (size_t i = 1; i < FORMS; i++) {
        most = w->n[i] > w->n[most] ? i : most;
    }
    return names[most];
}
