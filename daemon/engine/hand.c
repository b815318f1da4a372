/* hand.c - rows that one shard gives and later ones take: keys, values, what a
 * router had.
 *
 * What is given is numbered through all shards: engine.handed. As rows it lies
 * in memory of ours, written by the one and read by the others (rows.c). As
 * columns it lies in a result, and is copied to an input of each shard that
 * takes it: what was an input may be refused as a result's memory (sheet.c).
 */
#include "engine/impl.h"

/* The earlier shard that gives it: the manifest was checked (bundle_ports.c).
 */
static size_t find_given(const struct engine *g, const struct bundle_port *p)
{
    size_t i = 0;
    size_t k = 0;
    while (g->b->shards[i].last <= p->layer) {
        i++;
    }
    const struct shard *s = &g->shards[i];
    while (k < s->n_gives && (s->gives[k].layer != p->layer ||
                              s->gives[k].role != p->role)) {
        k++;
    }
    must(k < s->n_gives);
    return s->hand + k;
}

int hand_open(struct engine *g, struct err *e)
{
    for (size_t i = 0; i < g->n_shards; i++) {
        g->shards[i].hand = g->n_handed;
        g->n_handed += g->shards[i].n_gives;
    }
    g->handed = calloc(g->n_handed + 1, sizeof(*g->handed));
    if (g->handed == NULL) {
        return err_set(e, ERR_NOMEM, "keys and values");
    }
    for (size_t i = 0; i < g->n_shards; i++) {
        struct shard *s = &g->shards[i];
        for (size_t k = 0; k < s->n_gives; k++) {
            const struct bundle_port *p = &s->gives[k];
            const struct layer *l = &g->b->layers[p->layer];
            size_t heads = layer_port_heads(l, p->role);
            g->handed[s->hand + k].width = heads * layer_port_dim(l, p->role);
        }
        s->from = calloc(s->n_takes + 1, sizeof(*s->from));
        if (s->from == NULL) {
            return err_set(e, ERR_NOMEM, "keys and values");
        }
        for (size_t k = 0; k < s->n_takes; k++) {
            s->from[k] = find_given(g, &s->takes[k]);
        }
    }
    return 0;
}

void hand_close(struct engine *g)
{
    for (size_t i = 0; g->handed != NULL && i < g->n_handed; i++) {
        free(g->handed[i].rows);
    }
    for (size_t i = 0; i < g->n_shards; i++) {
        free(g->shards[i].from);
    }
    free(g->handed);
    g->handed = NULL;
}

int hand_take(struct engine *g, size_t i, const struct binding *b,
              struct err *e)
{
    const struct shard *s = &g->shards[i];
    for (size_t k = 0; k < s->n_takes; k++) {
        const struct handed *h = &g->handed[s->from[k]];
        RETERR(place_copy((struct place){s->be, b->takes[k]},
                          (struct place){h->be, h->a}, e));
    }
    return 0;
}

int hand_give(struct engine *g, size_t i, const struct binding *b, uint32_t t,
              struct err *e)
{
    const struct shard *s = &g->shards[i];
    for (size_t k = 0; k < s->n_gives; k++) {
        const struct bundle_port *p = &s->gives[k];
        const struct layer *l = &g->b->layers[p->layer];
        const int64_t want[4] = {1, layer_port_heads(l, p->role), t,
                                 layer_port_dim(l, p->role)};
        struct handed *h = &g->handed[s->hand + k];
        struct backend_array *a = &b->io->out[b->gives[k]];
        RETERR(check_out(a, want, s, s->gives[k].name, e));
        h->be = s->be;
        h->a = a;
    }
    return 0;
}
