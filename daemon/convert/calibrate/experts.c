/* experts.c - a layer's experts: each has sums of its own, one expert after the
 * other.
 *
 * An expert's rows meet the tokens that chose it, times their gates: an error in
 * a token that hardly listens costs little. Those are few, about n_top in
 * n_experts of all, and often fewer than there are columns, so that their sums
 * alone would let errors go wherever these tokens happen not to look. So
 *
 *   gate, up   PSEUDO more tokens count, which are like the layer's mean
 *   down       reads what no other expert knows, so there is no mean; what two
 *              inputs have in common counts n / (n + PSEUDO) of what it is
 *
 * An expert that nobody chose is thereby quantised for the layer's mean in its
 * first two matrices, and rounded to nearest in its last. The same holds for
 * forms whose parameters two experts share (int8-tensor; palettes of more rows
 * than divide an expert's): all of that matrix is rounded to nearest.
 */
#include "convert/calibrate/impl.h"

#define PSEUDO CALIBRATE_TOKENS /* a sequence's worth */

static const enum arch_slot all_slots[] = {SLOT_EXPERT_GATE, SLOT_EXPERT_UP,
                                           SLOT_EXPERT_DOWN};

struct experts {
    struct run *r;
    struct codes *file;
    uint32_t l, n; /* layer, its experts */
    struct hessian *mean; /* of all tokens, not divided */
    uint32_t tokens;      /* in it */
};

static uint64_t rows_each(const struct experts *x, const struct item *i)
{
    return i->part.rows / x->n;
}

/* Can each expert's rows be encoded alone? */
static bool divides(const struct experts *x, const struct item *i)
{
    return i->spec.kind != QUANT_INT8_TENSOR &&
           rows_each(x, i) % i->spec.group == 0;
}

/* A matrix of this slot that feedback changes. */
static bool takes(const struct experts *x, enum arch_slot slot)
{
    for (size_t i = 0; i < x->file->n; i++) {
        const struct item *it = &x->file->items[i];
        if (it->slot == slot && divides(x, it)) {
            return true;
        }
    }
    return false;
}

/* What two experts share parameters in. */
static int round_shared(const struct experts *x, enum arch_slot slot,
                        struct err *e)
{
    for (size_t i = 0; i < x->file->n; i++) {
        const struct item *it = &x->file->items[i];
        if (it->slot == slot && !divides(x, it)) {
            RETERR(codes_encode(x->file, it, 0, it->rows, &x->r->weights, e));
        }
    }
    return 0;
}

/* The rows of one expert, with the feedback at hand. */
static int encode(const struct experts *x, enum arch_slot slot, uint32_t index,
                  struct err *e)
{
    for (size_t i = 0; i < x->file->n; i++) {
        const struct item *it = &x->file->items[i];
        uint64_t rows = rows_each(x, it);
        uint64_t first = index * rows;
        if (it->slot == slot && divides(x, it) && first >= it->from &&
            first - it->from < it->rows) {
            RETERR(codes_encode(x->file, it, first - it->from, rows,
                                &x->r->weights, e));
        }
    }
    x->r->now.map = x->file->map;
    return 0;
}

/* --- sums --- */

static int add_mean(void *ctx, const struct reference_panel in[SIDES],
                    struct err *e)
{
    struct experts *x = ctx;
    const struct reference_panel *q = &in[QUANTISED];
    x->tokens += q->tokens;
    return hessian_add(x->mean, x->r->weights.threads, q->x, q->stride,
                       q->tokens, e);
}

static int quantise_first(struct experts *x, uint32_t index, struct err *e)
{
    struct run *r = x->r;
    struct routed_count n = {0};
    double each = 1;
    int rc = 0;
    CHECK(group_open(r, x->r->d->d_model, NULL, e));
    CHECK(streams_expert(r->streams, x->l, index, false, group_add, r, &n, e));
    each = n.tokens > 0 ? n.squares / n.tokens : 1;
    hessian_blend(r->h, x->mean, each * PSEUDO / x->tokens);
    CHECK(group_feedback(r, e));
    CHECK(encode(x, SLOT_EXPERT_GATE, index, e));
    CHECK(encode(x, SLOT_EXPERT_UP, index, e));
out:
    group_close(r);
    return rc;
}

static int quantise_last(struct experts *x, uint32_t index, struct err *e)
{
    struct run *r = x->r;
    struct routed_count n = {0};
    int rc = 0;
    CHECK(group_open(r, r->d->layers[x->l].d_expert, NULL, e));
    CHECK(streams_expert(r->streams, x->l, index, true, group_add, r, &n, e));
    if (n.tokens > 0) {
        hessian_soften(r->h, (double)n.tokens / (n.tokens + PSEUDO));
        CHECK(group_feedback(r, e));
    } else {
        group_close(r); /* rounded to nearest */
    }
    CHECK(encode(x, SLOT_EXPERT_DOWN, index, e));
out:
    group_close(r);
    return rc;
}

/* --- all --- */

static int quantise_each(struct experts *x, struct err *e)
{
    bool first = takes(x, SLOT_EXPERT_GATE) || takes(x, SLOT_EXPERT_UP);
    bool last = takes(x, SLOT_EXPERT_DOWN);
    RETERR(streams_route(x->r->streams, x->l, e));
    RETERR(hessian_open(x->r->d->d_model, &x->mean, e));
    RETERR(streams_routed_all(x->r->streams, add_mean, x, e));
    for (uint32_t i = 0; i < x->n; i++) {
        if (first) {
            RETERR(quantise_first(x, i, e));
        }
        if (last) {
            RETERR(quantise_last(x, i, e));
        }
        if (x->r->conf->progress != NULL) { /* to hear of a cancelled job */
            RETERR(progress_add(x->r->conf->progress, 0, e));
        }
    }
    return 0;
}

int experts_quantise(struct run *r, struct codes *file, uint32_t l,
                     struct err *e)
{
    struct experts x = {
        .r = r, .file = file, .l = l, .n = r->d->layers[l].n_experts};
    for (size_t i = 0; i < countof(all_slots); i++) {
        RETERR(round_shared(&x, all_slots[i], e));
    }
    /* An expert's rows are read when they are there. */
    for (size_t i = 0; i < countof(all_slots); i++) {
        group_show(r, file, all_slots[i]);
    }
    int rc = quantise_each(&x, e);
    hessian_close(x.mean);
    return rc;
}
