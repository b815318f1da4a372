/* cmd_run.c - talk to a model. */
#include <unistd.h>

#include "client/chat.h"

enum { O_SYSTEM = GEN_OPTS };
static const struct opt opts[] = {
    GEN_OPT_ROWS,
    [O_SYSTEM] = {"system", 0, OPT_STR, "TEXT", "what the model should be", 0,
                  0},
};

static int run(struct client *c, const struct args *a)
{
    const char *system = a->opt[O_SYSTEM].set ? a->opt[O_SYSTEM].str : NULL;
    struct err e = {0};
    struct buf prompt;

    if (a->n_pos == 1 && isatty(STDIN_FILENO) == 1) {
        if (c->json) {
            (void)err_set(&e, ERR_USAGE, "--json needs a PROMPT");
            return ask_fail(c, &e);
        }
        return chat_loop(c, a->pos[0], system, a);
    }
    if (gen_prompt(a, 1, &prompt, &e) < 0) {
        return ask_fail(c, &e);
    }
    int code = chat_once(c, a->pos[0], system, prompt.p, a);
    buf_fini(&prompt);
    return code;
}

const struct command cmd_run = {
    .name = "run",
    .args = "MODEL [PROMPT]",
    .summary = "talk to a model, once or in a conversation",
    .about =
        "Without PROMPT: a conversation on the terminal, or one question from\n"
        "standard input when that is a pipe. Ctrl-C stops the answer. A model\n"
        "without a chat template continues the text.\n",
    .examples =
        "  anectl run gemma\n"
        "  anectl run gemma \"Why is the sky blue?\" --max-tokens 200\n"
        "  anectl run gemma --system \"Answer in French.\" \"Good morning\"\n"
        "  git diff | anectl run gemma --seed 1 --temperature 0\n",
    .opts = opts,
    .n_opts = countof(opts),
    .pos_min = 1,
    .pos_max = 1000,
    .takes = "model",
    .run = run,
};
