/* import.c - the whole way from a manifest to a published bundle.
 *
 *   reading     the manifest, the vocabulary, sizes; nothing is written before
 *               it is known to fit
 *   writing     packages and embedding copied (or linked) into a staging
 *               folder, each package read there and held against the contract
 *   gating      structure and residency of each package, then bundle.json with
 *               all hashes, then a trial run
 *   publishing  fsync, rename
 *
 * Packages are read in the staging folder: what was judged is what is served.
 */
#include "convert/import/import.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/crew.h"
#include "base/file.h"
#include "base/num.h"
#include "convert/gates.h"
#include "convert/import/impl.h"
#include "convert/job.h"

#define EMBED_FILE "embed.bin"
#define VOCAB_FILE "tokenizer.gguf"

struct import {
    const struct import_options *o;
    struct import_manifest m;
    struct buf text; /* of the manifest */
    struct gguf *g;  /* the vocabulary */
    struct progress progress;
    struct import_copy copy;
    struct convert_result result;
    struct predict_total residency;
    struct import_weights weights;
    struct bundle b;
    char name[MODEL_NAME_MAX + 1];
    char source[256];               /* the manifest's own name */
    char dir[IMPORT_PATH_ROOM];     /* its folder, without symbolic links */
    char out[IMPORT_PATH_ROOM];     /* without slashes at its end */
    char staging[IMPORT_PATH_ROOM]; /* "" until it exists */
    uint64_t bytes;                 /* of packages and embedding */
};

static const char *keep_str(struct import *j, const char *s)
{
    const char *r = arena_str(&j->b.arena, s);
    must(r != NULL);
    return r;
}

static void *keep_array(struct import *j, size_t n, size_t size)
{
    void *r = arena_array(&j->b.arena, n, size);
    must(r != NULL);
    return r;
}

static int staged(const struct import *j, const char *name,
                  char out[IMPORT_PATH_ROOM], struct err *e)
{
    return file_join(out, IMPORT_PATH_ROOM, j->staging, name)
               ? 0
               : err_set(e, ERR_INVALID, "the path of the bundle is too long");
}

/* --- reading --- */

static int read_options(struct import *j, struct err *e)
{
    const struct convert_options *o = &j->o->common;
    const char *slash = strrchr(o->source, '/');
    size_t n = strlen(o->out);
    if (o->name != NULL) {
        file_name_from(o->name, strlen(o->name), j->name, sizeof(j->name));
    } else {
        import_name(o->source, j->name);
    }
    if (!file_name_ok(j->name) ||
        (o->name != NULL && strcmp(o->name, j->name) != 0)) {
        return err_set(e, ERR_INVALID, "'%.128s' cannot be a model's name",
                       o->name != NULL ? o->name : j->name);
    }
    if (j->o->tokenizer == NULL && j->o->vocabulary == NULL) {
        return err_set(e, ERR_INVALID,
                       "the manifest has no vocabulary; --tokenizer FILE.gguf "
                       "(vocabulary-only will do) gives it");
    }
    while (n > 1 && o->out[n - 1] == '/') {
        n--; /* a folder may be named with its slash */
    }
    if (n == 0 || n >= PARENT_ROOM) {
        return err_set(e, ERR_INVALID, "the bundle's path has %zu bytes", n);
    }
    memcpy(j->out, o->out, n);
    j->out[n] = '\0';
    (void)snprintf(j->source, sizeof(j->source), "%s",
                   slash != NULL ? slash + 1 : o->source);
    return !file_exists(j->out)
               ? 0
               : err_set(e, ERR_EXISTS, "%s is already there", j->out);
}

static int read_manifest(struct import *j, struct err *e)
{
    char parent[IMPORT_PATH_ROOM];
    const char *path = j->o->common.source;
    file_parent(path, parent, sizeof(parent));
    char *real = realpath(parent, NULL);
    if (real == NULL) {
        return err_errno(e, errno, parent);
    }
    int n = snprintf(j->dir, sizeof(j->dir), "%s", real);
    free(real);
    if (n < 0 || (size_t)n >= sizeof(j->dir)) {
        return err_set(e, ERR_CONVERT, "the manifest's path is too long");
    }
    RETERR(file_read(path, IMPORT_JSON_MAX, &j->text, e));
    int rc = import_manifest_read(j->text.p != NULL ? j->text.p : "", j->text.n,
                                  j->o->sets, j->o->n_sets, &j->m, e);
    if (rc == 0 && j->m.verifier) {
        gguf_note(&j->result.notes, "speculative_verifier is left out: the "
                                    "layers' own packages verify drafts");
    }
    return rc < 0 ? err_prefix(e, rc, "%s", j->source) : 0;
}

