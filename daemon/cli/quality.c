/* quality.c - `aned quality`: how far a bundle is from the file it came from. */
#include "convert/quality/quality.h"

#include <getopt.h>

#include "base/crew.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "proto/quality_text.h"
#include "source/source.h"

static const char usage[] =
    "usage: aned quality BUNDLE SOURCE [--threads N] [--json]\n"
    "\n"
    "Measures a bundle against the model that it was converted from. The truth\n"
    "is the model in fp32; the candidate is the bundle's packages, run with\n"
    "every result rounded to fp16, as on a Neural Engine.\n"
    "\n"
    "  --threads N   default: all cores; never changes a result\n"
    "  --json        the whole report: each layer, each position\n"
    "\n"
    "The exit code is 0 when the bundle holds the bars of its quantisation\n"
    "(conf/quality.json; one that was made for a KL, 1.1 times that), 65 when\n"
    "it does not.\n";

struct options {
    unsigned threads;
    bool json;
};

/* 0: continue; -1: end with exit code *ret. */
static int parse(int argc, char **argv, struct options *o, int *ret)
{
    static const struct option longs[] = {
        {"threads", required_argument, NULL, 't'},
        {"json",    no_argument,       NULL, 'j'},
        {"help",    no_argument,       NULL, 'h'},
        {NULL,      0,                 NULL, 0  },
    };
    int opt = 0;
    uint64_t n = 0;
    *ret = EXIT_USAGE;
    while ((opt = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
        if (opt == 't' && parse_u64(optarg, ENGINE_THREADS_MAX, &n) && n > 0) {
            o->threads = (unsigned)n;
        } else if (opt == 'j') {
            o->json = true;
        } else if (opt == 'h') {
            (void)fputs(usage, stdout);
            *ret = EXIT_SUCCESS;
            return -1;
        } else {
            (void)cli_usage(usage, "wrong option");
            return -1;
        }
    }
    if (argc - optind != 2) {
        (void)cli_usage(usage, "two paths are needed");
        return -1;
    }
    return 0;
}

/* For people the text is made of what a program would read. */
static int print_text(const struct buf *text, struct err *e)
{
    struct json *j = NULL;
    struct buf b;
    RETERR(json_parse(text->p, text->n, &j, e));
    buf_init(&b, MIB(32));
    quality_report_text(j, &b);
    json_free(j);
    int rc = buf_ok(&b) ? 0 : err_set(e, ERR_TOO_BIG, "the report");
    if (rc == 0) {
        (void)fwrite(b.p, 1, b.n, stdout);
    }
    buf_fini(&b);
    return rc;
}

static int print_report(const struct quality *q, bool as_json, struct err *e)
{
    struct buf b;
    struct json *j = quality_json(q, MIB(16));
    buf_init(&b, MIB(32));
    json_write(j, true, &b);
    json_free(j);
    int rc = buf_ok(&b) ? 0 : err_set(e, ERR_TOO_BIG, "the report");
    if (rc == 0 && as_json) {
        (void)printf("%s\n", b.p);
    } else if (rc == 0) {
        rc = print_text(&b, e);
    }
    buf_fini(&b);
    return rc;
}

int cli_quality(int argc, char **argv)
{
    struct options o = {0};
    struct err e = {0};
    struct gguf *g = NULL;
    struct decoder d = {0};
    struct quality q = {0};
    int rc = 0;
    if (parse(argc, argv, &o, &rc) < 0) {
        return rc;
    }
    const struct quality_conf conf = {.threads = o.threads};
    bool good = false;
    crew_ref();
    CHECK(source_open(argv[optind + 1], &g, &e));
    CHECK(arch_read(g, &d, &e));
    CHECK(quality_measure(argv[optind], &d, &conf, &q, &e));
    CHECK(gguf_check_unchanged(g, &e));
    good = q.all.verdict[0] != 'f';
    CHECK(print_report(&q, o.json, &e));
out:
    quality_fini(&q);
    arch_fini(&d);
    gguf_close(g);
    crew_unref();
    return rc < 0 ? err_print(&e) : good ? EXIT_SUCCESS : EXIT_DATA;
}
