/* fake_device.h - the fake of fake.h as a device: it has a plan, its states can
 * be read and written, and its results may be wrong in the ways in which those
 * of real devices were. The plain fake is its reference.
 */
#pragma once

#include "engine/probe/probe.h"
#include "fake.h"

#define DEVICE_MACHINE "Fake M9, 42A1, all"

/* What is wrong; zeroed: nothing. t: only at this width, 0: at all. */
static struct {
    char kind; /* of package: 'a', 'b', 'h'; 0: all */
    uint32_t t;
    bool nan;          /* one number is none */
    bool unlike;       /* channels change places */
    bool places;       /* a row's bits depend on its place */
    bool turns;        /* and on how many predictions there were before */
    bool forgets;      /* states stay as they were */
    const char *fails; /* this call does: "open", "plan", "warm", "predict" */
    /* counted */
    unsigned opens, plans, warms, predictions, alone, references;
} device;

static bool device_is_wrong(const struct backend_model *m, uint32_t t)
{
    return (device.kind == 0 || device.kind == m->kind) &&
           (device.t == 0 || device.t == t);
}

static int device_fails(const char *call, struct err *e)
{
    return device.fails != NULL && strcmp(device.fails, call) == 0
               ? err_set(e, ERR_BACKEND, "error code: -14")
               : 0;
}

/* The system is asked for its CPU only: as the Core ML backend will be, by a
 * field of the conf that others do not read. */
static const char device_alone[] = "alone";

static void device_cpu_only(struct backend_conf *c)
{
    c->cache = device_alone;
}

static int device_open(const char *pkg, const char *function,
                       const struct backend_conf *conf,
                       struct backend_model **ret, struct err *e)
{
    struct backend_model *m = NULL;
    bool alone = conf->cache == device_alone;
    device.opens++;
    device.alone += alone;
    fake.n_exact = (uint32_t)conf->n_exact_widths; /* it says what it is told */
    for (uint32_t i = 0; i < fake.n_exact; i++) {
        assert_true(i < countof(fake.exact));
        fake.exact[i] = conf->exact_widths[i];
    }
    RETERR(fake_open(pkg, function, conf, &m, e));
    int rc = device_is_wrong(m, (uint32_t)m->t)
                 ? device_fails(alone ? "alone" : "open", e)
                 : 0;
    if (rc != 0) {
        fake_close(m);
        return rc;
    }
    *ret = m;
    return 0;
}

static void device_info(const struct backend_model *m, struct backend_info *ret)
{
    fake_info(m, ret);
    ret->arith = DEVICE_MACHINE;
}

static int device_warm(struct backend_model *m, uint32_t t,
                       const struct backend_watch *watch, struct err *e)
{
    device.warms++;
    RETERR(device_is_wrong(m, t) ? device_fails("warm", e) : 0);
    return fake_warm(m, t, watch, e);
}

/* The result, which fake_predict has made anew. */
static void device_spoil(struct backend_array *a, uint32_t t)
{
    float *p = a->own;
    for (uint32_t i = 0; device.places && i < t; i++) {
        p[a->strides[2] * i] += (float)i / 1024;
    }
    if (device.turns) {
        p[0] += (float)device.predictions / 65536;
    }
    for (uint32_t i = 0; device.unlike && i < t; i++) {
        float x = p[a->strides[2] * i];
        p[a->strides[2] * i] = -p[a->strides[1] + a->strides[2] * i];
        p[a->strides[1] + a->strides[2] * i] = x;
    }
    if (device.nan) {
        p[0] = NAN;
    }
}

static int device_predict(struct backend_io *io, struct backend_state *s,
                          struct err *e)
{
    struct backend_state before = {0};
    uint32_t t = (uint32_t)io->in[0]->dims[2];
    bool wrong = device_is_wrong(io->m, t);
    device.predictions++;
    seen.n = 0; /* its calls are not what is tested */
    RETERR(wrong ? device_fails("predict", e) : 0);
    if (s != NULL) {
        before = *s;
    }
    RETERR(fake_predict(io, s, e));
    if (wrong) {
        device_spoil(&io->out[0], t);
    }
    if (wrong && device.forgets && s != NULL) {
        *s = before;
    }
    return 0;
}

