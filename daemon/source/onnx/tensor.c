/* tensor.c - a tensor of the file: its type, shape and bytes.
 *
 * The bytes stand in raw_data, in a list of numbers, or in another file, and
 * in one of them only. Whatever the form, they become little-endian bytes in a
 * row, and there are exactly as many as the shape takes.
 */
#include <string.h>

#include "base/num.h"
#include "source/onnx/reader.h"

enum { LOCATION_EXTERNAL = 1 };

static const struct {
    enum onnx_type type;
    const char *name;
    unsigned bits;
} types[] = {
    {ONNX_FLOAT,    "FLOAT",    32},
    {ONNX_UINT8,    "UINT8",    8 },
    {ONNX_INT8,     "INT8",     8 },
    {ONNX_INT32,    "INT32",    32},
    {ONNX_INT64,    "INT64",    64},
    {ONNX_BOOL,     "BOOL",     8 },
    {ONNX_FLOAT16,  "FLOAT16",  16},
    {ONNX_BFLOAT16, "BFLOAT16", 16},
    {ONNX_UINT4,    "UINT4",    4 },
    {ONNX_INT4,     "INT4",     4 },
};

static unsigned bits_of(int64_t type)
{
    for (size_t i = 0; i < countof(types); i++) {
        if ((int64_t)types[i].type == type) {
            return types[i].bits;
        }
    }
    return 0;
}

const char *onnx_type_name(enum onnx_type t)
{
    for (size_t i = 0; i < countof(types); i++) {
        if (types[i].type == t) {
            return types[i].name;
        }
    }
    return "?";
}

bool onnx_type_bytes(enum onnx_type t, uint64_t n, uint64_t *ret)
{
    unsigned bits = bits_of(t);
    if (bits == 4) {
        *ret = n / 2 + n % 2;
        return true;
    }
    return bits > 0 && num_mul(n, bits / 8, ret);
}

static int read_shape(const Ox__Tensor *in, struct onnx_tensor *t,
                      struct err *e)
{
    if (bits_of(in->data_type) == 0) {
        return err_set(e, ERR_UNSUPPORTED,
                       "its data type is %d; aned reads FLOAT, FLOAT16, "
                       "BFLOAT16, BOOL, INT4 to INT64 and UINT4, UINT8",
                       in->data_type);
    }
    if (in->n_dims > ONNX_DIMS_MAX) {
        return err_set(e, ERR_ONNX, "it has %zu dimensions, more than %u",
                       in->n_dims, ONNX_DIMS_MAX);
    }
    t->type = (enum onnx_type)in->data_type;
    t->n_dims = (uint32_t)in->n_dims;
    t->elems = 1;
    for (size_t i = 0; i < in->n_dims; i++) {
        if (in->dims[i] < 0 ||
            !num_mul(t->elems, (uint64_t)in->dims[i], &t->elems)) {
            return err_set(e, ERR_ONNX,
                           "dimension %zu is %lld: no shape that fits", i,
                           (long long)in->dims[i]);
        }
        t->dims[i] = (uint64_t)in->dims[i];
    }
    if (t->elems > (uint64_t)1 << 48 ||
        !onnx_type_bytes(t->type, t->elems, &t->bytes)) {
        return err_set(e, ERR_ONNX, "its shape has %llu elements",
                       (unsigned long long)t->elems);
    }
    return 0;
}

static int wrong_count(size_t n, uint64_t want, struct err *e)
{
    return err_set(e, ERR_ONNX, "it has %zu values, its shape takes %llu", n,
                   (unsigned long long)want);
}

static int no_memory(struct err *e)
{
    return err_set(e, ERR_TOO_BIG, "the model needs too much memory");
}

/* int32_data holds the smaller types, one value (4-bit types: one byte) each.
 */
