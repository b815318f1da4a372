/* openai_usage.c - counts and times of an answer: "usage" in OpenAI's form,
 * "timings" in llama-server's. */
#include <math.h>

#include "api/openai.h"

void openai_put_usage(struct json *o, const struct call *c)
{
    struct gen_usage u;
    call_get_usage(c, &u);
    struct json *x = json_add_object(o, "usage");
    json_add_int(x, "prompt_tokens", (int64_t)u.n_prompt);
    json_add_int(x, "completion_tokens", (int64_t)u.n_output);
    json_add_int(x, "total_tokens", (int64_t)u.n_prompt + u.n_output);
    json_add_int(json_add_object(x, "prompt_tokens_details"), "cached_tokens",
                 (int64_t)u.n_cached);
    struct json *d = json_add_object(x, "completion_tokens_details");
    json_add_int(d, "accepted_prediction_tokens", (int64_t)u.n_accepted);
    json_add_int(d, "rejected_prediction_tokens",
                 (int64_t)u.n_drafted - u.n_accepted);
}

/* Members of "timings"; what is false or does not apply is not there. */
enum { TIMINGS_MAX = 16 };

struct timings {
    struct {
        const char *key;
        double v;
    } row[TIMINGS_MAX];
    size_t n;
    bool late, full, on_cpu;
};

static void put_time(struct timings *t, const char *key, double v)
{
    must(t->n < TIMINGS_MAX);
    t->row[t->n].key = key;
    t->row[t->n++].v = v;
}

/* To the nearest thousandth. */
static double rounded(double v)
{
    return round(v * 1000) / 1000;
}

static void put_rate(struct timings *t, const char *const key[4], uint32_t n,
                     uint64_t us)
{
    double ms = (double)us / 1000;
    put_time(t, key[0], n);
    put_time(t, key[1], ms);
    put_time(t, key[2], n > 0 ? rounded(ms / n) : 0);
    put_time(t, key[3], ms > 0 ? rounded(1000.0 * n / ms) : 0);
}

static void timings_of(const struct call *c, struct timings *t)
{
    static const char *const prompt[] = {
        "prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second"};
    static const char *const predicted[] = {"predicted_n", "predicted_ms",
                                            "predicted_per_token_ms",
                                            "predicted_per_second"};
    struct gen_usage u;
    call_get_usage(c, &u);
    uint64_t first = u.first_us > u.started_us ? u.first_us - u.started_us : 0;
    uint64_t rest = u.last_us > u.first_us ? u.last_us - u.first_us : 0;
    uint64_t queue =
        u.started_us > u.created_us ? u.started_us - u.created_us : 0;
    t->n = 0;
    t->late = u.late;
    t->full = c->full;
    t->on_cpu = u.on_cpu;
    put_time(t, "cache_n", u.n_cached);
    put_time(t, "queue_ms", (double)queue / 1000);
    if (u.n_queued > 0) {
        put_time(t, "queue_steps", (double)u.n_queued);
    }
    put_rate(t, prompt, u.n_prompt - u.n_cached, first);
    put_rate(t, predicted, u.n_output, rest);
    if (u.n_again > 0) {
        put_time(t, "recomputed_n", u.n_again);
    }
    if (u.n_drafted > 0) {
        put_time(t, "draft_n", u.n_drafted);
        put_time(t, "draft_n_accepted", u.n_accepted);
    }
}

void openai_put_timings(struct json *o, const struct call *c)
{
    struct timings t;
    struct json *x = json_add_object(o, "timings");
    timings_of(c, &t);
    for (size_t i = 0; i < t.n; i++) {
        json_add_num(x, t.row[i].key, t.row[i].v);
    }
    if (t.late) {
        json_add_bool(x, "deadline_reached", true);
    }
    if (t.on_cpu) {
        json_add_bool(x, "package_on_cpu", true);
    }
    if (t.full) { /* never of a stream */
        json_add_bool(x, "answer_limit_reached", true);
    }
}

void openai_write_timings(struct buf *b, const struct call *c)
{
    struct timings t;
    timings_of(c, &t);
    for (size_t i = 0; i < t.n; i++) {
        buf_puts(b, i > 0 ? ",\"" : "{\"");
        buf_puts(b, t.row[i].key);
        buf_puts(b, "\":");
        json_put_number(b, t.row[i].v);
    }
    buf_puts(b, t.late ? ",\"deadline_reached\":true" : "");
    buf_puts(b, t.on_cpu ? ",\"package_on_cpu\":true}" : "}");
}
