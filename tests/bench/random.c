/* random.c - `./dev bench random`: random programs, compiled against the
 * interpreter. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../unit/engine/random_program.h"

static const char usage[] =
    "usage: ./dev bench random [--seed N] [--programs N] [--threads N]\n"
    "\n"
    "Makes up programs, runs them compiled and by the interpreter, and "
    "compares.\n"
    "A difference is printed with the program's seed; the exit code is then "
    "1.\n"
    "\n"
    "  --seed N      of the first program (1); the next has N + 1\n"
    "  --programs N  how many (10000)\n"
    "  --threads N   of the compiled side (2)\n"
    "  --verbose     a line for each program\n";

#define REASONS 64

struct reason {
    char text[160];
    unsigned n;
};

struct totals {
    uint64_t programs, failed, shaky, rows, mixes, all_passes;
    uint64_t ops, plain, attends, norms, ropes, linears;
    double worst; /* of a bound */
    uint64_t worst_seed;
    struct reason why[REASONS];
};

/* Why a program ran as a whole: without the names in it. */
static void add_reason(struct totals *t, const char *why)
{
    char text[160];
    size_t n = 0;
    for (; why[n] != '\0' && why[n] != ' ' && n < 80; n++) {
        text[n] = why[n];
    }
    const char *tail = strstr(why, " may ");
    tail = tail == NULL ? strstr(why, " reads ") : tail;
    tail = tail == NULL ? strstr(why, " depends ") : tail;
    (void)snprintf(text + n, sizeof(text) - n, "%.60s",
                   tail != NULL ? tail : why + n);
    for (int i = 0; i < REASONS; i++) {
        struct reason *r = &t->why[i];
        if (r->n == 0 || strcmp(r->text, text) == 0) {
            (void)snprintf(r->text, sizeof(r->text), "%s", text);
            r->n++;
            return;
        }
    }
}

static void add(struct totals *t, uint64_t seed, bool ok,
                const struct random_result *r)
{
    t->programs++;
    t->failed += !ok;
    t->shaky += r->shaky;
    t->mixes += r->mixes;
    t->all_passes += !r->mixes && !r->left_out;
    t->rows += r->rows && !r->left_out;
    t->ops += (uint64_t)r->ops;
    t->plain += (uint64_t)r->plain;
    t->attends += (uint64_t)r->attends;
    t->norms += (uint64_t)r->norms;
    t->ropes += (uint64_t)r->ropes;
    t->linears += (uint64_t)r->linears;
    if (r->worst / r->bound > t->worst) {
        t->worst = r->worst / r->bound;
        t->worst_seed = seed;
    }
    if (ok && !r->rows && !r->mixes && !r->left_out) {
        add_reason(t, r->why);
    }
}

static double percent(uint64_t part, uint64_t all)
{
    return all > 0 ? 100.0 * (double)part / (double)all : 0;
}

static void report(const struct totals *t)
{
    (void)printf("%" PRIu64 " programs, %" PRIu64 " differ\n", t->programs,
                 t->failed);
    (void)printf("%" PRIu64 " say nothing: a unit in the last place of their "
                 "inputs changes them as much\n",
                 t->shaky);
    (void)printf("%" PRIu64 " mix rows and run as a whole\n", t->mixes);
    (void)printf("of the others, %" PRIu64
                 " are compiled with all passes: %.1f "
                 "%% of these run as rows,\nand ",
                 t->all_passes, percent(t->rows, t->all_passes));
    (void)printf("%.1f %% of %" PRIu64 " ops have a form of their own: %" PRIu64
                 " products, %" PRIu64 " norms,\n%" PRIu64
                 " rotations, %" PRIu64 " attentions\n",
                 percent(t->ops - t->plain, t->ops), t->ops, t->linears,
                 t->norms, t->ropes, t->attends);
    (void)printf("largest error: %.2f of its bound (seed %" PRIu64 ")\n",
                 t->worst, t->worst_seed);
    for (int i = 0; i < REASONS && t->why[i].n > 0; i++) {
        (void)printf("  %u as a whole: %s\n", t->why[i].n, t->why[i].text);
    }
}

static bool number(const char *s, uint64_t *ret)
{
    char *end = NULL;
    *ret = strtoull(s, &end, 10);
    return *s != '\0' && *end == '\0';
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"seed",     required_argument, NULL, 's'},
        {"programs", required_argument, NULL, 'n'},
        {"threads",  required_argument, NULL, 't'},
        {"verbose",  no_argument,       NULL, 'v'},
        {"help",     no_argument,       NULL, 'h'},
        {NULL,       0,                 NULL, 0  },
    };
    uint64_t seed = 1;
    uint64_t programs = 10000;
    uint64_t threads = 2;
    bool verbose = false;
    int c = 0;
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        bool ok = c != '?';
        if (c == 'h') {
            (void)fputs(usage, stdout);
            return EXIT_SUCCESS;
        }
        if (c == 'v') {
            verbose = true;
        } else if (ok) {
            ok = number(optarg, c == 's'   ? &seed
                                : c == 'n' ? &programs
                                           : &threads);
        }
        if (!ok) {
            (void)fputs(usage, stderr);
            return 64;
        }
    }
    static struct totals t;
    if (access("/dev/shm", W_OK) == 0) {
        (void)setenv("TMPDIR", "/dev/shm", 0); /* packages are synced */
    }
    for (uint64_t i = 0; i < programs; i++) {
        struct random_result r;
        bool ok = random_run(seed + i, (unsigned)threads, &r);
        add(&t, seed + i, ok, &r);
        if (!ok) {
            (void)printf("%s\n", r.why);
        } else if (verbose) {
            (void)printf("%" PRIu64 ": %s, %d ops, error %.3g of %.3g%s%s\n",
                         seed + i, r.rows ? "rows" : "whole", r.ops, r.worst,
                         r.bound, r.rows ? "" : ", ", r.rows ? "" : r.why);
        }
        if ((i + 1) % 1000 == 0) {
            (void)fprintf(stderr, "%" PRIu64 " programs\n", i + 1);
        }
        (void)fflush(stdout);
    }
    report(&t);
    return t.failed > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
