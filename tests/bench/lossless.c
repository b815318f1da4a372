/* lossless.c - speculation does not change the distribution.
 *
 *   lossless [--samples N] [--gguf FILE]
 *
 * Two tokens are drawn after one prompt, N times with drafts and N times
 * without, all by other seeds, through the engine's own step. The exact
 * probability of every pair of tokens is known: the filtered target after the
 * prompt times that after the first token. Counts of the pairs that are
 * likely enough, and of all others together, are held against it by Pearson's
 * chi-square test; both sides must not be refused at LEVEL.
 *
 * A third side shows that the test can fail: there the first draft is taken
 * whenever a random number is below its probability, and if not a token is
 * drawn from the whole target, the classical mistake (a draft of probability p
 * then comes with 2p - p^2). It must be refused.
 *
 * Exit 0 when all three are as they should be.
 */
#include <getopt.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "convert/convert.h"
#include "engine/engine.h"
#include "engine/sampler.h"

#define LEVEL     0.01
#define SEQS      32 /* samples of one step */
#define FIRST_MAX 64 /* first tokens whose successors are looked at */
#define CELLS_MAX 2048
#define CELL_MIN  20.0 /* expected count of a cell */
#define PROMPT    12

struct cell {
    int32_t a, b;
    double p;
    uint64_t seen;
};

struct trial {
    struct engine *g;
    struct engine_seq *prompt; /* all but the last token */
    int32_t last;
    uint32_t vocab;
    uint32_t n_first;
    int32_t first[FIRST_MAX]; /* likeliest first */
    double p_first[FIRST_MAX];
    uint32_t n_cells; /* the last one is everything else */
    struct cell cell[CELLS_MAX];
    uint32_t drafted, accepted;
};

enum side { PLAIN, DRAFTS, WRONG };

static const char *const side_name[] = {"without drafts", "with drafts",
                                        "wrong rule"};

static void need(int rc, const struct err *e)
{
    if (rc < 0) {
        (void)err_print(e);
        exit(1);
    }
}

static struct msg_sampling sampling(uint64_t seed)
{
    struct msg_sampling p;
    msg_sampling_init(&p);
    p.temperature = 1.3F;
    p.min_p = 0.01F;
    p.seed = seed;
    p.no_logprob = true;
    return p;
}

/* --- what should come --- */

/* The target after seq + tokens; copied to p (vocab). */
static void target(struct trial *t, const int32_t *tokens, uint32_t n,
                   struct sampler *s, double *p)
{
    struct err e;
    struct engine_seq *q = NULL;
    const float *logits = NULL;
    struct msg_sampling how = sampling(0);
    uint32_t length = engine_seq_length(t->prompt);
    need(engine_seq_fork(t->prompt, length, &q, &e), &e);
    need(engine_eval(q, tokens, n, 0, 1, &logits, NULL, &e), &e);
    float *x = malloc(t->vocab * sizeof(*x));
    must(x != NULL);
    memcpy(x, logits, t->vocab * sizeof(*x));
    memcpy(p, sampler_probs(s, x, &how, NULL, 0, 0), t->vocab * sizeof(*p));
    free(x);
    engine_seq_close(q);
}

static void first_tokens(struct trial *t, const double *p)
{
    for (int32_t i = 0; i < (int32_t)t->vocab; i++) {
        uint32_t at = t->n_first;
        while (at > 0 && p[i] > t->p_first[at - 1]) {
            at--;
        }
        if (at == FIRST_MAX || !(p[i] > 0)) {
            continue;
        }
        uint32_t keep = t->n_first < FIRST_MAX ? t->n_first : FIRST_MAX - 1;
        memmove(t->first + at + 1, t->first + at,
                (keep - at) * sizeof(*t->first));
        memmove(t->p_first + at + 1, t->p_first + at,
                (keep - at) * sizeof(*t->p_first));
        t->first[at] = i;
        t->p_first[at] = p[i];
        t->n_first = keep + 1;
    }
}

