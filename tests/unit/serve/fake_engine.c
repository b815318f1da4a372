/* fake_engine.c - speaks the engine's frames without a model, for tests of
 * everything around it ([engine] program = this).
 *
 * The token after a timeline is a hash of the timeline (and of seed and choice
 * above temperature 0), so that replay, forks and batching can be checked: they
 * must not change it. With mirostat now and then a token is another one, by mu,
 * which each token changes. Rows are refused where a real engine refuses them.
 * What else it does stands in a file `fake` in the bundle's folder, "key number"
 * a line:
 *   lo, hi      tokens drawn are in [lo, hi)         default 3, vocab
 *   eos, eos_at draw `eos` when the timeline is this long
 *   period      draw lo + length % period instead: text that repeats itself
 *   delay_us    sleep per step
 *   load_ms     sleep before ready
 *   warm_ms     before that run four widths for the first time, so long each
 *   tell_load   write what LOAD says of widths to the file `load`
 *   t_max, batch_max, seqs_max, base_bytes, block_bytes   as in READY
 *   stop_load   stop before ready, until SIGCONT
 *   fail_load   answer the load with an error
 *   crash_at    die at this step of the process's life
 *   crash_once  the same, once ever (leaves the file `crashed`)
 *   hang_at     stop answering at this step
 *   lie_at      answer this step with the rows of another sequence
 *   notice_at   say before this step's answer that a package runs on the CPU
 *   slow_at     take longer than a step may for this one, saying that a width
 *               is being run once
 *   refuse      refuse rows whose prompt holds this token
 *   forced      say so many of the next tokens of rows with a grammar, whose text
 *               the hash has too
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "model/bundle.h"
#include "proto/frame.h"
#include "proto/msg.h"

#define SEQS     256
#define GRAMMARS 64

struct seq {
    int open;
    int32_t *t;
    uint32_t n, cap;
};

static struct {
    long lo, hi, period, eos, eos_at, delay_us, load_ms, warm_ms, tell_load,
        stop_load, t_max, batch_max, seqs_max, base_bytes, block_bytes,
        fail_load, crash_at, crash_once, hang_at, lie_at, refuse, notice_at,
        slow_at, forced;
    struct seq seqs[SEQS];
    struct {
        uint32_t id; /* 0: free */
        uint64_t hash;
    } grammars[GRAMMARS];
    uint32_t vocab, context;
    long steps;
    char marker[1100];
} g = {.lo = 3,
       .eos = -1,
       .t_max = 64,
       .batch_max = 256,
       .seqs_max = 64,
       .crash_at = -1,
       .crash_once = -1,
       .hang_at = -1,
       .lie_at = -1,
       .refuse = -1,
       .notice_at = -1,
       .slow_at = -1};

static void set(const char *key, long v)
{
    struct {
        const char *key;
        long *v;
    } keys[] = {
        {"lo",          &g.lo         },
        {"hi",          &g.hi         },
        {"period",      &g.period     },
        {"eos",         &g.eos        },
        {"eos_at",      &g.eos_at     },
        {"delay_us",    &g.delay_us   },
        {"load_ms",     &g.load_ms    },
        {"warm_ms",     &g.warm_ms    },
        {"tell_load",   &g.tell_load  },
        {"t_max",       &g.t_max      },
        {"batch_max",   &g.batch_max  },
        {"seqs_max",    &g.seqs_max   },
        {"base_bytes",  &g.base_bytes },
        {"block_bytes", &g.block_bytes},
        {"stop_load",   &g.stop_load  },
        {"fail_load",   &g.fail_load  },
        {"crash_at",    &g.crash_at   },
        {"crash_once",  &g.crash_once },
        {"hang_at",     &g.hang_at    },
        {"lie_at",      &g.lie_at     },
        {"refuse",      &g.refuse     },
        {"notice_at",   &g.notice_at  },
        {"slow_at",     &g.slow_at    },
        {"forced",      &g.forced     },
    };
    for (size_t i = 0; i < countof(keys); i++) {
        if (strcmp(keys[i].key, key) == 0) {
            *keys[i].v = v;
            return;
        }
    }
    (void)fprintf(stderr, "fake_engine: no key %s\n", key);
    _exit(EXIT_USAGE);
}

static void read_options(const char *dir)
{
    char path[1100], key[32];
    long v = 0;
    (void)snprintf(g.marker, sizeof(g.marker), "%s/crashed", dir);
    (void)snprintf(path, sizeof(path), "%s/fake", dir);
    FILE *f = fopen(path, "r");
    while (f != NULL && fscanf(f, "%31s %ld", key, &v) == 2) {
        set(key, v);
    }
    if (f != NULL) {
        (void)fclose(f);
    }
}

