/* reshard.c - from a bundle to a bundle.
 *
 *   reading     the bundle, its files hashed; its constants found; a plan
 *   writing     programs drawn by the emitter from copied constants; tables and
 *               vocabulary copied
 *   gating      structure, the same constants, residency, the same logits
 *   publishing  fsync, rename; equal files share their bytes
 */
#include "convert/reshard.h"

#include <string.h>

#include "base/crew.h"
#include "base/file.h"
#include "base/num.h"
#include "convert/gates.h"
#include "convert/job.h"
#include "convert/stored.h"
#include "engine/engine.h"

#define SAME_POSITIONS 32u /* whose logits are compared */

struct reshard {
    struct job *j;
    const struct plan *plan; /* or NULL */
    struct bundle *from;
    struct stored *stored;
};

/* --- reading --- */

/* What the programs need of a decoder. */
static void take_decoder(const struct bundle *b, struct decoder *d)
{
    struct layer *layers = calloc(b->n_layers, sizeof(*layers));
    must(layers != NULL);
    memcpy(layers, b->layers, b->n_layers * sizeof(*layers));
    *d = (struct decoder){
        .n_layers = b->n_layers,
        .d_model = b->d_model,
        .vocab = b->vocab,
        .context_train = b->context_train,
        .norm_eps = b->norm_eps,
        .logit_scale = b->logit_scale,
        .logit_cap = b->logit_cap,
        .d_ple = b->d_ple,
        .layers = layers,
    };
    d->kinds[LAYER_GLOBAL].rope_dim = b->rope.dim;
    d->kinds[LAYER_LOCAL].rope_dim = b->rope_local.dim;
}

static void take_shape(const struct bundle *b, struct program_shape *ret)
{
    const struct bundle_shard *s = &b->shards[0];
    bool fixed = strcmp(b->shape, "functions") == 0;
    *ret = (struct program_shape){0};
    for (size_t i = 0; fixed && i < s->n_functions && i < countof(ret->t);
         i++) {
        ret->t[ret->n++] = s->function_t[i];
    }
}

static int take_context(struct job *j, const struct bundle *b, struct err *e)
{
    uint32_t s = j->o->context != 0 ? j->o->context : b->context;
    if (b->encoder) {
        return err_set(e, ERR_UNSUPPORTED,
                       "%s is an encoder, whose packages are not divided anew; "
                       "convert its source again",
                       b->name);
    }
    if (b->n_groups > 0) {
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has its experts in sparse form, whose packages are "
                       "not divided anew; convert its source again",
                       b->name);
    }
    if (b->context_train != 0 && s > b->context_train) {
        return err_set(e, ERR_INVALID, "context %u; the model was made for %u",
                       s, b->context_train);
    }
    j->emit.context = s;
    return 0;
}

static int take_form(struct job *j, const struct bundle *b, struct err *e)
{
    const struct convert_options *o = j->o;
    take_shape(b, &j->emit.shape);
    j->emit.host = strcmp(b->kv, "host") == 0;
    j->emit.argmax = b->argmax;
    j->emit.norm = strcmp(b->norm, "max") == 0 ? NORM_MAX : NORM_SCALE;
    j->emit.alpha = b->residual_scale;
    j->emit.architecture = b->architecture;
    j->emit.quant = b->quant;
    if (o->shape != NULL) {
        RETERR(shape_parse(o->shape, &j->emit.shape, e));
    }
    if (o->kv != NULL) {
        RETERR(convert_choice("kv", o->kv, "state", "host", &j->emit.host, e));
    }
    if (o->output != NULL) {
        RETERR(convert_choice("output", o->output, "logits", "argmax",
                              &j->emit.argmax, e));
    }
    return take_context(j, b, e);
}

/* As it is divided now. */
static void keep_plan(const struct bundle *b, struct plan *ret)
{
    ret->n_shards = (uint32_t)b->n_shards;
    ret->n_heads = (uint32_t)b->n_heads_shards;
    for (size_t i = 0; i < b->n_shards; i++) {
        ret->shards[i] =
            (struct plan_range){b->shards[i].first, b->shards[i].last};
    }
    for (size_t i = 0; i < b->n_heads_shards; i++) {
        ret->heads[i] = (struct plan_range){b->heads[i].vocab_first,
                                            b->heads[i].vocab_last};
    }
}

