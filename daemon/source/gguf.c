/* The reader. A file is
 *
 *   "GGUF" u32 version u64 n_tensors u64 n_kv
 *   n_kv x      { string key, u32 kind, value }
 *   n_tensors x { string name, u32 n_dims, u64 dims[], u32 type, u64 offset }
 *   padding to general.alignment, then tensor data; offsets count from there
 *
 * (a string is u64 length + bytes; an array is u32 kind, u64 count, values).
 * The file is walked once with a cursor that cannot leave it. Memory is two
 * tables, each sized by a count that was first shown to fit into the bytes
 * that are left. A sort by name finds duplicates and serves the look-ups; a
 * sort by offset finds tensors that share bytes.
 *
 * Text of the file never reaches an error message except keys and names, which
 * err_set makes printable. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "source/gguf_impl.h"

int gguf_truncated(struct err *e, const char *where)
{
    return err_set(e, ERR_GGUF_TRUNCATED, "the file ends inside %s", where);
}

static bool starts(const struct gguf *g, const char *s)
{
    size_t n = strlen(s);
    return g->n >= n && memcmp(g->p, s, n) == 0;
}

static int not_gguf(const struct gguf *g, struct err *e)
{
    static const struct {
        const char *magic;
        const char *what;
    } known[] = {
        {"version https://git-lfs",
         "a git-LFS pointer in place of the model: fetch the file itself "
         "(git lfs pull)"                                                                  },
        {"FUGG",                    "a byte-swapped sample from before GGUF 1"             },
        {"lmgg",                    "a GGML file from before GGUF: convert the model again"},
        {"fmgg",                    "a GGML file from before GGUF: convert the model again"},
        {"tjgg",                    "a GGML file from before GGUF: convert the model again"},
        {"PK",                      "a zip archive, perhaps a PyTorch checkpoint"          },
        {"<!DOCTYPE",               "a web page in place of the model"                     },
        {"<html",                   "a web page in place of the model"                     },
    };
    if (g->n == 0) {
        return err_set(e, ERR_GGUF_TRUNCATED, "the file is empty");
    }
    if (g->n < 4 && memcmp(g->p, "GGUF", g->n) == 0) {
        return gguf_truncated(e, "the magic");
    }
    for (size_t i = 0; i < countof(known); i++) {
        if (starts(g, known[i].magic)) {
            return err_set(e, ERR_GGUF_MAGIC, "%s", known[i].what);
        }
    }
    if (g->n > 9 && g->p[8] == '{' && gguf_u64(g->p) < g->n) {
        return err_set(e, ERR_GGUF_MAGIC,
                       "a safetensors file: it is read by the name "
                       "NAME.safetensors, beside its config.json");
    }
    /* An ONNX ModelProto begins with ir_version (field 1, a small varint)
     * followed by a field of text, the graph or an opset. */
    if (g->n > 3 && g->p[0] == 0x08 && g->p[1] < 32 &&
        (g->p[2] == 0x12 || g->p[2] == 0x3a || g->p[2] == 0x42)) {
        return err_set(e, ERR_UNSUPPORTED,
                       "an ONNX file: it is read by the name NAME.onnx");
    }
    return err_set(e, ERR_GGUF_MAGIC, "%s", err_text(ERR_GGUF_MAGIC));
}

static int check_version(struct gguf *g, uint32_t v, struct err *e)
{
    if (v == 2 || v == 3) {
        g->version = v;
        return 0;
    }
    if (v != 0 && (v & 0xffffu) == 0) {
        return err_set(e, ERR_GGUF_ENDIAN, "%s", err_text(ERR_GGUF_ENDIAN));
    }
    if (v == 1) {
        return err_set(
            e, ERR_GGUF_VERSION,
            "version 1; aned reads 2 and 3: convert the model again");
    }
    return err_set(e, ERR_GGUF_VERSION, "version %u; aned reads 2 and 3", v);
}

/* --- the few values that reading itself depends on --- */

static int check_alignment(struct gguf *g, struct err *e)
{
    const struct gguf_kv *kv = gguf_find(g, "general.alignment");
    g->alignment = 32; /* the format's default */
    if (kv == NULL) {
        return 0;
    }
    if (kv->kind != GGUF_U32) {
        return err_set(e, ERR_GGUF_ALIGNMENT, "general.alignment is no u32");
    }
    uint32_t a = gguf_u32(kv->p);
    if (a < 8 || (a & (a - 1)) != 0 || a > GGUF_ALIGNMENT_MAX) {
        return err_set(e, ERR_GGUF_ALIGNMENT,
                       "general.alignment %u is no power of two in 8..%u", a,
                       GGUF_ALIGNMENT_MAX);
    }
    g->alignment = a;
    return 0;
}