static int read_int32s(struct onnx *m, const Ox__Tensor *in,
                       struct onnx_tensor *t, struct err *e)
{
    unsigned bits = bits_of(t->type);
    size_t unit = bits <= 8 ? 1 : bits / 8;
    uint64_t want = t->bytes / unit;
    if (t->type == ONNX_FLOAT || t->type == ONNX_INT64) {
        return err_set(e, ERR_ONNX, "%s values in int32_data",
                       onnx_type_name(t->type));
    }
    if (in->n_int32_data != want) {
        return wrong_count(in->n_int32_data, want, e);
    }
    uint8_t *p = arena_alloc(&m->arena, (size_t)t->bytes + 1);
    if (p == NULL) {
        return no_memory(e);
    }
    for (size_t i = 0; i < in->n_int32_data; i++) {
        int32_t v = in->int32_data[i];
        int32_t lo = unit == 4 ? INT32_MIN : unit == 2 ? 0 : -128;
        int32_t hi = unit == 4 ? INT32_MAX : unit == 2 ? 65535 : 255;
        if (v < lo || v > hi) {
            return err_set(e, ERR_ONNX, "value %zu is %d, too large for %s", i,
                           v, onnx_type_name(t->type));
        }
        memcpy(p + i * unit, &v, unit);
    }
    t->data = p;
    return 0;
}

static int copy_bytes(struct onnx *m, const void *p, struct onnx_tensor *t,
                      struct err *e)
{
    uint8_t *to = arena_alloc(&m->arena, (size_t)t->bytes + 1);
    if (to == NULL) {
        return no_memory(e);
    }
    if (t->bytes > 0) {
        memcpy(to, p, (size_t)t->bytes);
    }
    t->data = to;
    return 0;
}

static int read_values(struct onnx *m, const Ox__Tensor *in,
                       struct onnx_tensor *t, struct err *e)
{
    int forms = (in->raw_data.len > 0) + (in->n_float_data > 0) +
                (in->n_int32_data > 0) + (in->n_int64_data > 0);
    if (forms > 1) {
        return err_set(e, ERR_ONNX, "its values stand in several forms");
    }
    if (in->raw_data.len > 0 || t->bytes == 0) {
        if (forms == 1 && in->raw_data.len != t->bytes) {
            return err_set(e, ERR_ONNX, "it has %zu bytes, its shape takes %llu",
                           in->raw_data.len, (unsigned long long)t->bytes);
        }
        return copy_bytes(m, in->raw_data.data, t, e);
    }
    if (in->n_int32_data > 0) {
        return read_int32s(m, in, t, e);
    }
    bool floats = t->type == ONNX_FLOAT && in->n_int64_data == 0;
    bool longs = t->type == ONNX_INT64 && in->n_float_data == 0;
    size_t n = floats ? in->n_float_data : longs ? in->n_int64_data : 0;
    if (n != t->elems) {
        return wrong_count(n, t->elems, e);
    }
    return copy_bytes(
        m, floats ? (const void *)in->float_data : (const void *)in->int64_data,
        t, e);
}

static int read_parts(struct onnx *m, const struct onnx_files *files,
                      const Ox__Tensor *in, struct onnx_tensor *t,
                      struct err *e)
{
    bool external = in->data_location == LOCATION_EXTERNAL;
    bool here = in->raw_data.len > 0 || in->n_float_data > 0 ||
                in->n_int32_data > 0 || in->n_int64_data > 0;
    RETERR(read_shape(in, t, e));
    if (in->base.n_unknown_fields > 0 || in->segment.len > 0 ||
        in->n_string_data > 0 || in->n_double_data > 0 ||
        in->n_uint64_data > 0) {
        return err_set(e, ERR_UNSUPPORTED,
                       "it has fields that aned does not read");
    }
    if (in->data_location != 0 && !external) {
        return err_set(e, ERR_ONNX, "its data location is %d",
                       in->data_location);
    }
    if (external != (in->n_external_data > 0) || (external && here)) {
        return err_set(e, ERR_ONNX_DATA,
                       "its data is both in the model and outside, or in "
                       "neither");
    }
    return external ? onnx_external(m, files, in, t, e)
                    : read_values(m, in, t, e);
}

int onnx_tensor_read(struct onnx *m, const struct onnx_files *files,
                     const Ox__Tensor *in, struct onnx_tensor *t,
                     struct err *e)
{
    *t = (struct onnx_tensor){.name = ""};
    RETERR(onnx_text(m, in->name.data, in->name.len, ONNX_NAME_MAX,
                     "a tensor's name", &t->name, e));
    int rc = read_parts(m, files, in, t, e);
    return rc < 0 ? err_prefix(e, rc, "tensor '%.120s'", t->name) : 0;
}