/* Pairs that are expected CELL_MIN times in n samples, then the rest. */
static void make_cells(struct trial *t, double n)
{
    struct err e;
    struct sampler *s = NULL;
    need(sampler_new(t->vocab, &s, &e), &e);
    double *p = malloc(t->vocab * sizeof(*p));
    must(p != NULL);
    double rest = 1;
    target(t, &t->last, 1, s, p);
    first_tokens(t, p);
    for (uint32_t i = 0; i < t->n_first; i++) {
        const int32_t pair[] = {t->last, t->first[i]};
        target(t, pair, 2, s, p);
        for (int32_t b = 0; b < (int32_t)t->vocab; b++) {
            double both = t->p_first[i] * p[b];
            if (both * n >= CELL_MIN && t->n_cells < CELLS_MAX - 1) {
                t->cell[t->n_cells++] =
                    (struct cell){.a = t->first[i], .b = b, .p = both};
                rest -= both;
            }
        }
    }
    t->cell[t->n_cells++] = (struct cell){.a = -1, .b = -1, .p = rest};
    free(p);
    sampler_free(s);
}

/* --- what comes --- */

struct sample {
    struct engine_seq *seq;
    struct msg_row row;
    struct msg_row_done done;
    int32_t in[2], out[2];
    uint32_t n_out;
};

static void step(struct trial *t, struct sample *s, size_t n)
{
    static struct engine_row rows[SEQS];
    struct engine_times times = {0};
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i].n_out < 2) {
            rows[k++] = (struct engine_row){
                .seq = s[i].seq, .row = &s[i].row, .done = &s[i].done};
        }
    }
    if (k > 0) {
        engine_step_rows(t->g, rows, k, &times);
    }
    for (size_t i = 0; i < k; i++) {
        need(rows[i].rc, &rows[i].err);
    }
    for (size_t i = 0; i < n; i++) {
        for (uint32_t j = 0; s[i].n_out < 2 && j < s[i].done.n_tokens; j++) {
            s[i].out[s[i].n_out++] = s[i].done.tokens[j].id;
        }
    }
}

static void count(struct trial *t, const int32_t out[2])
{
    uint32_t i = 0;
    while (i + 1 < t->n_cells &&
           (t->cell[i].a != out[0] || t->cell[i].b != out[1])) {
        i++;
    }
    t->cell[i].seen++;
}

/* The wrong rule's first token, when it takes the draft. */
static bool takes(const struct trial *t, uint64_t seed, uint32_t draft)
{
    return sampler_random(~seed, 7, 0) < t->p_first[draft];
}

static void first_step(struct trial *t, struct sample *s, enum side side,
                       uint64_t seed)
{
    /* drafts of every likelihood, most of them likely ones */
    uint32_t draft =
        (uint32_t)(seed % 5 < 3 ? seed % 3 : seed % t->n_first) % t->n_first;
    s->row = (struct msg_row){.position = engine_seq_length(s->seq),
                              .n_tokens = 1,
                              .tokens = s->in,
                              .sample = true,
                              .sampling = sampling(seed)};
    s->in[0] = t->last;
    if (side == DRAFTS) {
        s->row.n_drafts = 2;
        s->row.drafts[0] = t->first[draft];
        s->row.drafts[1] = t->first[seed % t->n_first];
    }
    if (side == WRONG && takes(t, seed, draft)) {
        s->in[1] = t->first[draft];
        s->row.n_tokens = 2;
        s->row.out_index = 1;
        s->out[s->n_out++] = t->first[draft];
    }
}

/* Up to SEQS samples whose seeds begin at `seed`. */
static void batch(struct trial *t, enum side side, uint64_t seed, size_t n)
{
    static struct sample s[SEQS];
    struct err e;
    uint32_t length = engine_seq_length(t->prompt);
    memset(s, 0, sizeof(s));
    for (size_t i = 0; i < n; i++) {
        need(engine_seq_fork(t->prompt, length, &s[i].seq, &e), &e);
        first_step(t, &s[i], side, seed + i);
    }
    step(t, s, n);
    for (size_t i = 0; i < n; i++) {
        t->drafted += s[i].row.n_drafts > 0;
        t->accepted += s[i].row.n_drafts > 0 && s[i].done.n_accepted > 0;
        s[i].in[0] = s[i].out[0];
        s[i].row.position = engine_seq_length(s[i].seq);
        s[i].row.n_tokens = 1;
        s[i].row.n_drafts = 0;
        s[i].row.out_index = 1;
    }
    step(t, s, n);
    for (size_t i = 0; i < n; i++) {
        must(s[i].n_out == 2);
        count(t, s[i].out);
        engine_seq_close(s[i].seq);
    }
}

/* --- the test --- */

/* Upper incomplete gamma function over the complete one, a >= 1, by its series
 * or its continued fraction (Abramowitz and Stegun 6.5.29 and 6.5.31). */
