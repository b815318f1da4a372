/* residency.c - `aned residency`: where a package's or a bundle's operations
 * will run, as far as the rules tell. Nothing is run. */
#include "convert/residency/residency.h"

#include <getopt.h>
#include <string.h>

#include "base/file.h"
#include "cli/cli.h"
#include "model/bundle.h"

static const char usage[] =
    "usage: aned residency PATH [--profile P] [--ops] [--json]\n"
    "\n"
    "Predict where the operations of an .mlpackage or a bundle will run: on "
    "the\n"
    "Neural Engine (on), not there (off), or nobody knows (unknown), by the "
    "rules\n"
    "of what was seen to run there. Nothing is measured; `aned probe` does "
    "that.\n"
    "\n"
    "  --profile P  the chip: law (default: what every one takes), m1 ... m5\n"
    "  --ops        every operation, not only kinds of them\n"
    "  --json       the same as one JSON object\n"
    "\n"
    "Exit code 0, whatever is predicted.\n";

enum { OUTPUT_MAX = 256 << 20, PATH_ROOM = 4096 };

struct options {
    const char *path;
    struct predict_limits limits;
    bool ops, json;
};

struct out {
    const struct options *o;
    struct predict_total total;
    struct json *functions; /* --json */
    struct buf text;
};

/* --- text --- */

/* Bytes that a terminal would obey become '?'. */
static void put(struct buf *b, const char *s, int width)
{
    int n = 0;
    for (; *s != '\0'; s++, n++) {
        buf_u8(b, *s >= ' ' && *s < 0x7f ? (uint8_t)*s : '?');
    }
    for (; n < width; n++) {
        buf_u8(b, ' ');
    }
}

static void put_findings(struct buf *b, const struct predict_findings *f)
{
    for (size_t i = 0; i < f->n; i++) {
        char reason[PREDICT_REASON_MAX];
        const struct predict_finding *x = &f->of[i];
        predict_reason(x->rule, x->detail, reason, sizeof(reason));
        buf_printf(b, "  %-8s",
                   x->verdict == PREDICT_OFF ? predict_word(x->verdict)
                                             : "warning");
        put(b, reason, 0);
        buf_printf(b, " [%s]\n", x->rule->source);
    }
}

static void put_op(struct buf *b, const struct predict_op *o)
{
    char reason[PREDICT_REASON_MAX];
    predict_reason(o->rule, o->detail, reason, sizeof(reason));
    buf_puts(b, "    ");
    put(b, o->op->n_outputs > 0 ? o->op->outputs[0]->name : "-", 32);
    buf_puts(b, " ");
    put(b, o->op->type, 18);
    buf_printf(b, " %-7s %6.2f%%", predict_word(o->verdict), 100 * o->cost);
    if (o->verdict != PREDICT_ON) {
        buf_puts(b, "  ");
        put(b, reason, 0);
    }
    buf_puts(b, "\n");
}

static void put_kind(struct buf *b, const struct predict_kind *k,
                     const char *type)
{
    char reason[PREDICT_REASON_MAX];
    const struct predict_op *o = k->first;
    buf_puts(b, "  ");
    put(b, type, 24);
    buf_printf(b, " %6u %7.2f%%  %s", k->n, 100 * k->cost,
               predict_word(o->verdict));
    if (o->verdict != PREDICT_ON) {
        predict_reason(o->rule, o->detail, reason, sizeof(reason));
        buf_puts(b, "  ");
        put(b, reason, 0);
        buf_printf(b, " [%s]", o->rule->source);
    }
    buf_puts(b, "\n");
}

static void put_kinds(struct buf *b, const struct predict_function *f)
{
    struct predict_kinds t;
    predict_group(f, &t);
    buf_printf(b, "  %-24s %6s %8s  %s\n", "operation", "count", "bytes",
               "predicted");
    for (size_t i = 0; i < t.n; i++) {
        put_kind(b, &t.of[i], t.of[i].first->op->type);
    }
    for (size_t i = 0; i < countof(t.others); i++) {
        if (t.others[i].n > 0) {
            put_kind(b, &t.others[i], "others");
        }
    }
}

