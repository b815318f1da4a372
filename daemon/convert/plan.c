/* plan.c - dynamic programming over the places between layers.
 *
 *   best[j] = the least, over i < j, of best[i] + the program of layers [i, j)
 *
 * A cost is (time, programs, copies, squares), compared in this order. It is a
 * sum over programs, so a best division of [0, j) has best divisions as its
 * parts. The time of bytes / bandwidth is the same for every division and is
 * left out: it comes back in plan_predict.
 */
#include "convert/plan.h"

#include <string.h>

#include "base/num.h"

/* Slices of the vocabulary end on multiples of this, so that a slice's rows
 * fill whole vectors. */
#define ROW_UNIT 64u

/* Squares of bytes in units of total / 2^20 stay below 2^40. */
#define SQUARE_BITS 20u

void plan_input_fini(struct plan_input *in)
{
    free(in->layers);
    in->layers = NULL;
}

/* --- sums --- */

/* Layer l stands in two programs, with its experts in packages. */
static bool is_sparse(const struct plan_input *in, uint32_t l)
{
    return in->sparse && in->layers[l].experts > 0;
}

/* What of layer l stands in the program that has it, and in the next. */
static uint64_t own_bytes(const struct plan_input *in, uint32_t l)
{
    const struct plan_layer *y = &in->layers[l];
    return is_sparse(in, l) ? y->bytes - y->expert_bytes - y->behind_bytes
                            : y->bytes;
}

static uint64_t behind_bytes(const struct plan_input *in, uint32_t l)
{
    return is_sparse(in, l) ? in->layers[l].behind_bytes : 0;
}

uint64_t plan_shard_bytes(const struct plan_input *in, struct plan_range r)
{
    uint64_t n = r.first > 0 ? behind_bytes(in, r.first - 1) : 0;
    for (uint32_t l = r.first; l < r.last; l++) {
        n += own_bytes(in, l);
    }
    return n;
}

uint64_t plan_layers_bytes(const struct plan_input *in)
{
    uint64_t n = 0;
    for (uint32_t l = 0; l < in->n_layers; l++) {
        const struct plan_layer *y = &in->layers[l];
        n += own_bytes(in, l) + behind_bytes(in, l);
        n += is_sparse(in, l) ? y->experts * y->one_bytes : 0;
    }
    return n;
}

uint32_t plan_groups(const struct plan_input *in)
{
    uint32_t n = 0;
    for (uint32_t l = 0; l < in->n_layers; l++) {
        n += is_sparse(in, l)
                 ? (in->layers[l].experts + in->group - 1) / in->group
                 : 0;
    }
    return n;
}

/* Layers [first, last), taken one at a time from the last to the first. */
struct tally {
    bool seen[MODEL_LAYERS_MAX]; /* its states are counted */
    uint32_t states;
    uint64_t copies;
};

/* An earlier layer whose states are read is counted as a copy, until it is
 * taken itself. */
static void tally_layer(struct tally *t, const struct plan_input *in,
                        uint32_t l)
{
    uint32_t owner = in->layers[l].kv_from;
    const struct plan_layer *o = &in->layers[owner];
    t->copies -= owner == l && t->seen[l] ? o->state_bytes : 0;
    t->copies += owner != l && !t->seen[owner] ? o->state_bytes : 0;
    t->states += t->seen[owner] ? 0 : o->states;
    t->seen[owner] = true;
}

static struct tally tally_range(const struct plan_input *in,
                                struct plan_range r)
{
    struct tally t = {.states = 0};
    for (uint32_t l = r.last; l-- > r.first;) {
        tally_layer(&t, in, l);
    }
    return t;
}

uint32_t plan_shard_states(const struct plan_input *in, struct plan_range r)
{
    return tally_range(in, r).states;
}

uint64_t plan_shard_copies(const struct plan_input *in, struct plan_range r)
{
    return tally_range(in, r).copies;
}

uint64_t plan_head_bytes(const struct plan_input *in, struct plan_range r)
{
    return in->head_bytes + (r.last - r.first) * in->row_bytes;
}

