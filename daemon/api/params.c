/* params.c - see params.h. */
#include "api/params.h"

#include <math.h>
#include <string.h>

#include "api/api.h"
#include "base/random.h"

struct row;
typedef int set_fn(struct params *p, const struct row *row,
                   const struct json *v, struct err *e);

struct row {
    const char *name;
    unsigned dialects;
    set_fn *set;
    double lo, hi;
    size_t offset; /* in struct params */
};

static int want(const struct row *row, struct err *e, const char *what)
{
    return err_set(e, ERR_INVALID, "%s: must be %s", row->name, what);
}

static int unsupported(const struct row *row, struct err *e, const char *what)
{
    return err_set(e, ERR_UNSUPPORTED, "%s: %s", row->name, what);
}

static int full(const struct row *row, struct err *e)
{
    return err_set(e, ERR_TOO_BIG, "%s: the request is over the limit",
                   row->name);
}

static void *at(struct params *p, const struct row *row)
{
    return (char *)p + row->offset;
}

static int set_float(struct params *p, const struct row *row,
                     const struct json *v, struct err *e)
{
    double x = json_num(v);
    if (json_type(v) != JSON_NUMBER || !(x >= row->lo && x <= row->hi)) {
        return err_set(e, ERR_INVALID, "%s: must be a number from %g to %g",
                       row->name, row->lo, row->hi);
    }
    float f = (float)x;
    memcpy(at(p, row), &f, sizeof(f));
    return 0;
}

static int set_temperature(struct params *p, const struct row *row,
                           const struct json *v, struct err *e)
{
    p->tempered = true;
    return set_float(p, row, v, e);
}

static int get_int(const struct row *row, const struct json *v, int64_t *ret,
                   struct err *e)
{
    if (!json_int(v, (int64_t)row->lo, (int64_t)row->hi, ret)) {
        return err_set(e, ERR_INVALID,
                       "%s: must be a whole number from %.0f to %.0f",
                       row->name, row->lo, row->hi);
    }
    return 0;
}

/* -1, where the range has it, is "no limit" or, for top_k, "off". */
static int set_uint(struct params *p, const struct row *row,
                    const struct json *v, struct err *e)
{
    int64_t n = 0;
    int rc = get_int(row, v, &n, e);
    if (rc == 0) {
        uint32_t u = n < 0 ? UINT32_MAX : (uint32_t)n;
        memcpy(at(p, row), &u, sizeof(u));
    }
    return rc;
}

static int set_top_k(struct params *p, const struct row *row,
                     const struct json *v, struct err *e)
{
    int64_t n = 0;
    int rc = get_int(row, v, &n, e);
    if (rc == 0) {
        p->req.sampling.top_k = n < 0 ? 0 : (uint32_t)n;
    }
    return rc;
}

static int set_bool(struct params *p, const struct row *row,
                    const struct json *v, struct err *e)
{
    bool b = json_bool(v);
    if (json_type(v) != JSON_BOOL) {
        return want(row, e, "true or false");
    }
    memcpy(at(p, row), &b, sizeof(b));
    return 0;
}

static int set_model(struct params *p, const struct row *row,
                     const struct json *v, struct err *e)
{
    p->model = json_str(v);
    return p->model != NULL ? 0 : want(row, e, "a string");
}

/* Any 64-bit pattern is a seed; negative ones count from the top. But -1 is
 * what every peer takes for a random one. */
static int set_seed(struct params *p, const struct row *row,
                    const struct json *v, struct err *e)
{
    int64_t n = 0;
    int rc = get_int(row, v, &n, e);
    if (rc == 0) {
        p->req.sampling.seed = (uint64_t)n;
        p->seeded = n != -1;
    }
    return rc;
}

static int set_keep_alive(struct params *p, const struct row *row,
                          const struct json *v, struct err *e)
{
    (void)row;
    p->keeps = true;
    return api_keep_alive(v, &p->keep_ms, e);
}

