/* fuzz_model.c - ML Program packages out of a grammar (draw_program.h), with
 * descriptions that were drawn apart from their programs: every type of
 * feature, shapes of any rank, ranges and enumerated shapes in any order. What
 * the reader takes is validated, dumped, judged by the rules of residency,
 * written and read again, which must lose nothing, and run. */
#include "draw_program.h"
#include "mil/spec.h"
#include "predict_any.h"
#include "program_run.h"
#include "weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

/* --- descriptions --- */

static size_t draw_shape(struct gen *g, int64_t **ret)
{
    static const size_t ranks[] = {4, 0, 8, 0, 1, 2, 0, 3, 5, 9};
    static const int64_t sizes[] = {1, 2, 4, 32, 0, -1, INT64_MAX, 64};
    size_t n = draw_of(&g->d, ranks);
    *ret = take(g, n, sizeof(**ret));
    for (size_t i = 0; i < n; i++) {
        (*ret)[i] = draw_of(&g->d, sizes);
    }
    return n;
}

static void draw_range(struct gen *g, Ml__ArrayType *t)
{
    static const uint64_t lower[] = {1, 0, 4, UINT64_MAX, 2};
    static const int64_t upper[] = {4, -1, 0, INT64_MAX, INT64_MIN, 64};
    t->range = pb_new(&g->p->arena, &ml__shape_range__descriptor);
    t->flexibility_case = ML__ARRAY_TYPE__FLEXIBILITY_RANGE;
    t->range->n_sizes = draw_below(&g->d, 10);
    t->range->sizes = take(g, t->range->n_sizes, sizeof(*t->range->sizes));
    for (size_t i = 0; i < t->range->n_sizes; i++) {
        Ml__SizeRange *s =
            pb_new(&g->p->arena, &ml__size_range__descriptor);
        s->lower = draw_of(&g->d, lower);
        s->upper = draw_of(&g->d, upper);
        t->range->sizes[i] = s;
    }
}

static void draw_enumerated(struct gen *g, Ml__ArrayType *t)
{
    Ml__EnumeratedShapes *all =
        pb_new(&g->p->arena, &ml__enumerated_shapes__descriptor);
    bool alike = draw_one_in(&g->d, 2);
    all->n_shapes = draw_one_in(&g->d, 16) ? draw_below(&g->d, 160)
                                           : draw_below(&g->d, 8);
    all->shapes = take(g, all->n_shapes, sizeof(*all->shapes));
    for (size_t i = 0; i < all->n_shapes; i++) {
        Ml__Shape *s = pb_new(&g->p->arena, &ml__shape__descriptor);
        s->n_shape = draw_shape(g, &s->shape);
        if (alike && i > 0) {
            s = all->shapes[0];
        }
        all->shapes[i] = s;
    }
    t->enumerated = all;
    t->flexibility_case = ML__ARRAY_TYPE__FLEXIBILITY_ENUMERATED;
}

static void draw_array(struct gen *g, Ml__ArrayType *t)
{
    static const int32_t types[] = {0x10010, 0x10020, 0x20020, 0x20008,
                                    0x10040, 0};
    if (draw_one_in(&g->d, 4)) {
        t->data_type = draw_of(&g->d, types);
    }
    if (draw_one_in(&g->d, 2)) {
        t->n_shape = draw_shape(g, &t->shape);
    }
    switch (draw_below(&g->d, 5)) {
    case 0:
        t->flexibility_case = ML__ARRAY_TYPE__FLEXIBILITY__NOT_SET;
        break;
    case 1:
        draw_range(g, t);
        break;
    case 2:
    case 3:
        draw_enumerated(g, t);
        break;
    default:
        break;
    }
    switch (draw_below(&g->d, 8)) {
    case 1:
        t->default_value_case = ML__ARRAY_TYPE__DEFAULT_VALUE_INT_DEFAULT;
        t->int_default = INT32_MIN;
        break;
    case 2:
        t->default_value_case = ML__ARRAY_TYPE__DEFAULT_VALUE_DOUBLE_DEFAULT;
        t->double_default = 1e300;
        break;
    case 3:
        t->default_value_case = ML__ARRAY_TYPE__DEFAULT_VALUE_FLOAT_DEFAULT;
        t->float_default = -1;
        break;
    default:
        break;
    }
}

static void redraw_feature(struct gen *g, Ml__Feature *f)
{
    static const char *const names[] = {"", "v0", "v1", "x", "state"};
    Ml__FeatureType *t = f->type;
    if (draw_one_in(&g->d, 32)) {
        f->name = arena_str(&g->p->arena, draw_of(&g->d, names));
    }
    t->optional = t->optional != draw_one_in(&g->d, 8);
    if (draw_one_in(&g->d, 16)) {
        t->kind_case = ML__FEATURE_TYPE__KIND__NOT_SET;
    } else if (t->kind_case == ML__FEATURE_TYPE__KIND_ARRAY) {
        draw_array(g, t->array);
        if (draw_one_in(&g->d, 32)) { /* the same as a state */
            Ml__ArrayType *array = t->array;
            t->kind_case = ML__FEATURE_TYPE__KIND_STATE;
            t->state = pb_new(&g->p->arena, &ml__state_feature__descriptor);
            t->state->array = array;
        }
    } else if (t->kind_case == ML__FEATURE_TYPE__KIND_STATE) {
        draw_array(g, t->state->array);
    }
}