/* A file of one of the packages, which are written anew. */
static bool of_package(const struct bundle *b, const char *path)
{
    for (size_t i = 0; i < b->n_shards + b->n_heads_shards; i++) {
        const char *p = i < b->n_shards ? b->shards[i].path
                                        : b->heads[i - b->n_shards].path;
        size_t n = strlen(p);
        if (strncmp(path, p, n) == 0 && path[n] == '/') {
            return true;
        }
    }
    return false;
}

/* What stands beside the packages, and the programs' text, which grows with the
 * functions. */
static uint64_t file_bytes(const struct reshard *r)
{
    const struct bundle *b = r->from;
    uint64_t n = 0;
    uint64_t functions = num_max(r->j->emit.shape.n, 1);
    for (size_t i = 0; i < b->n_files; i++) {
        n += of_package(b, b->files[i].path) ? 0 : b->files[i].bytes;
    }
    return n + b->n_layers * functions * TEXT_LAYER;
}

/* Of a weight when it is computed with: palettes are looked up as fp16. Where
 * forms are mixed, the most. */
static int take_bits(const struct bundle *b, unsigned *ret, struct err *e)
{
    *ret = 0;
    for (size_t i = 0; i < (b->n_forms > 0 ? b->n_forms : 1); i++) {
        struct quant_spec spec = {QUANT_INT8, 1};
        RETERR(quant_parse(b->n_forms > 0 ? b->forms[i].quant : b->quant, &spec,
                           e));
        unsigned bits =
            quant_entries(spec.kind) > 0 ? 16 : quant_bits(spec.kind);
        *ret = bits > *ret ? bits : *ret;
    }
    return 0;
}

static int make_plan(struct reshard *r, struct err *e)
{
    struct job *j = r->j;
    j->in = (struct plan_input){.context = j->emit.context};
    RETERR(take_bits(r->from, &j->in.bits, e));
    stored_measure(r->stored, &j->in);
    plan_input_states(r->from->layers, j->emit.host, j->emit.context, &j->in);
    plan_input_widths(&j->emit.shape, &j->in);
    j->in.file_bytes = file_bytes(r);
    if (r->plan != NULL) {
        j->plan = *r->plan;
        return 0;
    }
    if (j->o->profile == NULL) {
        keep_plan(r->from, &j->plan);
        return 0;
    }
    RETERR(plan_make(&j->profile, &j->in, &j->plan, e));
    return convert_check_fit(j, e);
}

static bool go_on(void *ctx, uint64_t bytes)
{
    struct reshard *r = ctx;
    struct err ignored = {0};
    (void)bytes; /* hashing is fast beside the rest: only cancelling counts */
    return progress_add(&r->j->progress, 0, &ignored) == 0;
}

static int stage_reading(struct reshard *r, struct err *e)
{
    struct job *j = r->j;
    RETERR(progress_stage(&j->progress, "reading", 1, e));
    RETERR(bundle_open(j->o->bundle, &r->from, e));
    RETERR(bundle_verify(r->from, go_on, r, e));
    RETERR(plan_profile(j->o->profile, &j->profile, e));
    RETERR(take_form(j, r->from, e));
    take_decoder(r->from, &j->d);
    RETERR(stored_open(r->from, &r->stored, e));
    j->emit.from = r->stored;
    RETERR(make_plan(r, e));
    return convert_room(j->out, convert_bundle_bytes(j), 0, e);
}

/* --- writing --- */

/* Tables, vocabulary, and whatever else stands there. */
static int copy_files(struct reshard *r, struct err *e)
{
    const struct bundle *b = r->from;
    for (size_t i = 0; i < b->n_files; i++) {
        char from[PATH_ROOM];
        char to[PATH_ROOM];
        char parent[PATH_ROOM];
        const char *path = b->files[i].path;
        if (of_package(b, path)) {
            continue;
        }
        RETERR(convert_staged(r->j, path, to, e));
        file_parent(to, parent, sizeof(parent));
        RETERR(file_mkdirs(parent, 0755, e));
        if (!file_join(from, sizeof(from), b->dir, path)) {
            return err_set(e, ERR_BUNDLE, "%s: the path is too long", path);
        }
        RETERR(file_copy(from, to, e));
        RETERR(progress_add(&r->j->progress, b->files[i].bytes, e));
    }
    return 0;
}

