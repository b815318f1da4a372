/* fuzz_safetensors.c - any bytes as a safetensors file. What is accepted holds
 * what safetensors.h promises: tensors inside the file, apart from each other,
 * of the bytes that their shapes say, and found by their names. */
#include <string.h>

#include "source/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

/* What is read must not be optimised away. */
volatile uint8_t sink;

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct safetensors *s = NULL;
    struct err e = {0};
    int rc = safetensors_open(p, n, &s, &e);
    if (rc < 0) {
        must(e.code == rc && e.msg[0] != '\0');
        return 0;
    }
    const uint8_t *end = p;
    for (size_t i = 0; i < safetensors_count(s); i++) {
        const struct safetensors_tensor *t = safetensors_at(s, i);
        must(t->data >= end && t->data + t->bytes <= p + n);
        must(safetensors_find(s, t->name) == t);
        end = t->data + t->bytes;
        sink ^= t->bytes > 0 ? t->data[t->bytes - 1] : 0;
    }
    safetensors_close(s);
    return 0;
}
