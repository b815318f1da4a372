/* llama-server's requests: what fields set, and what is to be filled in. */
#include <math.h>

#include "../unit.h"
#include "api/llamacpp.h"

static struct call c;

/* Read a request as `d` would. */
static int take(const struct dialect *d, const char *text, struct err *e)
{
    struct json *j = NULL;
    unit_ok(json_parse(text, strlen(text), &j, e), e);
    arena_fini(&c.arena);
    memset(&c, 0, sizeof(c));
    c.d = d;
    arena_init(&c.arena, GEN_ARENA_MAX);
    int rc = params_read(j, d->fields, &c.arena, &c.p, e);
    c.field = c.p.param;
    if (rc == 0) {
        rc = d->read(&c, j, e);
    }
    json_free(j);
    return rc;
}

static const struct params *completion(const char *text)
{
    struct err e = {0};
    unit_ok(take(&llamacpp_completion, text, &e), &e);
    return &c.p;
}

static const struct params *infill(const char *text)
{
    struct err e = {0};
    unit_ok(take(&llamacpp_infill, text, &e), &e);
    return &c.p;
}

static void defaults(void **state)
{
    (void)state;
    const struct params *p = completion("{\"prompt\":\"x\"}");
    assert_int_equal(p->req.kind, GEN_TEXT);
    assert_true(p->req.max_tokens == GEN_MAX_TOKENS);
    assert_true(p->req.sampling.temperature == 0.8f);
    assert_int_equal(p->req.sampling.top_k, 40);
    assert_true(p->req.sampling.top_p == 0.95f);
    assert_true(p->req.sampling.min_p == 0.05f);
    assert_true(p->req.sampling.repeat_penalty == 1.0f);
    assert_false(p->logprobs || p->token_timings || p->stream);
    assert_null(p->shown);
    assert_int_equal(p->req.lines_ms + p->req.indent, 0);
}

static void fields(void **state)
{
    (void)state;
    const struct params *p = completion(
        "{\"prompt\":[1,2],\"n_predict\":-1,\"n_probs\":3,\"n_cmpl\":2,"
        "\"logit_bias\":[[5,-1.5],[6,false]],\"t_max_predict_ms\":250,"
        "\"n_indent\":4,\"response_fields\":[\"a\",\"b/c\"],"
        "\"timings_per_token\":true,\"cache_prompt\":false}");
    assert_int_equal(p->req.kind, GEN_TOKENS);
    assert_int_equal(p->req.n_tokens, 2);
    assert_true(p->logprobs);
    assert_int_equal(p->req.sampling.logprobs, 3);
    assert_int_equal(p->req.n, 2);
    assert_int_equal(p->req.sampling.n_bias, 2);
    assert_true(p->req.sampling.bias[0].bias == -1.5f);
    assert_true(isinf(p->req.sampling.bias[1].bias));
    assert_int_equal(p->req.lines_ms, 250);
    assert_int_equal(p->req.indent, 4);
    assert_int_equal(p->n_shown, 2);
    assert_string_equal(p->shown[1], "b/c");
    assert_true(p->token_timings);
    assert_false(p->req.reuse);
    p = completion("{\"prompt\":\"x\",\"n_probs\":0,\"t_max_predict_ms\":-1,"
                   "\"response_fields\":[]}");
    assert_false(p->logprobs);
    assert_int_equal(p->req.lines_ms, 0);
    assert_null(p->shown);
}

#define GAP "\"input_prefix\":\"a\",\"input_suffix\":\"b\""

static void gaps(void **state)
{
    (void)state;
    const struct params *p =
        infill("{" GAP ",\"prompt\":\"c\",\"input_extra\":[{\"text\":\"t\","
               "\"filename\":\"f\",\"time\":[1,2]},{\"text\":\"\"}]}");
    const struct fim_text *f = p->req.fim;
    assert_int_equal(p->req.kind, GEN_FIM);
    assert_string_equal(f->prefix.p, "a");
    assert_string_equal(f->suffix.p, "b");
    assert_string_equal(f->prompt.p, "c");
    assert_int_equal(f->n_files, 2);
    assert_string_equal(f->files[0].name.p, "f");
    assert_string_equal(f->files[1].name.p, "tmp");
    assert_int_equal(f->files[1].text.n, 0);
    assert_int_equal(infill("{" GAP "}")->req.fim->n_files, 0);
}

/* llama-server's filter for code. */
static void filter(void **state)
{
    (void)state;
    const char *list = "\"samplers\":[\"top_k\",\"top_p\",\"infill\"]";
    char text[256];
    (void)snprintf(text, sizeof(text), "{" GAP ",%s}", list);
    assert_true(infill(text)->req.sampling.temperature == 0);
    (void)snprintf(text, sizeof(text), "{" GAP ",%s,\"n_cmpl\":3}", list);
    const struct params *p = infill(text);
    assert_false(msg_sampling_uses(&p->req.sampling, SAMPLER_TEMPERATURE));
    assert_true(msg_sampling_uses(&p->req.sampling, SAMPLER_MIN_P));
    assert_true(p->req.sampling.min_p == 0.2f);
    p = infill("{" GAP ",\"samplers\":\"kpi\"}");
    assert_true(p->req.sampling.temperature == 0);
    assert_int_equal(p->req.sampling.n_chain, 2);
    assert_true(infill("{" GAP "}")->req.sampling.temperature == 0.8f);
}

static void errors(void **state)
{
    (void)state;
    static const struct {
        const char *text, *field;
        int code;
    } rows[] = {
        {"{\"input_suffix\":\"\"}",                             "input_prefix",    ERR_INVALID    },
        {"{\"input_prefix\":\"\"}",                             "input_suffix",    ERR_INVALID    },
        {"{" GAP ",\"prompt\":1}",                              "prompt",          ERR_INVALID    },
        {"{" GAP ",\"input_extra\":1}",                         "input_extra",     ERR_INVALID    },
        {"{" GAP ",\"input_extra\":[1]}",                       "input_extra",     ERR_INVALID    },
        {"{" GAP ",\"input_extra\":[{\"text\":\"\",\"x\":1}]}", "input_extra",
         ERR_UNSUPPORTED                                                                          },
        {"{" GAP ",\"grammar\":1}",                             "grammar",         ERR_INVALID    },
        {"{" GAP ",\"logit_bias\":[[1]]}",                      "logit_bias",      ERR_UNSUPPORTED},
        {"{" GAP ",\"logit_bias\":[[1,101]]}",                  "logit_bias",      ERR_INVALID    },
        {"{" GAP ",\"response_fields\":[1]}",                   "response_fields", ERR_INVALID    },
        {"{" GAP ",\"samplers\":[\"mirostat\"]}",               "samplers",        ERR_UNSUPPORTED},
        {"{" GAP ",\"samplers\":\"kf\"}",                       "samplers",        ERR_UNSUPPORTED},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct err e = {0};
        print_message("# %s\n", rows[i].text);
        assert_int_equal(take(&llamacpp_infill, rows[i].text, &e),
                         rows[i].code);
        assert_string_equal(c.field, rows[i].field);
        assert_non_null(strstr(e.msg, rows[i].field));
    }
}

static int teardown(void **state)
{
    (void)state;
    arena_fini(&c.arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults), cmocka_unit_test(fields),
        cmocka_unit_test(gaps),     cmocka_unit_test(filter),
        cmocka_unit_test(errors),
    };
    return cmocka_run_group_tests(tests, NULL, teardown);
}
