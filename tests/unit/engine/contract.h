/* contract.h - what backend.h promises, asked of any backend: the interpreter
 * and the CPU backend (test_contract.c), Core ML (tests/coreml/backend). */
#pragma once

#include "contract_rig.h"

/* --- what is promised --- */

static void test_info(void **state)
{
    const struct contract *c = *state;
    struct backend_model *m = open_pkg(c, &pkgs.kv, NULL);
    struct backend_info i;
    c->be->info(m, &i);
    assert_int_equal(i.n_in, 2);
    assert_int_equal(i.n_out, 1);
    assert_int_equal(i.n_states, 1);
    assert_string_equal(i.states[0].name, "held");
    assert_int_equal(i.states[0].type.dims[2], CONTRACT_S);
    const struct backend_port *x = &i.in[port(i.in, i.n_in, "x")];
    assert_int_equal(x->type.rank, 4);
    assert_int_equal(x->type.dims[2], MIL_UNKNOWN);
    assert_int_equal(x->t_lo, 1);
    assert_int_equal(x->t_hi, CONTRACT_T);
    assert_int_equal(i.t_min, 1);
    assert_true(i.t_max >= CONTRACT_T);
    assert_in_range(strlen(i.arith), 1, ARITH_BYTES_MAX - 1);
    assert_true(i.state_bytes > 0);
    for (size_t k = 0; k < i.n_exact_widths; k++) {
        assert_in_range(i.exact_widths[k], 1, i.t_max);
        assert_true(k == 0 || i.exact_widths[k] > i.exact_widths[k - 1]);
    }
    c->be->close(m);
    m = open_pkg(c, &pkgs.kv_t, "t4");
    c->be->info(m, &i);
    assert_int_equal(i.t_min, 1); /* no input has T */
    assert_int_equal(i.t_max, 1);
    assert_int_equal(i.in[port(i.in, i.n_in, "x")].type.dims[2], 4);
    c->be->close(m);
}

static void test_not_there(void **state)
{
    const struct contract *c = *state;
    struct backend_model *m = NULL;
    struct err e = {0};
    assert_int_equal(
        c->be->open("/nowhere/at.mlpackage", NULL, &c->conf, &m, &e),
        ERR_PKG_MISSING);
    assert_int_equal(c->be->open(pkgs.kv_t.path, "t9", &c->conf, &m, &e),
                     ERR_NOT_FOUND);
    assert_non_null(strstr(e.msg, "t9"));
    assert_null(m);
    c->be->close(NULL);
}

/* Every element has a place of its own, whatever the strides. */
static void test_arrays(void **state)
{
    const struct contract *c = *state;
    struct backend_model *m = open_pkg(c, &pkgs.kv, NULL);
    for (int64_t t = 1; t <= CONTRACT_T; t++) {
        const int64_t x_dims[4] = {1, 2, t, 3};
        const int64_t w_dims[4] = {1, 1, CONTRACT_S, t};
        for (size_t i = 0; i < 2; i++) {
            static float put[CONTRACT_S * CONTRACT_T];
            static float got[CONTRACT_S * CONTRACT_T];
            struct backend_array *a =
                new_array(c, m, i, 4, i == 0 ? x_dims : w_dims);
            size_t n = move_numbers(c, a, got, false);
            for (size_t k = 0; k < n; k++) {
                assert_true(got[k] == 0);
                put[k] = (float)k;
            }
            (void)move_numbers(c, a, put, true);
            memset(got, 0, sizeof(got));
            assert_int_equal(move_numbers(c, a, got, false), n);
            assert_memory_equal(got, put, n * sizeof(*got));
            c->be->array_free(a);
        }
    }
    c->be->array_free(NULL);
    c->be->close(m);
}