uint64_t plan_resident_bytes(const struct plan_profile *p,
                             const struct plan_input *in,
                             const struct plan *plan)
{
    uint64_t n = plan_layers_bytes(in);
    for (uint32_t i = 0; i < plan->n_heads; i++) {
        n += plan_head_bytes(in, plan->heads[i]);
    }
    return p->fold_bits > in->bits ? n / in->bits * p->fold_bits : n;
}

enum plan_fit plan_fit(const struct plan_profile *p,
                       const struct plan_input *in, const struct plan *plan)
{
    double n = (double)plan_resident_bytes(p, in, plan);
    if (!p->resident_bytes.known) {
        return PLAN_UNKNOWN;
    }
    return n <= p->resident_bytes.least  ? PLAN_FITS
           : n <= p->resident_bytes.most ? PLAN_EDGE
                                         : PLAN_TOO_BIG;
}

/* --- what a profile refuses --- */

static int refuse(struct err *e, const struct plan_profile *p, uint32_t layer,
                  const char *what, uint64_t have, const char *limit,
                  uint64_t most)
{
    return err_set(e, ERR_CONVERT,
                   "layer %u has %llu %s; profile %s: %s %llu", layer,
                   (unsigned long long)have, what, p->name, limit,
                   (unsigned long long)most);
}

/* Are these layers too large for a program? One alone is not where no Neural
 * Engine has to load it: it cannot be divided. */
static bool too_large(const struct plan_profile *p, uint64_t bytes,
                      uint32_t layers)
{
    return bytes > p->program_bytes && (p->chip || layers > 1);
}

/* A layer that no division makes smaller. */
static int check_layer(const struct plan_profile *p,
                       const struct plan_input *in, uint32_t l, struct err *e)
{
    const struct plan_layer *y = &in->layers[l];
    uint32_t states =
        plan_shard_states(in, (struct plan_range){l, l + 1});
    uint64_t bytes = plan_shard_bytes(in, (struct plan_range){l, l + 1});
    if (too_large(p, bytes, 1)) {
        return err_set(e, ERR_CONVERT,
                       "layer %u has %llu bytes of weights; profile %s: "
                       "program_bytes %llu. Fewer bits (--quant lut4) or a "
                       "later chip (aned plan --profile) may do; profile cpu "
                       "takes it, for the CPU backend%s",
                       l, (unsigned long long)bytes, p->name,
                       (unsigned long long)p->program_bytes,
                       y->experts > 0 && !in->sparse
                           ? "; its experts can be programs of their own "
                             "(--experts sparse)"
                           : "");
    }
    if (states > p->states) {
        return refuse(e, p, l, "state tensors", states, "states", p->states);
    }
    if (y->channels > p->channels) {
        return refuse(e, p, l, "channels", y->channels, "channels",
                      p->channels);
    }
    return 0;
}

int plan_grouping(const struct plan_profile *p, uint32_t asked,
               struct plan_input *in, struct err *e)
{
    uint64_t one = 0;
    uint32_t experts = 0;
    for (uint32_t l = 0; l < in->n_layers; l++) {
        one = num_max(one, in->layers[l].one_bytes);
        experts = experts > in->layers[l].experts ? experts
                                                  : in->layers[l].experts;
    }
    uint64_t fit = one > 0 ? p->program_bytes / one : experts;
    uint64_t most = MIL_FUNCTIONS_MAX / in->n_widths;
    if (experts > 0 && p->chip && fit < num_max(asked, 1)) {
        return err_set(e, ERR_CONVERT,
                       "%u experts have %llu bytes; profile %s: program_bytes "
                       "%llu",
                       asked > 0 ? asked : 1,
                       (unsigned long long)(num_max(asked, 1) * one), p->name,
                       (unsigned long long)p->program_bytes);
    }
    if (asked > most) {
        return err_set(e, ERR_INVALID,
                       "experts 'sparse:%u': at most %llu a package here", asked,
                       (unsigned long long)most);
    }
    fit = p->chip ? num_min(fit, most) : most;
    in->group = asked > 0 ? asked : (uint32_t)num_min(EXPERT_GROUP, fit);
    if (in->sparse && plan_groups(in) > EXPERT_PACKAGES_MAX) {
        return err_set(e, ERR_CONVERT,
                       "%u packages of experts; at most %u: more experts in one "
                       "(--experts sparse:N)",
                       plan_groups(in), EXPERT_PACKAGES_MAX);
    }
    return 0;
}

