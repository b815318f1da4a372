/* cmd_import.c - Core ML packages become a model, as a job of the daemon. */
#include <string.h>

#include "client/submit.h"
#include "proto/limits.h"

enum { O_TOKENIZER, O_NAME, O_SET, O_PROFILE, O_FORCE, O_PRIORITY, O_NO_WAIT };

static const struct opt opts[] = {
    [O_TOKENIZER] = {"tokenizer", 't', OPT_STR,  "FILE",
                     "GGUF with the model's vocabulary; it is needed",        0, 0},
    [O_NAME] = {"name",      'n', OPT_STR,  "NAME",
                     "name of the model; default from the manifest",          0, 0},
    [O_SET] = {"set",       0,   OPT_LIST, "KEY=N",
                     "a number that the manifest lacks, as d_ff; repeatable", 0, 0},
    [O_PROFILE] = {"profile",   0,   OPT_STR,  "P",
                     "Neural Engine whose residency is predicted",            0, 0},
    [O_FORCE] = {"force",     'f', OPT_FLAG, NULL,
                     "serve the model even when a gate fails",                0, 0},
    [O_PRIORITY] = {"priority",  0,   OPT_STR,  "P",
                     "low, normal (default) or high: which job is next",      0, 0},
    [O_NO_WAIT] = {"no-wait",   0,   OPT_FLAG, NULL,
                     "only queue the job and print its id",                   0, 0},
};

static void add_str(struct json *o, const struct args *a, int opt,
                    const char *key)
{
    if (a->opt[opt].set) {
        json_add_str(o, key, a->opt[opt].str);
    }
}

static struct json *request(const struct args *a, const char *path,
                            const char *tokenizer)
{
    struct json *o = json_object();
    json_add_str(o, "kind", "import");
    json_add_str(o, "source", path);
    json_add_str(o, "tokenizer", tokenizer);
    add_str(o, a, O_NAME, "name");
    add_str(o, a, O_PROFILE, "profile");
    add_str(o, a, O_PRIORITY, "priority");
    if (a->opt[O_SET].set) {
        struct json *list = json_add_array(o, "set");
        for (size_t i = 0; i < a->opt[O_SET].n_list; i++) {
            json_add_str(list, NULL, a->opt[O_SET].list[i]);
        }
    }
    if (a->opt[O_FORCE].set) {
        json_add_bool(o, "force", true);
    }
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
