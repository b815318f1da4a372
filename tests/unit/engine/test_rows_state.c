/* Row programs: masked writes and attention over what was written, and states
 * and masks that are used in ways of their own. */
#include "row_case.h"

enum { S = 32, WINDOW = 4 }; /* positions; what a windowed row sees */

struct layer {
    int32_t heads, kv, dim, vdim;
    bool window; /* the mask shows the last positions only */
    bool blend;  /* attend over the value that was written, not a read of it */
};

/* What a layer has when its keys and values are stored. */
struct stored {
    struct mil_value *x, *q, *keys, *values, *mask, *write;
};

static struct stored begin(struct pkg *k, const struct layer *l)
{
    struct stored r = {0};
    struct mil_value *blend[2];
    pkg_begin(k);
    r.x = in4(k, "x", 64, -1, 1);
    r.mask = in4(k, l->window ? "window" : "mask", 1, -1, S);
    r.write = in4(k, "write", 1, S, -1);
    r.q = heads(k, conv(k, r.x, l->heads * l->dim, ROW_OPS_FP16, false, 1),
                l->heads, l->dim);
    struct mil_value *a = heads(
        k, conv(k, r.x, l->kv * l->dim, ROW_OPS_FP16, false, 2), l->kv, l->dim);
    struct mil_value *b =
        heads(k, conv(k, r.x, l->kv * l->vdim, ROW_OPS_FP16, false, 3), l->kv,
              l->vdim);
    r.keys = masked_write(k, "k_state", r.write, a, &blend[0]);
    r.values = masked_write(k, "v_state", r.write, b, &blend[1]);
    if (l->blend) {
        r.keys = blend[0];
        r.values = blend[1];
    }
    return r;
}

/* Counts of some kinds, "attend 1 store 2"; the rest is the passes' affair. */
static void check(struct pkg *k, int attends, int stores, const char *last)
{
    char got[512];
    struct backend_conf conf = {.threads = 2};
    struct twin t = {.bound = CASE_KV, .seed = 5, .window = WINDOW};
    int n[ROW_DEAD + 1] = {0};
    pkg_finish(k);
    case_must(&t, twin_open(&t, k->path, &conf));
    if (t.rows->rows == NULL) {
        fail_msg("it runs as a whole: %s", t.rows->why_not_rows);
    }
    for (int i = 0; i < t.rows->rows->n_ops; i++) {
        n[t.rows->rows->ops[i].kind]++;
    }
    case_list(t.rows->rows, got, sizeof(got));
    assert_int_equal(n[ROW_ATTEND], attends);
    assert_int_equal(n[ROW_STORE], stores);
    size_t tail = strlen(got) - strlen(last);
    assert_string_equal(got + tail, last);
    case_run(&t);
    twin_close(&t);
    pkg_end(k);
}

static void test_attention(void **state)
{
    (void)state;
    static const struct layer forms[] = {
        {4, 4, 16, 16, false, false},
        {4, 2, 16, 16, false, false},
        {4, 1, 16, 16, false, false},
        {1, 1, 16, 16, false, false}, /* a single head */
        {6, 2, 8,  8,  true,  false},
        {4, 4, 16, 16, true,  false},
        {4, 2, 16, 24, false, false}, /* values of another length */
        {4, 2, 20, 12, true,  false}, /* lengths that fill no block */
        {4, 4, 16, 16, false, true },
        {4, 2, 16, 16, true,  true },
    };
    for (size_t i = 0; i < countof(forms); i++) {
        const struct layer *l = &forms[i];
        struct pkg k;
        struct stored r = begin(&k, l);
        struct mil_value *o =
            attention(&k, r.q, r.keys, r.values, r.mask, 0.25f);
        output(&k, conv(&k, unheads(&k, o, l->heads, l->vdim), 40, ROW_OPS_FP16,
                        false, 4));
        check(&k, 1, 2, "view view linear");
    }
}

/* In pieces, a key's heads each, as the public converter writes it: joined to
 * one when the pieces stand in order. */
