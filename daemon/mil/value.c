/* value.c - tensor types and constants: protobuf to program and back.
 *
 * In memory a constant is dense little-endian in its own width. On the wire
 * the member of TensorValue depends on the dtype (facts 3.4): int32 and the
 * 16-bit integers are varints, 8-bit and half floats are raw bytes.
 */
#include <string.h>

#include "base/num.h"
#include "mil/spec.h"

/* --- reading --- */

static int read_tensor_type(const Ml__TensorType *in, struct mil_type *t,
                            struct err *e)
{
    if (!mil_dtype_known(in->data_type)) {
        return err_set(e, ERR_MIL_INVALID, "dtype number %d is unknown",
                       (int)in->data_type);
    }
    if (in->rank < 0 || (uint64_t)in->rank != in->n_dimensions ||
        in->n_dimensions > MIL_RANK_MAX) {
        return err_set(e, ERR_MIL_SHAPE,
                       "rank %lld with %zu dimensions (at most %u)",
                       (long long)in->rank, in->n_dimensions, MIL_RANK_MAX);
    }
    t->dtype = (enum mil_dtype)in->data_type;
    t->rank = (int)in->rank;
    for (int i = 0; i < t->rank; i++) {
        const Ml__Dimension *d = in->dimensions[i];
        switch (d->kind_case) {
        case ML__DIMENSION__KIND_CONSTANT:
            if (d->constant->size > INT64_MAX) {
                return err_set(e, ERR_MIL_SHAPE, "dimension %d is too large",
                               i);
            }
            t->dims[i] = (int64_t)d->constant->size;
            break;
        case ML__DIMENSION__KIND_UNKNOWN:
            if (d->unknown->variadic) {
                return err_set(e, ERR_MIL_SHAPE, "dimension %d is variadic", i);
            }
            t->dims[i] = MIL_UNKNOWN;
            break;
        case ML__DIMENSION__KIND__NOT_SET:
        case _ML__DIMENSION__KIND__CASE_IS_INT_SIZE:
        default:
            return err_set(e, ERR_MIL_SHAPE, "dimension %d is empty", i);
        }
    }
    return 0;
}

int type_read(const Ml__ValueType *in, struct mil_type *ret, struct err *e)
{
    struct mil_type t = {.dtype = MIL_NONE};
    const Ml__TensorType *tensor = NULL;
    if (in != NULL && in->kind_case == ML__VALUE_TYPE__KIND_TENSOR) {
        tensor = in->tensor;
    } else if (in != NULL && in->kind_case == ML__VALUE_TYPE__KIND_STATE) {
        t.state = true;
        tensor = in->state->wrapped != NULL ? in->state->wrapped->tensor : NULL;
    }
    int rc = tensor != NULL ? read_tensor_type(tensor, &t, e) : 0;
    if (rc == 0) {
        *ret = t;
    }
    return rc;
}

/* Elements as they stand in the message, before they are put in their width. */
struct wire {
    const void *p;
    size_t n;     /* elements, or bytes when width is 0 */
    size_t width; /* of one element of p; 0: raw bytes in the dtype's layout */
};

/* The member that facts 3.4 asks for; false when another one is set. An unset
 * oneof is an empty tensor. */
static bool pick(const Ml__Tensor *in, enum mil_dtype t, struct wire *w)
{
    Ml__Tensor__KindCase want = ML__TENSOR__KIND_BYTES;
    *w = (struct wire){0};
    switch (t) {
    case MIL_INT16:
    case MIL_UINT16:
    case MIL_INT32:
        want = ML__TENSOR__KIND_INTS;
        w->width = sizeof(int32_t);
        break;
    case MIL_INT64:
    case MIL_UINT64:
        want = ML__TENSOR__KIND_LONG_INTS;
        w->width = sizeof(int64_t);
        break;
    case MIL_FP32:
        want = ML__TENSOR__KIND_FLOATS;
        w->width = sizeof(float);
        break;
    case MIL_FP64:
        want = ML__TENSOR__KIND_DOUBLES;
        w->width = sizeof(double);
        break;
    case MIL_BOOL:
        want = ML__TENSOR__KIND_BOOLS;
        w->width = sizeof(protobuf_c_boolean);
        break;
    case MIL_NONE:
    case MIL_STRING:
    case MIL_FP16:
    case MIL_BF16:
    case MIL_INT4:
    case MIL_INT8:
    case MIL_UINT1:
    case MIL_UINT2:
    case MIL_UINT3:
    case MIL_UINT4:
    case MIL_UINT6:
    case MIL_UINT8:
    case MIL_UINT32:
        break;
    }
    if (in == NULL || in->kind_case == ML__TENSOR__KIND__NOT_SET) {
        return true;
    }
    if (in->kind_case != want) {
        return false;
    }
    if (want == ML__TENSOR__KIND_INTS) {
        w->p = in->ints->values;
        w->n = in->ints->n_values;
    } else if (want == ML__TENSOR__KIND_LONG_INTS) {
        w->p = in->long_ints->values;
        w->n = in->long_ints->n_values;
    } else if (want == ML__TENSOR__KIND_FLOATS) {
        w->p = in->floats->values;
        w->n = in->floats->n_values;
    } else if (want == ML__TENSOR__KIND_DOUBLES) {
        w->p = in->doubles->values;
        w->n = in->doubles->n_values;
    } else if (want == ML__TENSOR__KIND_BOOLS) {
        w->p = in->bools->values;
        w->n = in->bools->n_values;
    } else {
        w->p = in->bytes->values.data;
        w->n = in->bytes->values.len;
    }
    return true;
}