static void send_frame(enum frame_type t, uint32_t request, const struct buf *b)
{
    struct err e = {0};
    if (frame_write_fd(3, t, request, b != NULL ? b->p : NULL,
                       b != NULL ? b->n : 0, &e) < 0) {
        _exit(EXIT_SUCCESS); /* the parent is gone */
    }
}

static void send_error(uint32_t request, int code, const char *msg)
{
    struct err e = {0};
    struct buf b;
    (void)err_set(&e, code, "%s", msg);
    buf_init(&b, 4096);
    msg_error_put(&b, &e);
    send_frame(FRAME_ERROR, request, &b);
    buf_fini(&b);
}

static void put_widths(FILE *to, const char *what, const struct msg_widths *w)
{
    (void)fprintf(to, "%s", what);
    for (uint32_t i = 0; i < w->n; i++) {
        (void)fprintf(to, " %u", w->of[i]);
    }
}

static void tell_load(const struct msg_load *m)
{
    char path[1100];
    (void)snprintf(path, sizeof(path), "%s/load", m->bundle);
    FILE *to = fopen(path, "w");
    must(to != NULL);
    put_widths(to, "layers", &m->layers);
    put_widths(to, ", heads", &m->heads);
    (void)fclose(to);
}

static void warm(uint32_t request)
{
    for (uint32_t i = 1; g.warm_ms > 0 && i <= 4; i++) {
        const struct msg_progress p = {.warms = true, .done = i, .total = 4};
        struct buf b;
        buf_init(&b, 64);
        msg_progress_put(&b, &p);
        send_frame(FRAME_PROGRESS, request, &b);
        buf_fini(&b);
        (void)usleep((unsigned)g.warm_ms * 1000);
    }
}

static void do_load(const struct frame *f)
{
    struct msg_load m = {0};
    struct err e = {0};
    struct bundle *bundle = NULL;
    struct buf b;
    if (msg_load_get(f->payload, f->n, &m, &e) != 0 ||
        bundle_open(m.bundle, &bundle, &e) != 0) {
        send_error(f->request, e.code, e.msg);
        return;
    }
    g.vocab = bundle->vocab;
    g.context = bundle->context;
    read_options(m.bundle);
    (void)usleep((unsigned)g.load_ms * 1000);
    if (g.tell_load) {
        tell_load(&m);
    }
    warm(f->request);
    if (g.stop_load) {
        (void)raise(SIGSTOP);
    }
    g.hi = g.hi > 0 ? g.hi : (long)g.vocab;
    bundle_close(bundle);
    msg_load_fini(&m);
    if (g.fail_load) {
        send_error(f->request, ERR_NOMEM, "the fake engine was told to fail");
        return;
    }
    struct msg_ready r = {.t_max = (uint32_t)g.t_max,
                          .batch_max = (uint32_t)g.batch_max,
                          .seqs_max = (uint32_t)g.seqs_max,
                          .context = g.context,
                          .short_max = g.context,
                          .vocab = g.vocab,
                          .state_bytes = 1000,
                          .base_bytes = (uint64_t)g.base_bytes,
                          .block_bytes = (uint64_t)g.block_bytes,
                          .exact = true,
                          .arith = "1"};
    buf_init(&b, 4096);
    msg_ready_put(&b, &r);
    send_frame(FRAME_READY, f->request, &b);
    buf_fini(&b);
}

static void append(struct seq *q, const int32_t *t, uint32_t n)
{
    if (q->n + n > q->cap) {
        q->cap = 2 * (q->n + n);
        q->t = realloc(q->t, q->cap * sizeof(*q->t));
        must(q->t != NULL);
    }
    memcpy(q->t + q->n, t, n * sizeof(*t));
    q->n += n;
}

static const char *do_seq(enum frame_type type, const struct msg_seq *m)
{
    if (m->seq >= SEQS) {
        return "number";
    }
    struct seq *q = &g.seqs[m->seq];
    if (type == FRAME_SEQ_OPEN || type == FRAME_SEQ_FORK) {
        if (q->open) {
            return "open already";
        }
        q->open = 1;
        q->n = 0;
        if (type == FRAME_SEQ_FORK) {
            const struct seq *from = m->from < SEQS ? &g.seqs[m->from] : q;
            if (!from->open || from == q || m->n > from->n) {
                return "fork";
            }
            append(q, from->t, m->n);
        }
        return NULL;
    }
    if (!q->open) {
        return "not open";
    }
    if (type == FRAME_SEQ_CLOSE) {
        q->open = 0;
    } else if (m->n > q->n) {
        return "truncate";
    } else {
        q->n = m->n;
    }
    return NULL;
}

