/* The fields of a request: what each takes, refuses and sets. */
#include <math.h>

#include "../unit.h"
#include "api/openai.h"

enum { PARAMS_COMPLETION = 1, PARAMS_CHAT = 2 };

static struct params p;
static struct arena arena; /* what p points to, until the next one */

static const struct fields *fields_of(unsigned dialect)
{
    return dialect == PARAMS_CHAT ? &openai_chat_fields
                                  : &openai_completion_fields;
}

/* 0, or the error of one field of an object. */
static int take(const char *text, unsigned dialect)
{
    struct json *j = NULL;
    struct err e = {0};
    unit_ok(json_parse(text, strlen(text), &j, &e), &e);
    arena_fini(&arena);
    arena_init(&arena, GEN_ARENA_MAX);
    int rc = params_read(j, fields_of(dialect), &arena, &p, &e);
    json_free(j);
    return rc;
}

static int field(const char *name, const char *value, unsigned dialect)
{
    char text[512];
    (void)snprintf(text, sizeof(text),
                   "{\"stream\":true,\"logprobs\":%s,\"%s\":%s}",
                   dialect == PARAMS_CHAT ? "true" : "0", name, value);
    if (strcmp(name, "logprobs") == 0 || strcmp(name, "stream") == 0 ||
        strcmp(name, "echo") == 0) {
        (void)snprintf(text, sizeof(text), "{\"%s\":%s}", name, value);
    }
    return take(text, dialect);
}

static void defaults(void **state)
{
    (void)state;
    assert_int_equal(take("{}", PARAMS_COMPLETION), 0);
    assert_int_equal(p.req.max_tokens, 16);
    assert_true(p.req.sampling.temperature == 1.0f);
    assert_true(p.req.sampling.top_p == 1.0f);
    assert_true(p.req.sampling.repeat_penalty == 1.0f);
    assert_int_equal(p.req.n, 1);
    assert_true(p.req.reuse);
    assert_int_equal(p.req.deadline_ms, 0);
    assert_false(p.stream || p.logprobs || p.echo || p.seeded);
    uint64_t seed = p.req.sampling.seed;
    assert_int_equal(take("{}", PARAMS_CHAT), 0);
    assert_true(p.req.max_tokens == GEN_MAX_TOKENS);
    assert_true(p.req.sampling.seed != seed); /* 2^-64 says otherwise */
}

static void values_arrive(void **state)
{
    (void)state;
    assert_int_equal(
        take("{\"temperature\":0.5,\"top_p\":0.25,\"top_k\":7,\"min_p\":0.125,"
             "\"n\":3,\"seed\":0,\"stop\":[\"a\",\"bc\"],\"max_tokens\":9,"
             "\"presence_penalty\":-1,\"frequency_penalty\":2,"
             "\"repeat_penalty\":1.5,\"logit_bias\":{\"5\":-100,\"6\":false},"
             "\"ignore_eos\":true,\"deadline_ms\":86400000,\"cache_prompt\":false,\"stream\":true,"
             "\"stream_options\":{\"include_usage\":true},\"model\":\"m\"}",
             PARAMS_COMPLETION),
        0);
    const struct msg_sampling *s = &p.req.sampling;
    assert_true(s->temperature == 0.5f && s->top_p == 0.25f);
    assert_true(s->min_p == 0.125f && s->presence_penalty == -1.0f);
    assert_true(s->frequency_penalty == 2.0f && s->repeat_penalty == 1.5f);
    assert_int_equal(s->top_k, 7);
    assert_int_equal(p.req.n, 3);
    assert_true(p.seeded && s->seed == 0);
    assert_int_equal(p.req.n_stops, 2);
    assert_int_equal(p.req.max_tokens, 9);
    assert_int_equal(p.req.deadline_ms, DEADLINE_MAX_MS);
    assert_int_equal(s->n_bias, 2);
    assert_int_equal(s->bias[0].id, 5);
    assert_true(s->bias[0].bias == -100.0f);
    assert_true(isinf(s->bias[1].bias));
    assert_true(p.req.ignore_eos && !p.req.reuse);
    assert_true(p.stream && p.include_usage);
    assert_int_equal(take("{\"n_predict\":-1,\"top_k\":-1}", PARAMS_COMPLETION),
                     0);
    assert_true(p.req.max_tokens == GEN_MAX_TOKENS);
    assert_int_equal(p.req.sampling.top_k, 0);
    assert_true(p.req.sampling.no_logprob); /* nobody will see them */
    assert_int_equal(take("{\"logprobs\":0}", PARAMS_COMPLETION), 0);
    assert_true(p.logprobs);
    assert_false(p.req.sampling.no_logprob);
    assert_int_equal(
        take("{\"logprobs\":true,\"top_logprobs\":5}", PARAMS_CHAT), 0);
    assert_int_equal(p.req.sampling.logprobs, 5);
}

