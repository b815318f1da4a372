/* report.c - a measurement as JSON: for people and programs, kept by the store.
 */
#include "base/parse.h"
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

/* Six digits: a report is read, and goes through a frame. */
static void put_num(struct json *o, const char *key, double v)
{
    char text[32];
    double short_v = v;
    (void)snprintf(text, sizeof(text), "%.6g", v);
    json_add_num(o, key, parse_double(text, &short_v) ? short_v : v);
}

static void put_logits(struct json *j, const char *key,
                       const struct quality_logits *l)
{
    struct json *o = json_add_object(j, key);
    json_add_int(o, "positions", l->n);
    json_add_int(o, "clear", l->n_clear);
    put_num(o, "kl_mean", l->kl_mean);
    put_num(o, "kl_max", l->kl_max);
    put_num(o, "cosine_mean", l->cosine_mean);
    put_num(o, "cosine_min", l->cosine_min);
    put_num(o, "argmax", l->argmax);
    put_num(o, "top5", l->top5);
    put_num(o, "error_mean", l->error_mean);
    put_num(o, "error_max", l->error_max);
}

static void put_floats(struct json *j, const char *key, const float *v,
                       uint32_t n)
{
    struct json *a = json_add_array(j, key);
    for (uint32_t i = 0; v != NULL && i < n; i++) {
        put_num(a, NULL, (double)v[i]);
    }
}

static void put_layer(struct json *o, const struct quality_layer *l)
{
    put_num(o, "cosine_mean", l->cosine_mean);
    put_num(o, "cosine_min", l->cosine_min);
    put_num(o, "error_mean", l->error_mean);
    put_num(o, "error_max", l->error_max);
    put_num(o, "rms", l->rms);
}

/* What a package gives is what its last layer gives; beside it the worst of
 * its layers. */
static void put_shards(struct json *list, const struct quality *q)
{
    for (size_t i = 0; i < q->n_shards; i++) {
        const struct quality_shard *s = &q->shards[i];
        uint32_t worst = s->first;
        for (uint32_t l = s->first; l < s->last && l < q->n_layers; l++) {
            if (q->layers[l].cosine_mean < q->layers[worst].cosine_mean) {
                worst = l;
            }
        }
        struct json *o = json_add_object(list, NULL);
        json_add_str(o, "package", s->package);
        json_add_int(o, "first", s->first);
        json_add_int(o, "last", s->last);
        if (s->last > s->first && s->last <= q->n_layers) {
            put_layer(o, &q->layers[s->last - 1u]);
            json_add_int(o, "worst_layer", worst);
            put_num(o, "worst_cosine", q->layers[worst].cosine_mean);
        }
    }
}

static struct json *whole(const struct quality *q, bool cut)
{
    struct json *j = json_object();
    put_result(j, &q->all);
    json_add_str(j, "quant", q->bars.quant);
    json_add_str(j, "reference", "fp32, from the source file");
    json_add_str(j, "candidate", "the packages, op by op, rounded to fp16");
    json_add_int(j, "positions", q->n_tokens);
    json_add_bool(j, "cut", cut);
    struct json *o = json_add_object(j, "bars");
    json_add_num(o, "cosine", q->bars.cosine);
    json_add_num(o, "kl", q->bars.kl);
    json_add_num(o, "argmax", q->bars.argmax);
    json_add_str(o, "reason", q->bars.reason);
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
    bool ran = !cut && q->program.n > 0; /* else there is nothing in them */
    a = json_add_array(j, "shards");
    if (ran) {
        put_shards(a, q);
    }
    a = json_add_array(j, "layers");
    for (uint32_t i = 0; ran && i < q->n_layers; i++) {
        put_layer(json_add_object(a, NULL), &q->layers[i]);
    }
    put_floats(j, "kl", q->kl, cut ? 0 : q->program.n);
    put_floats(j, "cosine", q->cosine, cut ? 0 : q->program.n);
    return j;
}

struct json *quality_json(const struct quality *q, size_t max)
{
    struct buf b;
    struct json *j = whole(q, false);
    buf_init(&b, max);
    json_write(j, false, &b);
    if (!buf_ok(&b)) {
        json_free(j);
        j = whole(q, true);
    }
    buf_fini(&b);
    return j;
}
