/* residency_rig.h - a small program under construction, what is predicted of
 * it, and which rules a test has seen to hold. For the tests of predicted
 * residency.
 */
#pragma once

#include <unistd.h>

#include "../unit.h"
#include "base/file.h"
#include "convert/residency/residency.h"
#include "mil/build.h"

/* --- a program under construction, and what is predicted of it --- */

struct rig {
    char dir[64];
    struct mil_writer *w;
    struct mil_program *p;
    struct mil_function *f;
    struct mil_value *x; /* fp16[1,64,4,32] */
    struct prediction v;
};

static struct rig r;

static inline int up(void **state)
{
    (void)state;
    static const int64_t dims[] = {1, 64, 4, 32};
    struct err e = {0};
    (void)snprintf(r.dir, sizeof(r.dir), "/tmp/aned-residency-XXXXXX");
    if (mkdtemp(r.dir) == NULL) {
        return -1;
    }
    char path[96];
    (void)snprintf(path, sizeof(path), "%s/p.mlpackage", r.dir);
    unit_ok(mil_writer_open(path, &r.w, &e), &e);
    r.p = mil_writer_program(r.w);
    r.f = mil_add_function(r.p, "main");
    r.x = mil_add_input(r.p, r.f, "x", MIL_FP16, 4, dims, 0, 0);
    return 0;
}

static inline int down(void **state)
{
    (void)state;
    struct err e = {0};
    predict_free(&r.v);
    mil_writer_abort(r.w);
    int rc = file_rmtree(r.dir, &e);
    r = (struct rig){.dir = ""};
    return rc;
}

#define BYTES 100000000u /* of weights, where these are not the matter */

static inline void predict_bytes(const char *profile, uint64_t bytes)
{
    struct predict_limits l = {0};
    struct err e = {0};
    unit_ok(predict_limits(profile, &l, &e), &e);
    predict_free(&r.v);
    predict_program(r.p, bytes, &l, &r.v);
}

static inline void predict(const char *profile)
{
    predict_bytes(profile, BYTES);
}

/* --- what was seen of all rules --- */

static bool proven[128];

static inline void prove(const char *id)
{
    for (size_t i = 0; predict_rule_at(i) != NULL; i++) {
        assert_true(i < countof(proven));
        proven[i] = proven[i] || strcmp(predict_rule_at(i)->id, id) == 0;
    }
}

static inline const struct predict_op *last_of(const char *type)
{
    const struct predict_op *o = NULL;
    for (size_t i = 0; i < r.v.f[0].n_ops; i++) {
        o = strcmp(r.v.f[0].ops[i].op->type, type) == 0 ? &r.v.f[0].ops[i] : o;
    }
    if (o == NULL) {
        fail_msg("there is no %s", type);
        abort(); /* not reached: fail_msg does not return */
    }
    return o;
}

static inline void op_is(const char *type, enum predict_verdict verdict,
                         const char *rule)
{
    const struct predict_op *o = last_of(type);
    if (o->verdict != verdict || strcmp(o->rule->id, rule) != 0) {
        fail_msg("%s: %s by %s (%s), not %s by %s", type,
                 predict_word(o->verdict), o->rule->id, o->detail,
                 predict_word(verdict), rule);
    }
    prove(rule);
}

static inline const struct predict_finding *
find(const struct predict_findings *f, const char *rule)
{
    for (size_t i = 0; i < f->n; i++) {
        if (strcmp(f->of[i].rule->id, rule) == 0) {
            prove(rule);
            return &f->of[i];
        }
    }
    return NULL;
}

/* Of the function or the program; when it is off, everything is by it. */
static inline void found(const char *rule, enum predict_verdict verdict)
{
    const struct predict_finding *x = find(&r.v.f[0].findings, rule);
    x = x != NULL ? x : find(&r.v.findings, rule);
    if (x == NULL) {
        fail_msg("%s was not found", rule);
        return;
    }
    assert_int_equal(x->verdict, verdict);
    assert_int_equal(r.v.f[0].count[PREDICT_ON] == 0, verdict == PREDICT_OFF);
    if (verdict == PREDICT_OFF) {
        assert_string_equal(r.v.f[0].ops[0].rule->id, rule);
    }
}

/* --- small words --- */

static inline struct mil_value *unary(const char *op, struct mil_value *x)
{
    return mil_op(r.p, r.f, op, op, "x", x, NULL);
}

static inline struct mil_value *binary(const char *op, struct mil_value *x,
                                       struct mil_value *y)
{
    return mil_op(r.p, r.f, op, op, "x", x, "y", y, NULL);
}