/* Who goes first is the dialect's to say, or the request's. */
static void class_and_prediction(void **state)
{
    (void)state;
    assert_int_equal(take("{}", PARAMS_CHAT), 0);
    assert_int_equal(p.req.cls, SCHED_CLASS_CHAT);
    assert_null(p.tier);
    assert_int_equal(take("{\"service_tier\":\"auto\"}", PARAMS_COMPLETION), 0);
    assert_int_equal(p.req.cls, SCHED_CLASS_INTERACTIVE);
    assert_string_equal(p.tier, "default");
    assert_int_equal(take("{\"service_tier\":\"flex\"}", PARAMS_COMPLETION), 0);
    assert_int_equal(p.req.cls, SCHED_CLASS_BATCH);
    assert_int_equal(take("{\"service_tier\":\"priority\"}", PARAMS_CHAT), 0);
    assert_int_equal(p.req.cls, SCHED_CLASS_INTERACTIVE);
    assert_string_equal(p.tier, "priority");
    assert_int_equal(take("{\"prediction\":{\"type\":\"content\",\"content\":"
                          "[{\"type\":\"text\",\"text\":\"a\"}]}}",
                          PARAMS_CHAT),
                     0);
    assert_non_null(p.prediction);
    assert_int_equal(take("{\"prediction\":{\"type\":\"content\",\"content\":"
                          "[0,1048575]}}",
                          PARAMS_COMPLETION),
                     0);
    assert_non_null(p.prediction);
    assert_int_equal(take("{\"prediction\":null}", PARAMS_CHAT), 0);
    assert_null(p.prediction);
}

/* Every peer takes -1, and only that, for a random seed. */
static void a_random_seed(void **state)
{
    (void)state;
    assert_int_equal(take("{\"seed\":-1}", PARAMS_CHAT), 0);
    uint64_t first = p.req.sampling.seed;
    assert_false(p.seeded);
    assert_int_equal(take("{\"seed\":-1}", PARAMS_COMPLETION), 0);
    assert_true(p.req.sampling.seed != first); /* 2^-64 says otherwise */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(take("{\"seed\":-2}", PARAMS_CHAT), 0);
        assert_true(p.seeded && p.req.sampling.seed == (uint64_t)-2);
    }
}

/* R31: every field with every kind of value is taken or refused by name. */
static void every_field_with_every_value(void **state)
{
    (void)state;
    static const char *const values[] = {
        "true",
        "\"\"",
        "\"1\"",
        "[]",
        "{}",
        "-1",
        "0",
        "1",
        "1.5",
        "1e308",
        "-0",
        "21",
        "9007199254740993",
        "[1]",
        "[\"\"]",
        "{\"a\":1}",
        "4294967296",
        "-1e308",
    };
    for (unsigned d = 1; d <= 2; d++) {
        const struct field *f = NULL;
        for (size_t i = 0; (f = fields_row(fields_of(d), i)) != NULL; i++) {
            assert_int_equal(field(f->name, "null", d), 0);
            for (size_t k = 0; k < countof(values); k++) {
                int rc = field(f->name, values[k], d);
                assert_true(rc == 0 || rc == ERR_INVALID ||
                            rc == ERR_UNSUPPORTED);
                if (rc != 0) {
                    assert_string_equal(p.param, f->name);
                }
            }
        }
    }
}

#define PREDICT(content) "{\"type\":\"content\",\"content\":[" content "]}"
#define PART             "{\"type\":\"text\",\"text\":\"a\"}"

