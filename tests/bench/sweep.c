/* sweep.c - does a row's result depend on anything but its sequence?
 *
 * Lines of random tokens are evaluated once for reference, one token at a time
 * on one thread with the plainest kernels, and then in cells: every instruction
 * set of the machine, 1, 2 and 5 threads, chunks of 1, 7, 64, 512 and random
 * sizes, alone and with 1 to 7 other lines in random mixtures, after forks,
 * cuts and rejected drafts, and as steps that draw. Bits are compared. Cells
 * are the whole product of these, or a seeded choice in which every two levels
 * of different factors meet.
 *
 * Output: how many cells were run and were identical; at a difference, the
 * first one's cell, position and token. Exit code 1 says that there was one.
 */
#include "sweep.h"

#include <assert.h>
#include <getopt.h>
#include <string.h>

#include "base/num.h"

#define EXIT_DIFFERENT 1
#define EXIT_WRONG_USE 64
#define EXIT_COLUMNS   69
#define EXIT_FAILED    70

#define CELLS_MAX 8192u
#define TRIES     24 /* random cells from which a cover takes the best */

static const char usage[] =
    "usage: sweep BUNDLE [--cells N] [--positions N] [--longest N] [--seed N]\n"
    "\n"
    "  --cells N      at least so many, every pair of levels among them\n"
    "                 (default: the whole product)\n"
    "  --positions N  of each line, at most (default 40)\n"
    "  --longest N    of the longest line (default: as the others)\n"
    "  --seed N       (default 1)\n"
    "  --seconds N    for cells, the same time for each engine; what it does\n"
    "                 not allow is left out, and said\n"
    "  --best         the best set of kernels alone, against the plainest\n";

static const unsigned threads[] = {1, 2, 5};
static const unsigned chunks[] = {1, 7, 64, 512, 0};
static const char *const histories[] = {"fresh",     "longer", "shorter",
                                        "truncated", "drafts", "steps"};
static_assert(countof(histories) == HISTORIES, "names");

struct count {
    unsigned cells, identical;
};

struct sweep {
    const char *bundle;
    unsigned cells_min; /* 0: the product */
    uint32_t positions, longest;
    bool best;
    uint64_t engine_us; /* for the cells of an engine; 0: no limit */
    uint64_t seed, random;
    struct line line[SWEEP_LINES];
    struct engine *reference;
    size_t isas; /* in cells */
    const char *plainest;
    unsigned levels[FACTORS];
    unsigned n_cells;
    struct cell *cells; /* CELLS_MAX */
    struct count all, by_engine[8][countof(threads)][HISTORIES];
    struct count by_batch[countof(chunks)][SWEEP_LINES];
    struct tally tally;
    struct difference first;
};

/* --- the reference --- */

static int engine_for(const struct sweep *s, const char *isa, unsigned n,
                      struct engine **ret, struct err *e)
{
    struct engine_conf conf = {.threads = n, .isa = isa};
    return engine_open_with(sweep_backend(), s->bundle, &conf, ret, e);
}

struct referee {
    struct line *l;
    size_t vocab;
};

static int on_reference(void *ctx, uint32_t first, uint32_t n,
                        float *logits, struct err *e)
{
    const struct referee *r = ctx;
    (void)e;
    for (uint32_t i = 0; i < n; i++) {
        r->l->hash[first + i] = bits_hash(logits + i * r->vocab, r->vocab);
    }
    return 0;
}

/* What the line's steps draw after its prompt. */
static int draw_line(struct engine *g, struct line *l, struct err *e)
{
    struct engine_seq *q = NULL;
    int rc = engine_seq_open(g, &q, e);
    int32_t token = 0;
    rc = rc < 0 ? rc : engine_seq_expect(q, l->n, e);
    for (uint32_t at = 0; rc == 0 && at < l->prompt + l->n_drawn - 1; at++) {
        uint32_t out = at - (l->prompt - 1);
        struct msg_row_done done;
        struct msg_row row = {.position = at,
                              .n_tokens = 1,
                              .tokens =
                                  at < l->prompt ? &l->tokens[at] : &token,
                              .sample = at >= l->prompt - 1,
                              .n_prompt = l->prompt};
        row.out_index = row.sample ? out : 0;
        line_sampling(l, &row.sampling);
        rc = engine_step(q, &row, &done, NULL, e);
        if (rc == 0 && row.sample) {
            l->drawn[out] = done.tokens[0];
            token = done.tokens[0].id;
        }
    }
    engine_seq_close(q);
    return rc;
}

