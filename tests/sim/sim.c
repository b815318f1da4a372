/* sim.c - see sim.h. One stream of random numbers decides everything, so a seed
 * gives the same run every time. A broken rule ends the run by longjmp. It is
 * one file because engine, clients and checks are parts of one world, whose
 * state each of them sees. */
#include "sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include "base/num.h"
#include "sched/admit.h"

#define CTX     160u
#define CLIENTS 40u
#define SEQS    12u
#define ROUNDS  600

/* A timeline: the engine has one a sequence, and each client its own. */
struct line {
    uint32_t n;
    int32_t t[CTX + 1];
    uint64_t h[CTX + 2]; /* h[i] is a hash of the first i tokens */
};

struct client {
    struct sched_stream x;
    struct admit_req seat;
    bool live, stalled, begun;
    struct line line;
    int32_t guess[64];
    uint32_t want, got;
    uint32_t scored;    /* rows of its prompt, from the first one on */
    uint32_t pooled;    /* the same, in one sequence without a gap: */
    uint32_t pooled_in; /* its number */
    uint64_t back_us;   /* when it reads again */
    uint64_t place_us;  /* since when it runs */
    uint64_t waited_us; /* since it last ran, as far as it could have started */
    uint32_t ahead;     /* streams before it when it began to wait */
    uint64_t row_us;    /* its last row, and calls without one since */
    uint32_t calls;
    uint64_t start; /* x.start when it was looked at last */
    enum sched_phase was;
};

enum mode { ANYTHING, CROWD, PEERS, MODES };

struct sim {
    uint64_t rnd, now;
    uint64_t marked, passed; /* the round before began then, and took */
    struct sched s;
    struct admit admit;
    bool admits;             /* clients take a seat first (admit.h) */
    struct client *expected; /* the one that has to make way */
    struct client c[CLIENTS];
    struct {
        bool open, long_list;
        uint32_t n_marks, marks[ENGINE_MARKS_MAX];
        struct line line;
        uint32_t top; /* positions ever written, drafts too */
    } e[SEQS];
    enum mode mode;
    double base, row, prompt; /* what steps cost, us */
    double noise;
    bool spikes, crashes, failures, leavers;
    uint64_t age, longest_step, longest_place;
    double served[2];
    bool counting; /* for the fairness of peers */
    unsigned steps, decoded;
    unsigned alone[ENGINE_SEQS_MAX + 1]; /* of `decoded`, by rows */
    FILE *trace;
    struct sim_result *ret;
    jmp_buf out;
};

static struct sim m; /* one at a time; too large for a stack */

static uint32_t rnd(uint32_t n)
{
    m.rnd = m.rnd * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(m.rnd >> 33) % n;
}

static bool one_in(uint32_t n)
{
    return rnd(n) == 0;
}

static void note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void note(const char *fmt, ...)
{
    va_list ap;
    if (m.trace == NULL) {
        return;
    }
    (void)fprintf(m.trace, "%9llu ", (unsigned long long)m.now);
    va_start(ap, fmt);
    (void)vfprintf(m.trace, fmt, ap);
    va_end(ap);
    (void)fputc('\n', m.trace);
}

__attribute__((format(printf, 2, 3), noreturn)) static void
broken(const char *name, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(m.ret->why, sizeof(m.ret->why), fmt, ap);
    va_end(ap);
    m.ret->broken = name;
    note("BROKEN %s: %s", name, m.ret->why);
    longjmp(m.out, 1);
}

static unsigned number(const struct client *c)
{
    return (unsigned)(c - m.c);
}

static struct client *client_of(struct sched_stream *x)
{
    return container_of(x, struct client, x);
}

/* --- timelines --- */

static void put(struct line *l, int32_t t)
{
    must(l->n <= CTX);
    l->t[l->n] = t;
    l->h[l->n + 1] = (l->h[l->n] ^ ((uint32_t)t + 1u)) * 1099511628211u + l->n;
    l->n++;
}

/* What comes after the first n tokens. Half of the texts repeat themselves. */
static int32_t next_token(const struct line *l, uint32_t n)
{
    uint64_t h = (l->h[n] ^ (l->h[n] >> 31)) * 0x9e3779b97f4a7c15u >> 33;
    return l->t[0] % 2 == 1 && h % 16 != 0 ? (int32_t)(n % 5)
                                           : (int32_t)(h % 40);
}

