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

/* What an answer has to look like, as the constraint that it comes to. */
static void answers(void **state)
{
    (void)state;
    static const struct {
        const char *field, *answer; /* NULL: any */
        unsigned dialect;
    } rows[] = {
        {"\"response_format\":{\"type\":\"text\"}",        NULL,
         PARAMS_CHAT                                         },
        {"\"response_format\":{\"type\":\"json_object\"}", "{\"object\":true}",
         PARAMS_CHAT                                         },
        {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":"
         "{\"name\":\"x\",\"strict\":true,\"schema\":{\"b\":1,\"a\":[]}}}",
         "{\"schema\":{\"b\":1,\"a\":[]}}",               PARAMS_CHAT      },
        {"\"response_format\":{\"type\":\"json_object\",\"schema\":{}}",
         "{\"schema\":{}}",                              PARAMS_CHAT      },
        {"\"response_format\":{\"type\":\"json_object\",\"value\":{}}",
         "{\"schema\":{}}",                              PARAMS_CHAT      },
        {"\"grammar\":\"\"",                             NULL,
         PARAMS_COMPLETION                                   },
        {"\"grammar\":\"root ::= \\\"x\\\"\"",           "{\"gbnf\":\"root ::= \\\"x\\\"\"}",
         PARAMS_COMPLETION                                   },
        {"\"json_schema\":{}",                           NULL,
         PARAMS_COMPLETION                                   },
        {"\"json_schema\":{\"type\":\"null\"}",          "{\"schema\":{\"type\":\"null\"}}",
         PARAMS_COMPLETION                                   },
    };
    for (size_t i = 0; i < countof(rows); i++) {
        char text[256];
        (void)snprintf(text, sizeof(text), "{%s}", rows[i].field);
        assert_int_equal(take(text, rows[i].dialect), 0);
        const struct text_want *w = &p.req.want;
        assert_true((w->answer != NULL) == (rows[i].answer != NULL));
        assert_true(text_wants(w) == (rows[i].answer != NULL));
        if (w->answer != NULL) {
            assert_string_equal(w->answer, rows[i].answer);
            assert_memory_equal(w->answer_field, rows[i].field + 1,
                                strlen(w->answer_field));
        }
    }
    assert_int_equal(take("{\"grammar\":\"root ::= [a]\",\"json_schema\":{\"x\":1}}",
                          PARAMS_COMPLETION),
                     ERR_INVALID);
    assert_int_equal(take("{\"tool_choice\":\"required\"}", PARAMS_CHAT), 0);
    assert_true(p.req.want.call && p.req.want.name == NULL);
    assert_int_equal(take("{\"tool_choice\":{\"type\":\"function\",\"function\":"
                          "{\"name\":\"f\"}}}",
                          PARAMS_CHAT),
                     0);
    assert_true(p.req.want.call);
    assert_string_equal(p.req.want.name, "f");
    assert_int_equal(take("{\"tool_choice\":\"auto\"}", PARAMS_CHAT), 0);
    assert_false(p.req.want.call);
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
        {"response_format", "{\"type\":\"xml\"}",                     PARAMS_CHAT,       ERR_UNSUPPORTED},
        {"response_format", "{\"type\":\"json_schema\"}",             PARAMS_CHAT,       ERR_INVALID    },
        {"response_format", "\"json_object\"",                        PARAMS_CHAT,       ERR_INVALID    },
        {"tool_choice",     "\"some\"",                               PARAMS_CHAT,       ERR_UNSUPPORTED},
        {"tool_choice",     "{\"type\":\"custom\"}",                  PARAMS_CHAT,       ERR_UNSUPPORTED},
        {"tool_choice",     "{\"type\":\"function\"}",                PARAMS_CHAT,       ERR_INVALID    },
        {"tool_choice",     "1",                                      PARAMS_CHAT,       ERR_INVALID    },
        {"tools",           "[]",                                     PARAMS_COMPLETION, ERR_UNSUPPORTED},
        {"functions",       "[{}]",                                   PARAMS_CHAT,       ERR_UNSUPPORTED},
        {"thinking",        "{\"type\":\"x\"}",                       PARAMS_CHAT,       ERR_INVALID    },
        {"suffix",          "1",                                      PARAMS_COMPLETION, ERR_INVALID    },
        {"best_of",         "2",                                      PARAMS_COMPLETION, ERR_UNSUPPORTED},
        {"grammar",         "1",                                      PARAMS_COMPLETION, ERR_INVALID    },
        {"json_schema",     "3",                                      PARAMS_COMPLETION, ERR_INVALID    },
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
                     ERR_UNSUPPORTED);
}

/* The kinds that apply, in order, as llama-server's letters. */
static const char *chain(void)
{
    static char text[SAMPLERS_MAX + 1];
    const char letters[SAMPLER_KINDS + 1] = "edskypmxt";
    const struct msg_sampling *s = &p.req.sampling;
    for (uint32_t i = 0; i < s->n_chain; i++) {
        text[i] = letters[s->chain[i]];
    }
    text[s->n_chain] = '\0';
    return text;
}

