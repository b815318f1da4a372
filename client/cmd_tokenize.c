/* cmd_tokenize.c - text to token ids. */
#include "client/gen.h"

enum { O_BOS };
static const struct opt opts[] = {
    [O_BOS] = {"bos", 'b', OPT_FLAG, NULL,
               "with the token that begins a text, where the model has one", 0,
               0},
};

static int run(struct client *c, const struct args *a)
{
    struct err e = {0};
    struct json *j = NULL;
    struct buf text;

    if (gen_prompt(a, 1, &text, &e) < 0) {
        return ask_fail(c, &e);
    }
    struct json *body = json_object();
    json_add_str(body, "model", a->pos[0]);
    json_add_strn(body, "content", text.p, text.n);
    if (a->opt[O_BOS].set) {
        json_add_bool(body, "add_special", true);
    }
    buf_fini(&text);
    int code = ask_tell(c, "POST", "/tokenize", body, &j);
    if (code == EXIT_SUCCESS && !c->json) {
        const char *gap = "";
        for (const struct json *t = json_first(json_get(j, "tokens"));
             t != NULL; t = json_next(t)) {
            printf("%s%.0f", gap, json_num(t));
            gap = " ";
        }
        (void)putchar('\n');
    }
    json_free(j);
    return code;
}

const struct command cmd_tokenize = {
    .name = "tokenize",
    .args = "MODEL [TEXT]",
    .summary = "text to token ids",
    .about = "Without TEXT it comes from standard input.\n",
    .examples = "  anectl tokenize gemma \"Hello world\"\n"
                "  anectl tokenize gemma < book.txt | wc -w\n",
    .opts = opts,
    .n_opts = countof(opts),
    .pos_min = 1,
    .pos_max = 1000,
    .takes = "model",
    .run = run,
};
