/* The two CPU backends. "interpreter" runs a program op by op. "cpu" uses the
 * same kernels, after fuse.c has replaced groups of ops by fused forms, and
 * runs row-wise programs as rows (rows/). */
#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "base/crew.h"
#include "base/half.h"
#include "base/num.h"
#include "engine/cpu/backend_cpu.h"
#include "engine/cpu/graph/bind.h"
#include "engine/cpu/graph/fuse.h"
#include "engine/cpu/graph/plan.h"
#include "engine/cpu/kernels/floats.h"
#include "engine/cpu/rows/row.h"
#include "engine/port.h"
#include "proto/limits.h"

static_assert(ENGINE_THREADS_MAX <= CREW_MAX, "every allowed setting works");

/* Raise it when a change of the kernels may change any bit of a result. */
#define CPU_ARITH "kernels 9"

static atomic_uint_fast64_t next_model_id = 1;

/* --- ports --- */

static void input_port(struct backend_model *m, const struct mil_value *v)
{
    const struct mil_feature *f = port_feature(m->fn->in, m->fn->n_in, v->name);
    if (f != NULL && f->type.rank != v->type.rank) {
        f = NULL;
    }
    m->in[m->n_in] = port_input(v, f);
    m->features[m->n_in] = f;
    m->in_slot[m->n_in++] = (int)v->id;
}

static int state_port(struct backend_model *m, const struct mil_value *v,
                      struct err *e)
{
    uint64_t n = 0;
    if (v->type.dtype != MIL_FP16 || v->type.rank < 1 ||
        !mil_type_count(&v->type, &n) || n == 0 ||
        n > MIL_TENSOR_BYTES_MAX / sizeof(float)) {
        return err_set(e, ERR_MIL_INVALID,
                       "state %s is not fp16 of a fixed "
                       "shape",
                       v->name);
    }
    m->states[m->n_states] =
        (struct backend_port){.name = v->name, .type = v->type};
    m->state[m->n_states++] =
        (struct state_def){.name = v->name, .n = (size_t)n, .type = &v->type};
    m->state_bytes += n * sizeof(uint16_t);
    return 0;
}

static int make_ports(struct backend_model *m, struct err *e)
{
    const struct mil_function *f = m->fn;
    struct arena *a = &m->arena;
    size_t n = f->n_inputs + 1;
    size_t n_out = f->body->n_outputs + 1;
    m->in = arena_array(a, n, sizeof(*m->in));
    m->features = arena_array(a, n, sizeof(struct mil_feature *));
    m->in_slot = arena_array(a, n, sizeof(int));
    m->states = arena_array(a, n, sizeof(*m->states));
    m->state = arena_array(a, n, sizeof(*m->state));
    m->out = arena_array(a, n_out, sizeof(*m->out));
    m->out_slot = arena_array(a, n_out, sizeof(int));
    m->in_now = arena_array(a, n, sizeof(struct tensor *));
    m->in_default = arena_array(a, n, sizeof(*m->in_default));
    m->out_buf = arena_array(a, n_out, sizeof(float *));
    m->out_now = arena_array(a, n_out, sizeof(*m->out_now));
    m->key = arena_array(a, n * MIL_RANK_MAX, sizeof(*m->key));
    if (m->in == NULL || m->features == NULL || m->in_slot == NULL ||
        m->states == NULL || m->state == NULL || m->out == NULL ||
        m->out_slot == NULL || m->in_now == NULL || m->in_default == NULL ||
        m->out_buf == NULL || m->out_now == NULL || m->key == NULL) {
        return err_set(e, ERR_NOMEM, "the program");
    }
    for (size_t i = 0; i < f->n_inputs; i++) {
        if (f->inputs[i]->type.state) {
            int rc = state_port(m, f->inputs[i], e);
            if (rc < 0) {
                return rc;
            }
        } else {
            input_port(m, f->inputs[i]);
        }
    }
    for (size_t i = 0; i < f->body->n_outputs; i++) {
        const struct mil_value *v = f->body->outputs[i];
        m->out[i] = (struct backend_port){.name = v->name, .type = v->type};
        m->out_slot[i] = (int)v->id;
    }
    m->n_out = f->body->n_outputs;
    m->has_t = port_widths(m->in, m->n_in, &m->t_min, &m->t_max);
    return 0;
}

/* --- open and close --- */

void cpu_close(struct backend_model *m)
{
    if (m == NULL) {
        return;
    }
    row_free(m->rows);
    plan_drop_all(m);
    for (size_t i = 0; m->out_buf != NULL && i < m->n_out; i++) {
        free(m->out_buf[i]);
    }
    free(m->scratch);
    arena_fini(&m->arena);
    mil_free(m->program);
    if (m->has_crew) {
        crew_unref();
    }
    free(m);
}

