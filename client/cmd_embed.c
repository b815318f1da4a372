/* cmd_embed.c - texts to vectors. */
#include <string.h>

#include "client/gen.h"

enum { O_LINES, O_RAW };
static const struct opt opts[] = {
    [O_LINES] = {"lines", 'l', OPT_FLAG, NULL,
                 "each line is a text of its own", 0, 0},
    [O_RAW] = {"raw", 'r', OPT_FLAG, NULL,
               "vectors as the model has them, of any length", 0, 0},
};

/* A line is a text, without its end; an empty one is none. */
static void add_lines(struct json *list, const char *p, size_t n)
{
    for (size_t at = 0; at < n;) {
        const char *end = memchr(p + at, '\n', n - at);
        size_t to = end != NULL ? (size_t)(end - p) : n;
        size_t length = to > at && p[to - 1] == '\r' ? to - 1 - at : to - at;
        if (length > 0) {
            json_add_strn(list, NULL, p + at, length);
        }
        at = to + 1;
    }
}

static struct json *request(const struct args *a, const struct buf *text)
{
    struct json *body = json_object();
    json_add_str(body, "model", a->pos[0]);
    if (a->opt[O_LINES].set) {
        add_lines(json_add_array(body, "input"), text->p, text->n);
    } else {
        json_add_strn(body, "input", text->p, text->n);
    }
    if (a->opt[O_RAW].set) {
        json_add_int(body, "embd_normalize", -1);
    }
    return body;
}

/* A line a text. */
static void show(const struct json *answer)
{
    const struct json *x = json_first(json_get(answer, "data"));
    for (; x != NULL; x = json_next(x)) {
        const char *gap = "";
        const struct json *v = json_first(json_get(x, "embedding"));
        for (; v != NULL; v = json_next(v)) {
            printf("%s%.9g", gap, json_num(v));
            gap = " ";
        }
        (void)putchar('\n');
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
    struct json *body = request(a, &text);
    buf_fini(&text);
    int code = ask_tell(c, "POST", "/v1/embeddings", body, &j);
    if (code == EXIT_SUCCESS && !c->json) {
        show(j);
    }
    json_free(j);
    return code;
}

const struct command cmd_embed = {
    .name = "embed",
    .args = "MODEL [TEXT]",
    .summary = "texts to vectors",
    .about = "A vector is a line of numbers, of length 1. Without TEXT, or with "
             "-, it comes\nfrom standard input.\n",
    .examples = "  anectl embed gemma \"Hello world\"\n"
                "  anectl embed gemma --lines < titles.txt > vectors.txt\n",
    .opts = opts,
    .n_opts = countof(opts),
    .pos_min = 1,
    .pos_max = 1000,
    .takes = "model",
    .run = run,
};
