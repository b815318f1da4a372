/* sheet.c - the arrays that predictions of one width read.
 *
 * Masks are by far the largest inputs, and little in them changes from one step
 * to the next: they are kept, and only the differences are written. All shards
 * read the same ones. Each shard has an x of its own: some systems do not let a
 * result be written to an array that was an input, so results are copied.
 */
#include <string.h>

#include "base/num.h"
#include "engine/array.h"
#include "engine/impl.h"

#define NO_ROW UINT32_MAX

int array_begin(const struct backend *be, struct backend_array *a, bool write,
                struct err *e)
{
    return be->lock != NULL ? be->lock(a, write, e) : 0;
}

void array_end(const struct backend *be, struct backend_array *a, bool write)
{
    if (be->unlock != NULL) {
        be->unlock(a, write);
    }
}

struct backend_array *sheet_fresh(const struct binding *b,
                                  const struct past_port *p, size_t k)
{
    return p->take != PAST_NOT_TAKEN ? b->takes[p->take]
                                     : &b->io->out[b->fresh[k]];
}

/* --- make --- */

static const struct {
    enum role cos, sin, mask;
} kinds[2] = {
    {ROLE_COS,       ROLE_SIN,       ROLE_MASK      },
    {ROLE_COS_LOCAL, ROLE_SIN_LOCAL, ROLE_MASK_LOCAL},
};

int place_copy(struct place to, struct place from, struct err *e)
{
    RETERR(array_begin(from.be, from.a, false, e));
    int rc = array_begin(to.be, to.a, true, e);
    if (rc == 0) {
        array_copy(to.a, from.a);
        array_end(to.be, to.a, true);
    }
    array_end(from.be, from.a, false);
    return rc;
}

/* An array for input i of the unit, T filled in. Every dimension but T is known
 * (unit.c checked it). */
static int make_array(const struct backend *be, const struct unit *u, size_t i,
                      uint32_t t, struct backend_array **ret, struct err *e)
{
    const struct mil_type *type = &u->info.in[i].type;
    int64_t dims[MIL_RANK_MAX];
    for (int k = 0; k < type->rank; k++) {
        dims[k] = type->dims[k] == MIL_UNKNOWN ? t : type->dims[k];
    }
    enum mil_dtype dtype = u->roles[i] == ROLE_PAST ? MIL_FP16 : MIL_FP32;
    return be->array_new(u->m, i, dtype, type->rank, dims, ret, e);
}

static size_t find_result(const struct unit *u, const char *name)
{
    size_t i = 0;
    while (i < u->info.n_out && strcmp(u->info.out[i].name, name) != 0) {
        i++;
    }
    must(i < u->info.n_out); /* unit.c checked it */
    return i;
}

static int make_sights(struct side *side, uint32_t t, struct err *e)
{
    for (size_t k = 0; k < 2; k++) {
        struct sight *m = &side->seen[k];
        m->lo = calloc(t, sizeof(*m->lo));
        m->hi = calloc(t, sizeof(*m->hi));
        if (m->lo == NULL || m->hi == NULL) {
            return err_set(e, ERR_NOMEM, "attention mask");
        }
        for (uint32_t i = 0; i < t; i++) {
            m->lo[i] = NO_ROW; /* never filled */
        }
    }
    return 0;
}

/* The arrays in this backend's memory. */
static int side_of(struct sheet *s, const struct backend *be, struct side **ret,
                   struct err *e)
{
    struct side *side =
        s->sides[0].be == NULL || s->sides[0].be == be ? &s->sides[0]
                                                       : &s->sides[1];
    must(side->be == NULL || side->be == be); /* there are no more */
    if (side->be == NULL) {
        RETERR(make_sights(side, s->t, e));
        side->be = be;
    }
    *ret = side;
    return 0;
}

/* Where the array of the unit's input k is kept. */
static struct backend_array **array_of(struct side *side, struct shard *sh,
                                       struct binding *b, const struct unit *u,
                                       size_t k)
{
    enum role r = u->roles[k];
    if (r == ROLE_PAST) {
        return &sh->past[u->nth[k]].any;
    }
    if (r == ROLE_TAKE) {
        return &b->takes[u->nth[k]];
    }
    if (r == ROLE_TAIL) {
        return &sh->tails[u->nth[k]].any;
    }
    return r == ROLE_X ? &b->x : &side->of[r];
}