/* Declared ranges of inputs, widened (cpu_conf.any_width). */
static void widen(const struct mil_function *f)
{
    for (size_t i = 0; i < f->n_in; i++) {
        struct mil_feature *in = &f->in[i];
        for (int k = 0; in->has_range && k < in->type.rank; k++) {
            bool open = in->lo[k] != in->hi[k];
            if (open && in->hi[k] >= 0 && in->hi[k] < ENGINE_CHUNK_MAX) {
                in->hi[k] = ENGINE_CHUNK_MAX;
            }
        }
    }
}

/* The nodes as they are, for what fused ones do not take. */
static int keep_plain(struct backend_model *m, struct err *e)
{
    size_t n = (size_t)m->n_nodes;
    m->plain = arena_array(&m->arena, n + 1, sizeof(struct node *));
    if (m->plain == NULL) {
        return err_set(e, ERR_NOMEM, "the program");
    }
    memcpy(m->plain, m->nodes, n * sizeof(struct node *));
    m->n_plain = m->n_nodes;
    return 0;
}

int cpu_open_program(struct mil_program *p, const char *function,
                     const struct backend_conf *conf, bool fast,
                     struct backend_model **ret, struct err *e)
{
    static const struct cpu_conf defaults;
    const struct cpu_conf *cpu = conf->cpu != NULL ? conf->cpu : &defaults;
    int rc = 0;
    struct backend_model *m = calloc(1, sizeof(*m));
    must(m != NULL);
    arena_init(&m->arena, 0);
    m->program = p;
    m->id = atomic_fetch_add(&next_model_id, 1);
    m->threads = crew_threads(conf->threads);
    m->round = cpu->round_fp16;
    m->once = cpu->once;
    m->after = cpu->after;
    m->kernels = kernels_find(cpu->isa);
    if (m->kernels == NULL) {
        rc = err_set(e, ERR_UNSUPPORTED,
                     "this machine or build has no kernels '%s'", cpu->isa);
        goto out;
    }
    if (cpu->isa != NULL) {
        floats_choose(cpu->isa);
    }
    m->fn = mil_function_find(p, function);
    if (m->fn == NULL) {
        rc = err_set(e, ERR_NOT_FOUND, "no function %s",
                     function != NULL ? function : "(default)");
        goto out;
    }
    m->tap = cpu->tap;
    m->tap_ctx = cpu->tap_ctx;
    if (cpu->any_width) {
        widen(m->fn);
    }
    CHECK(make_ports(m, e));
    CHECK(bind_run(m, e));
    fast = fast && !m->has_blocks; /* passes look at one straight line */
    if (fast) {
        CHECK(keep_plain(m, e));
        CHECK(fuse_run(m, e));
        if (!m->has_t && !m->round && !cpu->whole) {
            CHECK(fuse_whole(m, true, e)); /* all its positions are one row */
        }
    }
    if (cpu->chosen_experts && !fast && !m->has_blocks) {
        CHECK(keep_plain(m, e));
        CHECK(fuse_chosen(m, e));
    }
    crew_ref();
    m->has_crew = true;
    /* Rounding after every operation is the plain form's affair. */
    m->why_not_rows = cpu->whole ? "as its other functions do" : NULL;
    if (fast && !m->round && !cpu->whole) {
        rc = row_make(m, &m->rows, &m->why_not_rows, e);
        if (rc == ERR_NOMEM) {
            goto out;
        }
        if (rc < 0) { /* what is refused there still runs as a whole */
            m->why_not_rows = arena_str(&m->arena, e->msg);
            rc = 0;
        }
    }
    if (fast && !m->round && m->rows == NULL) {
        CHECK(fuse_whole(m, false, e));
    }
    *ret = m;
    m = NULL;
out:
    cpu_close(m);
    return rc;
}

static int open_package(const char *pkg, const char *function,
                        const struct backend_conf *conf, bool fast,
                        struct backend_model **ret, struct err *e)
{
    struct mil_program *p = NULL;
    int rc = mil_read(pkg, &p, e);
    if (rc < 0) {
        return rc;
    }
    rc = mil_validate(p, e);
    if (rc < 0) {
        mil_free(p);
        return rc;
    }
    return cpu_open_program(p, function, conf, fast, ret, e);
}

static int interpreter_open(const char *pkg, const char *function,
                            const struct backend_conf *conf,
                            struct backend_model **ret, struct err *e)
{
    return open_package(pkg, function, conf, false, ret, e);
}

static int fast_open(const char *pkg, const char *function,
                     const struct backend_conf *conf,
                     struct backend_model **ret, struct err *e)
{
    return open_package(pkg, function, conf, true, ret, e);
}

