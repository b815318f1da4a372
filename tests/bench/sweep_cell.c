/* sweep_cell.c - evaluate lines in one way, and compare.
 *
 *   first leg, on the parent or the sequence itself: the line's tokens up to
 *   the cut, then (FORK_LONGER, TRUNCATED) others
 *        |  fork or truncate at the cut
 *   second leg: the line's tokens from there on, while a parent is cut back
 *   at random and writes other tokens into what it shares
 *
 * In each round the lines that take part (all, or some at random, in random
 * order) put their rows into one evaluation. engine.h gives the logits of one
 * sequence's rows only, so rounds go to rows_run, which engine_eval and
 * engine_step_rows go to as well; a line alone takes engine_eval_rows.
 */
#include <string.h>

#include "base/num.h"
#include "sweep.h"

#define DETOUR_MAX 96u
#define RANDOM_MAX 40u /* tokens of a random chunk */
#define DRAFTS_MAX 8u

struct run;

struct walker {
    struct run *run;
    const struct line *l;
    unsigned line;
    struct engine_seq *s, *parent;
    int32_t *leg; /* tokens of the first leg; STEPS: those drawn */
    uint32_t leg_n, cut;
    bool second;
    uint32_t base, good; /* of the round: first position; rows to compare */
    uint32_t drawn;      /* STEPS: tokens so far */
    struct msg_row row;
    struct msg_row_done done;
    struct err err;
};

struct run {
    struct engine *g;
    const struct cell *c;
    uint64_t random;
    unsigned n;
    struct walker w[SWEEP_LINES];
    struct tally *tally;
    struct difference *first;
};

/* --- small things --- */