/* Which results the engine reads. */
static void find_results(struct binding *b, const struct shard *sh,
                         const struct unit *u)
{
    b->out = find_result(u, sh->out);
    b->value = sh->value != NULL ? find_result(u, sh->value) : 0;
    if (sh->n_routed > 0) {
        b->in = find_result(u, EXPERT_IN);
        b->gates = find_result(u, EXPERT_GATES);
    }
    for (size_t k = 0; k < sh->n_past; k++) {
        if (sh->past[k].take == PAST_NOT_TAKEN) {
            b->fresh[k] = find_result(u, sh->past[k].out);
        }
    }
    for (size_t k = 0; k < sh->n_tails; k++) {
        b->tails[k] = find_result(u, sh->tails[k].out);
    }
    for (size_t k = 0; k < sh->n_gives; k++) {
        b->gives[k] = find_result(u, sh->gives[k].name);
    }
}

/* Arrays of the roles that no shard before it reads, and its binding. */
int sheet_bind(struct sheet *s, struct shard *sh, size_t i, struct err *e)
{
    const struct unit *u = shard_unit(sh, s->t);
    struct binding *b = &s->shards[i];
    struct side *side = NULL;
    struct backend_array **in =
        calloc(u->info.n_in + 1, sizeof(struct backend_array *));
    int rc = 0;
    b->fresh = calloc(sh->n_past + 1, sizeof(*b->fresh));
    b->tails = calloc(sh->n_tails + 1, sizeof(*b->tails));
    b->gives = calloc(sh->n_gives + 1, sizeof(*b->gives));
    b->takes = calloc(sh->n_takes + 1, sizeof(struct backend_array *));
    if (in == NULL || b->fresh == NULL || b->tails == NULL ||
        b->gives == NULL || b->takes == NULL) {
        rc = err_set(e, ERR_NOMEM, "inputs");
        goto out;
    }
    CHECK(side_of(s, sh->be, &side, e));
    for (size_t k = 0; k < u->info.n_in; k++) {
        struct backend_array **of = array_of(side, sh, b, u, k);
        if (*of == NULL) {
            CHECK(make_array(sh->be, u, k, s->t, of, e));
        }
        in[k] = *of;
    }
    CHECK(sh->be->bind(u->m, in, &b->io, e));
    find_results(b, sh, u);
out:
    free(in);
    return rc < 0 ? err_prefix(e, rc, "%s", sh->path) : 0;
}

void sheet_release(struct sheet *s, const struct shard *sh, size_t i)
{
    struct binding *b = &s->shards[i];
    sh->be->unbind(b->io);
    sh->be->array_free(b->x);
    for (size_t k = 0; b->takes != NULL && k < sh->n_takes; k++) {
        sh->be->array_free(b->takes[k]);
    }
    free(b->fresh);
    free(b->tails);
    free(b->gives);
    free(b->takes);
    *b = (struct binding){0};
}

int sheet_init(struct sheet *s, struct engine *g, bool heads, uint32_t t,
               struct err *e)
{
    size_t n = heads ? g->n_heads : g->n_shards;
    struct shard *all = heads ? g->heads : g->shards;
    int rc = 0;
    *s = (struct sheet){.t = t, .sides[0].be = NULL};
    s->shards = calloc(n + 1, sizeof(*s->shards));
    if (s->shards == NULL) {
        rc = err_set(e, ERR_NOMEM, "inputs");
        goto out;
    }
    for (size_t i = 0; i < n; i++) {
        CHECK(sheet_bind(s, &all[i], i, e));
    }
out:
    if (rc < 0) {
        sheet_fini(s, g, heads);
    }
    return rc;
}

void sheet_fini(struct sheet *s, const struct engine *g, bool heads)
{
    size_t n = heads ? g->n_heads : g->n_shards;
    const struct shard *all = heads ? g->heads : g->shards;
    for (size_t i = 0; s->shards != NULL && i < n; i++) {
        sheet_release(s, &all[i], i);
    }
    for (size_t k = 0; k < countof(s->sides); k++) {
        struct side *side = &s->sides[k];
        for (size_t i = 0; i < countof(side->of) && side->be != NULL; i++) {
            side->be->array_free(side->of[i]);
        }
        for (size_t i = 0; i < 2; i++) {
            free(side->seen[i].lo);
            free(side->seen[i].hi);
        }
    }
    free(s->shards);
    *s = (struct sheet){0};
}

/* --- fill --- */

/* The position of column i. */
static uint32_t position(const struct chunk *c, uint32_t i)
{
    return c->pos + (uint32_t)num_min(i, c->n - 1);
}

static int place_rope(struct side *s, struct engine *g, size_t kind, bool sine,
                      struct chunk c, struct err *e)
{
    struct backend_array *a = s->of[sine ? kinds[kind].sin : kinds[kind].cos];
    if (a == NULL) {
        return 0;
    }
    RETERR(array_begin(s->be, a, true, e));
    for (uint32_t i = 0; i < c.t; i++) {
        const float *row[2];
        const int64_t at[2] = {i, 0};
        inputs_rope_row(&g->in, kind, c.long_list, position(&c, i), &row[0],
                        &row[1]);
        array_put(a, (struct array_line){at, 1, g->in.rope[kind].half},
                  row[sine], 1);
    }
    array_end(s->be, a, true);
    return 0;
}

