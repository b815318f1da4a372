/* main.c - the simulator by hand and under test (./dev sim).
 * Ends with 0 when every seed held, 1 when one broke, 64 for wrong use. */
#include <getopt.h>
#include <string.h>
#include <time.h>

#include "sim.h"

static int usage(FILE *to, int rc)
{
    (void)fputs("usage: sim [--seeds N] [--from S] [--seed S]\n"
                "  --seeds N  so many seeds (10000)\n"
                "  --from S   beginning with this one (1)\n"
                "  --seed S   this one alone, with its trace\n",
                to);
    return rc;
}

static bool parse(const char *s, uint64_t *ret)
{
    char *end = NULL;
    unsigned long long v = strtoull(s, &end, 10);
    *ret = v;
    return *s != '\0' && *s != '-' && *end == '\0';
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"seeds", required_argument, NULL, 'n'},
        {"from",  required_argument, NULL, 'f'},
        {"seed",  required_argument, NULL, 's'},
        {"help",  no_argument,       NULL, 'h'},
        {NULL,    0,                 NULL, 0  },
    };
    uint64_t n = 10000;
    uint64_t from = 1;
    bool one = false;
    struct sim_result r = {0};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        bool ok = c == 'h' || c == '?' || parse(optarg, c == 'n' ? &n : &from);
        if (c == 'h') {
            return usage(stdout, EXIT_SUCCESS);
        }
        if (c == '?' || !ok) {
            return usage(stderr, 64);
        }
        one = one || c == 's';
    }
    if (optind < argc) {
        return usage(stderr, 64);
    }
    n = one ? 1 : n;
    clock_t begin = clock();
    for (uint64_t seed = from; seed < from + n; seed++) {
        sim_run(seed, one ? stdout : NULL, &r);
        if (r.broken != NULL) {
            printf("seed %llu broke '%s': %s\n", (unsigned long long)seed,
                   r.broken, r.why);
            if (!one) { /* the same once more, told */
                struct sim_result again = {0};
                sim_run(seed, stdout, &again);
            }
            return EXIT_FAILURE;
        }
    }
    printf(
        "%llu seeds held in %.1f s: %llu steps, %llu tokens (%llu of them "
        "drafted), %llu streams finished, %llu cancelled, %llu late, %llu "
        "refused, %llu displaced, %llu places lost, %llu crashes, %llu tokens "
        "computed again by the long list\n",
        (unsigned long long)n, (double)(clock() - begin) / CLOCKS_PER_SEC,
        (unsigned long long)r.steps, (unsigned long long)r.tokens,
        (unsigned long long)r.accepted, (unsigned long long)r.finished,
        (unsigned long long)r.cancelled, (unsigned long long)r.late,
        (unsigned long long)r.refused, (unsigned long long)r.displaced,
        (unsigned long long)r.parked, (unsigned long long)r.crashes,
        (unsigned long long)r.again);
    return EXIT_SUCCESS;
}
