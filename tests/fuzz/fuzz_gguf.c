/* Any bytes as a GGUF, or as the parts of a split one, which begin with the
 * magic: open, look at everything that is accepted, dequantise a row of each
 * tensor. And any bytes as blocks of the type that the first one says. */
#include <stdlib.h>
#include <string.h>

#include "source/gguf_impl.h"

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

/* In memory of exactly the blocks' size. */
static void dequantise(uint32_t type, const uint8_t *p, size_t n)
{
    struct gguf_block b = gguf_type_block(type);
    struct err e;
    if (!gguf_type_readable(type) || n < b.bytes) {
        return;
    }
    size_t blocks = n / b.bytes;
    uint8_t *copy = malloc(blocks * b.bytes);
    float *y = malloc(blocks * b.items * sizeof(*y));
    if (copy != NULL && y != NULL) {
        memcpy(copy, p, blocks * b.bytes);
        const struct gguf_tensor t = {.name = "t",
                                      .type = type,
                                      .rows = blocks,
                                      .cols = b.items,
                                      .data = copy,
                                      .bytes = blocks * b.bytes,
                                      .row_bytes = b.bytes};
        must(gguf_rows(&t, 0, blocks, y, &e) == 0);
        sink += y[blocks * b.items - 1] > 0;
    }
    free(copy);
    free(y);
}

/* The parts of p: each begins with the magic and version 3. */
static size_t cut(const uint8_t *p, size_t n, struct span parts[GGUF_PARTS_MAX])
{
    static const char begins[8] = {'G', 'G', 'U', 'F', 3};
    size_t n_parts = 1;
    parts[0] = (struct span){(const char *)p, n};
    for (size_t i = 1; i + sizeof(begins) <= n; i++) {
        if (n_parts < GGUF_PARTS_MAX &&
            memcmp(p + i, begins, sizeof(begins)) == 0) {
            struct span *last = &parts[n_parts - 1];
            const char *at = (const char *)p + i;
            parts[n_parts++] = (struct span){at, n - i};
            last->n = (size_t)(at - last->p);
        }
    }
    return n_parts;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct span parts[GGUF_PARTS_MAX];
    struct gguf *g = NULL;
    struct err e = {0};
    if (gguf_open_mems(parts, cut(p, n, parts), &g, &e) == 0) {
        look(g);
        (void)!gguf_check_vocab(g, NULL, &e);
    }
    gguf_close(g);
    if (n > 0) {
        dequantise(p[0], p + 1, n - 1);
    }
    return 0;
}
