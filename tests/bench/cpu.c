/* cpu.c - the engine under the clock: one command a line on stdin, one JSON
 * object a line on stdout. bench_cpu.py drives it, so that a peer's process can
 * take turns with it.
 *
 *   place                    read bandwidth, place of the cores
 *   multiply                 rate of the multipliers
 *   decode 1 SECONDS         one token after --base others, as the next two
 *   verify N SECONDS         N tokens of one sequence, logits of all
 *   sequences N SECONDS      one token for each of N sequences in one step
 *   prefill N SECONDS        N tokens into an empty sequence, the last logits
 *   depth N SECONDS          one token after N others
 *
 * --base N: tokens a sequence holds before these short workloads (16).
 * A workload is repeated for SECONDS (three times at least) and undone after
 * each step, so that all steps are the same work; "ms" is the median step.
 * Tokens drawn are not part of it: a peer's call does not draw either.
 *
 * Thread: one, besides those of the engine and of a probe.
 */
#include <getopt.h>
#include <string.h>

#include "engine/cpu/kernels/kernel.h"
#include "engine/cpu/kernels/products/linear.h"
#include "engine/engine.h"
#include "probe.h"
#include "proto/json.h"

#define BASE      16u /* --base, if nothing is said */
#define SEQS_MAX  16u
#define ROWS_MAX  2048u
#define STEPS_MAX 4096u
#define STEPS_MIN 3u

static const char usage[] =
    "usage: bench_cpu BUNDLE [--threads N] [--isa NAME] [--backend NAME] "
    "[--base N]\n"
    "Reads commands from stdin; see the head of tests/bench/cpu.c.\n";

struct bench {
    struct engine *g;
    struct probe *probe;
    unsigned threads;
    uint32_t base;
    const char *isa; /* as asked for; NULL: the best */
    double open_ms, first_ms; /* opened; and the first token's logits there */
    int32_t tokens[ROWS_MAX];
    struct engine_seq *seq[SEQS_MAX]; /* `base` tokens each, opened when used */
    struct engine_seq *empty, *deep;
    struct msg_row row[SEQS_MAX];
    struct msg_row_done done[SEQS_MAX];
    double ms[STEPS_MAX];
};

/* --- sequences --- */

/* *s with its first n tokens evaluated. */
static int seq_fill(struct bench *b, struct engine_seq **s, uint32_t n,
                    struct err *e)
{
    int rc = *s == NULL ? engine_seq_open(b->g, s, e) : 0;
    uint32_t have = rc == 0 ? engine_seq_length(*s) : 0;
    if (rc == 0 && have > n) {
        return engine_seq_truncate(*s, n, e);
    }
    return rc < 0 || have == n ? rc
                               : engine_eval(*s, b->tokens + have, n - have, 0,
                                             0, NULL, NULL, e);
}

/* n tokens after the sequence as it stands, and back. want: engine_eval. */
static int eval_once(struct bench *b, struct engine_seq *s, uint32_t n,
                     int want, double *ms, struct err *e)
{
    const float *logits = NULL;
    uint32_t before = engine_seq_length(s);
    int rc = engine_seq_keep(s, e);
    if (rc < 0) {
        return rc;
    }
    double at = probe_seconds();
    rc = engine_eval(s, b->tokens + before, n, 0, want, &logits, NULL, e);
    *ms = (probe_seconds() - at) * 1e3;
    return rc < 0 ? rc : engine_seq_truncate(s, before, e);
}

/* One token for each of n sequences, and back. */
static int step_once(struct bench *b, uint32_t n, double *ms, struct err *e)
{
    struct engine_row rows[SEQS_MAX] = {0};
    struct engine_times times = {0};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t position = engine_seq_length(b->seq[i]);
        b->row[i] = (struct msg_row){.seq = i,
                                     .position = position,
                                     .n_tokens = 1,
                                     .tokens = b->tokens + position + i,
                                     .sample = true};
        msg_sampling_init(&b->row[i].sampling);
        rows[i] = (struct engine_row){
            .seq = b->seq[i], .row = &b->row[i], .done = &b->done[i]};
    }
    double at = probe_seconds();
    engine_step_rows(b->g, rows, n, &times);
    *ms = (probe_seconds() - at) * 1e3 - times.us_sample * 1e-3;
    for (uint32_t i = 0; i < n; i++) {
        if (rows[i].rc < 0) {
            *e = rows[i].err;
            return rows[i].rc;
        }
        int rc = engine_seq_truncate(b->seq[i], b->row[i].position, e);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* --- workloads --- */

struct work {
    const char *name;
    uint32_t n_max;
    int (*prepare)(struct bench *b, uint32_t n, struct err *e);
    int (*once)(struct bench *b, uint32_t n, double *ms, struct err *e);
};

static int short_prepare(struct bench *b, uint32_t n, struct err *e)
{
    (void)n;
    return seq_fill(b, &b->seq[0], b->base, e);
}

static int verify_once(struct bench *b, uint32_t n, double *ms, struct err *e)
{
    return eval_once(b, b->seq[0], n, 2, ms, e);
}

static int sequences_prepare(struct bench *b, uint32_t n, struct err *e)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        rc = seq_fill(b, &b->seq[i], b->base, e);
    }
    return rc;
}