static void test_wrong_arrays(void **state)
{
    const struct contract *c = *state;
    static const struct {
        int rank;
        int64_t dims[4];
    } wrong[] = {
        {4, {1, 2, 5, 3}               },
        {4, {1, 2, 0, 3}               },
        {4, {1, 2, -1, 3}              },
        {4, {1, 3, 2, 3}               },
        {4, {1, 2, 2, (int64_t)1 << 40}},
        {3, {2, 2, 3, 0}               },
        {0, {0, 0, 0, 0}               },
    };
    struct backend_model *m = open_pkg(c, &pkgs.kv, NULL);
    struct backend_array *a = NULL;
    struct err e = {0};
    for (size_t i = 0; i < countof(wrong); i++) {
        assert_int_equal(c->be->array_new(m, 0, MIL_FP16, wrong[i].rank,
                                          wrong[i].dims, &a, &e),
                         ERR_MIL_INPUT);
        assert_null(a);
        assert_non_null(strstr(e.msg, "x"));
    }
    c->be->close(m);
}

static void check_plain(struct rig *r, uint32_t seed, float z)
{
    float x[CONTRACT_N];
    float y[CONTRACT_N];
    float k[1] = {(float)(seed % 3)};
    size_t n = (size_t)r->t * 6;
    fill_numbers(x, n, seed);
    (void)move_numbers(r->c, r->in[r->x], x, true);
    (void)move_numbers(r->c, r->in[port(r->info.in, r->info.n_in, "k")], k,
                       true);
    rig_predict(r, NULL);
    assert_int_equal(move_numbers(r->c, &r->io->out[r->y], y, false), n);
    for (size_t i = 0; i < n; i++) {
        assert_true(y[i] == 2 * x[i] + z + k[0]);
    }
    size_t minus = port(r->info.out, r->info.n_out, "minus");
    assert_int_equal(move_numbers(r->c, &r->io->out[minus], y, false), n);
    for (size_t i = 0; i < n; i++) {
        assert_true(y[i] == -x[i]);
    }
}

/* Bindings of all widths at a time, in turns. An input may be left out. */
static void test_widths(void **state)
{
    const struct contract *c = *state;
    struct backend_model *m = open_pkg(c, &pkgs.plain, NULL);
    struct rig r[CONTRACT_T];
    for (int64_t t = 1; t <= CONTRACT_T; t++) {
        rig_bind(&r[t - 1], c, m, t);
    }
    for (uint32_t i = 0; i < 12; i++) {
        check_plain(&r[i * 3 % CONTRACT_T], i, 5);
    }
    for (int64_t t = 0; t < CONTRACT_T; t++) {
        rig_drop(&r[t]);
    }
    c->be->close(m);
}

static void test_all_inputs(void **state)
{
    const struct contract *c = *state;
    const int64_t dims[4] = {1, 2, 1, 1};
    struct backend_model *m = open_pkg(c, &pkgs.plain, NULL);
    struct rig r;
    struct err e = {0};
    float z[2] = {3, 3};
    rig_bind(&r, c, m, 3);
    c->be->unbind(r.io);
    size_t i = port(r.info.in, r.info.n_in, "z");
    r.in[i] = new_array(c, m, i, 4, dims);
    (void)move_numbers(c, r.in[i], z, true);
    unit_ok(c->be->bind(m, r.in, &r.io, &e), &e);
    check_plain(&r, 6, 3);
    rig_drop(&r);
    c->be->close(m);
}

static void test_missing(void **state)
{
    const struct contract *c = *state;
    struct backend_model *m = open_pkg(c, &pkgs.plain, NULL);
    struct rig r;
    struct err e = {0};
    rig_bind(&r, c, m, 2);
    struct backend_array *in[3] = {r.in[0], r.in[1], r.in[2]};
    struct backend_io *io = NULL;
    in[r.x] = NULL;
    assert_int_equal(c->be->bind(m, in, &io, &e), ERR_MIL_INPUT);
    assert_non_null(strstr(e.msg, "x"));
    assert_null(io);
    size_t k = port(r.info.in, r.info.n_in, "k");
    in[r.x] = r.in[k]; /* of another shape */
    assert_int_equal(c->be->bind(m, in, &io, &e), ERR_MIL_INPUT);
    assert_null(io);
    in[r.x] = r.in[r.x];
    in[k] = NULL;
    assert_int_equal(c->be->bind(m, in, &io, &e), ERR_MIL_INPUT);
    assert_null(io);
    c->be->unbind(NULL);
    rig_drop(&r);
    c->be->close(m);
}