uint64_t draw_bits(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint32_t draw(uint64_t *state, uint32_t n)
{
    return (uint32_t)((draw_bits(state) >> 32) * n >> 32);
}

uint64_t bits_hash(const float *p, size_t n)
{
    uint64_t h[4] = {1, 2, 3, 4};
    uint64_t w[4] = {0};
    for (size_t i = 0; i < n; i += 8) {
        size_t left = num_min(n - i, 8);
        if (left < 8) {
            memset(w, 0, sizeof(w));
        }
        memcpy(w, p + i, left * sizeof(*p));
        for (size_t k = 0; k < 4; k++) {
            h[k] = (h[k] ^ w[k]) * 0x9e3779b97f4a7c15u;
            h[k] ^= h[k] >> 29;
        }
    }
    uint64_t all = n;
    for (size_t k = 0; k < 4; k++) {
        all = (all ^ h[k]) * 0x9e3779b97f4a7c15u;
        all ^= all >> 32;
    }
    return all;
}

bool token_same(const struct msg_token *a, const struct msg_token *b)
{
    bool same = a->id == b->id && a->n_top == b->n_top &&
                memcmp(&a->logprob, &b->logprob, sizeof(a->logprob)) == 0;
    for (uint32_t i = 0; same && i < a->n_top; i++) {
        same = a->top[i].id == b->top[i].id &&
               memcmp(&a->top[i].logprob, &b->top[i].logprob,
                      sizeof(a->top[i].logprob)) == 0;
    }
    return same;
}

void line_sampling(const struct line *l, struct msg_sampling *ret)
{
    msg_sampling_init(ret);
    ret->temperature = 0.7F;
    ret->top_p = 0.95F;
    ret->repeat_penalty = 1.1F;
    ret->repeat_last_n = 16;
    ret->logprobs = 5;
    ret->seed = l->seed;
}

static uint32_t vocab_of(const struct run *r)
{
    return engine_bundle(r->g)->vocab;
}

static int32_t other_token(struct run *r, int32_t token)
{
    uint32_t vocab = vocab_of(r);
    uint32_t far = 1 + draw(&r->random, vocab - 1);
    return (int32_t)(((uint32_t)token + far) % vocab);
}

/* --- comparing --- */

static void differs(struct walker *w, uint32_t position, const float *logits,
                    const struct msg_token *drawn)
{
    struct run *r = w->run;
    struct difference *d = r->first;
    r->tally->different++;
    if (d->any) {
        return;
    }
    *d = (struct difference){
        .any = true, .cell = *r->c, .line = w->line, .position = position};
    if (logits != NULL) {
        size_t bytes = vocab_of(r) * sizeof(*logits);
        d->logits = malloc(bytes);
        must(d->logits != NULL);
        memcpy(d->logits, logits, bytes);
    } else {
        d->drawn = *drawn;
    }
}

static int on_rows(void *ctx, uint32_t first, uint32_t n, float *logits,
                   struct err *e)
{
    struct walker *w = ctx;
    size_t vocab = vocab_of(w->run);
    (void)e;
    for (uint32_t i = first; i < first + n && i < w->good; i++) {
        const float *row = logits + (i - first) * vocab;
        w->run->tally->positions++;
        if (bits_hash(row, vocab) != w->l->hash[w->base + i]) {
            differs(w, w->base + i, row, NULL);
        }
    }
    return 0;
}

/* --- legs --- */

static uint32_t some_cut(struct run *r, uint32_t n)
{
    uint32_t cut = 1 + draw(&r->random, n - 1);
    uint32_t edge = (cut + 32) / 64 * 64 + draw(&r->random, 3) - 1;
    bool at_edge = draw(&r->random, 2) == 0 && edge >= 1 && edge < n;
    return at_edge ? edge : cut;
}

static int walker_open(struct run *r, struct walker *w, struct err *e)
{
    const struct line *l = w->l;
    unsigned history = r->c->level[BY_HISTORY];
    w->run = r;
    int rc = engine_seq_open(r->g, &w->s, e);
    rc = rc < 0 ? rc : engine_seq_expect(w->s, l->n, e);
    w->second = history == FRESH || history == DRAFTS || history == STEPS;
    if (history == STEPS) {
        w->leg = calloc(l->n_drawn, sizeof(*w->leg));
        must(w->leg != NULL);
    }
    if (rc < 0 || w->second) {
        return rc;
    }
    w->cut = some_cut(r, l->n);
    uint32_t detour = 1 + draw(&r->random, DETOUR_MAX);
    detour = (uint32_t)num_min(detour, seq_room(w->s) - w->cut);
    detour = history == FORK_SHORTER ? 0 : detour;
    w->leg_n = w->cut + detour;
    w->leg = calloc(w->leg_n, sizeof(*w->leg));
    must(w->leg != NULL);
    memcpy(w->leg, l->tokens, w->cut * sizeof(*w->leg));
    for (uint32_t i = w->cut; i < w->leg_n; i++) {
        w->leg[i] = other_token(r, i < l->n ? l->tokens[i] : 0);
    }
    return 0;
}

static void walker_close(struct walker *w)
{
    engine_seq_close(w->s);
    engine_seq_close(w->parent);
    free(w->leg);
}

/* From the first leg to the second. */
static int turn(struct walker *w, struct err *e)
{
    w->cut = engine_seq_cut_at(w->s, w->cut);
    if (w->run->c->level[BY_HISTORY] == TRUNCATED) {
        w->second = true;
        return engine_seq_truncate(w->s, w->cut, e);
    }
    w->parent = w->s;
    w->s = NULL;
    w->second = true;
    return engine_seq_fork(w->parent, w->cut, &w->s, e);
}

static bool finished(const struct walker *w)
{
    uint32_t at = w->s->n;
    return w->run->c->level[BY_HISTORY] == STEPS ? w->drawn == w->l->n_drawn
                                                 : w->second && at == w->l->n;
}

/* --- rounds of evaluation --- */

/* One evaluation; keep: tokens that are the sequence's afterwards. */
struct round {
    size_t n;
    struct eval v[2 * SWEEP_LINES];
    uint32_t keep[2 * SWEEP_LINES];
};

static uint32_t chunk_of(struct run *r, uint32_t left)
{
    uint32_t k = r->c->chunk;
    k = k == 0 ? 1 + draw(&r->random, RANDOM_MAX) : k;
    return (uint32_t)num_min(k, left);
}

static void add(struct round *o, struct walker *w, struct engine_seq *s,
                uint32_t n, uint32_t want, uint32_t keep)
{
    o->v[o->n] = (struct eval){
        .s = s, .n = n, .want = want, .fn = on_rows, .ctx = w, .e = &w->err};
    o->keep[o->n++] = keep;
}

/* The next rows of w. */
static void add_line(struct run *r, struct round *o, struct walker *w)
{
    struct engine_seq *s = w->s;
    const int32_t *from = w->second ? w->l->tokens : w->leg;
    uint32_t end = w->second ? w->l->n : w->leg_n;
    uint32_t right = w->second ? end : w->cut;
    uint32_t k = chunk_of(r, end - s->n);
    uint32_t drafts = 0;
    memcpy(s->tokens + s->n, from + s->n, k * sizeof(*from));
    if (r->c->level[BY_HISTORY] == DRAFTS) {
        uint32_t room = seq_room(s) - k;
        drafts = (uint32_t)num_min(1 + draw(&r->random, DRAFTS_MAX), room);
    }
    for (uint32_t i = s->n + k; i < s->n + k + drafts; i++) {
        s->tokens[i] = other_token(r, i < end ? from[i] : 0);
    }
    w->base = s->n;
    w->good = s->n < right ? (uint32_t)num_min(k, right - s->n) : 0;
    uint32_t n = k + drafts;
    add(o, w, s, n, draw(&r->random, 4) > 0 ? n : draw(&r->random, n + 1), k);
}

/* A parent's own rows, after a new cut; nothing of them is compared. */
static void add_parent(struct run *r, struct round *o, struct walker *w)
{
    struct engine_seq *s = w->parent;
    struct err e;
    uint32_t at = draw(&r->random, 2) == 0 ? w->cut : draw(&r->random, w->cut);
    at = engine_seq_cut_at(s, (uint32_t)num_min(at, s->n));
    must(engine_seq_truncate(s, at, &e) == 0);
    uint32_t room = seq_room(s);
    uint32_t k = (uint32_t)num_min(1 + draw(&r->random, 20), room);
    for (uint32_t i = at; i < at + k; i++) {
        s->tokens[i] = other_token(r, s->tokens[i]);
    }
    add(o, w, s, k, 0, k);
}

/* It writes, is closed, or does nothing. */
static void parent_turn(struct run *r, struct round *o, struct walker *w)
{
    uint32_t what = draw(&r->random, 16);
    if (what < 8) {
        add_parent(r, o, w);
    } else if (what == 8) {
        engine_seq_close(w->parent);
        w->parent = NULL;
    }
}

static void shuffle(struct run *r, struct round *o)
{
    for (size_t i = o->n; i > 1; i--) {
        size_t k = draw(&r->random, (uint32_t)i);
        struct eval v = o->v[i - 1];
        uint32_t keep = o->keep[i - 1];
        o->v[i - 1] = o->v[k];
        o->keep[i - 1] = o->keep[k];
        o->v[k] = v;
        o->keep[k] = keep;
    }
}

static int run_round(struct run *r, struct round *o, struct err *e)
{
    struct engine_times times = {0};
    rows_run(r->g, o->v, o->n, 0, &times);
    for (size_t i = 0; i < o->n; i++) {
        if (o->v[i].rc < 0) {
            *e = *o->v[i].e;
            return o->v[i].rc;
        }
        o->v[i].s->n += o->keep[i];
    }
    return 0;
}

/* Of all who are not finished some; one of them at least. */
static bool takes_part(struct run *r, size_t done_so_far, unsigned left)
{
    return draw(&r->random, 4) > 0 || (done_so_far == 0 && left == 1);
}

static int evaluate_round(struct run *r, struct err *e)
{
    struct round o = {0};
    unsigned left = 0;
    for (unsigned i = 0; i < r->n; i++) {
        left += !finished(&r->w[i]);
    }
    for (unsigned i = 0; i < r->n; i++) {
        struct walker *w = &r->w[i];
        if (finished(w)) {
            continue;
        }
        if (!w->second && w->s->n == w->leg_n) {
            int rc = turn(w, e);
            if (rc < 0) {
                return rc;
            }
        }
        if (takes_part(r, o.n, left--)) {
            add_line(r, &o, w);
        }
        if (w->parent != NULL) {
            parent_turn(r, &o, w);
        }
    }
    shuffle(r, &o);
    return run_round(r, &o, e);
}

/* A line alone, through the front door. */
static int evaluate_alone(struct run *r, struct err *e)
{
    struct walker *w = &r->w[0];
    while (!finished(w)) {
        struct engine_seq *s = w->s;
        if (!w->second && s->n == w->leg_n) {
            int rc = turn(w, e);
            struct round o = {0};
            if (rc == 0 && w->parent != NULL) {
                add_parent(r, &o, w);
                rc = run_round(r, &o, e);
            }
            if (rc < 0) {
                return rc;
            }
            continue;
        }
        const int32_t *from = w->second ? w->l->tokens : w->leg;
        uint32_t k = (w->second ? w->l->n : w->leg_n) - s->n;
        k = r->c->chunk == 0 ? chunk_of(r, k) : k;
        w->base = s->n;
        w->good = w->second ? k : (uint32_t)num_max(w->cut, s->n) - s->n;
        int rc = engine_eval_rows(s, from + s->n, k, r->c->chunk, on_rows, w,
                                  NULL, e);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* --- steps --- */

/* Drafts after the next token: the drawn ones, until one is changed. */
static void add_drafts(struct run *r, struct walker *w)
{
    const struct line *l = w->l;
    uint32_t left = l->n_drawn - w->drawn; /* to draw, this one included */
    uint32_t n = r->c->chunk == 0 ? 1 + draw(&r->random, ENGINE_DRAFTS_MAX)
                                  : (uint32_t)num_min(r->c->chunk - 1, 15);
    n = (uint32_t)num_min(n, left - 1);
    for (uint32_t i = 0; i < n; i++) {
        int32_t id = l->drawn[w->drawn + i].id;
        bool wrong = draw(&r->random, 6) == 0;
        w->row.drafts[i] = wrong ? other_token(r, id) : id;
    }
    w->row.n_drafts = n;
}

static void step_line(struct run *r, struct walker *w, struct engine_row *row)
{
    const struct line *l = w->l;
    uint32_t at = w->s->n;
    uint32_t k = at < l->prompt ? chunk_of(r, l->prompt - at) : 1;
    w->row = (struct msg_row){.seq = w->line,
                              .position = at,
                              .n_tokens = k,
                              .tokens = l->tokens + at,
                              .sample = at + k >= l->prompt,
                              .out_index = w->drawn,
                              .n_prompt = l->prompt};
    line_sampling(l, &w->row.sampling);
    if (at >= l->prompt) {
        w->row.tokens = &w->leg[w->drawn - 1];
    }
    if (w->row.sample) {
        add_drafts(r, w);
    }
    *row = (struct engine_row){.seq = w->s, .row = &w->row, .done = &w->done};
}

static void compare_drawn(struct walker *w)
{
    for (uint32_t i = 0; i < w->done.n_tokens; i++, w->drawn++) {
        const struct msg_token *want = &w->l->drawn[w->drawn];
        w->run->tally->positions++;
        if (!token_same(&w->done.tokens[i], want)) {
            differs(w, w->l->prompt + w->drawn, NULL, &w->done.tokens[i]);
        }
        w->leg[w->drawn] = want->id; /* go on as the line does */
    }
}

static int steps_round(struct run *r, struct err *e)
{
    struct engine_row rows[SWEEP_LINES];
    struct walker *who[SWEEP_LINES];
    unsigned left = 0;
    size_t n = 0;
    for (unsigned i = 0; i < r->n; i++) {
        left += !finished(&r->w[i]);
    }
    for (unsigned i = 0; i < r->n; i++) {
        if (!finished(&r->w[i]) && takes_part(r, n, left--)) {
            who[n] = &r->w[i];
            step_line(r, &r->w[i], &rows[n++]);
        }
    }
    engine_step_rows(r->g, rows, n, NULL);
    for (size_t i = 0; i < n; i++) {
        if (rows[i].rc < 0) {
            *e = rows[i].err;
            return rows[i].rc;
        }
        compare_drawn(who[i]);
    }
    return 0;
}

/* --- a cell --- */

/* The longest line or not, and others at random. */
static void choose(struct run *r, const struct line *lines, unsigned n_lines)
{
    unsigned order[SWEEP_LINES];
    unsigned others = n_lines - 1;
    r->n = r->c->level[BY_COMPANY] + 1;
    for (unsigned i = 0; i < others; i++) {
        order[i] = i + 1;
    }
    for (unsigned i = others; i > 1; i--) {
        unsigned k = draw(&r->random, i);
        unsigned at = order[i - 1];
        order[i - 1] = order[k];
        order[k] = at;
    }
    bool longest = r->c->level[BY_LENGTH] == 1 || r->n > others;
    for (unsigned i = 0; i < r->n; i++) {
        unsigned line = longest && i == 0 ? 0 : order[i - longest];
        r->w[i] = (struct walker){.l = &lines[line], .line = line};
    }
}

int cell_run(struct engine *g, const struct cell *c, const struct line *lines,
             unsigned n_lines, struct tally *tally, struct difference *first,
             struct err *e)
{
    struct run r = {
        .g = g, .c = c, .random = c->seed, .tally = tally, .first = first};
    unsigned history = c->level[BY_HISTORY];
    int rc = 0;
    must(n_lines <= SWEEP_LINES && c->level[BY_COMPANY] < n_lines);
    choose(&r, lines, n_lines);
    for (unsigned i = 0; rc == 0 && i < r.n; i++) {
        rc = walker_open(&r, &r.w[i], e);
    }
    if (rc == 0 && r.n == 1 && history < DRAFTS) {
        rc = evaluate_alone(&r, e);
        goto out;
    }
    for (bool more = true; rc == 0 && more;) {
        rc = history == STEPS ? steps_round(&r, e) : evaluate_round(&r, e);
        more = false;
        for (unsigned i = 0; i < r.n; i++) {
            more = more || !finished(&r.w[i]);
        }
    }
out:
    for (unsigned i = 0; i < r.n; i++) {
        walker_close(&r.w[i]);
    }
    return rc;
}
