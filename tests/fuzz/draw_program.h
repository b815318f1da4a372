/* draw_program.h - an ML Program drawn from the table of signatures: every
 * operation with operands that mostly fit, nested blocks, states, several
 * functions, constants inline, as operations and in weight.bin. Inference gives
 * the result types, so what follows has something to work on; some results
 * are declared otherwise. */
#pragma once

#include <string.h>

#include "draw.h"
#include "mil/sig.h"

enum {
    POOL = 96,     /* values that can be used */
    OPS = 64,      /* of one block */
    LIST = 8,      /* inputs, states, outputs, bindings of a tuple */
    NUMBERS = 4096 /* of a constant */
};

struct gen {
    struct draw d;
    struct mil_program *p;
    struct mil_function *f;
    struct mil_block *block; /* operations go here */
    struct mil_value *pool[POOL];
    size_t n_pool;
    unsigned names;
    struct buf weights;
    uint32_t blobs;
};

static void *take(struct gen *g, size_t n, size_t size)
{
    void *m = arena_array(&g->p->arena, n + 1, size);
    must(m != NULL);
    return m;
}

static struct mil_value *new_value(struct gen *g, const struct mil_type *t,
                                   struct mil_op *def, size_t out)
{
    struct mil_value *v = take(g, 1, sizeof(*v));
    v->name = arena_printf(&g->p->arena, "v%u", g->names++);
    v->type = *t;
    v->def = def;
    v->def_out = (int)out;
    v->id = g->f->n_values++;
    if (g->n_pool < POOL) {
        g->pool[g->n_pool++] = v;
    }
    return v;
}

/* --- types --- */

static enum mil_dtype draw_dtype(struct gen *g, uint64_t set)
{
    unsigned n = draw_below(&g->d, (unsigned)__builtin_popcountll(set));
    for (; n > 0; n--) {
        set &= set - 1;
    }
    return (enum mil_dtype)__builtin_ctzll(set);
}

static void draw_dims(struct gen *g, struct mil_type *t, bool known)
{
    static const int ranks[] = {4, 1, 2, 3, 0, 4, 5, 4, 8};
    static const int64_t sizes[] = {1, 2, 4, 1, 3, 2, 4, 8, 32, 64, 0};
    t->rank = draw_of(&g->d, ranks);
    for (int k = 0; k < t->rank; k++) {
        t->dims[k] = draw_of(&g->d, sizes);
        if (!known && draw_one_in(&g->d, 8)) {
            t->dims[k] = MIL_UNKNOWN;
        }
    }
}

static bool is_known(const struct mil_type *t)
{
    uint64_t n = 0;
    return mil_type_count(t, &n) && n <= NUMBERS;
}

/* --- constants --- */

static int64_t draw_number(struct gen *g)
{
    static const int64_t wild[] = {INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN,
                                   65536,     -65536};
    return draw_one_in(&g->d, 32) ? draw_of(&g->d, wild)
                                  : (int64_t)draw_below(&g->d, 7) - 2;
}

static const char *draw_string(struct gen *g, const char *operand)
{
    static const char *const equations[] = {
        "nchw,nwhu->nchu", "ab,bc->ac", "abc,acd->abd", "a,a->", "ab,cd->abcd",
        "abcd,abed->abce", "aab,b->a", "",
    };
    static const char *const modes[] = {
        "constant", "reflect", "replicate", "update", "add", "div", "max",
        "EXACT", "TANH_APPROXIMATION", "mul", "x",
    };
    static const char *const pads[] = {"valid", "custom", "same", "same_lower"};
    static const char *const types[] = {"fp16", "fp32", "int32", "bool", "int8",
                                        "uint8", "uint16", "int16", "x"};
    if (strcmp(operand, "equation") == 0) {
        return draw_of(&g->d, equations);
    }
    if (strcmp(operand, "mode") == 0) {
        return draw_of(&g->d, modes);
    }
    return strcmp(operand, "pad_type") == 0 ? draw_of(&g->d, pads)
                                            : draw_of(&g->d, types);
}

