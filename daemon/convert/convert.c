/* convert.c - the whole way from a GGUF to a published bundle.
 *
 *   reading     metadata, family, plan; nothing is written before it fits
 *   measuring   the reference pass over the calibration text, then alpha and
 *               the norm's form (range gate)
 *   writing     embed.bin, layer shards, head slices, into a staging folder
 *   gating      every package read again and validated (structure gate)
 *   publishing  bundle.json with all hashes, fsync, rename
 *
 * The staging folder stands beside `out`, so the rename stays on one file
 * system; any failure removes it.
 */
#include "convert/convert.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/crew.h"
#include "base/file.h"
#include "base/num.h"
#include "convert/digest.h"
#include "convert/emit.h"
#include "convert/gates.h"
#include "convert/plan.h"
#include "convert/reference.h"
#include "model/bundle.h"
#include "model/tokenizer.h"

#define PATH_ROOM   2048
#define PARENT_ROOM (PATH_ROOM - 32)

/* English, code, numbers and a second script: what a user may say first. */
static const char calibration[] =
    "The quick brown fox jumps over the lazy dog. Once upon a time, in 1984, "
    "there was a little girl named Lily who loved to play outside. She said: "
    "\"What is the capital of France?\" int main(void) { return x + 42; } "
    "Ein sch\xc3\xb6ner Tag, n'est-ce pas? 3.14159 * 2 = 6.28318\n\nThe answer "
    "is that neural engines multiply matrices quickly, because every value is "
    "small and every row is independent of the others.";

struct job {
    const struct convert_options *o;
    struct convert_result result;
    int fd;
    struct stat st; /* of the source when it was opened */
    struct gguf *g;
    struct decoder d;
    struct progress progress;
    struct digest digest;
    bool digesting;
    struct plan_profile profile;
    struct plan plan;
    struct range range;
    struct range_choice choice;
    struct emit emit;
    struct bundle b;
    char name[MODEL_NAME_MAX + 1];
    char source_name[256];
    char out[PARENT_ROOM];   /* without slashes at its end */
    char staging[PATH_ROOM]; /* "" until it exists */
};

void convert_options_init(struct convert_options *o)
{
    *o = (struct convert_options){.source_fd = -1};
}

/* --- options and source --- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* The model's name: asked for, or the file's without its suffix, with what a
 * name may not hold turned into '-'. */
static int choose_name(struct job *j, struct err *e)
{
    const struct convert_options *o = j->o;
    const char *from = o->name;
    if (from == NULL) {
        from = o->source != NULL ? base_name(o->source) : "model";
    }
    size_t n = strlen(from);
    if (o->name == NULL && n > 5 && strcmp(from + n - 5, ".gguf") == 0) {
        n -= 5;
    }
    if (n == 0 || n > MODEL_NAME_MAX) {
        return err_set(e, ERR_INVALID, "a model name has 1 to %u characters",
                       MODEL_NAME_MAX);
    }
    memcpy(j->name, from, n);
    j->name[n] = '\0';
    for (char *c = j->name; o->name == NULL && *c != '\0'; c++) {
        bool ok = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                  (*c >= '0' && *c <= '9') || *c == '.' || *c == '_' ||
                  *c == '-';
        *c = ok ? *c : '-';
    }
    if (!file_name_ok(j->name)) {
        return err_set(e, ERR_INVALID, "'%s' cannot be a model's name",
                       j->name);
    }
    return 0;
}

static int choice_of(const char *what, const char *v, const char *a,
                     const char *b, bool *ret_b, struct err *e)
{
    if (v != NULL && strcmp(v, a) != 0 && strcmp(v, b) != 0) {
        return err_set(e, ERR_INVALID, "%s '%.32s': %s or %s", what, v, a, b);
    }
    *ret_b = v != NULL && strcmp(v, b) == 0;
    return 0;
}

static int read_options(struct job *j, struct err *e)
{
    const struct convert_options *o = j->o;
    bool unused = false;
    int rc = quant_parse(o->quant, &j->emit.weights.quant, e);
    if (rc == 0) {
        rc = choice_of("shape", o->shape, "ranged", "functions",
                       &j->emit.functions, e);
    }
    if (rc == 0) {
        rc = choice_of("kv", o->kv, "state", "host", &j->emit.host, e);
    }
    if (rc == 0) {
        rc = choice_of("norm", o->norm, "scale", "max", &unused, e);
    }
    if (rc == 0) {
        rc = plan_profile(o->profile, &j->profile, e);
    }
    if (rc == 0) {
        rc = choose_name(j, e);
    }
    size_t n = strlen(o->out);
    while (n > 1 && o->out[n - 1] == '/') {
        n--; /* a folder may be named with its slash */
    }
    if (rc == 0 && (n == 0 || n >= sizeof(j->out))) {
        rc = err_set(e, ERR_INVALID, "the bundle's path has %zu bytes", n);
    }
    if (rc < 0) {
        return rc;
    }
    memcpy(j->out, o->out, n);
    j->out[n] = '\0';
    return !file_exists(j->out)
               ? 0
               : err_set(e, ERR_EXISTS, "%s is already there", j->out);
}

