/* quantise.c - the encoder on arrays, for tests/oracle/test_quant.py.
 *
 *   quantise FOLDER SPEC PART THREADS
 *
 * FOLDER/w.npy: weights (rows, cols); x.npy: inputs (cols, tokens); wanted.npy,
 * when PART is not 0: what they would be unquantised. Written: values.npy, what
 * the codes stand for, and plain.npy, the same without feedback; params.npy;
 * importance.npy.
 */
#include <math.h>
#include <string.h>

#include "base/crew.h"
#include "base/half.h"
#include "base/npy.h"
#include "base/parse.h"
#include "convert/quant.h"
#include "convert/quant/feedback.h"

#define BYTES_MAX ((uint64_t)1 << 28)

struct tool {
    const char *folder;
    struct npy w, x, wanted;
    struct quant_spec spec;
    double part;
    unsigned threads;
    struct hessian *h;
    struct shift *s;
    struct feedback *f;
    float *importance;
    uint8_t *codes;
    uint16_t *params;
    float *values;
};

static void path_of(const struct tool *t, const char *name, char out[512])
{
    (void)snprintf(out, 512, "%s/%s.npy", t->folder, name);
}

static int read_matrix(const struct tool *t, const char *name, struct npy *a,
                       struct err *e)
{
    char path[512];
    path_of(t, name, path);
    RETERR(npy_read(path, BYTES_MAX, a, e));
    return a->type == NPY_F32 && a->rank == 2
               ? 0
               : err_set(e, ERR_NPY, "%s: not a matrix of float32", path);
}

static int write_array(const struct tool *t, const char *name,
                       enum npy_type type, size_t n, const void *p,
                       struct err *e)
{
    char path[512];
    int64_t dims[1] = {(int64_t)n};
    path_of(t, name, path);
    return npy_write(path, type, 1, dims, p, e);
}

static float value(const struct tool *t, size_t i)
{
    size_t cols = (size_t)t->w.dims[1];
    unsigned bits = quant_bits(t->spec.kind);
    unsigned c = 0;
    for (size_t b = 0; b < bits; b++) {
        size_t at = i * bits + b;
        c |= (unsigned)(t->codes[at / 8] >> at % 8 & 1) << b;
    }
    size_t row = i / cols;
    unsigned entries = quant_entries(t->spec.kind);
    if (entries > 0) {
        return half_to_float(t->params[row / t->spec.group * entries + c]);
    }
    int q = bits == 4 ? (int)(c ^ 8u) - 8 : (int8_t)c;
    return half_to_float(t->params[row]) * (float)q;
}

static int encode(struct tool *t, const struct feedback *f, const char *name,
                  struct err *e)
{
    struct quant_form out = {.codes = t->codes, .params = t->params};
    struct quant_input in = {.spec = t->spec,
                             .rows = t->w.data,
                             .n_rows = (uint64_t)t->w.dims[0],
                             .cols = (uint64_t)t->w.dims[1],
                             .importance = t->importance,
                             .feedback = f};
    RETERR(quant_encode(&in, &out, e));
    for (size_t i = 0; i < t->w.count; i++) {
        t->values[i] = value(t, i);
    }
    return write_array(t, name, NPY_F32, t->w.count, t->values, e);
}

static int run(struct tool *t, const char *spec, struct err *e)
{
    RETERR(quant_parse(spec, &t->spec, e));
    RETERR(read_matrix(t, "w", &t->w, e));
    RETERR(read_matrix(t, "x", &t->x, e));
    size_t cols = (size_t)t->w.dims[1];
    size_t tokens = (size_t)t->x.dims[1];
    t->spec = quant_fit(t->spec, (uint64_t)t->w.dims[0]);
    RETERR(hessian_open(cols, &t->h, e));
    RETERR(hessian_add(t->h, t->threads, t->x.data, tokens, tokens, e));
    if (t->part > 0) {
        RETERR(read_matrix(t, "wanted", &t->wanted, e));
        RETERR(shift_open(cols, NULL, &t->s, e));
        RETERR(shift_add(t->s, t->threads, t->wanted.data, t->x.data, tokens,
                         tokens, e));
    }
    RETERR(feedback_open(t->h, t->s, t->part, t->threads, &t->f, e));
    size_t n = (size_t)quant_params(t->spec, (uint64_t)t->w.dims[0]);
    t->importance = malloc(cols * sizeof(float));
    t->codes = malloc(t->w.count * sizeof(uint16_t));
    t->params = malloc((n + 1) * sizeof(uint16_t));
    t->values = malloc(t->w.count * sizeof(float));
    must(t->importance != NULL && t->codes != NULL && t->params != NULL &&
         t->values != NULL);
    hessian_importance(t->h, t->importance);
    RETERR(encode(t, NULL, "plain", e));
    RETERR(encode(t, t->f, "values", e));
    RETERR(write_array(t, "params", NPY_F16, n, t->params, e));
    return write_array(t, "importance", NPY_F32, cols, t->importance, e);
}

int main(int argc, char **argv)
{
    struct tool t = {.folder = argc > 1 ? argv[1] : NULL};
    struct err e = {0};
    uint64_t threads = 0;
    if (argc != 5 || !parse_double(argv[3], &t.part) ||
        !parse_u64(argv[4], CREW_MAX, &threads)) {
        (void)fprintf(stderr, "usage: quantise FOLDER SPEC PART THREADS\n");
        return EXIT_USAGE;
    }
    t.threads = (unsigned)threads;
    crew_ref();
    int rc = run(&t, argv[2], &e);
    crew_unref();
    feedback_close(t.f);
    shift_close(t.s);
    hessian_close(t.h);
    npy_fini(&t.w);
    npy_fini(&t.x);
    npy_fini(&t.wanted);
    free(t.importance);
    free(t.codes);
    free(t.params);
    free(t.values);
    return rc < 0 ? err_print(&e) : EXIT_SUCCESS;
}
