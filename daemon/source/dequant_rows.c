/* dequant_rows.c - rows of a tensor, by the functions for this machine. */
#include "base/isa.h"
#include "source/dequant.h"
#include "source/gguf_impl.h"

static const struct dequant *const base[] = {
    DEQUANT_TABLES(DEQUANT_POINTER, base)};
#if defined(__x86_64__)
static const struct dequant *const v3[] = {DEQUANT_TABLES(DEQUANT_POINTER, v3)};
#endif

dequant_fn *gguf_dequantiser(uint32_t type)
{
    const struct dequant *const *tables = base;
#if defined(__x86_64__)
    if (isa_has(ISA_V3)) {
        tables = v3;
    }
#endif
    for (size_t i = 0; i < countof(base) && type < DEQUANT_TYPES; i++) {
        if (tables[i]->fns[type] != NULL) {
            return tables[i]->fns[type];
        }
    }
    return NULL;
}

bool gguf_type_readable(uint32_t type)
{
    return gguf_dequantiser(type) != NULL;
}

bool gguf_readable(const struct gguf_tensor *t)
{
    return t->fn != NULL || gguf_type_readable(t->type);
}

const char *gguf_tensor_type(const struct gguf_tensor *t)
{
    return t->fn != NULL ? t->type_name : gguf_type_name(t->type);
}

struct rows_job {
    dequant_fn *fn;
    const uint8_t *p;
    float *out;
    size_t blocks;
};

struct call_job {
    const struct gguf_tensor *t;
    uint64_t row, n;
    float *out;
};

static int run_call(void *ctx, struct err *e)
{
    const struct call_job *j = ctx;
    (void)e;
    j->t->fn(j->t->ctx, j->row, j->n, j->out);
    return 0;
}

static int run_rows(void *ctx, struct err *e)
{
    const struct rows_job *j = ctx;
    (void)e;
    j->fn(j->p, j->out, j->blocks);
    return 0;
}

int gguf_rows(const struct gguf_tensor *t, uint64_t row, uint64_t n, float *out,
              struct err *e)
{
    struct rows_job j = {.fn = gguf_dequantiser(t->type), .out = out};
    if (t->fn == NULL && j.fn == NULL) {
        return err_set(e, ERR_UNSUPPORTED, "tensor '%s' has type %s", t->name,
                       gguf_type_name(t->type));
    }
    if (row > t->rows || n > t->rows - row) {
        return err_set(e, ERR_INVALID, "tensor '%s' has %llu rows", t->name,
                       (unsigned long long)t->rows);
    }
    if (t->fn != NULL) {
        struct call_job c = {t, row, n, out};
        return gguf_guard(run_call, &c, e);
    }
    /* No overflow: open has shown rows * row_bytes to lie inside the file. */
    j.p = t->data + row * t->row_bytes;
    j.blocks = (size_t)(n * (t->cols / gguf_type_block(t->type).items));
    return gguf_guard(run_rows, &j, e);
}