static void what_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value;
        unsigned dialect;
        int code;
    } rows[] = {
        {"temperature",     "2.01",                                   PARAMS_CHAT,       ERR_INVALID    },
        {"temperature",     "\"1\"",                                  PARAMS_CHAT,       ERR_INVALID    },
        {"prediction",      "\"text\"",                               PARAMS_CHAT,       ERR_INVALID    },
        {"prediction",      "{\"type\":\"content\"}",                 PARAMS_CHAT,       ERR_INVALID    },
        {"prediction",      PREDICT("-1"),                            PARAMS_CHAT,       ERR_INVALID    },
        {"prediction",      PREDICT("1.5"),                           PARAMS_CHAT,       ERR_INVALID    },
        {"prediction",      PREDICT("1048576"),                       PARAMS_CHAT,       ERR_INVALID    },
        {"prediction",      PREDICT("1,\"a\""),                       PARAMS_CHAT,       ERR_INVALID    },
        {"prediction",      PREDICT("1," PART),                       PARAMS_CHAT,       ERR_INVALID    },
        {"prediction",      PREDICT(PART ",1"),                       PARAMS_CHAT,       ERR_INVALID    },
        {"prediction",      PREDICT("[1]"),                           PARAMS_CHAT,       ERR_INVALID    },
        {"prediction",      "{\"type\":\"x\",\"content\":\"a\"}",     PARAMS_CHAT,
         ERR_INVALID                                                                                    },
        {"service_tier",    "\"slow\"",                               PARAMS_CHAT,       ERR_INVALID    },
        {"top_p",           "1.01",                                   PARAMS_CHAT,       ERR_INVALID    },
        {"n",               "0",                                      PARAMS_CHAT,       ERR_INVALID    },
        {"n",               "17",                                     PARAMS_CHAT,       ERR_INVALID    },
        {"max_tokens",      "-2",                                     PARAMS_CHAT,       ERR_INVALID    },
        {"max_tokens",      "1.5",                                    PARAMS_CHAT,       ERR_INVALID    },
        {"deadline_ms",     "0",                                      PARAMS_CHAT,       ERR_INVALID    },
        {"deadline_ms",     "86400001",                               PARAMS_CHAT,       ERR_INVALID    },
        {"deadline_ms",     "\"1s\"",                                 PARAMS_COMPLETION, ERR_INVALID    },
        {"stop",            "[\"\"]",                                 PARAMS_CHAT,       ERR_INVALID    },
        {"stop",            "[1]",                                    PARAMS_CHAT,       ERR_INVALID    },
        {"logit_bias",      "{\"x\":1}",                              PARAMS_CHAT,       ERR_INVALID    },
        {"logit_bias",      "{\"-1\":1}",                             PARAMS_CHAT,       ERR_INVALID    },
        {"logit_bias",      "{\"1\":101}",                            PARAMS_CHAT,       ERR_INVALID    },
        {"logit_bias",      "{\"1\":true}",                           PARAMS_CHAT,       ERR_INVALID    },
        {"logit_bias",      "{\"99999999999\":1}",                    PARAMS_CHAT,       ERR_INVALID    },
        {"top_logprobs",    "21",                                     PARAMS_CHAT,       ERR_INVALID    },
        {"logprobs",        "21",                                     PARAMS_COMPLETION, ERR_INVALID    },
        {"logprobs",        "1",                                      PARAMS_CHAT,       ERR_INVALID    },
        {"stream_options",  "{\"x\":1}",                              PARAMS_CHAT,       ERR_UNSUPPORTED},
        {"response_format", "{\"type\":\"json_object\"}",             PARAMS_CHAT,
         ERR_UNSUPPORTED                                                                                },
        {"tool_choice",     "\"required\"",                           PARAMS_CHAT,       ERR_UNSUPPORTED},
        {"tool_choice",     "{\"type\":\"function\"}",                PARAMS_CHAT,       ERR_UNSUPPORTED},
        {"tool_choice",     "1",                                      PARAMS_CHAT,       ERR_INVALID    },
        {"tools",           "[]",                                     PARAMS_COMPLETION, ERR_UNSUPPORTED},
        {"functions",       "[{}]",                                   PARAMS_CHAT,       ERR_UNSUPPORTED},
        {"thinking",        "{\"type\":\"x\"}",                       PARAMS_CHAT,       ERR_INVALID    },
        {"suffix",          "1",                                      PARAMS_COMPLETION, ERR_INVALID    },
        {"best_of",         "2",                                      PARAMS_COMPLETION, ERR_UNSUPPORTED},
        {"grammar",         "\"x\"",                                  PARAMS_COMPLETION, ERR_UNSUPPORTED},
        {"messages",        "[]",                                     PARAMS_COMPLETION, ERR_UNSUPPORTED},
        {"prompt",          "\"x\"",                                  PARAMS_CHAT,       ERR_UNSUPPORTED},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        print_message("# %s %s\n", rows[i].name, rows[i].value);
        assert_int_equal(field(rows[i].name, rows[i].value, rows[i].dialect),
                         rows[i].code);
        assert_string_equal(p.param, rows[i].name);
    }
    assert_int_equal(take("{\"stream_options\":{}}", PARAMS_CHAT), ERR_INVALID);
    assert_int_equal(take("{\"top_logprobs\":2}", PARAMS_CHAT), ERR_INVALID);
    assert_int_equal(take("{\"echo\":true,\"logprobs\":1}", PARAMS_COMPLETION),
                     0);
    assert_true(p.req.score);
    assert_int_equal(take("{\"echo\":true}", PARAMS_COMPLETION), 0);
    assert_false(p.req.score);
}

