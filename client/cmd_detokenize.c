/* cmd_detokenize.c - token ids to text. */
#include <string.h>

#include "base/parse.h"
#include "client/gen.h"

/* Whitespace or commas between ids; brackets of a JSON array are fine. */
static int read_ids(const struct buf *text, struct json *list, struct err *e)
{
    const char *p = text->p;
    for (;;) {
        p += strspn(p, " \t\r\n,[]");
        if (*p == '\0') {
            return 0;
        }
        uint64_t id = 0;
        const char *end = parse_digits(p, MODEL_VOCAB_MAX - 1, &id);
        if (end == NULL ||
            (*end != '\0' && strchr(" \t\r\n,[]", *end) == NULL)) {
            return err_set(e, ERR_INVALID, "'%.20s' is no token id", p);
        }
        json_add_int(list, NULL, (int64_t)id);
        p = end;
    }
}

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
    int rc = read_ids(&text, json_add_array(body, "tokens"), &e);
    buf_fini(&text);
    if (rc < 0) {
        json_free(body);
        return ask_fail(c, &e);
    }
    int code = ask_tell(c, "POST", "/detokenize", body, &j);
    if (code == EXIT_SUCCESS && !c->json) {
        const char *s = ask_str(j, "content");
        term_put(stdout, c->term.out_tty, s, strlen(s));
        (void)putchar('\n');
    }
    json_free(j);
    return code;
}

const struct command cmd_detokenize = {
    .name = "detokenize",
    .args = "MODEL [IDS]",
    .summary = "token ids to text",
    .about = "Without IDS they come from standard input, between spaces or\n"
             "commas.\n",
    .examples = "  anectl detokenize gemma 9259 1902\n"
                "  anectl tokenize gemma hello | anectl detokenize gemma\n",
    .pos_min = 1,
    .pos_max = 1 << 20,
    .takes = "model",
    .run = run,
};