static int add_stop(struct params *p, const struct row *row,
                    const struct json *v, struct err *e)
{
    const char *s = json_str(v);
    if (s == NULL || s[0] == '\0' || strlen(s) > STOP_BYTES_MAX) {
        return err_set(e, ERR_INVALID,
                       "%s: each must be a string of 1 to %u bytes", row->name,
                       STOP_BYTES_MAX);
    }
    if (p->req.n_stops >= STOP_STRINGS_MAX) {
        return err_set(e, ERR_INVALID, "%s: at most %u", row->name,
                       STOP_STRINGS_MAX);
    }
    char *copy = arena_str(p->a, s);
    if (copy == NULL) {
        return full(row, e);
    }
    p->req.stops[p->req.n_stops++] = copy;
    return 0;
}

static int set_stop(struct params *p, const struct row *row,
                    const struct json *v, struct err *e)
{
    if (json_type(v) == JSON_STRING) {
        return add_stop(p, row, v, e);
    }
    if (json_type(v) != JSON_ARRAY) {
        return want(row, e, "a string or an array of strings");
    }
    for (const struct json *c = json_first(v); c != NULL; c = json_next(c)) {
        RETERR(add_stop(p, row, c, e));
    }
    return 0;
}

static bool parse_id(const char *s, int32_t *ret)
{
    int64_t n = 0;
    if (*s == '\0') {
        return false;
    }
    for (; *s != '\0'; s++) {
        if (*s < '0' || *s > '9' || n > (int64_t)MODEL_VOCAB_MAX) {
            return false;
        }
        n = 10 * n + (*s - '0');
    }
    *ret = (int32_t)n;
    return n < (int64_t)MODEL_VOCAB_MAX;
}

/* {"id": bias}; false bans the token as llama-server has it. */
static int set_bias(struct params *p, const struct row *row,
                    const struct json *v, struct err *e)
{
    struct msg_sampling *s = &p->req.sampling;
    if (json_type(v) != JSON_OBJECT) {
        return want(row, e, "an object of token id and bias");
    }
    size_t n = json_count(v);
    if (n > ENGINE_BIAS_MAX) {
        return err_set(e, ERR_INVALID, "%s: at most %u entries", row->name,
                       ENGINE_BIAS_MAX);
    }
    s->bias = arena_array(p->a, n, sizeof(*s->bias));
    if (s->bias == NULL) {
        return full(row, e);
    }
    for (const struct json *c = json_first(v); c != NULL; c = json_next(c)) {
        int32_t id = 0;
        double x = json_num(c);
        bool ban = json_type(c) == JSON_BOOL && !json_bool(c);
        if (!parse_id(json_key(c), &id)) {
            return err_set(e, ERR_INVALID, "%s: '%.32s' is no token id",
                           row->name, json_key(c));
        }
        if (!ban && (json_type(c) != JSON_NUMBER || x < -100 || x > 100)) {
            return err_set(e, ERR_INVALID,
                           "%s: the bias of %d must be a number from -100 to "
                           "100, or false",
                           row->name, (int)id);
        }
        s->bias[s->n_bias++] =
            (struct msg_bias){.id = id, .bias = ban ? -INFINITY : (float)x};
    }
    return 0;
}

static int set_stream_options(struct params *p, const struct row *row,
                              const struct json *v, struct err *e)
{
    if (json_type(v) != JSON_OBJECT) {
        return want(row, e, "an object");
    }
    for (const struct json *c = json_first(v); c != NULL; c = json_next(c)) {
        if (strcmp(json_key(c), "include_usage") != 0) {
            return err_set(e, ERR_UNSUPPORTED, "%s: no such field '%.32s'",
                           row->name, json_key(c));
        }
        if (json_type(c) == JSON_NULL) {
            continue;
        }
        if (json_type(c) != JSON_BOOL) {
            return err_set(e, ERR_INVALID,
                           "%s.include_usage: must be true or false",
                           row->name);
        }
        p->include_usage = json_bool(c);
    }
    return 0;
}

/* Completions: how many alternatives; being there asks for logprobs. */
static int set_logprobs_n(struct params *p, const struct row *row,
                          const struct json *v, struct err *e)
{
    int64_t n = 0;
    int rc = get_int(row, v, &n, e);
    if (rc == 0) {
        p->logprobs = true;
        p->req.sampling.logprobs = (uint32_t)n;
    }
    return rc;
}

