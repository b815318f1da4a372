/* Any bytes as a GGUF: open, look at everything that is accepted, dequantise
 * a row of each tensor. */
#include <stdlib.h>

#include "source/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

/* What is read must not be optimised away. */
volatile int64_t sink;

static void look(const struct gguf *g)
{
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        uint64_t at = 0;
        for (uint64_t k = 0; k < kv->count && kv->kind == GGUF_ARRAY; k++) {
            if (kv->item == GGUF_STRING) {
                struct span s = gguf_arr_str(kv, &at);
                sink += s.n > 0 ? s.p[s.n - 1] : 0;
            } else if (kv->item == GGUF_F32 || kv->item == GGUF_F64) {
                sink += gguf_arr_f32(kv, k) > 0;
            } else {
                sink ^= gguf_arr_int(kv, k);
            }
        }
    }
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        must(gguf_tensor(g, t->name) == t);
        float *y = malloc(t->cols * sizeof(*y));
        if (y != NULL) {
            struct err e;
            (void)!gguf_rows(t, t->rows - 1, 1, y, &e);
        }
        free(y);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct gguf *g = NULL;
    struct err e = {0};
    if (gguf_open_mem(p, n, &g, &e) == 0) {
        look(g);
        (void)!gguf_check_vocab(g, NULL, &e);
    }
    gguf_close(g);
    return 0;
}
