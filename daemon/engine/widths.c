/* widths.c - which widths a chunk of rows may run as.
 *
 * Every shard must take a width. Where a backend's bits depend on it, all rows
 * run at widths that have the same bits, the answer's like the prompt's and the
 * drafts', so that how a text was cut never changes a token (design 7). The
 * widths that agree come in lists, one for a package. A width in all lists is
 * taken together with those that are beside it in every list:
 *
 *   shard 0 {1, 4} {64}     shard 1 {1, 4, 64}     ->  {1, 4} or {64}
 *
 * Where keys and values are inputs (host form), the rows of a call stand after
 * the whole past in one sum, so a row's bits depend on its place in the chunk
 * too. Unless a probe measured widths at which they do not, each row then runs
 * alone.
 */
#include <string.h>

#include "engine/impl.h"
#include "proto/widths.h"

#define FEW 8u /* up to here every width is worth its arrays */

/* A function of one width that was opened is used at that width. */
static bool lists(const struct unit *u, uint32_t t)
{
    const struct backend_info *info = &u->info;
    for (size_t i = 0; i < info->n_exact_widths; i++) {
        if (info->exact_widths[i] == t) {
            return true;
        }
    }
    return info->n_exact_widths == 0 || u->fixed == t;
}

/* A program that runs as rows has other bits than one that does not. */
static bool as_rows(const struct unit *u)
{
    return u->info.rows_max > 0;
}

/* Every shard takes t, with the bits that it has at `like`. */
static bool all_take(const struct shard *shards, size_t n, uint32_t t,
                     uint32_t like)
{
    for (size_t i = 0; i < n; i++) {
        const struct unit *u = shard_unit(&shards[i], t);
        const struct unit *v = shard_unit(&shards[i], like);
        if (u == NULL || v == NULL || !lists(u, t) || !lists(v, t) ||
            !lists(u, like) || as_rows(u) != as_rows(v)) {
            return false;
        }
    }
    return true;
}

/* Every shard takes t, whatever its bits. */
static bool all_run(const struct shard *shards, size_t n, uint32_t t)
{
    for (size_t i = 0; i < n; i++) {
        if (shard_unit(&shards[i], t) == NULL) {
            return false;
        }
    }
    return true;
}

/* In some shard not all widths agree. */
static bool any_lists(const struct shard *shards, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < shards[i].n_units; k++) {
            const struct unit *u = &shards[i].units[k];
            if (u->info.n_exact_widths > 0 ||
                as_rows(u) != as_rows(&shards[i].units[0])) {
                return true;
            }
        }
    }
    return false;
}

static uint32_t agree_with(const struct shard *shards, size_t n, uint32_t cap,
                           uint32_t like)
{
    uint32_t k = 0;
    for (uint32_t t = 1; t <= cap; t++) {
        k += all_take(shards, n, t, like);
    }
    return k;
}

/* The width that the most others agree with; of several the one that a row
 * alone runs best as (width_better). 0: no width runs in all shards. */
static uint32_t choose(const struct shard *shards, size_t n, uint32_t cap)
{
    uint32_t best = 0;
    uint32_t most = 0;
    for (uint32_t t = 1; t <= cap; t++) {
        uint32_t k =
            all_take(shards, n, t, t) ? agree_with(shards, n, cap, t) : 0;
        if (width_better(k, best, most)) {
            best = t;
            most = k;
        }
    }
    return best;
}

/* A width costs arrays and, on some systems, minutes at the first prediction:
 * beyond the small ones, the powers of two and the largest do. */
bool widths_worth(uint32_t t, uint32_t max)
{
    return t <= FEW || t == max || (t & (t - 1)) == 0;
}

/* All functions have one width each: whoever made them wanted these. */
static bool only_fixed(const struct shard *s)
{
    for (size_t i = 0; i < s->n_units; i++) {
        if (s->units[i].t_lo != s->units[i].t_hi) {
            return false;
        }
    }
    return s->n_units <= ENGINE_WIDTHS_MAX;
}

/* Some shard takes keys and values as inputs. */
static bool host_form(const struct shard *shards, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (shards[i].n_past > 0) {
            return true;
        }
    }
    return false;
}

void widths_alone(struct widths *w)
{
    w->max = w->of[1];
    w->of[w->max] = (uint16_t)w->max;
    w->rows = 1;
}

int widths_make(struct widths *w, const struct shard *shards, size_t n,
                const struct widths_conf *c, struct err *e)
{
    uint32_t cap = c->cap;
    bool any = c->any;
    bool agree = !any_lists(shards, n);
    bool limited = !agree && !any;
    bool alone = !c->measured && host_form(shards, n);
    bool chosen = only_fixed(&shards[0]);
    uint32_t like = limited ? choose(shards, n, cap) : 0;
    must(cap <= ENGINE_CHUNK_MAX);
    *w = (struct widths){.exact = limited || (agree && !(any && alone)),
                         .like = like};
    for (uint32_t t = cap; t > 0; t--) {
        bool all = limited ? like > 0 && all_take(shards, n, t, like)
                           : all_run(shards, n, t);
        w->max = all && w->max == 0 ? t : w->max;
        w->of[t] = all && (chosen || widths_worth(t, w->max)) ? (uint16_t)t
                   : t < cap                            ? w->of[t + 1]
                                                        : 0;
    }
    w->rows = w->max;
    if (w->max > 0 && !any && alone) {
        widths_alone(w);
    }
    return w->max > 0
               ? 0
               : err_set(e, ERR_BUNDLE, "no number of rows runs in all shards");
}

uint32_t widths_each(const struct widths *w, size_t i)
{
    for (uint32_t t = 1; t <= w->max; t++) {
        if (w->of[t] == t && i-- == 0) {
            return t;
        }
    }
    return 0;
}
