/* access.c - getters of a program: functions, operands, constants. */
#include <string.h>

#include "base/half.h"
#include "mil/impl.h"

void mil_free(struct mil_program *p)
{
    if (p == NULL) {
        return;
    }
    for (size_t i = 0; i < p->n_maps; i++) {
        file_unmap(&p->maps[i]);
    }
    free(p->maps);
    arena_fini(&p->arena);
    free(p);
}

const struct mil_function *mil_function_find(const struct mil_program *p,
                                             const char *name)
{
    if (name == NULL) {
        return p->n_functions > 0 ? p->functions[p->default_function] : NULL;
    }
    for (size_t i = 0; i < p->n_functions; i++) {
        if (strcmp(p->functions[i]->name, name) == 0) {
            return p->functions[i];
        }
    }
    return NULL;
}

const struct mil_arg *mil_op_arg(const struct mil_op *op, const char *name)
{
    for (size_t i = 0; i < op->n_args; i++) {
        if (strcmp(op->args[i].name, name) == 0) {
            return &op->args[i];
        }
    }
    return NULL;
}

static const struct mil_const *attr(const struct mil_op *op, const char *name)
{
    for (size_t i = 0; i < op->n_attrs; i++) {
        if (strcmp(op->attrs[i].name, name) == 0) {
            return op->attrs[i].val;
        }
    }
    return NULL;
}

const struct mil_const *mil_value_const(const struct mil_value *v)
{
    if (v == NULL || v->def == NULL || strcmp(v->def->type, "const") != 0) {
        return NULL;
    }
    return attr(v->def, "val");
}

const struct mil_const *mil_op_const(const struct mil_op *op, const char *name)
{
    const struct mil_arg *a = mil_op_arg(op, name);
    if (a == NULL) {
        return attr(op, name);
    }
    if (a->n != 1) {
        return NULL;
    }
    return a->b[0].imm != NULL ? a->b[0].imm : mil_value_const(a->b[0].value);
}

struct mil_value *mil_op_value(const struct mil_op *op, const char *name)
{
    const struct mil_arg *a = mil_op_arg(op, name);
    return a != NULL && a->n == 1 ? a->b[0].value : NULL;
}

/* Element i as an integer; false for floats, strings and what int64 cannot
 * hold. Sub-byte types are a bit stream, least significant bit first. */
static bool get_int(const struct mil_const *c, uint64_t i, int64_t *ret)
{
    unsigned bits = mil_dtype_bits(c->type.dtype);
    uint64_t raw = 0;
    if (bits >= 8) {
        /* little-endian hosts only, like everything that maps weights */
        memcpy(&raw, (const uint8_t *)c->data + i * (bits / 8), bits / 8);
    } else {
        const uint8_t *p = c->data;
        for (unsigned k = 0; k < bits; k++) {
            uint64_t at = i * bits + k;
            raw |= (uint64_t)((p[at / 8] >> (at % 8)) & 1u) << k;
        }
    }
    switch (c->type.dtype) {
    case MIL_INT4:
    case MIL_INT8:
    case MIL_INT16:
    case MIL_INT32:
    case MIL_INT64:
        if (bits < 64 && (raw >> (bits - 1)) != 0) {
            raw |= ~(uint64_t)0 << bits;
        }
        *ret = (int64_t)raw;
        return true;
    case MIL_BOOL:
    case MIL_UINT1:
    case MIL_UINT2:
    case MIL_UINT3:
    case MIL_UINT4:
    case MIL_UINT6:
    case MIL_UINT8:
    case MIL_UINT16:
    case MIL_UINT32:
    case MIL_UINT64:
        *ret = (int64_t)raw;
        return raw <= INT64_MAX;
    case MIL_NONE:
    case MIL_STRING:
    case MIL_FP16:
    case MIL_FP32:
    case MIL_FP64:
    case MIL_BF16:
        break;
    }
    return false;
}

/* Elements of c when there are at most cap of them and their bytes are there.
 */
static bool countable(const struct mil_const *c, size_t cap, size_t *ret)
{
    uint64_t n = 0;
    if (c == NULL || c->type.dtype == MIL_NONE || c->type.dtype == MIL_STRING ||
        !mil_type_count(&c->type, &n) || n > cap) {
        return false;
    }
    *ret = (size_t)n;
    return true;
}

bool mil_const_ints(const struct mil_const *c, int64_t *out, size_t cap,
                    size_t *ret_n)
{
    size_t n = 0;
    if (!countable(c, cap, &n) || c->type.dtype == MIL_BOOL) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (!get_int(c, i, &out[i])) {
            return false;
        }
    }
    *ret_n = n;
    return true;
}

bool mil_const_floats(const struct mil_const *c, float *out, size_t cap,
                      size_t *ret_n)
{
    size_t n = 0;
    if (!countable(c, cap, &n) || c->type.dtype == MIL_BOOL) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        uint16_t h = 0;
        double d = 0;
        int64_t v = 0;
        const uint8_t *p = c->data;
        if (c->type.dtype == MIL_FP16) {
            memcpy(&h, p + i * 2, 2);
            out[i] = half_to_float(h);
        } else if (c->type.dtype == MIL_BF16) {
            memcpy(&h, p + i * 2, 2);
            out[i] = half_from_bf16(h);
        } else if (c->type.dtype == MIL_FP32) {
            memcpy(&out[i], p + i * 4, 4);
        } else if (c->type.dtype == MIL_FP64) {
            memcpy(&d, p + i * 8, 8);
            out[i] = (float)d;
        } else if (get_int(c, i, &v)) {
            out[i] = (float)v;
        } else {
            return false;
        }
    }
    *ret_n = n;
    return true;
}

bool mil_const_bools(const struct mil_const *c, bool *out, size_t cap,
                     size_t *ret_n)
{
    size_t n = 0;
    if (!countable(c, cap, &n) || c->type.dtype != MIL_BOOL) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        out[i] = ((const uint8_t *)c->data)[i] != 0;
    }
    *ret_n = n;
    return true;
}

const char *mil_const_str(const struct mil_const *c)
{
    if (c == NULL || c->type.dtype != MIL_STRING || c->type.rank != 0 ||
        c->n_strings != 1) {
        return NULL;
    }
    return c->strings[0];
}
