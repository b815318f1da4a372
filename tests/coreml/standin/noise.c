#include "noise.h"

#include <string.h>

#include "base/half.h"
#include "base/hash.h"

#define HALF_MASK  0x7fffu
#define HALF_LEAST 0x0400u /* the least normal number */
#define HALF_ONE   0x3c00u
#define HALF_MOST  0x7000u /* 8192: masks hold -1e4 */

static const struct mil_value *same_name(const struct mil_function *f,
                                         const char *name, bool is_input)
{
    size_t n = is_input ? f->n_inputs : f->body->n_outputs;
    struct mil_value **v = is_input ? f->inputs : f->body->outputs;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(v[i]->name, name) == 0) {
            return v[i];
        }
    }
    return NULL;
}

int si_noise_axis(const struct mil_program *p, const struct mil_value *v,
                  bool is_input)
{
    for (int i = 0; i < v->type.rank; i++) {
        if (v->type.dims[i] == MIL_UNKNOWN) {
            return i;
        }
    }
    for (size_t k = 0; k < p->n_functions; k++) {
        const struct mil_value *o =
            same_name(p->functions[k], v->name, is_input);
        if (o == NULL || o->type.rank != v->type.rank) {
            continue;
        }
        for (int i = 0; i < v->type.rank; i++) {
            if (o->type.dims[i] != v->type.dims[i]) {
                return i;
            }
        }
    }
    return -1;
}

/* -1, 0 or 1 steps. */
static int step_of(uint64_t seed, size_t place)
{
    uint64_t x = seed + place * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (int)(x >> 33) % 3 - 1;
}

static uint16_t half_step(uint16_t h, int step)
{
    uint16_t m = h & HALF_MASK;
    if (m < HALF_LEAST || m >= HALF_MOST || m == HALF_ONE) {
        return h;
    }
    return (uint16_t)(h + step);
}

static void element(char *p, enum mil_dtype t, int step)
{
    uint16_t h = 0;
    float f = 0;
    if (t == MIL_FP16) {
        memcpy(&h, p, sizeof(h));
        h = half_step(h, step);
        memcpy(p, &h, sizeof(h));
        return;
    }
    memcpy(&f, p, sizeof(f));
    h = half_from_float(f);
    if (half_step(h, 1) != h) { /* a number that has steps */
        f += f * (float)step / 2048.0f;
        memcpy(p, &f, sizeof(f));
    }
}

void si_noise_add(void *p, enum mil_dtype t, const char *name,
                  const int64_t *dims, int rank, int axis, int64_t width)
{
    size_t outer = 1;
    size_t inner = 1;
    size_t size = t == MIL_FP16 ? sizeof(uint16_t) : sizeof(float);
    uint64_t seed = hash_bytes(name, strlen(name)) * 31 + (uint64_t)width;
    if (axis < 0 || (t != MIL_FP16 && t != MIL_FP32)) {
        return;
    }
    for (int i = 0; i < rank; i++) {
        outer *= i < axis ? (size_t)dims[i] : 1;
        inner *= i > axis ? (size_t)dims[i] : 1;
    }
    size_t rows = (size_t)dims[axis];
    for (size_t i = 0; i < outer * rows * inner; i++) {
        size_t place = i / (rows * inner) * inner + i % inner;
        element((char *)p + i * size, t, step_of(seed, place));
    }
}
