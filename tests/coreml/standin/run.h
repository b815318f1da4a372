/* run.h - the stand-in's arithmetic: aned's own interpreter. run.c is the only
 * file here that knows engine/backend.h.
 *
 * Arrays are dense and row-major. Thread: one call at a time for each model,
 * and for each state.
 */
#pragma once

#include "mil/mil.h"

struct run_model;
struct run_state;

struct run_array {
    const char *name;     /* borrowed */
    enum mil_dtype dtype; /* of data: FP16 as bits, FP32, INT32 */
    int rank;
    int64_t dims[MIL_RANK_MAX];
    void *data;
};

/* Open a function of the package; NULL is the default one. fp32: operations'
 * results are not rounded to fp16. threads: 0 is all cores. The model counts
 * its users and starts with one. */
CHECKED int si_run_open(const char *pkg, const char *function, bool fp32,
                        unsigned threads, struct run_model **ret,
                        struct err *e);
struct run_model *si_run_ref(struct run_model *m);
void si_run_unref(struct run_model *m); /* NULL is fine */

/* One prediction. Each of out[] has its name set; dtype (always FP32), rank,
 * dims and data are filled, data valid until the next call. s: NULL without
 * states; a state of another model serves if it has the same names and shapes.
 */
CHECKED int si_run_predict(struct run_model *m, struct run_state *s,
                           const struct run_array *in, size_t n_in,
                           struct run_array *out, size_t n_out, struct err *e);

/* A zeroed state; it is a user of its model. */
CHECKED int si_run_state_new(struct run_model *m, struct run_state **ret,
                             struct err *e);
void si_run_state_free(struct run_state *s); /* NULL is fine */
/* Copy one state's values, fp16: to out, or from in. */
CHECKED int si_run_state_read(struct run_state *s, const char *name,
                              uint16_t *out, size_t n, struct err *e);
CHECKED int si_run_state_write(struct run_state *s, const char *name,
                               const uint16_t *in, size_t n, struct err *e);