static void test_attention_in_pieces(void **state)
{
    (void)state;
    static const struct layer layers[] = {
        {4, 4, 16, 16, false, true},
        {4, 2, 16, 16, false, true},
    };
    for (int i = 0; i < 4; i++) {
        const struct layer *l = &layers[i & 1];
        struct pkg k;
        struct stored r = begin(&k, l);
        struct mil_value *o[4];
        int g = l->heads / l->kv;
        for (int h = 0; h < l->kv; h++) {
            struct mil_value *q = slice(&k, r.q, 1, h * g, (h + 1) * g);
            o[i < 2 ? h : l->kv - 1 - h] =
                attention(&k, q, slice(&k, r.keys, 1, h, h + 1),
                          slice(&k, r.values, 1, h, h + 1), r.mask, 0.25f);
        }
        struct mil_value *all =
            mil_concat(k.p, k.f, "heads", (size_t)l->kv, o, 1);
        output(&k,
               conv(&k, unheads(&k, all, 4, 16), 40, ROW_OPS_FP16, false, 4));
        if (i < 2) {
            check(&k, 1, 2, "attend view view linear");
        } else {
            case_check(&k, "!an attention reads some heads", CASE_KV);
        }
    }
}

static void test_two_layers_of_two_windows(void **state)
{
    (void)state;
    static const struct layer l = {4, 2, 16, 16, false, false};
    struct mil_value *blend = NULL;
    struct pkg k;
    struct stored r = begin(&k, &l);
    struct mil_value *o = attention(&k, r.q, r.keys, r.values, r.mask, 0.25f);
    struct mil_value *x =
        two(&k, "add", r.x,
            conv(&k, unheads(&k, o, 4, 16), 64, ROW_OPS_FP16, false, 4));
    struct mil_value *a =
        heads(&k, conv(&k, x, 32, ROW_OPS_FP16, false, 5), 2, 16);
    struct mil_value *b =
        heads(&k, conv(&k, x, 32, ROW_OPS_FP16, false, 6), 2, 16);
    a = masked_write(&k, "k1", r.write, a, &blend);
    b = masked_write(&k, "v1", r.write, b, &blend);
    o = attention(&k, heads(&k, conv(&k, x, 64, ROW_OPS_FP16, true, 7), 4, 16),
                  a, b, in4(&k, "window", 1, -1, S), 0.25f);
    output(&k, two(&k, "add", x, unheads(&k, o, 4, 16)));
    check(&k, 2, 4, "attend view view view binary");
}

/* --- what is not understood runs as a whole --- */

static const struct layer plain = {4, 2, 16, 16, false, false};

static struct mil_value *attend(struct pkg *k, const struct stored *r)
{
    return unheads(k, attention(k, r->q, r->keys, r->values, r->mask, 0.25f), 4,
                   16);
}

static void test_masks_that_are_numbers(void **state)
{
    (void)state;
    struct pkg k;
    struct stored r = begin(&k, &plain); /* the mask of the scores */
    struct mil_value *v = attend(&k, &r);
    output(&k, two(&k, "add", v, reduce(&k, "reduce_max", r.mask, -1)));
    case_check(&k, "!reads a mask", CASE_KV);

    r = begin(&k, &plain); /* the mask of the write */
    v = attend(&k, &r);
    output(&k, v);
    output(&k, one(&k, "exp", r.write));
    case_check(&k, "!reads a mask", CASE_KV);

    r = begin(&k, &plain); /* handed through */
    v = attend(&k, &r);
    output(&k, v);
    output(&k, one(&k, "identity", r.mask));
    case_check(&k, "!", CASE_KV);

    r = begin(&k, &plain); /* changed before it is added */
    r.mask = two(&k, "mul", r.mask, num(&k, 2));
    output(&k, attend(&k, &r));
    case_check(&k, "!", CASE_KV);
}

static void test_states_in_other_ways(void **state)
{
    (void)state;
    struct pkg k;
    struct stored r = begin(&k, &plain); /* keys that are values too */
    r.values = r.keys;
    output(&k, attend(&k, &r));
    case_check(&k, "!", CASE_KV);

    r = begin(&k, &plain); /* keys and values in the other's place */
    struct mil_value *a = attend(&k, &r);
    struct mil_value *keys = r.keys;
    r.keys = r.values;
    r.values = keys;
    output(&k, two(&k, "add", a, attend(&k, &r)));
    case_check(&k, "!a state is never written, or read in two ways", CASE_KV);

    r = begin(&k, &plain); /* read as numbers */
    a = attend(&k, &r);
    static const int32_t axes[3] = {1, 2, 3};
    struct mil_value *sum =
        reduce_over(&k, "reduce_sum", r.keys, 3, axes, true);
    output(&k, two(&k, "add", a, sum));
    case_check(&k, "!", CASE_KV);
}