/* Numbers of width bits, small or all bits of them drawn. */
static void draw_data(struct gen *g, const struct mil_type *t, uint64_t n,
                      const char *operand, uint8_t *to, size_t bytes)
{
    static const uint16_t halves[] = {0,      0x3c00, 0xbc00, 0x4000,
                                      0x7bff, 0x7c00, 0x7e00, 0x0001};
    static const float floats[] = {0, 1, -1, 2.5F, 3e38F, 1e-40F, 1e10F, -7};
    unsigned bits = mil_dtype_bits(t->dtype);
    for (size_t i = 0; bits < 8 && i < bytes; i++) {
        to[i] = (uint8_t)draw_byte(&g->d);
    }
    for (uint64_t i = 0; bits >= 8 && i < n; i++) {
        int64_t v = draw_number(g);
        if (strcmp(operand, "perm") == 0) {
            v = (int64_t)((i + (v & 1)) % n);
        }
        if (t->dtype == MIL_FP16) {
            memcpy(to + i * 2, &draw_of(&g->d, halves), 2);
        } else if (t->dtype == MIL_FP32) {
            memcpy(to + i * 4, &draw_of(&g->d, floats), 4);
        } else if (t->dtype == MIL_BOOL) {
            to[i] = (uint8_t)(v & 1);
        } else {
            memcpy(to + i * (bits / 8), &v, bits / 8);
        }
    }
}

/* Into weight.bin, mostly where the constant says that it is. */
static void put_blob(struct gen *g, struct mil_const *c)
{
    static const uint8_t zeros[BLOB_ALIGN];
    uint8_t record[BLOB_HEADER];
    size_t at = g->weights.n;
    if (!blob_put_record(record, &c->type, c->bytes, at + BLOB_HEADER)) {
        return;
    }
    if (draw_one_in(&g->d, 64)) {
        record[draw_below(&g->d, BLOB_HEADER)] ^= 1u << draw_below(&g->d, 8);
    }
    buf_put(&g->weights, record, BLOB_HEADER);
    buf_put(&g->weights, c->data, (size_t)c->bytes);
    buf_put(&g->weights, zeros,
            (BLOB_ALIGN - g->weights.n % BLOB_ALIGN) % BLOB_ALIGN);
    c->blob_file = MIL_WEIGHT_FILE;
    c->blob_offset = at + 64 * (uint64_t)draw_one_in(&g->d, 64);
    g->blobs++;
}

static const struct mil_const *draw_const(struct gen *g, struct mil_type t,
                                          const char *operand)
{
    struct mil_const *c = take(g, 1, sizeof(*c));
    uint64_t n = 0;
    if (!is_known(&t)) {
        t.rank = 0;
    }
    must(mil_type_count(&t, &n));
    c->type = t;
    if (t.dtype == MIL_STRING) {
        const char **list = take(g, n, sizeof(*list));
        for (uint64_t i = 0; i < n; i++) {
            list[i] = draw_string(g, operand);
        }
        c->strings = list;
        c->n_strings = (size_t)n;
        return c;
    }
    must(mil_dtype_bytes(t.dtype, n, &c->bytes));
    uint8_t *data = take(g, (size_t)c->bytes, 1);
    draw_data(g, &t, n, operand, data, (size_t)c->bytes);
    c->data = data;
    if (draw_one_in(&g->d, 8)) {
        put_blob(g, c);
    }
    return c;
}

/* --- operations --- */

static struct mil_op *new_op(struct gen *g, const char *type)
{
    struct mil_op *op = take(g, 1, sizeof(*op));
    op->type = type;
    op->attrs = take(g, MIL_ARGS_MAX, sizeof(*op->attrs));
    op->args = take(g, MIL_ARGS_MAX, sizeof(*op->args));
    return op;
}

static void append(struct gen *g, struct mil_op *op)
{
    if (g->block->n_ops < OPS) {
        g->block->ops[g->block->n_ops++] = op;
    }
}

static struct mil_value *const_op(struct gen *g, const struct mil_const *c)
{
    struct mil_op *op = new_op(g, "const");
    op->attrs[op->n_attrs++] = (struct mil_attr){"val", c};
    op->outputs = take(g, 1, sizeof(*op->outputs));
    op->outputs[0] = new_value(g, &c->type, op, 0);
    op->n_outputs = 1;
    append(g, op);
    return op->outputs[0];
}

/* How long a parameter is for x; false: nothing is known of it. */
static bool param_dims(const char *name, const struct mil_type *x,
                       struct mil_type *t)
{
    static const struct {
        const char *names;
        int rank, per_axis, less; /* elements: per_axis * (x's rank - less) */
    } rows[] = {
        {" axis num_splits groups k lower upper epsilon alpha beta mode "
         "pad_type equation dtype output_dtype keep_dims interleave batch_dims "
         "one_hot_vector_size transpose_x transpose_y validate_indices sort "
         "ascending return_indices output_indices_dtype exclusive reverse "
         "constant_val value on_value off_value vector_axis ", 0, 0, 0},
        {" begin end stride begin_mask end_mask squeeze_mask reps perm size "
         "shape ", 1, 1, 0},
        {" strides dilations ", 1, 1, 2},
        {" pad ", 1, 2, 2},
        {" axes ", 1, 1, 3},
    };
    char word[40];
    int n = snprintf(word, sizeof(word), " %s ", name);
    for (size_t i = 0; n > 0 && i < countof(rows); i++) {
        int64_t len = rows[i].per_axis * (int64_t)(x->rank - rows[i].less);
        if (strstr(rows[i].names, word) != NULL) {
            t->rank = rows[i].rank;
            t->dims[0] = len > 0 ? len : 1;
            return true;
        }
    }
    return false;
}

