/* recurrent.c - the tails of a package (tails.h): inputs NAME_tail
 * [1, width, len, 1] and outputs NAME_new [1, width, T, 1], the same in every
 * function; and what a sequence keeps of them where columns run. Where rows run,
 * the backend's states keep it.
 */
#include <string.h>

#include "engine/array.h"
#include "engine/unit_impl.h"

/* --- ports --- */

static int make_port(struct tail_in *p, const struct backend_port *in,
                     size_t input, struct err *e)
{
    size_t n = unit_stem(in->name, "_tail");
    const int64_t *dims = in->type.dims;
    if (dims[1] > MODEL_DIM_MAX || dims[2] >= MODEL_CONV_MAX) {
        return err_set(e, ERR_BUNDLE, "%s: more than %u numbers or %u positions",
                       in->name, MODEL_DIM_MAX, MODEL_CONV_MAX - 1);
    }
    p->input = input;
    p->in = strdup(in->name);
    p->out = calloc(n + sizeof("_new"), 1);
    if (p->in == NULL || p->out == NULL) {
        return err_set(e, ERR_NOMEM, "tails");
    }
    memcpy(p->out, in->name, n);
    memcpy(p->out + n, "_new", sizeof("_new"));
    return 0;
}

int tail_make(struct shard *s, struct err *e)
{
    const struct unit *u = &s->units[0];
    s->tails = calloc(u->info.n_in + 1, sizeof(*s->tails));
    s->tail_ports = calloc(u->info.n_in + 1, sizeof(*s->tail_ports));
    if (s->tails == NULL || s->tail_ports == NULL) {
        return err_set(e, ERR_NOMEM, "tails");
    }
    for (size_t i = 0; i < u->info.n_in; i++) {
        if (u->roles[i] == ROLE_TAIL) {
            const struct backend_port *in = &u->info.in[i];
            size_t k = s->n_tails++;
            RETERR(make_port(&s->tails[k], in, i, e));
            s->tail_ports[k] = (struct tail_port){
                .width = (uint32_t)in->type.dims[1],
                .len = (uint32_t)in->type.dims[2],
                .wide = true}; /* a backend may compute in more than fp16 */
        }
    }
    return 0;
}

static int match(const struct shard *s, struct unit *u, size_t i, struct err *e)
{
    const struct backend_port *in = &u->info.in[i];
    size_t k = 0;
    while (k < s->n_tails && strcmp(s->tails[k].in, in->name) != 0) {
        k++;
    }
    if (k == s->n_tails || in->type.dims[1] != s->tail_ports[k].width ||
        in->type.dims[2] != s->tail_ports[k].len) {
        return err_set(e, ERR_BUNDLE, "%s is not the same in every function",
                       in->name);
    }
    u->nth[i] = (uint32_t)k;
    const struct backend_port *out =
        unit_find_port(u->info.out, u->info.n_out, s->tails[k].out);
    const struct shape want = {
        4, {1, s->tail_ports[k].width, T_HERE, 1}
    };
    int64_t t = 0;
    return out != NULL
               ? unit_check_port(out, want, &t, e)
               : err_set(e, ERR_BUNDLE, "no output %s", s->tails[k].out);
}

int tail_match(struct shard *s, struct unit *u, struct err *e)
{
    size_t seen = 0;
    for (size_t i = 0; i < u->info.n_in; i++) {
        if (u->roles[i] == ROLE_TAIL) {
            RETERR(match(s, u, i, e));
            seen++;
        }
    }
    return seen == s->n_tails ? 0 : err_set(e, ERR_BUNDLE, "tails differ");
}

void tail_close(struct shard *s)
{
    for (size_t i = 0; i < s->n_tails; i++) {
        s->be->array_free(s->tails[i].any);
        free(s->tails[i].in);
        free(s->tails[i].out);
    }
    free(s->tails);
    free(s->tail_ports);
    s->tails = NULL;
    s->tail_ports = NULL;
    s->n_tails = 0;
}

