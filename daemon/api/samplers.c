/* samplers.c - llama-server's `samplers`: which filters apply, and in which
 * order. Ours have one order (engine/sampler.h). A list is taken when it asks
 * for the same draw: filters that it leaves out are off, and those that do
 * something stand as ours do, where that matters.
 *
 * Where it does not: top-k keeps by rank, which a temperature does not change;
 * min-p compares with the likeliest token, whatever was dropped before. It
 * keeps logits of at least max + ln m; after a temperature T that is max / T +
 * ln m', with m' = m^(1/T). So min_p before the temperature is m' after it. */
#include <string.h>

#include "api/fields.h"
#include "base/fmath.h"

enum { PENALTIES, TEMPERATURE, TOP_K, TOP_P, MIN_P, N_SAMPLERS };

static const char *const names[N_SAMPLERS + 1] = {
    "penalties", "temperature", "top_k", "top_p", "min_p", NULL};

int set_samplers(struct params *p, const struct field *f, const struct json *v,
                 struct err *e)
{
    if (json_type(v) != JSON_ARRAY) {
        return field_want(f, e, "an array of names");
    }
    p->n_samplers = 0;
    for (const struct json *c = json_first(v); c != NULL; c = json_next(c)) {
        const char *s = json_str(c);
        size_t k = 0;
        while (names[k] != NULL && (s == NULL || strcmp(s, names[k]) != 0)) {
            k++;
        }
        if (names[k] == NULL || p->n_samplers == countof(p->samplers)) {
            return field_unsupported(
                f, e, "only penalties, temperature, top_k, top_p, min_p");
        }
        p->samplers[p->n_samplers++] = (uint8_t)k;
    }
    return 0;
}

static bool does_something(const struct msg_sampling *s, unsigned k)
{
    bool draws = s->temperature > 0;
    switch (k) {
    case PENALTIES:
        return s->repeat_penalty != 1 || s->presence_penalty != 0 ||
               s->frequency_penalty != 0;
    case TEMPERATURE:
        return draws && s->temperature != 1;
    case TOP_K:
        return draws && s->top_k > 0;
    case TOP_P:
        return draws && s->top_p < 1;
    default:
        return draws && s->min_p > 0;
    }
}

static void turn_off(struct msg_sampling *s, unsigned k)
{
    switch (k) {
    case PENALTIES:
        s->repeat_penalty = 1;
        s->presence_penalty = 0;
        s->frequency_penalty = 0;
        return;
    case TEMPERATURE:
        s->temperature = s->temperature > 0 ? 1 : 0;
        return;
    case TOP_K:
        s->top_k = 0;
        return;
    case TOP_P:
        s->top_p = 1;
        return;
    default:
        s->min_p = 0;
        return;
    }
}

/* Whether a has to come before b. */
static bool precedes(unsigned a, unsigned b)
{
    return a == PENALTIES || (b == TOP_P && (a == TEMPERATURE || a == TOP_K)) ||
           (a == TOP_P && b == MIN_P);
}

/* Turn off what is not listed. */
static void keep_listed(struct params *p)
{
    unsigned listed = 0;
    for (size_t i = 0; i < p->n_samplers; i++) {
        listed |= 1u << p->samplers[i];
    }
    for (unsigned k = 0; k < N_SAMPLERS; k++) {
        if ((listed & 1u << k) == 0) {
            turn_off(&p->req.sampling, k);
        }
    }
}

int samplers_apply(struct params *p, struct err *e)
{
    struct msg_sampling *s = &p->req.sampling;
    bool early = false; /* min_p comes before the temperature */
    if (p->n_samplers == 0) {
        return 0;
    }
    keep_listed(p);
    for (size_t j = 1; j < p->n_samplers; j++) {
        for (size_t i = 0; i < j; i++) {
            unsigned a = p->samplers[i], b = p->samplers[j];
            bool both = does_something(s, a) && does_something(s, b);
            if (a != b && both && precedes(b, a)) {
                params_blame(p, "samplers");
                return err_set(e, ERR_UNSUPPORTED,
                               "samplers: %s comes before %s here", names[b],
                               names[a]);
            }
            early = early || (both && a == MIN_P && b == TEMPERATURE);
        }
    }
    if (early) {
        s->min_p = fmath_powf(s->min_p, 1 / s->temperature);
    }
    return 0;
}
