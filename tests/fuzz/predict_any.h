/* predict_any.h - what the rules say of whatever was read, valid or not: every
 * operation has a verdict and a rule, counts and shares add up. */
#pragma once

#include "convert/residency/residency.h"

static inline void predict_any(const struct mil_program *p)
{
    static const char *const profiles[] = {"law", "m5"};
    for (size_t i = 0; i < countof(profiles); i++) {
        struct predict_limits l = {0};
        struct prediction v;
        struct predict_total t;
        struct err e = {0};
        must(predict_limits(profiles[i], &l, &e) == 0);
        predict_program(p, 0, &l, &v);
        predict_total_init(&t, &l);
        predict_total_add(&t, "p", &v);
        for (size_t k = 0; k < v.n; k++) {
            const struct predict_function *f = &v.f[k];
            size_t n = f->count[PREDICT_OFF] + f->count[PREDICT_UNKNOWN];
            must(n + f->count[PREDICT_ON] == f->n_ops);
            for (size_t o = 0; o < f->n_ops; o++) {
                must(f->ops[o].rule != NULL && f->ops[o].cost >= 0);
            }
            json_free(predict_function_json(&v, k, "p", "layers"));
        }
        json_free(predict_summary_json(&t));
        must(t.on <= t.ops);
        predict_free(&v);
    }
}