/* --- columns --- */

/* One tail before position pos into its input; what is before the first
 * position is 0. */
static int fill(struct engine_seq *s, size_t shard, size_t k, uint32_t pos,
                struct err *e)
{
    struct shard *sh = &s->g->shards[shard];
    const struct tail_port *p = &sh->tail_ports[k];
    struct backend_array *a = sh->tails[k].any;
    float *row = s->g->columns.row;
    RETERR(array_begin(sh->be, a, true, e));
    for (uint32_t j = 0; j < p->len; j++) {
        const int64_t at[4] = {0, 0, j, 0};
        struct array_line line = {at, 1, p->width};
        if (pos + j < p->len) {
            array_set(a, line, 0);
        } else {
            tails_get(s->tails[shard], k, pos + j - p->len, pos, row);
            array_put(a, line, row, 1);
        }
    }
    array_end(sh->be, a, true);
    return 0;
}

int tail_take(struct engine_seq *s, size_t shard, struct chunk c, struct err *e)
{
    for (size_t k = 0; k < s->g->shards[shard].n_tails; k++) {
        RETERR(fill(s, shard, k, c.pos, e));
    }
    return 0;
}

int tail_give(struct engine_seq *s, size_t shard, const struct binding *b,
              struct chunk c, struct err *e)
{
    struct shard *sh = &s->g->shards[shard];
    if (sh->n_tails == 0) {
        return 0;
    }
    RETERR(tails_reserve(s->tails[shard], c.pos, c.n, e));
    for (size_t k = 0; k < sh->n_tails; k++) {
        const struct tail_port *p = &sh->tail_ports[k];
        struct backend_array *a = &b->io->out[b->tails[k]];
        const int64_t want[4] = {1, p->width, c.t, 1};
        RETERR(check_out(a, want, sh, sh->tails[k].out, e));
        RETERR(array_begin(sh->be, a, false, e));
        for (uint32_t i = 0; i < c.n; i++) {
            const int64_t at[4] = {0, 0, i, 0};
            array_get(a, (struct array_line){at, 1, p->width},
                      s->g->columns.row, 1);
            tails_put(s->tails[shard], k, c.pos + i, s->g->columns.row);
        }
        array_end(sh->be, a, false);
    }
    return 0;
}

/* --- sequences --- */

bool seq_can_cut(const struct engine_seq *s, uint32_t n)
{
    const struct engine *g = s->g;
    bool can = true;
    bool some = g->recurrent && g->rows.max > 0;
    for (size_t i = 0; can && some && i < g->n_shards; i++) {
        can = s->states[i] == NULL || g->be->rows->can_cut(s->states[i], n);
    }
    return can;
}

uint32_t engine_seq_cut_at(const struct engine_seq *s, uint32_t n)
{
    while (!seq_can_cut(s, n)) {
        n--;
    }
    return n;
}

int engine_seq_keep(struct engine_seq *s, struct err *e)
{
    return seq_mark(s, s->n, false, e);
}

uint32_t seq_reach(const struct engine_seq *s, uint32_t n)
{
    n = n < s->valid ? n : s->valid;
    for (size_t i = 0; i < s->g->n_shards;) {
        bool can = s->tails[i] == NULL || tails_can(s->tails[i], n);
        n = can ? n : (n - 1) / STATE_BLOCK * STATE_BLOCK; /* 0 always can */
        i = can ? i + 1 : 0;
    }
    return n;
}

int seq_mark(struct engine_seq *s, uint32_t n, bool hold, struct err *e)
{
    const struct engine *g = s->g;
    for (size_t i = 0; g->recurrent && i < g->n_shards; i++) {
        if (s->tails[i] != NULL) {
            RETERR(tails_mark(s->tails[i], n, hold, e));
        }
        if (g->rows.max > 0 && s->states[i] != NULL) {
            RETERR(g->be->rows->mark(s->states[i], n, hold, e));
        }
    }
    return 0;
}