static inline struct mil_value *input(const char *name, enum mil_dtype t,
                                      int rank, int64_t a, int64_t b, int64_t c,
                                      int64_t d, int64_t hi)
{
    const int64_t dims[] = {a, b, c, d, 1, 1};
    return mil_add_input(r.p, r.f, name, t, rank, dims, 1, hi);
}

static inline struct mil_value *ints(size_t n, int32_t a, int32_t b, int32_t c,
                                     int32_t d)
{
    const int32_t v[] = {a, b, c, d};
    return mil_i32s(r.p, r.f, n, v);
}

/* Zeros in weight.bin. */
static inline const struct mil_const *zeros(enum mil_dtype t, int rank,
                                            const int64_t *dims)
{
    struct mil_type type = {.dtype = t, .rank = rank};
    uint64_t n = 1;
    for (int i = 0; i < rank; i++) {
        type.dims[i] = dims[i];
        n *= (uint64_t)dims[i];
    }
    uint8_t *p = calloc(n, 4);
    assert_non_null(p);
    const struct mil_const *c = mil_blob(r.w, &type, p);
    free(p);
    return c;
}

static inline struct mil_value *stored(const char *name, enum mil_dtype t,
                                       int rank, int64_t a, int64_t b,
                                       int64_t c, int64_t d)
{
    const int64_t dims[] = {a, b, c, d, 1, 1};
    return mil_const_op(r.p, r.f, name, zeros(t, rank, dims));
}

static inline struct mil_value *conv(struct mil_value *x, struct mil_value *w,
                                     int32_t stride)
{
    static const int32_t none[] = {0, 0, 0, 0};
    struct mil_value *strides = ints(2, 1, stride, 0, 0);
    struct mil_value *pad = mil_i32s(r.p, r.f, 4, none);
    struct mil_value *one = mil_i32(r.p, r.f, 1);
    return mil_op(r.p, r.f, "conv", "conv", "x", x, "weight", w, "strides",
                  strides, "pad_type", mil_str(r.p, r.f, "valid"), "pad", pad,
                  "dilations", ints(2, 1, 1, 0, 0), "groups", one, NULL);
}

static inline struct mil_value *a_state(const char *name, int64_t width)
{
    const int64_t dims[] = {1, 2, 64, width};
    return mil_add_state(r.p, r.f, name, 4, dims);
}

static inline struct mil_value *
update(struct mil_value *x, struct mil_value *by, struct mil_value *begin)
{
    static const bool no[] = {false, false, false, false};
    static const bool yes[] = {true, true, true, true};
    struct mil_value *masks = mil_bools(r.p, r.f, 4, no);
    struct mil_value *all = mil_bools(r.p, r.f, 4, yes);
    return mil_op(r.p, r.f, "slice_update", "updated", "x", x, "update", by,
                  "begin", begin, "end", ints(4, 0, 0, 0, 0), "stride",
                  ints(4, 1, 1, 1, 1), "begin_mask", masks, "end_mask", all,
                  "squeeze_mask", masks, NULL);
}

static inline void put_state(struct mil_value *state, struct mil_value *data)
{
    (void)mil_op(r.p, r.f, "write_state", "write", "input", state, "data", data,
                 NULL);
}

/* --- all rules --- */

/* A rule without a planted fault is not known to hold, one without a row in the
 * room's README to nobody. */
static inline void rig_each_was_seen(bool of_ops)
{
    size_t n = 0;
    bool mine = true; /* those of operations come first */
    char path[1024];
    char word[40];
    struct buf readme = {0};
    struct err e = {0};
    (void)snprintf(path, sizeof(path),
                   "%s/../daemon/convert/residency/README.md", unit_tests());
    unit_ok(file_read(path, KIB(64), &readme, &e), &e);
    for (; predict_rule_at(n) != NULL; n++) {
        const struct predict_rule *x = predict_rule_at(n);
        if (mine == of_ops && !proven[n]) {
            fail_msg("no fault is planted for %s", x->id);
        }
        (void)snprintf(word, sizeof(word), "`%s`", x->id);
        if (strstr(readme.p, word) == NULL) {
            fail_msg("README.md has no row for %s", x->id);
        }
        char text[PREDICT_REASON_MAX];
        predict_reason(x, "", text, sizeof(text)); /* whole, with a detail */
        assert_true(strlen(text) < PREDICT_REASON_MAX - 60);
        for (size_t i = 0; i < n; i++) {
            assert_string_not_equal(predict_rule_at(i)->id, x->id);
        }
        mine = mine && strcmp(x->id, "op.unlisted") != 0;
    }
    buf_fini(&readme);
    print_message("# %zu rules\n", n);
}