/* 0: there is no such grammar. */
static uint64_t grammar_hash(uint32_t id)
{
    for (size_t i = 0; i < GRAMMARS && id != 0; i++) {
        if (g.grammars[i].id == id) {
            return g.grammars[i].hash;
        }
    }
    return 0;
}

static void on_grammar(const struct frame *f)
{
    struct msg_grammar m = {0};
    struct err e = {0};
    size_t i = 0;
    must(msg_grammar_get(f->payload, f->n, &m, &e) == 0);
    bool adds = f->type == FRAME_GRAMMAR;
    while (i < GRAMMARS && g.grammars[i].id != (adds ? 0 : m.id)) {
        i++;
    }
    must(i < GRAMMARS && (grammar_hash(m.id) == 0) == adds); /* told once */
    g.grammars[i].id = adds ? m.id : 0;
    g.grammars[i].hash = 1469598103934665603u;
    for (size_t k = 0; k < m.n; k++) {
        g.grammars[i].hash =
            (g.grammars[i].hash ^ (uint8_t)m.text[k]) * 1099511628211u;
    }
    send_frame(FRAME_OK, f->request, NULL);
}

static int32_t draw(const struct seq *q, const struct msg_row *r)
{
    uint64_t h = 1469598103934665603u;
    if (r->sampling.mirostat != 0 && (long)r->sampling.mu % 6 == 0) {
        return (int32_t)(g.lo + g.period + (long)r->sampling.mu % 16);
    }
    if (g.eos >= 0 && q->n >= (uint32_t)g.eos_at) {
        return (int32_t)g.eos;
    }
    if (g.period > 0) {
        return (int32_t)(g.lo + (long)q->n % g.period);
    }
    for (uint32_t i = 0; i < q->n; i++) {
        h = (h ^ (uint32_t)q->t[i]) * 1099511628211u;
    }
    h ^= grammar_hash(r->grammar);
    if (r->sampling.temperature > 0) {
        h = (h ^ r->sampling.seed) * 1099511628211u;
        h = (h ^ r->sampling.choice) * 1099511628211u;
        h = (h ^ r->out_index) * 1099511628211u;
    }
    h ^= h >> 29;
    return (int32_t)(g.lo + (long)(h % (uint64_t)(g.hi - g.lo)));
}

static int holds(const struct seq *q, long t)
{
    for (uint32_t i = 0; i < q->n; i++) {
        if (q->t[i] == t) {
            return 1;
        }
    }
    return 0;
}

static void draw_token(const struct seq *q, const struct msg_row *r,
                       struct msg_token *t)
{
    t->id = draw(q, r);
    t->logprob = -0.25f;
    t->n_top = r->sampling.logprobs;
    for (uint32_t i = 0; i < t->n_top; i++) {
        int32_t id = t->id + (int32_t)i;
        t->top[i].id = id < (int32_t)g.vocab ? id : (int32_t)i;
        t->top[i].logprob = -0.25f - (float)i;
    }
}

/* What will be drawn next. */
static void tell_forced(struct seq *q, const struct msg_row *r,
                        struct msg_row_done *d)
{
    uint32_t n = q->n;
    struct msg_row after = *r;
    after.out_index += d->n_tokens;
    append(q, &d->tokens[d->n_tokens - 1].id, 1);
    while (d->n_forced < (uint32_t)g.forced) {
        d->forced[d->n_forced] = draw(q, &after);
        append(q, &d->forced[d->n_forced++], 1);
        after.out_index++;
    }
    q->n = n;
}

static void do_row(const struct msg_row *r, struct msg_row_done *d)
{
    *d = (struct msg_row_done){.seq = r->seq};
    struct seq *q = r->seq < SEQS ? &g.seqs[r->seq] : NULL;
    if (q == NULL || !q->open || r->position != q->n ||
        r->n_tokens > (uint32_t)g.t_max || q->n + r->n_tokens > g.context) {
        d->error = ERR_INVALID;
        return;
    }
    if (r->grammar != 0 && grammar_hash(r->grammar) == 0) {
        d->error = ERR_NOT_FOUND;
        return;
    }
    for (uint32_t k = 0; k < msg_row_scores(r); k++) {
        must(d->scores != NULL || msg_row_done_room(d, msg_row_scores(r)));
        append(q, &r->tokens[k], 1);
        draw_token(q, r, &d->scores[k]);
        d->scores[k].id = k + 1 < r->n_tokens ? r->tokens[k + 1] : r->after;
        d->scores[k].logprob = -(float)q->n; /* of the token at position n */
    }
    append(q, r->tokens + d->n_scores, r->n_tokens - d->n_scores);
    d->length = q->n;
    d->mu = r->sampling.mu;
    if (g.refuse >= 0 && holds(q, g.refuse)) {
        d->error = ERR_INVALID;
        return;
    }
    if (!r->sample) {
        return;
    }
    for (uint32_t k = 0;; k++) {
        struct msg_row after = *r;
        after.out_index += k;
        after.sampling.mu = d->mu;
        draw_token(q, &after, &d->tokens[k]);
        if (r->sampling.mirostat != 0) {
            d->mu = (float)(((long)d->mu * 7 + d->tokens[k].id + 1) % 97);
        }
        d->n_tokens = k + 1;
        if (k >= r->n_drafts || q->n >= g.context ||
            d->tokens[k].id != r->drafts[k]) {
            break;
        }
        append(q, &r->drafts[k], 1);
        d->n_accepted++;
    }
    d->length = q->n;
    if (r->grammar != 0) {
        tell_forced(q, r, d);
    }
}

