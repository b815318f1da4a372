/* logits.c - `aned logits`: every position's logits of a list of token ids,
 * through the engine's own step code. Rows go to the file as they come: 600
 * rows of a 262144 vocabulary never stand in memory together. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/npy.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "engine/encode.h"
#include "model/tags.h"

static const char usage[] =
    "usage: aned logits BUNDLE TOKENS.npy OUT.npy [options]\n"
    "\n"
    "Run the token ids in TOKENS.npy (1-D int32) through the model and write\n"
    "the logits of every position to OUT.npy: float32 [n_tokens, vocab], of an\n"
    "encoder [n_tokens, labels], or of one that embeds [n_tokens, d_model].\n"
    "\n"
    "  --chunk N        rows a step, at most (default: what the model takes)\n"
    "                   of an encoder: tokens a window\n"
    "  --tags           of an encoder: OUT.npy has each token's label, int32,\n"
    "                   along the likeliest path that is well formed\n"
    "  --tag-biases A,B,C,D,E,F  what is added to a path's steps:\n"
    "                   background_stay, background_to_start,\n"
    "                   inside_to_continue, inside_to_end, end_to_background,\n"
    "                   end_to_start (default: 0)\n"
    "  --threads N      CPU threads (default: all)\n"
    "  --backend B      cpu (default), interpreter or coreml\n"
    "  --isa NAME       kernels to run on: scalar, avx2, avxvnni, avx512, "
    "amx,\n"
    "                   neon, neon_dot, neon_i8mm (default: the best of this\n"
    "                   machine); never changes a result\n"
    "  --round fp16     round every operation's result to fp16\n"
    "  --help\n";

struct options {
    const char *bundle, *tokens, *out;
    uint32_t chunk;
    bool tags;
    float biases[TAGS_BIASES];
    struct engine_conf conf;
};

/* Six numbers. */
static bool read_biases(const char *text, float out[TAGS_BIASES])
{
    char *end = NULL;
    for (unsigned i = 0; i < TAGS_BIASES; i++) {
        out[i] = strtof(text, &end);
        bool last = i + 1 == TAGS_BIASES;
        if (end == text || !isfinite(out[i]) || *end != (last ? '\0' : ',')) {
            return false;
        }
        text = end + 1;
    }
    return true;
}

/* 0: continue; -1: end with exit code *ret. */
static int parse(int argc, char **argv, struct options *o, int *ret)
{
    static const struct option longs[] = {
        {"chunk",   required_argument, NULL, 'c'},
        {"tags",    no_argument,       NULL, 'g'},
        {"tag-biases", required_argument, NULL, 'v'},
        {"threads", required_argument, NULL, 't'},
        {"backend", required_argument, NULL, 'b'},
        {"isa",     required_argument, NULL, 'i'},
        {"round",   required_argument, NULL, 'r'},
        {"help",    no_argument,       NULL, 'h'},
        {NULL,      0,                 NULL, 0  },
    };
    int opt = 0;
    uint64_t n = 0;
    *ret = EXIT_USAGE;
    while ((opt = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
        if (opt == 'c' && parse_u64(optarg, ENCODER_ROWS_MAX, &n) &&
            n > 0) {
            o->chunk = (uint32_t)n;
        } else if (opt == 'g') {
            o->tags = true;
        } else if (opt == 'v' && read_biases(optarg, o->biases)) {
            o->tags = true;
        } else if (opt == 't' && parse_u64(optarg, ENGINE_THREADS_MAX, &n) &&
                   n > 0) {
            o->conf.threads = (unsigned)n;
        } else if (opt == 'b') {
            o->conf.backend = optarg;
        } else if (opt == 'i') {
            o->conf.isa = optarg;
        } else if (opt == 'r' && strcmp(optarg, "fp16") == 0) {
            o->conf.round_fp16 = true;
        } else if (opt == 'h') {
            (void)fputs(usage, stdout);
            *ret = EXIT_SUCCESS;
            return -1;
        } else if (opt == '?') {
            (void)cli_usage(usage, "wrong option");
            return -1;
        } else {
            (void)cli_usage(usage, "'%s' is not acceptable here", optarg);
            return -1;
        }
    }
    if (argc - optind != 3) {
        (void)cli_usage(usage, "three paths are needed");
        return -1;
    }
    *ret = o->conf.isa != NULL ? cli_isa(usage, o->conf.isa) : -1;
    if (*ret >= 0) {
        return -1;
    }
    o->bundle = argv[optind];
    o->tokens = argv[optind + 1];
    o->out = argv[optind + 2];
    return 0;
}

struct sink {
    int fd;
    size_t vocab;
};

static int on_rows(void *ctx, uint32_t first, uint32_t n, float *logits,
                   struct err *e)
{
    const struct sink *s = ctx;
    (void)first; /* rows come in order */
    return file_put(s->fd, logits, n * s->vocab * sizeof(*logits), FILE_HERE,
                    "write logits", e);
}

static int read_tokens(const char *path, struct npy *ret, struct err *e)
{
    int rc = npy_read(path, TOKENS_MAX * sizeof(int32_t), ret, e);
    if (rc < 0) {
        return rc;
    }
    if (ret->type != NPY_I32 || ret->rank != 1 || ret->count == 0) {
        npy_fini(ret);
        return err_set(e, ERR_NPY, "%s is not a 1-D int32 array with elements",
                       path);
    }
    return 0;
}

static int on_labels(void *ctx, uint32_t first, uint32_t n, const float *logits,
                   struct err *e)
{
    const struct sink *s = ctx;
    (void)first; /* rows come in order */
    return file_put(s->fd, logits, n * s->vocab * sizeof(*logits), FILE_HERE,
                    "write logits", e);
}

/* A model of either kind; the other is NULL. */
struct model {
    struct engine *g;
    struct engine_seq *s;
    struct encoder *t;
};

static int open_model(const struct options *o, struct model *m, struct err *e)
{
    struct bundle *b = NULL;
    RETERR(bundle_open(o->bundle, &b, e));
    bool encoder = b->encoder;
    bundle_close(b);
    if (encoder) {
        return encoder_open(o->bundle, &o->conf, &m->t, e);
    }
    RETERR(engine_open(o->bundle, &o->conf, &m->g, e));
    return engine_seq_open(m->g, &m->s, e);
}

static int add_tags(void *ctx, uint32_t first, uint32_t n, const float *logits,
                    struct err *e)
{
    (void)first;
    return tags_add(ctx, logits, n, e);
}

/* The labels of the likeliest path, to the file. */
static int put_tags(const struct options *o, const struct model *m,
                    const struct npy *tokens, const struct sink *sink,
                    struct err *e)
{
    const struct bundle *b = encoder_bundle(m->t);
    uint32_t n = (uint32_t)tokens->count;
    RETERR(bundle_want_kind(b, BUNDLE_TAGGER, e));
    struct tags *t = NULL;
    struct tags_path *p = NULL;
    uint16_t *labels = calloc(n, sizeof(*labels));
    int32_t *ids = calloc(n, sizeof(*ids));
    struct encoder_run run = {
        .tokens = tokens->data, .n = n, .rows = o->chunk, .fn = add_tags};
    int rc = labels == NULL || ids == NULL
                 ? err_set(e, ERR_NOMEM, "%u tokens", n)
                 : 0;
    if (rc < 0) {
        goto out;
    }
    CHECK(tags_open(b->labels, b->n_labels, &t, e));
    CHECK(tags_begin(t, n, o->biases, &p, e));
    run.ctx = p;
    CHECK(encoder_run(m->t, &run, e));
    tags_end(p, labels, NULL);
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = labels[i];
    }
    rc = file_put(sink->fd, ids, n * sizeof(*ids), FILE_HERE, "write labels",
                  e);
out:
    tags_free(p);
    tags_close(t);
    free(labels);
    free(ids);
    return rc;
}