static int prefill_prepare(struct bench *b, uint32_t n, struct err *e)
{
    (void)n;
    return seq_fill(b, &b->empty, 0, e);
}

static int prefill_once(struct bench *b, uint32_t n, double *ms, struct err *e)
{
    return eval_once(b, b->empty, n, 1, ms, e);
}

static int depth_prepare(struct bench *b, uint32_t n, struct err *e)
{
    return seq_fill(b, &b->deep, n, e);
}

static int depth_once(struct bench *b, uint32_t n, double *ms, struct err *e)
{
    (void)n;
    return eval_once(b, b->deep, 1, 2, ms, e);
}

static const struct work works[] = {
    {"decode",    1,            short_prepare,     verify_once },
    {"verify",    64,           short_prepare,     verify_once },
    {"sequences", SEQS_MAX,     sequences_prepare, step_once   },
    {"prefill",   ROWS_MAX,     prefill_prepare,   prefill_once},
    {"depth",     ROWS_MAX - 1, depth_prepare,     depth_once  },
};

static void steps_report(struct bench *b, size_t n, struct json *out)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += b->ms[i];
    }
    json_add_num(out, "ms_mean", sum / (double)n);
    double mid = probe_median(b->ms, n); /* sorts them */
    json_add_num(out, "ms", mid);
    json_add_num(out, "ms_min", b->ms[0]);
    json_add_num(out, "ms_max", b->ms[n - 1]);
    json_add_int(out, "steps", (int64_t)n);
}

static int work_run(struct bench *b, const struct work *w, uint32_t n,
                    double seconds, struct json *out, struct err *e)
{
    double stolen = 0;
    double once = 0;
    size_t steps = 0;
    int rc = w->prepare(b, n, e);
    rc = rc < 0 ? rc : w->once(b, n, &once, e); /* warm */
    struct probe_clock from = probe_clock();
    uint64_t bytes = linear_bytes();
    for (; rc == 0 && steps < STEPS_MAX &&
           (steps < STEPS_MIN || probe_seconds() - from.wall < seconds);
         steps++) {
        rc = w->once(b, n, &b->ms[steps], e);
    }
    if (rc < 0) {
        return rc;
    }
    double others = probe_others(&from, &stolen);
    bytes = linear_bytes() - bytes;
    steps_report(b, steps, out);
    json_add_num(out, "weight_bytes", (double)bytes / (double)steps);
    json_add_num(out, "others", others);
    json_add_num(out, "stolen", stolen);
    return 0;
}

/* --- commands --- */

static void place(struct bench *b, struct json *out)
{
    struct probe_place p = probe_place(b->probe);
    json_add_num(out, "read_gb_s", p.read_gb_s);
    json_add_num(out, "trip_ns", p.trip_ns);
    json_add_str(out, "state", p.state);
}

static void multiply(struct bench *b, struct json *out)
{
    const char *name = NULL;
    double rate = probe_multiply(b->probe, &name);
    json_add_num(out, "g_products_s", rate);
    json_add_str(out, "instruction", name);
}

static int command(struct bench *b, const char *line, struct json *out,
                   struct err *e)
{
    char name[16];
    char end = 0;
    unsigned n = 0;
    double seconds = 0;
    if (b->probe == NULL) { /* not before: its buffer is no part of the load */
        b->probe = probe_new(b->threads);
        if (b->probe == NULL) {
            return err_set(e, ERR_NOMEM, "a buffer to read");
        }
    }
    if (strcmp(line, "place") == 0) {
        place(b, out);
        return 0;
    }
    if (strcmp(line, "multiply") == 0) {
        multiply(b, out);
        return 0;
    }
    if (sscanf(line, "%15s %u %lf%c", name, &n, &seconds, &end) == 3) {
        for (size_t i = 0; i < countof(works); i++) {
            if (strcmp(works[i].name, name) == 0 && n > 0 &&
                n <= works[i].n_max) {
                return work_run(b, &works[i], n, seconds, out, e);
            }
        }
    }
    return err_set(e, ERR_INVALID, "no command '%s'", line);
}

