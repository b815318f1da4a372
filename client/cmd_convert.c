/* cmd_convert.c - a model file becomes a model, as a job of the daemon. */
#include <string.h>

#include "client/submit.h"
#include "proto/limits.h"
#include "proto/tier.h"

enum {
    O_NAME,
    O_QUANT,
    O_HEAD_QUANT,
    O_QUANT_FOR,
    O_TARGET_BYTES,
    O_TARGET_KL,
    O_CALIBRATE,
    O_CALIBRATION,
    O_CHAT_TEMPLATE,
    O_CONTEXT,
    O_SHAPE,
    O_KV,
    O_EXPERTS,
    O_OUTPUT,
    O_PROFILE,
    O_NORM,
    O_SCALE,
    O_ACCEPT,
    O_FORCE,
    O_PRIORITY,
    O_NO_WAIT
};

static const struct opt opts[] = {
    [O_NAME] = {"name",           'n', OPT_STR,  "NAME",
                "name of the model; default from the file",                                   0,             0            },
    [O_QUANT] = {"quant",          'q', OPT_STR,  "Q",
                "int8 (default), int8-tensor, int4, lut4, lut6, fp16",                        0,             0            },
    [O_HEAD_QUANT] = {"head-quant",     0,   OPT_STR,  "Q",     "the output projection's",
                0,                                                                                           0            },
    [O_QUANT_FOR] =
        {"quant-for",      0,   OPT_LIST, "P=Q",
                "matrices whose name matches P ('*': any text); repeatable",                  0,             0            },
    [O_TARGET_BYTES] = {"target-bytes",   0,   OPT_INT,  "N",
                "choose forms for at most N bytes of weights",                                1,
                (double)TARGET_BYTES_MAX                                                                                  },
    [O_TARGET_KL] = {"target-kl",      0,   OPT_NUM,  "X",
                "choose forms for a KL of at most X nats (0.05)",                             TARGET_KL_MIN, TARGET_KL_MAX},
    [O_CALIBRATE] = {"calibrate",      0,   OPT_STR,  "C",
                "on or off: error feedback; default on for 4 and 6 bits",                     0,             0            },
    [O_CALIBRATION] = {"calibration",    0,   OPT_STR,  "FILE",
                "text for it; default what the model writes itself",                          0,
                0                                                                                                         },
    [O_CHAT_TEMPLATE] = {"chat-template",  0,   OPT_STR,  "FILE",
                "Jinja in place of the file's own chat template",                             0,
                0                                                                                                         },
    [O_CONTEXT] =
        {"context",        'c', OPT_STR,  "N,...",
                "tokens the model sees; default its own, at most 4096 (profile cpu: 32768, as memory allows); of several "
         "NAME has the most, and NAME-2k ... are made beside it",                             0,             0            },
    [O_SHAPE] = {"shape",          0,   OPT_STR,  "S",
                "ranged (default), functions, or functions:T,T,...",                          0,             0            },
    [O_KV] = {"kv",             0,   OPT_STR,  "K",     "state (default) or host",          0,             0            },
    [O_EXPERTS] = {"experts",        0,   OPT_STR,  "E",
                "auto (default), dense, sparse (run where chosen), or sparse:N: N a package", 0,
                0                                                                                                         },
    [O_OUTPUT] = {"output",         0,   OPT_STR,  "O",
                "logits (default), or argmax: the likeliest token only",                      0,
                0                                                                                                         },
    [O_PROFILE] = {"profile",        0,   OPT_STR,  "P",     "Neural Engine to plan for",        0,
                0                                                                                                         },
    [O_NORM] = {"norm",           0,   OPT_STR,  "F",     "scale or max, not by measurement", 0,
                0                                                                                                         },
    [O_SCALE] = {"residual-scale", 0,   OPT_NUM,  "A",
                "of the residual stream, not by measurement",                                 1e-9,          1            },
    [O_ACCEPT] = SUBMIT_ACCEPT_OPT,
    [O_FORCE] = SUBMIT_FORCE_OPT,
    [O_PRIORITY] = SUBMIT_PRIORITY_OPT,
    [O_NO_WAIT] = SUBMIT_NO_WAIT_OPT,
};

/* Options whose values are files that the daemon reads. */
static const struct submit_str files[] = {
    {O_CALIBRATION,   "calibration"  },
    {O_CHAT_TEMPLATE, "chat_template"},
};

/* Add the absolute paths of those that were given. */
static int add_files(struct json *o, const struct args *a, struct err *e)
{
    for (size_t i = 0; i < countof(files); i++) {
        char *path = NULL;
        if (a->opt[files[i].opt].set) {
            RETERR(submit_path(a->opt[files[i].opt].str, &path, e));
            json_add_str(o, files[i].key, path);
            free(path);
        }
    }
    return 0;
}

