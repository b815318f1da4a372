/* test_stories.c - the step loop on a real, tiny model: the GGUF is converted
 * with fp16 weights and must tell the reference's story, token for token, in
 * every form of bundle; and speculation on it must change nothing. */
#include "converted.h"
#include "proto/json.h"

enum { STEPS = 48, PROMPT_MAX = 64 };

static char dir[256];
static struct json *expected;

static const struct form {
    const char *shape, *kv;
} forms[] = {
    {"ranged",    "state"},
    {"functions", "state"},
    {"ranged",    "host" },
    {"functions", "host" },
};

static int setup(void **state)
{
    (void)state;
    char path[1024];
    struct buf b;
    struct err e;
    if (unit_shared() == NULL) {
        return 0;
    }
    converted_dir(dir, "stories");
    (void)snprintf(path, sizeof(path),
                   "%s/data/models/derived/expected_greedy.json",
                   unit_shared());
    unit_ok(file_read(path, MIB(8), &b, &e), &e);
    unit_ok(json_parse(b.p, b.n, &expected, &e), &e);
    buf_fini(&b);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    struct err e;
    json_free(expected);
    if (dir[0] != '\0') {
        unit_ok(file_rmtree(dir, &e), &e);
    }
    return 0;
}

static struct engine *open_form(const struct form *f)
{
    char source[1024];
    char out[512];
    const struct engine_conf conf = {.threads = 2};
    (void)snprintf(source, sizeof(source),
                   "%s/data/models/derived/stories260K.F32.gguf",
                   unit_shared());
    (void)snprintf(out, sizeof(out), "%s/%s-%s", dir, f->shape, f->kv);
    return converted_open(source, out, "fp16", f->shape, f->kv, &conf);
}

static uint32_t ids(const struct json *list, int32_t *out)
{
    uint32_t n = 0;
    for (const struct json *c = json_first(list); c != NULL; c = json_next(c)) {
        assert_true(n < PROMPT_MAX);
        out[n++] = (int32_t)json_num(c);
    }
    return n;
}

/* STEPS tokens after the prompt. Drafts come from `oracle` (every third one
 * made wrong), or there are none when it is NULL. */
static void generate(struct engine *g, const struct msg_sampling *p,
                     const int32_t *prompt, uint32_t n_prompt,
                     const struct msg_token *oracle, struct msg_token *out)
{
    int32_t tokens[PROMPT_MAX + STEPS + ENGINE_DRAFTS_MAX + 1];
    struct engine_seq *s = NULL;
    struct err e;
    struct msg_row row = {.sample = true, .sampling = *p};
    memcpy(tokens, prompt, n_prompt * sizeof(*tokens));
    unit_ok(engine_seq_open(g, &s, &e), &e);
    uint32_t got = 0;
    uint32_t accepted = 0;
    while (got < STEPS) {
        struct msg_row_done done;
        row.position = engine_seq_length(s);
        row.n_tokens = got == 0 ? n_prompt : 1;
        row.tokens = tokens + row.position;
        row.out_index = got;
        row.n_drafts = 0;
        for (uint32_t d = 0; oracle != NULL && d < 5 && got + d < STEPS; d++) {
            int32_t id = oracle[got + d].id;
            row.drafts[row.n_drafts++] = (got + d) % 3 == 2 ? id ^ 1 : id;
        }
        unit_ok(engine_step(s, &row, &done, NULL, &e), &e);
        for (uint32_t i = 0; i < done.n_tokens && got < STEPS; i++, got++) {
            out[got] = done.tokens[i];
            tokens[n_prompt + got] = out[got].id;
        }
        accepted += done.n_accepted;
    }
    assert_int_equal(accepted > 0, oracle != NULL);
    engine_seq_close(s);
}

static void test_greedy(void **state)
{
    (void)state;
    if (unit_shared() == NULL) {
        skip();
    }
    for (size_t f = 0; f < countof(forms); f++) {
        struct engine *g = open_form(&forms[f]);
        struct msg_sampling p;
        msg_sampling_init(&p);
        unsigned stories = 0;
        for (const struct json *c =
                 json_first(json_get(expected, "stories260K.F32"));
             c != NULL; c = json_next(c)) {
            int32_t prompt[PROMPT_MAX];
            int32_t want[PROMPT_MAX];
            struct msg_token got[STEPS];
            uint32_t n = ids(json_get(c, "prompt_tokens"), prompt);
            assert_int_equal(ids(json_get(c, "tokens"), want), STEPS);
            generate(g, &p, prompt, n, NULL, got);
            for (size_t i = 0; i < STEPS; i++) {
                assert_int_equal(got[i].id, want[i]);
            }
            stories++;
        }
        assert_int_equal(stories, 3);
        engine_close(g);
    }
}

/* Drawn with temperature: the same seed tells the same story, drafts or not,
 * to the last bit of the log-probabilities; another seed another one. */
static void test_speculation(void **state)
{
    (void)state;
    if (unit_shared() == NULL) {
        skip();
    }
    static const int32_t prompt[] = {1, 403, 407, 261, 378};
    for (size_t f = 0; f < countof(forms); f++) {
        struct engine *g = open_form(&forms[f]);
        struct msg_sampling p;
        struct msg_token a[STEPS];
        struct msg_token b[STEPS];
        msg_sampling_init(&p);
        p.temperature = 1.1f;
        p.top_k = 60;
        p.top_p = 0.95f;
        p.repeat_penalty = 1.1f;
        p.repeat_last_n = 32;
        p.presence_penalty = 0.2f;
        p.logprobs = 3;
        p.seed = 5;
        generate(g, &p, prompt, countof(prompt), NULL, a);
        generate(g, &p, prompt, countof(prompt), a, b);
        for (size_t i = 0; i < STEPS; i++) {
            assert_int_equal(a[i].id, b[i].id);
            assert_memory_equal(&a[i].logprob, &b[i].logprob, sizeof(float));
            assert_memory_equal(a[i].top, b[i].top, 3 * sizeof(a[i].top[0]));
        }
        p.seed = 6;
        generate(g, &p, prompt, countof(prompt), NULL, b);
        unsigned same = 0;
        for (size_t i = 0; i < STEPS; i++) {
            same += a[i].id == b[i].id;
        }
        assert_true(same < STEPS);
        engine_close(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_speculation),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
