/* cmd_convert.c - a model file becomes a model, as a job of the daemon. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "client/job_post.h"
#include "proto/limits.h"
#include "proto/tier.h"

enum {
    O_NAME,
    O_QUANT,
    O_HEAD_QUANT,
    O_QUANT_FOR,
    O_CONTEXT,
    O_SHAPE,
    O_KV,
    O_OUTPUT,
    O_PROFILE,
    O_NORM,
    O_SCALE,
    O_FORCE,
    O_PRIORITY,
    O_NO_WAIT
};

static const struct opt opts[] = {
    [O_NAME] = {"name",           'n', OPT_STR,  "NAME",
                "name of the model; default from the file",                                  0,    0},
    [O_QUANT] = {"quant",          'q', OPT_STR,  "Q",
                "int8 (default), int8-tensor, int4, lut4, lut6, fp16",                       0,    0},
    [O_HEAD_QUANT] = {"head-quant",     0,   OPT_STR,  "Q",    "the output projection's",
                0,                                                                                 0},
    [O_QUANT_FOR] =
        {"quant-for",      0,   OPT_LIST, "P=Q",
                "matrices whose name matches P ('*': any text); repeatable",                 0,    0},
    [O_CONTEXT] = {"context",        'c', OPT_STR,  "N,...",
                "tokens the model sees; default its own, at most 4096; of several "
                "NAME has the most, and NAME-2k ... are made beside it",               0,    0},
    [O_SHAPE] = {"shape",          0,   OPT_STR,  "S",
                "ranged (default), functions, or functions:T,T,...",                         0,    0},
    [O_KV] = {"kv",             0,   OPT_STR,  "K",    "state (default) or host",          0,    0},
    [O_OUTPUT] = {"output",         0,   OPT_STR,  "O",
                "logits (default), or argmax: the likeliest token only",                     0,    0},
    [O_PROFILE] = {"profile",        0,   OPT_STR,  "P",    "Neural Engine to plan for",        0,
                0                                                                                   },
    [O_NORM] = {"norm",           0,   OPT_STR,  "F",    "scale or max, not by measurement", 0,
                0                                                                                   },
    [O_SCALE] = {"residual-scale", 0,   OPT_NUM,  "A",
                "of the residual stream, not by measurement",                                1e-9, 1},
    [O_FORCE] = {"force",          'f', OPT_FLAG, NULL,
                "serve the model even when a gate fails",                                    0,    0},
    [O_PRIORITY] = {"priority",       0,   OPT_STR,  "P",
                "low, normal (default) or high: which job is next",                          0,    0},
    [O_NO_WAIT] = {"no-wait",        0,   OPT_FLAG, NULL,
                "only queue the job and print its id",                                       0,    0},
};

/* The daemon has another working folder: it needs the absolute path. An error
 * here can name the path as the user wrote it. */
static int find_file(const char *file, char **ret, struct err *e)
{
    struct stat st;
    char *path = realpath(file, NULL);
    if (path == NULL || stat(path, &st) < 0) {
        int rc = errno == ENOENT || errno == ENOTDIR ? ERR_NOT_FOUND : ERR_IO;
        free(path);
        return err_set(e, rc, "%s: %s", file, strerror(errno));
    }
    if (!S_ISREG(st.st_mode)) {
        free(path);
        return err_set(e, ERR_NOT_FOUND, "%s is not a regular file", file);
    }
    *ret = path;
    return 0;
}

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

static struct json *request(const struct args *a, const char *path,
                            const struct tiers *t)
{
    struct json *o = json_object();
    json_add_str(o, "source", path);
    add_str(o, a, O_NAME, "name");
    add_str(o, a, O_QUANT, "quant");
    add_str(o, a, O_HEAD_QUANT, "head_quant");
    add_rules(o, a);
    add_str(o, a, O_SHAPE, "shape");
    add_str(o, a, O_KV, "kv");
    add_str(o, a, O_OUTPUT, "output");
    add_str(o, a, O_PROFILE, "profile");
    add_str(o, a, O_NORM, "norm");
    add_str(o, a, O_PRIORITY, "priority");
    if (t->n > 0) {
        json_add_int(o, "context", t->context[0]);
    }
    if (a->opt[O_SCALE].set) {
        json_add_num(o, "residual_scale", a->opt[O_SCALE].num);
    }
    if (a->opt[O_FORCE].set) {
        json_add_bool(o, "force", true);
    }
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
    return o;
}

/* The model, then its smaller contexts, each a job; printed are all ids, or all
 * ends. */
static int run_all(struct client *c, const struct args *a, const char *path,
                   const struct tiers *t)
{
    char ids[TIERS_MAX][JOB_ID_MAX];
    char name[MODEL_NAME_MAX + 1];
    bool no_wait = a->opt[O_NO_WAIT].set;
    uint32_t n = t->n > 0 ? t->n : 1;
    int code = job_post(c, request(a, path, t), no_wait, ids[0], name);
    for (uint32_t i = 1; i < n && code == 0; i++) {
        code = job_post(c, smaller(a, name, t->context[i]), no_wait, ids[i],
                        NULL);
    }
    for (uint32_t i = 0; i < n && code == 0 && !no_wait; i++) {
        code = job_wait(c, ids[i]);
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
    if (find_file(a->pos[0], &path, &e) < 0) {
        return ask_fail(c, &e);
    }
    int code = run_all(c, a, path, &tiers);
    free(path);
    return code;
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
