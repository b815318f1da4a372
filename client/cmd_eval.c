/* cmd_eval.c - what a model makes of texts and questions whose answers are
 * known. */
#include <string.h>

#include "client/eval.h"

enum { O_PERPLEXITY, O_ARC, O_LIMIT, O_WINDOW, O_STRIDE, O_NO_BOS, O_SAMPLES };
static const struct opt opts[] = {
    [O_PERPLEXITY] = {"perplexity", 'p', OPT_STR,  "FILE",
                      "how likely a text is; .jsonl: a text a line",                 0, 0  },
    [O_ARC] = {"arc",        'a', OPT_STR,  "FILE",
                      "multiple choice; .jsonl: a question a line",                  0, 0  },
    [O_LIMIT] = {"limit",      'l', OPT_INT,  "N",    "only the first N lines", 1, 1e9},
    [O_WINDOW] = {"window",     'w', OPT_INT,  "N",
                      "tokens of a request; default the context, to 2048",           4,
                      EVAL_WINDOW_MAX                                                      },
    [O_STRIDE] = {"stride",     0,   OPT_INT,  "N",
                      "tokens a window predicts; default all it holds",              1,
                      EVAL_WINDOW_MAX                                                      },
    [O_NO_BOS] = {"no-bos",     0,   OPT_FLAG, NULL,
                      "questions without BOS, where the model has one",              0, 0  },
    [O_SAMPLES] = {"samples",    0,   OPT_FLAG, NULL,
                      "with --json: the figures of each line too",                   0, 0  },
};

static void row(const struct json *o, const char *key, const char *what)
{
    printf("  %-16s %14.4f  %s\n", key, json_num(json_get(o, key)), what);
}

static void share(const struct json *o, const char *key, const char *what)
{
    char name[32];
    (void)snprintf(name, sizeof(name), "%s_stderr", key);
    printf("  %-10s %7.2f %% +- %.2f  %s\n", key,
           100 * json_num(json_get(o, key)), 100 * json_num(json_get(o, name)),
           what);
}

static void show(const struct client *c, const struct json *o, bool text)
{
    char took[16];
    fmt_seconds(json_num(json_get(o, "seconds")), took);
    printf("%s%s%s, %s: ", color_out(&c->term, COLOR_BOLD), ask_str(o, "model"),
           color_out(&c->term, COLOR_OFF), ask_str(o, "file"));
    if (text) {
        printf("%.0f texts, %.0f tokens, windows of %.0f, stride %.0f, %s\n",
               json_num(json_get(o, "texts")), json_num(json_get(o, "tokens")),
               json_num(json_get(o, "window")), json_num(json_get(o, "stride")),
               took);
        row(o, "perplexity", "a token");
        row(o, "word_perplexity", "a word (between white space)");
        row(o, "byte_perplexity", "a byte");
        row(o, "bits_per_byte", "");
        return;
    }
    printf("%.0f questions, %.0f choices, %s\n",
           json_num(json_get(o, "questions")), json_num(json_get(o, "choices")),
           took);
    share(o, "acc", "the likeliest choice is right");
    share(o, "acc_norm", "the likeliest by its characters");
    share(o, "acc_bytes", "the likeliest by its bytes");
}

static int check(const struct args *a, struct err *e)
{
    bool text = a->opt[O_PERPLEXITY].set;
    if (text == a->opt[O_ARC].set) {
        return err_set(e, ERR_USAGE, "give --perplexity FILE or --arc FILE");
    }
    if (!text && a->opt[O_STRIDE].set) {
        return err_set(e, ERR_USAGE, "--stride is for --perplexity");
    }
    if (text && a->opt[O_NO_BOS].set) {
        return err_set(e, ERR_USAGE,
                       "--no-bos is for --arc: a text begins "
                       "after BOS in any case");
    }
    return 0;
}

static int evaluate(struct eval *v, const struct args *a, struct json *o,
                    struct err *e)
{
    bool text = a->opt[O_PERPLEXITY].set;
    const char *path = a->opt[text ? O_PERPLEXITY : O_ARC].str;
    double began = now_seconds();
    RETERR(check(a, e));
    json_add_str(o, "model", v->model);
    json_add_str(o, "task", text ? "perplexity" : "arc");
    json_add_str(o, "file", path);
    RETERR(eval_open(v, e));
    RETERR(text ? eval_text(v, path, o, e) : eval_choice(v, path, o, e));
    json_add_num(o, "seconds", now_seconds() - began);
    return 0;
}

static int run(struct client *c, const struct args *a)
{
    struct err e = {0};
    struct json *o = json_object();
    struct json *samples = a->opt[O_SAMPLES].set ? json_array() : NULL;
    struct eval v = {.c = c,
                     .model = a->pos[0],
                     .window = (uint32_t)a->opt[O_WINDOW].integer,
                     .stride = (uint32_t)a->opt[O_STRIDE].integer,
                     .limit = (uint32_t)a->opt[O_LIMIT].integer,
                     .bos = !a->opt[O_NO_BOS].set,
                     .bar = {.began = now_seconds()},
                     .samples = samples};
    interrupt_catch();
    int rc = evaluate(&v, a, o, &e);
    bar_wipe(&v.bar);
    if (samples != NULL) {
        json_add_tree(o, "samples", samples);
    }
    if (rc == 0 && c->json) {
        (void)ask_print(o);
    } else if (rc == 0) {
        show(c, o, a->opt[O_PERPLEXITY].set);
    }
    json_free(o);
    return rc == 0 ? EXIT_SUCCESS : ask_fail(c, &e);
}

const struct command cmd_eval = {
    .name = "eval",
    .args = "MODEL",
    .summary = "how well a model predicts texts, or answers questions",
    .about =
        "--perplexity: how likely each token of a text is after those before\n"
        "it. Perplexity is exp of the mean of -log of that, a token, a word "
        "or\n"
        "a byte: compare words or bytes between models of different\n"
        "vocabularies. The first token comes after BOS. Long texts are cut\n"
        "into windows of W tokens, each of which predicts W - 2, or --stride "
        "N\n"
        "after as many as there is room for: slower, and a little better.\n"
        "--arc: the choice that is likeliest after \"Question: "
        "...\\nAnswer:\"\n"
        "(acc), by its characters (acc_norm) or bytes (acc_bytes). Lines as "
        "in\n"
        "ARC's files, or {\"query\", \"choices\": [...], \"gold\": 0}.\n"
        "Figures are those of lm_eval (local-completions, its remote "
        "tokenizer:\n"
        "that has no BOS before questions: --no-bos).\n",
    .examples = "  anectl eval gemma --perplexity wiki.test.raw\n"
                "  anectl eval gemma --perplexity texts.jsonl --window 1024 "
                "--stride 512\n"
                "  anectl eval gemma --arc ARC-Easy-Test.jsonl --limit 500\n"
                "  anectl eval gemma --arc mine.jsonl --json --samples\n",
    .opts = opts,
    .n_opts = countof(opts),
    .pos_min = 1,
    .pos_max = 1,
    .takes = "model",
    .run = run,
};
