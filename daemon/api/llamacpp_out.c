/* llamacpp_out.c - answers of /completion and /infill: one object a choice, or
 * events with pieces of its content and a last one like that object. Shapes:
 * llama-server's README.
 *
 * A request may pick members of the answer ("response_fields"). Text and
 * log-probabilities are large and written by themselves; the others are a tree,
 * from which they are picked. */
#include <math.h>
#include <string.h>

#include "api/llamacpp.h"
#include "api/openai.h"

#define SEED_RANDOM 4294967295 /* as llama-server shows a random one */
#define EXACT       (UINT64_C(1) << 53)

/* --- members --- */

/* Those that do something, in their order. */
static void put_samplers(struct json *o, const struct msg_sampling *s)
{
    struct json *list = json_add_array(o, "samplers");
    const uint8_t *order = NULL;
    uint32_t n = msg_sampling_order(s, &order);
    for (uint32_t i = 0; i < n; i++) {
        if (msg_sampling_asks(s, order[i])) {
            json_add_str(list, NULL, msg_sampler_name(order[i]));
        }
    }
}

static int64_t or_minus(uint32_t n)
{
    return n == UINT32_MAX ? -1 : (int64_t)n;
}

/* 0.1 and not 0.100000001. */
static void put_float(struct json *o, const char *key, float v)
{
    json_add_num(o, key, round((double)v * 1e6) / 1e6);
}

/* Of the samplers that few use. */
static void put_more(struct json *o, const struct params *p)
{
    const struct msg_sampling *s = &p->req.sampling;
    put_float(o, "dynatemp_range", s->dynatemp_range);
    put_float(o, "dynatemp_exponent", s->dynatemp_exponent);
    put_float(o, "top_n_sigma", s->top_n_sigma);
    put_float(o, "xtc_probability", s->xtc_probability);
    put_float(o, "xtc_threshold", s->xtc_threshold);
    put_float(o, "typical_p", s->typical_p);
    put_float(o, "dry_multiplier", s->dry_multiplier);
    put_float(o, "dry_base", s->dry_base);
    json_add_int(o, "dry_allowed_length", (int64_t)s->dry_allowed_length);
    json_add_int(o, "dry_penalty_last_n", or_minus(s->dry_last_n));
    struct json *texts = json_add_array(o, "dry_sequence_breakers");
    for (size_t i = 0; i < p->req.n_dry_texts; i++) {
        json_add_str(texts, NULL, p->req.dry_texts[i]);
    }
    json_add_int(o, "mirostat", (int64_t)s->mirostat);
    put_float(o, "mirostat_tau", s->mirostat_tau);
    put_float(o, "mirostat_eta", s->mirostat_eta);
}

void llamacpp_put_settings(struct json *o, const struct params *p)
{
    const struct msg_sampling *s = &p->req.sampling;
    bool shown = p->seeded && s->seed < EXACT;
    json_add_int(o, "n_predict", or_minus(p->req.max_tokens));
    json_add_int(o, "max_tokens", or_minus(p->req.max_tokens));
    json_add_int(o, "seed", shown ? (int64_t)s->seed : SEED_RANDOM);
    put_float(o, "temperature", s->temperature);
    json_add_int(o, "top_k", (int64_t)s->top_k);
    put_float(o, "top_p", s->top_p);
    put_float(o, "min_p", s->min_p);
    json_add_int(o, "repeat_last_n", or_minus(s->repeat_last_n));
    put_float(o, "repeat_penalty", s->repeat_penalty);
    put_float(o, "presence_penalty", s->presence_penalty);
    put_float(o, "frequency_penalty", s->frequency_penalty);
    put_more(o, p);
    json_add_bool(o, "ignore_eos", p->req.ignore_eos);
    json_add_bool(o, "stream", p->stream);
    json_add_int(o, "n_probs", (int64_t)s->logprobs);
    put_samplers(o, s);
    struct json *list = json_add_array(o, "stop");
    for (size_t i = 0; i < p->req.n_stops; i++) {
        json_add_str(list, NULL, p->req.stops[i]);
    }
}

