/* bench.c - see bench.h.
 *
 * The streams of a request are its prompts: each has its own place in the
 * daemon's queue, and events tell their number. So this client needs neither
 * threads nor processes, whose start would be measured too. */
#include "client/bench.h"

#include <string.h>
#include <time.h>

#define PROMPT 512 /* by default, where the context has room */
#define TOKENS 64
#define SPARE \
    8 /* positions that are left: a BOS, a token of the warm request */

/* Words of which prompts are made, in an order of chance. */
static const char words[] =
    "the river runs under an old stone bridge while people carry bread and "
    "letters from one side to the other; nobody counts them, yet every evening "
    "a lamp is lit, 24 steps are climbed, and somebody writes down what the "
    "water looked like: grey, green, or bright as tin.";

/* --- the model --- */

static int ask_context(struct bench *b, int64_t *ret, struct err *e)
{
    char path[512];
    struct json *j = NULL;
    RETERR(ask_path(path, sizeof(path), "/tokenizer_info?model=", b->model, "",
                    e));
    RETERR(ask(b->c, "GET", path, NULL, &j, e));
    bool ok =
        json_int(json_get(j, "model_max_length"), 1, MODEL_CONTEXT_MAX, ret);
    json_free(j);
    return ok ? 0 : err_set(e, ERR_HTTP, "the daemon tells no context");
}

static int fit(struct bench *b, int64_t context, struct err *e)
{
    int64_t room = context - SPARE;
    int64_t tokens = b->tokens > 0       ? b->tokens
                     : room / 4 < TOKENS ? room / 4
                                         : TOKENS;
    int64_t prompt = b->prompt > 0            ? b->prompt
                     : room - tokens < PROMPT ? room - tokens
                                              : PROMPT;
    if (prompt < 2 || tokens < 2 || prompt + tokens > room) {
        return err_set(e, ERR_INVALID,
                       "%lld + %lld tokens: the model has a context of %lld",
                       (long long)prompt, (long long)tokens,
                       (long long)context);
    }
    b->prompt = (uint32_t)prompt;
    b->tokens = (uint32_t)tokens;
    return 0;
}

static int ask_words(struct bench *b, struct err *e)
{
    RETERR(ask_tokens(b->c, b->model, words, strlen(words), false, &b->words,
                      e));
    return b->words.n > 0 ? 0 : err_set(e, ERR_HTTP, "no tokens of a text");
}

static struct json *request(const struct bench *b, uint32_t tokens)
{
    struct json *o = json_object();
    json_add_str(o, "model", b->model);
    json_add_int(o, "max_tokens", tokens);
    json_add_int(o, "temperature", 0);
    json_add_bool(o, "ignore_eos", true);
    return o;
}

/* The model is loaded by a request of one token. */
static int load(struct bench *b, struct err *e)
{
    struct json *body = request(b, 1);
    struct json *j = NULL;
    double began = now_seconds();
    json_add_str(body, "prompt", words);
    int rc = ask(b->c, "POST", "/v1/completions", body, &j, e);
    b->load_s = now_seconds() - began;
    json_free(body);
    json_free(j);
    return rc;
}

int bench_open(struct bench *b, struct err *e)
{
    int64_t context = 0;
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_REALTIME, &t); /* no two runs ask the same */
    b->salt = (uint64_t)t.tv_sec * 1000000007U + (uint64_t)t.tv_nsec;
    buf_init(&b->words, sizeof(words) * sizeof(int32_t));
    for (size_t i = 0; i < BENCH_FIGURES; i++) {
        b->of[i] = calloc(b->rounds, sizeof(double));
        must(b->of[i] != NULL);
    }
    RETERR(ask_context(b, &context, e));
    RETERR(fit(b, context, e));
    RETERR(ask_words(b, e));
    return load(b, e);
}

void bench_close(struct bench *b)
{
    for (size_t i = 0; i < BENCH_FIGURES; i++) {
        free(b->of[i]);
    }
    buf_fini(&b->words);
}

/* --- a request --- */

/* What came back of one stream. */
struct heard {
    double first, last; /* now_seconds(); 0: nothing yet */
};

struct answer {
    struct heard *of; /* the streams */
    uint32_t n;
    double tokens, cached; /* usage */
};

