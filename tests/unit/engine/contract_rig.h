/* contract_rig.h - the packages of contract.h, and a model with arrays of one
 * width, bound.
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
