/* state.m - states. Core ML lends a state's array for the time of a handler,
 * at another address each time, rows padded as the device likes it. */
#include <string.h>

#include "engine/array.h"
#import "engine/coreml/coreml.h"

int coreml_state_new(struct backend_model *m, struct backend_state **ret,
                     struct err *e)
{
    int rc = 0;
    struct backend_state *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return err_set(e, ERR_NOMEM, "a state");
    }
    s->m = m;
    @autoreleasepool {
        rc = [m->runner makeState:&s->state error:e];
    }
    if (rc < 0) {
        free(s);
        return rc;
    }
    *ret = s;
    return 0;
}

void coreml_state_free(struct backend_state *s)
{
    if (s == NULL) {
        return;
    }
    @autoreleasepool {
        [s->state release];
    }
    free(s);
}

/* The functions of one package share their states. */
static bool same_states(const struct backend_model *a,
                        const struct backend_model *b)
{
    bool same = a->n_states == b->n_states;
    for (size_t i = 0; same && i < a->n_states; i++) {
        same = strcmp(a->states[i].name, b->states[i].name) == 0 &&
               mil_type_equal(&a->states[i].type, &b->states[i].type);
    }
    return same;
}

bool state_fits(const struct backend_state *s, const struct backend_model *m)
{
    return s->m == m || (strcmp(s->m->compiled.path, m->compiled.path) == 0 &&
                         same_states(s->m, m));
}

/* --- one array --- */

/* What to do with the array of state i, and how it went. */
struct visit {
    const struct backend_model *m;
    size_t i;
    backend_state_fn *fn;
    void *ctx;
    int rc;
    bool called;
    struct err *e;
};

static int check_array(const struct visit *v, const struct backend_array *a)
{
    const struct mil_type *t = &v->m->states[v->i].type;
    bool fits = a->dtype == t->dtype && a->rank == t->rank;
    for (int k = 0; fits && k < a->rank; k++) {
        fits = a->dims[k] == t->dims[k];
    }
    return fits ? 0
                : err_set(v->e, ERR_BACKEND,
                          "state %s: Core ML's array has another shape or type",
                          v->m->states[v->i].name);
}

/* All elements lie in [0, size) bytes. */
static int check_size(const struct visit *v, const struct backend_array *a,
                      NSInteger size)
{
    int64_t last = 0;
    bool fits = size > 0;
    for (int k = 0; fits && k < a->rank; k++) {
        int64_t far = 0;
        fits = !__builtin_mul_overflow(a->dims[k] - 1, a->strides[k], &far) &&
               !__builtin_add_overflow(last, far, &last);
    }
    return fits && last < (int64_t)size / (int64_t)array_dtype_bytes(a->dtype)
               ? 0
               : err_set(v->e, ERR_BACKEND,
                         "state %s: Core ML's array is smaller than its shape",
                         v->m->states[v->i].name);
}

/* The strides that count are those that come with the bytes. */
static void visit_array(struct visit *v, MLMultiArray *array)
{
    [array getMutableBytesWithHandler:^(void *bytes, NSInteger size,
                                        NSArray<NSNumber *> *strides) {
      struct backend_array a;
      v->called = true;
      v->rc = memory_describe_as(array, bytes, strides, &a, v->e);
      if (v->rc == 0) {
          v->rc = check_array(v, &a);
      }
      if (v->rc == 0) {
          v->rc = check_size(v, &a, size);
      }
      if (v->rc == 0) {
          v->rc = v->fn(v->ctx, &a, v->e);
      }
    }];
}

static int visit(const struct backend_state *s, size_t i, backend_state_fn *fn,
                 void *ctx, struct err *e)
{
    struct visit v = {.m = s->m, .i = i, .fn = fn, .ctx = ctx, .e = e};
    struct visit *at = &v;
    NSString *name = [s->m->state_names objectAtIndex:i];
    @try {
        [s->state getMultiArrayForStateNamed:name
                                     handler:^(MLMultiArray *array) {
                                       visit_array(at, array);
                                     }];
    } @catch (NSException *x) {
        return coreml_raised(e, x, "access to a state");
    }
    return v.called
               ? v.rc
               : err_set(e, ERR_BACKEND, "Core ML gave no array of state %s",
                         s->m->states[i].name);
}

int coreml_state_with(struct backend_state *s, const char *name,
                      backend_state_fn *fn, void *ctx, struct err *e)
{
    for (size_t i = 0; i < s->m->n_states; i++) {
        if (strcmp(s->m->states[i].name, name) == 0) {
            @autoreleasepool {
                return visit(s, i, fn, ctx, e);
            }
        }
    }
    return err_set(e, ERR_NOT_FOUND, "no state %s", name);
}

/* --- copies --- */

struct copy {
    struct backend_state *to;
    size_t i;
    const struct backend_array *from;
};

static int copy_to(void *ctx, struct backend_array *a, struct err *e)
{
    const struct copy *c = ctx;
    (void)e;
    array_copy(a, c->from);
    return 0;
}

static int copy_from(void *ctx, struct backend_array *a, struct err *e)
{
    struct copy *c = ctx;
    c->from = a;
    return visit(c->to, c->i, copy_to, c, e);
}

int coreml_state_copy(struct backend_state *to,
                      const struct backend_state *from, struct err *e)
{
    if (!same_states(to->m, from->m)) {
        return err_set(e, ERR_INVALID, "states of two models");
    }
    for (size_t i = 0; to != from && i < to->m->n_states; i++) {
        struct copy c = {.to = to, .i = i};
        @autoreleasepool {
            RETERR(visit(from, i, copy_from, &c, e));
        }
    }
    return 0;
}

/* --- blocks of positions, for files --- */

size_t coreml_block_arrays(const struct backend_state *s,
                           struct state_array *ret)
{
    const struct backend_model *m = s->m;
    if (m->n_states > STATE_ARRAYS_MAX) {
        return 0;
    }
    for (size_t i = 0; i < m->n_states; i++) {
        size_t bytes = array_block_bytes(&m->states[i].type);
        if (bytes == 0 || bytes > STATE_BLOCK_MAX) {
            return 0;
        }
        ret[i] = (struct state_array){LAYOUT_FLAT, (uint32_t)bytes};
    }
    return m->n_states;
}

struct block {
    uint32_t b;
    void *bytes;
    bool save;
};

static int move_block(void *ctx, struct backend_array *a, struct err *e)
{
    const struct block *x = ctx;
    return array_block(a, x->b, x->bytes, x->save)
               ? 0
               : err_set(e, ERR_CONTEXT, "block %u of a state", x->b);
}

static int move_all(const struct backend_state *s, uint32_t b, char *bytes,
                    bool save, struct err *e)
{
    for (size_t i = 0; i < s->m->n_states; i++) {
        struct block x = {b, bytes, save};
        @autoreleasepool {
            RETERR(visit(s, i, move_block, &x, e));
        }
        bytes += array_block_bytes(&s->m->states[i].type);
    }
    return 0;
}

int coreml_block_save(const struct backend_state *s, uint32_t b, void *out,
                      struct err *e)
{
    return move_all(s, b, out, true, e);
}

int coreml_block_load(struct backend_state *s, uint32_t b, const void *in,
                      struct err *e)
{
    return move_all(s, b, (char *)(uintptr_t)in, false, e); /* only read */
}