static struct mil_value *find_value(struct gen *g, uint64_t dtypes, bool state)
{
    unsigned from = g->n_pool > 0 ? draw_below(&g->d, (unsigned)g->n_pool) : 0;
    for (size_t i = 0; i < g->n_pool; i++) {
        struct mil_value *v = g->pool[(from + i) % g->n_pool];
        if (v->type.state == state && (dtypes >> v->type.dtype & 1) != 0) {
            return v;
        }
    }
    return NULL;
}

static struct mil_binding draw_binding(struct gen *g,
                                       const struct sig_operand *o,
                                       const struct mil_type *x,
                                       uint64_t dtypes)
{
    struct mil_binding b = {0};
    bool state = (o->flags & SIG_STATE) != 0;
    bool constant = (o->flags & SIG_CONST) != 0;
    if (draw_one_in(&g->d, 64)) { /* what does not belong there */
        dtypes = ~(uint64_t)1;
        state = draw_one_in(&g->d, 2);
        constant = !constant;
    }
    if (state || (!constant && draw_below(&g->d, 4) != 0)) {
        b.value = find_value(g, dtypes, state);
    }
    if (b.value != NULL) {
        return b;
    }
    struct mil_type t = *x;
    t.state = false;
    if (!param_dims(o->name, x, &t) && draw_one_in(&g->d, 2)) {
        draw_dims(g, &t, true);
    } else if (draw_one_in(&g->d, 32)) {
        draw_dims(g, &t, true);
    }
    t.dtype =
        draw_dtype(g, dtypes & o->dtypes ? dtypes & o->dtypes : o->dtypes);
    const struct mil_const *c = draw_const(g, t, o->name);
    if (draw_one_in(&g->d, 2)) {
        b.value = const_op(g, c);
    } else {
        b.imm = c;
    }
    return b;
}

static void draw_operand(struct gen *g, struct mil_op *op, const struct sig *s,
                         const struct sig_operand *o, struct mil_type *x,
                         enum mil_dtype vars[128])
{
    bool need = (o->flags & SIG_NEED) != 0;
    if (need ? draw_one_in(&g->d, 128) : draw_below(&g->d, 3) == 0) {
        return;
    }
    uint64_t dtypes = o->dtypes;
    if (o->var != 0 && vars[(int)o->var] != MIL_NONE) {
        dtypes &= (uint64_t)1 << vars[(int)o->var];
        dtypes = dtypes != 0 ? dtypes : o->dtypes;
    }
    size_t n = (o->flags & SIG_TUPLE) != 0 ? 1 + draw_below(&g->d, 3) : 1;
    struct mil_binding *b = take(g, n, sizeof(*b));
    for (size_t i = 0; i < n; i++) {
        b[i] = draw_binding(g, o, x, dtypes);
    }
    const struct mil_type *t =
        b[0].imm != NULL ? &b[0].imm->type : &b[0].value->type;
    if (op->n_args + op->n_attrs == 0) {
        *x = *t; /* parameters are made for the first operand */
    }
    if (o->var != 0) {
        vars[(int)o->var] = t->dtype;
    }
    if (s->attrs) {
        op->attrs[op->n_attrs++] = (struct mil_attr){
            o->name, b[0].imm != NULL ? b[0].imm : draw_const(g, *t, o->name)};
    } else {
        op->args[op->n_args++] = (struct mil_arg){o->name, n, b};
    }
}

static void draw_ops(struct gen *g, unsigned n, unsigned depth);