static int on_event(void *user, const char *event, const char *data, size_t n,
                    struct err *e)
{
    struct answer *a = user;
    struct json *j = NULL;
    double now = now_seconds();
    int64_t i = 0;
    (void)event;
    if (n == 6 && memcmp(data, "[DONE]", 6) == 0) {
        return 0;
    }
    RETERR(json_parse(data, n, &j, e));
    if (json_get(j, "error") != NULL) {
        int rc = ask_error(500, data, n, e);
        json_free(j);
        return rc;
    }
    const struct json *c = json_first(json_get(j, "choices"));
    if (json_int(json_get(c, "index"), 0, (int64_t)a->n - 1, &i) &&
        ask_str(c, "text")[0] != '\0') {
        a->of[i].first = a->of[i].first > 0 ? a->of[i].first : now;
        a->of[i].last = now;
    }
    const struct json *usage = json_get(j, "usage");
    if (json_type(usage) == JSON_OBJECT) {
        a->tokens = json_num(json_get(usage, "completion_tokens"));
        a->cached = json_num(json_get(json_get(usage, "prompt_tokens_details"),
                                      "cached_tokens"));
    }
    json_free(j);
    return 0;
}

/* Prompts that begin with different words each time. */
static void put_prompts(struct json *body, const struct bench *b, uint64_t salt)
{
    const int32_t *ids = (const int32_t *)(const void *)b->words.p;
    size_t n = b->words.n / sizeof(int32_t);
    struct json *all = json_add_array(body, "prompt");
    for (uint32_t s = 0; s < b->streams; s++) {
        struct json *one = json_add_array(all, NULL);
        for (uint32_t i = 0; i < b->prompt; i++) {
            salt = salt * 6364136223846793005U + 1442695040888963407U;
            json_add_int(one, NULL, ids[(salt >> 33) % n]);
        }
    }
}

static int measure(struct bench *b, uint32_t tokens, struct answer *a,
                   struct err *e)
{
    struct json *body = request(b, tokens);
    put_prompts(body, b, b->salt);
    json_add_bool(body, "stream", true);
    json_add_bool(json_add_object(body, "stream_options"), "include_usage",
                  true);
    int rc = ask_events(b->c, "POST", "/v1/completions", body, on_event, a, e);
    json_free(body);
    for (uint32_t i = 0; i < a->n && rc == 0; i++) {
        if (!(a->of[i].first > 0)) {
            rc = err_set(e, ERR_HTTP, "a stream without text");
        }
    }
    return rc;
}

/* --- rounds --- */

double bench_median(double *v, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        double x = v[i];
        size_t k = i;
        for (; k > 0 && v[k - 1] > x; k--) {
            v[k] = v[k - 1];
        }
        v[k] = x;
    }
    return n % 2 == 1 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* What the cold request says. */
static void note(struct bench *b, uint32_t round, const struct answer *a,
                 double began)
{
    double rate[BENCH_STREAMS_MAX], wait[BENCH_STREAMS_MAX];
    double first = a->of[0].first, last_first = 0, last = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        const struct heard *h = &a->of[i];
        double each = a->tokens / a->n - 1; /* after the first */
        double took = h->last - h->first;
        rate[i] = took > 0 ? each / took : 0;
        wait[i] = 1000 * (h->first - began);
        first = h->first < first ? h->first : first;
        last_first = h->first > last_first ? h->first : last_first;
        last = h->last > last ? h->last : last;
    }
    double all = last - first;
    b->of[BENCH_PREFILL][round] =
        (double)b->prompt * a->n / (last_first - began);
    b->of[BENCH_DECODE][round] = bench_median(rate, a->n);
    b->of[BENCH_ALL][round] = all > 0 ? (a->tokens - a->n) / all : 0;
    b->of[BENCH_COLD][round] = bench_median(wait, a->n);
}

static int run_round(struct bench *b, uint32_t round, struct err *e)
{
    struct heard cold[BENCH_STREAMS_MAX] = {{0}};
    struct heard warm[BENCH_STREAMS_MAX] = {{0}};
    struct answer a = {.of = cold, .n = b->streams};
    double wait[BENCH_STREAMS_MAX];
    double began = now_seconds();
    RETERR(measure(b, b->tokens, &a, e));
    note(b, round, &a, began);
    a = (struct answer){.of = warm, .n = b->streams};
    began = now_seconds();
    RETERR(measure(b, 1, &a, e));
    for (uint32_t i = 0; i < a.n; i++) {
        wait[i] = 1000 * (warm[i].first - began);
    }
    b->of[BENCH_WARM][round] = bench_median(wait, a.n);
    b->n_cached += a.cached;
    b->salt = b->salt * 2862933555777941757U + 3037000493U;
    return 0;
}

int bench_run(struct bench *b, struct err *e)
{
    must(b->streams >= 1 && b->streams <= BENCH_STREAMS_MAX);
    for (uint32_t r = 0; r < b->rounds; r++) {
        if (!b->c->json) {
            bar_draw(&b->bar, &b->c->term, "measuring", (double)r / b->rounds);
        }
        RETERR(run_round(b, r, e));
    }
    return 0;
}
