/* contract.h - what backend.h promises, asked of any backend: the interpreter
 * and the CPU backend (test_contract.c), Core ML (tests/coreml/backend).
 *
 * The packages compute with small integers, which fp32 and fp16 hold exactly,
 * so that every backend has one right answer to the last bit:
 *
 *   plain  x [1,2,T,3], k [1] (integer), z [1,2,1,1] (5 when it is not given)
 *          y = 2 x + z + k   and   minus = -x,   T 1..4
 *   kv     x [1,2,T,3], w [1,1,S,T]; the state held [1,2,S,3]: row t of x is
 *          stored where column t of w is 1;   y = x + all rows that are held
 *   kv_t   the same as two functions of fixed T, "t1" and "t4"
 *   other  kv with another number of positions
 */
#pragma once

#include "engine/array.h"
#include "engine/backend.h"
#include "row_ops.h"

enum { CONTRACT_S = 128, CONTRACT_T = 4, CONTRACT_N = 2 * CONTRACT_T * 3 };

struct contract {
    const struct backend *be;
    struct backend_conf conf;
};

static struct {
    struct pkg plain, kv, kv_t, other;
} pkgs;

/* --- packages --- */

static inline struct mil_value *contract_x(struct pkg *k, int64_t t)
{
    const int64_t dims[4] = {1, 2, t, 3};
    return mil_add_input(k->p, k->f, "x", MIL_FP16, 4, dims, 1, CONTRACT_T);
}

static inline void contract_plain(struct pkg *k)
{
    const int64_t z_dims[4] = {1, 2, 1, 1};
    const int64_t k_dims[1] = {1};
    pkg_begin(k);
    struct mil_value *x = contract_x(k, MIL_UNKNOWN);
    struct mil_value *z =
        mil_add_input(k->p, k->f, "z", MIL_FP16, 4, z_dims, 0, 0);
    struct mil_value *n =
        mil_add_input(k->p, k->f, "k", MIL_INT32, 1, k_dims, 0, 0);
    k->f->in[1].optional = true;
    k->f->in[1].has_default = true;
    k->f->in[1].default_value = 5;
    k->f->in[2].has_default = true; /* which is no reason to leave it out */
    struct mil_value *y = two(k, "add", two(k, "mul", x, num(k, 2)), z);
    y = two(k, "add", y, number(k, n));
    mil_add_output(k->p, k->f,
                   mil_op(k->p, k->f, "identity", "y", "x", y, NULL));
    mil_add_output(
        k->p, k->f,
        mil_op(k->p, k->f, "mul", "minus", "x", x, "y", num(k, -1), NULL));
    pkg_finish(k);
}

static inline void contract_kv_function(struct pkg *k, int64_t t, int64_t s)
{
    const int64_t w_dims[4] = {1, 1, s, t};
    struct mil_value *x = contract_x(k, t);
    struct mil_value *w =
        mil_add_input(k->p, k->f, "w", MIL_FP16, 4, w_dims, 1, CONTRACT_T);
    struct mil_value *blend = NULL;
    struct mil_value *all = masked_write(k, "held", w, x, &blend);
    mil_add_output(k->p, k->f,
                   mil_op(k->p, k->f, "add", "y", "x", x, "y",
                          reduce(k, "reduce_sum", all, 2), NULL));
}

static inline int contract_make(void **state)
{
    (void)state;
    contract_plain(&pkgs.plain);
    pkg_begin(&pkgs.kv);
    contract_kv_function(&pkgs.kv, MIL_UNKNOWN, CONTRACT_S);
    pkg_finish(&pkgs.kv);
    pkg_begin(&pkgs.other);
    contract_kv_function(&pkgs.other, MIL_UNKNOWN, CONTRACT_S / 2);
    pkg_finish(&pkgs.other);
    pkg_begin(&pkgs.kv_t); /* its function "main" becomes t1 */
    pkgs.kv_t.f->name = "t1";
    contract_kv_function(&pkgs.kv_t, 1, CONTRACT_S);
    pkgs.kv_t.f = mil_add_function(pkgs.kv_t.p, "t4");
    contract_kv_function(&pkgs.kv_t, 4, CONTRACT_S);
    pkg_finish(&pkgs.kv_t);
    return 0;
}

static inline int contract_unmake(void **state)
{
    (void)state;
    pkg_end(&pkgs.plain);
    pkg_end(&pkgs.kv);
    pkg_end(&pkgs.kv_t);
    pkg_end(&pkgs.other);
    return 0;
}

/* --- short spellings --- */

static inline struct backend_model *
open_pkg(const struct contract *c, const struct pkg *k, const char *function)
{
    struct backend_model *m = NULL;
    struct err e = {0};
    unit_ok(c->be->open(k->path, function, &c->conf, &m, &e), &e);
    return m;
}

static inline void begin(const struct contract *c, struct backend_array *a,
                         bool write)
{
    struct err e = {0};
    if (c->be->lock != NULL) {
        unit_ok(c->be->lock(a, write, &e), &e);
    }
    assert_non_null(a->data);
}