static int device_state_with(struct backend_state *s, const char *name,
                             backend_state_fn *fn, void *ctx, struct err *e)
{
    struct backend_array a = {
        .dtype = MIL_FP16,
        .rank = 4,
        .dims = {1,      1,      FAKE_S, 1},
        .strides = {FAKE_S, FAKE_S, 1,      1},
        .data = s->held
    };
    assert_string_equal(name, "layers_0_k_state");
    return fn(ctx, &a, e);
}

static const struct backend_plan_op device_ops[] = {
    {"q", "conv",    BACKEND_NEURAL_ENGINE, 7, 0.5},
    {"k", "conv",    BACKEND_NEURAL_ENGINE, 7, 0.2},
    {"p", "softmax", BACKEND_CPU,           3, 0.1},
    {"r", "softmax", BACKEND_CPU,           3, 0.1},
    {"s", "softmax", BACKEND_CPU,           7, 0.1},
};

static int device_plan(const char *pkg, const char *function,
                       const struct backend_conf *conf,
                       struct backend_plan *ret, struct err *e)
{
    (void)pkg;
    (void)function;
    (void)conf;
    device.plans++;
    RETERR(device_fails("plan", e));
    *ret = (struct backend_plan){.n_ops = countof(device_ops)};
    ret->ops = malloc(sizeof(device_ops));
    assert_non_null(ret->ops);
    memcpy(ret->ops, device_ops, sizeof(device_ops));
    return 0;
}

static const struct backend device_backend = {
    .name = "device",
    .open = device_open,
    .close = fake_close,
    .info = device_info,
    .warm = device_warm,
    .array_new = fake_array_new,
    .array_free = fake_array_free,
    .lock = fake_lock,
    .unlock = fake_unlock,
    .bind = fake_bind,
    .unbind = fake_unbind,
    .rebind = fake_rebind,
    .predict = device_predict,
    .state_new = fake_state_new,
    .state_free = fake_state_free,
    .state_copy = fake_state_copy,
    .state_with = device_state_with,
    .plan = device_plan,
};

static inline void device_machine(const struct backend_conf *conf,
                                  char out[ARITH_BYTES_MAX])
{
    (void)conf;
    (void)snprintf(out, ARITH_BYTES_MAX, DEVICE_MACHINE);
}

/* What is right. */
static int device_plain_predict(struct backend_io *io, struct backend_state *s,
                                struct err *e)
{
    float by_width = fake.by_width;
    seen.n = 0;
    fake.by_width = 0;
    int rc = fake_predict(io, s, e);
    fake.by_width = by_width;
    return rc;
}

static int device_plain_open(const char *pkg, const char *function,
                             const struct backend_conf *conf,
                             struct backend_model **ret, struct err *e)
{
    device.references++;
    return fake_open(pkg, function, conf, ret, e);
}

static const struct backend device_reference = {
    .name = "reference",
    .open = device_plain_open,
    .close = fake_close,
    .info = fake_info,
    .array_new = fake_array_new,
    .array_free = fake_array_free,
    .lock = fake_lock,
    .unlock = fake_unlock,
    .bind = fake_bind,
    .unbind = fake_unbind,
    .rebind = fake_rebind,
    .predict = device_plain_predict,
    .state_new = fake_state_new,
    .state_free = fake_state_free,
    .state_copy = fake_state_copy,
    .state_with = device_state_with,
};

/* A sound device; ts: T of the functions, 0, 0: ranged 1..4. */
static inline void device_setup(uint32_t t0, uint32_t t1)
{
    static const char *const names[9] = {"t0", "t1", "t2", "t3", "t4",
                                         "t5", "t6", "t7", "t8"};
    const char *functions[2] = {names[t0], names[t1]};
    uint32_t ts[2] = {t0, t1};
    size_t n = t0 == 0 ? 0 : t1 == 0 ? 1 : 2;
    memset(&device, 0, sizeof(device));
    memset(&fake, 0, sizeof(fake));
    fake.t_lo = 1;
    fake.t_hi = 4;
    fake.fail_after = -1;
    fake_write_bundle(n > 0 ? functions : NULL, ts, n);
}
