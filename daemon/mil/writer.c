/* writer.c - writes a package: weights as they come, the rest at the end.
 *
 *   X.mlpackage/Manifest.json
 *   X.mlpackage/Data/com.apple.CoreML/model.mlmodel
 *   X.mlpackage/Data/com.apple.CoreML/weights/weight.bin
 *
 * Identifiers in the manifest are UUIDs of version 8 (free content) made of
 * the specification's SHA-256, so the same calls give the same bytes.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/num.h"
#include "mil/build.h"
#include "mil/impl.h"

#define AUTHOR       "com.apple.CoreML"
#define BUFFER_BYTES KIB(256)

struct mil_writer {
    struct mil_program *p;
    char dir[PATH_MAX];
    int fd;                 /* weight.bin */
    uint64_t pos;           /* bytes of weight.bin described so far */
    size_t fill;            /* of buffer; the last ones of pos */
    uint32_t count;         /* blobs */
    struct mil_const *open; /* blob begun and not ended */
    uint64_t left;          /* its bytes still to come */
    uint64_t kept;          /* bytes that an earlier writer wrote */
    uint32_t expected;      /* blobs; 0: the header is written at the end */
    struct sha256 hash;     /* of what was written, where the header was */
    struct err error;       /* the first one; code 0 is none */
    uint8_t buffer[BUFFER_BYTES];
};

/* "dir/rel" */
static bool place(const struct mil_writer *w, const char *rel,
                  char out[PATH_MAX])
{
    return file_join(out, PATH_MAX, w->dir, rel);
}

static struct mil_writer *writer_new(void)
{
    struct mil_writer *w = calloc(1, sizeof(*w));
    must(w != NULL);
    w->fd = -1;
    return w;
}

/* The header's room is in the buffer, unless the file has it. */
static void begin(struct mil_writer *w)
{
    w->p = build_program();
    w->pos = BLOB_HEADER;
    w->fill = w->kept > 0 ? 0 : BLOB_HEADER;
}

static int open_file(struct mil_writer *w, const char *dir, int flags,
                     struct err *e)
{
    char weights[PATH_MAX];
    char file[PATH_MAX];
    if (strlen(dir) >= sizeof(w->dir)) {
        return err_set(e, ERR_INVALID, "the path is too long");
    }
    memcpy(w->dir, dir, strlen(dir) + 1);
    if (!place(w, "Data/" AUTHOR "/weights", weights) ||
        !file_join(file, sizeof(file), weights, "weight.bin")) {
        return err_set(e, ERR_INVALID, "the path is too long");
    }
    RETERR(file_mkdirs(weights, 0755, e));
    w->fd = open(file, flags | O_CLOEXEC, 0644);
    if (w->fd < 0) {
        return errno == EEXIST ? err_set(e, ERR_EXISTS, "%s exists", file)
                               : err_errno(e, errno, file);
    }
    return 0;
}

int mil_writer_open(const char *dir, struct mil_writer **ret, struct err *e)
{
    struct mil_writer *w = writer_new();
    int rc = open_file(w, dir, O_WRONLY | O_CREAT | O_EXCL, e);
    if (rc < 0) {
        goto out;
    }
    begin(w);
    *ret = w;
    w = NULL;
out:
    mil_writer_abort(w);
    return rc;
}

struct mil_writer *mil_writer_dry(void)
{
    struct mil_writer *w = writer_new();
    w->kept = UINT64_MAX;
    begin(w);
    return w;
}

/* Are the first bytes of the file those that were kept? Then they are in the
 * hash. */
static bool check_kept(struct mil_writer *w, const struct mil_kept *k)
{
    uint8_t d[SHA256_BYTES];
    char hex[SHA256_HEX];
    struct sha256 s;
    uint64_t at = 0;
    sha256_init(&s);
    while (at < k->bytes) {
        size_t n = (size_t)num_min(k->bytes - at, BUFFER_BYTES);
        ssize_t got = pread(w->fd, w->buffer, n, (off_t)at);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return false;
        }
        sha256_add(&s, w->buffer, (size_t)got);
        at += (uint64_t)got;
    }
    w->hash = s; /* goes on from here */
    sha256_end(&s, d);
    sha256_hex(d, hex);
    return at >= BLOB_HEADER && strcmp(hex, k->sha256) == 0;
}

