/* A package as fuzz_package.c has it, run: what is valid is opened by the
 * interpreter and given one prediction of zeros. Programs whose values could
 * be large are left out: memory is not what is looked for. */
#include <string.h>

#include "engine/cpu/cpu.h"
#include "mil/impl.h"

#define VALUE_MAX 65536 /* elements of a declared value */

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static int find(void *ctx, const char *rel, const struct file_map **ret,
                struct err *e)
{
    const struct file_map *m = ctx;
    int rc = strcmp(rel, "weights/weight.bin") == 0
                 ? blob_check_header(m, e)
                 : err_set(e, ERR_PKG_MISSING, "%s", rel);
    if (rc == 0) {
        *ret = m;
    }
    return rc;
}

/* Operations whose result data alone may make as large as they like. */
static bool grows(const struct mil_op *op)
{
    static const char *const types[] = {"fill", "tile", "range_1d", "pad",
                                        "one_hot"};
    for (size_t i = 0; i < countof(types); i++) {
        if (strcmp(op->type, types[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool small_block(const struct mil_block *b)
{
    for (size_t i = 0; i < b->n_ops; i++) {
        const struct mil_op *op = b->ops[i];
        if (strcmp(op->type, "while_loop") == 0) {
            return false; /* a million rounds are legal, and long */
        }
        for (size_t k = 0; k < op->n_outputs; k++) {
            uint64_t n = 0;
            bool known = mil_type_count(&op->outputs[k]->type, &n);
            if ((known && n > VALUE_MAX) || (!known && grows(op))) {
                return false;
            }
        }
        for (size_t k = 0; k < op->n_blocks; k++) {
            if (!small_block(op->blocks[k])) {
                return false;
            }
        }
    }
    return true;
}

static void predict(struct backend_model *m)
{
    struct err e = {0};
    struct backend_info info;
    struct backend_state *st = NULL;
    struct tensor out = {0};
    float *zeros = calloc(VALUE_MAX, sizeof(*zeros));
    backend_interpreter.info(m, &info);
    struct tensor *in = calloc(info.n_in + 1, sizeof(*in));
    must(in != NULL && zeros != NULL);
    bool fits = info.n_out > 0;
    for (size_t i = 0; i < info.n_in; i++) {
        const struct mil_type *t = &info.in[i].type;
        uint64_t count = 1;
        in[i] = (struct tensor){.name = info.in[i].name,
                                .dtype = MIL_FP32,
                                .rank = t->rank,
                                .data = zeros};
        for (int k = 0; k < t->rank; k++) {
            in[i].dims[k] = t->dims[k] < 0 ? info.in[i].t_lo : t->dims[k];
            fits = fits && in[i].dims[k] >= 0 &&
                   (uint64_t)in[i].dims[k] <= VALUE_MAX;
            count *= fits ? (uint64_t)in[i].dims[k] : 1;
            fits = fits && count <= VALUE_MAX;
        }
    }
    fits = fits && info.state_bytes < MIB(1);
    if (fits && info.n_states > 0) {
        fits = backend_interpreter.state_new(m, &st, &e) == 0;
    }
    if (fits) {
        out.name = info.out[0].name;
        (void)!backend_interpreter.predict(m, st, in, info.n_in, &out, 1, &e);
    }
    backend_interpreter.state_free(st);
    free(in);
    free(zeros);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct cur c = cur_of(p, n);
    size_t spec_bytes = cur_u32(&c);
    const void *spec = cur_bytes(&c, spec_bytes);
    if (c.bad) {
        return 0;
    }
    size_t rest = n - c.at;
    uint8_t *weights = aligned_alloc(4096, (rest + 4096) / 4096 * 4096);
    struct mil_program *prog = calloc(1, sizeof(*prog));
    must(weights != NULL && prog != NULL);
    memcpy(weights, p + c.at, rest);
    struct file_map map = {.p = weights, .n = rest};
    struct err e = {0};
    struct backend_model *m = NULL;
    const struct backend_conf conf = {.threads = 1};
    int rc = spec_read(prog, spec, spec_bytes,
                       (struct weights){.find = find, .ctx = &map}, &e);
    if (rc == 0) {
        rc = mil_validate(prog, &e);
    }
    if (rc == 0 && small_block(prog->functions[prog->default_function]->body)) {
        rc = cpu_open_program(prog, NULL, &conf, false, &m, &e);
        prog = NULL; /* taken in every case */
        if (rc == 0) {
            predict(m);
            backend_interpreter.close(m);
        }
    }
    mil_free(prog);
    free(weights);
    return 0;
}
