/* engine_steps.c - a bundle through the engine's own step code, for
 * tests/oracle/test_import.py.
 *
 *   engine_steps BUNDLE TOKENS.npy WIDTHS OUT
 *
 * WIDTHS: "4,4,1": tokens of each call, one after another on one sequence.
 * Written: OUT/stepK.npy, the logits (rows, vocab) of call K; OUT/STATE.npy,
 * each state at the end, of the first shard only.
 */
#include <string.h>

#include "base/npy.h"
#include "base/parse.h"
#include "engine/dense.h"
#include "engine/impl.h"

#define TOKENS_BYTES_MAX 65536u

static int save(const char *folder, const char *name, enum npy_type type,
                int rank, const int64_t *dims, const void *p, struct err *e)
{
    char path[512];
    int n = snprintf(path, sizeof(path), "%s/%s.npy", folder, name);
    return n > 0 && (size_t)n < sizeof(path)
               ? npy_write(path, type, rank, dims, p, e)
               : err_set(e, ERR_INVALID, "the path is too long");
}

static int run_steps(struct engine_seq *s, const struct npy *tokens,
                     const char *widths, const char *out, struct err *e)
{
    const int32_t *t = tokens->data;
    uint64_t at = 0;
    for (unsigned k = 0; *widths != '\0'; k++) {
        char name[32];
        const float *logits = NULL;
        uint64_t n = 0;
        widths = parse_digits(widths, tokens->count - at, &n);
        if (widths == NULL || n == 0) {
            return err_set(e, ERR_USAGE, "widths");
        }
        widths += *widths == ',' ? 1 : 0;
        RETERR(engine_eval(s, t + at, (uint32_t)n, 0, 2, &logits, NULL, e));
        at += n;
        (void)snprintf(name, sizeof(name), "step%u", k);
        const int64_t dims[] = {(int64_t)n, s->g->b->vocab};
        RETERR(save(out, name, NPY_F32, 2, dims, logits, e));
    }
    return 0;
}

static int save_states(struct engine_seq *s, const char *out, struct err *e)
{
    const struct unit *u = &s->g->shards[0].units[0];
    struct dense d;
    int rc = dense_init(&d, s->g->be, u->m, e);
    for (size_t i = 0; rc == 0 && i < u->info.n_states; i++) {
        const char *name = u->info.states[i].name;
        struct tensor t;
        rc = dense_state(&d, s->states[0], name, &t, e);
        rc = rc < 0 ? rc
                    : save(out, name, t.dtype == MIL_FP16 ? NPY_F16 : NPY_F32,
                           t.rank, t.dims, t.data, e);
    }
    dense_fini(&d);
    return rc;
}

int main(int argc, char **argv)
{
    const struct engine_conf conf = {.threads = 1};
    struct engine *g = NULL;
    struct engine_seq *s = NULL;
    struct npy tokens = {.data = NULL};
    struct err e = {0};
    int rc = 0;
    if (argc != 5) {
        (void)fprintf(stderr, "engine_steps BUNDLE TOKENS WIDTHS OUT\n");
        return EXIT_USAGE;
    }
    CHECK(npy_read(argv[2], TOKENS_BYTES_MAX, &tokens, &e));
    if (tokens.type != NPY_I32 || tokens.rank != 1) {
        rc = err_set(&e, ERR_NPY, "%s: not a list of int32", argv[2]);
        goto out;
    }
    CHECK(engine_open(argv[1], &conf, &g, &e));
    CHECK(engine_seq_open(g, &s, &e));
    CHECK(run_steps(s, &tokens, argv[3], argv[4], &e));
    CHECK(save_states(s, argv[4], &e));
out:
    engine_seq_close(s);
    engine_close(g);
    npy_fini(&tokens);
    return rc < 0 ? err_print(&e) : EXIT_SUCCESS;
}
