/* build.c - builds a program: functions, names, constants.
 *
 * What the builder itself needs (names taken, constants made) is stored beside
 * each function, not in the program's public types. Everything is appended to
 * the one body block, so the order of definition is program order.
 */
#include "mil/build.h"

#include <string.h>

#include "base/half.h"
#include "base/hash.h"
#include "mil/impl.h"

struct made { /* a const op that may be shared */
    uint64_t hash;
    const struct mil_const *c;
    struct mil_value *v;
};

struct build {
    struct mil_function f;
    struct names names;
    struct made *made; /* heap */
    size_t n_made, cap_made;
    size_t cap_ops, cap_inputs, cap_in, cap_out, cap_states, cap_outputs;
};

static struct build *of(struct mil_function *f)
{
    return container_of(f, struct build, f);
}

void *build_take(struct mil_program *p, size_t n, size_t size)
{
    void *m = arena_array(&p->arena, n > 0 ? n : 1, size);
    must(m != NULL); /* our own emitters' sizes */
    return m;
}

const char *build_keep(struct mil_program *p, const char *s)
{
    char *copy = arena_str(&p->arena, s);
    must(copy != NULL);
    return copy;
}

/* Room for one more in an arena array that doubles. */
static void *more(struct mil_program *p, void *list, size_t n, size_t *cap,
                  size_t size)
{
    if (n < *cap) {
        return list;
    }
    *cap = *cap > 0 ? *cap * 2 : 16;
    void *bigger = build_take(p, *cap, size);
    if (n > 0) {
        memcpy(bigger, list, n * size);
    }
    return bigger;
}

struct mil_program *build_program(void)
{
    struct mil_program *p = calloc(1, sizeof(*p));
    must(p != NULL);
    arena_init(&p->arena, 0);
    p->spec_version = 9;
    return p;
}

void build_free(struct mil_program *p)
{
    for (size_t i = 0; p != NULL && i < p->n_functions; i++) {
        struct build *b = of(p->functions[i]);
        names_fini(&b->names);
        free(b->made);
    }
    mil_free(p);
}

/* --- names and values --- */

const char *build_unique(struct mil_program *p, struct mil_function *f,
                         const char *hint)
{
    must(mil_name_ok(hint));
    if (!mil_name_reserved(hint) && names_find(&of(f)->names, hint) == NULL) {
        return build_keep(p, hint);
    }
    for (unsigned i = 1;; i++) {
        const char *s = arena_printf(&p->arena, "%s_%u", hint, i);
        must(s != NULL);
        if (names_find(&of(f)->names, s) == NULL) {
            return s;
        }
    }
}

struct mil_value *build_value(struct mil_program *p, struct mil_function *f,
                              const char *name, const struct mil_type *t,
                              struct mil_op *def, int def_out)
{
    struct mil_value *v = build_take(p, 1, sizeof(*v));
    v->name = name;
    v->type = *t;
    v->def = def;
    v->def_out = def_out;
    v->id = f->n_values++;
    must(names_add(&of(f)->names, name, v));
    return v;
}

/* --- functions --- */

struct mil_function *mil_add_function(struct mil_program *p, const char *name)
{
    must(mil_name_ok(name) && mil_function_find(p, name) == NULL);
    struct build *b = build_take(p, 1, sizeof(*b));
    b->f.name = build_keep(p, name);
    b->f.opset = mil_opset(p->spec_version);
    b->f.body = build_take(p, 1, sizeof(*b->f.body));
    struct mil_function **list =
        build_take(p, p->n_functions + 1, sizeof(*list));
    memcpy(list, p->n_functions > 0 ? p->functions : list,
           p->n_functions * sizeof(*list));
    list[p->n_functions++] = &b->f;
    p->functions = list;
    p->multi = p->n_functions > 1;
    return &b->f;
}

/* Into f->inputs: tensors before states. */
static void add_function_input(struct mil_program *p, struct mil_function *f,
                               struct mil_value *v)
{
    f->inputs =
        more(p, f->inputs, f->n_inputs, &of(f)->cap_inputs, sizeof(*f->inputs));
    size_t at = v->type.state ? f->n_inputs : f->n_inputs - f->n_states;
    memmove(f->inputs + at + 1, f->inputs + at,
            (f->n_inputs - at) * sizeof(*f->inputs));
    f->inputs[at] = v;
    f->n_inputs++;
}

