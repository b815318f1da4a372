/* program_run.h - a program of a fuzzer, opened and given one prediction of
 * zeros. Programs whose values could be large are left out: memory is not what
 * is looked for. */
#pragma once

#include <string.h>

#include "engine/cpu/cpu.h"
#include "../unit/engine/plain.h"
#include "mil/impl.h"

#define VALUE_MAX 65536 /* elements of a declared value */

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

static void predict(const struct backend *be, struct backend_model *m)
{
    struct err e = {0};
    struct backend_info info;
    struct backend_state *st = NULL;
    struct tensor out = {0};
    float *zeros = calloc(VALUE_MAX, sizeof(*zeros));
    be->info(m, &info);
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
        fits = be->state_new(m, &st, &e) == 0;
    }
    if (fits) {
        out.name = info.out[0].name;
        (void)!plain_predict(be, m, st, in, info.n_in, &out, 1, &e);
    }
    be->state_free(st);
    free(in);
    free(zeros);
}

/* p is valid; it is taken. */
static void run_program(struct mil_program *p, bool fast)
{
    const struct backend_conf conf = {.threads = 1};
    const struct backend *be = fast ? &backend_cpu : &backend_interpreter;
    struct backend_model *m = NULL;
    struct err e = {0};
    if (!small_block(p->functions[p->default_function]->body)) {
        mil_free(p);
    } else if (cpu_open_program(p, NULL, &conf, fast, &m, &e) == 0) {
        predict(be, m);
        be->close(m);
    }
}