int mil_writer_resume(const char *dir, const struct mil_kept *kept,
                      uint32_t n_blobs, struct mil_writer **ret, struct err *e)
{
    struct mil_writer *w = writer_new();
    w->expected = n_blobs;
    sha256_init(&w->hash);
    int rc = open_file(w, dir, O_RDWR | O_CREAT | O_NOFOLLOW, e);
    if (rc < 0) {
        goto out;
    }
    if (kept != NULL && check_kept(w, kept)) {
        w->kept = kept->bytes;
    } else {
        sha256_init(&w->hash);
    }
    if (ftruncate(w->fd, (off_t)w->kept) != 0 ||
        lseek(w->fd, (off_t)w->kept, SEEK_SET) < 0) {
        rc = err_errno(e, errno, "weight.bin");
        goto out;
    }
    begin(w);
    blob_put_header(w->buffer, n_blobs);
    *ret = w;
    w = NULL;
out:
    mil_writer_abort(w);
    return rc;
}

void mil_writer_abort(struct mil_writer *w)
{
    if (w == NULL) {
        return;
    }
    if (w->fd >= 0) {
        (void)close(w->fd); /* what matters was synced */
    }
    build_free(w->p);
    free(w);
}

struct mil_program *mil_writer_program(struct mil_writer *w)
{
    return w->p;
}

uint64_t mil_writer_weight_bytes(const struct mil_writer *w)
{
    return w->pos;
}

uint32_t mil_writer_blobs(const struct mil_writer *w)
{
    return w->count;
}

/* --- weights --- */

static void write_all(struct mil_writer *w, const uint8_t *p, size_t n)
{
    if (w->error.code == 0) {
        w->error.code =
            file_put(w->fd, p, n, FILE_HERE, "weight.bin", &w->error);
    }
    if (w->expected > 0) {
        sha256_add(&w->hash, p, n);
    }
}

static void flush(struct mil_writer *w)
{
    write_all(w, w->buffer, w->fill);
    w->fill = 0;
}

/* These bytes are there already. */
static void skip(struct mil_writer *w, uint64_t n)
{
    if (n > w->kept - w->pos && w->error.code == 0) {
        w->error.code = err_set(&w->error, ERR_INTERNAL,
                                "weight.bin was kept up to the middle of a "
                                "blob");
    }
    w->pos += n;
}

static void put(struct mil_writer *w, const void *p, size_t n)
{
    const uint8_t *from = p;
    if (w->pos < w->kept) {
        skip(w, n);
        return;
    }
    w->pos += n;
    if (n >= BUFFER_BYTES) { /* big pieces are not copied */
        flush(w);
        write_all(w, from, n);
        return;
    }
    while (n > 0) {
        size_t k = num_min(n, BUFFER_BYTES - w->fill);
        memcpy(w->buffer + w->fill, from, k);
        w->fill += k;
        from += k;
        n -= k;
        if (w->fill == BUFFER_BYTES) {
            flush(w);
        }
    }
}

void mil_blob_begin(struct mil_writer *w, const struct mil_type *type)
{
    static const uint8_t zeros[BLOB_ALIGN];
    uint8_t record[BLOB_HEADER];
    uint64_t count = 0;
    must(w->open == NULL);
    struct mil_const *c = arena_alloc(&w->p->arena, sizeof(*c));
    must(c != NULL && mil_type_count(type, &count) && count > 0 &&
         mil_dtype_bytes(type->dtype, count, &c->bytes));
    put(w, zeros, (BLOB_ALIGN - w->pos % BLOB_ALIGN) % BLOB_ALIGN);
    c->type = *type;
    c->blob_file = MIL_WEIGHT_FILE;
    c->blob_offset = w->pos;
    must(blob_put_record(record, type, c->bytes, w->pos + BLOB_HEADER));
    put(w, record, sizeof(record));
    w->open = c;
    w->left = c->bytes;
    w->count++;
}

void mil_blob_put(struct mil_writer *w, const void *p, size_t n)
{
    must(w->open != NULL && n <= w->left);
    put(w, p, n);
    w->left -= n;
}

const struct mil_const *mil_blob_end(struct mil_writer *w)
{
    must(w->open != NULL && w->left == 0);
    const struct mil_const *c = w->open;
    w->open = NULL;
    return c;
}

bool mil_writer_keeps(const struct mil_writer *w)
{
    return w->pos < w->kept;
}

const struct mil_const *mil_blob_keep(struct mil_writer *w,
                                      const struct mil_type *type)
{
    mil_blob_begin(w, type);
    skip(w, w->left);
    w->left = 0;
    return mil_blob_end(w);
}

const struct mil_const *mil_blob(struct mil_writer *w,
                                 const struct mil_type *type, const void *p)
{
    mil_blob_begin(w, type);
    mil_blob_put(w, p, (size_t)w->left);
    return mil_blob_end(w);
}

