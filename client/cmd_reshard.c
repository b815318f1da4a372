/* cmd_reshard.c - another model of a model's own weights, as a job of the
 * daemon. */
#include "client/submit.h"
#include "proto/limits.h"
#include "proto/tier.h"

enum {
    O_PROFILE,
    O_CONTEXT,
    O_SHAPE,
    O_KV,
    O_OUTPUT,
    O_AS,
    O_ACCEPT,
    O_PRIORITY,
    O_NO_WAIT
};

static const struct opt opts[] = {
    [O_PROFILE] = {"profile", 'p', OPT_STR, "P",
                   "Neural Engine to divide for; default as it is divided",  0,
                   0                                                             },
    [O_CONTEXT] = {"context", 'c', OPT_INT, "N",    "tokens the model sees", 1,
                   MODEL_CONTEXT_MAX                                             },
    [O_SHAPE] = {"shape",   0,   OPT_STR, "S",
                   "ranged, functions, or functions:T,T,...",                0, 0},
    [O_KV] = {"kv",      0,   OPT_STR, "K",    "state or host",         0, 0},
    [O_OUTPUT] = {"output",  0,   OPT_STR, "O",    "logits or argmax",      0, 0},
    [O_AS] = {"as",      0,   OPT_STR, "NAME",
                   "of the new model; default MODEL-PROFILE or MODEL-2k",    0, 0},
    [O_ACCEPT] = SUBMIT_ACCEPT_OPT,
    [O_PRIORITY] = SUBMIT_PRIORITY_OPT,
    [O_NO_WAIT] = SUBMIT_NO_WAIT_OPT,
};

/* The name that was given, or one that says what is new. */
static int name_of(const struct args *a, char *out, size_t size, struct err *e)
{
    char suffix[TIER_SUFFIX_MAX] = "";
    if (a->opt[O_AS].set) {
        (void)snprintf(out, size, "%s", a->opt[O_AS].str);
        return 0;
    }
    if (a->opt[O_CONTEXT].set) {
        tier_suffix((uint32_t)a->opt[O_CONTEXT].integer, suffix);
    }
    if (!a->opt[O_PROFILE].set && suffix[0] == '\0') {
        return err_set(e, ERR_INVALID, "the new model needs a name: --as NAME");
    }
    (void)snprintf(out, size, "%s%s%s%s", a->pos[0],
                   a->opt[O_PROFILE].set ? "-" : "",
                   a->opt[O_PROFILE].set ? a->opt[O_PROFILE].str : "", suffix);
    return 0;
}

static int run(struct client *c, const struct args *a)
{
    static const struct submit_str strings[] = {
        {O_PROFILE,  "profile" },
        {O_SHAPE,    "shape"   },
        {O_KV,       "kv"      },
        {O_OUTPUT,   "output"  },
        {O_PRIORITY, "priority"},
    };
    char name[2 * MODEL_NAME_MAX];
    struct err e = {0};
    if (name_of(a, name, sizeof(name), &e) < 0) {
        (void)fprintf(stderr, "usage: %s\n", e.msg);
        return EXIT_USAGE;
    }
    struct json *o = json_object();
    json_add_str(o, "reshard", a->pos[0]);
    json_add_str(o, "name", name);
    submit_strings(o, a, strings, countof(strings));
    submit_accepted(o, &a->opt[O_ACCEPT]);
    if (a->opt[O_CONTEXT].set) {
        json_add_int(o, "context", a->opt[O_CONTEXT].integer);
    }
    return submit_job(c, o, a->opt[O_NO_WAIT].set);
}

const struct command cmd_reshard = {
    .name = "reshard",
    .args = "MODEL",
    .summary = "make another model of a model's own weights",
    .about =
        "Divided for another chip, for another context or in another form.\n"
        "Nothing is quantised again, the source is not needed, and equal\n"
        "files take room once. MODEL stays.\n",
    .examples = "  anectl reshard gemma --profile m4-max\n"
                "  anectl reshard gemma --context 2048\n"
                "  anectl reshard gemma --output argmax --as gemma-draft\n",
    .opts = opts,
    .n_opts = countof(opts),
    .pos_min = 1,
    .pos_max = 1,
    .takes = "model",
    .run = run,
};
