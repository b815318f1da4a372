/* Programs with more operands, results, widths, heads or positions than any
 * table of fixed size would hold: what the interpreter runs, the backend cpu
 * runs too, as rows where nothing stands against it. */
#include "proto/limits.h"
#include "row_case.h"

enum { MANY = 300, LONG_STATE = MODEL_CONTEXT_MAX + 64 };

/* It compiles to rows, and these give the interpreter's results. */
static void as_rows(struct pkg *k, float bound)
{
    struct twin t = {.bound = bound, .seed = 5};
    struct backend_conf conf = {.threads = 2};
    pkg_finish(k);
    case_must(&t, twin_open(&t, k->path, &conf));
    if (t.rows->rows == NULL) {
        fail_msg("it runs as a whole: %s", t.rows->why_not_rows);
    }
    case_run(&t);
    twin_close(&t);
    pkg_end(k);
}

static void test_many_operands(void **state)
{
    (void)state;
    static const size_t counts[] = {8, 9, 17, MANY};
    for (size_t i = 0; i < countof(counts); i++) {
        struct mil_value *v[MANY];
        struct pkg k;
        pkg_begin(&k);
        struct mil_value *x = in4(&k, "x", 16, -1, 1);
        for (size_t n = 0; n < counts[i]; n++) {
            v[n] = slice(&k, x, 1, (int32_t)(n * 5 % 15),
                         (int32_t)(n * 5 % 15) + 2);
        }
        output(&k, mil_concat(k.p, k.f, "many", counts[i], v, 1));
        as_rows(&k, 0);
    }
}

static void test_many_results(void **state)
{
    (void)state;
    struct mil_value *v[MANY];
    struct pkg k;
    pkg_begin(&k); /* neighbours, and pieces of every head */
    mil_split(k.p, k.f, "parts", in4(&k, "x", MANY, -1, 1), MANY, 1, v);
    for (size_t i = 1; i < MANY; i++) {
        v[0] = two(&k, i % 2 == 0 ? "maximum" : "sub", v[0], v[i]);
    }
    output(&k, v[0]);
    as_rows(&k, 1e-6f);

    pkg_begin(&k);
    mil_split(k.p, k.f, "parts", in4(&k, "x", 3, -1, 12), 12, 3, v);
    for (size_t i = 1; i < 12; i++) {
        v[0] = two(&k, "sub", v[0], v[i]);
    }
    output(&k, v[0]);
    as_rows(&k, 1e-6f);
}

static void test_many_widths(void **state)
{
    (void)state;
    static const int forms[] = {ROW_OPS_INT8, ROW_OPS_FP16};
    for (size_t f = 0; f < countof(forms); f++) {
        struct pkg k;
        pkg_begin(&k);
        struct mil_value *x = in4(&k, "x", MANY, -1, 1);
        struct mil_value *sum = NULL;
        for (int32_t i = MANY; i > 0; i--) { /* the widest first */
            struct mil_value *v = conv(&k, slice(&k, x, 1, 0, i), 4, forms[f],
                                       i % 2 == 0, (uint32_t)i);
            sum = sum == NULL ? v : two(&k, "add", sum, v);
        }
        output(&k, sum);
        as_rows(&k, forms[f] == ROW_OPS_INT8 ? CASE_INT : CASE_REAL);
    }
}

/* The heads of an attention one by one, joined after. */
static void test_many_heads(void **state)
{
    (void)state;
    enum { HEADS = 20, DIM = 8, POSITIONS = 80 };
    struct mil_value *blend[2];
    struct mil_value *o[HEADS];
    struct pkg k;
    pkg_begin(&k);
    struct mil_value *x = in4(&k, "x", 16, -1, 1);
    struct mil_value *mask = in4(&k, "mask", 1, -1, POSITIONS);
    struct mil_value *write = in4(&k, "write", 1, POSITIONS, -1);
    struct mil_value *v[3];
    for (uint32_t i = 0; i < 3; i++) {
        v[i] = heads(&k, conv(&k, x, HEADS * DIM, ROW_OPS_FP16, false, i),
                     HEADS, DIM);
    }
    v[1] = masked_write(&k, "keys", write, v[1], &blend[0]);
    v[2] = masked_write(&k, "values", write, v[2], &blend[1]);
    for (int32_t h = 0; h < HEADS; h++) {
        o[h] = attention(&k, slice(&k, v[0], 1, h, h + 1),
                         slice(&k, v[1], 1, h, h + 1),
                         slice(&k, v[2], 1, h, h + 1), mask, 0.3f);
    }
    output(&k, unheads(&k, mil_concat(k.p, k.f, "heads", HEADS, o, 1), HEADS,
                       DIM));
    as_rows(&k, CASE_KV);
}

/* A state that no block can hold is a flat one. */
static void test_large_states(void **state)
{
    (void)state;
    struct mil_value *blend[2];
    struct pkg k;
    pkg_begin(&k);
    struct mil_value *x = in4(&k, "x", 2, -1, 1);
    struct mil_value *mask = in4(&k, "mask", 1, -1, LONG_STATE);
    struct mil_value *write = in4(&k, "write", 1, LONG_STATE, -1);
    struct mil_value *v = heads(&k, x, 1, 2);
    struct mil_value *keys = masked_write(&k, "keys", write, v, &blend[0]);
    struct mil_value *values = masked_write(&k, "values", write, v, &blend[1]);
    v = attention(&k, v, keys, values, mask, 0.3f);
    output(&k, unheads(&k, v, 1, 2));
    case_check(&k, "!a state is too large", CASE_KV);
}

/* What a fused form does not take, its plain operations do. */
static void test_what_fused_forms_refuse(void **state)
{
    (void)state;
    static const int64_t di[4] = {1, 2, 3, 4};
    struct pkg k;
    pkg_begin(&k); /* a mask of one number a row */
    struct mil_value *x = in4(&k, "x", 2, -1, 8);
    struct mil_value *mask = in4(&k, "y", 1, -1, 1);
    struct mil_value *keys = noise4(&k, 2, 5, 8, 0, 1, 3);
    struct mil_value *s = matmul(&k, x, one(&k, "relu", keys), false, true);
    s = softmax(&k, two(&k, "add", s, mask), -1);
    output(&k, matmul(&k, s, one(&k, "abs", keys), false, false));
    case_check(&k, "step step step step", CASE_REAL);

    pkg_begin(&k); /* scores of integers */
    struct mil_value *q =
        mil_add_input(k.p, k.f, "q", MIL_INT32, 4, di, 1, 16);
    mask = in4(&k, "mask", 1, 3, 3);
    s = number(&k, matmul(&k, q, q, false, true));
    s = two(&k, "mul", s, num(&k, 0.01f));
    s = softmax(&k, two(&k, "add", s, mask), -1);
    output(&k, matmul(&k, s, in4(&k, "v", 2, 3, 8), false, false));
    case_check(&k, "!", CASE_REAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_operands),
        cmocka_unit_test(test_many_results),
        cmocka_unit_test(test_many_widths),
        cmocka_unit_test(test_many_heads),
        cmocka_unit_test(test_large_states),
        cmocka_unit_test(test_what_fused_forms_refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