/* Buffer out, synced. */
static int sync_weights(struct mil_writer *w, struct err *e)
{
    must(w->open == NULL);
    flush(w);
    if (w->error.code == 0) {
        w->error.code = file_sync(w->fd, "weight.bin", &w->error);
    }
    if (w->error.code != 0 && e != NULL) {
        *e = w->error;
    }
    return w->error.code;
}

int mil_writer_mark(struct mil_writer *w, struct mil_kept *ret, struct err *e)
{
    uint8_t d[SHA256_BYTES];
    struct sha256 s;
    must(w->expected > 0);
    RETERR(sync_weights(w, e));
    s = w->hash; /* the writer's own goes on */
    sha256_end(&s, d);
    sha256_hex(d, ret->sha256);
    ret->bytes = w->pos;
    return 0;
}

/* The header, where it had to wait for the count of blobs. */
static int finish_weights(struct mil_writer *w, struct err *e)
{
    uint8_t header[BLOB_HEADER];
    if (w->expected > 0 && w->expected != w->count) {
        return err_set(e, ERR_INTERNAL, "weight.bin has %u blobs, not %u",
                       (unsigned)w->count, (unsigned)w->expected);
    }
    flush(w);
    blob_put_header(header, w->count);
    if (w->expected == 0 && w->error.code == 0) {
        w->error.code = file_put(w->fd, header, sizeof(header), 0, "weight.bin",
                                 &w->error);
    }
    return sync_weights(w, e);
}

/* --- the rest --- */

#define UUID_CHARS 37 /* with the NUL */

static void uuid(const uint8_t spec_hash[SHA256_BYTES], const char *what,
                 char out[UUID_CHARS])
{
    uint8_t d[SHA256_BYTES];
    struct sha256 s;
    sha256_init(&s);
    sha256_add(&s, what, strlen(what));
    sha256_add(&s, spec_hash, SHA256_BYTES);
    sha256_end(&s, d);
    d[6] = (uint8_t)((d[6] & 0x0f) | 0x80);
    d[8] = (uint8_t)((d[8] & 0x3f) | 0x80);
    size_t at = 0;
    for (size_t i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) {
            out[at++] = '-';
        }
        (void)snprintf(out + at, 3, "%02x", d[i]);
        at += 2;
    }
}

static void put_item(struct buf *b, const char *id, const char *description,
                     const char *name, const char *end)
{
    buf_printf(b,
               "        \"%s\": {\n"
               "            \"author\": \"" AUTHOR "\",\n"
               "            \"description\": \"%s\",\n"
               "            \"name\": \"%s\",\n"
               "            \"path\": \"" AUTHOR "/%s\"\n"
               "        }%s\n",
               id, description, name, name, end);
}

static void put_manifest(struct buf *b, const struct buf *spec)
{
    char model[UUID_CHARS];
    char weights[UUID_CHARS];
    uint8_t hash[SHA256_BYTES];
    struct sha256 s;
    sha256_init(&s);
    sha256_add(&s, spec->p, spec->n);
    sha256_end(&s, hash);
    uuid(hash, "model", model);
    uuid(hash, "weights", weights);
    buf_puts(b, "{\n"
                "    \"fileFormatVersion\": \"1.0.0\",\n"
                "    \"itemInfoEntries\": {\n");
    put_item(b, weights, "CoreML Model Weights", "weights", ",");
    put_item(b, model, "CoreML Model Specification", "model.mlmodel", "");
    buf_printf(b, "    },\n    \"rootModelIdentifier\": \"%s\"\n}\n", model);
}

int mil_writer_finish(struct mil_writer *w, struct err *e)
{
    struct buf spec = {0};
    struct buf manifest = {0};
    char path[PATH_MAX];
    buf_init(&spec, MIL_SPEC_BYTES_MAX);
    buf_init(&manifest, MIL_MANIFEST_MAX);
    int rc = finish_weights(w, e);
    if (rc < 0) {
        goto out;
    }
    rc = mil_validate(w->p, e);
    if (rc < 0) {
        goto out;
    }
    rc = spec_write(w->p, &spec, e);
    if (rc < 0) {
        goto out;
    }
    must(place(w, "Data/" AUTHOR "/model.mlmodel", path)); /* shorter than
                                                              weight.bin's */
    rc = file_write(path, spec.p, spec.n, e);
    if (rc < 0) {
        goto out;
    }
    put_manifest(&manifest, &spec);
    must(buf_ok(&manifest) && place(w, "Manifest.json", path));
    rc = file_write(path, manifest.p, manifest.n, e);
out:
    buf_fini(&spec);
    buf_fini(&manifest);
    mil_writer_abort(w);
    return rc;
}