/* Another array from now on; the first one may be gone. */
static void test_rebind(void **state)
{
    const struct contract *c = *state;
    struct backend_model *m = open_pkg(c, &pkgs.plain, NULL);
    struct rig r;
    rig_bind(&r, c, m, 2);
    check_plain(&r, 1, 5);
    for (uint32_t i = 2; i < 6; i++) {
        struct backend_array *old = r.in[r.x];
        r.in[r.x] = new_array(c, m, r.x, 4, old->dims);
        c->be->rebind(r.io, r.x, r.in[r.x]);
        c->be->array_free(old);
        check_plain(&r, i, 5);
    }
    rig_drop(&r);
    c->be->close(m);
}

/* --- states --- */

static int read_held(void *ctx, struct backend_array *a, struct err *e)
{
    float *p = ctx;
    (void)e;
    for (int64_t h = 0; h < 2; h++) {
        for (int64_t s = 0; s < a->dims[2]; s++, p += 3) {
            const int64_t at[4] = {0, h, s, 0};
            array_get(a, (struct array_line){at, 3, 3}, p, 1);
        }
    }
    return 0;
}

static int write_held(void *ctx, struct backend_array *a, struct err *e)
{
    const float *p = ctx;
    (void)e;
    for (int64_t h = 0; h < 2; h++) {
        for (int64_t s = 0; s < a->dims[2]; s++, p += 3) {
            const int64_t at[4] = {0, h, s, 0};
            array_put(a, (struct array_line){at, 3, 3}, p, 1);
        }
    }
    return 0;
}

static int refuse(void *ctx, struct backend_array *a, struct err *e)
{
    (void)ctx;
    (void)a;
    return err_set(e, ERR_CONFLICT, "the callback refuses");
}

enum { HELD = 2 * CONTRACT_S * 3 };

static inline void get_held(const struct contract *c, struct backend_state *s,
                            float *p)
{
    struct err e = {0};
    unit_ok(c->be->state_with(s, "held", read_held, p, &e), &e);
}

static struct backend_state *new_state(const struct contract *c,
                                       struct backend_model *m)
{
    struct backend_state *s = NULL;
    struct err e = {0};
    unit_ok(c->be->state_new(m, &s, &e), &e);
    return s;
}

/* What y is: x plus the sum of what the state holds. */
static void check_sums(struct rig *r, struct backend_state *s)
{
    static float held[HELD];
    float x[CONTRACT_N];
    float y[CONTRACT_N];
    get_held(r->c, s, held);
    (void)move_numbers(r->c, r->in[r->x], x, false);
    (void)move_numbers(r->c, &r->io->out[r->y], y, false);
    for (size_t h = 0; h < 2; h++) {
        for (size_t d = 0; d < 3; d++) {
            float sum = 0;
            for (size_t p = 0; p < CONTRACT_S; p++) {
                sum += held[(h * CONTRACT_S + p) * 3 + d];
            }
            for (size_t t = 0; t < (size_t)r->t; t++) {
                size_t i = (h * (size_t)r->t + t) * 3 + d;
                assert_true(y[i] == x[i] + sum);
            }
        }
    }
}