/* --- the engine --- */

static void check_room(void)
{
    const struct sched_conf *c = &m.s.conf;
    uint64_t n = 0;
    for (uint32_t i = 0; i < c->seqs && c->positions > 0; i++) {
        if (m.e[i].open) {
            n += c->overhead +
                 (m.e[i].top + c->block - 1) / c->block * c->block;
        }
    }
    if (n > c->positions || (n > 0 && n > sched_positions(&m.s))) {
        broken("room", "%llu positions of %llu, counted %llu",
               (unsigned long long)n, (unsigned long long)c->positions,
               (unsigned long long)sched_positions(&m.s));
    }
}

/* Rule 15: the engine can go on at position n of the sequence. */
static bool can_cut(uint32_t seq, uint32_t n)
{
    uint32_t every = m.s.conf.cut_at;
    bool can = every == 0 || n == m.e[seq].line.n || n % every == 0;
    for (uint32_t i = 0; i < m.e[seq].n_marks; i++) {
        can = can || m.e[seq].marks[i] == n;
    }
    return can;
}

static void cut_marks(uint32_t seq, uint32_t n)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < m.e[seq].n_marks; i++) {
        if (m.e[seq].marks[i] <= n) {
            m.e[seq].marks[left++] = m.e[seq].marks[i];
        }
    }
    m.e[seq].n_marks = left;
}

static void engine_ops(const struct sched_plan *p)
{
    for (size_t i = 0; i < p->n_ops; i++) {
        const struct sched_op *o = &p->ops[i];
        note("op %d seq %u from %u n %u", (int)o->kind, o->seq, o->from, o->n);
        if (o->seq >= m.s.conf.seqs) {
            broken("engine", "op on sequence %u", o->seq);
        }
        bool open = m.e[o->seq].open;
        struct line *l = &m.e[o->seq].line;
        bool bad =
            open == (o->kind == SCHED_OP_OPEN || o->kind == SCHED_OP_FORK);
        if (o->kind == SCHED_OP_FORK) {
            bad = bad || o->from >= m.s.conf.seqs || !m.e[o->from].open ||
                  o->n > m.e[o->from].line.n || !can_cut(o->from, o->n);
        } else if (o->kind == SCHED_OP_TRUNCATE) {
            bad = bad || o->n > l->n || !can_cut(o->seq, o->n);
        }
        if (bad) {
            broken("engine", "op %d on sequence %u, n %u", (int)o->kind, o->seq,
                   o->n);
        }
        m.e[o->seq].open = o->kind != SCHED_OP_CLOSE;
        if (o->kind == SCHED_OP_FORK) {
            *l = m.e[o->from].line;
            memcpy(m.e[o->seq].marks, m.e[o->from].marks,
                   sizeof(m.e[o->seq].marks));
            m.e[o->seq].n_marks = m.e[o->from].n_marks;
            m.e[o->seq].long_list = m.e[o->from].long_list;
        } else if (o->kind == SCHED_OP_OPEN) {
            m.e[o->seq].long_list = o->n > m.s.conf.short_max;
        }
        l->n = o->kind == SCHED_OP_OPEN ? 0 : o->n;
        cut_marks(o->seq, o->kind == SCHED_OP_OPEN ? 0 : l->n);
        m.e[o->seq].top = l->n;
    }
    check_room();
}

static double cost(uint32_t sampled, uint32_t prompt)
{
    return m.base + m.row * sampled + m.prompt * prompt;
}