static void say(struct json *out)
{
    struct buf text;
    buf_init(&text, KIB(64));
    json_write(out, false, &text);
    (void)printf("%s\n", text.p);
    (void)fflush(stdout);
    buf_fini(&text);
    json_free(out);
}

/* What was opened: first line of the output. */
static void hello(struct bench *b)
{
    const struct bundle *d = engine_bundle(b->g);
    struct json *out = json_object();
    uint64_t layers = 0;
    uint64_t heads = 0;
    for (size_t i = 0; i < d->n_shards; i++) {
        layers += d->shards[i].weight_bytes;
    }
    for (size_t i = 0; i < d->n_heads_shards; i++) {
        heads += d->heads[i].weight_bytes;
    }
    uint64_t q = (uint64_t)d->n_heads * d->d_head;
    uint64_t kv = (uint64_t)d->n_kv_heads * d->d_head;
    json_add_str(out, "quant", d->quant);
    const struct kernels *k = kernels_find(b->isa);
    json_add_str(out, "isa", k != NULL ? kernels_name(k) : "none");
    json_add_int(out, "context", d->context);
    json_add_int(out, "threads", b->threads);
    json_add_int(out, "layer_bytes", (int64_t)layers);
    json_add_int(out, "head_bytes", (int64_t)heads);
    json_add_int(out, "layer_products",
                 (int64_t)((2 * q + 2 * kv + 3 * (uint64_t)d->d_ff) *
                           d->d_model * d->n_layers));
    json_add_int(out, "head_products", (int64_t)d->vocab * d->d_model);
    json_add_num(out, "open_ms", b->open_ms);
    json_add_num(out, "first_token_ms", b->first_ms);
    say(out);
}

static int open_all(struct bench *b, const char *dir,
                    const struct engine_conf *conf, struct err *e)
{
    double at = probe_seconds();
    double once = 0;
    int rc = engine_open(dir, conf, &b->g, e);
    if (rc < 0) {
        return rc;
    }
    b->open_ms = (probe_seconds() - at) * 1e3;
    uint32_t vocab = engine_bundle(b->g)->vocab;
    for (uint32_t i = 0; i < ROWS_MAX; i++) {
        b->tokens[i] = (int32_t)((i * 7919 + 13) % vocab);
    }
    rc = seq_fill(b, &b->seq[0], 0, e);
    rc = rc < 0 ? rc : eval_once(b, b->seq[0], 1, 1, &once, e);
    if (rc < 0) {
        return rc;
    }
    b->first_ms = (probe_seconds() - at) * 1e3;
    hello(b);
    return 0;
}

static void close_all(struct bench *b)
{
    for (size_t i = 0; i < SEQS_MAX; i++) {
        engine_seq_close(b->seq[i]);
    }
    engine_seq_close(b->empty);
    engine_seq_close(b->deep);
    engine_close(b->g);
    probe_free(b->probe);
}

/* false: a wrong command line. */
static bool parse(int argc, char **argv, struct engine_conf *conf,
                  uint32_t *base)
{
    static const struct option longs[] = {
        {"threads", required_argument, NULL, 't'},
        {"isa",     required_argument, NULL, 'i'},
        {"backend", required_argument, NULL, 'b'},
        {"base",    required_argument, NULL, 'n'},
        {NULL,      0,                 NULL, 0  },
    };
    int opt = 0;
    while ((opt = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        if (opt == 't') {
            conf->threads = (unsigned)strtoul(optarg, NULL, 10);
        } else if (opt == 'i') {
            conf->isa = optarg;
        } else if (opt == 'b') {
            conf->backend = optarg;
        } else if (opt == 'n') {
            *base = (uint32_t)strtoul(optarg, NULL, 10);
        } else {
            return false;
        }
    }
    return argc - optind == 1 && conf->threads > 0 && *base > 0 &&
           *base < ROWS_MAX / 2 &&
           conf->threads <= PROBE_THREADS_MAX;
}

int main(int argc, char **argv)
{
    static struct bench b;
    struct engine_conf conf = {.threads = 1};
    struct err e = {0};
    char line[128];
    int rc = 0;
    b.base = BASE;
    if (!parse(argc, argv, &conf, &b.base)) {
        (void)fputs(usage, stderr);
        return 64;
    }
    b.threads = conf.threads;
    b.isa = conf.isa;
    rc = open_all(&b, argv[optind], &conf, &e);
    if (rc < 0) {
        (void)err_print(&e);
    }
    while (rc == 0 && fgets(line, sizeof(line), stdin) != NULL) {
        struct json *out = json_object();
        line[strcspn(line, "\n")] = '\0';
        if (command(&b, line, out, &e) < 0) {
            json_add_str(out, "error", e.msg);
        }
        say(out);
    }
    close_all(&b);
    return rc < 0 ? 1 : 0;
}