static void test_state(void **state)
{
    const struct contract *c = *state;
    struct backend_model *m = open_pkg(c, &pkgs.kv, NULL);
    struct backend_state *s = new_state(c, m);
    struct rig r;
    struct err e = {0};
    float held[HELD];
    float x[CONTRACT_N];
    get_held(c, s, held);
    for (size_t i = 0; i < HELD; i++) {
        assert_true(held[i] == 0);
    }
    rig_bind(&r, c, m, 3);
    rig_store(&r, 1, 70, 2); /* the third row is padding */
    rig_predict(&r, s);
    check_sums(&r, s);
    get_held(c, s, held);
    (void)move_numbers(c, r.in[r.x], x, false);
    for (size_t h = 0; h < 2; h++) {
        assert_memory_equal(held + (h * CONTRACT_S + 70) * 3, x + h * 9,
                            6 * sizeof(*x));
        assert_true(held[(h * CONTRACT_S + 72) * 3] == 0);
    }
    for (size_t i = 0; i < HELD; i++) {
        held[i] = (float)(i % 3);
    }
    unit_ok(c->be->state_with(s, "held", write_held, held, &e), &e);
    rig_store(&r, 2, 5, 3);
    rig_predict(&r, s);
    check_sums(&r, s);
    assert_int_equal(c->be->predict(r.io, NULL, &e), ERR_MIL_INPUT);
    assert_int_equal(c->be->state_with(s, "nothing", read_held, held, &e),
                     ERR_NOT_FOUND);
    assert_int_equal(c->be->state_with(s, "held", refuse, NULL, &e),
                     ERR_CONFLICT);
    c->be->state_free(NULL);
    c->be->state_free(s);
    rig_drop(&r);
    c->be->close(m);
}

static void test_state_copy(void **state)
{
    const struct contract *c = *state;
    struct backend_model *m = open_pkg(c, &pkgs.kv, NULL);
    struct backend_state *a = new_state(c, m);
    struct backend_state *b = new_state(c, m);
    struct rig r;
    struct err e = {0};
    float held[2][HELD];
    rig_bind(&r, c, m, 4);
    rig_store(&r, 3, 0, 4);
    rig_predict(&r, a);
    unit_ok(c->be->state_copy(b, a, &e), &e);
    get_held(c, a, held[0]);
    get_held(c, b, held[1]);
    assert_memory_equal(held[0], held[1], sizeof(held[0]));
    rig_store(&r, 4, 4, 4); /* b goes on alone */
    rig_predict(&r, b);
    check_sums(&r, b);
    get_held(c, a, held[1]);
    assert_memory_equal(held[0], held[1], sizeof(held[0]));
    c->be->state_free(a);
    rig_store(&r, 5, 8, 1);
    rig_predict(&r, b); /* which does not need it any more */
    check_sums(&r, b);
    c->be->state_free(b);
    rig_drop(&r);
    c->be->close(m);
}

/* The functions of one package share states; another package does not. */
static void test_functions(void **state)
{
    const struct contract *c = *state;
    struct backend_model *m1 = open_pkg(c, &pkgs.kv_t, "t1");
    struct backend_model *m4 = open_pkg(c, &pkgs.kv_t, "t4");
    struct backend_model *other = open_pkg(c, &pkgs.other, NULL);
    struct backend_state *s = new_state(c, m1);
    struct backend_state *o = new_state(c, other);
    struct rig r1;
    struct rig r4;
    struct err e = {0};
    rig_bind(&r1, c, m1, 1);
    rig_bind(&r4, c, m4, 4);
    for (uint32_t i = 0; i < 6; i++) {
        struct rig *r = i % 2 == 0 ? &r4 : &r1;
        rig_store(r, i, i * 5, (uint32_t)r->t);
        rig_predict(r, s);
        check_sums(r, s);
    }
    assert_int_equal(c->be->predict(r4.io, o, &e), ERR_MIL_INPUT);
    assert_true(c->be->state_copy(s, o, &e) < 0);
    c->be->state_free(s);
    c->be->state_free(o);
    rig_drop(&r1);
    rig_drop(&r4);
    c->be->close(m4);
    c->be->close(m1);
    c->be->close(other);
}