static void put_function(struct out *out, const struct prediction *v, size_t i,
                         const char *package)
{
    struct buf *b = &out->text;
    const struct predict_function *f = &v->f[i];
    buf_puts(b, "\n");
    put(b, package, 0);
    buf_puts(b, " ");
    put(b, f->f->name, 0);
    buf_printf(b,
               "  %.1f MB of weights\n"
               "  predicted on the Neural Engine: %u of %zu operations, %.1f%% "
               "of the bytes; off %u, unknown %u\n",
               (double)v->weight_bytes / 1e6, f->count[PREDICT_ON], f->n_ops,
               100 * f->cost[PREDICT_ON], f->count[PREDICT_OFF],
               f->count[PREDICT_UNKNOWN]);
    put_findings(b, &f->findings);
    put_findings(b, &v->findings);
    put_kinds(b, f);
    for (size_t k = 0; out->o->ops && k < f->n_ops; k++) {
        put_op(b, &f->ops[k]);
    }
}

static int print_text(struct out *out)
{
    char line[ERR_MSG_MAX];
    struct predict_total *t = &out->total;
    const char *verdict = predict_judge(t);
    predict_line(t, line, sizeof(line));
    printf("%s  %s\n", verdict, line);
    for (size_t i = 0; i < t->n; i++) {
        struct buf b;
        buf_init(&b, KIB(1));
        put(&b, t->reason[i], 0);
        printf("  %s\n", b.p != NULL ? b.p : "");
        buf_fini(&b);
    }
    return fwrite(out->text.p, 1, out->text.n, stdout) == out->text.n ? 0
                                                                      : ERR_IO;
}

/* --- JSON --- */

static void put_every_op(struct json *function,
                         const struct predict_function *f)
{
    struct json *list = json_add_array(function, "every_op");
    for (size_t i = 0; i < f->n_ops; i++) {
        const struct predict_op *o = &f->ops[i];
        struct json *x = json_add_object(list, NULL);
        char reason[PREDICT_REASON_MAX];
        predict_reason(o->rule, o->detail, reason, sizeof(reason));
        json_add_str(x, "name",
                     o->op->n_outputs > 0 ? o->op->outputs[0]->name : "");
        json_add_str(x, "type", o->op->type);
        json_add_str(x, "verdict", predict_word(o->verdict));
        json_add_str(x, "rule", o->rule->id);
        json_add_str(x, "source", o->rule->source);
        json_add_str(x, "reason", reason);
        json_add_num(x, "cost", o->cost);
    }
}

static int print_json(struct out *out)
{
    struct json *root = json_object();
    struct json *s = predict_summary_json(&out->total);
    struct buf b;
    json_add_str(root, "kind", "predicted");
    json_add_tree(root, "summary", json_copy(json_get(s, "summary")));
    json_add_tree(root, "functions", out->functions);
    out->functions = NULL;
    buf_init(&b, OUTPUT_MAX);
    json_write(root, true, &b);
    buf_puts(&b, "\n");
    int rc = buf_ok(&b) && fwrite(b.p, 1, b.n, stdout) == b.n ? 0 : ERR_IO;
    buf_fini(&b);
    json_free(root);
    json_free(s);
    return rc;
}

/* --- packages --- */

static int add_package(struct out *out, const char *path, const char *name,
                       const char *kind, struct err *e)
{
    struct mil_program *p = NULL;
    struct prediction v = {0};
    int rc = mil_read(path, &p, e);
    if (rc < 0) {
        return err_prefix(e, rc, "%s", path);
    }
    predict_program(p, 0, &out->o->limits, &v);
    predict_total_add(&out->total, name, &v);
    for (size_t i = 0; i < v.n; i++) {
        if (!out->o->json) {
            put_function(out, &v, i, name);
            continue;
        }
        struct json *j = predict_function_json(&v, i, name, kind);
        if (out->o->ops) {
            put_every_op(j, &v.f[i]);
        }
        json_add_tree(out->functions, NULL, j);
    }
    predict_free(&v);
    mil_free(p);
    return 0;
}