static void redraw_features(struct gen *g, Ml__Feature **list, size_t *n)
{
    for (size_t i = 0; i < *n; i++) {
        if (draw_one_in(&g->d, 2)) {
            redraw_feature(g, list[i]);
        }
    }
    if (*n > 0 && draw_one_in(&g->d, 32)) {
        (*n)--;
    } else if (*n > 1 && draw_one_in(&g->d, 32)) {
        list[0] = list[*n - 1];
    }
}

static void redraw(struct gen *g, Ml__Model *m)
{
    Ml__Description *d = m->description;
    redraw_features(g, d->input, &d->n_input);
    redraw_features(g, d->output, &d->n_output);
    redraw_features(g, d->state, &d->n_state);
    for (size_t i = 0; i < d->n_functions; i++) {
        Ml__FunctionDescription *f = d->functions[i];
        redraw_features(g, f->input, &f->n_input);
        redraw_features(g, f->output, &f->n_output);
        redraw_features(g, f->state, &f->n_state);
    }
    if (draw_one_in(&g->d, 32)) {
        d->default_function = arena_str(&g->p->arena, "f1");
    }
    if (draw_one_in(&g->d, 32)) {
        m->specification_version = (int32_t)draw_below(&g->d, 12);
    }
    if (draw_one_in(&g->d, 32)) {
        m->ml_program->n_functions = draw_below(&g->d, 2);
    }
}

static void *from_arena(void *ctx, size_t n)
{
    return arena_alloc(ctx, n > 0 ? n : 1);
}

static void keep(void *ctx, void *p)
{
    (void)ctx;
    (void)p;
}

/* The program's bytes, with another description half of the time. */
static void serialize(struct gen *g, struct buf *out)
{
    ProtobufCAllocator alloc = {from_arena, keep, &g->p->arena};
    struct err e = {0};
    must(spec_write(g->p, out, &e) == 0);
    if (draw_one_in(&g->d, 2)) {
        Ml__Model *m =
            ml__model__unpack(&alloc, out->n, (const uint8_t *)out->p);
        must(m != NULL);
        redraw(g, m);
        buf_clear(out);
        size_t n = ml__model__get_packed_size(m);
        uint8_t *to = buf_grow(out, n);
        must(to != NULL && ml__model__pack(m, to) == n);
    }
    for (unsigned n = draw_one_in(&g->d, 16) ? 1 + draw_below(&g->d, 4) : 0;
         n > 0 && out->n > 0; n--) {
        out->p[draw_below(&g->d, 65536) % out->n] = (char)draw_byte(&g->d);
    }
}

/* --- what is done with them --- */

static struct mil_program *read_again(const struct buf *b, struct file_map *m,
                                      int *rc)
{
    struct mil_program *p = calloc(1, sizeof(*p));
    struct err e = {0};
    must(p != NULL);
    *rc = spec_read(p, b->p, b->n,
                    (struct weights){.find = find_weights, .ctx = m}, &e);
    if (*rc == 0) {
        *rc = mil_validate(p, &e);
    } else {
        mil_free(p);
        p = NULL;
    }
    if (*rc < 0 && getenv("FUZZ_SHOW") != NULL) {
        (void)err_print(&e);
    }
    return p;
}

static void dump(const struct mil_program *p, struct buf *text)
{
    buf_init(text, MIB(16));
    mil_dump(p, text);
}

/* Writing p and reading it again gives p. */
static void check_written(const struct mil_program *p, struct file_map *m)
{
    struct buf bytes;
    struct buf before;
    struct buf after;
    struct err e = {0};
    int rc = 0;
    buf_init(&bytes, MIB(16));
    must(spec_write(p, &bytes, &e) == 0);
    struct mil_program *again = read_again(&bytes, m, &rc);
    must(rc == 0);
    dump(p, &before);
    dump(again, &after);
    must(before.n == after.n && memcmp(before.p, after.p, before.n) == 0);
    buf_fini(&bytes);
    buf_fini(&before);
    buf_fini(&after);
    mil_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    /* a quarter is for the description, however long the program got */
    size_t rest = n / 4;
    struct gen g = {
        .d = {p, n - rest}
    };
    struct buf spec;
    struct buf text;
    int rc = 0;
    bool fast = draw_one_in(&g.d, 2);
    draw_program(&g);
    buf_init(&spec, MIB(16));
    g.d = (struct draw){p + n - rest, rest};
    serialize(&g, &spec);
    struct file_map map = map_weights(g.weights.p, g.weights.n);
    struct mil_program *prog = read_again(&spec, &map, &rc);
    if (prog != NULL) {
        dump(prog, &text);
        if (getenv("FUZZ_SHOW") != NULL) {
            puts(text.p);
        }
        buf_fini(&text);
        predict_any(prog);
    }
    if (rc == 0) {
        check_written(prog, &map);
        run_program(prog, fast);
        prog = NULL; /* taken */
    }
    mil_free(prog);
    buf_fini(&spec);
    buf_fini(&g.weights);
    mil_free(g.p);
    free((void *)(uintptr_t)map.p);
    return 0;
}