/* The tokens that the manifest speaks of, in a vocabulary that fits it. */
static int check_vocabulary(struct import *j, struct err *e)
{
    const struct gguf_kv *t =
        gguf_get_arr(j->g, "tokenizer.ggml.tokens", GGUF_STRING);
    struct gguf_notes *notes = &j->result.notes;
    uint32_t eos = UINT32_MAX;
    RETERR(gguf_check_vocab(j->g, notes, e));
    uint64_t n = t != NULL ? t->count : 0;
    if (n > j->m.vocab) {
        return err_set(e, ERR_CONVERT,
                       "the tokenizer has %llu tokens, and vocab_size is %u: "
                       "it is of another model",
                       (unsigned long long)n, j->m.vocab);
    }
    if (n < j->m.vocab) {
        gguf_note(notes, "the tokenizer has %llu tokens, the model %u",
                  (unsigned long long)n, j->m.vocab);
    }
    if (gguf_get_u32(j->g, "tokenizer.ggml.eos_token_id", &eos) &&
        j->m.eos != UINT32_MAX && eos != j->m.eos) {
        gguf_note(notes,
                  "eos_token_id is %u in the manifest, %u in the tokenizer, "
                  "which holds",
                  j->m.eos, eos);
    }
    return 0;
}

int import_vocabulary(const char *tokenizer, char *out, size_t size,
                      struct err *e)
{
    bool ok = file_join(out, size, tokenizer, VOCAB_FILE);
    if (!ok || !file_exists(out)) { /* no bundle */
        ok = (size_t)snprintf(out, size, "%s", tokenizer) < size;
    }
    return ok ? 0 : err_set(e, ERR_INVALID, "the tokenizer's path is too long");
}

static int open_vocabulary(struct import *j, struct err *e)
{
    char path[IMPORT_PATH_ROOM];
    int rc = 0;
    if (j->o->vocabulary != NULL) {
        rc = source_open_files(j->o->vocabulary, &j->g, e);
    } else {
        RETERR(import_vocabulary(j->o->tokenizer, path, sizeof(path), e));
        rc = source_open(path, &j->g, e);
    }
    return rc < 0 ? err_prefix(e, rc, "tokenizer") : 0;
}

/* Every file is there before one is copied. */
static int measure(struct import *j, const char *path, struct err *e)
{
    char real[IMPORT_PATH_ROOM];
    int rc = import_resolve(j->dir, path, real, e);
    if (rc == ERR_NOT_FOUND) {
        return err_set(e, ERR_CONVERT,
                       "%.200s is not there; aned reads .mlpackage folders, "
                       "not what was compiled from them",
                       path);
    }
    RETERR(rc);
    j->bytes += file_tree_bytes(real);
    return 0;
}

static int stage_reading(struct import *j, struct err *e)
{
    RETERR(progress_stage(&j->progress, "reading", 0, e));
    RETERR(read_manifest(j, e));
    RETERR(open_vocabulary(j, e));
    RETERR(check_vocabulary(j, e));
    for (size_t i = 0; i < j->m.n_parts; i++) {
        RETERR(measure(j, j->m.parts[i].path, e));
    }
    for (size_t i = 0; i < j->m.n_heads_parts; i++) {
        RETERR(measure(j, j->m.heads[i].path, e));
    }
    j->bytes += (uint64_t)j->m.vocab * j->m.d_model * 2;
    double all = (double)j->bytes;
    double packages = (double)(j->m.n_parts + j->m.n_heads_parts);
    const struct progress_part parts[] = {
        {"reading",    1e6           },
        {"writing",    all           },
        {"writing",    all           }, /* hashed */
        {"gating",     1e6 * packages},
        {"gating",     3 * all       }, /* prepared, and run */
        {"publishing", all / 4       },
    };
    progress_plan(&j->progress, parts, countof(parts));
    return j->o->link ? 0 : convert_room(j->out, j->bytes, 0, e);
}

/* --- writing --- */

/* One package into the staging folder as `name`. */
static int take_package(struct import *j, const struct import_part *part,
                        const char *name, struct err *e)
{
    char from[IMPORT_PATH_ROOM];
    char to[IMPORT_PATH_ROOM];
    RETERR(import_resolve(j->dir, part->path, from, e));
    RETERR(staged(j, name, to, e));
    return import_tree(&j->copy, from, to, e);
}

