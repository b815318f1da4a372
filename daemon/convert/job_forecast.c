/* job_forecast.c - what a conversion would be, asked alone: its plan, its sizes,
 * its time, and where its programs would run. These are drawn without weights,
 * by the emitter itself, and looked at by the rules that look at real ones. */
#include <string.h>

#include "convert/gates.h"
#include "convert/job.h"

static void look_at(struct job *j, struct mil_writer *w, const char *name)
{
    struct prediction v = {0};
    predict_program(mil_writer_program(w), mil_writer_weight_bytes(w),
                    &j->residency.limits, &v);
    predict_total_add(&j->residency, name, &v);
    predict_free(&v);
    mil_writer_abort(w);
}

/* What is measured later, the stream's scale and the norm's form, is as the
 * options say, or plain. */
static int predict(struct job *j, struct err *e)
{
    struct predict_limits limits = {0};
    char name[64];
    RETERR(predict_limits(j->profile.name, &limits, e));
    predict_total_init(&j->residency, &limits);
    convert_name_forms(j);
    j->emit.d = &j->d;
    j->emit.quant = j->quant;
    j->emit.architecture = j->d.arch->name;
    j->emit.weights.choice = &j->forms;
    j->emit.alpha = j->o->residual_scale > 0 ? (float)j->o->residual_scale : 1;
    j->emit.norm = j->o->norm != NULL && strcmp(j->o->norm, "max") == 0
                       ? NORM_MAX
                       : NORM_SCALE;
    for (uint32_t i = 0; i < j->plan.n_shards; i++) {
        const struct plan_range *r = &j->plan.shards[i];
        (void)snprintf(name, sizeof(name), SHARD_NAME, r->first, r->last);
        look_at(j, emit_sketch_layers(&j->emit, r->first, r->last), name);
    }
    for (uint32_t l = 0; l < j->d.n_layers; l++) {
        const struct layer *y = &j->d.layers[l];
        for (uint32_t x = 0; y->sparse && x < y->n_experts; x += j->in.group) {
            uint32_t left = y->n_experts - x;
            uint32_t n = left < j->in.group ? left : j->in.group;
            (void)snprintf(name, sizeof(name), GROUP_NAME, l, x / j->in.group);
            look_at(j, emit_sketch_experts(&j->emit, l, x, x + n), name);
        }
    }
    for (uint32_t i = 0; i < j->plan.n_heads; i++) {
        const struct plan_range *r = &j->plan.heads[i];
        (void)snprintf(name, sizeof(name), HEAD_NAME, i);
        look_at(j, emit_sketch_head(&j->emit, r->first, r->last), name);
    }
    return 0;
}

static int forecast(void *ctx, struct err *e)
{
    struct job *j = ctx;
    RETERR(arch_read(j->g, &j->d, e));
    RETERR(convert_decide(j, e));
    RETERR(predict(j, e));
    if (j->o->out == NULL) {
        return 0;
    }
    RETERR(convert_check_fit(j, e));
    return convert_check_room(j, e);
}

int convert_forecast(const struct convert_options *o,
                     struct convert_forecast *ret, struct err *e)
{
    int rc = 0;
    struct job *j = calloc(1, sizeof(*j));
    must(j != NULL);
    j->o = o;
    CHECK(convert_read_options(j, e));
    CHECK(convert_open_source(j, e));
    CHECK(gguf_guard(forecast, j, e));
    *ret = (struct convert_forecast){
        .architecture = j->d.arch->name,
        .labels = j->d.n_labels,
        .vocab = j->d.vocab,
        .encoder = j->d.encoder,
        .profile = j->profile,
        .in = j->in,
        .plan = j->plan,
        .source_bytes = gguf_file_bytes(j->g),
        .bundle_bytes = convert_bundle_bytes(j),
        .smallest = convert_has_target(j),
        .weight_bytes = convert_weight_bytes(j),
        .seconds = j->progress.sum / 1e9,
    };
    memcpy(ret->name, j->name, sizeof(ret->name));
    (void)snprintf(ret->quant, sizeof(ret->quant), "%s", j->quant);
    ret->residency = j->residency;
    ret->verdict = predict_judge(&ret->residency);
    j->in = (struct plan_input){0}; /* given away */
out:
    plan_input_fini(&j->in);
    target_fini(&j->target);
    arch_fini(&j->d);
    gguf_close(j->g);
    free(j);
    return rc;
}