static struct json *request(const struct args *a, const char *path,
                            const struct tiers *t)
{
    static const struct submit_str strings[] = {
        {O_NAME,       "name"      },
        {O_QUANT,      "quant"     },
        {O_HEAD_QUANT, "head_quant"},
        {O_CALIBRATE,  "calibrate" },
        {O_SHAPE,      "shape"     },
        {O_KV,         "kv"        },
        {O_EXPERTS,    "experts"   },
        {O_OUTPUT,     "output"    },
        {O_PROFILE,    "profile"   },
        {O_NORM,       "norm"      },
        {O_PRIORITY,   "priority"  },
    };
    struct json *o = json_object();
    json_add_str(o, "source", path);
    submit_strings(o, a, strings, countof(strings));
    submit_list(o, &a->opt[O_QUANT_FOR], "quant_for");
    if (a->opt[O_TARGET_BYTES].set) {
        json_add_int(o, "target_bytes", a->opt[O_TARGET_BYTES].integer);
    }
    if (a->opt[O_TARGET_KL].set) {
        json_add_num(o, "target_kl", a->opt[O_TARGET_KL].num);
    }
    if (t->n > 0) {
        json_add_int(o, "context", t->context[0]);
    }
    if (a->opt[O_SCALE].set) {
        json_add_num(o, "residual_scale", a->opt[O_SCALE].num);
    }
    submit_accepted(o, &a->opt[O_ACCEPT]);
    return o;
}

/* The same weights for fewer positions. */
static struct json *smaller(const struct args *a, const char *name,
                            uint32_t context)
{
    static const struct submit_str priority[] = {
        {O_PRIORITY, "priority"}
    };
    char suffix[TIER_SUFFIX_MAX];
    char made[MODEL_NAME_MAX + 1 + TIER_SUFFIX_MAX];
    struct json *o = json_object();
    tier_suffix(context, suffix);
    (void)snprintf(made, sizeof(made), "%s%s", name, suffix);
    json_add_str(o, "reshard", name);
    json_add_str(o, "name", made);
    json_add_int(o, "context", context);
    submit_strings(o, a, priority, countof(priority));
    submit_accepted(o, &a->opt[O_ACCEPT]);
    return o;
}

/* The model, of `body`, then its smaller contexts, each a job; printed are all
 * ids, or all ends. */
static int run_all(struct client *c, const struct args *a, struct json *body,
                   const struct tiers *t)
{
    char ids[TIERS_MAX][JOB_ID_MAX];
    char name[MODEL_NAME_MAX + 1];
    bool no_wait = a->opt[O_NO_WAIT].set;
    uint32_t n = t->n > 0 ? t->n : 1;
    int code = submit_post(c, body, no_wait, ids[0], name);
    for (uint32_t i = 1; i < n && code == 0; i++) {
        code = submit_post(c, smaller(a, name, t->context[i]), no_wait, ids[i],
                           NULL);
    }
    bool posted = code == 0 && !no_wait;
    /* Each end is told; the exit code is the first one's that is not well. */
    for (uint32_t i = 0; i < n && code != EXIT_INTERRUPTED && posted; i++) {
        int end = submit_wait(c, ids[i]);
        code = code == 0 || end == EXIT_INTERRUPTED ? end : code;
    }
    return code;
}

static int run(struct client *c, const struct args *a)
{
    struct tiers tiers = {0};
    struct err e = {0};
    char *path = NULL;
    if (a->opt[O_CONTEXT].set &&
        tiers_parse(a->opt[O_CONTEXT].str, &tiers, &e) < 0) {
        (void)fprintf(stderr, "usage: --%s\n", e.msg);
        return EXIT_USAGE;
    }
    if (submit_source(a->pos[0], &path, &e) < 0) {
        return ask_fail(c, &e);
    }
    struct json *body = request(a, path, &tiers);
    free(path);
    if (add_files(body, a, &e) < 0) {
        json_free(body);
        return ask_fail(c, &e);
    }
    return run_all(c, a, body, &tiers);
}

const struct command cmd_convert = {
    .name = "convert",
    .args = "FILE",
    .summary = "make a model of a GGUF file or a folder of safetensors",
    .about = "FILE is a GGUF, any part of a split one, a folder with config.json\n"
             "and *.safetensors, or one such file. The daemon does it, in a\n"
             "queue, one model at a time; files are only read. Ctrl-C leaves\n"
             "the job running.\n",
    .examples =
        "  anectl convert gemma-3-270m.gguf\n"
        "  anectl convert m.gguf --name gemma --quant fp16 --context 2048\n"
        "  anectl convert Qwen3-0.6B/\n"
        "  anectl convert m.gguf --context 8192,2048\n"
        "  anectl convert large.gguf --priority low --no-wait\n"
        "  id=$(anectl convert m.gguf --no-wait); anectl job $id --follow\n",
    .opts = opts,
    .n_opts = countof(opts),
    .pos_min = 1,
    .pos_max = 1,
    .takes = "file",
    .run = run,
};