/* The text of stop_type. */
static const char *why_of(const struct call_choice *x)
{
    return x->why == GEN_EOG                       ? "eos"
           : x->why == GEN_STOP && x->stop != NULL ? "word"
                                                   : "limit";
}

/* All but the text and the log-probabilities. While there is a gen. */
static struct json *members(const struct call *c, uint32_t i)
{
    const struct call_choice *x = &c->choices[i];
    struct gen_usage u;
    struct json *o = json_object();
    call_get_usage(c, &u);
    json_add_int(o, "index", (int64_t)i);
    (void)json_add_array(o, "tokens");
    json_add_int(o, "id_slot", -1);
    json_add_bool(o, "stop", true);
    json_add_str(o, "model", c->model);
    json_add_int(o, "tokens_predicted", (int64_t)u.n_output);
    json_add_int(o, "tokens_evaluated", (int64_t)u.n_prompt);
    llamacpp_put_settings(json_add_object(o, "generation_settings"), &c->p);
    json_add_bool(o, "truncated", u.cut);
    json_add_str(o, "stop_type", why_of(x));
    json_add_str(o, "stopping_word", x->stop != NULL ? x->stop : "");
    json_add_int(o, "tokens_cached", (int64_t)u.n_prompt + u.n_output);
    openai_put_timings(o, c);
    return o;
}

/* "timings/prompt_n" of o; NULL. */
static const struct json *at_path(const struct json *o, const char *path)
{
    char key[64];
    while (o != NULL) {
        size_t n = strcspn(path, "/");
        if (n >= sizeof(key)) {
            return NULL;
        }
        memcpy(key, path, n);
        key[n] = '\0';
        o = json_get(o, key);
        if (path[n] == '\0') {
            return o;
        }
        path += n + 1;
    }
    return NULL;
}

static bool shows(const struct call *c, const char *path, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(c->p.shown[i], path) == 0) {
            return true;
        }
    }
    return c->p.shown == NULL;
}

/* Those of o that are asked for, as the members of an object; o is freed. */
static struct json *pick(const struct call *c, struct json *o)
{
    if (c->p.shown == NULL) {
        return o;
    }
    struct json *picked = json_object();
    for (size_t i = 0; i < c->p.n_shown; i++) {
        const struct json *v = at_path(o, c->p.shown[i]);
        if (v != NULL && !shows(c, c->p.shown[i], i)) {
            json_add_tree(picked, c->p.shown[i], json_copy(v));
        }
    }
    json_free(o);
    return picked;
}

/* The members of the choice that ended, without braces: "a":1,"b":2 */
static void put_members(const struct call *c, struct buf *b, uint32_t i)
{
    struct json *o = pick(c, members(c, i));
    struct buf text;
    buf_init(&text, EVENT_BYTES_MAX);
    json_write(o, false, &text);
    json_free(o);
    must(buf_ok(&text) && text.n >= 2);
    buf_put(b, text.p + 1, text.n - 2);
    buf_fini(&text);
}

static bool shows_content(const struct call *c)
{
    return shows(c, "content", c->p.n_shown);
}

static bool shows_probs(const struct call *c)
{
    return c->p.logprobs && shows(c, "completion_probabilities", c->p.n_shown);
}

static void put_probs(struct call *c, struct buf *b, struct probs *p)
{
    buf_puts(b, "\"completion_probabilities\":");
    probs_write(b, c, p);
    if (!probs_ok(p)) {
        c->refused = ERR_TOO_BIG;
    }
}

/* --- streams --- */

static bool begin(struct call *c, uint32_t i)
{
    (void)c, (void)i; /* nothing comes before the text */
    return true;
}

