/* cmd_plan.c - what a conversion would make of a file. The daemon opens no
 * file of a user's, so the aned that belongs to this anectl looks at it, with
 * the user's own rights, in the place of this process. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "client/client.h"
#include "client/service.h"

enum {
    O_PROFILE,
    O_CONTEXT,
    O_QUANT,
    O_TARGET_BYTES,
    O_TARGET_KL,
    O_KV,
    O_EXPERTS,
    O_SHAPE
};

static const struct opt opts[] = {
    [O_PROFILE] = {"profile", 'p', OPT_STR, "P",
                   "law (default: fits every chip), m1 ... m5-max; cpu: no chip",  0, 0},
    [O_CONTEXT] = {"context", 'c', OPT_INT, "N",
                   "tokens the model sees; default its own, at most 4096 (profile cpu: 32768, as memory allows)",        1,
                   MODEL_CONTEXT_MAX                                                  },
    [O_QUANT] = {"quant",   'q', OPT_STR, "Q",
                   "int8 (default), int8-tensor, int4, lut4, lut6, fp16",         0, 0},
    [O_TARGET_BYTES] = {"target-bytes", 0, OPT_STR, "N",
                   "least of a conversion for so many bytes of weights",          0, 0},
    [O_TARGET_KL] = {"target-kl", 0, OPT_STR, "X",
                   "the same of one for that KL of the logits, nats",             0, 0},
    [O_KV] = {"kv",      0,   OPT_STR, "K", "state (default) or host",       0, 0},
    [O_EXPERTS] = {"experts", 0, OPT_STR, "E",
                   "auto (default), dense, sparse or sparse:N",                   0, 0},
    [O_SHAPE] = {"shape",   0,   OPT_STR, "S", "ranged (default) or functions", 0,
                   0                                                                  },
};

#define ARGS_MAX (2 * countof(opts) + 6)

/* execv changes nothing of it. */
static char *unconst(const char *s)
{
    return (char *)(uintptr_t)s;
}

static int run(struct client *c, const struct args *a)
{
    char program[SERVICE_PATH_MAX];
    char names[countof(opts)][24];
    char number[24];
    char *argv[ARGS_MAX];
    size_t n = 0;
    struct err e = {0};
    if (service_program(program, sizeof(program), &e) != 0) {
        return ask_fail_plain(c, &e);
    }
    argv[n++] = program;
    argv[n++] = unconst("plan");
    for (size_t i = 0; i < countof(opts); i++) {
        if (a->opt[i].set) {
            (void)snprintf(names[i], sizeof(names[i]), "--%s", opts[i].name);
            (void)snprintf(number, sizeof(number), "%lld",
                           (long long)a->opt[O_CONTEXT].integer);
            argv[n++] = names[i];
            argv[n++] = i == O_CONTEXT ? number : unconst(a->opt[i].str);
        }
    }
    if (c->json) {
        argv[n++] = unconst("--json");
    }
    argv[n++] = unconst("--"); /* the file's name may begin with '-' */
    argv[n++] = a->pos[0];
    argv[n++] = NULL;
    must(n <= countof(argv));
    (void)execv(program, argv);
    (void)err_errno(&e, errno, program);
    return ask_fail_plain(c, &e);
}

const struct command cmd_plan = {
    .name = "plan",
    .args = "FILE",
    .summary = "how a model would be divided, and how fast it would be",
    .about = "What `aned plan` prints: programs, sizes, the time of a step as\n"
             "public figures of a chip predict it, and why. No daemon is\n"
             "needed, and nothing is written.\n",
    .examples = "  anectl plan gemma-3-270m.gguf\n"
                "  anectl plan m.gguf --profile m4-max --quant fp16\n"
                "  anectl plan m.gguf --profile m5-pro --json\n",
    .opts = opts,
    .n_opts = countof(opts),
    .pos_min = 1,
    .pos_max = 1,
    .takes = "file",
    .run = run,
};