/* The row's tokens into the engine; returns how many drafts were right. */
static uint32_t engine_row(const struct sched_row *r)
{
    struct line *l = &m.e[r->seq].line;
    uint32_t ok = 0;
    if (!m.e[r->seq].open || r->position != l->n || r->n == 0 ||
        r->n + r->n_drafts > m.s.conf.rows_seq ||
        l->n + r->n + r->n_drafts > m.s.conf.context ||
        (r->n_drafts > 0 && !r->sample)) {
        broken("engine",
               "row of sequence %u at %u, it has %u: %u tokens, %u drafts",
               r->seq, r->position, l->n, r->n, r->n_drafts);
    }
    bool long_list = m.e[r->seq].long_list;
    uint32_t last = l->n + r->n + r->n_drafts;
    if (long_list ? r->sample && l->n + r->n <= m.s.conf.short_max
                  : last > m.s.conf.short_max) {
        broken("list",
               "%u tokens of sequence %u by the %s list, which ends at %u",
               last, r->seq, long_list ? "long" : "short", m.s.conf.short_max);
    }
    m.e[r->seq].top = (uint32_t)num_max(m.e[r->seq].top, last);
    check_room();
    for (uint32_t i = 0; i < r->n; i++) {
        put(l, r->tokens[i]);
    }
    if (r->keep) {
        uint32_t n = m.e[r->seq].n_marks;
        memmove(m.e[r->seq].marks + 1, m.e[r->seq].marks,
                (ENGINE_MARKS_MAX - 1) * sizeof(uint32_t));
        m.e[r->seq].marks[0] = l->n - 1;
        m.e[r->seq].n_marks = n < ENGINE_MARKS_MAX ? n + 1 : n;
    }
    while (ok < r->n_drafts && next_token(l, l->n) == r->drafts[ok]) {
        put(l, r->drafts[ok++]);
    }
    return ok;
}

/* --- clients --- */

static void leave(struct client *c, const char *why)
{
    note("client %u leaves: %s, %u of %u tokens", number(c), why, c->got,
         c->want);
    sched_remove(&m.s, &c->x, m.now);
    m.ret->again += c->x.n_again;
    if (m.admits) {
        admit_leave(&m.admit, &c->seat);
    }
    c->live = false;
}

static uint32_t before(const struct client *c)
{
    uint32_t n = 0;
    for (unsigned i = 0; i < CLIENTS; i++) {
        n += m.c[i].live && m.c[i].x.phase == SCHED_WAITING &&
             m.c[i].x.number < c->x.number;
    }
    return n;
}

static void fill(struct client *c)
{
    bool crowd = m.mode == CROWD;
    uint32_t family = rnd(4);
    uint32_t n =
        crowd || m.mode == PEERS ? 4 + rnd(8) : 1 + rnd(m.s.conf.context);
    c->line = (struct line){0};
    for (uint32_t i = 0; i < n; i++) { /* few families: prefixes are shared */
        put(&c->line, (int32_t)(i < 30 ? family + i : rnd(3)));
    }
    c->want = crowd ? 1 + rnd(8) : 1 + rnd(30);
    c->scored = 0;
    c->x = (struct sched_stream){.prompt = c->line.t,
                                 .n_prompt = n,
                                 .reuse = !one_in(5),
                                 .cls = (enum sched_class)rnd(SCHED_CLASSES),
                                 .peer = rnd(4),
                                 .share = rnd(3),
                                 .max_new = one_in(3) ? 0 : c->want};
    if (crowd) { /* all are in a hurry but two */
        c->x.cls = number(c) < 2 ? SCHED_CLASS_BATCH : SCHED_CLASS_INTERACTIVE;
    } else if (m.mode == PEERS) { /* alike, but one has three times as many */
        c->x.cls = SCHED_CLASS_CHAT;
        c->x.peer = number(c) % 4 == 0 ? 0 : 1;
        c->want = 12;
    } else {
        c->x.score = one_in(6);
        c->x.pool = !c->x.score && one_in(6);
        c->x.compute_only = c->x.pool;
        c->x.deadline_us =
            one_in(12) ? m.now + (uint64_t)m.base * (1 + rnd(100)) : 0;
        uint32_t k = rnd(CLIENTS);
        struct client *l = &m.c[k];
        if (one_in(6) && l->live && l->got == 0 && !l->x.pool &&
            l != c) { /* another choice */
            c->line = l->line;
            c->x.n_prompt = l->line.n;
            c->x.after = &l->x;
        }
    }
    if (one_in(4)) { /* what it expects is nearly right, or not at all */
        struct line guess = c->line;
        for (uint32_t i = 0; i < countof(c->guess) && guess.n < CTX; i++) {
            c->guess[i] = one_in(9) ? 7 : next_token(&guess, guess.n);
            put(&guess, c->guess[i]);
            c->x.n_prediction = i + 1;
        }
        c->x.prediction = c->guess;
    }
}