static void say_on_cpu(void)
{
    struct buf b;
    const struct msg_notice m = {.on_cpu = true,
                                 .package = "layers_00_08.mlpackage",
                                 .arith = "mixed",
                                 .why = "the device is gone"};
    buf_init(&b, KIB(4));
    msg_notice_put(&b, &m);
    must(buf_ok(&b));
    send_frame(FRAME_NOTICE, 0, &b);
    buf_fini(&b);
}

static void say_warms(uint32_t done)
{
    struct buf b;
    const struct msg_progress m = {.warms = true, .done = done, .total = 2};
    buf_init(&b, KIB(4));
    msg_progress_put(&b, &m);
    must(buf_ok(&b));
    send_frame(FRAME_PROGRESS, 0, &b);
    buf_fini(&b);
}

static void do_step(const struct frame *f)
{
    struct msg_step m = {0};
    struct err e = {0};
    struct buf b;
    g.steps++;
    if (g.steps == g.hang_at) {
        (void)pause();
    }
    if (g.steps == g.crash_at ||
        (g.steps == g.crash_once && !file_exists(g.marker))) {
        if (g.crash_once >= 0) {
            FILE *x = fopen(g.marker, "w");
            must(x != NULL);
            (void)fclose(x);
        }
        _exit(3);
    }
    if (msg_step_get(f->payload, f->n, &m, &e) != 0) {
        send_error(f->request, e.code, e.msg);
        return;
    }
    (void)usleep((unsigned)g.delay_us);
    if (g.steps == g.notice_at) {
        say_on_cpu();
    }
    if (g.steps == g.slow_at) {
        say_warms(0);
        (void)usleep(500000);
        say_warms(2);
    }
    struct msg_step_done d = {.n_rows = m.n_rows, .us_total = 100};
    d.rows = calloc(m.n_rows + 1, sizeof(*d.rows));
    must(d.rows != NULL);
    for (uint32_t i = 0; i < m.n_rows; i++) {
        do_row(&m.rows[i], &d.rows[i]);
        d.rows[i].seq += g.steps == g.lie_at ? 1 : 0;
    }
    buf_init(&b, FRAME_ENGINE_MAX);
    msg_step_done_put(&b, &d);
    must(buf_ok(&b));
    send_frame(FRAME_STEP_DONE, f->request, &b);
    buf_fini(&b);
    msg_step_done_fini(&d);
    msg_step_fini(&m);
}

static void on_seq(const struct frame *f)
{
    struct msg_seq m = {0};
    struct err e = {0};
    if (msg_seq_get(f->payload, f->n, &m, &e) != 0) {
        send_error(f->request, e.code, e.msg);
        return;
    }
    const char *bad = do_seq(f->type, &m);
    if (bad != NULL) {
        send_error(f->request, ERR_INVALID, bad);
    } else {
        send_frame(FRAME_OK, f->request, NULL);
    }
}

int main(void)
{
    struct frame_in in;
    struct frame f = {.request = 0};
    struct err e = {0};
    (void)signal(SIGHUP, SIG_IGN); /* as every child: daemon/main.c */
    frame_in_init(&in, FRAME_ENGINE_MAX);
    while (frame_read_fd(3, &in, &f, &e) == 1 && f.type != FRAME_UNLOAD) {
        if (f.type == FRAME_LOAD) {
            do_load(&f);
        } else if (f.type == FRAME_STEP) {
            do_step(&f);
        } else if (f.type == FRAME_STATE_SAVE || f.type == FRAME_STATE_LOAD) {
            send_error(f.request, ERR_UNSUPPORTED, "states are not kept");
        } else if (f.type == FRAME_GRAMMAR || f.type == FRAME_GRAMMAR_DROP) {
            on_grammar(&f);
        } else {
            on_seq(&f);
        }
    }
    frame_in_fini(&in);
    for (size_t i = 0; i < SEQS; i++) {
        free(g.seqs[i].t);
    }
    return EXIT_SUCCESS;
}