struct mil_value *mil_add_input(struct mil_program *p, struct mil_function *f,
                                const char *name, enum mil_dtype dtype,
                                int rank, const int64_t *dims, int64_t lo,
                                int64_t hi)
{
    must(rank >= 1 && rank <= (int)MIL_RANK_MAX);
    must(names_find(&of(f)->names, name) == NULL && !mil_name_reserved(name));
    struct mil_type t = {.dtype = dtype, .rank = rank};
    struct mil_feature in = {.type = t};
    for (int i = 0; i < rank; i++) {
        bool free_dim = dims[i] == MIL_UNKNOWN;
        must(free_dim ? lo >= 1 && (hi < 0 || hi >= lo) : dims[i] > 0);
        in.has_range = in.has_range || free_dim;
        in.lo[i] = free_dim ? lo : dims[i];
        in.hi[i] = free_dim ? hi : dims[i];
        in.type.dims[i] = in.lo[i];
        t.dims[i] = dims[i];
    }
    struct mil_value *v = build_value(p, f, build_keep(p, name), &t, NULL, 0);
    in.name = v->name;
    add_function_input(p, f, v);
    f->in = more(p, f->in, f->n_in, &of(f)->cap_in, sizeof(*f->in));
    f->in[f->n_in++] = in;
    return v;
}

struct mil_value *mil_add_fixed(struct mil_program *p, struct mil_function *f,
                                const char *name, enum mil_dtype dtype,
                                int rank, const int64_t *dims)
{
    struct mil_value *v = mil_add_input(p, f, name, dtype, rank, dims, 0, 0);
    f->in[f->n_in - 1].has_range = true; /* its bounds are its dims */
    return v;
}

struct mil_value *mil_add_state(struct mil_program *p, struct mil_function *f,
                                const char *name, int rank, const int64_t *dims)
{
    must(rank >= 1 && rank <= MIL_RUNTIME_RANK_MAX);
    must(names_find(&of(f)->names, name) == NULL && !mil_name_reserved(name));
    struct mil_type t = {.dtype = MIL_FP16, .state = true, .rank = rank};
    memcpy(t.dims, dims, (size_t)rank * sizeof(*dims));
    struct mil_value *v = build_value(p, f, build_keep(p, name), &t, NULL, 0);
    add_function_input(p, f, v);
    f->states =
        more(p, f->states, f->n_states, &of(f)->cap_states, sizeof(*f->states));
    f->states[f->n_states++] = (struct mil_feature){.name = v->name, .type = t};
    return v;
}

/* A shape that is not known everywhere is left out (facts 2.6). */
void mil_add_output(struct mil_program *p, struct mil_function *f,
                    struct mil_value *v)
{
    struct mil_feature out = {.name = v->name, .type = v->type};
    uint64_t n = 0;
    if (!mil_type_count(&v->type, &n)) {
        out.type.rank = 0;
    }
    struct mil_block *b = f->body;
    b->outputs = more(p, b->outputs, b->n_outputs, &of(f)->cap_outputs,
                      sizeof(*b->outputs));
    b->outputs[b->n_outputs++] = v;
    f->out = more(p, f->out, f->n_out, &of(f)->cap_out, sizeof(*f->out));
    f->out[f->n_out++] = out;
}

void mil_add_meta(struct mil_program *p, const char *key, const char *value)
{
    struct mil_meta *list = build_take(p, p->n_meta + 1, sizeof(*list));
    memcpy(list, p->n_meta > 0 ? p->meta : list, p->n_meta * sizeof(*list));
    list[p->n_meta].key = build_keep(p, key);
    list[p->n_meta].value = build_keep(p, value);
    p->n_meta++;
    p->meta = list;
}

/* --- constants --- */

const struct mil_const *mil_imm(struct mil_program *p, const struct mil_type *t,
                                const void *data)
{
    struct mil_const *c = build_take(p, 1, sizeof(*c));
    uint64_t n = 0;
    c->type = *t;
    must(mil_type_count(t, &n) && mil_dtype_bytes(t->dtype, n, &c->bytes));
    void *copy = build_take(p, (size_t)c->bytes, 1);
    memcpy(copy, c->bytes > 0 ? data : copy, (size_t)c->bytes);
    c->data = copy;
    return c;
}

const struct mil_const *mil_imm_str(struct mil_program *p, const char *s)
{
    struct mil_const *c = build_take(p, 1, sizeof(*c));
    const char **list = build_take(p, 1, sizeof(*list));
    list[0] = build_keep(p, s);
    c->type.dtype = MIL_STRING;
    c->strings = list;
    c->n_strings = 1;
    return c;
}

static uint64_t const_hash(const struct mil_const *c)
{
    if (c->blob_file != NULL) {
        return c->blob_offset;
    }
    return c->type.dtype == MIL_STRING
               ? hash_bytes(c->strings[0], strlen(c->strings[0]))
               : hash_bytes(c->data, (size_t)c->bytes);
}