static int check_input(const struct plan_profile *p,
                       const struct plan_input *in, struct err *e)
{
    uint64_t total = 0;
    must(in->n_layers > 0 && in->row_bytes > 0 &&
         in->bits > 0 && in->n_widths > 0);
    if (in->n_layers > MODEL_LAYERS_MAX) {
        return err_set(e, ERR_CONVERT, "%u layers; aned takes %u", in->n_layers,
                       MODEL_LAYERS_MAX);
    }
    for (uint32_t l = 0; l < in->n_layers; l++) {
        uint32_t owner = in->layers[l].kv_from;
        must(owner <= l && in->layers[owner].kv_from == owner);
        /* twice: folded weights are larger than stored ones */
        if (in->layers[l].bytes > INT64_MAX / 32 ||
            in->layers[l].state_bytes > INT64_MAX / 32 ||
            !num_add(total, in->layers[l].bytes, &total) ||
            !num_add(total, in->layers[l].state_bytes, &total) ||
            total > INT64_MAX / 32) {
            return err_set(e, ERR_CONVERT, "layer %u: too many bytes", l);
        }
    }
    if (in->context > p->axis) {
        return err_set(e, ERR_CONVERT,
                       "a context of %u positions; profile %s: axis %u. A "
                       "later chip may have more (aned plan --profile), and "
                       "profile cpu has no such limit, for the CPU backend",
                       in->context, p->name, p->axis);
    }
    return 0;
}

/* --- layers --- */

struct cost {
    uint64_t ns;
    uint32_t programs;
    uint64_t copies, squares;
};

struct dp {
    uint64_t bytes[MODEL_LAYERS_MAX + 1]; /* of the layers before this one, where
                                             they stand in one program */
    struct cost best[MODEL_LAYERS_MAX + 1];
    uint32_t from[MODEL_LAYERS_MAX + 1];
};

static bool less(struct cost a, struct cost b)
{
    if (a.ns != b.ns) {
        return a.ns < b.ns;
    }
    if (a.programs != b.programs) {
        return a.programs < b.programs;
    }
    return a.copies != b.copies ? a.copies < b.copies : a.squares < b.squares;
}

/* What one layer program costs beside its bytes. */
static uint64_t program_ns(const struct plan_profile *p)
{
    double ms = 0;
    ms += p->boundary_ms.known ? p->boundary_ms.most : 0;
    ms += p->program_ms.known ? p->program_ms.most : 0;
    return (uint64_t)(ms * 1e6);
}

static void search(struct dp *d, const struct plan_profile *p,
                   const struct plan_input *in)
{
    uint32_t n = in->n_layers;
    uint64_t unit = (d->bytes[n] >> SQUARE_BITS) + 1;
    uint64_t each = program_ns(p);
    for (uint32_t j = 1; j <= n; j++) {
        struct tally t = {.states = 0};
        d->best[j].ns = UINT64_MAX;
        for (uint32_t i = j; i-- > 0;) {
            tally_layer(&t, in, i);
            uint64_t bytes = d->bytes[j] - d->bytes[i];
            uint64_t before = i > 0 ? behind_bytes(in, i - 1) : 0;
            if (too_large(p, bytes, j - i) || t.states > p->states ||
                (i + 1 < j && is_sparse(in, i))) {
                break; /* more layers only have more */
            }
            if (too_large(p, bytes + before, j - i)) {
                continue; /* one that begins earlier may have less before it */
            }
            uint64_t size = (d->bytes[j] + before) / unit - d->bytes[i] / unit;
            struct cost c = {.ns = d->best[i].ns + each,
                             .programs = d->best[i].programs + 1,
                             .copies = d->best[i].copies + t.copies,
                             .squares = d->best[i].squares + size * size};
            if (less(c, d->best[j])) {
                d->best[j] = c;
                d->from[j] = i;
            }
        }
    }
}

