/* tokenize.c - `aned tokenize` and `aned detokenize`: text to ids and back
 * on files, without a daemon.
 */
#include <ctype.h>
#include <getopt.h>
#include <inttypes.h>
#include <string.h>

#include "base/file.h"
#include "base/buf.h"
#include "cli/cli.h"
#include "model/tokenizer.h"
#include "source/source.h"

static const char tokenize_usage[] =
    "usage: aned tokenize FILE [--bos] [--eos] [--special]\n"
    "\n"
    "Text on stdin (any bytes) -> token ids on one line, separated by spaces.\n"
    "FILE is a GGUF (vocabulary-only will do), a folder of safetensors, or a\n"
    "bundle's folder.\n"
    "\n"
    "  --bos      begin with the BOS token if the vocabulary has one\n"
    "  --eos      end with the EOS token if the vocabulary has one (with --bos:\n"
    "             what an encoder reads)\n"
    "  --special  texts of special tokens (<|im_end|>) become those tokens\n"
    "  --help     this text\n";

static const char detokenize_usage[] =
    "usage: aned detokenize FILE [--special]\n"
    "\n"
    "Token ids on stdin, separated by white space -> their bytes.\n"
    "FILE is a GGUF (vocabulary-only will do), a folder of safetensors, or a\n"
    "bundle's folder.\n"
    "\n"
    "  --special  write special tokens as text too\n"
    "  --help     this text\n";

int cli_vocabulary(const char *path, struct tokenizer **ret, struct err *e)
{
    char inside[4096];
    struct gguf *g = NULL;
    if (!file_is_dir(path) ||
        (file_join(inside, sizeof(inside), path, "tokenizer.gguf") &&
         file_exists(inside))) {
        return tokenizer_open(path, ret, e);
    }
    RETERR(source_open(path, &g, e));
    int rc = tokenizer_of(g, ret, e);
    gguf_close(g);
    return rc;
}

struct options {
    const char *file;
    bool bos, eos, special;
    struct tokenizer *t;
};

/* 0: continue; 1: help was printed; else the exit code. */
static int parse(int argc, char **argv, const char *usage, struct options *o,
                 bool has_bos)
{
    static const struct option longs[] = {
        {"bos",     no_argument, NULL, 'b'},
        {"eos",     no_argument, NULL, 'e'},
        {"special", no_argument, NULL, 's'},
        {"help",    no_argument, NULL, 'h'},
        {NULL,      0,           NULL, 0  },
    };
    int c = 0;
    optind = 1;
    while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
        if (c == 'h') {
            (void)fputs(usage, stdout);
            return 1;
        }
        if (c == 'b' && has_bos) {
            o->bos = true;
        } else if (c == 'e' && has_bos) {
            o->eos = true;
        } else if (c == 's') {
            o->special = true;
        } else {
            return cli_usage(usage, "%s does not take that option", argv[0]);
        }
    }
    if (argc - optind != 1) {
        return cli_usage(usage, "%s takes one FILE", argv[0]);
    }
    o->file = argv[optind];
    return 0;
}

static int tokenize(const struct options *o, struct err *e)
{
    struct buf in;
    struct buf out;
    int32_t *ids = NULL;
    size_t n = 0;
    buf_init(&in, TEXT_BYTES_MAX);
    buf_init(&out, MIB(16)); /* TOKENS_MAX ids of at most 11 characters */
    int rc = 0;
    const char *gap = "";
    CHECK(cli_read_stdin(&in, e));
    CHECK(tokenizer_encode(o->t, in.p != NULL ? in.p : "", in.n, o->special,
                           &ids, &n, e));
    if (o->bos && tokenizer_bos(o->t) != TOKEN_NONE) {
        buf_printf(&out, "%" PRId32, tokenizer_bos(o->t));
        gap = " ";
    }
    for (size_t i = 0; i < n; i++) {
        buf_printf(&out, "%s%" PRId32, gap, ids[i]);
        gap = " ";
    }
    if (o->eos && tokenizer_eos(o->t) != TOKEN_NONE) {
        buf_printf(&out, "%s%" PRId32, gap, tokenizer_eos(o->t));
    }
    buf_puts(&out, "\n");
    CHECK(cli_write_stdout(&out, e));
out:
    free(ids);
    buf_fini(&in);
    buf_fini(&out);
    return rc;
}

/* The next id of p[*at..n); false at the end. */
static int next_id(const char *p, size_t n, size_t *at, int32_t vocab,
                   int32_t *ret, struct err *e)
{
    int64_t v = 0;
    size_t i = *at;
    while (i < n && isdigit((unsigned char)p[i]) && v < vocab) {
        v = v * 10 + (p[i] - '0');
        i++;
    }
    if (i == *at || v >= vocab || (i < n && !isspace((unsigned char)p[i]))) {
        return err_set(e, ERR_INVALID,
                       "byte %zu of stdin begins no id below "
                       "%" PRId32,
                       *at, vocab);
    }
    *at = i;
    *ret = (int32_t)v;
    return 0;
}

static int detokenize(const struct options *o, struct err *e)
{
    struct buf in;
    struct buf out;
    int32_t *ids = NULL;
    size_t n = 0;
    int rc = 0;
    buf_init(&in, MIB(16));
    buf_init(&out, (size_t)TOKENS_MAX * 64);
    rc = cli_read_stdin(&in, e);
    if (rc < 0) {
        goto out;
    }
    ids = malloc((in.n / 2 + 1) * sizeof(*ids));
    if (ids == NULL) {
        rc = err_set(e, ERR_NOMEM, "ids");
        goto out;
    }
    for (size_t at = 0; at < in.n;) {
        if (isspace((unsigned char)in.p[at])) {
            at++;
            continue;
        }
        rc = next_id(in.p, in.n, &at, tokenizer_vocab(o->t), &ids[n], e);
        if (rc < 0) {
            goto out;
        }
        n++;
    }
    tokenizer_decode(o->t, ids, n, o->special, &out);
    rc = buf_ok(&out) ? cli_write_stdout(&out, e)
                      : err_set(e, ERR_TOO_BIG, "the text");
out:
    free(ids);
    buf_fini(&in);
    buf_fini(&out);
    return rc;
}

static int run(int argc, char **argv, const char *usage, bool has_bos,
               int (*work)(const struct options *, struct err *))
{
    struct options o = {0};
    struct err e = {0};
    int rc = parse(argc, argv, usage, &o, has_bos);
    if (rc != 0) {
        return rc == 1 ? EXIT_SUCCESS : rc;
    }
    rc = cli_vocabulary(o.file, &o.t, &e);
    if (rc == 0) {
        rc = work(&o, &e);
        tokenizer_close(o.t);
    }
    return rc < 0 ? err_print(&e) : EXIT_SUCCESS;
}

int cli_tokenize(int argc, char **argv)
{
    return run(argc, argv, tokenize_usage, true, tokenize);
}

int cli_detokenize(int argc, char **argv)
{
    return run(argc, argv, detokenize_usage, false, detokenize);
}