static void make_way(struct admit_req *seat)
{
    struct client *c = container_of(seat, struct client, seat);
    if (c != m.expected || c->begun || c->got > 0) {
        broken("way", "client %u goes, %s, not %d", number(c),
               c->begun ? "which had a place" : "which waited",
               m.expected != NULL ? (int)number(m.expected) : -1);
    }
    m.expected = NULL;
    m.ret->displaced++;
    leave(c, "displaced");
}

/* The client that has to make way for c in a full queue; NULL: none. */
static struct client *weakest(const struct client *c)
{
    struct client *last = NULL;
    for (unsigned i = 0; i < CLIENTS; i++) {
        struct client *o = &m.c[i];
        if (o->live && !o->begun && o->x.cls > c->x.cls &&
            (last == NULL || o->x.cls > last->x.cls ||
             (o->x.cls == last->x.cls && o->x.number > last->x.number))) {
            last = o;
        }
    }
    return last;
}

/* A seat for c, in a queue that is full or not. */
static int admit(struct client *c, bool full)
{
    m.expected = full ? weakest(c) : NULL;
    bool refused = full && m.expected == NULL;
    c->seat = (struct admit_req){.cls = c->x.cls, .n = 1, .make_way = make_way};
    c->x.request = &c->seat;
    int rc = admit_add(&m.admit, &c->seat);
    if (rc != (refused ? ERR_BUSY : 0)) {
        broken("way", "client %u of class %d comes to a queue %s: %d",
               number(c), (int)c->x.cls, full ? "that is full" : "with room",
               rc);
    }
    if (rc == 0) {
        admit_settle(&m.admit);
    }
    if (m.expected != NULL) {
        broken("way", "client %u does not go for client %u", number(m.expected),
               number(c));
    }
    return rc;
}

static void arrive(struct client *c)
{
    fill(c);
    c->got = 0;
    c->stalled = false;
    c->begun = false;
    c->waited_us = 0;
    c->calls = 0;
    c->row_us = m.now;
    c->was = SCHED_WAITING;
    uint32_t n = m.s.n_waiting + m.s.n_running;
    uint32_t live = 0;
    for (unsigned i = 0; i < CLIENTS; i++) {
        live += m.c[i].live;
    }
    bool full = live >= m.s.conf.queue + m.s.conf.running;
    int rc = m.admits ? admit(c, full) : 0;
    if (m.admits && rc == 0 && full) { /* another was refused */
        live--;
        n--;
        full = false;
    }
    if (c->x.after != NULL && !client_of(c->x.after)->live) {
        c->x.after = NULL; /* that one did; no choice of one request can */
    }
    if (rc == 0) {
        rc = sched_add(&m.s, &c->x, m.now);
    }
    if (n != live || rc != (full ? ERR_BUSY : 0)) {
        broken("queue", "%u taken, %u counted, of %u + %u: add says %d", live,
               n, m.s.conf.queue, m.s.conf.running, rc);
    }
    c->live = rc == 0;
    c->ahead = c->live ? before(c) : 0;
    note("client %u comes: class %d peer %u prompt %u want %u: %d", number(c),
         (int)c->x.cls, (unsigned)c->x.peer, c->x.n_prompt, c->want, rc);
    m.ret->refused += rc != 0;
}

static void receive(struct client *c, int32_t token)
{
    int32_t right = next_token(&c->line, c->line.n);
    if (token != right) {
        broken("token", "client %u gets %d for its token %u, not %d", number(c),
               token, c->got, right);
    }
    put(&c->line, token);
    c->got++;
    m.ret->tokens++;
    if (c->got >= c->want || sched_push(&m.s, &c->x, token) == ERR_CONTEXT) {
        if (c->got < c->want && c->line.n != m.s.conf.context + 1) {
            broken("token", "client %u ends at %u tokens of a context of %u",
                   number(c), c->line.n, m.s.conf.context);
        }
        m.ret->finished++;
        leave(c, "done");
        return;
    }
    if (m.leavers && one_in(60)) {
        c->stalled = true;
        c->back_us = m.now + (uint64_t)m.base * rnd(one_in(4) ? 2000 : 40);
        note("client %u stalls", number(c));
        sched_pause(&c->x, true, m.now);
    }
}

