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
    O_CONTEXT,
    O_SHAPE,
    O_KV,
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
    [O_CONTEXT] =
        {"context",        'c', OPT_STR,  "N,...",
                "tokens the model sees; default its own, at most 4096; of several "
         "NAME has the most, and NAME-2k ... are made beside it",                             0,             0            },
    [O_SHAPE] = {"shape",          0,   OPT_STR,  "S",
                "ranged (default), functions, or functions:T,T,...",                          0,             0            },
    [O_KV] = {"kv",             0,   OPT_STR,  "K",     "state (default) or host",          0,             0            },
    [O_OUTPUT] = {"output",         0,   OPT_STR,  "O",
                "logits (default), or argmax: the likeliest token only",                      0,
                0                                                                                                         },
    [O_PROFILE] = {"profile",        0,   OPT_STR,  "P",     "Neural Engine to plan for",        0,
                0                                                                                                         },
    [O_NORM] = {"norm",           0,   OPT_STR,  "F",     "scale or max, not by measurement", 0,
                0                                                                                                         },
    [O_SCALE] = {"residual-scale", 0,   OPT_NUM,  "A",
                "of the residual stream, not by measurement",                                 1e-9,          1            },
    [O_ACCEPT] = {"accept",         0,   OPT_LIST, "G",
                "gates that may fail: quality, exactness; commas between",                    0,
                0                                                                                                         },
    [O_FORCE] = {"force",          'f', OPT_GONE, NULL,
                "name the gates that may fail: --accept quality,exactness",                   0,
                0                                                                                                         },
    [O_PRIORITY] = {"priority",       0,   OPT_STR,  "P",
                "low, normal (default) or high: which job is next",                           0,             0            },
    [O_NO_WAIT] = {"no-wait",        0,   OPT_FLAG, NULL,
                "only queue the job and print its id",                                        0,             0            },
};

static void add_str(struct json *o, const struct args *a, int opt,
                    const char *key)
{
    if (a->opt[opt].set) {
        json_add_str(o, key, a->opt[opt].str);
    }
}

static void add_rules(struct json *o, const struct args *a)
{
    if (!a->opt[O_QUANT_FOR].set) {
        return;
    }
    struct json *list = json_add_array(o, "quant_for");
    for (size_t i = 0; i < a->opt[O_QUANT_FOR].n_list; i++) {
        json_add_str(list, NULL, a->opt[O_QUANT_FOR].list[i]);
    }
}

/* Each value may name several gates; the daemon knows which there are. */
static void add_accepted(struct json *o, const struct args *a)
{
    struct json *list = NULL;
    for (size_t i = 0; i < a->opt[O_ACCEPT].n_list; i++) {
        const char *at = a->opt[O_ACCEPT].list[i];
        for (size_t n = 0; *at != '\0'; at += n + (at[n] == ',' ? 1 : 0)) {
            char name[64];
            n = strcspn(at, ",");
            (void)snprintf(name, sizeof(name), "%.*s", (int)n, at);
            list = list != NULL ? list : json_add_array(o, "accept");
            json_add_str(list, NULL, name);
        }
    }
}

/* text: to calibrate with, or NULL */
static struct json *request(const struct args *a, const char *path,
                            const char *text, const struct tiers *t)
{
    struct json *o = json_object();
    json_add_str(o, "source", path);
    add_str(o, a, O_NAME, "name");
    add_str(o, a, O_QUANT, "quant");
    add_str(o, a, O_HEAD_QUANT, "head_quant");
    add_rules(o, a);
    add_str(o, a, O_CALIBRATE, "calibrate");
    if (text != NULL) {
        json_add_str(o, "calibration", text);
    }
    add_str(o, a, O_SHAPE, "shape");
    add_str(o, a, O_KV, "kv");
    add_str(o, a, O_OUTPUT, "output");
    add_str(o, a, O_PROFILE, "profile");
    add_str(o, a, O_NORM, "norm");
    add_str(o, a, O_PRIORITY, "priority");
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
    add_accepted(o, a);
    return o;
}

/* The same weights for fewer positions. */
static struct json *smaller(const struct args *a, const char *name,
                            uint32_t context)
{
    char suffix[TIER_SUFFIX_MAX];
    char made[MODEL_NAME_MAX + 1 + TIER_SUFFIX_MAX];
    struct json *o = json_object();
    tier_suffix(context, suffix);
    (void)snprintf(made, sizeof(made), "%s%s", name, suffix);
    json_add_str(o, "reshard", name);
    json_add_str(o, "name", made);
    json_add_int(o, "context", context);
    add_str(o, a, O_PRIORITY, "priority");
    add_accepted(o, a);
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
    for (uint32_t i = 0; i < n && code == 0 && !no_wait; i++) {
        code = submit_wait(c, ids[i]);
    }
    return code;
}

static int run(struct client *c, const struct args *a)
{
    struct tiers tiers = {0};
    struct err e = {0};
    char *path = NULL;
    char *text = NULL;
    if (a->opt[O_CONTEXT].set &&
        tiers_parse(a->opt[O_CONTEXT].str, &tiers, &e) < 0) {
        (void)fprintf(stderr, "usage: --%s\n", e.msg);
        return EXIT_USAGE;
    }
    if (submit_path(a->pos[0], &path, &e) < 0) {
        return ask_fail(c, &e);
    }
    if (a->opt[O_CALIBRATION].set &&
        submit_path(a->opt[O_CALIBRATION].str, &text, &e) < 0) {
        free(path);
        return ask_fail(c, &e);
    }
    struct json *body = request(a, path, text, &tiers);
    free(path);
    free(text);
    return run_all(c, a, body, &tiers);
}

const struct command cmd_convert = {
    .name = "convert",
    .args = "FILE",
    .summary = "make a model of a GGUF file",
    .about = "The daemon does it, in a queue, one file at a time; the file is\n"
             "only read. Ctrl-C leaves the job running.\n",
    .examples =
        "  anectl convert gemma-3-270m.gguf\n"
        "  anectl convert m.gguf --name gemma --quant fp16 --context 2048\n"
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