/* What the fused attention would take but a row's stretch cannot say. */
static void test_other_attentions(void **state)
{
    (void)state;
    struct pkg k;
    struct stored r = begin(&k, &plain); /* no scale: fine */
    struct mil_value *s =
        matmul(&k, reshape4(&k, r.q, 2, -1, 16), r.keys, false, true);
    s = two(&k, "add", reshape4(&k, s, 4, -1, S), r.mask);
    s = reshape4(&k, softmax(&k, s, -1), 2, -1, S);
    s = reshape4(&k, matmul(&k, s, r.values, false, false), 4, -1, 16);
    output(&k, unheads(&k, s, 4, 16));
    check(&k, 1, 2, "attend view view view");

    r = begin(&k, &plain); /* scores through a sigmoid */
    s = matmul(&k, reshape4(&k, r.q, 2, -1, 16), r.keys, false, true);
    s = one(&k, "sigmoid", s);
    s = two(&k, "add", reshape4(&k, s, 4, -1, S), r.mask);
    s = reshape4(&k, softmax(&k, s, -1), 2, -1, S);
    s = reshape4(&k, matmul(&k, s, r.values, false, false), 4, -1, 16);
    output(&k, unheads(&k, s, 4, 16));
    case_check(&k, "!", CASE_KV);

    r = begin(&k, &plain); /* heads joined with T, and left so */
    s = matmul(&k, reshape4(&k, r.q, 2, -1, 16), r.keys, false, true);
    s = two(&k, "add", reshape4(&k, s, 4, -1, S), r.mask);
    s = reshape4(&k, softmax(&k, s, -1), 2, -1, S);
    output(&k, matmul(&k, s, r.values, false, false));
    case_check(&k, "!", CASE_KV);

    r = begin(&k, &plain); /* the joint axis is T's to the mask */
    s = matmul(&k, reshape4(&k, r.q, 2, -1, 16), r.keys, false, true);
    const int32_t apart[5] = {1, 2, -1, 2, S};
    s = reshape(&k, s, 5, apart); /* [kv, T, 2, S] of [kv, 2 T, S] */
    const int32_t mask[5] = {1, 1, -1, 1, S};
    s = two(&k, "add", s, reshape(&k, r.mask, 5, mask));
    s = reshape4(&k, softmax(&k, s, -1), 2, -1, S);
    s = reshape4(&k, matmul(&k, s, r.values, false, false), 4, -1, 16);
    output(&k, unheads(&k, s, 4, 16));
    case_check(&k, "!", CASE_KV);
}

/* cap * tanh(scores * by), either factor maybe left out. */
static void test_capped_scores(void **state)
{
    (void)state;
    static const float forms[][2] = {{1, 4}, {0.25f, 4}, {0.5f, 1}, {1, 1}};
    for (size_t i = 0; i < countof(forms); i++) {
        struct pkg k;
        struct stored r = begin(&k, &plain);
        struct mil_value *s =
            matmul(&k, reshape4(&k, r.q, 2, -1, 16), r.keys, false, true);
        s = reshape4(&k, s, 4, -1, S);
        if (forms[i][0] < 1) {
            s = two(&k, "mul", s, mil_f16(k.p, k.f, forms[i][0]));
        }
        s = one(&k, "tanh", s);
        if (forms[i][1] > 1) {
            s = two(&k, "mul", s, mil_f16(k.p, k.f, forms[i][1]));
        }
        s = two(&k, "add", s, r.mask);
        s = reshape4(&k, softmax(&k, s, -1), 2, -1, S);
        s = reshape4(&k, matmul(&k, s, r.values, false, false), 4, -1, 16);
        output(&k, unheads(&k, s, 4, 16));
        check(&k, 1, 2, "attend view view view");
    }
}

static void test_two_write_masks(void **state)
{
    (void)state;
    struct pkg k;
    struct mil_value *blend = NULL;
    pkg_begin(&k);
    struct mil_value *x = in4(&k, "x", 64, -1, 1);
    struct mil_value *h =
        heads(&k, conv(&k, x, 64, ROW_OPS_FP16, false, 1), 4, 16);
    struct mil_value *a =
        masked_write(&k, "a", in4(&k, "write0", 1, S, -1), h, &blend);
    struct mil_value *b =
        masked_write(&k, "b", in4(&k, "write1", 1, S, -1), h, &blend);
    output(&k, attention(&k, h, a, b, in4(&k, "mask", 1, -1, S), 0.25f));
    case_check(&k, "!several write masks", CASE_KV);
}

/* --- predictions that cannot be said in rows --- */