/* n elements of w into out in the width of t; the index of the first that does
 * not fit, or n. */
static size_t narrow(const struct wire *w, enum mil_dtype t, uint8_t *out)
{
    const int32_t *ints = w->p;
    const protobuf_c_boolean *bools = w->p;
    for (size_t i = 0; i < w->n; i++) {
        if (t == MIL_BOOL) {
            out[i] = bools[i] != 0;
            continue;
        }
        int32_t lo = t == MIL_INT16 ? INT16_MIN : 0;
        int32_t hi = t == MIL_INT16 ? INT16_MAX : UINT16_MAX;
        if (ints[i] < lo || ints[i] > hi) {
            return i;
        }
        uint16_t v = (uint16_t)ints[i];
        memcpy(out + i * 2, &v, 2);
    }
    return w->n;
}

static int read_numbers(struct reader *r, const Ml__Tensor *in,
                        struct mil_const *c, struct err *e)
{
    struct wire w = {0};
    if (!pick(in, c->type.dtype, &w)) {
        return err_set(e, ERR_MIL_INVALID,
                       "an immediate %s value stands in the wrong member",
                       mil_dtype_name(c->type.dtype));
    }
    uint64_t count = 0;
    uint64_t bytes = 0;
    if (!mil_type_count(&c->type, &count) ||
        !mil_dtype_bytes(c->type.dtype, count, &bytes) ||
        w.n != (w.width == 0 ? bytes : count)) {
        char type[128];
        mil_type_print(&c->type, type, sizeof(type));
        return err_set(e, ERR_MIL_INVALID,
                       "an immediate value of type %s holds %zu %s", type, w.n,
                       w.width == 0 ? "bytes" : "elements");
    }
    uint8_t *data = arena_alloc(&r->p->arena, (size_t)bytes);
    if (data == NULL) {
        return err_set(e, ERR_TOO_BIG, "constants need too much memory");
    }
    if (w.width == 0 || bytes == count * w.width) {
        memcpy(data, w.n > 0 ? w.p : "", (size_t)bytes);
    } else {
        size_t bad = narrow(&w, c->type.dtype, data);
        if (bad < w.n) {
            return err_set(e, ERR_MIL_INVALID,
                           "element %zu of an immediate %s is out of range",
                           bad, mil_dtype_name(c->type.dtype));
        }
    }
    c->data = data;
    c->bytes = bytes;
    return 0;
}

static int read_strings(struct reader *r, const Ml__Tensor *in,
                        struct mil_const *c, struct err *e)
{
    uint64_t count = 0;
    size_t n = 0;
    char *const *from = NULL;
    if (in != NULL && in->kind_case == ML__TENSOR__KIND_STRINGS) {
        n = in->strings->n_values;
        from = in->strings->values;
    } else if (in != NULL && in->kind_case != ML__TENSOR__KIND__NOT_SET) {
        return err_set(e, ERR_MIL_INVALID, "a string value holds no strings");
    }
    if (!mil_type_count(&c->type, &count) || n != count) {
        return err_set(e, ERR_MIL_INVALID, "a string value holds %zu strings",
                       n);
    }
    const char **list = arena_array(&r->p->arena, n, sizeof(*list));
    for (size_t i = 0; i < n && list != NULL; i++) {
        list[i] = arena_str(&r->p->arena, from[i]);
        if (list[i] == NULL) {
            list = NULL;
        }
    }
    if (list == NULL) {
        return err_set(e, ERR_TOO_BIG, "constants need too much memory");
    }
    c->strings = list;
    c->n_strings = n;
    return 0;
}

