/* Any bytes as a model to convert: what arch_read accepts is planned for and,
 * when it is small, run through the reference pass and the range's choice. */
#include <stdlib.h>

#include "convert/plan_input.h"
#include "convert/reference/reference.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

#define SMALL 200000u /* weights */

static void plan(const struct decoder *d, const struct gguf *g)
{
    struct quant_choice forms;
    const struct plan_form form = {.forms = &forms, .context = 64};
    struct plan_profile profile;
    struct plan_input in;
    struct plan made;
    struct err e = {0};
    must(quant_choice_init(&forms, NULL, NULL, &e) == 0);
    must(plan_profile(NULL, &profile, &e) == 0);
    plan_input_of(d, g, &form, &in);
    if (plan_make(&profile, &in, &made, &e) == 0) {
        struct plan_time t = plan_predict(&profile, &in, &made, 1);
        must(made.shards[made.n_shards - 1].last == d->n_layers);
        must(made.heads[made.n_heads - 1].last == d->vocab);
        must(!t.known || (t.least_ms > 0 && t.least_ms <= t.most_ms));
    }
    plan_input_fini(&in);
}

static void run(const struct decoder *d)
{
    int32_t tokens[3] = {0, (int32_t)d->vocab - 1, (int32_t)d->vocab / 2};
    struct range r = {0};
    struct range_choice c = {0};
    struct err e = {0};
    uint64_t weights = (uint64_t)d->vocab * d->d_model;
    for (uint32_t l = 0; l < d->n_layers && weights <= SMALL; l++) {
        const struct layer *y = &d->layers[l];
        weights += arch_layer_weights(d, l) +
                   64u * ((uint64_t)y->d_ff + d->d_model + y->d_head);
    }
    if (weights > SMALL) {
        return;
    }
    const struct reference_conf conf = {.threads = 1, .range = &r};
    if (reference_run(d, &conf, tokens, 3, NULL, &e) == 0 &&
        range_choose(&r, d, NULL, 0, &c, &e) == 0) {
        must(c.alpha > 0 && c.alpha <= 1 && c.margin >= 1);
    }
    range_fini(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct gguf *g = NULL;
    struct decoder d;
    struct err e = {0};
    if (gguf_open_mem(p, n, &g, &e) < 0) {
        return 0;
    }
    if (arch_read(g, &d, &e) == 0) {
        for (uint32_t l = 0; l < d.n_layers; l++) {
            struct head_rows h;
            bool permutes = arch_permutes(&d, l, &h);
            for (uint32_t i = 0; permutes && i < h.d_head; i++) {
                must(head_row(&h, i) < h.d_head);
            }
        }
        plan(&d, g);
        run(&d);
        arch_fini(&d);
    }
    gguf_close(g);
    return 0;
}