static int line_make(struct sweep *s, struct line *l, uint32_t n, struct err *e)
{
    uint32_t vocab = engine_bundle(s->reference)->vocab;
    uint32_t short_max = bundle_short_max(engine_bundle(s->reference));
    struct referee r = {.l = l, .vocab = vocab};
    struct engine_seq *q = NULL;
    n -= n == short_max + 1; /* it would have no token to draw */
    l->n = n;
    l->prompt = 1 + draw(&s->random, n / 2);
    if (n > short_max) { /* no token is drawn at the other list's length */
        l->prompt = short_max + 1 + draw(&s->random, n - short_max - 1);
    }
    l->n_drawn = (uint32_t)num_min(n - l->prompt, s->positions);
    l->seed = draw_bits(&s->random);
    l->tokens = calloc(n, sizeof(*l->tokens));
    l->hash = calloc(n, sizeof(*l->hash));
    l->drawn = calloc(l->n_drawn, sizeof(*l->drawn));
    must(l->tokens != NULL && l->hash != NULL && l->drawn != NULL);
    for (uint32_t i = 0; i < n; i++) {
        l->tokens[i] = (int32_t)draw(&s->random, vocab);
    }
    int rc = engine_seq_open(s->reference, &q, e);
    rc = rc < 0 ? rc : engine_seq_expect(q, n, e);
    if (rc == 0) {
        rc = engine_eval_rows(q, l->tokens, n, 1, on_reference, &r, NULL, e);
    }
    engine_seq_close(q);
    return rc < 0 ? rc : draw_line(s->reference, l, e);
}

static int lines_make(struct sweep *s, struct err *e)
{
    int rc = engine_for(s, s->plainest, 1, &s->reference, e);
    for (unsigned i = 0; rc == 0 && i < SWEEP_LINES; i++) {
        uint32_t least = (s->positions + 2) / 3;
        uint32_t n = least + draw(&s->random, s->positions - least + 1);
        rc = line_make(s, &s->line[i], i == 0 ? s->longest : n, e);
    }
    return rc;
}

static void lines_free(struct sweep *s)
{
    for (unsigned i = 0; i < SWEEP_LINES; i++) {
        free(s->line[i].tokens);
        free(s->line[i].hash);
        free(s->line[i].drawn);
    }
}

/* --- cells --- */

static struct cell cell_of(struct sweep *s, const unsigned *level)
{
    struct cell c = {.seed = draw_bits(&s->random)};
    memcpy(c.level, level, sizeof(c.level));
    c.chunk = chunks[level[BY_CHUNK]];
    return c;
}

static void product(struct sweep *s)
{
    unsigned level[FACTORS] = {0};
    for (unsigned f = 0; f < FACTORS;) {
        must(s->n_cells < CELLS_MAX);
        s->cells[s->n_cells++] = cell_of(s, level);
        for (f = 0; f < FACTORS && ++level[f] == s->levels[f]; f++) {
            level[f] = 0;
        }
    }
}

#define LEVELS_MAX 8

/* Pairs of levels that no cell has had. */
struct cover {
    bool met[FACTORS][LEVELS_MAX][FACTORS][LEVELS_MAX];
};

static unsigned fresh_pairs(struct cover *v, const unsigned *level, bool mark)
{
    unsigned n = 0;
    for (unsigned a = 0; a < FACTORS; a++) {
        for (unsigned b = a + 1; b < FACTORS; b++) {
            bool *met = &v->met[a][level[a]][b][level[b]];
            n += !*met;
            *met = *met || mark;
        }
    }
    return n;
}