/* llama-server's list of samplers: its order, what it leaves out is off. */
static void samplers(void **state)
{
    (void)state;
    const struct msg_sampling *s = &p.req.sampling;
    static const struct {
        const char *list, *want;
    } t[] = {
        {"[]",                                                     ""         },
        {"\"\"",                                                   ""         },
        {"[\"top_k\",\"min_p\"]",                                  "km"       },
        {"[\"min_p\",\"temperature\",\"top_p\"]",                  "mtp"      },
        {"[\"Top-K\",\"typical_p\",\"typ\",\"nucleus\",\"temp\"]", "kyypt"    },
        {"[\"penalties\",\"dry\",\"topnsigma\",\"minp\",\"xtc\"]", "edsmx"    },
        {"\"edskypmxt\"",                                          "edskypmxt"},
        {"\"tk\"",                                                 "tk"       },
    };
    for (size_t i = 0; i < countof(t); i++) {
        assert_int_equal(field("samplers", t[i].list, PARAMS_CHAT), 0);
        assert_string_equal(chain(), t[i].want);
    }
    assert_int_equal(
        take("{\"samplers\":[\"top_k\"],\"top_k\":5,\"repeat_penalty\":2}",
             PARAMS_COMPLETION),
        0);
    assert_true(msg_sampling_uses(s, SAMPLER_TOP_K));
    assert_false(msg_sampling_uses(s, SAMPLER_PENALTIES));
    const char *const bad[] = {"[\"infill\"]",     "[1]",   "\"kf\"", "\"i\"",
                               "[\"adaptive_p\"]", "[\"\"]"};
    for (size_t i = 0; i < countof(bad); i++) {
        assert_int_equal(field("samplers", bad[i], PARAMS_CHAT),
                         ERR_UNSUPPORTED);
        assert_string_equal(p.param, "samplers");
    }
    assert_int_equal(field("samplers", "{}", PARAMS_CHAT), ERR_INVALID);
    assert_int_equal(field("samplers", "\"kkkkkkkkkkkkkkkk\"", PARAMS_CHAT), 0);
    assert_int_equal(field("samplers", "\"kkkkkkkkkkkkkkkkk\"", PARAMS_CHAT),
                     ERR_INVALID);
}

static void more_samplers(void **state)
{
    (void)state;
    const struct msg_sampling *s = &p.req.sampling;
    assert_int_equal(take("{}", PARAMS_CHAT), 0);
    const uint8_t *order = NULL;
    assert_int_equal(msg_sampling_order(s, &order), SAMPLER_KINDS);
    for (uint8_t k = 0; k < SAMPLER_KINDS; k++) { /* nothing is on */
        assert_false(msg_sampling_uses(s, k));
    }
    assert_int_equal(p.req.n_dry_texts, 4);
    assert_string_equal(p.req.dry_texts[2], "\"");
    assert_int_equal(s->dry_last_n, 64);
    assert_int_equal(
        take("{\"typical_p\":0.5,\"top_n_sigma\":1.5,\"xtc_probability\":0.25,"
             "\"xtc_threshold\":0.2,\"dynatemp_range\":0.5,"
             "\"dynatemp_exponent\":2,\"dry_multiplier\":0.75,\"dry_base\":0.5,"
             "\"dry_allowed_length\":3,\"dry_penalty_last_n\":-1,"
             "\"dry_sequence_breakers\":[\"\\n\",\"User:\"]}",
             PARAMS_CHAT),
        0);
    for (uint8_t k = 0; k < SAMPLER_KINDS; k++) {
        bool off = k == SAMPLER_PENALTIES || k == SAMPLER_TOP_K ||
                   k == SAMPLER_TOP_P || k == SAMPLER_MIN_P;
        assert_int_equal(msg_sampling_uses(s, k), !off);
    }
    assert_true(s->dry_base == 1.75f && s->dry_allowed_length == 3);
    assert_true(s->dry_last_n == UINT32_MAX);
    assert_int_equal(p.req.n_dry_texts, 2);
    assert_string_equal(p.req.dry_texts[1], "User:");
    assert_int_equal(take("{\"mirostat\":2,\"mirostat_tau\":3,\"top_k\":5,"
                          "\"mirostat_eta\":0.25,\"temperature\":0.5}",
                          PARAMS_COMPLETION),
                     0);
    assert_true(s->mirostat == 2 && msg_sampling_mu(s) == 6);
    assert_int_equal(msg_sampling_order(s, &order), 1);
    assert_true(order[0] == SAMPLER_TEMPERATURE);
    assert_false(msg_sampling_uses(s, SAMPLER_TOP_K));
    static const struct {
        const char *name, *value;
    } bad[] = {
        {"mirostat",              "3"                                   },
        {"typical_p",             "1.5"                                 },
        {"top_n_sigma",           "-2"                                  },
        {"xtc_probability",       "\"x\""                               },
        {"dry_multiplier",        "-1"                                  },
        {"dry_base",              "\"x\""                               },
        {"dry_sequence_breakers", "\"x\""                               },
        {"dry_sequence_breakers", "[\"\"]"                              },
        {"dry_sequence_breakers", "[1]"                                 },
        {"dry_sequence_breakers", "[\"12345678901234567890123456789012345678901"
                                  "\"]"},
    };
    for (size_t i = 0; i < countof(bad); i++) {
        assert_int_equal(field(bad[i].name, bad[i].value, PARAMS_CHAT),
                         ERR_INVALID);
        assert_string_equal(p.param, bad[i].name);
    }
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
        cmocka_unit_test(answers),
        cmocka_unit_test(class_and_prediction),
        cmocka_unit_test(a_random_seed),
        cmocka_unit_test(every_field_with_every_value),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(samplers),
        cmocka_unit_test(more_samplers),
        cmocka_unit_test(neutral_values),
        cmocka_unit_test(too_many_entries),
    };
    return cmocka_run_group_tests(tests, NULL, drop);
}
