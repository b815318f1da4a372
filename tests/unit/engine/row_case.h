/* row_case.h - a small program, what it must compile to, and that it gives the
 * interpreter's results. */
#pragma once

#include "engine/cpu/rows/row.h"
#include "row_ops.h"
#include "row_twin.h"

#define CASE_REAL 2e-5f /* products of fp32 and fp16 weights, no products */
#define CASE_INT  4e-4f /* products in integers */
#define CASE_KV   1e-3f /* keys and values in fp16: a last bit may differ */

static const char *const case_kinds[] = {
    [ROW_STEP] = "step",     [ROW_VIEW] = "view",   [ROW_LINEAR] = "linear",
    [ROW_NORM] = "norm",     [ROW_ROPE] = "rope",   [ROW_STORE] = "store",
    [ROW_ATTEND] = "attend", [ROW_UNARY] = "unary", [ROW_BINARY] = "binary",
    [ROW_GLU] = "glu",       [ROW_EXPERTS] = "experts",
};

/* The kinds of ops in order, "view norm linear". */
static inline void case_list(const struct row_program *p, char *out,
                             size_t size)
{
    size_t n = 0;
    out[0] = '\0';
    for (int i = 0; i < p->n_ops; i++) {
        if (p->ops[i].kind != ROW_DEAD && n < size) {
            n += (size_t)snprintf(out + n, size - n, "%s%s", n > 0 ? " " : "",
                                  case_kinds[p->ops[i].kind]);
        }
    }
}

static inline void case_must(struct twin *t, bool ok)
{
    if (!ok) {
        fail_msg("%s", t->why);
    }
}

/* Rows of one sequence in chunks, then three sequences at once. */
static inline void case_run(struct twin *t)
{
    static const uint8_t mixed[] = {1, 2, 1, 1, 2, 2, 1, 2, 2, 1};
    for (int i = 0; i < TWIN_SEQS; i++) {
        case_must(t, twin_reference(t, i, t->has_t ? 3 : 1));
        for (uint32_t n = 0; n < 4; n++) {
            case_must(t, twin_reference(t, i, t->has_t && n > 0 ? 2 : 1));
        }
    }
    case_must(t, twin_predict(t, 0, 1));
    case_must(t, twin_predict(t, 0, t->has_t ? 4 : 1));
    case_must(t, twin_rows(t, countof(mixed), mixed));
}

/* Finish the package. want: the kinds; or "!TEXT": it runs as a whole, for a
 * reason that has TEXT in it. */
static inline void case_check_window(struct pkg *k, const char *want,
                                     float bound, uint32_t window)
{
    char got[512];
    struct twin t = {.bound = bound, .seed = 5, .window = window};
    struct backend_conf conf = {.threads = 2};
    pkg_finish(k);
    case_must(&t, twin_open(&t, k->path, &conf));
    if (want[0] == '!') {
        const char *why = t.rows->why_not_rows;
        if (t.rows->rows != NULL) {
            case_list(t.rows->rows, got, sizeof(got));
            fail_msg("it runs as rows: %s", got);
        }
        if (why == NULL || strstr(why, want + 1) == NULL) {
            fail_msg("the reason is '%s'", why != NULL ? why : "not given");
        }
        case_must(&t, twin_whole(&t, 0, t.has_t ? 4 : 1));
        case_must(&t, twin_whole(&t, 0, 1));
    } else {
        if (t.rows->rows == NULL) {
            fail_msg("it runs as a whole: %s", t.rows->why_not_rows);
        }
        case_list(t.rows->rows, got, sizeof(got));
        assert_string_equal(got, want);
        case_run(&t);
    }
    twin_close(&t);
    pkg_end(k);
}

static inline void case_check(struct pkg *k, const char *want, float bound)
{
    case_check_window(k, want, bound, 0);
}