static int read_split(struct gguf *g, struct err *e)
{
    const struct {
        const char *key;
        int64_t *to;
    } keys[] = {
        {"split.count",         &g->split.count  },
        {"split.no",            &g->split.no     },
        {"split.tensors.count", &g->split.tensors},
    };
    for (size_t i = 0; i < countof(keys); i++) {
        const struct gguf_kv *kv = gguf_find(g, keys[i].key);
        if (kv == NULL && g->split.count > 1) {
            return err_set(e, ERR_GGUF_MISSING,
                           "%s is absent in a part of a split model",
                           keys[i].key);
        }
        if (kv != NULL &&
            (kv->kind == GGUF_BOOL ||
             !gguf_load_int(kv->kind, kv->p, keys[i].to) || *keys[i].to < 0)) {
            return err_set(e, ERR_GGUF_VALUE, "%s is no count", keys[i].key);
        }
    }
    return 0;
}

int gguf_check_values(const struct gguf *g, struct err *e)
{
    int64_t n = 0;
    struct span arch = {0};
    char key[GGUF_KEY_MAX + 1];
    if (!gguf_get_str(g, "general.architecture", &arch)) {
        return 0;
    }
    if (arch.n == 0 || arch.n > 64 || !gguf_plain_ascii(arch)) {
        return err_set(e, ERR_GGUF_VALUE,
                       "general.architecture is no plain name");
    }
    (void)snprintf(key, sizeof(key), "%.*s.block_count", (int)arch.n, arch.p);
    const struct gguf_kv *kv = gguf_find(g, key);
    if (kv != NULL &&
        (kv->kind == GGUF_BOOL || !gguf_load_int(kv->kind, kv->p, &n) ||
         n < 1 || n > MODEL_LAYERS_MAX)) {
        return err_set(e, ERR_GGUF_VALUE, "%s is no number of layers in 1..%u",
                       key, MODEL_LAYERS_MAX);
    }
    return 0;
}

static int parse(void *ctx, struct err *e)
{
    struct gguf *g = ctx;
    if (!starts(g, "GGUF")) {
        return not_gguf(g, e);
    }
    struct cur c = cur_of(g->p, (size_t)g->n);
    (void)cur_u32(&c); /* the magic */
    uint32_t version = cur_u32(&c);
    if (c.bad) {
        return gguf_truncated(e, "the header");
    }
    RETERR(check_version(g, version, e));
    uint64_t n_tensors = cur_u64(&c);
    uint64_t n_kv = cur_u64(&c);
    if (c.bad) {
        return gguf_truncated(e, "the header");
    }
    RETERR(gguf_read_kv(g, &c, n_kv, e));
    RETERR(check_alignment(g, e));
    RETERR(read_split(g, e));
    RETERR(gguf_check_values(g, e));
    return gguf_read_tensors(g, &c, n_tensors, e);
}

/* --- open and close --- */

struct gguf *gguf_new(void)
{
    struct gguf *g = calloc(1, sizeof(*g));
    must(g != NULL); /* fixed size */
    g->fd = -1;
    arena_init(&g->arena, 0); /* the counts are checked against the file */
    return g;
}

int gguf_open_bytes(const void *p, size_t n, struct gguf **ret, struct err *e)
{
    struct gguf *g = gguf_new();
    g->p = p;
    g->n = n;
    int rc = parse(g, e);
    if (rc == 0) {
        *ret = g;
        g = NULL; /* given away */
    }
    gguf_close(g);
    return rc;
}

int gguf_open_one(int fd, struct gguf **ret, struct err *e)
{
    struct gguf *g = gguf_new();
    int rc = 0;
    g->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (g->fd < 0 || fstat(g->fd, &g->st) != 0) {
        rc = err_errno(e, errno, "open");
        goto out;
    }
    rc = file_map_fd(g->fd, &g->map, e);
    if (rc < 0) {
        goto out;
    }
    g->p = g->map.p;
    g->n = g->map.n;
    rc = gguf_guard(parse, g, e);
    if (rc < 0) {
        goto out;
    }
    *ret = g;
    g = NULL; /* given away */
out:
    gguf_close(g);
    return rc;
}

void gguf_close(struct gguf *g)
{
    if (g == NULL) {
        return;
    }
    for (size_t i = 0; i < g->n_more; i++) {
        gguf_close(g->more[i]);
    }
    free(g->more);
    if (g->fd >= 0) {
        (void)close(g->fd);
    }
    file_unmap(&g->map);
    arena_fini(&g->arena);
    free(g);
}