/* A block of its own; what it defines ends with it, but for `outputs`. */
static struct mil_block *draw_block(struct gen *g, size_t n_in,
                                    const struct mil_binding *like,
                                    size_t n_out, unsigned depth)
{
    struct mil_block *outer = g->block;
    size_t pool = g->n_pool;
    struct mil_block *b = take(g, 1, sizeof(*b));
    b->ops = take(g, OPS, sizeof(*b->ops));
    b->inputs = take(g, n_in, sizeof(*b->inputs));
    b->outputs = take(g, n_out, sizeof(*b->outputs));
    for (; b->n_inputs < n_in; b->n_inputs++) {
        const struct mil_binding *k = &like[b->n_inputs];
        b->inputs[b->n_inputs] = new_value(
            g, k->imm != NULL ? &k->imm->type : &k->value->type, NULL, 0);
    }
    g->block = b;
    draw_ops(g, draw_below(&g->d, 4), depth);
    for (; b->n_outputs < n_out; b->n_outputs++) {
        struct mil_value *v = NULL;
        if (n_in > 0 && draw_below(&g->d, 4) != 0) {
            v = b->inputs[b->n_outputs % n_in];
        } else {
            v = find_value(g, ~(uint64_t)0, false);
        }
        if (v == NULL || (n_out == 1 && n_in > 0)) {
            struct mil_type t = {.dtype = MIL_BOOL}; /* of while_loop */
            v = const_op(g, draw_const(g, t, ""));
        }
        b->outputs[b->n_outputs] = v;
    }
    g->block = outer;
    g->n_pool = pool;
    return b;
}

static void draw_blocks(struct gen *g, struct mil_op *op, int n, unsigned depth)
{
    const struct mil_arg *vars = mil_op_arg(op, "loop_vars");
    op->blocks = take(g, (size_t)n, sizeof(*op->blocks));
    for (int i = 0; i < n; i++) {
        bool test = vars != NULL && i == 0;
        size_t n_out = vars != NULL ? vars->n : 1;
        op->blocks[op->n_blocks++] =
            draw_block(g, vars != NULL ? vars->n : 0,
                       vars != NULL ? vars->b : NULL, test ? 1 : n_out, depth);
    }
}

/* Results as inference has them, some declared otherwise. */
static void draw_results(struct gen *g, struct mil_op *op,
                         const struct mil_type *types, size_t n)
{
    op->outputs = take(g, n, sizeof(*op->outputs));
    for (; op->n_outputs < n; op->n_outputs++) {
        struct mil_type t = types[op->n_outputs];
        if (t.rank > 0 && draw_one_in(&g->d, 16)) {
            t.dims[draw_below(&g->d, (unsigned)t.rank)] = MIL_UNKNOWN;
        } else if (draw_one_in(&g->d, 128)) {
            draw_dims(g, &t, false);
        }
        op->outputs[op->n_outputs] = new_value(g, &t, op, op->n_outputs);
    }
}

static void draw_op(struct gen *g, unsigned depth)
{
    static const enum mil_dtype none[128];
    enum mil_dtype vars[128];
    struct mil_type types[LIST] = {{0}};
    struct mil_type x = {0};
    size_t n = 0;
    const struct sig *s = sig_at(draw_below(&g->d, (unsigned)sig_count()));
    if (s->n_blocks > 0 && depth == 0) {
        return;
    }
    struct mil_op *op = new_op(g, s->op);
    size_t n_ops = g->block->n_ops;
    size_t pool = g->n_pool;
    memcpy(vars, none, sizeof(vars));
    for (const struct sig_operand *o = s->operands; o->name != NULL; o++) {
        draw_operand(g, op, s, o, &x, vars);
    }
    if (s->n_blocks > 0) {
        draw_blocks(g, op, s->n_blocks, depth - 1);
    }
    if (mil_infer(op, g->p->spec_version, types, LIST, &n, NULL) < 0) {
        if (!draw_one_in(&g->d, 128)) {
            g->block->n_ops = n_ops; /* and its constants */
            g->n_pool = pool;
            return;
        }
        n = 1;
        types[0] = x;
    }
    draw_results(g, op, types, n < LIST ? n : LIST);
    append(g, op);
}

/* cond inside cond, as deep as drawn. */
static void draw_nest(struct gen *g)
{
    struct mil_block *outer = g->block;
    size_t pool = g->n_pool;
    for (unsigned n = draw_below(&g->d, 24); n > 0; n--) {
        struct mil_op *op = new_op(g, "cond");
        struct mil_block *b = take(g, 1, sizeof(*b));
        b->ops = take(g, OPS, sizeof(*b->ops));
        op->blocks = take(g, 1, sizeof(*op->blocks));
        op->blocks[op->n_blocks++] = b;
        append(g, op);
        g->block = b;
    }
    g->block = outer;
    g->n_pool = pool;
}

static void draw_ops(struct gen *g, unsigned n, unsigned depth)
{
    for (; n > 0 && g->d.n > 0 && g->block->n_ops < OPS; n--) {
        draw_op(g, depth);
    }
}

/* --- functions --- */