/* Row i of a mask [1, 1, t, context] at positions [from, to) becomes v. */
static void set(struct backend_array *a, uint32_t i, uint32_t from, uint32_t to,
                float v)
{
    if (from < to) {
        const int64_t at[4] = {0, 0, i, from};
        array_set(a, (struct array_line){at, 3, to - from}, v);
    }
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t most(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Row i shows [lo, hi) from now on. */
static void mask_row(struct backend_array *a, struct sight *m, uint32_t i,
                     uint32_t lo, uint32_t hi)
{
    if (m->lo[i] > m->hi[i]) {
        set(a, i, 0, (uint32_t)a->dims[3], MASK_OFF);
        m->lo[i] = m->hi[i] = lo;
    }
    uint32_t lo0 = m->lo[i];
    uint32_t hi0 = m->hi[i];
    set(a, i, lo0, least(hi0, lo), MASK_OFF);
    set(a, i, most(lo0, hi), hi0, MASK_OFF);
    set(a, i, lo, least(hi, lo0), 0);
    set(a, i, most(lo, hi0), hi, 0);
    m->lo[i] = lo;
    m->hi[i] = hi;
}

static int place_mask(struct side *s, struct engine *g, size_t kind,
                      struct chunk c, struct err *e)
{
    struct backend_array *a = s->of[kinds[kind].mask];
    if (a == NULL) {
        return 0;
    }
    RETERR(array_begin(s->be, a, true, e));
    for (uint32_t i = 0; i < c.t; i++) {
        uint32_t lo = 0;
        uint32_t hi = 0;
        inputs_sight(&g->in, kind, position(&c, i), &lo, &hi);
        mask_row(a, &s->seen[kind], i, lo, hi);
    }
    array_end(s->be, a, true);
    return 0;
}

/* Column i of the write mask [1, 1, context, t] stores at pos, or no more. */
static void write_one(struct backend_array *a, uint32_t pos, uint32_t i,
                      float v)
{
    const int64_t at[4] = {0, 0, pos, i};
    array_set(a, (struct array_line){at, 2, 1}, v);
}

static int place_write(struct side *s, struct chunk c, struct err *e)
{
    struct backend_array *a = s->of[ROLE_WRITE];
    if (a == NULL) {
        return 0;
    }
    RETERR(array_begin(s->be, a, true, e));
    for (uint32_t i = 0; i < s->written.n; i++) {
        write_one(a, s->written.pos + i, i, 0);
    }
    for (uint32_t i = 0; i < c.n; i++) {
        write_one(a, c.pos + i, i, 1);
    }
    s->written = c;
    array_end(s->be, a, true);
    return 0;
}

/* A row by token in each column of a [1, n, t, 1]; a padding column repeats the
 * last real one. */
static int place_rows(struct side *s, struct engine *g, enum role role,
                      struct chunk c, const int32_t *tokens, struct err *e)
{
    struct backend_array *a = s->of[role];
    if (a == NULL) {
        return 0;
    }
    RETERR(array_begin(s->be, a, true, e));
    for (uint32_t i = 0; i < c.t; i++) {
        const int64_t at[4] = {0, 0, i, 0};
        if (i < c.n && role == ROLE_PLE) {
            tables_ple(&g->tables, tokens[i], g->in.row);
        } else if (i < c.n) {
            tables_embed(&g->tables, tokens[i], g->in.row);
        }
        array_put(a, (struct array_line){at, 1, (size_t)a->dims[1]}, g->in.row,
                  1);
    }
    array_end(s->be, a, true);
    return 0;
}

int sheet_place(struct sheet *s, struct engine *g, struct chunk c,
                const int32_t *tokens, struct err *e)
{
    must(c.n > 0 && c.n <= c.t && c.t == s->t &&
         c.pos + c.n <= g->in.context);
    for (size_t i = 0; i < countof(s->sides) && s->sides[i].be != NULL; i++) {
        struct side *side = &s->sides[i];
        for (size_t k = 0; k < 2; k++) {
            RETERR(place_rope(side, g, k, false, c, e));
            RETERR(place_rope(side, g, k, true, c, e));
            RETERR(place_mask(side, g, k, c, e));
        }
        RETERR(place_rows(side, g, ROLE_EMBED, c, tokens, e));
        RETERR(place_rows(side, g, ROLE_PLE, c, tokens, e));
        /* until there are sums of experts, and for a probe, which has none */
        RETERR(place_rows(side, g, ROLE_EXPERTS, c, tokens, e));
        RETERR(place_write(side, c, e));
    }
    return 0;
}