static void clients_act(bool coming)
{
    for (unsigned i = 0; i < CLIENTS; i++) {
        struct client *c = &m.c[i];
        if (!c->live && coming && (m.mode != ANYTHING || one_in(12))) {
            arrive(c);
        }
        if (c->live && c->stalled && (m.now >= c->back_us || !coming)) {
            c->stalled = false;
            note("client %u reads again", i);
            sched_pause(&c->x, false, m.now);
        }
        if (c->live && m.leavers && one_in(c->stalled ? 40 : 300)) {
            m.ret->cancelled++;
            leave(c, "gone");
        }
    }
    for (struct sched_stream *x; (x = sched_expired(&m.s, m.now)) != NULL;) {
        m.ret->late++;
        leave(client_of(x), "late");
    }
}

/* --- what must hold --- */

static bool can_start(const struct client *c)
{
    return c->live && c->x.phase == SCHED_WAITING && !c->stalled &&
           (c->x.after == NULL || c->x.after->primed);
}

static bool is_aged(const struct client *c)
{
    return can_start(c) &&
           c->x.waited_us + (m.now - c->x.queued_us) >= m.age;
}

/* Any stream of best's class could start, were all closed that gives way to it;
 * and nobody waits that has the right to the room. */
static bool has_room(const struct client *best)
{
    const struct sched_conf *f = &m.s.conf;
    uint64_t each = f->overhead + f->block - 1;
    uint64_t n = each + f->context;
    for (unsigned i = 0; i < CLIENTS; i++) {
        const struct client *c = &m.c[i];
        if (is_aged(c)) {
            return false;
        }
        if (c->live && c->x.phase == SCHED_RUNNING && !c->stalled &&
            (c->x.cls <= best->x.cls || c->x.kept)) {
            n += each + c->x.seq->room;
        }
    }
    return n <= f->positions;
}

/* After sched_next: the streams that wait and those that run. */
/* Rule 16: what was pooled is kept for nobody. */
static void check_warm(void)
{
    for (uint32_t i = 0; i < m.s.conf.seqs; i++) {
        const struct sched_seq *q = &m.s.seqs[i];
        if (q->used && q->owner == NULL && q->pooled && !q->failed) {
            broken("pool", "sequence %u stays warm", i);
        }
    }
}

static void check_places(void)
{
    const struct client *best = NULL;
    uint32_t running = 0;
    for (unsigned i = 0; i < CLIENTS; i++) {
        const struct client *c = &m.c[i];
        running += c->live && c->x.phase == SCHED_RUNNING;
        if (can_start(c) && (best == NULL || c->x.cls < best->x.cls)) {
            best = c;
        }
    }
    if (running > m.s.conf.running) {
        broken("place", "%u run, %u may", running, m.s.conf.running);
    }
    if (best == NULL) {
        return;
    }
    if (m.s.conf.positions > 0 && running > 0 && !has_room(best)) {
        return;
    }
    if (running < m.s.conf.running) {
        broken("place", "client %u waits, %u of %u run", number(best), running,
               m.s.conf.running);
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        const struct client *c = &m.c[i];
        if (c->live && c->x.phase == SCHED_RUNNING &&
            (c->stalled || (c->x.cls > best->x.cls && !c->x.kept))) {
            broken("place", "client %u of class %d waits, client %u%s runs",
                   number(best), (int)best->x.cls, i,
                   c->stalled ? ", stalled," : "");
        }
    }
}

static void count_time(struct client *c)
{
    if (c->was == SCHED_RUNNING && c->x.phase == SCHED_RUNNING &&
        c->start != c->x.start) {
        note("client %u lost its place, and has another", number(c));
        m.ret->parked++;
        c->was = SCHED_WAITING;
    }
    c->start = c->x.start;
    if (c->was == SCHED_WAITING && c->x.phase == SCHED_RUNNING) {
        c->place_us = m.now;
        c->begun = true;
        c->row_us = m.now;
        c->calls = 0;
    } else if (c->was == SCHED_RUNNING && c->x.phase == SCHED_WAITING) {
        note("client %u lost its place", number(c));
        m.ret->parked++;
        c->waited_us = 0;
        c->ahead = before(c);
        for (unsigned i = 0; i < CLIENTS; i++) { /* it is before others again */
            m.c[i].ahead += m.c[i].live && m.c[i].x.number > c->x.number;
        }
    } else if (can_start(c)) {
        c->waited_us += m.passed;
    }
    c->was = c->x.phase;
    if (c->x.phase == SCHED_RUNNING) {
        uint64_t held = m.now - c->place_us;
        m.longest_place = held > m.longest_place ? held : m.longest_place;
    }
}

