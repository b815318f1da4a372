#include "cli/mil_time.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/cpu/kernels/products/linear.h"
#include "proto/json.h"
#if defined(ANED_COREML)
#include "engine/coreml/backend_coreml.h"
#endif

struct timing {
    const struct mil_timing *t;
    const struct backend *be;
    struct backend_model *m;
    struct backend_info info;
    struct backend_array **in; /* info.n_in */
    struct backend_io *io;
    struct backend_state *state;
    uint32_t width;
    double open_ms, warm_ms;
    double *us; /* t->count, each prediction's */
    uint64_t bytes; /* of weights that all of them read in products */
    FILE *out;  /* standard output as it was */
};

/* Core ML prints lines of its own on descriptor 1, which programs that read
 * ours must not get: it becomes standard error. */
static int keep_stdout(FILE **ret, struct err *e)
{
    int fd = dup(STDOUT_FILENO);
    *ret = fd >= 0 ? fdopen(fd, "w") : NULL;
    return *ret != NULL && dup2(STDERR_FILENO, STDOUT_FILENO) >= 0
               ? 0
               : err_errno(e, errno, "standard output");
}

static double now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int open_it(struct timing *x, struct err *e)
{
    const struct mil_timing *t = x->t;
    double from = now_us();
    RETERR(x->be->open(t->pkg, t->function, t->conf, &x->m, e));
    x->open_ms = (now_us() - from) / 1000;
    x->be->info(x->m, &x->info);
    x->width = t->width > 0 ? t->width : (uint32_t)x->info.t_min;
    return x->width >= x->info.t_min && x->width <= x->info.t_max
               ? 0
               : err_set(e, ERR_MIL_INPUT,
                         "width %u: the package takes %lld to %lld", x->width,
                         (long long)x->info.t_min, (long long)x->info.t_max);
}

/* Zeros for every input, in the backend's own memory. */
static int bind(struct timing *x, struct err *e)
{
    x->in = calloc(x->info.n_in + 1, sizeof(struct backend_array *));
    must(x->in != NULL); /* some pointers */
    for (size_t i = 0; i < x->info.n_in; i++) {
        const struct mil_type *y = &x->info.in[i].type;
        int64_t dims[MIL_RANK_MAX];
        for (int k = 0; k < y->rank; k++) {
            dims[k] = y->dims[k] == MIL_UNKNOWN ? x->width : y->dims[k];
        }
        RETERR(
            x->be->array_new(x->m, i, y->dtype, y->rank, dims, &x->in[i], e));
    }
    if (x->info.n_states > 0) {
        RETERR(x->be->state_new(x->m, &x->state, e));
    }
    return x->be->bind(x->m, x->in, &x->io, e);
}

static int predict(struct timing *x, struct err *e)
{
    double from = now_us();
    x->us = calloc(x->t->count, sizeof(*x->us));
    must(x->us != NULL); /* the caller has limited it */
    if (x->be->warm != NULL) {
        RETERR(x->be->warm(x->m, x->width, &x->t->conf->watch, e));
        x->warm_ms = (now_us() - from) / 1000;
    }
    x->bytes = linear_bytes();
    for (uint32_t i = 0; i < x->t->count; i++) {
        from = now_us();
        RETERR(x->be->predict(x->io, x->state, e));
        x->us[i] = now_us() - from;
    }
    x->bytes = linear_bytes() - x->bytes;
    return 0;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* What only Core ML counts. */
static void put_counts(const struct timing *x, struct json *o)
{
#if defined(ANED_COREML)
    if (x->be == &backend_coreml) {
        struct coreml_counts c;
        coreml_counts(x->m, &c);
        json_add_int(o, "moved", (int64_t)c.moved);
        json_add_bool(o, "refused", c.refused);
        json_add_bool(o, "compiled", c.compiled);
    }
#else
    (void)x;
    (void)o;
#endif
}

static int flush(struct timing *x, struct err *e)
{
    return fflush(x->out) == 0 ? 0 : err_set(e, ERR_IO, "standard output");
}

static int print(struct timing *x, struct err *e)
{
    uint32_t n = x->t->count;
    qsort(x->us, n, sizeof(*x->us), ascending);
    if (!x->t->json) {
        (void)fprintf(x->out, "width %u, %u predictions: %.0f us (least %.0f)\n",
                      x->width, n, x->us[n / 2], x->us[0]);
        return flush(x, e);
    }
    struct buf b;
    struct json *o = json_object();
    json_add_str(o, "object", "aned.mil.time");
    json_add_str(o, "backend", x->be->name);
    json_add_int(o, "width", x->width);
    json_add_int(o, "predictions", n);
    json_add_num(o, "open_ms", x->open_ms);
    json_add_num(o, "warm_ms", x->warm_ms);
    json_add_num(o, "median_us", x->us[n / 2]);
    json_add_num(o, "least_us", x->us[0]);
    if (x->bytes > 0) { /* only the cpu backend counts */
        json_add_int(o, "weight_bytes", (int64_t)(x->bytes / n));
    }
    put_counts(x, o);
    buf_init(&b, 4096);
    json_write(o, false, &b);
    json_free(o);
    must(buf_ok(&b)); /* a dozen numbers */
    (void)fprintf(x->out, "%s\n", b.p);
    buf_fini(&b);
    return flush(x, e);
}

int mil_time(const struct mil_timing *t, struct err *e)
{
    struct timing x = {.t = t, .be = t->backend};
    int rc = 0;
    CHECK(keep_stdout(&x.out, e));
    CHECK(open_it(&x, e));
    CHECK(bind(&x, e));
    CHECK(predict(&x, e));
    CHECK(print(&x, e));
out:
    if (x.m != NULL) {
        x.be->unbind(x.io);
        for (size_t i = 0; x.in != NULL && i < x.info.n_in; i++) {
            x.be->array_free(x.in[i]);
        }
        x.be->state_free(x.state);
        x.be->close(x.m);
    }
    free(x.in);
    free(x.us);
    if (x.out != NULL) {
        (void)fclose(x.out);
    }
    return rc;
}