/* Whether a pair is left; it is then in level. */
static bool missing_pair(const struct sweep *s, const struct cover *v,
                         unsigned *level)
{
    for (unsigned a = 0; a < FACTORS; a++) {
        for (unsigned b = a + 1; b < FACTORS; b++) {
            for (unsigned i = 0; i < s->levels[a] * s->levels[b]; i++) {
                unsigned la = i % s->levels[a];
                unsigned lb = i / s->levels[a];
                if (!v->met[a][la][b][lb]) {
                    level[a] = la;
                    level[b] = lb;
                    return true;
                }
            }
        }
    }
    return false;
}

static void pairs(struct sweep *s)
{
    struct cover v = {0};
    for (bool more = true; more || s->n_cells < s->cells_min;) {
        unsigned best[FACTORS];
        unsigned gain = 0;
        for (int i = 0; i < TRIES; i++) {
            unsigned level[FACTORS];
            for (unsigned f = 0; f < FACTORS; f++) {
                level[f] = draw(&s->random, s->levels[f]);
            }
            more = missing_pair(s, &v, level);
            unsigned n = fresh_pairs(&v, level, false);
            if (i == 0 || n > gain) {
                memcpy(best, level, sizeof(best));
                gain = n;
            }
        }
        if (more || s->n_cells < s->cells_min) {
            must(s->n_cells < CELLS_MAX);
            (void)fresh_pairs(&v, best, true);
            s->cells[s->n_cells++] = cell_of(s, best);
        }
    }
}

/* --- running them --- */

static void count(struct count *c, bool identical)
{
    c->cells++;
    c->identical += identical;
}

static int run_cell(struct sweep *s, struct engine *g, const struct cell *c,
                    struct err *e)
{
    uint64_t before = s->tally.different;
    int rc = cell_run(g, c, s->line, SWEEP_LINES, &s->tally, &s->first, e);
    if (rc < 0) {
        return rc;
    }
    bool same = s->tally.different == before;
    const unsigned *l = c->level;
    count(&s->all, same);
    count(&s->by_engine[l[BY_ISA]][l[BY_THREADS]][l[BY_HISTORY]], same);
    count(&s->by_batch[l[BY_CHUNK]][l[BY_COMPANY]], same);
    return 0;
}

/* Cells of one engine after the other. */
static int run_all(struct sweep *s, struct err *e)
{
    for (unsigned isa = 0; isa < s->isas; isa++) {
        for (unsigned t = 0; t < countof(threads); t++) {
            struct engine *g = NULL;
            int rc = engine_for(s, cpu_isa(isa), threads[t], &g, e);
            uint64_t from = now_us();
            for (unsigned i = 0; rc == 0 && i < s->n_cells; i++) {
                const unsigned *l = s->cells[i].level;
                if (s->engine_us > 0 && now_us() - from > s->engine_us) {
                    break;
                }
                if (l[BY_ISA] == isa && l[BY_THREADS] == t) {
                    rc = run_cell(s, g, &s->cells[i], e);
                }
            }
            engine_close(g);
            if (rc < 0) {
                return rc;
            }
        }
    }
    return 0;
}

/* --- what came out --- */

static void print_count(const struct count *c)
{
    char text[32] = "-";
    if (c->cells > 0) {
        (void)snprintf(text, sizeof(text), "%u/%u", c->identical, c->cells);
    }
    (void)printf(" %9s", text);
}

static void print_matrix(const struct sweep *s)
{
    (void)printf("identical/cells\n%-18s", "");
    for (unsigned h = 0; h < HISTORIES; h++) {
        (void)printf(" %9s", histories[h]);
    }
    for (unsigned i = 0; i < s->isas; i++) {
        for (unsigned t = 0; t < countof(threads); t++) {
            (void)printf("\n%-8s %u thread%c", cpu_isa(i), threads[t],
                         threads[t] > 1 ? 's' : ' ');
            for (unsigned h = 0; h < HISTORIES; h++) {
                print_count(&s->by_engine[i][t][h]);
            }
        }
    }
    (void)printf("\n%-18s", "");
    for (unsigned k = 0; k < SWEEP_LINES; k++) {
        (void)printf("    with %u", k);
    }
    for (unsigned i = 0; i < countof(chunks); i++) {
        char name[32] = "chunks at random";
        if (chunks[i] > 0) {
            (void)snprintf(name, sizeof(name), "chunks of %u", chunks[i]);
        }
        (void)printf("\n%-18s", name);
        for (unsigned k = 0; k < SWEEP_LINES; k++) {
            print_count(&s->by_batch[i][k]);
        }
    }
    (void)printf("\n");
}