static void check_patience(struct client *c, bool had_row)
{
    uint64_t slack = 3 * (m.longest_step + 1);
    uint64_t most =
        m.age + (c->ahead + 1) * 2 * (m.longest_place + m.longest_step) + slack;
    if (can_start(c) && c->waited_us > most) {
        broken("starved", "client %u waits %llu us, at most %llu", number(c),
               (unsigned long long)c->waited_us, (unsigned long long)most);
    }
    if (c->x.phase != SCHED_RUNNING || c->stalled || had_row) {
        c->calls = 0;
        c->row_us = m.now;
        return;
    }
    uint32_t rows = c->x.seq->n - c->x.seq->computed;
    uint32_t fit = m.s.conf.rows_step * 3 / 4;
    c->calls++;
    if (rows == 1 && c->calls > 2 * (m.s.n_running / (fit > 0 ? fit : 1) + 3)) {
        broken("starved", "client %u decodes without a row in %u steps",
               number(c), c->calls);
    }
    if (rows > 1 && c->calls > 12 &&
        m.now - c->row_us >
            m.age + 2 * (m.s.n_running + 3) * (m.longest_step + 1)) {
        broken("starved", "client %u has no row for its prompt in %llu us",
               number(c), (unsigned long long)(m.now - c->row_us));
    }
}

/* Also adds up what each step may cost. Returns its cost. */
static double check_step(const struct sched_plan *p)
{
    uint32_t rows = 0;
    uint32_t decoding = 0;
    uint32_t prompts = 0;
    bool hurry = false;
    for (size_t i = 0; i < p->n_rows; i++) {
        const struct sched_row *r = &p->rows[i];
        struct sched_stream *x = sched_row_stream(&m.s, i);
        struct client *c = x != NULL ? client_of(x) : NULL;
        if (c == NULL || !c->live || c->stalled ||
            (x->deadline_us != 0 && m.now >= x->deadline_us)) {
            broken("dead", "a row for client %d",
                   c != NULL ? (int)number(c) : -1);
        }
        for (size_t k = 0; k < i; k++) {
            if (p->rows[k].seq == r->seq) {
                broken("engine", "sequence %u twice", r->seq);
            }
        }
        bool decodes = r->n == 1 && x->seq->n - x->seq->computed == 1;
        rows += r->n + r->n_drafts;
        decoding += decodes;
        prompts += decodes || r->score ? 0 : r->n;
        hurry = hurry || (decodes && x->cls != SCHED_CLASS_BATCH);
        note("row: client %u at %u, %u tokens, %u drafts", number(c),
             r->position, r->n, r->n_drafts);
    }
    if (rows > m.s.conf.rows_step) {
        broken("engine", "%u rows in a step of %u", rows, m.s.conf.rows_step);
    }
    double us = cost(rows - prompts, prompts);
    m.decoded += prompts == 0;
    m.alone[decoding] += prompts == 0 && rows == decoding;
    if (prompts <= SCHED_ROWS_MIN || m.spikes || m.steps < 60 ||
        m.decoded < 20) {
        return us;
    }
    /* What was never measured is guessed, and may be more than half as much
     * again as the truth. */
    bool measured = m.alone[decoding] > 0;
    if (prompts > m.s.conf.chunk || us > 1.5 * SCHED_STEP_US ||
        (hurry && measured &&
         us > 1.5 * SCHED_SLOWER * cost(decoding, 0))) {
        broken("budget", "%u decode, %u prompt rows: %.0f us, %.0f without",
               decoding, prompts, us, cost(decoding, 0));
    }
    return us;
}

/* --- a round --- */

static void lose_engine(void)
{
    note("crash");
    m.ret->crashes++;
    sched_lost(&m.s);
    for (unsigned i = 0; i < SEQS; i++) {
        m.e[i].open = false;
    }
}

