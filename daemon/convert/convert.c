/* convert.c - the whole way from a GGUF to a published bundle.
 *
 *   reading     metadata, family, plan; nothing is written before it fits
 *   measuring   the reference pass over the calibration text, then alpha and
 *               the norm's form (range gate)
 *   choosing    the forms of the matrices, when a target is asked for; the plan
 *               again
 *   calibrating error feedback, layer by layer (calibrate/), if wanted
 *   writing     embed.bin, layer shards, head slices, into a staging folder
 *   gating      bundle.json with all hashes; every package read again and
 *               validated (structure gate, whose look at the vocabulary comes
 *               while reading); where it will run predicted (residency gate,
 *               which only warns); the bundle run against the reference
 *               (quality, exactness)
 *   publishing  fsync, rename
 *
 * The staging folder stands beside `out`, so the rename stays on one file
 * system. It outlives a crash, a cancel and a full disk (work.h): the same
 * conversion, begun again, skips what the writing stage has on record. All
 * other stages are done again; they are short, or their results are small.
 */
#include "convert/convert.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/crew.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/num.h"
#include "convert/gates.h"
#include "convert/job.h"
#include "convert/quality/quality.h"

void convert_options_init(struct convert_options *o)
{
    *o = (struct convert_options){.memory_bytes = machine_memory()};
}

/* --- reading --- */

static int stage_reading(struct job *j, struct err *e)
{
    RETERR(progress_stage(&j->progress, "reading", 0, e));
    RETERR(arch_read(j->g, &j->d, e));
    j->emit.architecture = j->d.arch->name;
    convert_name_forms(j);
    RETERR(convert_decide(j, e));
    RETERR(convert_check_fit(j, e));
    return convert_check_room(j, e);
}

/* --- measuring --- */

int convert_staged(const struct job *j, const char *name, char out[PATH_ROOM],
                   struct err *e)
{
    return file_join(out, PATH_ROOM, j->staging, name)
               ? 0
               : err_set(e, ERR_INVALID, "the path of the bundle is too long");
}

static int stage_measuring(struct job *j, struct err *e)
{
    char vocab[PATH_ROOM];
    int32_t tokens[CALIBRATION_TOKENS] = {0};
    RETERR(progress_stage(&j->progress, "measuring", 0, e));
    RETERR(convert_staged(j, "tokenizer.gguf", vocab, e));
    RETERR(gguf_write_vocab(j->g, j->o->chat_template, vocab, e));
    uint32_t n = quality_tokens(j->g, vocab, j->d.vocab, tokens,
                                CALIBRATION_TOKENS, &j->result.notes);
    const struct reference_conf conf = {.threads = j->o->threads,
                                        .progress = &j->progress,
                                        .range = &j->range};
    RETERR(
        progress_stage(&j->progress, "measuring", reference_bytes(&j->d), e));
    RETERR(reference_run(&j->d, &conf, tokens, n, NULL, e));
    RETERR(range_choose(&j->range, &j->d, j->o->norm, j->o->residual_scale,
                        &j->choice, e));
    j->emit.alpha = j->choice.alpha;
    j->emit.norm = j->choice.norm;
    RETERR(convert_bind_work(j, e));
    gate_set(&j->result, "range", j->choice.warned ? "warned" : "passed",
             "residual scale %g, norm %s, margin %.1f; %s",
             (double)j->choice.alpha,
             j->choice.norm == NORM_MAX ? "max" : "scale", j->choice.margin,
             j->choice.detail);
    return 0;
}

/* --- gating and publishing --- */

static int gate_package(struct job *j, const char *path, const char *kind,
                        struct err *e)
{
    struct mil_program *p = NULL;
    RETERR(gate_structure(j->staging, path, &p, e));
    int rc = gate_residency(p, path, kind, j->o, &j->residency, e);
    mil_free(p);
    return rc < 0 ? rc : progress_add(&j->progress, 1, e);
}

/* Quality and exactness, of what is in the staging folder. */
static int measure_quality(struct job *j, struct err *e)
{
    struct quality q = {0};
    if (j->emit.argmax) {
        gate_set(&j->result, "quality", "not run", "the heads give no logits");
        gate_set(&j->result, "exactness", "not run",
                 "the heads give no logits");
        return 0;
    }
    const struct quality_conf conf = {.threads = j->o->threads,
                                      .progress = &j->progress};
    RETERR(progress_stage(&j->progress, "gating", quality_work(&j->d), e));
    int rc = quality_measure(j->staging, &j->d, &conf, &q, e);
    if (rc == ERR_NOMEM) { /* a gate that could not run says so */
        gate_set(&j->result, "quality", "not run", "%.300s", e->msg);
        return 0;
    }
    RETERR(rc);
    if (j->o->report != NULL) {
        struct json *all = json_object();
        json_add_tree(all, "quality", quality_json(&q, QUALITY_TEXT_MAX));
        rc = j->o->report(j->o->ctx, all, e);
    }
    gate_set(&j->result, "quality", q.all.verdict, "%s", q.all.detail);
    gate_set(&j->result, "exactness", q.exactness.verdict, "%s",
             q.exactness.detail);
    quality_fini(&q);
    return rc;
}