static bool text_part(const struct json *v)
{
    const char *type = json_str(json_get(v, "type"));
    return type != NULL && strcmp(type, "text") == 0 &&
           json_str(json_get(v, "text")) != NULL && json_count(v) == 2;
}

/* {"type": "content", "content": text, parts of text or token ids}. */
static int set_prediction(struct params *p, const struct row *row,
                          const struct json *v, struct err *e)
{
    const char *type = json_str(json_get(v, "type"));
    const struct json *c = json_get(v, "content");
    bool ok = json_type(v) == JSON_OBJECT && json_count(v) == 2 &&
              type != NULL && strcmp(type, "content") == 0 && c != NULL &&
              (json_str(c) != NULL || json_type(c) == JSON_ARRAY);
    const struct json *part =
        ok && json_type(c) == JSON_ARRAY ? json_first(c) : NULL;
    bool ids = part != NULL && json_type(part) == JSON_NUMBER;
    int64_t id = 0;
    for (; part != NULL && ok; part = json_next(part)) {
        ok =
            ids ? json_int(part, 0, MODEL_VOCAB_MAX - 1, &id) : text_part(part);
    }
    p->prediction = ok ? c : NULL;
    return ok ? 0
              : want(row, e,
                     "{\"type\": \"content\", \"content\": a string or an "
                     "array of text parts or of token ids}");
}

/* OpenAI's names: "flex" requests wait for all others, "priority" ones for
 * none. */
static int set_tier(struct params *p, const struct row *row,
                    const struct json *v, struct err *e)
{
    static const char *const tiers[] = {"default", "auto", "flex", "priority"};
    const char *s = json_str(v);
    for (size_t i = 0; s != NULL && i < countof(tiers); i++) {
        if (strcmp(s, tiers[i]) == 0) {
            p->tier = tiers[i < 2 ? 0 : i];
            p->req.cls = i == 2   ? SCHED_CLASS_BATCH
                         : i == 3 ? SCHED_CLASS_INTERACTIVE
                                  : p->req.cls;
            return 0;
        }
    }
    return want(row, e, "one of auto, default, flex, priority");
}

/* --- fields that change nothing here --- */

static int set_string(struct params *p, const struct row *row,
                      const struct json *v, struct err *e)
{
    (void)p;
    return json_type(v) == JSON_STRING ? 0 : want(row, e, "a string");
}

static int set_object(struct params *p, const struct row *row,
                      const struct json *v, struct err *e)
{
    (void)p;
    return json_type(v) == JSON_OBJECT ? 0 : want(row, e, "an object");
}

static int set_any_bool(struct params *p, const struct row *row,
                        const struct json *v, struct err *e)
{
    (void)p;
    return json_type(v) == JSON_BOOL ? 0 : want(row, e, "true or false");
}

/* llama-server's slot number: a hint; the warm session is found by prefix. */
static int set_slot(struct params *p, const struct row *row,
                    const struct json *v, struct err *e)
{
    int64_t n = 0;
    (void)p;
    return get_int(row, v, &n, e);
}

static int set_elsewhere(struct params *p, const struct row *row,
                         const struct json *v, struct err *e)
{
    (void)p, (void)row, (void)v, (void)e;
    return 0; /* the dialect reads it */
}

/* --- fields of which only the neutral value can be honoured --- */

static int only_one(struct params *p, const struct row *row,
                    const struct json *v, struct err *e)
{
    int64_t n = 0;
    (void)p;
    return json_int(v, 1, 1, &n) ? 0 : unsupported(row, e, "only 1");
}

static int only_empty(struct params *p, const struct row *row,
                      const struct json *v, struct err *e)
{
    const char *s = json_str(v);
    (void)p;
    return (s != NULL && s[0] == '\0') ||
                   (json_type(v) == JSON_ARRAY && json_first(v) == NULL)
               ? 0
               : unsupported(row, e, "only an empty one");
}

static int only_text(struct params *p, const struct row *row,
                     const struct json *v, struct err *e)
{
    const char *s = json_str(json_get(v, "type"));
    (void)p;
    return s != NULL && strcmp(s, "text") == 0 && json_count(v) == 1
               ? 0
               : unsupported(row, e, "only {\"type\": \"text\"}");
}