static void describe(struct reshard *r)
{
    struct job *j = r->j;
    struct bundle made = *r->from;
    made.arena = j->b.arena;
    made.n_shards = j->b.n_shards;
    made.shards = j->b.shards;
    made.n_heads_shards = j->b.n_heads_shards;
    made.heads = j->b.heads;
    made.n_files = 0;
    made.files = NULL;
    made.name = j->name;
    made.context = j->emit.context;
    made.shape = j->emit.shape.n > 0 ? "functions" : "ranged";
    made.kv = j->emit.host ? "host" : "state";
    made.argmax = j->emit.argmax;
    made.converter_version = ANED_VERSION;
    j->b = made;
}

static int stage_writing(struct reshard *r, struct err *e)
{
    struct job *j = r->j;
    RETERR(progress_stage(&j->progress, "writing", r->from->total_bytes, e));
    RETERR(copy_files(r, e));
    RETERR(convert_write_programs(j, 1, 1, e));
    describe(r);
    return bundle_write(j->staging, &j->b, e);
}

/* --- gating --- */

struct bits {
    struct sha256 h;
    size_t row; /* bytes */
};

static int on_rows(void *ctx, uint32_t first, uint32_t n, float *logits,
                   struct err *e)
{
    struct bits *b = ctx;
    (void)first;
    (void)e;
    sha256_add(&b->h, logits, n * b->row);
    return 0;
}

/* The tokens that it draws, where it gives no logits. */
static int draw_all(struct engine_seq *s, int32_t *tokens, uint32_t n,
                    struct bits *b, struct err *e)
{
    for (uint32_t i = 0; i < n; i++) {
        struct msg_row_done done;
        struct msg_row row = {
            .position = i, .n_tokens = 1, .tokens = &tokens[i], .sample = true};
        msg_sampling_init(&row.sampling);
        row.sampling.no_logprob = true;
        RETERR(engine_step(s, &row, &done, NULL, e));
        sha256_add(&b->h, &done.tokens[0].id, sizeof(done.tokens[0].id));
    }
    return 0;
}

/* A hash of what the bundle at `dir` computes. tops: of the tokens alone. */
static int hash_bits(const char *dir, const struct job *j, uint32_t n,
                     bool tops, uint8_t out[SHA256_BYTES], struct err *e)
{
    const struct engine_conf conf = {.threads = j->o->threads};
    struct engine *g = NULL;
    struct engine_seq *s = NULL;
    int32_t tokens[SAME_POSITIONS] = {0};
    struct bits b = {.row = j->b.vocab * sizeof(float)};
    int rc = 0;
    sha256_init(&b.h);
    for (uint32_t i = 0; i < n; i++) {
        tokens[i] = (int32_t)((1u + i * 7919u) % j->b.vocab);
    }
    CHECK(engine_open(dir, &conf, &g, e));
    CHECK(engine_seq_open(g, &s, e));
    CHECK(engine_seq_expect(s, n, e));
    if (tops) {
        CHECK(draw_all(s, tokens, n, &b, e));
    } else {
        CHECK(engine_eval_rows(s, tokens, n, 0, on_rows, &b, NULL, e));
    }
    sha256_end(&b.h, out);
out:
    engine_seq_close(s);
    engine_close(g);
    return rc;
}

/* A program for a row alone runs as rows; another one as it is. */
static bool runs_rows(const struct program_shape *s)
{
    return s->n == 0 || s->t[0] == 1;
}

/* With host, new rows stand elsewhere in the sums. */
static bool other_bits(const struct reshard *r)
{
    struct program_shape was = {0};
    take_shape(r->from, &was);
    return (strcmp(r->from->kv, "host") == 0) != r->j->emit.host ||
           runs_rows(&was) != runs_rows(&r->j->emit.shape);
}

