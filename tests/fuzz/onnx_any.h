/* onnx_any.h - a model that may be anything is read as far as it goes: what is
 * understood as a decoder to the last row of the last tensor. */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "source/onnx/make.h"

/* What is read must not be optimised away. */
static volatile float sink;

enum { OUTSIDE_BYTES = 1 << 16, ROWS_MAX = 1 << 18 }; /* of w.data; of a tensor */

static int find(void *ctx, const char *location, struct span *ret,
                struct err *e)
{
    must(onnx_location_ok(location));
    if (location[0] == 'g') {
        return err_set(e, ERR_NOT_FOUND, "%s: not there", location);
    }
    *ret = (struct span){ctx, OUTSIDE_BYTES};
    return 0;
}

static void read_rows(const struct gguf *g)
{
    struct err e = {0};
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (t->rows > ROWS_MAX / t->cols) {
            continue;
        }
        float *y = malloc(t->rows * t->cols * sizeof(*y));
        must(y != NULL && gguf_rows(t, 0, t->rows, y, &e) == 0);
        sink += y[t->rows * t->cols - 1];
        free(y);
    }
}

/* Errors: those of the readers. */
static int read_model(struct span s, const struct onnx_config *c,
                      struct err *e)
{
    uint8_t *file = calloc(1, OUTSIDE_BYTES);
    const struct onnx_files files = {find, file};
    struct onnx m;
    struct onnx_decoder d;
    struct made *made = NULL;
    struct gguf *g = NULL;
    const char *arch = NULL;
    must(file != NULL && made_new(&made, e) == 0);
    int rc = onnx_read(&m, s.p, s.n, &files, e);
    rc = rc < 0 ? rc : onnx_recover(&m, &d, e);
    rc = rc < 0 ? rc : onnx_make(&d, c, made, &arch, e);
    if (rc < 0) {
        must(e->code == rc && e->msg[0] != '\0');
        made_free(made);
    } else {
        rc = made_done(made, "onnx", &g, e);
    }
    onnx_fini(&m); /* a source does not need it */
    if (rc == 0) {
        read_rows(g);
        gguf_close(g);
    }
    free(file);
    return rc;
}