static int take_layers(struct import *j, struct err *e)
{
    struct bundle *b = &j->b;
    b->n_shards = j->m.n_parts;
    b->shards = keep_array(j, b->n_shards, sizeof(*b->shards));
    for (size_t i = 0; i < b->n_shards; i++) {
        const struct import_part *part = &j->m.parts[i];
        struct bundle_shard *s = &b->shards[i];
        char name[64];
        (void)snprintf(name, sizeof(name), "layers_%02u_%02u.mlpackage",
                       part->first, part->last);
        *s = (struct bundle_shard){.path = keep_str(j, name),
                                   .first = part->first,
                                   .last = part->last,
                                   .n_functions = 1};
        s->functions = keep_array(j, 1, sizeof(*s->functions));
        s->function_t = keep_array(j, 1, sizeof(*s->function_t));
        RETERR(take_package(j, part, name, e));
    }
    return 0;
}

static int take_heads(struct import *j, struct err *e)
{
    struct bundle *b = &j->b;
    b->n_heads_shards = j->m.n_heads_parts;
    b->heads = keep_array(j, b->n_heads_shards, sizeof(*b->heads));
    for (size_t i = 0; i < b->n_heads_shards; i++) {
        const struct import_part *part = &j->m.heads[i];
        char name[64];
        (void)snprintf(name, sizeof(name), "head_%zu.mlpackage", i);
        b->heads[i] = (struct bundle_head){.path = keep_str(j, name),
                                           .vocab_first = part->first,
                                           .vocab_last = part->last};
        RETERR(take_package(j, part, name, e));
    }
    return 0;
}

static int stage_writing(struct import *j, struct err *e)
{
    char from[IMPORT_PATH_ROOM];
    char to[IMPORT_PATH_ROOM];
    RETERR(progress_stage(&j->progress, "writing", j->bytes, e));
    RETERR(staged(j, VOCAB_FILE, to, e));
    RETERR(gguf_write_vocab(j->g, NULL, to, e));
    RETERR(import_resolve(j->dir, j->m.embed, from, e));
    RETERR(staged(j, EMBED_FILE, to, e));
    RETERR(import_table(&j->copy, from, (uint64_t)j->m.vocab * j->m.d_model * 2,
                        to, e));
    RETERR(take_layers(j, e));
    return take_heads(j, e);
}

/* --- gating --- */

static int gate_package(struct import *j, const struct import_part *part,
                        bool head, const char *path, struct import_ports *ret,
                        uint64_t *weight_bytes, struct err *e)
{
    struct mil_program *p = NULL;
    int rc = gate_structure(j->staging, path, &p, e);
    if (rc == 0) {
        rc = head ? import_head_ports(p, &j->m, part, ret, e)
                  : import_layer_ports(p, &j->m, part, ret, e);
    }
    if (rc < 0) {
        mil_free(p);
        return err_prefix(e, rc, "%.200s", part->path);
    }
    import_weights_add(&j->weights, p);
    *weight_bytes = p->weight_bytes;
    ret->function = keep_str(j, ret->function);
    rc = gate_residency(p, path, head ? "head" : "layers", &j->o->common,
                        &j->residency, e);
    mil_free(p);
    return rc < 0 ? rc : progress_add(&j->progress, 1, e);
}

static int gate_layers(struct import *j, struct err *e)
{
    for (size_t i = 0; i < j->b.n_shards; i++) {
        struct bundle_shard *s = &j->b.shards[i];
        struct import_ports t = {.t_min = 0};
        RETERR(gate_package(j, &j->m.parts[i], false, s->path, &t,
                            &s->weight_bytes, e));
        s->t_min = t.t_min;
        s->t_max = t.t_max;
        s->functions[0] = t.function;
    }
    return 0;
}

static int gate_heads(struct import *j, struct err *e)
{
    for (size_t i = 0; i < j->b.n_heads_shards; i++) {
        struct bundle_head *h = &j->b.heads[i];
        struct import_ports t = {.t_min = 0};
        RETERR(gate_package(j, &j->m.heads[i], true, h->path, &t,
                            &h->weight_bytes, e));
        h->t_min = t.t_min;
        h->t_max = t.t_max;
    }
    return 0;
}

