/* Row programs pass by pass: what each of them changes, and that any of the
 * last ones may be left out. */
#include "row_case.h"

enum { S = 32 };

/* A layer with something for every pass. */
static void make(struct pkg *k)
{
    struct mil_value *blend = NULL;
    struct mil_value *o[2];
    pkg_begin(k);
    struct mil_value *x = in4(k, "x", 64, -1, 1);
    struct mil_value *c = in4(k, "c", 1, -1, 8);
    struct mil_value *s = in4(k, "s", 1, -1, 8);
    struct mil_value *mask = in4(k, "mask", 1, -1, S);
    struct mil_value *write = in4(k, "write", 1, S, -1);
    struct mil_value *m = reduce(k, "reduce_mean", two(k, "mul", x, x), 1);
    m = one(k, "rsqrt", two(k, "add", m, num(k, 0.01f)));
    struct mil_value *h = two(k, "mul", x, m);
    h = two(k, "mul", h, noise4(k, 64, 1, 1, 1, 0.5f, 1));
    struct mil_value *q =
        heads(k, conv(k, h, 64, ROW_OPS_FP16, false, 1), 4, 16);
    struct mil_value *a =
        heads(k, conv(k, h, 32, ROW_OPS_FP16, false, 2), 2, 16);
    struct mil_value *b =
        heads(k, conv(k, h, 32, ROW_OPS_FP16, false, 3), 2, 16);
    struct mil_value *lo = slice(k, q, 3, 0, 8);
    struct mil_value *hi = slice(k, q, 3, 8, 16);
    o[0] = two(k, "sub", two(k, "mul", lo, c), two(k, "mul", hi, s));
    o[1] = two(k, "add", two(k, "mul", hi, c), two(k, "mul", lo, s));
    q = mil_concat(k->p, k->f, "rope", 2, o, -1);
    a = masked_write(k, "k_state", write, a, &blend);
    b = masked_write(k, "v_state", write, b, &blend);
    for (int i = 0; i < 2; i++) {
        o[i] = attention(k, slice(k, q, 1, 2 * i, 2 * i + 2),
                         slice(k, a, 1, i, i + 1), slice(k, b, 1, i, i + 1),
                         mask, 0.25f);
    }
    x = two(k, "add", x,
            unheads(k, mil_concat(k->p, k->f, "heads", 2, o, 1), 4, 16));
    output(k, two(k, "mul", one(k, "silu", x), x));
    pkg_finish(k);
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at++) {
        n++;
    }
    return n;
}

static void test_each_pass(void **state)
{
    (void)state;
    /* "= KIND " in the program's text after the pass */
    static const struct {
        const char *pass, *kind;
        int before, behind;
    } want[] = {
        {"states",      "= attend ", 0, 2},
        {"norm",        "= norm ",   0, 1},
        {"rope",        "= rope ",   0, 1},
        {"linear",      "= linear ", 0, 3},
        {"elementwise", "= unary ",  0, 1},
        {"glu",         "= glu ",    0, 1},
        {"heads",       "= attend ", 2, 1},
        {"share",       "= linear ", 3, 1},
    };
    struct pkg k;
    struct err e = {0};
    char *text[16] = {0};
    int n = 0;
    make(&k);
    for (; cpu_pass((size_t)n) != NULL; n++) {
        const struct cpu_conf cpu = {.after = cpu_pass((size_t)n)};
        struct backend_conf conf = {.threads = 1, .cpu = &cpu};
        struct buf b;
        k.b = &backend_cpu;
        unit_ok(k.b->open(k.path, NULL, &conf, &k.m, &e), &e);
        buf_init(&b, 1 << 20);
        cpu_dump(k.m, &b);
        assert_true(buf_ok(&b));
        text[n] = b.p;
        pkg_close(&k);
    }
    assert_int_equal(n, 11);
    for (size_t i = 0; i < countof(want); i++) {
        for (int p = 0; p < n; p++) {
            if (strcmp(want[i].pass, cpu_pass((size_t)p)) == 0) {
                assert_int_equal(count(text[p], want[i].kind), want[i].behind);
                if (p > 0) {
                    assert_int_equal(count(text[p - 1], want[i].kind),
                                     want[i].before);
                }
            }
        }
    }
    /* all of them: what runs without being told */
    struct buf b;
    pkg_open(&k, &backend_cpu, 1, false);
    buf_init(&b, 1 << 20);
    cpu_dump(k.m, &b);
    assert_string_equal(text[n - 1], b.p);
    buf_fini(&b);
    for (int p = 0; p < n; p++) {
        free(text[p]);
    }
    pkg_end(&k);
}

static void test_without_the_last_passes(void **state)
{
    (void)state;
    struct pkg k;
    make(&k);
    for (size_t i = 0; cpu_pass(i) != NULL; i++) {
        struct twin t = {.bound = CASE_KV, .seed = 5};
        const struct cpu_conf cpu = {.after = cpu_pass(i)};
        struct backend_conf conf = {.threads = 2, .cpu = &cpu};
        case_must(&t, twin_open(&t, k.path, &conf));
        if (t.info.rows_max > 0) {
            case_run(&t);
        } else { /* heads that only the pass over heads joins */
            assert_true(i < 8);
            case_must(&t, twin_whole(&t, 0, 3));
        }
        twin_close(&t);
    }
    pkg_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_pass),
        cmocka_unit_test(test_without_the_last_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