static int only_no_tool(struct params *p, const struct row *row,
                        const struct json *v, struct err *e)
{
    const char *s = json_str(v);
    (void)p;
    return s != NULL && (strcmp(s, "none") == 0 || strcmp(s, "auto") == 0)
               ? 0
               : unsupported(row, e,
                             "only \"none\" or \"auto\", without tools");
}

#define BOTH   (PARAMS_COMPLETION | PARAMS_CHAT)
#define TEXT   PARAMS_COMPLETION
#define CHAT   PARAMS_CHAT
#define REQ(f) offsetof(struct params, req.f)
#define SAM(f) offsetof(struct params, req.sampling.f)
#define OUR(f) offsetof(struct params, f)
#define SEED   9007199254740992.0 /* what a JSON number holds exactly: 2^53 */

static const struct row rows[] = {
    {"model",                 BOTH, set_model,          0,     0,                   0                     },
    {"messages",              CHAT, set_elsewhere,      0,     0,                   0                     },
    {"prompt",                TEXT, set_elsewhere,      0,     0,                   0                     },
    {"stream",                BOTH, set_bool,           0,     0,                   OUR(stream)           },
    {"resumable",             BOTH, set_bool,           0,     0,                   OUR(resumable)        },
    {"stream_options",        BOTH, set_stream_options, 0,     0,                   0                     },
    {"max_tokens",            BOTH, set_uint,           0,     MODEL_CONTEXT_MAX,   REQ(max_tokens)       },
    {"max_completion_tokens", CHAT, set_uint,           0,     MODEL_CONTEXT_MAX,
     REQ(max_tokens)                                                                                      },
    {"n_predict",             BOTH, set_uint,           -1,    MODEL_CONTEXT_MAX,   REQ(max_tokens)       },
    {"n",                     BOTH, set_uint,           1,     CHOICES_MAX,         REQ(n)                },
    {"temperature",           BOTH, set_temperature,    0,     2,                   SAM(temperature)      },
    {"top_p",                 BOTH, set_float,          0,     1,                   SAM(top_p)            },
    {"top_k",                 BOTH, set_top_k,          -1,    MODEL_VOCAB_MAX,     0                     },
    {"min_p",                 BOTH, set_float,          0,     1,                   SAM(min_p)            },
    {"repeat_penalty",        BOTH, set_float,          0.01,  10,                  SAM(repeat_penalty)   },
    {"repeat_last_n",         BOTH, set_uint,           -1,    MODEL_CONTEXT_MAX,
     SAM(repeat_last_n)                                                                                   },
    {"presence_penalty",      BOTH, set_float,          -2,    2,                   SAM(presence_penalty) },
    {"frequency_penalty",     BOTH, set_float,          -2,    2,                   SAM(frequency_penalty)},
    {"seed",                  BOTH, set_seed,           -SEED, SEED,                0                     },
    {"stop",                  BOTH, set_stop,           0,     0,                   0                     },
    {"logit_bias",            BOTH, set_bias,           0,     0,                   0                     },
    {"ignore_eos",            BOTH, set_bool,           0,     0,                   REQ(ignore_eos)       },
    {"deadline_ms",           BOTH, set_uint,           1,     DEADLINE_MAX_MS,     REQ(deadline_ms)      },
    {"keep_alive",            BOTH, set_keep_alive,     0,     0,                   0                     },
    {"cache_prompt",          BOTH, set_bool,           0,     0,                   REQ(reuse)            },
    {"id_slot",               BOTH, set_slot,           -1,    SEED,                0                     },
    {"logprobs",              TEXT, set_logprobs_n,     0,     ENGINE_LOGPROBS_MAX, 0                     },
    {"n_probs",               TEXT, set_logprobs_n,     0,     ENGINE_LOGPROBS_MAX, 0                     },
    {"logprobs",              CHAT, set_bool,           0,     0,                   OUR(logprobs)         },
    {"top_logprobs",          CHAT, set_uint,           0,     ENGINE_LOGPROBS_MAX, SAM(logprobs)         },
    {"echo",                  TEXT, set_bool,           0,     0,                   OUR(echo)             },
    {"best_of",               TEXT, only_one,           0,     0,                   0                     },
    {"suffix",                TEXT, only_empty,         0,     0,                   0                     },
    {"tools",                 CHAT, only_empty,         0,     0,                   0                     },
    {"tool_choice",           CHAT, only_no_tool,       0,     0,                   0                     },
    {"response_format",       CHAT, only_text,          0,     0,                   0                     },
    {"parallel_tool_calls",   CHAT, set_any_bool,       0,     0,                   0                     },
    {"prediction",            BOTH, set_prediction,     0,     0,                   0                     },
    {"service_tier",          BOTH, set_tier,           0,     0,                   0                     },
    {"user",                  BOTH, set_string,         0,     0,                   0                     },
    {"metadata",              CHAT, set_object,         0,     0,                   0                     },
    {"store",                 CHAT, set_any_bool,       0,     0,                   0                     },
};