static int add_of_bundle(struct out *out, const struct bundle *b,
                         const char *rel, const char *kind, struct err *e)
{
    char path[PATH_ROOM];
    return file_join(path, sizeof(path), b->dir, rel)
               ? add_package(out, path, rel, kind, e)
               : err_set(e, ERR_BUNDLE, "%s: the path is too long", rel);
}

static int add_bundle(struct out *out, struct err *e)
{
    struct bundle *b = NULL;
    int rc = 0;
    RETERR(bundle_open(out->o->path, &b, e));
    for (size_t i = 0; i < b->n_shards; i++) {
        CHECK(add_of_bundle(out, b, b->shards[i].path, "layers", e));
    }
    for (size_t i = 0; i < b->n_groups; i++) {
        CHECK(add_of_bundle(out, b, b->groups[i].path, "experts", e));
    }
    for (size_t i = 0; i < b->n_heads_shards; i++) {
        CHECK(add_of_bundle(out, b, b->heads[i].path, "head", e));
    }
out:
    bundle_close(b);
    return rc;
}

static int predict(struct out *out, struct err *e)
{
    char path[PATH_ROOM];
    const char *dir = out->o->path;
    if (file_join(path, sizeof(path), dir, "bundle.json") &&
        file_exists(path)) {
        return add_bundle(out, e);
    }
    return add_package(out, dir, "package", "layers", e);
}

/* --- the command --- */

/* 0: continue; -1: end with exit code *ret. */
static int parse(int argc, char **argv, struct options *o, int *ret)
{
    static const struct option longs[] = {
        {"profile", required_argument, NULL, 'p'},
        {"ops",     no_argument,       NULL, 'o'},
        {"json",    no_argument,       NULL, 'j'},
        {"help",    no_argument,       NULL, 'h'},
        {NULL,      0,                 NULL, 0  },
    };
    const char *profile = NULL;
    struct err e = {0};
    int c = 0;
    *ret = EXIT_USAGE;
    while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
        if (c == 'h') {
            (void)fputs(usage, stdout);
            *ret = EXIT_SUCCESS;
            return -1;
        }
        if (c == '?') {
            (void)cli_usage(usage, "wrong option");
            return -1;
        }
        profile = c == 'p' ? optarg : profile;
        o->ops = o->ops || c == 'o';
        o->json = o->json || c == 'j';
    }
    if (argc - optind != 1) {
        (void)cli_usage(usage, "one package or bundle is needed");
        return -1;
    }
    if (predict_limits(profile, &o->limits, &e) < 0) {
        (void)cli_usage(usage, "%s", e.msg);
        return -1;
    }
    o->path = argv[optind];
    return 0;
}

int cli_residency(int argc, char **argv)
{
    struct options o = {0};
    struct err e = {0};
    int code = 0;
    if (parse(argc, argv, &o, &code) != 0) {
        return code;
    }
    struct out out = {.o = &o, .functions = json_array()};
    buf_init(&out.text, OUTPUT_MAX);
    predict_total_init(&out.total, &o.limits);
    int rc = predict(&out, &e);
    if (rc == 0 && !buf_ok(&out.text)) {
        rc = err_set(&e, ERR_TOO_BIG, "more than %d bytes of text", OUTPUT_MAX);
    }
    if (rc == 0) {
        rc = o.json ? print_json(&out) : print_text(&out);
        rc = rc == 0 && fflush(stdout) != 0 ? ERR_IO : rc;
        if (rc != 0) {
            (void)err_set(&e, rc, "standard output cannot be written");
        }
    }
    json_free(out.functions);
    buf_fini(&out.text);
    return rc < 0 ? err_print(&e) : EXIT_SUCCESS;
}
