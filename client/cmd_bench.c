/* cmd_bench.c - how fast a model answers here. */
#include "client/bench.h"

enum { O_ROUNDS, O_PROMPT, O_TOKENS, O_STREAMS };
static const struct opt opts[] = {
    [O_ROUNDS] = {"rounds",  'r', OPT_INT, "N", "measure so often; default 5", 1,
                  BENCH_ROUNDS_MAX                                                                 },
    [O_PROMPT] = {"prompt",  'p', OPT_INT, "N",
                  "tokens of a prompt; default 512, or what fits",             2,
                  MODEL_CONTEXT_MAX                                                                },
    [O_TOKENS] = {"tokens",  'n', OPT_INT, "N",
                  "tokens of an answer; default 64",                           2, MODEL_CONTEXT_MAX},
    [O_STREAMS] = {"streams", 's', OPT_INT, "N",
                  "answers at the same time; default 1",                       1, BENCH_STREAMS_MAX},
};

static const struct {
    const char *key, *unit, *what;
} figures[BENCH_FIGURES] = {
    [BENCH_PREFILL] = {"prefill_tokens_per_second", "tok/s", "prefill"          },
    [BENCH_DECODE] = {"decode_tokens_per_second",  "tok/s", "decode, a stream" },
    [BENCH_ALL] = {"total_tokens_per_second",   "tok/s", "decode, together" },
    [BENCH_COLD] = {"first_token_cold_ms",       "ms",    "first token, cold"},
    [BENCH_WARM] = {"first_token_warm_ms",       "ms",    "first token, warm"},
};

/* {"median", "min", "max"}; sorts v. */
static void add_figure(struct json *o, const char *key, double *v, size_t n)
{
    struct json *x = json_add_object(o, key);
    json_add_num(x, "median", bench_median(v, n));
    json_add_num(x, "min", v[0]);
    json_add_num(x, "max", v[n - 1]);
}

static void fill(struct json *o, struct bench *b)
{
    double asked = (double)b->rounds * b->streams * b->prompt;
    json_add_str(o, "model", b->model);
    json_add_num(o, "rounds", (double)b->rounds);
    json_add_num(o, "streams", (double)b->streams);
    json_add_num(o, "prompt_tokens", (double)b->prompt);
    json_add_num(o, "tokens", (double)b->tokens);
    json_add_num(o, "load_seconds", b->load_s);
    json_add_num(o, "warm_share", b->n_cached / asked);
    for (size_t i = 0; i < BENCH_FIGURES; i++) {
        add_figure(o, figures[i].key, b->of[i], b->rounds);
    }
}

static void show(const struct client *c, const struct json *o)
{
    double share = json_num(json_get(o, "warm_share"));
    printf("%s%s%s: %.0f rounds, prompts of %.0f tokens, answers of %.0f, "
           "%.0f at a time\n",
           color_out(&c->term, COLOR_BOLD), ask_str(o, "model"),
           color_out(&c->term, COLOR_OFF), json_num(json_get(o, "rounds")),
           json_num(json_get(o, "prompt_tokens")),
           json_num(json_get(o, "tokens")), json_num(json_get(o, "streams")));
    printf("  %-18s %10s %10s %10s\n", "", "median", "least", "most");
    for (size_t i = 0; i < BENCH_FIGURES; i++) {
        const struct json *x = json_get(o, figures[i].key);
        printf("  %-18s %10.1f %10.1f %10.1f %s\n", figures[i].what,
               json_num(json_get(x, "median")), json_num(json_get(x, "min")),
               json_num(json_get(x, "max")), figures[i].unit);
    }
    if (share < 0.9) {
        printf("  of the warm prompts %.0f %% was warm: there was no room to "
               "keep all of them\n",
               100 * share);
    }
}

static uint32_t or_else(const struct args *a, int opt, uint32_t usual)
{
    return a->opt[opt].set ? (uint32_t)a->opt[opt].integer : usual;
}

static int run(struct client *c, const struct args *a)
{
    struct err e = {0};
    struct bench b = {.c = c,
                      .model = a->pos[0],
                      .rounds = or_else(a, O_ROUNDS, 5),
                      .prompt = or_else(a, O_PROMPT, 0),
                      .tokens = or_else(a, O_TOKENS, 0),
                      .streams = or_else(a, O_STREAMS, 1),
                      .bar = {.began = now_seconds()}};
    interrupt_catch();
    int rc = bench_open(&b, &e);
    rc = rc == 0 ? bench_run(&b, &e) : rc;
    bar_wipe(&b.bar);
    if (rc == 0) {
        struct json *o = json_object();
        fill(o, &b);
        if (c->json) {
            (void)ask_print(o);
        } else {
            show(c, o);
        }
        json_free(o);
    }
    bench_close(&b);
    return rc == 0 ? EXIT_SUCCESS : ask_fail(c, &e);
}

const struct command cmd_bench = {
    .name = "bench",
    .args = "MODEL",
    .summary = "how fast a model answers here",
    .about =
        "Each round asks N prompts that nobody asked before, at once, and "
        "reads\n"
        "their answers; then the same prompts again, which are warm now, for\n"
        "one token. Times are this client's, from the request to the text.\n"
        "  prefill      tokens of the prompts a second, to the first text\n"
        "  decode       tokens a second after that: of one stream, of all\n"
        "  first token  from the request to the first text\n"
        "A prompt is words in an order of chance, and the answers go on to\n"
        "their last token. Drafts are made as for any request ([speculation]\n"
        "max_draft = 0 is without); others who ask meanwhile are measured "
        "too.\n",
    .examples = "  anectl bench gemma\n"
                "  anectl bench gemma --streams 8 --rounds 10\n"
                "  anectl bench gemma --prompt 4000 --tokens 200 --json\n",
    .opts = opts,
    .n_opts = countof(opts),
    .pos_min = 1,
    .pos_max = 1,
    .takes = "model",
    .run = run,
};
