/* report.c - a measurement as JSON: for people and programs, kept by the store.
 */
#include "convert/quality/impl.h"

static const char *const names[RUNGS] = {
    [RUNG_WEIGHTS] = "weights", [RUNG_PROGRAM] = "program",
    [RUNG_STEPS] = "steps",     [RUNG_CHUNKS] = "chunks",
    [RUNG_PROMPT] = "prompt",
};

const char *quality_rung_name(enum quality_rung r)
{
    return names[r];
}

static void put_result(struct json *o, const struct quality_result *r)
{
    json_add_str(o, "verdict", r->verdict != NULL ? r->verdict : "not run");
    json_add_str(o, "detail", r->detail);
}

static void put_logits(struct json *j, const char *key,
                       const struct quality_logits *l)
{
    struct json *o = json_add_object(j, key);
    json_add_int(o, "positions", l->n);
    json_add_int(o, "clear", l->n_clear);
    json_add_num(o, "kl_mean", l->kl_mean);
    json_add_num(o, "kl_max", l->kl_max);
    json_add_num(o, "cosine_mean", l->cosine_mean);
    json_add_num(o, "cosine_min", l->cosine_min);
    json_add_num(o, "argmax", l->argmax);
    json_add_num(o, "top5", l->top5);
    json_add_num(o, "error_mean", l->error_mean);
    json_add_num(o, "error_max", l->error_max);
}

static void put_floats(struct json *j, const char *key, const float *v,
                       uint32_t n)
{
    struct json *a = json_add_array(j, key);
    for (uint32_t i = 0; v != NULL && i < n; i++) {
        json_add_num(a, NULL, (double)v[i]);
    }
}

struct json *quality_json(const struct quality *q)
{
    struct json *j = json_object();
    put_result(j, &q->all);
    json_add_str(j, "quant", q->bars.quant);
    json_add_str(j, "reference", "fp32, from the source file");
    json_add_str(j, "candidate", "the packages, op by op, rounded to fp16");
    json_add_int(j, "positions", q->n_tokens);
    struct json *o = json_add_object(j, "bars");
    json_add_num(o, "cosine", q->bars.cosine);
    json_add_num(o, "kl", q->bars.kl);
    json_add_num(o, "argmax", q->bars.argmax);
    struct json *a = json_add_array(j, "rungs");
    for (unsigned i = 0; i < RUNGS; i++) {
        o = json_add_object(a, NULL);
        json_add_str(o, "name", names[i]);
        put_result(o, &q->rungs[i]);
    }
    put_result(json_add_object(j, "exactness"), &q->exactness);
    put_logits(j, "logits", &q->program);
    put_logits(j, "steps", &q->steps);
    put_logits(j, "chunks", &q->chunks);
    a = json_add_array(j, "layers");
    for (uint32_t i = 0; i < q->n_layers; i++) {
        o = json_add_object(a, NULL);
        json_add_num(o, "cosine_mean", q->layers[i].cosine_mean);
        json_add_num(o, "cosine_min", q->layers[i].cosine_min);
        json_add_num(o, "error_max", q->layers[i].error_max);
    }
    put_floats(j, "kl", q->kl, q->program.n);
    put_floats(j, "cosine", q->cosine, q->program.n);
    return j;
}