static int evaluate(const struct options *o, const struct model *m,
                    const struct npy *tokens, struct sink *sink, struct err *e)
{
    uint32_t n = (uint32_t)tokens->count;
    if (o->tags && m->t == NULL) {
        return bundle_want_kind(engine_bundle(m->g), BUNDLE_TAGGER, e);
    }
    if (o->tags) {
        return put_tags(o, m, tokens, sink, e);
    }
    if (m->t != NULL) {
        const struct encoder_run run = {.tokens = tokens->data,
                                        .n = n,
                                        .rows = o->chunk,
                                        .fn = on_labels,
                                        .ctx = sink};
        return encoder_run(m->t, &run, e);
    }
    RETERR(engine_seq_expect(m->s, n, e));
    uint32_t chunk = o->chunk < ENGINE_CHUNK_MAX ? o->chunk : ENGINE_CHUNK_MAX;
    return engine_eval_rows(m->s, tokens->data, n, chunk, on_rows, sink, NULL,
                            e);
}

/* The whole file, or none: what was there before goes first. */
static int write_logits(const struct options *o, const struct model *m,
                        const struct npy *tokens, struct err *e)
{
    uint32_t vocab = bundle_outputs(m->t != NULL ? encoder_bundle(m->t)
                                                 : engine_bundle(m->g));
    const int64_t dims[2] = {tokens->dims[0], vocab};
    struct sink sink = {.vocab = vocab};
    sink.fd = open(o->out, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (sink.fd < 0) {
        return err_set(e, ERR_IO, "%s: %s", o->out, strerror(errno));
    }
    struct stat st;
    bool regular = fstat(sink.fd, &st) == 0 && S_ISREG(st.st_mode);
    int rc = o->tags ? npy_write_header(sink.fd, NPY_I32, 1, dims, e)
                     : npy_write_header(sink.fd, NPY_F32, 2, dims, e);
    if (rc == 0) {
        rc = evaluate(o, m, tokens, &sink, e);
    }
    if (close(sink.fd) != 0 && rc == 0) {
        rc = err_errno(e, errno, o->out);
    }
    if (rc < 0 && regular) {
        (void)unlink(o->out);
    }
    return rc;
}

int cli_logits(int argc, char **argv)
{
    struct options o = {0};
    struct err e;
    struct npy tokens = {0};
    struct model m = {0};
    int rc = 0;
    if (parse(argc, argv, &o, &rc) < 0) {
        return rc;
    }
    rc = read_tokens(o.tokens, &tokens, &e);
    if (rc < 0) {
        return err_print(&e);
    }
    rc = open_model(&o, &m, &e);
    if (rc < 0) {
        goto out;
    }
    rc = write_logits(&o, &m, &tokens, &e);
out:
    engine_seq_close(m.s);
    engine_close(m.g);
    encoder_close(m.t);
    npy_fini(&tokens);
    return rc < 0 ? err_print(&e) : EXIT_SUCCESS;
}