struct again {
    size_t vocab;
    uint32_t want;
    float *row;
};

static int on_again(void *ctx, uint32_t first, uint32_t n, float *logits,
                    struct err *e)
{
    const struct again *a = ctx;
    (void)e;
    if (a->want >= first && a->want < first + n) {
        memcpy(a->row, logits + (a->want - first) * a->vocab,
               a->vocab * sizeof(*logits));
    }
    return 0;
}

/* The first number that is not the reference's. */
static int print_logits(struct sweep *s, struct err *e)
{
    const struct difference *d = &s->first;
    const struct line *l = &s->line[d->line];
    struct again a = {.vocab = engine_bundle(s->reference)->vocab,
                      .want = d->position};
    struct engine_seq *q = NULL;
    a.row = calloc(a.vocab, sizeof(*a.row));
    must(a.row != NULL);
    int rc = engine_seq_open(s->reference, &q, e);
    rc = rc < 0 ? rc : engine_seq_expect(q, l->n, e);
    if (rc == 0) {
        rc = engine_eval_rows(q, l->tokens, d->position + 1, 1, on_again, &a,
                              NULL, e);
    }
    size_t n = 0;
    size_t at = a.vocab;
    for (size_t i = a.vocab; rc == 0 && i-- > 0;) {
        bool same = memcmp(&a.row[i], &d->logits[i], sizeof(*a.row)) == 0;
        at = same ? at : i;
        n += !same;
    }
    if (rc == 0 && at < a.vocab) {
        (void)printf("  logit of token %zu is %a, not %a; %zu of %zu differ\n",
                     at, (double)d->logits[at], (double)a.row[at], n, a.vocab);
    }
    engine_seq_close(q);
    free(a.row);
    return rc;
}

static int print_first(struct sweep *s, struct err *e)
{
    const struct difference *d = &s->first;
    const unsigned *l = d->cell.level;
    const struct line *line = &s->line[d->line];
    (void)printf("first difference: %s, %u threads, chunk %u%s, with %u, %s, "
                 "seed %016llx\n",
                 cpu_isa(l[BY_ISA]), threads[l[BY_THREADS]], d->cell.chunk,
                 d->cell.chunk == 0 ? " (random)" : "", l[BY_COMPANY],
                 histories[l[BY_HISTORY]], (unsigned long long)d->cell.seed);
    (void)printf("  line %u of %u tokens, position %u", d->line, line->n,
                 d->position);
    if (d->logits != NULL) {
        (void)printf(", token %d\n", line->tokens[d->position]);
        return print_logits(s, e);
    }
    const struct msg_token *want = &line->drawn[d->position - line->prompt];
    (void)printf("\n  drawn: token %d, log probability %a; not %d, %a\n",
                 d->drawn.id, (double)d->drawn.logprob, want->id,
                 (double)want->logprob);
    return 0;
}

/* --- main --- */

