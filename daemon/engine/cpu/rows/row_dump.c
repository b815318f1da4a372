/* row_dump.c - the compiled program as text: one op a line, results on the
 * left, the shapes of what is computed in brackets. */
#include "engine/cpu/rows/row_make.h"

static const char *name_of(const struct row_program *p, int value)
{
    return p->v[value].name != NULL ? p->v[value].name : "?";
}

static const char *weight_name(const struct weight *w)
{
    switch (w->kind) {
    case WEIGHT_F32:
        return "fp32";
    case WEIGHT_F16:
        return "fp16";
    case WEIGHT_I8:
        return "int8";
    case WEIGHT_I4:
        return "int4";
    case WEIGHT_LUT4:
        return "lut4";
    case WEIGHT_LUT6:
        return "lut6";
    case WEIGHT_ROWS:
        return w->lut != NULL ? "lut" : "decoded";
    }
    return "?";
}

static void put_linear(const struct row_op *op, struct buf *out)
{
    const struct row_linear *f = &op->linear;
    size_t rows = 0;
    bool bias = false;
    for (int i = 0; i < f->parts; i++) {
        rows += f->w[i]->rows;
        bias = bias || f->bias[i] != NULL;
    }
    buf_printf(out, " [%zu x %zu %s%s]", rows, f->w[0]->cols,
               weight_name(f->w[0]), bias ? " + bias" : "");
}

static void put_detail(const struct row_program *p, const struct row_op *op,
                       struct buf *out)
{
    switch (op->kind) {
    case ROW_LINEAR:
        put_linear(op, out);
        break;
    case ROW_NORM:
        buf_printf(out, " [groups of %zu%s]", op->norm.width,
                   op->norm.w != NULL ? ", weights" : "");
        break;
    case ROW_ROPE:
        buf_printf(out, " [pairs %zu of %zu]", op->rope.half, op->rope.dim);
        break;
    case ROW_ATTEND:
        buf_printf(out, " [%u heads, %u of keys, %u wide%s] over %s, %s",
                   op->attend.heads, op->attend.kv_heads, op->attend.dim,
                   op->attend.tanh ? ", tanh" : "",
                   p->m->state[op->attend.k_state].name,
                   p->m->state[op->attend.v_state].name);
        break;
    case ROW_TAIL:
        buf_printf(out, " [and %u before it]",
                   p->tails[op->tail.port].len);
        break;
    case ROW_EXPERTS:
        buf_printf(out, " [%zu of %zu x %zu %s] (%s)", op->experts.n,
                   op->experts.width, op->experts.w[0]->cols,
                   weight_name(op->experts.w[0]), row_node(p, op)->def->type);
        break;
    case ROW_UNARY:
    case ROW_GLU:
    case ROW_BINARY:
    case ROW_STEP:
        buf_printf(out, " (%s)", row_node(p, op)->def->type);
        break;
    case ROW_VIEW:
        for (int k = 0; k < op->n_out; k++) {
            buf_printf(out, " @%zu", op->at[k]);
        }
        break;
    case ROW_STORE:
    case ROW_DEAD:
        break;
    }
}

void row_dump(const struct row_program *p, struct buf *out)
{
    static const char *const kinds[] = {
        [ROW_STEP] = "step",     [ROW_VIEW] = "view",
        [ROW_LINEAR] = "linear", [ROW_NORM] = "norm",
        [ROW_ROPE] = "rope",     [ROW_STORE] = "store",
        [ROW_ATTEND] = "attend", [ROW_TAIL] = "tail",
        [ROW_UNARY] = "unary",
        [ROW_BINARY] = "binary", [ROW_GLU] = "glu",
        [ROW_EXPERTS] = "experts", [ROW_DEAD] = "dead"};
    buf_printf(out, "rows of %zu floats, kernels %s\n", p->floats,
               kernels_name(p->kernels));
    for (int i = 0; i < p->n_ops; i++) {
        const struct row_op *op = &p->ops[i];
        if (op->kind == ROW_DEAD) {
            continue;
        }
        buf_printf(out, "  ");
        for (int k = 0; k < op->n_out; k++) {
            buf_printf(out, "%s%s:%zu", k > 0 ? ", " : "",
                       name_of(p, op->out[k]), p->v[op->out[k]].n);
        }
        buf_printf(out, "%s%s", op->n_out > 0 ? " = " : "", kinds[op->kind]);
        if (op->kind == ROW_STORE) {
            buf_printf(out, " %s <-", op->name);
        }
        for (int k = 0; k < op->n_in; k++) {
            buf_printf(out, " %s", name_of(p, op->in[k]));
        }
        put_detail(p, op, out);
        buf_printf(out, "\n");
    }
}