/* Rule 14: each row of a prompt once, in order, before a token is drawn. */
static void check_scores(struct client *c, const struct sched_row *r)
{
    uint32_t n = c->x.n_prompt;
    if (r->score) {
        uint32_t at = r->position + r->n;
        if (r->position != c->scored || at > n || !c->x.score ||
            r->after != (at < n ? c->line.t[at] : -1)) {
            broken("score", "client %u: rows %u to %u of %u, %u are scored",
                   number(c), r->position, at, n, c->scored);
        }
        c->scored = at;
    }
    if (c->x.score && r->sample && c->scored + 1 < n) {
        broken("score", "client %u draws, %u of %u rows are scored", number(c),
               c->scored, n);
    }
}

/* Rule 16: all rows in one sequence that began with them; the last one is told. */
static void check_pool(struct client *c, const struct sched_row *r)
{
    if (r->position == 0) {
        c->pooled = 0;
        c->pooled_in = r->seq;
    }
    if (r->position != c->pooled || r->seq != c->pooled_in || r->sample ||
        r->give != (r->position + r->n == c->x.n_prompt)) {
        broken("pool", "client %u: rows from %u on in sequence %u, %u are pooled "
                       "in %u",
               number(c), r->position, r->seq, c->pooled, c->pooled_in);
    }
    c->pooled += r->n;
    if (r->give) {
        m.ret->finished++;
        leave(c, "pooled");
    }
}

static void hand_out(const struct sched_plan *p, const uint32_t *ok)
{
    for (size_t i = 0; i < p->n_rows; i++) {
        const struct sched_row *r = &p->rows[i];
        struct sched_stream *x = sched_row_stream(&m.s, i);
        if (x == NULL) {
            continue;
        }
        struct client *c = client_of(x);
        m.served[c->x.peer == 0] += m.counting ? r->n : 0;
        if (r->failed) {
            m.ret->cancelled++;
            leave(c, "failed");
            continue;
        }
        if (c->x.pool) {
            check_pool(c, r);
            continue;
        }
        check_scores(c, r);
        const struct line *l = &m.e[r->seq].line;
        uint32_t at = r->position + r->n;
        for (uint32_t k = 0; r->sample && k <= ok[i] && c->live; k++) {
            receive(c, k < ok[i] ? r->drafts[k] : next_token(l, at + k));
        }
    }
}

static void step(const struct sched_plan *p)
{
    uint32_t ok[STREAMS_MAX];
    double us = check_step(p);
    double f = 1 + m.noise * (rnd(2001) / 1000.0 - 1);
    f *= m.spikes && one_in(50) ? 8 : 1;
    us = us * f;
    m.longest_step =
        (uint64_t)us > m.longest_step ? (uint64_t)us : m.longest_step;
    m.steps++;
    m.ret->steps++;
    m.now += (uint64_t)us + 1;
    if (m.crashes && one_in(60)) {
        lose_engine();
        return;
    }
    for (size_t i = 0; i < p->n_rows; i++) {
        ok[i] = engine_row(&p->rows[i]);
        m.ret->accepted += ok[i];
    }
    if (m.leavers && one_in(8)) { /* a client leaves during the step */
        struct client *c = &m.c[rnd(CLIENTS)];
        if (c->live) {
            m.ret->cancelled++;
            leave(c, "gone during a step");
        }
    }
    for (size_t i = 0; i < p->n_rows; i++) {
        if (m.failures && one_in(80)) {
            sched_row_failed(&m.s, i);
        } else {
            sched_row_accepted(&m.s, i, ok[i]);
        }
    }
    sched_done(&m.s, (uint64_t)us, m.now);
    hand_out(p, ok);
}

static void round_of(bool coming)
{
    bool row[CLIENTS] = {false};
    m.passed = m.now - m.marked;
    m.marked = m.now;
    clients_act(coming);
    const struct sched_plan *p = sched_next(&m.s, m.now);
    check_places();
    check_warm();
    if (p != NULL) {
        engine_ops(p);
        for (size_t i = 0; i < p->n_rows; i++) {
            struct sched_stream *x = sched_row_stream(&m.s, i);
            row[x != NULL ? number(client_of(x)) : 0] = x != NULL;
        }
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        if (m.c[i].live) {
            count_time(&m.c[i]);
        }
    }
    if (p != NULL && p->n_rows > 0) {
        step(p);
    } else {
        m.now += (uint64_t)m.base;
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        if (m.c[i].live) {
            check_patience(&m.c[i], row[i]);
        }
    }
}

