/* dense.h - predictions on the caller's own dense arrays, with any backend: for
 * `aned mil run`, probes and tests. It copies; the engine does not use it.
 * Thread: that of the model.
 */
#pragma once

#include "engine/backend.h"
#include "engine/tensor.h"

struct dense {
    const struct backend *be; /* borrowed, as m */
    struct backend_model *m;
    struct backend_info info;
    struct backend_array **in; /* info.n_in: owned, of the last prediction */
    struct backend_io *io;     /* ties them */
    void **out;                /* info.n_out: the results' memory */
    void *sink;                /* of state_with */
};

CHECKED int dense_init(struct dense *d, const struct backend *be,
                       struct backend_model *m, struct err *e);
void dense_fini(struct dense *d); /* zeroed is fine */

/* One prediction. All declared inputs that have no default must be given, in
 * any order. out: n_out wanted results, name set by the caller; dtype fp32,
 * dims and data are filled, data is valid until the next call. Errors:
 * MIL_INPUT (also a result of no such name), those of the backend. */
CHECKED int dense_predict(struct dense *d, struct backend_state *s,
                          const struct tensor *in, size_t n_in,
                          struct tensor *out, size_t n_out, struct err *e);
/* A copy of one state, in its own dtype; valid until the next call. */
CHECKED int dense_state(struct dense *d, struct backend_state *s,
                        const char *name, struct tensor *ret, struct err *e);
