/* recover.c - a package whose device fails while it serves.
 *
 *   predict fails -> once more, at once            (columns.c)
 *                 -> the package opened anew
 *                 -> the package on the CPU backend, for good
 *
 * Opened anew its bits are the same, and what its states held is computed again
 * from the tokens that every sequence has. On the CPU they are not: then
 * the states of all packages are of no use, engine_arith is another text, and
 * who uses the model is told (engine_event).
 *
 * A package that fails again before it made RECOVER_SOUND
 * predictions is not opened
 * anew once more: a device that keeps failing would cost each answer the time of
 * a load.
 */
#include <string.h>

#include "base/log.h"
#include "engine/impl.h"

/* A prediction of s, not of positions that are computed again: a chunk that
 * always fails would open it anew for ever. */
void recover_sound(struct shard *s)
{
    s->sound += s->reopened && s->sound < RECOVER_SOUND;
}

/* Of a full queue the last event that changes no bits; if all do, the last. */
static struct engine_event *last_of_no_weight(struct engine *g)
{
    size_t i = ENGINE_EVENTS_MAX - 1;
    while (i > 0 && g->events[i].on_cpu) {
        i--;
    }
    return &g->events[g->events[i].on_cpu ? ENGINE_EVENTS_MAX - 1 : i];
}

static void note(struct engine *g, const struct shard *s, bool on_cpu,
                 const struct err *why)
{
    log_warn(on_cpu ? "package_on_cpu" : "package_reopened",
             "package=%s error=%s: %s, continuing", s->path,
             err_name(why->code), why->msg);
    if (g->n_events < ENGINE_EVENTS_MAX || on_cpu) {
        struct engine_event *x = g->n_events < ENGINE_EVENTS_MAX
                                     ? &g->events[g->n_events++]
                                     : last_of_no_weight(g);
        *x = (struct engine_event){.on_cpu = on_cpu, .why = *why};
        (void)snprintf(x->package, sizeof(x->package), "%s", s->path);
    }
}

static void release(struct engine *g, bool heads, size_t i)
{
    const struct shard *s = heads ? &g->heads[i] : &g->shards[i];
    struct sheet *all =
        heads ? g->columns.top_sheets : g->columns.layer_sheets;
    for (size_t k = 0; k < SHEETS_MAX && all[k].t > 0; k++) {
        sheet_release(&all[k], s, i);
    }
}

static int bind_again(struct engine *g, bool heads, size_t i, struct err *e)
{
    struct shard *s = heads ? &g->heads[i] : &g->shards[i];
    struct sheet *all =
        heads ? g->columns.top_sheets : g->columns.layer_sheets;
    for (size_t k = 0; k < SHEETS_MAX && all[k].t > 0; k++) {
        RETERR(sheet_bind(&all[k], s, i, e));
    }
    return 0;
}

/* Close the package and open it on `be`. */
static int reopen(struct engine *g, bool heads, size_t i,
                  const struct backend *be, struct err *e)
{
    struct shard *s = heads ? &g->heads[i] : &g->shards[i];
    columns_tell(g); /* a load may take minutes */
    g->n_reopened++;
    release(g, heads, i);
    LIST_EACH(it, &g->seqs)
    {
        if (!heads) {
            seq_drop(container_of(it, struct engine_seq, link), i);
        }
    }
    shard_close(s);
    engine_set_widths(g, heads);
    RETERR(heads ? head_open(s, be, &g->conf, g->b, &g->b->heads[i], e)
                 : shard_open(s, be, &g->conf, g->b, &g->b->shards[i], e));
    LIST_EACH(it, &g->seqs)
    {
        struct engine_seq *q = container_of(it, struct engine_seq, link);
        if (!heads) {
            RETERR(seq_renew(q, i, e));
        }
    }
    RETERR(bind_again(g, heads, i, e));
    return columns_warm_shard(g, heads, i, e);
}

/* Every width in use must run there too. */
static int check_widths(const struct engine *g, bool heads, size_t i,
                        struct err *e)
{
    const struct shard *s = heads ? &g->heads[i] : &g->shards[i];
    const struct widths *w = heads ? &g->columns.tops : &g->columns.layers;
    for (size_t k = 0; widths_each(w, k) > 0; k++) {
        if (shard_unit(s, widths_each(w, k)) == NULL) {
            return err_set(e, ERR_BUNDLE, "%s: the CPU does not run %u rows",
                           s->path, widths_each(w, k));
        }
    }
    return 0;
}

int recover(struct engine *g, bool heads, size_t i, struct err *e)
{
    struct shard *s = heads ? &g->heads[i] : &g->shards[i];
    struct err why = *e;
    bool again = !s->reopened || s->sound >= RECOVER_SOUND;
    if (s->be == &backend_cpu) {
        return e->code;
    }
    if (again && reopen(g, heads, i, s->be, e) == 0) {
        s->reopened = true;
        s->sound = 0;
        note(g, s, false, &why);
        return 0;
    }
    g->cpu.whole = s->n_units > 1;
    g->broken = reopen(g, heads, i, &backend_cpu, e) < 0 ||
                check_widths(g, heads, i, e) < 0;
    if (g->broken) {
        return e->code;
    }
    LIST_EACH(it, &g->seqs)
    {
        container_of(it, struct engine_seq, link)->valid = 0;
    }
    if (s->n_past > 0 && engine_exact(g)) {
        widths_alone(&g->columns.layers); /* nothing was measured there */
    }
    engine_set_arith(g);
    note(g, s, true, &why);
    return 0;
}

/* Nothing of a sequence is in an expert, so opened anew it goes on; on the CPU its
 * bits are others. */
int recover_expert(struct engine *g, struct err *e)
{
    struct expert *x = g->experts.failed;
    struct err why = *e;
    struct shard named = {.path = x->s.path};
    g->experts.failed = NULL;
    if (x->on_cpu) {
        return e->code;
    }
    g->n_reopened++;
    experts_drop(g, x);
    if (!x->reopened || x->sound >= RECOVER_SOUND) {
        x->reopened = true;
        x->sound = 0;
        note(g, &named, false, &why);
        return 0;
    }
    x->on_cpu = true;
    g->experts.n_on_cpu++;
    LIST_EACH(it, &g->seqs)
    {
        container_of(it, struct engine_seq, link)->valid = 0;
    }
    engine_set_arith(g);
    note(g, &named, true, &why);
    return 0;
}