static inline void end(const struct contract *c, struct backend_array *a,
                       bool write)
{
    if (c->be->unlock != NULL) {
        c->be->unlock(a, write);
    }
}

/* All elements in row-major order, from p or to p. */
static inline size_t move_numbers(const struct contract *c,
                                  struct backend_array *a, float *p, bool put)
{
    int64_t at[MIL_RANK_MAX] = {0};
    int last = a->rank - 1;
    size_t n = (size_t)a->dims[last];
    size_t rows = array_count(a) / n;
    begin(c, a, put);
    for (size_t r = 0; r < rows; r++) {
        size_t rest = r;
        for (int i = last; i-- > 0; rest /= (size_t)a->dims[i]) {
            at[i] = (int64_t)(rest % (size_t)a->dims[i]);
        }
        struct array_line l = {at, last, n};
        if (put) {
            array_put(a, l, p + r * n, 1);
        } else {
            array_get(a, l, p + r * n, 1);
        }
    }
    end(c, a, put);
    return rows * n;
}

/* (i * 7 + seed) % 8 */
static inline void fill_numbers(float *p, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        p[i] = (float)((i * 7 + seed) % 8);
    }
}

static inline struct backend_array *new_array(const struct contract *c,
                                              struct backend_model *m, size_t i,
                                              int rank, const int64_t *dims)
{
    struct backend_array *a = NULL;
    struct err e = {0};
    struct backend_info info;
    c->be->info(m, &info);
    enum mil_dtype t = info.in[i].type.dtype;
    unit_ok(c->be->array_new(m, i, t, rank, dims, &a, &e), &e);
    assert_int_equal(a->rank, rank);
    assert_memory_equal(a->dims, dims, (size_t)rank * sizeof(*dims));
    return a;
}

static inline size_t port(const struct backend_port *p, size_t n,
                          const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(p[i].name, name) == 0) {
            return i;
        }
    }
    fail_msg("no port %s", name);
    return 0; /* not reached */
}

/* A model with arrays of one width, bound. */
struct rig {
    const struct contract *c;
    struct backend_model *m;
    struct backend_info info;
    struct backend_array *in[3];
    struct backend_io *io;
    size_t x, y; /* of in and out */
    int64_t t;
};

static inline void rig_bind(struct rig *r, const struct contract *c,
                            struct backend_model *m, int64_t t)
{
    struct err e = {0};
    *r = (struct rig){.c = c, .m = m, .t = t};
    c->be->info(m, &r->info);
    for (size_t i = 0; i < r->info.n_in; i++) {
        const struct mil_type *type = &r->info.in[i].type;
        int64_t dims[MIL_RANK_MAX];
        for (int k = 0; k < type->rank; k++) {
            dims[k] = type->dims[k] == MIL_UNKNOWN ? t : type->dims[k];
        }
        if (strcmp(r->info.in[i].name, "z") != 0) {
            r->in[i] = new_array(c, m, i, type->rank, dims);
        }
    }
    r->x = port(r->info.in, r->info.n_in, "x");
    r->y = port(r->info.out, r->info.n_out, "y");
    unit_ok(c->be->bind(m, r->in, &r->io, &e), &e);
}

static inline void rig_drop(struct rig *r)
{
    r->c->be->unbind(r->io);
    for (size_t i = 0; i < countof(r->in); i++) {
        r->c->be->array_free(r->in[i]);
    }
}

static inline void rig_predict(struct rig *r, struct backend_state *s)
{
    struct err e = {0};
    unit_ok(r->c->be->predict(r->io, s, &e), &e);
    const struct backend_array *y = &r->io->out[r->y];
    const int64_t want[4] = {1, 2, r->t, 3};
    assert_int_equal(y->rank, 4);
    assert_memory_equal(y->dims, want, sizeof(want));
}

/* x of the seed's numbers; row t of it is stored at pos + t, for n rows. */
static inline void rig_store(struct rig *r, uint32_t seed, uint32_t pos,
                             uint32_t n)
{
    float x[CONTRACT_N];
    float w[CONTRACT_S * CONTRACT_T] = {0};
    fill_numbers(x, (size_t)r->t * 6, seed);
    (void)move_numbers(r->c, r->in[r->x], x, true);
    for (uint32_t i = 0; i < n; i++) {
        w[(pos + i) * (size_t)r->t + i] = 1;
    }
    (void)move_numbers(r->c, r->in[port(r->info.in, r->info.n_in, "w")], w,
                       true);
}

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

#define CONTRACT_TESTS(XX)                                                    \
    XX(test_info)                                                             \
    XX(test_not_there)                                                        \
    XX(test_arrays) XX(test_wrong_arrays) XX(test_widths) XX(test_all_inputs) \
        XX(test_missing) XX(test_rebind) XX(test_state) XX(test_state_copy)   \
            XX(test_functions) XX(test_blocks) XX(test_warm)

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