static double gamma_q(double a, double x)
{
    double scale = exp(a * log(x) - x - lgamma(a));
    if (x < a + 1) {
        double term = 1 / a;
        double sum = term;
        for (double k = a + 1; term > sum * 1e-15; k++) {
            term *= x / k;
            sum += term;
        }
        return 1 - sum * scale;
    }
    double b = x + 1 - a;
    double c = 1e300;
    double d = 1 / b;
    double h = d;
    for (int i = 1; i < 10000; i++) {
        double an = -i * (i - a);
        b += 2;
        d = 1 / (an * d + b);
        c = b + an / c;
        h *= c * d;
        if (fabs(c * d - 1) < 1e-14) {
            break;
        }
    }
    return h * scale;
}

static double refuse(struct trial *t, double n, double *ret_chi)
{
    double chi = 0;
    for (uint32_t i = 0; i < t->n_cells; i++) {
        double want = t->cell[i].p * n;
        double off = (double)t->cell[i].seen - want;
        chi += off * off / want;
        t->cell[i].seen = 0;
    }
    *ret_chi = chi;
    return gamma_q((t->n_cells - 1) / 2.0, chi / 2);
}

static bool run(struct trial *t, enum side side, uint64_t n)
{
    uint64_t seed = 1 + (uint64_t)side * n;
    double chi = 0;
    for (uint64_t i = 0; i < n; i += SEQS) {
        batch(t, side, seed + i, n - i < SEQS ? (size_t)(n - i) : SEQS);
    }
    double p = refuse(t, (double)n, &chi);
    bool good = side == WRONG ? p < LEVEL : p > LEVEL;
    (void)printf("%-15s chi-square %10.1f, %u degrees of freedom, p %.3g: %s\n",
                 side_name[side], chi, t->n_cells - 1, p,
                 good ? "as it should be" : "WRONG");
    return good;
}

/* --- the model --- */

static void convert_and_open(struct trial *t, const char *gguf, char dir[256])
{
    char out[300];
    struct err e;
    struct convert_options o;
    struct convert_result r;
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(dir, 256, "%s/aned-lossless-XXXXXX",
                   tmp != NULL ? tmp : "/tmp");
    must(mkdtemp(dir) != NULL);
    (void)snprintf(out, sizeof(out), "%s/model", dir);
    convert_options_init(&o);
    o.source = gguf;
    o.out = out;
    need(convert_run(&o, &r, &e), &e);
    const struct engine_conf conf = {.threads = 2};
    need(engine_open(out, &conf, &t->g, &e), &e);
    t->vocab = engine_bundle(t->g)->vocab;
    int32_t tokens[PROMPT];
    for (int i = 0; i < PROMPT; i++) {
        tokens[i] = 40 + 7 * i;
    }
    t->last = tokens[PROMPT - 1];
    need(engine_seq_open(t->g, &t->prompt, &e), &e);
    need(engine_eval(t->prompt, tokens, PROMPT - 1, 0, 0, NULL, NULL, &e), &e);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"samples", required_argument, NULL, 's'},
        {"gguf",    required_argument, NULL, 'g'},
        {NULL,      0,                 NULL, 0  }
    };
    static struct trial t;
    const char *gguf = "conf/demo/aned-demo.gguf";
    uint64_t n = 200000;
    char dir[256];
    struct err e;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 's') {
            n = strtoull(optarg, NULL, 10);
        } else if (c == 'g') {
            gguf = optarg;
        } else {
            return 64;
        }
    }
    must(n >= 1000 && n < UINT64_C(1) << 40);
    convert_and_open(&t, gguf, dir);
    make_cells(&t, (double)n);
    (void)printf("%llu samples a side, %u pairs of tokens and %.3f of the mass "
                 "in one cell\n",
                 (unsigned long long)n, t.n_cells - 1, t.cell[t.n_cells - 1].p);
    if (t.n_cells < 10) {
        (void)fprintf(stderr, "lossless: too few pairs are likely enough to be "
                              "counted: more --samples\n");
        return 1;
    }
    bool good = run(&t, PLAIN, n);
    good = run(&t, DRAFTS, n) && good;
    (void)printf("first drafts accepted: %u of %u\n", t.accepted, t.drafted);
    good = run(&t, WRONG, n) && good && t.accepted > 0;
    engine_seq_close(t.prompt);
    engine_close(t.g);
    need(file_rmtree(dir, &e), &e);
    return good ? 0 : 1;
}
