/* template.c - `aned template`: messages to prompt text on files, without a
 * daemon, by the chat template of a model or of a text file.
 */
#include <getopt.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "model/chat.h"
#include "model/tokenizer.h"
#include "proto/json.h"
#include "proto/limits.h"

static const char usage[] =
    "usage: aned template FILE [--lines] [--now SECONDS]\n"
    "\n"
    "JSON on stdin -> the prompt that a chat template makes of it.\n"
    "FILE is a GGUF (vocabulary-only will do), a bundle's folder, or a text\n"
    "file that is the template. The JSON is a list of messages, or an object\n"
    "with messages, add_generation_prompt, tools, documents and whatever else\n"
    "the template knows; with continue_final_message the prompt ends inside the\n"
    "last message. bos_token and eos_token are those of the vocabulary\n"
    "unless the object has them.\n"
    "\n"
    "  --lines        an object on each line of stdin; for each of them a "
    "line,\n"
    "                 a JSON string or {\"error\": CODE, \"message\": TEXT}\n"
    "  --now SECONDS  the time that the template sees, since 1970\n"
    "  --help         this text\n";

struct options {
    const char *file;
    bool lines;
    int64_t now;
    struct chat_template *t;
    struct tokenizer *tok;
    struct buf bos, eos; /* NULL without a vocabulary */
};

/* 0: continue; 1: help was printed; else the exit code. */
static int parse(int argc, char **argv, struct options *o)
{
    static const struct option longs[] = {
        {"lines", no_argument,       NULL, 'l'},
        {"now",   required_argument, NULL, 'n'},
        {"help",  no_argument,       NULL, 'h'},
        {NULL,    0,                 NULL, 0  },
    };
    int c = 0;
    optind = 1;
    o->now = (int64_t)time(NULL);
    while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
        if (c == 'h') {
            (void)fputs(usage, stdout);
            return 1;
        }
        if (c == 'l') {
            o->lines = true;
        } else if (c != 'n' || !parse_i64(optarg, &o->now)) {
            return cli_usage(usage, "%s does not take that option", argv[0]);
        }
    }
    if (argc - optind != 1) {
        return cli_usage(usage, "%s takes one FILE", argv[0]);
    }
    o->file = argv[optind];
    return 0;
}

static void piece(const struct tokenizer *t, int32_t id, struct buf *b)
{
    buf_init(b, TOKEN_BYTES_MAX);
    buf_puts(b, "");
    if (id != TOKEN_NONE) {
        struct span s = tokenizer_piece(t, id, true);
        buf_put(b, s.p, s.n);
    }
}

/* Whether FILE has a vocabulary: a folder, or a GGUF by its first bytes. */
static bool has_vocabulary(const char *path)
{
    char magic[4] = "";
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        return true; /* the tokenizer says what is wrong */
    }
    size_t n = fread(magic, 1, sizeof(magic), f);
    bool folder = ferror(f) != 0;
    (void)fclose(f);
    return folder || (n == sizeof(magic) && memcmp(magic, "GGUF", 4) == 0);
}

static int open_template(struct options *o, struct err *e)
{
    struct buf text = {0};
    if (has_vocabulary(o->file)) {
        RETERR(cli_vocabulary(o->file, &o->tok, e));
        piece(o->tok, tokenizer_bos(o->tok), &o->bos);
        piece(o->tok, tokenizer_eos(o->tok), &o->eos);
        return chat_compile(tokenizer_template(o->tok), &o->t, e);
    }
    RETERR(chat_read(o->file, &text, e));
    int rc = chat_compile(text.p, &o->t, e);
    buf_fini(&text);
    return rc;
}

/* A list of messages is an object that has only these, and asks for a turn. */
static int render(const struct options *o, struct span json, struct buf *out,
                  struct err *e)
{
    size_t skip = 0;
    struct buf wrapped;
    buf_init(&wrapped, TEXT_BYTES_MAX + 128);
    while (skip < json.n && strchr(" \t\r\n", json.p[skip]) != NULL) {
        skip++;
    }
    if (skip < json.n && json.p[skip] == '[') {
        buf_puts(&wrapped, "{\"add_generation_prompt\":true,\"messages\":");
        buf_put(&wrapped, json.p, json.n);
        buf_puts(&wrapped, "}");
        json = (struct span){wrapped.p, wrapped.n};
    }
    int rc = chat_render_json(o->t, json, o->bos.p, o->eos.p, o->now, out, e);
    buf_fini(&wrapped);
    return rc;
}

/* One line of stdin, one of stdout. */
static void render_line(const struct options *o, struct span json,
                        struct buf *out)
{
    struct err e = {0};
    struct buf text;
    buf_init(&text, TEXT_BYTES_MAX);
    int rc = render(o, json, &text, &e);
    if (rc == 0) {
        json_put_string(out, text.p != NULL ? text.p : "", text.n);
    } else {
        buf_puts(out, "{\"error\":");
        json_put_string(out, err_name(rc), strlen(err_name(rc)));
        buf_puts(out, ",\"message\":");
        json_put_string(out, e.msg, strlen(e.msg));
        buf_puts(out, "}");
    }
    buf_puts(out, "\n");
    buf_fini(&text);
}

static int render_all(const struct options *o, struct err *e)
{
    struct buf in;
    struct buf out;
    int rc = 0;
    buf_init(&in, MIB(64)); /* --lines: many of them */
    buf_init(&out, MIB(256));
    CHECK(cli_read_stdin(&in, e));
    if (!o->lines) {
        CHECK(render(o, (struct span){in.p, in.n}, &out, e));
    }
    for (size_t at = 0; o->lines && at < in.n;) {
        const char *end = memchr(in.p + at, '\n', in.n - at);
        size_t n = end != NULL ? (size_t)(end - in.p) - at : in.n - at;
        render_line(o, (struct span){in.p + at, n}, &out);
        at += n + 1;
    }
    CHECK(buf_ok(&out) ? 0 : err_set(e, ERR_TOO_BIG, "the prompts"));
    rc = cli_write_stdout(&out, e);
out:
    buf_fini(&in);
    buf_fini(&out);
    return rc;
}

int cli_template(int argc, char **argv)
{
    struct options o = {0};
    struct err e = {0};
    int rc = parse(argc, argv, &o);
    if (rc != 0) {
        return rc == 1 ? EXIT_SUCCESS : rc;
    }
    rc = open_template(&o, &e);
    if (rc == 0) {
        rc = render_all(&o, &e);
    }
    chat_free(o.t);
    buf_fini(&o.bos);
    buf_fini(&o.eos);
    tokenizer_close(o.tok);
    return rc < 0 ? err_print(&e) : EXIT_SUCCESS;
}