static void cpu_info(const struct backend_model *m, struct backend_info *ret)
{
    const struct kv_pool *kv = m->rows != NULL ? m->rows->pool : NULL;
    uint64_t table = kv != NULL ? kv_table_most(kv) : 0;
    struct row_program *rows = m->rows;
    size_t n_tails = rows != NULL ? rows->n_tails : 0;
    uint64_t base = kv != NULL ? kv_table_base(kv) : 0;
    uint64_t column = kv != NULL ? kv_column_most(kv) : 0;
    if (n_tails > 0) {
        uint64_t each = tails_each_bytes(rows->tails, n_tails);
        uint64_t own = tails_base_bytes(rows->tails, n_tails);
        uint64_t blocks = 0;
        for (size_t i = 0; i < m->n_states; i++) {
            blocks = num_max(blocks, rows->shapes[i].positions / STATE_BLOCK + 1);
        }
        base += own;
        column += each;
        table += own + blocks * each;
    }
    *ret = (struct backend_info){
        .rows_max = m->rows != NULL ? (uint32_t)m->rows->rows_max : 0,
        .row_in = m->rows != NULL ? m->rows->in_port : NULL,
        .row_out = m->rows != NULL ? m->rows->out_port : NULL,
        .n_in = m->n_in,
        .n_out = m->n_out,
        .n_states = m->n_states,
        .in = m->in,
        .out = m->out,
        .states = m->states,
        .wide_masks = true,
        .t_min = m->t_min,
        .t_max = m->t_max,
        .arith = m->round ? CPU_ARITH ", fp16" : CPU_ARITH,
        .weight_bytes = m->program->weight_bytes,
        .recurrent = n_tails > 0,
        .state_bytes = kv != NULL || n_tails > 0 ? table : m->state_bytes,
        .base_bytes = base,
        .block_bytes = column,
        .whole_bytes = kv != NULL ? table + m->state_bytes : 0,
    };
}

/* --- rows --- */

static int check_rows(const struct backend_model *m,
                      const struct backend_rows *in, struct err *e)
{
    if (m->rows == NULL || in->n < 1 || in->n > m->rows->rows_max) {
        return err_set(e, ERR_MIL_INPUT, "%zu rows", in->n);
    }
    bool states = m->n_states > 0 || m->rows->n_tails > 0;
    for (size_t r = 0; r < in->n && states; r++) {
        if (in->state[r] == NULL || !cpu_state_fits(in->state[r], m, true)) {
            return err_set(e, ERR_MIL_INPUT, "a state of another model");
        }
        for (size_t k = 0; k < m->n_in; k++) {
            if (m->rows->in_port[k].use == BACKEND_ROW_MASK &&
                (in->lo[k][r] >= in->hi[k][r] ||
                 in->hi[k][r] > m->rows->v[m->in_slot[k]].n)) {
                return err_set(e, ERR_MIL_INPUT, "row %zu sees %u to %u", r,
                               in->lo[k][r], in->hi[k][r]);
            }
        }
    }
    return 0;
}

static int cpu_predict_rows(struct backend_model *m,
                            const struct backend_rows *in,
                            struct backend_row_out *out, size_t n_out,
                            struct err *e)
{
    int rc = check_rows(m, in, e);
    return rc < 0 ? rc : row_run(m->rows, in, out, n_out, e);
}

void cpu_dump(const struct backend_model *m, struct buf *out)
{
    if (m->rows != NULL) {
        row_dump(m->rows, out);
        return;
    }
    buf_printf(out, "runs as a whole, op by op%s%s\n",
               m->why_not_rows != NULL ? ": " : "",
               m->why_not_rows != NULL ? m->why_not_rows : "");
    if (m->seen != NULL) {
        buf_puts(out, m->seen);
        return;
    }
    for (int i = 0; i < m->n_nodes; i++) {
        buf_printf(out, "  %s %s\n", m->nodes[i]->def->type, m->nodes[i]->name);
    }
}

const char *cpu_isa(size_t i)
{
    const struct kernels *k = kernels_each(i);
    return k != NULL ? kernels_name(k) : NULL;
}

const char *cpu_pass(size_t i)
{
    return i == 0 ? ROW_STATES : row_passes[i - 1].name;
}

static const struct backend_row_ops row_ops = {
    .predict = cpu_predict_rows,
    .fork = cpu_state_fork,
    .truncate = cpu_state_truncate,
    .can_cut = cpu_state_can_cut,
    .mark = cpu_state_mark,
    .trim = cpu_state_trim,
};

#define CPU_BACKEND(name_, open_)                                    \
    {                                                                \
        .name = name_, .open = open_, .close = cpu_close,            \
        .info = cpu_info, .array_new = cpu_array_new,                \
        .array_free = cpu_array_free, .bind = cpu_bind,              \
        .unbind = cpu_unbind, .rebind = cpu_rebind,                  \
        .predict = cpu_predict, .state_new = cpu_state_new,          \
        .state_free = cpu_state_free, .state_copy = cpu_state_copy,  \
        .state_with = cpu_state_with,                                \
        .block_arrays = cpu_block_arrays,                            \
        .block_save = cpu_block_save, .block_load = cpu_block_load,  \
        .rows = &row_ops,                                            \
    }

const struct backend backend_interpreter =
    CPU_BACKEND("interpreter", interpreter_open);
const struct backend backend_cpu = CPU_BACKEND("cpu", fast_open);