/* Masks in the middle of a sequence that are not one stretch, weights in the
 * write mask, a position written twice: the whole program runs, on the same
 * states, and rows go on after it. */
static void test_odd_masks(void **state)
{
    (void)state;
    struct pkg k;
    struct err e = {0};
    struct stored r = begin(&k, &plain);
    output(&k, attend(&k, &r));
    pkg_finish(&k);
    static float x[64 * 2];
    static float mask[2 * S];
    static float write[S * 2];
    static float want[64 * 2];
    const int64_t dx[4] = {1, 64, 2, 1};
    const int64_t dm[4] = {1, 1, 2, S};
    const int64_t dw[4] = {1, 1, S, 2};
    struct tensor in[3] = {pkg_tensor("x", 4, dx, x),
                           pkg_tensor("mask", 4, dm, mask),
                           pkg_tensor("write", 4, dw, write)};
    const struct backend *b[2] = {&backend_interpreter, &backend_cpu};
    struct backend_model *m[2];
    struct backend_state *st[2];
    struct backend_conf conf = {.threads = 1};
    for (int i = 0; i < 2; i++) {
        unit_ok(b[i]->open(k.path, NULL, &conf, &m[i], &e), &e);
        unit_ok(b[i]->state_new(m[i], &st[i], &e), &e);
    }
    assert_non_null(m[1]->rows);
    uint32_t seed = 4;
    for (size_t step = 0; step < 8; step++) {
        memset(write, 0, sizeof(write));
        for (size_t i = 0; i < countof(x); i++) {
            x[i] = pkg_noise(&seed);
        }
        for (size_t t = 0; t < 2; t++) {
            for (size_t p = 0; p < S; p++) {
                bool hole = step == 2 && p == 1;
                mask[t * S + p] = p <= 2 * step + t && !hole ? 0 : -1e4f;
            }
            size_t at = step == 5 ? 3 : 2 * step + t; /* 3: twice */
            write[at * 2 + t] = step == 3 ? 0.5f : 1;
        }
        mask[S - 1] = step == 4 ? -1 : mask[S - 1]; /* seen a little */
        for (int i = 0; i < 2; i++) {
            struct tensor out = {.name = m[i]->out[0].name};
            unit_ok(plain_predict(b[i], m[i], st[i], in, 3, &out, 1, &e), &e);
            const float *got = out.data;
            for (size_t c = 0; c < countof(want); c++) {
                if (i == 0) {
                    want[c] = got[c];
                } else if (!(fabsf(want[c] - got[c]) <= 2e-3f)) {
                    fail_msg("step %zu, %zu: %g, not %g", step, c,
                             (double)got[c], (double)want[c]);
                }
            }
        }
    }
    for (int i = 0; i < 2; i++) {
        b[i]->state_free(st[i]);
        b[i]->close(m[i]);
    }
    pkg_end(&k);
}

/* Inputs of different T fit no rows; and what fits nothing is an error. */
static void test_inputs_of_several_lengths(void **state)
{
    (void)state;
    struct pkg k;
    struct err e = {0};
    static float x[8 * 60];
    pkg_begin(&k);
    output(&k, two(&k, "add", in4(&k, "x", 8, -1, 1), in4(&k, "y", 8, -1, 1)));
    pkg_finish(&k);
    pkg_open(&k, &backend_cpu, 1, false);
    assert_non_null(k.m->rows);
    for (int64_t n = 1; n <= 2; n++) {
        const int64_t dx[4] = {1, 8, 60, 1};
        const int64_t dy[4] = {1, 8, n, 1};
        struct tensor in[2] = {pkg_tensor("x", 4, dx, x),
                               pkg_tensor("y", 4, dy, x)};
        struct tensor out = {.name = k.m->out[0].name};
        int rc = plain_predict(k.b, k.m, NULL, in, 2, &out, 1, &e);
        assert_int_equal(rc, n == 1 ? 0 : ERR_MIL_SHAPE);
        assert_true(rc != 0 || out.dims[2] == 60);
    }
    pkg_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_attention_in_pieces),
        cmocka_unit_test(test_two_layers_of_two_windows),
        cmocka_unit_test(test_masks_that_are_numbers),
        cmocka_unit_test(test_states_in_other_ways),
        cmocka_unit_test(test_other_attentions),
        cmocka_unit_test(test_capped_scores),
        cmocka_unit_test(test_two_write_masks),
        cmocka_unit_test(test_odd_masks),
        cmocka_unit_test(test_inputs_of_several_lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
