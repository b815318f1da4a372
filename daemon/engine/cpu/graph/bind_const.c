/* bind_const.c - constants, kept the way their readers want them: when every
 * reader takes a constant in place (operands marked '%' in the table), it stays
 * where it is in the mapped file; otherwise it is decoded once, here. */
#include "engine/cpu/graph/bind_impl.h"

static int keep_in_place(struct backend_model *m, const struct raw *r,
                         struct val *v, struct err *e)
{
    const struct weight *w = NULL;
    RETERR(r->c != NULL ? weight_of_const(&m->arena, r->c, &w, e)
                        : weight_of_op(&m->arena, r->op, m->round, &w, e));
    v->w = w;
    v->known = true;
    v->p = NULL;
    RETERR(val_set(v, VAL_WEIGHT, w->type.rank, w->type.dims, e));
    if (w->kind == WEIGHT_F16) {
        v->kind = VAL_F16;
        v->h = w->data;
    } else if (w->kind == WEIGHT_F32 &&
               (uintptr_t)w->data % sizeof(float) == 0) {
        v->kind = VAL_F32; /* fp32 in the file is dense as it is */
        union {
            const void *c;
            void *p;
        } u = {.c = w->data}; /* values are only written by their own step */
        v->p = u.p;
    }
    return 0;
}

static int decode_ints(struct backend_model *m, const struct mil_const *c,
                       struct val *v, struct err *e)
{
    int rc = val_set(v, c->type.dtype == MIL_BOOL ? VAL_BOOL : VAL_I32,
                     c->type.rank, c->type.dims, e);
    if (rc < 0) {
        return rc;
    }
    v->p = arena_array(&m->arena, v->n > 0 ? v->n : 1, sizeof(int32_t));
    if (v->p == NULL) {
        return err_set(e, ERR_NOMEM, "constants");
    }
    for (size_t i = 0; i < v->n; i++) {
        int64_t x = const_int(c, i);
        if (x > INT32_MAX || x < INT32_MIN) {
            x = x < 0 ? INT32_MIN : INT32_MAX; /* "to the end" in slices */
        }
        v->i[i] = (int32_t)x;
    }
    return 0;
}

static int decode_floats(struct backend_model *m, struct val *v, struct err *e)
{
    const struct weight *w = v->w;
    float *f = arena_array(&m->arena, v->n > 0 ? v->n : 1, sizeof(float));
    if (f == NULL) {
        return err_set(e, ERR_NOMEM, "constants");
    }
    for (size_t r = 0; r < w->rows; r++) {
        weight_row(w, r, f + r * w->cols);
    }
    v->kind = VAL_F32;
    v->f = f;
    return 0;
}

static bool is_float(enum mil_dtype t)
{
    return t == MIL_FP16 || t == MIL_FP32 || t == MIL_FP64 || t == MIL_BF16;
}

static int bind_const(struct binder *b, int slot, struct err *e)
{
    struct backend_model *m = b->m;
    const struct raw *r = &b->raw[slot];
    struct val *v = &m->consts[slot];
    if (r->c != NULL && r->c->type.dtype == MIL_STRING) {
        v->kind = VAL_STR;
        v->str = mil_const_str(r->c);
        v->known = true;
        return v->str != NULL
                   ? 0
                   : err_set(e, ERR_MIL_INVALID, "a tensor of strings");
    }
    if (r->c != NULL && !is_float(r->c->type.dtype)) {
        int rc = decode_ints(m, r->c, v, e);
        v->known = true;
        return rc;
    }
    uint64_t n = 0;
    if (r->c != NULL && mil_type_count(&r->c->type, &n) && n == 0) {
        int rc = val_set(v, VAL_F32, r->c->type.rank, r->c->type.dims, e);
        v->known = true;
        v->p = arena_alloc(&m->arena, sizeof(float));
        return rc;
    }
    RETERR(keep_in_place(m, r, v, e));
    return r->dense && v->kind != VAL_F32 ? decode_floats(m, v, e) : 0;
}

int bind_consts(struct binder *b, struct err *e)
{
    for (size_t k = 0; k < b->m->n_out; k++) {
        b->raw[b->m->out_slot[k]].dense = true;
    }
    for (int i = 0; i < b->m->n_slots; i++) {
        if (b->raw[i].c != NULL || b->raw[i].op != NULL) {
            int rc = bind_const(b, i, e);
            if (rc < 0) {
                return i < (int)b->m->fn->n_values
                           ? err_prefix(e, rc, "function %s", b->m->fn->name)
                           : rc;
            }
        }
    }
    return 0;
}