/* llama-server's list of samplers: what it leaves out is off, and what does
 * something stands in our order. */
static void samplers(void **state)
{
    (void)state;
    const struct msg_sampling *s = &p.req.sampling;
    assert_int_equal(
        take("{\"samplers\":[\"top_k\",\"min_p\"],\"top_k\":5,\"min_p\":0.5,"
             "\"top_p\":0.5,\"temperature\":0.5,\"repeat_penalty\":2}",
             PARAMS_CHAT),
        0);
    assert_true(s->top_k == 5 && s->min_p == 0.5f && s->top_p == 1.0f);
    assert_true(s->temperature == 1.0f && s->repeat_penalty == 1.0f);
    assert_int_equal(take("{\"samplers\":[],\"top_p\":0.5}", PARAMS_CHAT), 0);
    assert_true(s->top_p == 0.5f); /* an empty list says nothing */
    /* At temperature 1, or 0, it does not matter where it stands. */
    assert_int_equal(
        take("{\"samplers\":[\"min_p\",\"temperature\"],\"min_p\":0.1}",
             PARAMS_CHAT),
        0);
    assert_int_equal(take("{\"samplers\":[\"min_p\",\"temperature\"],"
                          "\"min_p\":0.1,\"temperature\":0}",
                          PARAMS_CHAT),
                     0);
    /* Elsewhere min_p before the temperature is another one after it. */
    assert_int_equal(take("{\"samplers\":[\"min_p\",\"temperature\"],"
                          "\"min_p\":0.25,\"temperature\":0.5}",
                          PARAMS_COMPLETION),
                     0);
    assert_true(fabsf(s->min_p - 0.0625f) < 1e-7f && s->temperature == 0.5f);
    assert_int_equal(take("{\"samplers\":[\"top_p\",\"temperature\"],"
                          "\"top_p\":0.5,\"temperature\":0.7}",
                          PARAMS_COMPLETION),
                     ERR_UNSUPPORTED);
    assert_string_equal(p.param, "samplers");
    assert_int_equal(take("{\"samplers\":[\"infill\"]}", PARAMS_CHAT),
                     ERR_UNSUPPORTED);
    assert_int_equal(take("{\"samplers\":[1]}", PARAMS_CHAT), ERR_UNSUPPORTED);
}

static void neutral_values(void **state)
{
    (void)state;
    assert_int_equal(take("{\"max_tokens\":-1}", PARAMS_COMPLETION), 0);
    assert_true(p.req.max_tokens == GEN_MAX_TOKENS);
    assert_int_equal(take("{\"stop\":\"\"}", PARAMS_CHAT), 0);
    assert_int_equal(p.req.n_stops, 0);
    assert_int_equal(take("{\"no_such_field\":null}", PARAMS_CHAT), 0);
    assert_int_equal(take("{\"ttl\":60}", PARAMS_CHAT), 0);
    assert_true(p.keeps && p.keep_ms == 60000);
}

static void too_many_entries(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, MIB(1));
    buf_puts(&b, "{\"logit_bias\":{\"0\":0");
    for (unsigned i = 1; i <= ENGINE_BIAS_MAX; i++) {
        buf_printf(&b, ",\"%u\":0", i);
    }
    buf_puts(&b, "}}");
    assert_int_equal(take(b.p, PARAMS_CHAT), ERR_INVALID);
    buf_clear(&b);
    buf_puts(&b, "{\"stop\":[\"0\"");
    for (unsigned i = 1; i <= STOP_STRINGS_MAX; i++) {
        buf_printf(&b, ",\"%u\"", i);
    }
    buf_puts(&b, "]}");
    assert_int_equal(take(b.p, PARAMS_CHAT), ERR_INVALID);
    assert_string_equal(p.param, "stop");
    buf_fini(&b);
}

static int drop(void **state)
{
    (void)state;
    arena_fini(&arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(values_arrive),
        cmocka_unit_test(class_and_prediction),
        cmocka_unit_test(a_random_seed),
        cmocka_unit_test(every_field_with_every_value),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(samplers),
        cmocka_unit_test(neutral_values),
        cmocka_unit_test(too_many_entries),
    };
    return cmocka_run_group_tests(tests, NULL, drop);
}
