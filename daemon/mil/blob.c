/* blob.c - MIL Blob Storage v2, the weight.bin format (facts 4).
 *
 * header 64 bytes | record 64 | data, padded to 64 | record 64 | data ...
 * A reference is the offset of a record. All little-endian.
 */
#include <string.h>

#include "base/num.h"
#include "mil/impl.h"

#define BLOB_VERSION  2u
#define BLOB_SENTINEL 0xDEADBEEFu

/* weight.bin numbers its dtypes differently from MIL.proto. */
static const struct {
    enum mil_dtype t;
    uint32_t number;
} numbers[] = {
    {MIL_FP16,   1 },
    {MIL_FP32,   2 },
    {MIL_UINT8,  3 },
    {MIL_INT8,   4 },
    {MIL_BF16,   5 },
    {MIL_INT16,  6 },
    {MIL_UINT16, 7 },
    {MIL_INT4,   8 },
    {MIL_UINT1,  9 },
    {MIL_UINT2,  10},
    {MIL_UINT4,  11},
    {MIL_UINT3,  12},
    {MIL_UINT6,  13},
    {MIL_INT32,  14},
    {MIL_UINT32, 15},
};

static uint32_t number_of(enum mil_dtype t)
{
    for (size_t i = 0; i < countof(numbers); i++) {
        if (numbers[i].t == t) {
            return numbers[i].number;
        }
    }
    return 0;
}

static void put_u32(uint8_t *p, uint32_t v)
{
    for (unsigned i = 0; i < 4; i++) {
        p[i] = (uint8_t)(v >> (8 * i));
    }
}

static void put_u64(uint8_t *p, uint64_t v)
{
    put_u32(p, (uint32_t)v);
    put_u32(p + 4, (uint32_t)(v >> 32));
}

int blob_check_header(const struct file_map *m, struct err *e)
{
    struct cur c = cur_of(m->p, m->n);
    (void)cur_u32(&c); /* count: readers go by references */
    uint32_t version = cur_u32(&c);
    if (m->n < BLOB_HEADER) {
        return err_set(e, ERR_MIL_BLOB,
                       "a weight file of %zu bytes has no header", m->n);
    }
    if (version != BLOB_VERSION) {
        return err_set(e, ERR_MIL_BLOB, "weight file version %u, not 2",
                       (unsigned)version);
    }
    return 0;
}

int blob_find(const struct file_map *m, uint64_t offset,
              const struct mil_type *t, const uint8_t **ret_data,
              uint64_t *ret_bytes, struct err *e)
{
    unsigned long long at = offset;
    if (offset < BLOB_HEADER || offset % BLOB_ALIGN != 0 || offset > m->n ||
        m->n - offset < BLOB_HEADER) {
        return err_set(e, ERR_MIL_BLOB,
                       "offset %llu is not a record's place in %zu bytes", at,
                       m->n);
    }
    struct cur c = cur_of(m->p + offset, BLOB_HEADER);
    uint32_t sentinel = cur_u32(&c);
    uint32_t number = cur_u32(&c);
    uint64_t size = cur_u64(&c);
    uint64_t data = cur_u64(&c);
    uint64_t padding = cur_u64(&c);
    if (sentinel != BLOB_SENTINEL) {
        return err_set(e, ERR_MIL_BLOB, "no record at offset %llu", at);
    }
    if (number_of(t->dtype) == 0 || number != number_of(t->dtype)) {
        return err_set(e, ERR_MIL_BLOB,
                       "record at %llu has dtype number %u, %s is %u", at,
                       (unsigned)number, mil_dtype_name(t->dtype),
                       (unsigned)number_of(t->dtype));
    }
    if (data % BLOB_ALIGN != 0 || data > m->n || size > m->n - data) {
        return err_set(e, ERR_MIL_BLOB,
                       "record at %llu: data %llu + %llu leaves the file", at,
                       (unsigned long long)data, (unsigned long long)size);
    }
    uint64_t count = 0;
    uint64_t want = 0;
    if (!mil_type_count(t, &count) ||
        !mil_dtype_bytes(t->dtype, count, &want) || size != want) {
        return err_set(e, ERR_MIL_BLOB,
                       "record at %llu holds %llu bytes, its type needs %llu",
                       at, (unsigned long long)size, (unsigned long long)want);
    }
    unsigned bits = mil_dtype_bits(t->dtype);
    if (bits < 8 && padding != size * 8 - count * bits) {
        return err_set(e, ERR_MIL_BLOB, "record at %llu: padding of %llu bits",
                       at, (unsigned long long)padding);
    }
    *ret_data = m->p + data;
    *ret_bytes = size;
    return 0;
}

void blob_put_header(uint8_t out[BLOB_HEADER], uint32_t count)
{
    memset(out, 0, BLOB_HEADER);
    put_u32(out, count);
    put_u32(out + 4, BLOB_VERSION);
}

bool blob_put_record(uint8_t out[BLOB_HEADER], const struct mil_type *t,
                     uint64_t bytes, uint64_t data_offset)
{
    uint64_t count = 0;
    if (number_of(t->dtype) == 0 || !mil_type_count(t, &count)) {
        return false;
    }
    memset(out, 0, BLOB_HEADER);
    put_u32(out, BLOB_SENTINEL);
    put_u32(out + 4, number_of(t->dtype));
    put_u64(out + 8, bytes);
    put_u64(out + 16, data_offset);
    put_u64(out + 24, bytes * 8 - count * mil_dtype_bits(t->dtype));
    return true;
}