static int read_blob(struct reader *r, const Ml__BlobFile *in,
                     struct mil_const *c, struct err *e)
{
    static const char prefix[] = MIL_PREFIX;
    const char *name = in->file_name;
    if (strncmp(name, prefix, sizeof(prefix) - 1) != 0) {
        return err_set(e, ERR_MIL_BLOB, "blob file \"%s\" is not below %s",
                       name, prefix);
    }
    const struct file_map *map = NULL;
    int rc =
        r->weights.find(r->weights.ctx, name + sizeof(prefix) - 1, &map, e);
    if (rc < 0) {
        return rc;
    }
    const uint8_t *data = NULL;
    rc = blob_find(map, in->offset, &c->type, &data, &c->bytes, e);
    if (rc < 0) {
        return err_prefix(e, rc, "%s", name);
    }
    c->data = data;
    c->blob_offset = in->offset;
    c->blob_file = arena_str(&r->p->arena, name);
    return c->blob_file != NULL
               ? 0
               : err_set(e, ERR_TOO_BIG, "constants need too much memory");
}

int value_read(struct reader *r, const Ml__Value *in,
               const struct mil_const **ret, struct err *e)
{
    struct mil_const *c = arena_alloc(&r->p->arena, sizeof(*c));
    if (c == NULL) {
        return err_set(e, ERR_TOO_BIG, "constants need too much memory");
    }
    int rc = type_read(in->type, &c->type, e);
    if (rc < 0) {
        return rc;
    }
    const Ml__Tensor *tensor = NULL;
    if (in->kind_case == ML__VALUE__KIND_IMMEDIATE) {
        tensor = in->immediate->tensor;
    }
    if (c->type.dtype == MIL_NONE) {
        /* a list, tuple or dictionary: kept as "not a tensor" */
    } else if (in->kind_case == ML__VALUE__KIND_BLOB) {
        rc = read_blob(r, in->blob, c, e);
    } else if (c->type.dtype == MIL_STRING) {
        rc = read_strings(r, tensor, c, e);
    } else {
        rc = read_numbers(r, tensor, c, e);
    }
    if (rc < 0) {
        return rc;
    }
    *ret = c;
    return 0;
}

/* --- writing --- */

void *pb_array(struct arena *a, size_t n, size_t size)
{
    void *p = arena_array(a, n > 0 ? n : 1, size);
    must(p != NULL);
    return p;
}

void *pb_new(struct arena *a, const ProtobufCMessageDescriptor *d)
{
    void *p = pb_array(a, 1, d->sizeof_message);
    protobuf_c_message_init(d, p); /* d->message_init has another type */
    return p;
}

static Ml__TensorType *write_tensor_type(struct arena *a,
                                         const struct mil_type *t)
{
    Ml__TensorType *out = pb_new(a, &ml__tensor_type__descriptor);
    out->data_type = (int32_t)t->dtype;
    out->rank = t->rank;
    out->n_dimensions = (size_t)t->rank;
    out->dimensions = pb_array(a, out->n_dimensions, sizeof(Ml__Dimension *));
    for (int i = 0; i < t->rank; i++) {
        Ml__Dimension *d = pb_new(a, &ml__dimension__descriptor);
        if (t->dims[i] == MIL_UNKNOWN) {
            d->kind_case = ML__DIMENSION__KIND_UNKNOWN;
            d->unknown = pb_new(a, &ml__unknown_dimension__descriptor);
        } else {
            d->kind_case = ML__DIMENSION__KIND_CONSTANT;
            d->constant = pb_new(a, &ml__constant_dimension__descriptor);
            d->constant->size = (uint64_t)t->dims[i];
        }
        out->dimensions[i] = d;
    }
    return out;
}

Ml__ValueType *type_write(struct arena *a, const struct mil_type *t)
{
    Ml__ValueType *out = pb_new(a, &ml__value_type__descriptor);
    if (t->state) {
        out->kind_case = ML__VALUE_TYPE__KIND_STATE;
        out->state = pb_new(a, &ml__state_type__descriptor);
        out->state->wrapped = pb_new(a, &ml__wrapped_type__descriptor);
        out->state->wrapped->tensor = write_tensor_type(a, t);
    } else {
        out->kind_case = ML__VALUE_TYPE__KIND_TENSOR;
        out->tensor = write_tensor_type(a, t);
    }
    return out;
}

static Ml__Ints *write_ints(struct arena *a, const struct mil_const *c,
                            size_t n)
{
    Ml__Ints *out = pb_new(a, &ml__ints__descriptor);
    out->n_values = n;
    out->values = pb_array(a, n, sizeof(int32_t));
    for (size_t i = 0; i < n; i++) {
        uint16_t v = 0;
        if (c->type.dtype == MIL_INT32) {
            memcpy(&out->values[i], (const uint8_t *)c->data + i * 4, 4);
        } else {
            memcpy(&v, (const uint8_t *)c->data + i * 2, 2);
            out->values[i] = c->type.dtype == MIL_INT16 ? (int16_t)v : v;
        }
    }
    return out;
}