static bool number(const char *text, unsigned long min, unsigned long max,
                   unsigned long *ret)
{
    char *end = NULL;
    *ret = strtoul(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && *ret >= min &&
           *ret <= max;
}

static bool parse(int argc, char **argv, struct sweep *s)
{
    static const struct option longs[] = {
        {"cells",     required_argument, NULL, 'c'},
        {"positions", required_argument, NULL, 'p'},
        {"longest",   required_argument, NULL, 'l'},
        {"seed",      required_argument, NULL, 's'},
        {"seconds",   required_argument, NULL, 't'},
        {"best",      no_argument,       NULL, 'b'},
        {NULL,        0,                 NULL, 0  },
    };
    int opt = 0;
    unsigned long n = 0;
    s->positions = 40;
    s->seed = 1;
    while ((opt = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        if (opt == 'c' && number(optarg, 1, CELLS_MAX, &n)) {
            s->cells_min = (unsigned)n;
        } else if (opt == 'p' && number(optarg, 4, 4096, &n)) {
            s->positions = (uint32_t)n;
        } else if (opt == 'l' && number(optarg, 4, 4096, &n)) {
            s->longest = (uint32_t)n;
        } else if (opt == 't' && number(optarg, 1, 86400, &n)) {
            s->engine_us = n * 1000000;
        } else if (opt == 'b') {
            s->best = true;
        } else if (opt == 's' && number(optarg, 0, UINT32_MAX, &n)) {
            s->seed = n;
        } else {
            return false;
        }
    }
    s->bundle = argc - optind == 1 ? argv[optind] : NULL;
    s->longest = s->longest > 0 ? s->longest : s->positions;
    return s->bundle != NULL;
}

static int sweep_run(struct sweep *s, struct err *e)
{
    while (cpu_isa(s->isas) != NULL) {
        s->isas++;
    }
    must(s->isas > 0 && s->isas <= countof(s->by_engine));
    s->plainest = cpu_isa(s->isas - 1);
    s->isas = s->best ? 1 : s->isas;
    s->engine_us /= s->isas * countof(threads);
    const unsigned levels[FACTORS] = {[BY_ISA] = (unsigned)s->isas,
                                      [BY_THREADS] = countof(threads),
                                      [BY_CHUNK] = countof(chunks),
                                      [BY_COMPANY] = SWEEP_LINES,
                                      [BY_LENGTH] = 2,
                                      [BY_HISTORY] = HISTORIES};
    memcpy(s->levels, levels, sizeof(levels));
    s->random = s->seed;
    s->cells = calloc(CELLS_MAX, sizeof(*s->cells));
    must(s->cells != NULL);
    int rc = lines_make(s, e);
    if (rc < 0 || s->reference->rows.max == 0) {
        return rc;
    }
    if (s->cells_min == 0) {
        product(s);
    } else {
        pairs(s);
    }
    return run_all(s, e);
}

static int report(struct sweep *s, double seconds, struct err *e)
{
    if (s->reference->rows.max == 0) {
        (void)printf("%s is not run as rows\n", s->bundle);
        return EXIT_COLUMNS;
    }
    print_matrix(s);
    (void)printf("%u cells (%s), %u identical; %llu positions compared, %llu "
                 "differ; %.1f s\n",
                 s->all.cells,
                 s->cells_min == 0 ? "the product" : "every pair of levels",
                 s->all.identical, (unsigned long long)s->tally.positions,
                 (unsigned long long)s->tally.different, seconds);
    for (size_t i = 0; sweep_lacks(i) != NULL; i++) {
        (void)printf("%s skipped: this machine lacks its instructions\n",
                     sweep_lacks(i));
    }
    if (s->all.cells < s->n_cells) {
        (void)printf("%u cells of %u left out: no time for them\n",
                     s->n_cells - s->all.cells, s->n_cells);
    }
    if (!s->first.any) {
        return EXIT_SUCCESS;
    }
    return print_first(s, e) < 0 ? EXIT_FAILED : EXIT_DIFFERENT;
}

int main(int argc, char **argv)
{
    struct sweep s = {0};
    struct err e;
    if (!parse(argc, argv, &s)) {
        (void)fputs(usage, stderr);
        return EXIT_WRONG_USE;
    }
    uint64_t from = now_us();
    int rc = sweep_run(&s, &e);
    int code = EXIT_FAILED;
    if (rc == 0) {
        code = report(&s, (double)(now_us() - from) * 1e-6, &e);
    }
    if (code == EXIT_FAILED) {
        (void)fprintf(stderr, "sweep: %s: %s\n", err_name(e.code), e.msg);
    }
    free(s.first.logits);
    engine_close(s.reference);
    lines_free(&s);
    free(s.cells);
    return code;
}