static int open_source(struct job *j, struct err *e)
{
    const struct convert_options *o = j->o;
    const char *name = o->source != NULL ? o->source : "source";
    j->fd = o->source_fd >= 0
                ? fcntl(o->source_fd, F_DUPFD_CLOEXEC, 0)
                : open(o->source, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (j->fd < 0) {
        return err_errno(e, errno, name);
    }
    if (fstat(j->fd, &j->st) < 0) {
        return err_errno(e, errno, name);
    }
    (void)snprintf(j->source_name, sizeof(j->source_name), "%s",
                   base_name(name));
    return gguf_open_fd(j->fd, &j->g, e);
}

/* Did somebody write to the source meanwhile? */
static int check_source(const struct job *j, struct err *e)
{
    struct stat st = {0};
    if (fstat(j->fd, &st) < 0) {
        return err_errno(e, errno, j->source_name);
    }
    if (st.st_size != j->st.st_size || st.st_mtime != j->st.st_mtime) {
        return err_set(e, ERR_SOURCE_CHANGED,
                       "%s was written to while it was converted",
                       j->source_name);
    }
    return 0;
}

/* S: asked for (rounded up to whole 32s where the model allows), or the
 * model's own within the default. */
static int choose_context(struct job *j, struct err *e)
{
    uint32_t own = j->d.context_train;
    uint32_t want = j->o->context;
    if (want > own) {
        return err_set(e, ERR_INVALID, "context %u; the model was made for %u",
                       want, own);
    }
    uint32_t s = want;
    if (want == 0) {
        s = own < MODEL_CONTEXT_DEFAULT ? own : MODEL_CONTEXT_DEFAULT;
        s = s >= 32 ? s / 32 * 32 : s;
    } else if ((uint64_t)(want + 31) / 32 * 32 <= own) {
        s = (want + 31) / 32 * 32;
    }
    j->emit.context = s;
    return 0;
}

static int make_plan(struct job *j, struct err *e)
{
    const struct decoder *d = &j->d;
    unsigned bits = quant_bits(j->emit.weights.quant);
    struct plan_input in = {
        .n_layers = d->n_layers,
        .vocab = d->vocab,
        .context = j->emit.context,
        .layer_bytes = arch_layer_weights(d) * bits / 8,
        .row_bytes = (uint64_t)d->d_model * bits / 8 + 2,
        .states = !j->emit.host,
    };
    return plan_make(&j->profile, &in, &j->plan, e);
}

static int stage_reading(struct job *j, struct err *e)
{
    int rc = progress_stage(&j->progress, "reading", 0, 0.02, 0, e);
    if (rc == 0) {
        rc = arch_read(j->g, &j->d, e);
    }
    if (rc == 0) {
        rc = choose_context(j, e);
    }
    if (rc == 0) {
        rc = make_plan(j, e);
    }
    return rc;
}

/* --- staging --- */

static int make_staging(struct job *j, struct err *e)
{
    char parent[PARENT_ROOM];
    size_t n = strlen(j->out);
    while (n > 0 && j->out[n - 1] != '/') {
        n--;
    }
    memcpy(parent, j->out, n);
    parent[n] = '\0';
    char path[PATH_ROOM];
    (void)snprintf(path, sizeof(path), "%s.staging-XXXXXX", parent);
    if (mkdtemp(path) == NULL) {
        return err_errno(e, errno, n > 0 ? parent : ".");
    }
    memcpy(j->staging, path, sizeof(path));
    return 0;
}

static int staged(const struct job *j, const char *name, char out[PATH_ROOM],
                  struct err *e)
{
    return file_join(out, PATH_ROOM, j->staging, name)
               ? 0
               : err_set(e, ERR_INVALID, "the path of the bundle is too long");
}

/* --- measuring --- */

/* The calibration text as ids, BOS first where there is one. A vocabulary
 * that aned cannot tokenise still gives ids to measure with. */
static uint32_t calibrate_tokens(struct job *j, const char *vocab,
                                 int32_t out[REFERENCE_TOKENS_MAX])
{
    struct tokenizer *t = NULL;
    struct err ignored = {0};
    int32_t *ids = NULL;
    size_t n_ids = 0;
    uint32_t n = 0;
    if (tokenizer_open(vocab, &t, &ignored) == 0) {
        int32_t bos = tokenizer_bos(t);
        if (bos != TOKEN_NONE && (uint32_t)bos < j->d.vocab) {
            out[n++] = bos;
        }
        if (tokenizer_encode(t, calibration, sizeof(calibration) - 1, false,
                             &ids, &n_ids, &ignored) < 0) {
            n_ids = 0;
        }
        for (size_t i = 0; i < n_ids && n < REFERENCE_TOKENS_MAX; i++) {
            if (ids[i] >= 0 && (uint32_t)ids[i] < j->d.vocab) {
                out[n++] = ids[i];
            }
        }
        free(ids);
        tokenizer_close(t);
    }
    if (n >= 8) {
        return n;
    }
    uint32_t bos = 0;
    n = 0;
    if (gguf_get_u32(j->g, "tokenizer.ggml.bos_token_id", &bos) &&
        bos < j->d.vocab) {
        out[n++] = (int32_t)bos;
    }
    for (uint32_t i = 0; n < REFERENCE_TOKENS_MAX; i++) {
        out[n++] = (int32_t)((i * 7919u + 17u) % j->d.vocab);
    }
    return n;
}

static int stage_measuring(struct job *j, struct err *e)
{
    char vocab[PATH_ROOM];
    int32_t tokens[REFERENCE_TOKENS_MAX] = {0};
    int rc = progress_stage(&j->progress, "measuring", 0.02, 0.33,
                            reference_bytes(&j->d), e);
    if (rc == 0) {
        rc = staged(j, "tokenizer.gguf", vocab, e);
    }
    if (rc == 0) {
        rc = gguf_write_vocab(j->g, vocab, e);
    }
    if (rc < 0) {
        return rc;
    }
    uint32_t n = calibrate_tokens(j, vocab, tokens);
    rc = reference_run(&j->d, j->o->threads, tokens, n, &j->progress, &j->range,
                       NULL, e);
    if (rc == 0) {
        rc = range_choose(&j->range, &j->d, j->o->norm, j->o->residual_scale,
                          &j->choice, e);
    }
    if (rc == 0) {
        j->emit.alpha = j->choice.alpha;
        j->emit.norm = j->choice.norm;
        gate_set(&j->result, "range", j->choice.warned ? "warned" : "passed",
                 "residual scale %g, norm %s, margin %.1f; %s",
                 (double)j->choice.alpha,
                 j->choice.norm == NORM_MAX ? "max" : "scale", j->choice.margin,
                 j->choice.detail);
    }
    return rc;
}

/* --- writing --- */

static const char *keep_str(struct bundle *b, const char *s)
{
    char *r = arena_str(&b->arena, s);
    must(r != NULL);
    return r;
}

static void *keep_array(struct bundle *b, size_t n, size_t size)
{
    void *r = arena_array(&b->arena, n, size);
    must(r != NULL);
    return r;
}

static int write_shard(struct job *j, uint32_t i, struct err *e)
{
    const struct plan_range *r = &j->plan.shards[i];
    struct bundle_shard *s = &j->b.shards[i];
    char name[64];
    char path[PATH_ROOM];
    (void)snprintf(name, sizeof(name), "layers_%02u_%02u.mlpackage", r->first,
                   r->last);
    int rc = staged(j, name, path, e);
    if (rc == 0) {
        rc =
            emit_layers(&j->emit, path, r->first, r->last, &s->weight_bytes, e);
    }
    if (rc < 0) {
        return rc;
    }
    s->path = keep_str(&j->b, name);
    s->first = r->first;
    s->last = r->last;
    s->t_min = 1;
    s->t_max = EMIT_T_MAX;
    s->n_functions = j->emit.functions ? 2 : 1;
    s->functions = keep_array(&j->b, s->n_functions, sizeof(*s->functions));
    s->function_t = keep_array(&j->b, s->n_functions, sizeof(*s->function_t));
    if (j->emit.functions) {
        s->functions[0] = "t1";
        s->functions[1] = "t4";
        s->function_t[0] = 1;
        s->function_t[1] = EMIT_T_MAX;
    } else {
        s->functions[0] = "main";
    }
    return 0;
}

static int write_head(struct job *j, uint32_t i, struct err *e)
{
    const struct plan_range *r = &j->plan.heads[i];
    struct bundle_head *h = &j->b.heads[i];
    char name[64];
    char path[PATH_ROOM];
    (void)snprintf(name, sizeof(name), "head_%u.mlpackage", i);
    int rc = staged(j, name, path, e);
    if (rc == 0) {
        rc = emit_head(&j->emit, path, r->first, r->last, &h->weight_bytes, e);
    }
    if (rc < 0) {
        return rc;
    }
    h->path = keep_str(&j->b, name);
    h->vocab_first = r->first;
    h->vocab_last = r->last;
    h->t_min = 1;
    h->t_max = EMIT_T_MAX;
    return 0;
}

static int stage_writing(struct job *j, struct err *e)
{
    struct bundle *b = &j->b;
    char path[PATH_ROOM];
    uint64_t total = reference_bytes(&j->d) + j->d.global[SLOT_EMBD]->bytes;
    b->n_shards = j->plan.n_shards;
    b->shards = keep_array(b, b->n_shards, sizeof(*b->shards));
    b->n_heads_shards = j->plan.n_heads;
    b->heads = keep_array(b, b->n_heads_shards, sizeof(*b->heads));
    int rc = progress_stage(&j->progress, "writing", 0.35, 0.5, total, e);
    if (rc == 0) {
        rc = staged(j, "embed.bin", path, e);
    }
    if (rc == 0) {
        rc = weights_file(&j->emit.weights, j->d.global[SLOT_EMBD], path, e);
    }
    for (uint32_t i = 0; rc == 0 && i < j->plan.n_shards; i++) {
        rc = write_shard(j, i, e);
    }
    for (uint32_t i = 0; rc == 0 && i < j->plan.n_heads; i++) {
        rc = write_head(j, i, e);
    }
    return rc;
}

/* --- gating and publishing --- */

static int stage_gating(struct job *j, struct err *e)
{
    uint64_t n = (uint64_t)j->b.n_shards + j->b.n_heads_shards;
    int rc = progress_stage(&j->progress, "gating", 0.85, 0.05, n, e);
    for (size_t i = 0; rc == 0 && i < j->b.n_shards; i++) {
        rc = gate_structure(j->staging, j->b.shards[i].path, e);
        if (rc == 0) {
            rc = progress_add(&j->progress, 1, e);
        }
    }
    for (size_t i = 0; rc == 0 && i < j->b.n_heads_shards; i++) {
        rc = gate_structure(j->staging, j->b.heads[i].path, e);
        if (rc == 0) {
            rc = progress_add(&j->progress, 1, e);
        }
    }
    if (rc == 0) {
        gate_set(&j->result, "structure", "passed", "%llu packages",
                 (unsigned long long)n);
    }
    return rc;
}

static void fill_ropes(struct job *j)
{
    const struct decoder *d = &j->d;
    struct bundle *b = &j->b;
    bool kinds = d->local_every != 0;
    b->rope = (struct bundle_rope){
        .present = true,
        .dim = d->rope_dim,
        .base = d->rope_base,
        .scale = d->rope_scale,
        .window = kinds ? 0 : d->window,
        .n_factors = d->n_factors,
        .factors = d->factors,
    };
    b->rope_local = (struct bundle_rope){
        .present = kinds,
        .dim = kinds ? d->rope_dim : 0,
        .base = kinds ? d->rope_base_local : 0,
        .scale = kinds ? 1.0f : 0,
        .window = kinds ? d->window : 0,
    };
    uint8_t *local = keep_array(b, d->n_layers, 1);
    for (uint32_t l = 0; l < d->n_layers; l++) {
        local[l] = arch_local(d, l) ? 1 : 0;
    }
    b->layer_local = local;
}

static void fill_peaks(struct job *j)
{
    struct bundle *b = &j->b;
    b->n_peaks = j->range.n_peaks;
    b->peaks = keep_array(b, b->n_peaks, sizeof(*b->peaks));
    for (size_t i = 0; i < b->n_peaks; i++) {
        char name[RANGE_NAME_MAX];
        range_name(j->range.peaks[i].kind, j->range.peaks[i].layer, name);
        b->peaks[i].name = keep_str(b, name);
        b->peaks[i].peak = j->range.peaks[i].peak;
    }
}

static void fill_bundle(struct job *j)
{
    const struct decoder *d = &j->d;
    struct bundle *b = &j->b;
    b->format = BUNDLE_FORMAT;
    b->name = j->name;
    b->architecture = d->arch->name;
    b->n_layers = d->n_layers;
    b->d_model = d->d_model;
    b->n_heads = d->n_heads;
    b->n_kv_heads = d->n_kv;
    b->d_head = d->d_head;
    b->d_ff = d->d_ff;
    b->vocab = d->vocab;
    b->context = j->emit.context;
    b->context_train = d->context_train;
    b->norm_eps = d->norm_eps;
    b->quant = quant_name(j->emit.weights.quant);
    b->shape = j->emit.functions ? "functions" : "ranged";
    b->kv = j->emit.host ? "host" : "state";
    b->norm = j->emit.norm == NORM_MAX ? "max" : "scale";
    b->embed_scale = d->embed_scale;
    b->residual_scale = j->emit.alpha;
    b->margin = j->choice.margin;
    b->eps_omitted = j->choice.eps_omitted;
    b->embed_file = "embed.bin";
    b->tokenizer_file = "tokenizer.gguf";
    b->source_name = j->source_name;
    b->source_bytes = (uint64_t)j->st.st_size;
    memcpy(b->source_sha256, j->digest.hex, SHA256_HEX);
    b->converter_version = ANED_VERSION;
    fill_ropes(j);
    fill_peaks(j);
}

static int stage_publishing(struct job *j, struct err *e)
{
    int rc = progress_stage(&j->progress, "publishing", 0.9, 0.1, 0, e);
    if (rc == 0) {
        rc = digest_end(&j->digest, false, e);
        j->digesting = false;
    }
    if (rc == 0) {
        rc = check_source(j, e);
    }
    if (rc < 0) {
        return rc;
    }
    fill_bundle(j);
    rc = bundle_write(j->staging, &j->b, e);
    if (rc == 0) {
        j->result.bundle_bytes = file_tree_bytes(j->staging);
        rc = progress_stage(&j->progress, "publishing", 0.95, 0.05, 0, e);
    }
    if (rc == 0) {
        rc = file_publish_dir(j->staging, j->out, e);
    }
    if (rc == 0) {
        j->staging[0] = '\0';
    }
    return rc;
}

static int run(void *ctx, struct err *e)
{
    struct job *j = ctx;
    int rc = stage_reading(j, e);
    if (rc == 0) {
        rc = make_staging(j, e);
    }
    if (rc < 0) {
        return rc;
    }
    digest_begin(&j->digest, j->fd);
    j->digesting = true;
    rc = stage_measuring(j, e);
    if (rc == 0) {
        rc = stage_writing(j, e);
    }
    if (rc == 0) {
        rc = stage_gating(j, e);
    }
    if (rc == 0) {
        rc = stage_publishing(j, e);
    }
    return rc;
}

static uint64_t now_ms(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

static void job_fini(struct job *j)
{
    struct err ignored = {0};
    if (j->digesting && digest_end(&j->digest, true, &ignored) < 0) {
        j->digesting = false; /* the conversion's own error is the reason */
    }
    if (j->staging[0] != '\0' && file_rmtree(j->staging, &ignored) < 0) {
        j->staging[0] = '\0'; /* likewise; a later start sweeps it */
    }
    arena_fini(&j->b.arena);
    range_fini(&j->range);
    arch_fini(&j->d);
    gguf_close(j->g);
    crew_unref();
    if (j->fd >= 0) {
        (void)close(j->fd);
    }
    free(j);
}

int convert_run(const struct convert_options *o, struct convert_result *ret,
                struct err *e)
{
    uint64_t began = now_ms();
    struct err mine = {0};
    e = e != NULL ? e : &mine;
    struct job *j = calloc(1, sizeof(*j));
    must(j != NULL);
    j->o = o;
    j->fd = -1;
    crew_ref();
    j->progress.fn = o->progress;
    j->progress.ctx = o->ctx;
    arena_init(&j->b.arena, 0);
    gates_init(&j->result);
    int rc = read_options(j, e);
    if (rc == 0) {
        rc = open_source(j, e);
    }
    if (rc < 0) {
        goto out;
    }
    j->emit.d = &j->d;
    j->emit.weights.threads = crew_threads(o->threads);
    j->emit.weights.progress = &j->progress;
    rc = gguf_guard(run, j, e);
    if (rc == 0) {
        j->result.n_shards = j->plan.n_shards;
        j->result.n_heads = j->plan.n_heads;
        j->result.ms = (uint32_t)(now_ms() - began);
        *ret = j->result;
    }
out:
    job_fini(j);
    return rc;
}