static void draw_feature(struct gen *g, struct mil_feature *f,
                         const struct mil_value *v, bool ranged)
{
    *f = (struct mil_feature){.name = v->name, .type = v->type};
    f->has_range = ranged;
    for (int k = 0; k < f->type.rank; k++) {
        bool free_dim = v->type.dims[k] == MIL_UNKNOWN;
        f->type.dims[k] = free_dim ? 1 : v->type.dims[k];
        f->lo[k] = f->type.dims[k];
        f->hi[k] = free_dim ? (int64_t)draw_below(&g->d, 5) : f->lo[k];
    }
}

static void draw_inputs(struct gen *g)
{
    static const enum mil_dtype types[] = {MIL_FP16, MIL_FP32, MIL_INT32,
                                           MIL_FP16};
    struct mil_function *f = g->f;
    size_t n = 1 + draw_below(&g->d, 3);
    size_t states = g->p->spec_version >= 9 ? draw_below(&g->d, 3) : 0;
    bool ranged = draw_one_in(&g->d, 2);
    f->inputs = take(g, n + states, sizeof(*f->inputs));
    f->in = take(g, n, sizeof(*f->in));
    f->states = take(g, states, sizeof(*f->states));
    for (size_t i = 0; i < n + states; i++) {
        struct mil_type t = {.dtype = draw_of(&g->d, types),
                             .state = i >= n,
                             .rank = 4,
                             .dims = {1, 2, 32, 4}};
        if (i >= n) {
            t.dtype = MIL_FP16;
        } else {
            draw_dims(g, &t, !ranged);
        }
        if (t.rank == 0 && !draw_one_in(&g->d, 32)) {
            t.rank = 1;
            t.dims[0] = 2;
        }
        f->inputs[f->n_inputs++] = new_value(g, &t, NULL, 0);
        if (i >= n) {
            draw_feature(g, &f->states[f->n_states++], f->inputs[i], false);
        } else {
            draw_feature(g, &f->in[f->n_in++], f->inputs[i], ranged);
        }
    }
}

static void draw_outputs(struct gen *g)
{
    struct mil_function *f = g->f;
    struct mil_block *b = f->body;
    size_t n = 1 + draw_below(&g->d, 3);
    b->outputs = take(g, n, sizeof(*b->outputs));
    f->out = take(g, n, sizeof(*f->out));
    for (size_t i = g->n_pool; i > 0 && b->n_outputs < n; i--) {
        struct mil_value *v = g->pool[i - 1];
        bool fits = v->def != NULL && !v->type.state &&
                    (v->type.dtype == MIL_FP16 || v->type.dtype == MIL_FP32 ||
                     v->type.dtype == MIL_INT32);
        if (!fits || draw_one_in(&g->d, 4)) {
            continue;
        }
        b->outputs[b->n_outputs++] = v;
        struct mil_feature *out = &f->out[f->n_out++];
        *out = (struct mil_feature){.name = v->name, .type = v->type};
        out->type.rank = is_known(&v->type) ? v->type.rank : 0;
    }
}

static void draw_function(struct gen *g, const char *name)
{
    struct mil_function *f = take(g, 1, sizeof(*f));
    g->p->functions[g->p->n_functions++] = f;
    f->name = name;
    f->opset = mil_opset(g->p->spec_version);
    f->body = take(g, 1, sizeof(*f->body));
    f->body->ops = take(g, OPS, sizeof(*f->body->ops));
    g->f = f;
    g->block = f->body;
    g->n_pool = 0;
    draw_inputs(g);
    if (draw_one_in(&g->d, 32)) {
        draw_nest(g);
    }
    draw_ops(g, 2 + draw_below(&g->d, 24), 3);
    draw_outputs(g);
}

/* g->d is set; the rest is made here. */
static void draw_program(struct gen *g)
{
    static const char *const names[] = {"main", "f1", "f2"};
    static const int versions[] = {9, 9, 9, 8, 7, 6, 10};
    g->p = calloc(1, sizeof(*g->p));
    must(g->p != NULL);
    arena_init(&g->p->arena, 0);
    g->p->spec_version = draw_of(&g->d, versions);
    g->p->functions = take(g, countof(names), sizeof(*g->p->functions));
    buf_init(&g->weights, MIB(1));
    buf_put(&g->weights, (uint8_t[BLOB_HEADER]){0}, BLOB_HEADER);
    blob_put_header((uint8_t *)g->weights.p, 0);
    size_t n = draw_one_in(&g->d, 8) ? countof(names) : 1;
    for (size_t i = 0; i < n; i++) {
        draw_function(g, names[i]);
    }
    g->p->multi = n > 1;
}