static void begin(void)
{
    m.mode = one_in(4) ? CROWD : one_in(6) ? PEERS : ANYTHING;
    bool any = m.mode == ANYTHING;
    m.base = 500 + rnd(20000);
    m.row = m.base / (2 + rnd(60));
    m.prompt = m.base / (2 + rnd(40));
    m.noise = rnd(100) / 1000.0;
    m.spikes = any && one_in(4);
    m.crashes = any && one_in(3);
    m.failures = any && one_in(3);
    m.leavers = any && !one_in(4);
    m.age = (uint64_t)m.base * (20 + rnd(60));
    struct sched_conf c = {.rows_seq = 1 + rnd(40),
                           .rows_step = 1 + rnd(64),
                           .chunk = one_in(2) ? 0 : 1 + rnd(30),
                           .seqs = 1 + rnd(SEQS),
                           .running = 1 + rnd(8),
                           .queue = any ? rnd(20) : CLIENTS,
                           .context = CTX - rnd(60),
                           .short_max = one_in(2) ? 0 : 1 + rnd(CTX),
                           .cut_at = one_in(2) ? 0 : 1 + rnd(64),
                           .max_draft = rnd(10),
                           .ngram_min = 1 + rnd(4),
                           .share_tokens = one_in(2) ? 0 : rnd(600),
                           .block = 1 + rnd(one_in(2) ? 8 : 64),
                           .overhead = one_in(2) ? 0 : rnd(100),
                           .age_us = m.age};
    if (!one_in(3)) { /* rule 13: from one full sequence to some */
        c.positions = 1 + rnd(one_in(2) ? 3 * CTX : (SEQS + 1) * CTX);
    }
    if (!any) {
        c.rows_seq = c.rows_step = 64;
        c.running = 2 + rnd(5);
        c.seqs = c.running + rnd(4);
        c.chunk = 0;
        c.context = CTX;
    }
    if (m.mode == PEERS && c.positions > 0) { /* fair shares need two places */
        c.positions += 2 * ((uint64_t)CTX + c.overhead + c.block);
    }
    sched_init(&m.s, &c);
    m.admits = !one_in(3);
    admit_init(&m.admit, m.s.conf.queue + m.s.conf.running);
    note("positions %llu overhead %u block %u",
         (unsigned long long)m.s.conf.positions, m.s.conf.overhead,
         m.s.conf.block);
    note("mode %d base %.0f row %.0f prompt %.0f running %u seqs %u queue %u "
         "rows %u of %u chunk %u short %u draft %u age %llu",
         (int)m.mode, m.base, m.row, m.prompt, m.s.conf.running, m.s.conf.seqs,
         m.s.conf.queue, m.s.conf.rows_seq, m.s.conf.rows_step, m.s.conf.chunk,
         m.s.conf.short_max, m.s.conf.max_draft, (unsigned long long)m.age);
}

static void check_end(void)
{
    double a = m.served[0];
    double b = m.served[1];
    if (m.s.n_running + m.s.n_waiting > 0) {
        broken("end", "%u run and %u wait for ever", m.s.n_running,
               m.s.n_waiting);
    }
    if (m.mode == PEERS && (a > 1.6 * b || b > 1.6 * a)) {
        broken("fair", "one peer was served %.0f tokens, the other %.0f", a, b);
    }
}

void sim_run(uint64_t seed, FILE *trace, struct sim_result *ret)
{
    memset(&m, 0, sizeof(m));
    m.rnd = seed * 0x9e3779b97f4a7c15u + 1;
    m.trace = trace;
    m.ret = ret;
    begin();
    if (setjmp(m.out) == 0) {
        for (unsigned i = 0; i < ROUNDS; i++) {
            m.counting = i > ROUNDS / 4;
            round_of(true);
        }
        m.counting = false;
        m.leavers = false;
        m.crashes = false;
        for (unsigned i = 0; i < 20 * ROUNDS; i++) {
            round_of(false);
            if (m.s.n_running + m.s.n_waiting == 0) {
                break;
            }
        }
        check_end();
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        sched_remove(&m.s, &m.c[i].x, m.now);
    }
    sched_fini(&m.s);
}
