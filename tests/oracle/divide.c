/* divide.c - a bundle's programs divided where the caller says, as `aned
 * reshard` does it by a profile: for tests/oracle/test_families.py.
 *
 *   divide BUNDLE OUT CUTS SHAPE KV
 *
 * CUTS: "1,3,5": layers with which a program begins, beside the first; "": one
 * program. SHAPE, KV: as of `aned convert`. Prints a line a gate.
 */
#include <string.h>

#include "base/parse.h"
#include "convert/reshard.h"
#include "model/bundle.h"

static int read_cuts(const char *text, const struct bundle *b, struct plan *p,
                     struct err *e)
{
    uint32_t at = 0;
    while (*text != '\0') {
        uint64_t cut = 0;
        text = parse_digits(text, b->n_layers - 1, &cut);
        if (text == NULL || cut <= at || p->n_shards + 1 >= SHARDS_MAX) {
            return err_set(e, ERR_USAGE, "cuts");
        }
        text += *text == ',' ? 1 : 0;
        p->shards[p->n_shards++] = (struct plan_range){at, (uint32_t)cut};
        at = (uint32_t)cut;
    }
    p->shards[p->n_shards++] = (struct plan_range){at, b->n_layers};
    p->n_heads = 1;
    p->heads[0] = (struct plan_range){0, b->vocab};
    return 0;
}

static int divide(char **argv, struct plan *p, struct err *e)
{
    struct convert_options o;
    struct convert_result r;
    struct bundle *b = NULL;
    convert_options_init(&o);
    o.bundle = argv[1];
    o.out = argv[2];
    o.shape = argv[4];
    o.kv = argv[5];
    RETERR(bundle_open(argv[1], &b, e));
    int rc = read_cuts(argv[3], b, p, e);
    bundle_close(b);
    RETERR(rc);
    RETERR(reshard_as(&o, p, &r, e));
    for (size_t i = 0; i < r.n_gates; i++) {
        (void)printf("%s %s: %s\n", r.gates[i].name, r.gates[i].verdict,
                     r.gates[i].detail);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct plan *p = calloc(1, sizeof(*p));
    must(p != NULL);
    if (argc != 6) {
        (void)fputs("usage: divide BUNDLE OUT CUTS SHAPE KV\n", stderr);
        return EXIT_USAGE;
    }
    int rc = divide(argv, p, &e);
    free(p);
    return rc < 0 ? err_print(&e) : EXIT_SUCCESS;
}