static Ml__Bools *write_bools(struct arena *a, const struct mil_const *c,
                              size_t n)
{
    Ml__Bools *out = pb_new(a, &ml__bools__descriptor);
    out->n_values = n;
    out->values = pb_array(a, n, sizeof(protobuf_c_boolean));
    for (size_t i = 0; i < n; i++) {
        out->values[i] = ((const uint8_t *)c->data)[i] != 0;
    }
    return out;
}

/* Same-width members are copied as they are. */
static void *copy_data(struct arena *a, const struct mil_const *c)
{
    void *p = pb_array(a, (size_t)c->bytes, 1);
    memcpy(p, c->bytes > 0 ? c->data : "", (size_t)c->bytes);
    return p;
}

static Ml__Tensor *write_tensor(struct arena *a, const struct mil_const *c)
{
    Ml__Tensor *out = pb_new(a, &ml__tensor__descriptor);
    uint64_t count = 0;
    must(mil_type_count(&c->type, &count));
    size_t n = (size_t)count;
    if (c->type.dtype == MIL_STRING) {
        out->kind_case = ML__TENSOR__KIND_STRINGS;
        out->strings = pb_new(a, &ml__strings__descriptor);
        out->strings->n_values = c->n_strings;
        out->strings->values = pb_array(a, c->n_strings, sizeof(char *));
        for (size_t i = 0; i < c->n_strings; i++) {
            out->strings->values[i] = arena_str(a, c->strings[i]);
            must(out->strings->values[i] != NULL);
        }
    } else if (c->type.dtype == MIL_BOOL) {
        out->kind_case = ML__TENSOR__KIND_BOOLS;
        out->bools = write_bools(a, c, n);
    } else if (c->type.dtype == MIL_INT32 || c->type.dtype == MIL_INT16 ||
               c->type.dtype == MIL_UINT16) {
        out->kind_case = ML__TENSOR__KIND_INTS;
        out->ints = write_ints(a, c, n);
    } else if (c->type.dtype == MIL_INT64 || c->type.dtype == MIL_UINT64) {
        out->kind_case = ML__TENSOR__KIND_LONG_INTS;
        out->long_ints = pb_new(a, &ml__long_ints__descriptor);
        out->long_ints->n_values = n;
        out->long_ints->values = copy_data(a, c);
    } else if (c->type.dtype == MIL_FP32) {
        out->kind_case = ML__TENSOR__KIND_FLOATS;
        out->floats = pb_new(a, &ml__floats__descriptor);
        out->floats->n_values = n;
        out->floats->values = copy_data(a, c);
    } else if (c->type.dtype == MIL_FP64) {
        out->kind_case = ML__TENSOR__KIND_DOUBLES;
        out->doubles = pb_new(a, &ml__doubles__descriptor);
        out->doubles->n_values = n;
        out->doubles->values = copy_data(a, c);
    } else {
        out->kind_case = ML__TENSOR__KIND_BYTES;
        out->bytes = pb_new(a, &ml__bytes__descriptor);
        out->bytes->values.len = (size_t)c->bytes;
        out->bytes->values.data = copy_data(a, c);
    }
    return out;
}

Ml__Value *value_write(struct arena *a, const struct mil_const *c)
{
    Ml__Value *out = pb_new(a, &ml__value__descriptor);
    out->type = type_write(a, &c->type);
    if (c->blob_file != NULL) {
        out->kind_case = ML__VALUE__KIND_BLOB;
        out->blob = pb_new(a, &ml__blob_file__descriptor);
        out->blob->file_name = arena_str(a, c->blob_file);
        must(out->blob->file_name != NULL);
        out->blob->offset = c->blob_offset;
    } else {
        out->kind_case = ML__VALUE__KIND_IMMEDIATE;
        out->immediate = pb_new(a, &ml__immediate__descriptor);
        out->immediate->tensor = write_tensor(a, c);
    }
    return out;
}

void value_encode(const struct mil_const *c, struct buf *out)
{
    struct arena a = {0};
    arena_init(&a, 0);
    const Ml__Value *v = value_write(&a, c);
    size_t n = ml__value__get_packed_size(v);
    uint8_t *to = buf_grow(out, n);
    must(to != NULL && ml__value__pack(v, to) == n);
    arena_fini(&a);
}

int value_decode(struct mil_program *p, const void *bytes, size_t n,
                 const struct mil_const **ret, struct err *e)
{
    struct reader r = {.p = p};
    Ml__Value *v = ml__value__unpack(NULL, n, bytes);
    if (v == NULL) {
        return err_set(e, ERR_PKG_PROTOBUF, "%zu bytes that are no Value", n);
    }
    int rc = v->kind_case == ML__VALUE__KIND_BLOB
                 ? err_set(e, ERR_MIL_BLOB, "no weight files here")
                 : value_read(&r, v, ret, e);
    ml__value__free_unpacked(v, NULL);
    return rc;
}