static int plan_layers(struct dp *d, const struct plan_profile *p,
                       const struct plan_input *in, struct plan *ret,
                       struct err *e)
{
    uint32_t n = in->n_layers;
    for (uint32_t l = 0; l < n; l++) {
        d->bytes[l + 1] = d->bytes[l] + own_bytes(in, l);
        RETERR(check_layer(p, in, l, e));
    }
    search(d, p, in);
    ret->n_shards = d->best[n].programs;
    must(ret->n_shards > 0 && ret->n_shards <= SHARDS_MAX); /* layers fit */
    for (uint32_t j = n, i = ret->n_shards; i-- > 0; j = d->from[j]) {
        ret->shards[i] = (struct plan_range){d->from[j], j};
    }
    if (is_sparse(in, n - 1)) { /* what comes behind the last experts */
        if (ret->n_shards == SHARDS_MAX) {
            return err_set(e, ERR_CONVERT, "more than %u layer programs",
                           SHARDS_MAX);
        }
        ret->shards[ret->n_shards++] = (struct plan_range){n, n};
    }
    return 0;
}

/* --- heads --- */

/* n things in `parts` pieces whose sizes differ by at most one `unit`. */
static void divide(uint32_t n, uint32_t parts, uint32_t unit,
                   struct plan_range *out)
{
    uint32_t units = (n + unit - 1) / unit;
    uint32_t at = 0;
    for (uint32_t i = 0; i < parts; i++) {
        uint32_t size = (units / parts + (i < units % parts ? 1 : 0)) * unit;
        uint32_t to = at + size < n ? at + size : n;
        out[i] = (struct plan_range){.first = at, .last = to};
        at = to;
    }
    must(at == n);
}

static int plan_heads(const struct plan_profile *p, const struct plan_input *in,
                      struct plan *ret, struct err *e)
{
    if (in->vocab == 0) { /* there is no head */
        ret->n_heads = 0;
        return 0;
    }
    uint64_t room =
        p->program_bytes - num_min(in->head_bytes, p->program_bytes);
    uint64_t rows = num_min(room / in->row_bytes, p->head_rows);
    rows = num_min(rows, p->channels) / ROW_UNIT * ROW_UNIT;
    if (rows == 0) {
        return err_set(
            e, ERR_CONVERT,
            "%u rows of the head have %llu bytes; profile %s: "
            "program_bytes %llu, head_rows %u",
            ROW_UNIT,
            (unsigned long long)(ROW_UNIT * in->row_bytes + in->head_bytes),
            p->name, (unsigned long long)p->program_bytes, p->head_rows);
    }
    uint64_t heads = (in->vocab + rows - 1) / rows;
    if (heads > SHARDS_MAX) {
        return err_set(e, ERR_CONVERT, "%llu head programs; aned takes %u",
                       (unsigned long long)heads, SHARDS_MAX);
    }
    ret->n_heads = (uint32_t)heads;
    divide(in->vocab, ret->n_heads, ROW_UNIT, ret->heads);
    return 0;
}

int plan_make(const struct plan_profile *p, const struct plan_input *in,
              struct plan *ret, struct err *e)
{
    RETERR(check_input(p, in, e));
    struct dp *d = calloc(1, sizeof(*d));
    must(d != NULL);
    int rc = plan_layers(d, p, in, ret, e);
    free(d);
    rc = rc < 0 ? rc : plan_heads(p, in, ret, e);
    uint64_t loaded =
        rc < 0 ? 0
               : (uint64_t)ret->n_shards * in->n_widths +
                     (uint64_t)ret->n_heads * in->n_head_widths;
    if (loaded > p->programs) {
        return err_set(e, ERR_CONVERT,
                       "%u programs, each for %u numbers of rows; profile %s: "
                       "programs %u",
                       ret->n_shards + ret->n_heads, in->n_widths, p->name,
                       p->programs);
    }
    return rc;
}