int convert_gate_packages(struct job *j, struct err *e)
{
    struct predict_limits limits = {0};
    uint64_t n = bundle_n_packages(&j->b);
    RETERR(progress_stage(&j->progress, "gating", n, e));
    RETERR(predict_limits(j->profile.name, &limits, e));
    predict_total_init(&j->residency, &limits);
    for (size_t i = 0; i < j->b.n_shards; i++) {
        RETERR(gate_package(j, j->b.shards[i].path, "layers", e));
    }
    for (size_t i = 0; i < j->b.n_groups; i++) {
        RETERR(gate_package(j, j->b.groups[i].path, "experts", e));
    }
    for (size_t i = 0; i < j->b.n_heads_shards; i++) {
        RETERR(gate_package(j, j->b.heads[i].path, "head", e));
    }
    const struct gguf_notes *notes = &j->result.notes;
    gate_set(&j->result, "structure", notes->n > 0 ? "warned" : "passed",
             "%llu packages%s%s", (unsigned long long)n,
             notes->n > 0 ? "; " : "", notes->n > 0 ? notes->text[0] : "");
    return gate_residency_end(&j->result, j->o, &j->residency, e);
}

static int stage_gating(struct job *j, struct err *e)
{
    RETERR(convert_gate_packages(j, e));
    return measure_quality(j, e);
}

/* The manifest: the gates look at a whole bundle. */
static int describe(struct job *j, struct err *e)
{
    RETERR(progress_stage(&j->progress, "writing", 0, e));
    j->digesting = false; /* the next line ends it, whatever it finds */
    RETERR(digest_end(&j->digest, false, e));
    RETERR(convert_bind_source(j, e));
    RETERR(convert_check_source(j, e));
    convert_describe(j);
    return bundle_write(j->staging, &j->b, e);
}

int convert_publish(struct job *j, struct err *e)
{
    j->result.bundle_bytes = file_tree_bytes(j->staging);
    RETERR(file_publish_dir(j->staging, j->out, e));
    j->staging[0] = '\0';
    return 0;
}

static int stage_publishing(struct job *j, struct err *e)
{
    RETERR(progress_stage(&j->progress, "publishing", 0, e));
    RETERR(convert_check_source(j, e));
    return convert_publish(j, e);
}

static int run(void *ctx, struct err *e)
{
    struct job *j = ctx;
    RETERR(stage_reading(j, e));
    RETERR(convert_open_work(j, e));
    digest_begin(&j->digest, j->g);
    j->digesting = true;
    RETERR(stage_measuring(j, e));
    RETERR(convert_choose(j, e));
    if (j->calibrates) { /* its files are named by the source's bytes */
        j->digesting = false;
        RETERR(digest_end(&j->digest, false, e));
    }
    RETERR(convert_calibrate(j, e));
    RETERR(convert_verify_target(j, e));
    RETERR(convert_write(j, e));
    RETERR(convert_end_calibration(j, e));
    RETERR(describe(j, e));
    RETERR(stage_gating(j, e));
    return stage_publishing(j, e);
}

uint64_t convert_now_ms(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

void convert_job_fini(struct job *j)
{
    struct err ignored = {0};
    if (j->digesting && digest_end(&j->digest, true, &ignored) < 0) {
        j->digesting = false; /* the conversion's own error is the reason */
    }
    free(j->known);
    arena_fini(&j->b.arena);
    range_fini(&j->range);
    calibration_close(j->calibration);
    free(j->heads);
    plan_input_fini(&j->in);
    target_fini(&j->target);
    target_text_fini(&j->text);
    arch_fini(&j->d);
    gguf_close(j->g);
    crew_unref();
    free(j);
}

int convert_run(const struct convert_options *o, struct convert_result *ret,
                struct err *e)
{
    uint64_t began = convert_now_ms();
    must(o->out != NULL);
    struct err mine = {0};
    e = e != NULL ? e : &mine;
    struct job *j = calloc(1, sizeof(*j));
    must(j != NULL);
    j->o = o;
    crew_ref();
    j->progress.fn = o->progress;
    j->progress.ctx = o->ctx;
    arena_init(&j->b.arena, 0);
    gates_init(&j->result);
    int rc = 0;
    CHECK(convert_read_options(j, e));
    CHECK(convert_open_source(j, e));
    j->emit.d = &j->d;
    j->emit.now_ms = convert_now_ms;
    j->emit.quant = j->quant;
    j->emit.weights.threads = crew_threads(o->threads);
    j->emit.weights.choice = &j->forms;
    j->emit.weights.progress = &j->progress;
    CHECK(gguf_guard(run, j, e));
    j->result.n_shards = j->plan.n_shards;
    j->result.n_heads = j->plan.n_heads;
    j->result.ms = (uint32_t)(convert_now_ms() - began);
    *ret = j->result;
out:
    convert_close_work(j, rc, e);
    convert_job_fini(j);
    return rc;
}
