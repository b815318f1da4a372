/* cmd_import.c - Core ML packages become a model, as a job of the daemon. */
#include <string.h>

#include "client/submit.h"
#include "proto/limits.h"

enum {
    O_TOKENIZER,
    O_NAME,
    O_SET,
    O_PROFILE,
    O_ACCEPT,
    O_FORCE,
    O_PRIORITY,
    O_NO_WAIT
};

static const struct opt opts[] = {
    [O_TOKENIZER] = {"tokenizer", 't', OPT_STR,  "FILE",
                     "GGUF with the model's vocabulary; it is needed",        0, 0},
    [O_NAME] = {"name",      'n', OPT_STR,  "NAME",
                     "name of the model; default from the manifest",          0, 0},
    [O_SET] = {"set",       0,   OPT_LIST, "KEY=N",
                     "a number that the manifest lacks, as d_ff; repeatable", 0, 0},
    [O_PROFILE] = {"profile",   0,   OPT_STR,  "P",
                     "Neural Engine whose residency is predicted",            0, 0},
    [O_ACCEPT] = SUBMIT_ACCEPT_OPT,
    [O_FORCE] = SUBMIT_FORCE_OPT,
    [O_PRIORITY] = SUBMIT_PRIORITY_OPT,
    [O_NO_WAIT] = SUBMIT_NO_WAIT_OPT,
};

static struct json *request(const struct args *a, const char *path,
                            const char *tokenizer)
{
    static const struct submit_str strings[] = {
        {O_NAME,     "name"    },
        {O_PROFILE,  "profile" },
        {O_PRIORITY, "priority"},
    };
    struct json *o = json_object();
    json_add_str(o, "kind", "import");
    json_add_str(o, "source", path);
    json_add_str(o, "tokenizer", tokenizer);
    submit_strings(o, a, strings, countof(strings));
    submit_list(o, &a->opt[O_SET], "set");
    submit_accepted(o, &a->opt[O_ACCEPT]);
    return o;
}

static int run(struct client *c, const struct args *a)
{
    struct err e = {0};
    char *path = NULL;
    char *tokenizer = NULL;
    if (!a->opt[O_TOKENIZER].set) {
        (void)err_set(&e, ERR_USAGE,
                      "the manifest has no vocabulary; --tokenizer FILE.gguf "
                      "(vocabulary-only will do) gives it");
        return ask_fail(c, &e);
    }
    if (submit_path(a->pos[0], &path, &e) < 0 ||
        submit_path(a->opt[O_TOKENIZER].str, &tokenizer, &e) < 0) {
        free(path);
        return ask_fail(c, &e);
    }
    struct json *body = request(a, path, tokenizer);
    free(path);
    free(tokenizer);
    return submit_job(c, body, a->opt[O_NO_WAIT].set);
}

const struct command cmd_import = {
    .name = "import",
    .args = "MANIFEST",
    .summary = "make a model of Core ML packages",
    .about = "MANIFEST is a *_runtime_meta.json as the public ane-book\n"
             "converters write it; the packages that it names lie below its\n"
             "folder. They are copied as they are.\n",
    .examples =
        "  anectl import phi4mini_runtime_meta.json --tokenizer phi-4.gguf\n"
        "  anectl import hymt_runtime_meta.json --tokenizer hymt.gguf \\\n"
        "      --set d_ff=6144 --set rms_norm_eps=1e-5\n",
    .opts = opts,
    .n_opts = countof(opts),
    .pos_min = 1,
    .pos_max = 1,
    .takes = "file",
    .run = run,
};
