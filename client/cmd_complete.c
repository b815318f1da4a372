/* cmd_complete.c - continue a text as it is. */
#include "client/gen.h"

enum { O_ECHO = GEN_OPTS };
static const struct opt opts[] = {
    GEN_OPT_ROWS,
    [O_ECHO] = {"echo", 0, OPT_FLAG, NULL, "print the prompt first", 0, 0},
};

static int run(struct client *c, const struct args *a)
{
    struct err e = {0};
    struct buf prompt;
    struct gen_stats st = {0};

    interrupt_catch();
    if (gen_prompt(a, 1, &prompt, &e) < 0) {
        return ask_fail(c, &e);
    }
    struct json *body = gen_request(a->pos[0], a);
    json_add_str(body, "prompt", prompt.p);
    if (c->json) {
        if (a->opt[O_ECHO].set) {
            json_add_bool(body, "echo", true);
        }
        buf_fini(&prompt);
        struct json *j = NULL;
        int code = ask_tell(c, "POST", "/v1/completions", body, &j);
        json_free(j);
        return code;
    }
    if (a->opt[O_ECHO].set) {
        term_put(stdout, c->term.out_tty, prompt.p, prompt.n);
    }
    int rc = gen_stream(c, "/v1/completions", body, NULL, &st, &e);
    int code = gen_end(c, a, rc, &st, &e);
    buf_fini(&prompt);
    return code;
}

const struct command cmd_complete = {
    .name = "complete",
    .args = "MODEL [PROMPT]",
    .summary = "continue a text as it is, without a chat template",
    .about = "Without PROMPT the text comes from standard input.\n",
    .examples =
        "  anectl complete stories \"Once upon a time\" --max-tokens 100\n"
        "  anectl complete gemma - --temperature 0 --stop . < begin.txt\n",
    .opts = opts,
    .n_opts = countof(opts),
    .pos_min = 1,
    .pos_max = 1000,
    .takes = "model",
    .run = run,
};
