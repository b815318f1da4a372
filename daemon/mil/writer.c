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
    bool sketch;            /* no files: types, shapes and sizes alone */
    int fd;                 /* weight.bin */
    uint64_t pos;           /* bytes of weight.bin described so far */
    size_t fill;            /* of buffer; the last ones of pos */
    uint32_t count;         /* blobs */
    struct mil_const *open; /* blob begun and not ended */
    uint64_t left;          /* its bytes still to come */
    struct err error;       /* the first one; code 0 is none */
    uint8_t buffer[BUFFER_BYTES];
};

/* "dir/rel" */
static bool place(const struct mil_writer *w, const char *rel,
                  char out[PATH_MAX])
{
    return file_join(out, PATH_MAX, w->dir, rel);
}

int mil_writer_open(const char *dir, struct mil_writer **ret, struct err *e)
{
    struct mil_writer *w = calloc(1, sizeof(*w));
    must(w != NULL);
    w->fd = -1;
    char weights[PATH_MAX];
    char file[PATH_MAX];
    int rc = 0;
    if (strlen(dir) >= sizeof(w->dir)) {
        rc = err_set(e, ERR_INVALID, "the path is too long");
        goto out;
    }
    memcpy(w->dir, dir, strlen(dir) + 1);
    if (!place(w, "Data/" AUTHOR "/weights", weights) ||
        !file_join(file, sizeof(file), weights, "weight.bin")) {
        rc = err_set(e, ERR_INVALID, "the path is too long");
        goto out;
    }
    rc = file_mkdirs(weights, 0755, e);
    if (rc < 0) {
        goto out;
    }
    w->fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (w->fd < 0) {
        rc = errno == EEXIST ? err_set(e, ERR_EXISTS, "%s exists", file)
                             : err_errno(e, errno, file);
        goto out;
    }
    w->p = build_program();
    w->pos = BLOB_HEADER; /* written last, when the count is known */
    w->fill = BLOB_HEADER;
    *ret = w;
    w = NULL;
out:
    mil_writer_abort(w);
    return rc;
}

struct mil_writer *mil_sketch(void)
{
    struct mil_writer *w = calloc(1, sizeof(*w));
    must(w != NULL);
    w->sketch = true;
    w->fd = -1;
    w->p = build_program();
    w->pos = BLOB_HEADER;
    return w;
}

bool mil_writer_sketches(const struct mil_writer *w)
{
    return w->sketch;
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

/* --- weights --- */

static void write_all(struct mil_writer *w, const uint8_t *p, size_t n)
{
    if (w->error.code == 0) {
        w->error.code =
            file_put(w->fd, p, n, FILE_HERE, "weight.bin", &w->error);
    }
}

static void flush(struct mil_writer *w)
{
    write_all(w, w->buffer, w->fill);
    w->fill = 0;
}

static void put(struct mil_writer *w, const void *p, size_t n)
{
    const uint8_t *from = p;
    w->pos += n;
    if (w->sketch) {
        return;
    }
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

const struct mil_const *mil_blob(struct mil_writer *w,
                                 const struct mil_type *type, const void *p)
{
    mil_blob_begin(w, type);
    mil_blob_put(w, p, (size_t)w->left);
    return mil_blob_end(w);
}

/* Buffer out, header in, synced. */
static int finish_weights(struct mil_writer *w, struct err *e)
{
    uint8_t header[BLOB_HEADER];
    must(w->open == NULL);
    flush(w);
    blob_put_header(header, w->count);
    if (w->error.code == 0) {
        w->error.code = file_put(w->fd, header, sizeof(header), 0, "weight.bin",
                                 &w->error);
    }
    if (w->error.code == 0 && fsync(w->fd) < 0) {
        (void)err_errno(&w->error, errno, "weight.bin");
    }
    if (w->error.code != 0 && e != NULL) {
        *e = w->error;
    }
    return w->error.code;
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
    must(!w->sketch);
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
