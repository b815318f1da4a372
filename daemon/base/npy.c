/* A .npy file is "\x93NUMPY", two version bytes, a little-endian header
 * length (u16 in 1.0, u32 in 2.0) and a Python dict literal padded to 64:
 *   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 * The dict is read by looking for its three keys: numpy writes no others. */
#include "base/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/num.h"
#include "base/parse.h"

static const struct {
    char descr[4]; /* "<f4": without the byte order for one-byte types */
    size_t bytes;
} types[] = {
    [NPY_F16] = {"<f2", 2},
      [NPY_F32] = {"<f4", 4},
      [NPY_I32] = {"<i4", 4},
    [NPY_I64] = {"<i8", 8},
      [NPY_BOOL] = {"|b1", 1},
      [NPY_U8] = {"|u1", 1},
    [NPY_I8] = {"|i1", 1},
      [NPY_U16] = {"<u2", 2},
      [NPY_U32] = {"<u4", 4},
};

size_t npy_type_bytes(enum npy_type t)
{
    return types[t].bytes;
}

void npy_fini(struct npy *a)
{
    if (a != NULL) {
        free(a->data);
        *a = (struct npy){0};
    }
}

/* The text after 'key': in the header, or NULL. */
static const char *value_of(const char *header, const char *key)
{
    char quoted[32];
    (void)snprintf(quoted, sizeof(quoted), "'%s':", key);
    const char *p = strstr(header, quoted);
    if (p == NULL) {
        return NULL;
    }
    p += strlen(quoted);
    return p + strspn(p, " ");
}

static bool parse_shape(const char *p, struct npy *a)
{
    if (*p++ != '(') {
        return false;
    }
    uint64_t count = 1;
    for (;;) {
        p += strspn(p, " ,");
        if (*p == ')') {
            break;
        }
        uint64_t d = 0;
        const char *end = parse_digits(p, INT64_MAX, &d);
        if (end == NULL || a->rank == NPY_RANK_MAX ||
            !num_mul(count, d, &count)) {
            return false;
        }
        a->dims[a->rank++] = (int64_t)d;
        p = end;
    }
    a->count = count;
    return true;
}

static bool parse_header(const char *h, struct npy *a)
{
    const char *descr = value_of(h, "descr");
    const char *order = value_of(h, "fortran_order");
    const char *shape = value_of(h, "shape");
    if (descr == NULL || order == NULL || shape == NULL ||
        strncmp(order, "False", 5) != 0 || *descr != '\'') {
        return false;
    }
    for (size_t i = 0; i < countof(types); i++) {
        if (strncmp(descr + 1, types[i].descr, 3) == 0 && descr[4] == '\'') {
            a->type = (enum npy_type)i;
            return parse_shape(shape, a);
        }
    }
    return false;
}

static int parse(const struct file_map *m, const char *path, uint64_t max_bytes,
                 struct npy *ret, struct err *e)
{
    static const uint8_t magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
    struct npy a = {0};
    if (m->n < 12 || memcmp(m->p, magic, 6) != 0 ||
        (m->p[6] != 1 && m->p[6] != 2)) {
        return err_set(e, ERR_NPY, "%s: not a .npy of version 1 or 2", path);
    }
    size_t at = m->p[6] == 1 ? 10 : 12;
    size_t len = (size_t)m->p[8] | (size_t)m->p[9] << 8;
    if (at == 12) {
        len |= (size_t)m->p[10] << 16 | (size_t)m->p[11] << 24;
    }
    char header[4096];
    if (len >= sizeof(header) || len > m->n - at) {
        return err_set(e, ERR_NPY, "%s: header of %zu bytes", path, len);
    }
    memcpy(header, m->p + at, len);
    header[len] = '\0';
    uint64_t bytes = 0;
    if (!parse_header(header, &a) ||
        !num_mul(a.count, types[a.type].bytes, &bytes)) {
        return err_set(e, ERR_NPY,
                       "%s: needs C order and one of f2 f4 i4 i8 b1 u1 i1 u2 "
                       "u4, little-endian",
                       path);
    }
    if (bytes > max_bytes) {
        return err_set(e, ERR_TOO_BIG, "%s: array above %llu bytes", path,
                       (unsigned long long)max_bytes);
    }
    if (bytes != m->n - at - len) {
        return err_set(e, ERR_NPY, "%s: data is %zu bytes, shape says %llu",
                       path, m->n - at - len, (unsigned long long)bytes);
    }
    a.data = malloc(bytes > 0 ? (size_t)bytes : 1);
    if (a.data == NULL) {
        return err_set(e, ERR_NOMEM, "%s", path);
    }
    memcpy(a.data, m->p + at + len, (size_t)bytes);
    *ret = a;
    return 0;
}

int npy_read(const char *path, uint64_t max_bytes, struct npy *ret,
             struct err *e)
{
    struct file_map m = {0};
    int rc = 0;
    CHECK(file_map(path, &m, e));
    CHECK(parse(&m, path, max_bytes, ret, e));
out:
    file_unmap(&m);
    return rc;
}

/* 64-byte aligned header into out; returns its length. */
static size_t make_header(enum npy_type type, int rank, const int64_t *dims,
                          char *out, size_t size)
{
    char shape[256];
    int n = 0;
    shape[0] = '\0';
    for (int i = 0; i < rank; i++) {
        n += snprintf(shape + n, sizeof(shape) - (size_t)n, "%s%lld",
                      i > 0 ? ", " : "", (long long)dims[i]);
    }
    char dict[512];
    int d =
        snprintf(dict, sizeof(dict),
                 "{'descr': '%s', 'fortran_order': False, 'shape': (%s%s), }",
                 types[type].descr, shape, rank == 1 ? "," : "");
    must(d > 0 && (size_t)d < sizeof(dict));
    size_t total = (10 + (size_t)d + 1 + 63) / 64 * 64;
    must(total <= size);
    memset(out, ' ', total);
    memcpy(out, "\x93NUMPY\x01\x00", 8);
    out[8] = (char)((total - 10) & 0xff);
    out[9] = (char)((total - 10) >> 8);
    memcpy(out + 10, dict, (size_t)d);
    out[total - 1] = '\n';
    return total;
}

int npy_write_header(int fd, enum npy_type type, int rank, const int64_t *dims,
                     struct err *e)
{
    char h[1024];
    must(rank >= 0 && rank <= NPY_RANK_MAX);
    size_t n = make_header(type, rank, dims, h, sizeof(h));
    return file_put(fd, h, n, FILE_HERE, "npy header", e);
}

int npy_write(const char *path, enum npy_type type, int rank,
              const int64_t *dims, const void *data, struct err *e)
{
    char h[1024];
    must(rank >= 0 && rank <= NPY_RANK_MAX);
    size_t n = make_header(type, rank, dims, h, sizeof(h));
    size_t bytes = types[type].bytes;
    for (int i = 0; i < rank; i++) {
        bytes *= (size_t)dims[i];
    }
    FILE *f = fopen(path, "wbe");
    if (f == NULL) {
        return err_errno(e, errno, path);
    }
    bool ok = fwrite(h, 1, n, f) == n && fwrite(data, 1, bytes, f) == bytes;
    int saved = errno;
    if (fclose(f) != 0 && ok) {
        saved = errno;
        ok = false;
    }
    return ok ? 0 : err_errno(e, saved, path);
}