/* Two models, as before and after a restart: bit for bit. */
static void test_blocks(void **state)
{
    const struct contract *c = *state;
    struct backend_model *a = open_pkg(c, &pkgs.kv, NULL);
    struct backend_state *s = new_state(c, a);
    struct state_array arrays[STATE_ARRAYS_MAX];
    struct rig r;
    struct err e = {0};
    float held[2][HELD];
    unsigned char block[2][2 * STATE_BLOCK * 3 * 2];
    rig_bind(&r, c, a, 4);
    for (uint32_t i = 0; i < CONTRACT_S / 4; i++) {
        rig_store(&r, i, i * 4, 4);
        rig_predict(&r, s);
    }
    get_held(c, s, held[0]);
    assert_int_equal(c->be->block_arrays(s, arrays), 1);
    assert_int_equal(arrays[0].bytes, sizeof(block[0]));
    for (uint32_t b = 0; b < 2; b++) {
        unit_ok(c->be->block_save(s, b, block[b], &e), &e);
    }
    rig_drop(&r);
    c->be->state_free(s);
    c->be->close(a);

    struct backend_model *b = open_pkg(c, &pkgs.kv, NULL);
    s = new_state(c, b);
    unit_ok(c->be->block_load(s, 1, block[1], &e), &e);
    unit_ok(c->be->block_load(s, 0, block[0], &e), &e);
    assert_int_equal(c->be->block_load(s, 2, block[0], &e), ERR_CONTEXT);
    get_held(c, s, held[1]);
    assert_memory_equal(held[0], held[1], sizeof(held[0]));
    rig_bind(&r, c, b, 4);
    rig_store(&r, 9, 60, 4);
    rig_predict(&r, s);
    check_sums(&r, s);
    rig_drop(&r);
    c->be->state_free(s);
    c->be->close(b);
}

static void test_warm(void **state)
{
    const struct contract *c = *state;
    const struct backend_watch watch = {0};
    struct err e = {0};
    struct backend_model *m = open_pkg(c, &pkgs.kv, NULL);
    struct backend_state *s = new_state(c, m);
    struct rig r;
    rig_bind(&r, c, m, 2);
    rig_store(&r, 1, 0, 2);
    rig_predict(&r, s);
    for (uint32_t t = 1; t <= CONTRACT_T; t++) {
        unit_ok(c->be->warm(m, t, &watch, &e), &e);
    }
    assert_int_equal(c->be->warm(m, CONTRACT_T + 1, &watch, &e), ERR_MIL_INPUT);
    rig_store(&r, 2, 2, 2);
    rig_predict(&r, s); /* nothing of it is in our arrays or states */
    check_sums(&r, s);
    rig_drop(&r);
    c->be->state_free(s);
    c->be->close(m);
}

#define CONTRACT_TESTS(XX)                                                     \
    XX(test_info)                                                              \
    XX(test_not_there)                                                         \
    XX(test_arrays)                                                            \
    XX(test_wrong_arrays) XX(test_widths) XX(test_all_inputs) XX(test_missing) \
        XX(test_rebind) XX(test_state) XX(test_state_copy) XX(test_functions)  \
            XX(test_blocks) XX(test_warm)

#define CONTRACT_ONE(f) +1
enum { CONTRACT_COUNT = 0 CONTRACT_TESTS(CONTRACT_ONE) };

/* Append a backend's tests: "NAME: test_info" and so on. */
static inline void contract_add(struct CMUnitTest *tests, size_t *n,
                                struct contract *c, const char *name)
{
#define XX(f) {#f, f, NULL, NULL, NULL},
    const struct CMUnitTest all[] = {CONTRACT_TESTS(XX)};
#undef XX
    static char names[8 * CONTRACT_COUNT][64];
    for (size_t i = 0; i < countof(all); i++) {
        struct CMUnitTest t = all[i];
        if (t.test_func == test_warm && c->be->warm == NULL) {
            continue;
        }
        assert_true(*n < countof(names));
        (void)snprintf(names[*n], sizeof(names[0]), "%s: %s", name, t.name);
        t.name = names[*n];
        t.initial_state = c;
        tests[(*n)++] = t;
    }
}