static bool const_equal(const struct mil_const *a, const struct mil_const *b)
{
    if (!mil_type_equal(&a->type, &b->type) ||
        (a->blob_file != NULL) != (b->blob_file != NULL)) {
        return false;
    }
    if (a->blob_file != NULL) {
        return a->blob_offset == b->blob_offset;
    }
    if (a->type.dtype == MIL_STRING) {
        return strcmp(a->strings[0], b->strings[0]) == 0;
    }
    return a->bytes == b->bytes &&
           memcmp(a->data, b->data, (size_t)a->bytes) == 0;
}

struct mil_op *build_op(struct mil_program *p, struct mil_function *f,
                        const char *type, const char *name)
{
    struct mil_op *op = build_take(p, 1, sizeof(*op));
    op->type = build_keep(p, type);
    op->attrs = build_take(p, 2, sizeof(*op->attrs));
    op->attrs[0] = (struct mil_attr){"name", mil_imm_str(p, name)};
    op->n_attrs = 1;
    struct mil_block *b = f->body;
    b->ops = more(p, b->ops, b->n_ops, &of(f)->cap_ops, sizeof(*b->ops));
    b->ops[b->n_ops++] = op;
    return op;
}

struct mil_value *mil_const_new(struct mil_program *p, struct mil_function *f,
                                const char *name, const struct mil_const *c)
{
    name = build_unique(p, f, name);
    struct mil_op *op = build_op(p, f, "const", name);
    op->attrs[op->n_attrs++] = (struct mil_attr){"val", c};
    op->outputs = build_take(p, 1, sizeof(*op->outputs));
    op->outputs[0] = build_value(p, f, name, &c->type, op, 0);
    op->n_outputs = 1;
    return op->outputs[0];
}

struct mil_value *mil_const_op(struct mil_program *p, struct mil_function *f,
                               const char *name, const struct mil_const *c)
{
    struct build *b = of(f);
    uint64_t hash = const_hash(c);
    for (size_t i = 0; i < b->n_made; i++) {
        if (b->made[i].hash == hash && const_equal(b->made[i].c, c)) {
            return b->made[i].v;
        }
    }
    if (b->n_made == b->cap_made) {
        b->cap_made = b->cap_made > 0 ? b->cap_made * 2 : 64;
        b->made = realloc(b->made, b->cap_made * sizeof(*b->made));
        must(b->made != NULL);
    }
    struct mil_value *v = mil_const_new(p, f, name, c);
    b->made[b->n_made++] = (struct made){hash, c, v};
    return v;
}

/* A constant of rank 0 (n == SIZE_MAX) or 1, shared. */
static struct mil_value *small(struct mil_program *p, struct mil_function *f,
                               const char *hint, enum mil_dtype dtype, size_t n,
                               const void *data)
{
    struct mil_type t = {.dtype = dtype};
    if (n != SIZE_MAX) {
        t.rank = 1;
        t.dims[0] = (int64_t)n;
    }
    return mil_const_op(p, f, hint, mil_imm(p, &t, data));
}

struct mil_value *mil_i32(struct mil_program *p, struct mil_function *f,
                          int32_t v)
{
    return small(p, f, "i32", MIL_INT32, SIZE_MAX, &v);
}

struct mil_value *mil_i32s(struct mil_program *p, struct mil_function *f,
                           size_t n, const int32_t *v)
{
    return small(p, f, "i32s", MIL_INT32, n, v);
}

struct mil_value *mil_bool(struct mil_program *p, struct mil_function *f,
                           bool v)
{
    uint8_t byte = v;
    return small(p, f, "flag", MIL_BOOL, SIZE_MAX, &byte);
}

struct mil_value *mil_bools(struct mil_program *p, struct mil_function *f,
                            size_t n, const bool *v)
{
    uint8_t bytes[2 * MIL_RANK_MAX];
    must(n <= countof(bytes));
    for (size_t i = 0; i < n; i++) {
        bytes[i] = v[i];
    }
    return small(p, f, "flags", MIL_BOOL, n, bytes);
}

struct mil_value *mil_f16(struct mil_program *p, struct mil_function *f,
                          float v)
{
    uint16_t h = half_from_float(v);
    return small(p, f, "f16", MIL_FP16, SIZE_MAX, &h);
}

struct mil_value *mil_str(struct mil_program *p, struct mil_function *f,
                          const char *s)
{
    return mil_const_op(p, f, "str", mil_imm_str(p, s));
}