size_t params_count(void)
{
    return countof(rows);
}

const char *params_name(size_t i)
{
    return rows[i].name;
}

unsigned params_dialects(size_t i)
{
    return rows[i].dialects;
}

/* For each field of a request: no printf. */
static void put_param(struct params *p, const char *name)
{
    size_t n = strnlen(name, sizeof(p->param) - 1);
    memcpy(p->param, name, n);
    p->param[n] = '\0';
}

static int read_field(struct params *p, const struct json *v, unsigned dialect,
                      struct err *e)
{
    const char *key = json_key(v);
    put_param(p, key);
    for (size_t i = 0; i < countof(rows); i++) {
        if ((rows[i].dialects & dialect) != 0 &&
            strcmp(rows[i].name, key) == 0) {
            return json_type(v) == JSON_NULL ? 0
                                             : rows[i].set(p, &rows[i], v, e);
        }
    }
    return err_set(e, ERR_UNSUPPORTED, "%.63s: no such field here", key);
}

static int read_together(struct params *p, unsigned dialect,
                         const struct json *j, struct err *e)
{
    if (json_get(j, "stream_options") != NULL && !p->stream &&
        json_type(json_get(j, "stream_options")) != JSON_NULL) {
        put_param(p, "stream_options");
        return err_set(e, ERR_INVALID, "stream_options: only with stream");
    }
    if (p->resumable && !p->stream) {
        put_param(p, "resumable");
        return err_set(e, ERR_INVALID, "resumable: only with stream");
    }
    if (dialect == PARAMS_CHAT && !p->logprobs &&
        p->req.sampling.logprobs > 0) {
        put_param(p, "top_logprobs");
        return err_set(e, ERR_INVALID, "top_logprobs: only with logprobs");
    }
    if (p->echo && p->logprobs) {
        put_param(p, "echo");
        return err_set(e, ERR_UNSUPPORTED, "echo: not together with logprobs");
    }
    p->req.sampling.no_logprob = !p->logprobs;
    return 0;
}

static int read_fields(struct params *p, unsigned dialect, const struct json *j,
                       struct err *e)
{
    for (const struct json *c = json_first(j); c != NULL; c = json_next(c)) {
        RETERR(read_field(p, c, dialect, e));
    }
    return read_together(p, dialect, j, e);
}

int params_read(const struct json *j, unsigned dialect, struct arena *a,
                struct params *p, struct err *e)
{
    *p = (struct params){.a = a};
    msg_sampling_init(&p->req.sampling);
    p->req.sampling.temperature = 1;
    p->req.sampling.repeat_last_n = 64; /* llama-server's */
    p->req.n = 1;
    p->req.reuse = true;
    p->req.cls =
        dialect == PARAMS_CHAT ? SCHED_CLASS_CHAT : SCHED_CLASS_INTERACTIVE;
    p->req.max_tokens = dialect == PARAMS_CHAT ? GEN_MAX_TOKENS : 16;
    int rc = read_fields(p, dialect, j, e);
    p->a = NULL;
    if (rc != 0) {
        return rc;
    }
    p->param[0] = '\0';
    if (!p->seeded) {
        random_bytes(&p->req.sampling.seed, sizeof(p->req.sampling.seed));
    }
    return 0;
}