static bool text(struct call *c, uint32_t i, const char *p, size_t n)
{
    struct buf *b = &c->out;
    struct gen_usage u;
    call_get_usage(c, &u);
    buf_clear(b);
    buf_puts(b, "data: {\"index\":");
    buf_dec(b, i);
    buf_puts(b, ",\"content\":");
    json_put_string(b, p, n);
    buf_puts(b, ",\"tokens\":[],\"stop\":false,\"id_slot\":-1,"
                "\"tokens_predicted\":");
    buf_dec(b, u.n_output);
    buf_puts(b, ",\"tokens_evaluated\":");
    buf_dec(b, u.n_prompt);
    if (c->p.logprobs) {
        buf_puts(b, ",");
        put_probs(c, b, &c->choices[i].probs);
    }
    if (c->p.token_timings) {
        buf_puts(b, ",\"timings\":");
        openai_write_timings(b, c);
    }
    buf_puts(b, "}\n\n");
    return call_send(c);
}

/* The last event of a choice: its object, without text. */
static void end(struct call *c, uint32_t i)
{
    struct buf *b = &c->out;
    buf_clear(b);
    buf_puts(b, "data: {");
    buf_puts(b, shows_content(c) ? "\"content\":\"\"," : "");
    if (shows_probs(c)) {
        put_probs(c, b, &c->choices[i].probs);
        buf_puts(b, ",");
    }
    put_members(c, b, i);
    if (buf_ok(b) && b->p[b->n - 1] == ',') { /* no member is shown */
        b->n--;
    }
    buf_puts(b, "}\n\n");
    (void)call_send(c);
}

static void finish(struct call *c)
{
    (void)c; /* each choice has had its last event */
}

/* --- whole answers --- */

/* The members of all choices wait in c->out, a NUL after each: later there is
 * no gen, and a request's strings are gone with it. What the request shows is
 * noted in front of them. */
static void put_head(struct call *c, struct buf *b)
{
    buf_puts(b, c->p.req.n > 1 ? "[" : "");
    buf_clear(&c->out);
    for (uint32_t i = 0; i < c->p.req.n; i++) {
        buf_puts(&c->out, shows_content(c) ? "c" : "-");
        buf_puts(&c->out, shows_probs(c) ? "p" : "-");
        put_members(c, &c->out, i);
        buf_put(&c->out, "", 1);
    }
    must(buf_ok(&c->out)); /* ours, and some stop strings */
    c->p.shown = NULL;     /* it goes with the gen */
}

static void put_choice(struct call *c, struct buf *b, uint32_t i)
{
    struct call_choice *x = &c->choices[i];
    const char *made = c->out.p;
    for (uint32_t k = 0; k < i; k++) {
        made += strlen(made) + 1;
    }
    buf_puts(b, i > 0 ? ",{" : "{");
    if (made[0] == 'c') {
        buf_puts(b, "\"content\":\"");
        if (x->text.n > 0) {
            buf_put(b, x->text.p, x->text.n);
        }
        buf_puts(b, made[1] == 'p' || made[2] != '\0' ? "\"," : "\"");
    }
    if (made[1] == 'p') {
        put_probs(c, b, &x->probs);
        buf_puts(b, made[2] != '\0' ? "," : "");
    }
    buf_puts(b, made + 2);
    buf_puts(b, "}");
}

static void put_tail(struct call *c, struct buf *b)
{
    buf_puts(b, c->p.req.n > 1 ? "]" : "\n");
}

#define ANSWERS                                                         \
    .id_prefix = "", .probs = PROBS_OBJECTS, .error = api_openai_error, \
    .content_type = "text/event-stream", .events = true,                \
    .error_before = "data: ", .error_after = "\n\n", .begin = begin,    \
    .text = text, .end = end, .finish = finish, .head = put_head,       \
    .choice = put_choice, .tail = put_tail

const struct dialect llamacpp_completion = {
    .fields = &llamacpp_completion_fields,
    .prompt_field = "prompt",
    .read = llamacpp_read_completion,
    ANSWERS,
};

const struct dialect llamacpp_infill = {
    .fields = &llamacpp_infill_fields,
    .prompt_field = "input_prefix",
    .read = llamacpp_read_infill,
    ANSWERS,
};