/* All that stands in bundle.json, but its shards. */
static void describe(struct import *j)
{
    struct bundle *b = &j->b;
    struct sha256 h;
    uint8_t digest[SHA256_BYTES];
    import_describe(&j->m, b);
    b->name = j->name;
    b->quant = import_weights_name(&j->weights);
    b->embed_file = EMBED_FILE;
    b->tokenizer_file = VOCAB_FILE;
    b->source_name = j->source;
    b->source_bytes = j->text.n;
    b->converter_version = ANED_VERSION;
    sha256_init(&h);
    sha256_add(&h, j->text.p, j->text.n);
    sha256_end(&h, digest);
    sha256_hex(digest, b->source_sha256);
}

static void note_bits(struct import *j)
{
    const char *name = import_weights_name(&j->weights);
    uint32_t bits = strncmp(name, "int8", 4) == 0 ? 8
                    : strcmp(name, "fp16") == 0   ? 16
                    : strchr(name, '4') != NULL   ? 4
                    : strchr(name, '6') != NULL   ? 6
                                                  : 0;
    uint32_t told = j->m.quant_bits;
    if (told != 0 && bits != 0 && told != bits) {
        gguf_note(&j->result.notes, "quant_bits is %u, but most weights are %s",
                  told, name);
    }
}

static int stage_gating(struct import *j, struct err *e)
{
    struct predict_limits limits = {0};
    struct convert_result *r = &j->result;
    uint64_t n = j->m.n_parts + j->m.n_heads_parts;
    RETERR(progress_stage(&j->progress, "gating", n, e));
    const char *profile = j->o->common.profile;
    RETERR(predict_limits(profile != NULL ? profile : "law", &limits, e));
    predict_total_init(&j->residency, &limits);
    RETERR(gate_layers(j, e));
    RETERR(gate_heads(j, e));
    note_bits(j);
    gate_set(r, "structure", r->notes.n > 0 ? "warned" : "passed",
             "%llu packages%s%s", (unsigned long long)n,
             r->notes.n > 0 ? "; " : "",
             r->notes.n > 0 ? r->notes.text[0] : "");
    gate_set(r, "range", "not run",
             "an import has no source to measure values in");
    RETERR(gate_residency_end(r, &j->o->common, &j->residency, e));
    RETERR(progress_stage(&j->progress, "writing", 0, e));
    describe(j);
    RETERR(bundle_write(j->staging, &j->b, e));
    return import_trial(j->staging, &j->m, j->o->common.threads, &j->progress,
                        r, e);
}

/* --- all --- */

static int stage_publishing(struct import *j, struct err *e)
{
    RETERR(progress_stage(&j->progress, "publishing", 0, e));
    j->result.bundle_bytes = file_tree_bytes(j->staging);
    RETERR(file_publish_dir(j->staging, j->out, e));
    j->staging[0] = '\0';
    return 0;
}

static int run(void *ctx, struct err *e)
{
    struct import *j = ctx;
    RETERR(stage_reading(j, e));
    RETERR(file_staging(j->out, j->staging, sizeof(j->staging), e));
    RETERR(stage_writing(j, e));
    RETERR(stage_gating(j, e));
    return stage_publishing(j, e);
}

static uint64_t now_ms(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

static void import_fini(struct import *j)
{
    struct err ignored = {0};
    if (j->staging[0] != '\0' && file_rmtree(j->staging, &ignored) < 0) {
        j->staging[0] = '\0'; /* a later start sweeps it */
    }
    arena_fini(&j->b.arena);
    import_manifest_fini(&j->m);
    buf_fini(&j->text);
    gguf_close(j->g);
    crew_unref();
    free(j);
}

int import_run(const struct import_options *o, struct convert_result *ret,
               struct err *e)
{
    uint64_t began = now_ms();
    struct err mine = {0};
    e = e != NULL ? e : &mine;
    must(o->common.out != NULL && o->common.source != NULL);
    struct import *j = calloc(1, sizeof(*j));
    must(j != NULL);
    j->o = o;
    crew_ref();
    j->progress.fn = o->common.progress;
    j->progress.ctx = o->common.ctx;
    j->copy = (struct import_copy){.progress = &j->progress, .link = o->link};
    arena_init(&j->b.arena, 0);
    gates_init(&j->result);
    int rc = 0;
    CHECK(read_options(j, e));
    CHECK(gguf_guard(run, j, e));
    j->result.n_shards = (uint32_t)j->m.n_parts;
    j->result.n_heads = (uint32_t)j->m.n_heads_parts;
    j->result.ms = (uint32_t)(now_ms() - began);
    *ret = j->result;
out:
    import_fini(j);
    return rc;
}