static int compare_bits(struct reshard *r, struct err *e)
{
    struct job *j = r->j;
    uint8_t was[SHA256_BYTES];
    uint8_t is[SHA256_BYTES];
    uint32_t n = (uint32_t)num_min(r->from->context, j->emit.context);
    n = n < SAME_POSITIONS ? n : SAME_POSITIONS;
    bool tops = r->from->argmax || j->emit.argmax;
    if (other_bits(r)) {
        gate_set(&j->result, "exactness", "not run",
                 "another form than %s has: other kernels of the CPU backend "
                 "run it, whose last bits may differ",
                 r->from->name);
        return 0;
    }
    int rc = hash_bits(r->from->dir, j, n, tops, was, e);
    rc = rc < 0 ? rc : hash_bits(j->staging, j, n, tops, is, e);
    if (rc == ERR_NOMEM) { /* a gate that could not run says so */
        gate_set(&j->result, "exactness", "not run", "%.300s", e->msg);
        return 0;
    }
    RETERR(rc);
    bool same = memcmp(was, is, sizeof(was)) == 0;
    gate_set(&j->result, "exactness", same ? "passed" : "failed",
             "%s %s as %s at %u positions", same ? "the same" : "other",
             tops ? "tokens" : "logits", r->from->name, n);
    return 0;
}

/* Every constant is the one that it was. */
static int compare_constants(struct reshard *r, struct err *e)
{
    struct job *j = r->j;
    struct bundle *made = NULL;
    struct stored *s = NULL;
    char was[SHA256_HEX];
    char is[SHA256_HEX];
    int rc = 0;
    CHECK(bundle_open(j->staging, &made, e));
    CHECK(stored_open(made, &s, e));
    stored_hash(r->stored, was);
    stored_hash(s, is);
    if (strcmp(was, is) != 0) {
        rc = err_set(e, ERR_STRUCTURE, "the weights are not those of %s",
                     r->from->name);
    }
out:
    stored_close(s);
    bundle_close(made);
    return rc;
}

static int stage_gating(struct reshard *r, struct err *e)
{
    struct job *j = r->j;
    RETERR(convert_gate_packages(j, e));
    RETERR(compare_constants(r, e));
    gate_set(&j->result, "structure", "passed",
             "%zu packages; the weights are those of %s, bit for bit",
             j->b.n_shards + j->b.n_heads_shards, r->from->name);
    gate_set(&j->result, "range", "not run", "the scales are those of %s",
             r->from->name);
    gate_set(&j->result, "quality", "not run",
             "the weights are those of %s: what was measured of it holds",
             r->from->name);
    return compare_bits(r, e);
}

/* --- all of it --- */

static int run(struct reshard *r, struct err *e)
{
    struct job *j = r->j;
    const struct progress_part parts[] = {
        {"reading",    2},
        {"writing",    1},
        {"writing",    3},
        {"writing",    1},
        {"gating",     3},
        {"publishing", 1},
    };
    progress_plan(&j->progress, parts, countof(parts));
    RETERR(stage_reading(r, e));
    RETERR(convert_read_name(j, r->from->name, e));
    RETERR(file_staging(j->out, j->staging, sizeof(j->staging), e));
    j->emit.dir = j->staging;
    RETERR(stage_writing(r, e));
    RETERR(stage_gating(r, e));
    RETERR(progress_stage(&j->progress, "publishing", 1, e));
    RETERR(convert_publish(j, e));
    return bundle_share(r->from->dir, j->out, &j->result.shared_bytes, e);
}

int reshard_run(const struct convert_options *o, struct convert_result *ret,
                struct err *e)
{
    return reshard_as(o, NULL, ret, e);
}

int reshard_as(const struct convert_options *o, const struct plan *plan,
               struct convert_result *ret, struct err *e)
{
    uint64_t began = convert_now_ms();
    must(o->bundle != NULL && o->out != NULL);
    struct reshard r = {.j = calloc(1, sizeof(*r.j)), .plan = plan};
    struct job *j = r.j;
    must(j != NULL);
    j->o = o;
    crew_ref();
    j->progress.fn = o->progress;
    j->progress.ctx = o->ctx;
    j->emit.d = &j->d;
    arena_init(&j->b.arena, 0);
    gates_init(&j->result);
    int rc = convert_read_out(j, e);
    rc = rc < 0 ? rc : run(&r, e);
    if (rc == 0) {
        j->result.n_shards = j->plan.n_shards;
        j->result.n_heads = j->plan.n_heads;
        j->result.ms = (uint32_t)(convert_now_ms() - began);
        *ret = j->result;
    }
    if (j->staging[0] != '\0') {
        struct err ignored = {0};
        if (file_rmtree(j->staging, &ignored) < 0) {
            j->staging[0] = '\0'; /* a later start sweeps it */
        }
    }
    convert_job_fini(j);
    stored_close(r.stored);
    bundle_close(r.from);
    return rc;
}
