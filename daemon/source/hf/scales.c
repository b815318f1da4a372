/* scales.c - F8 weights with factors beside them, as checkpoints of
 * quant_method "fp8" have them: X.weight of codes (out, in), X.weight_scale_inv
 * of numbers, one for each block of weight_block_size; without such a size one
 * for the whole matrix. Activations are quantised as a model runs there, and
 * not here.
 */
#include <string.h>

#include "source/hf/hf.h"

#define TAIL "_scale_inv"
#define WHERE "config.json: quantization_config: "

static int unknown(const char *key, const char *value, struct err *e)
{
    return err_set(e, ERR_UNSUPPORTED,
                   WHERE "%.64s%s%.64s: the weights are quantised; aned "
                         "converts those of F32, F16, BF16, F8, and F8 with "
                         "scales as quant_method fp8 has them",
                   key, value != NULL ? " is " : "", value != NULL ? value : "");
}

/* Members whose value is one word. */
static int check_word(const struct json *c, struct err *e)
{
    static const char *const words[][2] = {
        {"quant_method", "fp8"},
        {"fmt", "e4m3"},
        {"activation_scheme", "dynamic"},
    };
    const char *v = json_str(c);
    for (size_t i = 0; i < countof(words); i++) {
        if (strcmp(json_key(c), words[i][0]) == 0) {
            return v != NULL && strcmp(v, words[i][1]) == 0
                       ? 0
                       : unknown(words[i][0], v, e);
        }
    }
    /* names of what has no factors: the tensors show it */
    bool list = strcmp(json_key(c), "modules_to_not_convert") == 0 ||
                strcmp(json_key(c), "ignored_layers") == 0;
    return list || json_type(c) == JSON_NULL ? 0
                                             : unknown(json_key(c), NULL, e);
}

int hf_read_scales(struct hf *h, struct err *e)
{
    const struct json *q = hf_get(h->text, "quantization_config");
    q = q != NULL ? q : hf_get(h->root, "quantization_config");
    if (q == NULL) {
        return 0;
    }
    if (json_type(q) != JSON_OBJECT || json_get(q, "quant_method") == NULL) {
        return unknown("quant_method", "", e);
    }
    if (h->family->take != NULL) { /* it reads tensors by itself */
        return err_set(e, ERR_UNSUPPORTED,
                       WHERE "a %s with quantised weights is not converted",
                       h->family->model_type);
    }
    h->scaled = true;
    for (const struct json *c = json_first(q); c != NULL; c = json_next(c)) {
        if (strcmp(json_key(c), "weight_block_size") != 0) {
            RETERR(check_word(c, e));
            continue;
        }
        const struct json *one = json_first(c);
        const struct json *two = one != NULL ? json_next(one) : NULL;
        if (json_type(c) == JSON_NULL) {
            continue;
        }
        if (two == NULL || json_next(two) != NULL ||
            !json_int(one, 1, MODEL_DIM_MAX, &h->block[0]) ||
            !json_int(two, 1, MODEL_DIM_MAX, &h->block[1])) {
            return unknown("weight_block_size", "no two sizes", e);
        }
    }
    return 0;
}

static const struct safetensors_tensor *find(const struct hf *h,
                                             const char *name)
{
    const struct safetensors_tensor *t = NULL;
    for (size_t i = 0; t == NULL && i < h->n_weights; i++) {
        t = safetensors_find(h->weights[i], name);
    }
    return t;
}

static bool is_f8(const struct safetensors_tensor *t)
{
    return t->type == SAFETENSORS_F8_E4M3 || t->type == SAFETENSORS_F8_E5M2;
}

bool hf_is_scale(const struct hf *h, const char *name)
{
    char of[GGUF_NAME_MAX + sizeof(TAIL) + 64];
    size_t n = strlen(name);
    size_t m = strlen(TAIL);
    if (!h->scaled || n <= m || n - m >= sizeof(of) ||
        strcmp(name + n - m, TAIL) != 0) {
        return false;
    }
    memcpy(of, name, n - m);
    of[n - m] = '\0';
    const struct safetensors_tensor *t = find(h, of);
    return t != NULL && is_f8(t);
}

static uint64_t blocks_of(uint64_t n, int64_t block)
{
    return block > 0 ? (n - 1) / (uint64_t)block + 1 : 1;
}

int hf_scale_of(const struct hf *h, const struct safetensors_tensor *t,
                struct hf_scale *ret, struct err *e)
{
    char name[GGUF_NAME_MAX + sizeof(TAIL) + 64];
    *ret = (struct hf_scale){.data = NULL};
    if (!h->scaled || !is_f8(t)) {
        return 0;
    }
    int n = snprintf(name, sizeof(name), "%s" TAIL, t->name);
    const struct safetensors_tensor *s =
        n > 0 && (size_t)n < sizeof(name) ? find(h, name) : NULL;
    if (s == NULL || t->n_dims != 2) {
        return err_set(e, ERR_UNSUPPORTED,
                       "tensor %s: F8 of quant_method fp8 that is no matrix, or "
                       "has no scales (%s" TAIL ")",
                       t->name, t->name);
    }
    uint64_t rows = blocks_of(t->dims[0], h->block[0]);
    uint64_t cols = blocks_of(t->dims[1], h->block[1]);
    uint64_t have = 1;
    for (uint32_t i = 0; i < s->n_dims; i++) { /* safetensors has checked it */
        have *= s->dims[i];
    }
    bool number = s->type == SAFETENSORS_F32 || s->type == SAFETENSORS_BF16 ||
                  s->type == SAFETENSORS_F16;
    bool shape = rows * cols == 1 || (s->n_dims == 2 && s->dims[0] == rows &&
                                      s->dims[1] == cols);
    if (!number || !shape || have != rows * cols) {
        return err_set(e, ERR_CONVERT,
                       "tensor %s: dtype %s, and not %llu by %llu scales",
                       s->name, s->type_name, (unsigned long long)rows,
                       (unsigned long long)cols);
    }
    *ret = (struct hf_scale){
        .data = s->data,
        .type = s->type == SAFETENSORS_F32    ? GGML_F32
                : s->type == SAFETENSORS_BF16 ? GGML_BF16
                                              : GGML_F16,
        .bytes = s->type == SAFETENSORS_F32 ? 4 : 2,
        .row_block = h->block[0] > 0 ? (uint64_t)h->block[0] : t->dims[0],
        .col_block = h->block[1] > 0 ? (uint64_t)h->block[1] : t->dims[1],
        .cols = cols};
    return 0;
}

void hf_scale_row(const struct hf_scale *s, uint64_t row, uint64_t n, float *y)
{
    const uint8_t *p = s->data + row / s->row_block * s->cols * s->bytes;
    for (uint64_t c = 0; c < n; p += s->bytes) {
        float by = 1;
        must(made_decode(s->type, p, 1, &by));
        for (uint64_t i = 0; i < s->col_block && c < n; i++, c++) {
            y[c] *= by;
        }
    }
}
