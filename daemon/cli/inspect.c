/* aned inspect - what a source, an .mlpackage or a bundle holds, and whether it
 * is sound. Everything found becomes one JSON tree; the text form is that tree,
 * printed. A thing that is not sound is an error, with or without --json: its
 * stable name on stderr and exit code 65. */
#include <getopt.h>
#include <string.h>

#include "base/file.h"
#include "cli/cli.h"
#include "cli/inspect.h"
#include "convert/gates.h"
#include "mil/mil.h"
#include "model/bundle.h"
#include "proto/json.h"
#include "source/source.h"

static const char usage[] =
    "usage: aned inspect PATH [--json]\n"
    "\n"
    "Say what PATH is, what is in it, and whether it is sound: a GGUF file, a\n"
    "folder of safetensors with config.json, a folder with an ONNX decoder, an\n"
    ".mlpackage folder or a bundle folder. Any part of a split model stands for\n"
    "all of it. Of safetensors and ONNX the keys and names are those that they\n"
    "are converted under; of ONNX also the graph, and what of it was not\n"
    "understood.\n"
    "\n"
    "  --json   the same as one JSON object\n";

enum { SHOWN_BYTES = 120, OUTPUT_MAX = 64 << 20 };

/* --- sources --- */

static const char *kind_name(enum gguf_kind k)
{
    static const char *const names[] = {"u8",  "i8",  "u16",  "i16",    "u32",
                                        "i32", "f32", "bool", "string", "array",
                                        "u64", "i64", "f64"};
    return (size_t)k < countof(names) ? names[k] : "?";
}

static void add_value(struct json *o, const struct gguf *g,
                      const struct gguf_kv *kv)
{
    char key[GGUF_KEY_MAX + 1];
    (void)snprintf(key, sizeof(key), "%.*s", (int)kv->key.n, kv->key.p);
    uint32_t u = 0;
    float f = 0;
    bool b = false;
    if (kv->kind == GGUF_STRING) {
        size_t n = kv->bytes < SHOWN_BYTES ? (size_t)kv->bytes : SHOWN_BYTES;
        json_add_strn(o, "value", (const char *)kv->p, n);
        if (n < kv->bytes) {
            json_add_int(o, "bytes", (int64_t)kv->bytes);
        }
    } else if (gguf_get_u32(g, key, &u)) {
        json_add_int(o, "value", u);
    } else if (gguf_get_f32(g, key, &f)) {
        json_add_num(o, "value", (double)f);
    } else if (gguf_get_bool(g, key, &b)) {
        json_add_bool(o, "value", b);
    }
}

static void add_keys(struct json *root, const struct gguf *g)
{
    struct json *list = json_add_array(root, "keys");
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        struct json *o = json_add_object(list, NULL);
        json_add_strn(o, "key", kv->key.p, kv->key.n);
        if (kv->kind == GGUF_ARRAY) {
            char kind[32];
            (void)snprintf(kind, sizeof(kind), "%s[]", kind_name(kv->item));
            json_add_str(o, "kind", kind);
            json_add_int(o, "count", (int64_t)kv->count);
        } else {
            json_add_str(o, "kind", kind_name(kv->kind));
            add_value(o, g, kv);
        }
    }
}

static void add_tensors(struct json *root, const struct gguf *g)
{
    struct json *list = json_add_array(root, "tensors");
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        struct json *o = json_add_object(list, NULL);
        json_add_str(o, "name", t->name);
        json_add_str(o, "type", gguf_tensor_type(t));
        struct json *shape = json_add_array(o, "shape"); /* numpy's order */
        for (uint32_t d = t->n_dims; d > 0; d--) {
            json_add_int(shape, NULL, (int64_t)t->dims[d - 1]);
        }
        json_add_int(o, "bytes", (int64_t)t->bytes);
        if (!gguf_readable(t)) {
            json_add_str(o, "note", "aned does not dequantise this type");
        }
    }
}

struct source_job {
    const struct gguf *g;
    struct json *root;
};

static int describe_source(void *ctx, struct err *e)
{
    const struct source_job *j = ctx;
    const struct gguf *g = j->g;
    struct span arch = {"", 0};
    struct gguf_notes notes = {0};
    const struct gguf_kv *tokens =
        gguf_get_arr(g, "tokenizer.ggml.tokens", GGUF_STRING);
    int rc = gate_vocabulary(g, &notes, e);
    if (rc < 0) {
        return rc;
    }
    bool gguf = gguf_version(g) != 0;
    json_add_str(j->root, "kind", gguf_format(g));
    if (gguf) {
        json_add_int(j->root, "version", gguf_version(g));
    }
    json_add_int(j->root, "bytes", (int64_t)gguf_file_bytes(g));
    if (gguf_n_parts(g) > 1) {
        json_add_int(j->root, gguf ? "parts" : "files",
                     (int64_t)gguf_n_parts(g));
    }
    if (gguf_get_str(g, "general.architecture", &arch)) {
        json_add_strn(j->root, "architecture", arch.p, arch.n);
    }
    if (tokens != NULL) {
        json_add_int(j->root, "vocabulary", (int64_t)tokens->count);
    }
    struct json *list =
        notes.n > 0 ? json_add_array(j->root, "warnings") : NULL;
    for (size_t i = 0; i < notes.n; i++) {
        json_add_str(list, NULL, notes.text[i]);
    }
    add_keys(j->root, g);
    add_tensors(j->root, g);
    return 0;
}

/* Of a graph also what was not understood, and then it is shown with the error.
 */
static int open_found(const struct source_files *f, struct json *root,
                      struct gguf **ret, struct err *e)
{
    struct onnx_found found;
    int rc = onnx_open_found(f, &found, ret, e);
    if (found.read) {
        inspect_graph(&found, root);
    }
    onnx_found_fini(&found);
    return rc;
}

static int inspect_source(const char *path, struct json *root, struct err *e)
{
    struct gguf *g = NULL;
    struct source_files f = {.form = NULL};
    RETERR(source_files_open(path, -1, &f, e));
    int rc = strcmp(source_format(&f), "onnx") == 0
                 ? open_found(&f, root, &g, e)
                 : source_open_files(&f, &g, e);
    source_files_close(&f);
    struct source_job j = {g, root};
    rc = rc < 0 ? rc : gguf_guard(describe_source, &j, e);
    gguf_close(g);
    return rc < 0 ? err_prefix(e, rc, "%s", path) : 0;
}

/* --- Core ML packages --- */

static void add_features(struct json *fn, const char *key, size_t n,
                         const struct mil_feature *f)
{
    struct json *list = json_add_array(fn, key);
    for (size_t i = 0; i < n; i++) {
        struct json *o = json_add_object(list, NULL);
        char type[160];
        mil_type_print(&f[i].type, type, sizeof(type));
        json_add_str(o, "name", f[i].name);
        json_add_str(o, "type", type);
        for (int d = 0; f[i].has_range && d < f[i].type.rank; d++) {
            if (f[i].lo[d] != f[i].hi[d]) {
                char range[64];
                (void)snprintf(range, sizeof(range), "dim %d: %lld..%lld", d,
                               (long long)f[i].lo[d], (long long)f[i].hi[d]);
                json_add_str(o, "range", range);
                break;
            }
        }
    }
}

/* Read, check and describe one package into root. */
static void add_program(const struct mil_program *p, struct json *root)
{
    json_add_int(root, "specification", p->spec_version);
    json_add_int(root, "weight_bytes", (int64_t)p->weight_bytes);
    struct json *list = json_add_array(root, "functions");
    for (size_t i = 0; i < p->n_functions; i++) {
        const struct mil_function *f = p->functions[i];
        struct json *o = json_add_object(list, NULL);
        json_add_str(o, "name", f->name);
        json_add_str(o, "opset", f->opset);
        json_add_int(o, "ops", (int64_t)f->body->n_ops);
        add_features(o, "inputs", f->n_in, f->in);
        add_features(o, "states", f->n_states, f->states);
        add_features(o, "outputs", f->n_out, f->out);
    }
}

static int add_package(const char *path, struct json *root, struct err *e)
{
    struct mil_program *p = NULL;
    int rc = 0;
    CHECK(mil_read(path, &p, e));
    CHECK(mil_validate(p, e));
    add_program(p, root);
out:
    mil_free(p);
    return rc < 0 ? err_prefix(e, rc, "%s", path) : 0;
}

static int inspect_package(const char *path, struct json *root, struct err *e)
{
    json_add_str(root, "kind", "mlpackage");
    return add_package(path, root, e);
}

/* --- bundles --- */

/* *ret: its member of the list. */
static int add_bundle_package(const struct bundle *b, const char *rel,
                              struct json *list, struct json **ret,
                              struct err *e)
{
    char path[2048];
    if (!file_join(path, sizeof(path), b->dir, rel)) {
        return err_set(e, ERR_BUNDLE, "%s: the path is too long", rel);
    }
    *ret = json_add_object(list, NULL);
    json_add_str(*ret, "path", rel);
    return add_package(path, *ret, e);
}

/* What goes from program to program beside the stream. */
static void add_ports(struct json *o, const char *key,
                      const struct bundle_port *p, size_t n)
{
    struct json *list = n > 0 ? json_add_array(o, key) : NULL;
    for (size_t i = 0; i < n; i++) {
        struct json *x = json_add_object(list, NULL);
        json_add_str(x, "name", p[i].name);
        json_add_str(x, "role", bundle_port_role(p[i].role));
        json_add_int(x, "layer", p[i].layer);
    }
}

static void add_bundle_facts(struct json *o, const struct bundle *b)
{
    json_add_str(o, "name", b->name);
    json_add_str(o, "architecture", b->architecture);
    json_add_str(o, "fingerprint", b->fingerprint);
    json_add_str(o, "source", b->source_name);
    json_add_int(o, "layers", b->n_layers);
    json_add_int(o, "d_model", b->d_model);
    json_add_int(o, "heads", b->n_heads);
    json_add_int(o, "kv_heads", b->n_kv_heads);
    json_add_int(o, "d_head", b->d_head);
    json_add_int(o, "d_ff", b->d_ff);
    json_add_int(o, "vocabulary", b->vocab);
    json_add_int(o, "context", b->context);
    json_add_str(o, "quant", b->quant);
    json_add_str(o, "shape", b->shape);
    json_add_str(o, "kv", b->kv);
    if (bundle_experts(b) != NULL) {
        json_add_str(o, "experts", bundle_experts(b));
    }
    json_add_str(o, "output", b->argmax ? "argmax" : "logits");
    json_add_str(o, "norm", b->norm);
    json_add_num(o, "residual_scale", (double)b->residual_scale);
    json_add_num(o, "margin", b->margin);
    json_add_int(o, "bytes", (int64_t)b->total_bytes);
}

/* Which experts are in the package, each once. */
static void add_experts(struct json *o, const struct bundle_group *g)
{
    uint32_t last = UINT32_MAX;
    json_add_int(o, "layer", g->layer);
    struct json *list = json_add_array(o, "experts");
    for (size_t i = 0; i < g->n_experts; i++) {
        if (g->experts[i].expert != last) {
            last = g->experts[i].expert;
            json_add_int(list, NULL, last);
        }
    }
}

static int inspect_bundle(const char *path, struct json *root, struct err *e)
{
    struct bundle *b = NULL;
    RETERR(bundle_open(path, &b, e));
    int rc = 0;
    json_add_str(root, "kind", "bundle");
    add_bundle_facts(root, b);
    struct json *o = NULL;
    struct json *list = json_add_array(root, "packages");
    CHECK(bundle_verify(b, NULL, NULL, e));
    for (size_t i = 0; i < b->n_shards; i++) {
        const struct bundle_shard *s = &b->shards[i];
        CHECK(add_bundle_package(b, s->path, list, &o, e));
        add_ports(o, "gives", s->gives, s->n_gives);
        add_ports(o, "takes", s->takes, s->n_takes);
    }
    for (size_t i = 0; i < b->n_groups; i++) {
        CHECK(add_bundle_package(b, b->groups[i].path, list, &o, e));
        add_experts(o, &b->groups[i]);
    }
    for (size_t i = 0; i < b->n_heads_shards; i++) {
        CHECK(add_bundle_package(b, b->heads[i].path, list, &o, e));
    }
out:
    bundle_close(b);
    return rc;
}

/* --- which of them it is --- */

static bool holds(const char *dir, const char *name)
{
    char path[4096];
    return file_join(path, sizeof(path), dir, name) && file_exists(path);
}

static int inspect(const char *path, struct json *root, struct err *e)
{
    if (!file_is_dir(path)) {
        return inspect_source(path, root, e);
    }
    if (holds(path, "bundle.json")) {
        return inspect_bundle(path, root, e);
    }
    if (holds(path, "Manifest.json")) {
        return inspect_package(path, root, e);
    }
    if (holds(path, "coremldata.bin")) {
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: a compiled .mlmodelc; aned reads the .mlpackage it "
                       "was made from",
                       path);
    }
    return inspect_source(path, root, e);
}

/* --- the tree as text --- */

static void put_scalar(const struct json *j, struct buf *b)
{
    struct buf text;
    buf_init(&text, KIB(4));
    if (json_type(j) == JSON_STRING) {
        const char *s = json_str(j);
        for (; *s != '\0'; s++) { /* the terminal sees printable ASCII only */
            buf_u8(&text, *s >= 0x20 && *s < 0x7f ? (uint8_t)*s : '?');
        }
    } else {
        json_write(j, false, &text);
    }
    buf_put(b, text.p != NULL ? text.p : "", text.n);
    buf_fini(&text);
}

static bool is_scalar(const struct json *j)
{
    return json_type(j) != JSON_ARRAY && json_type(j) != JSON_OBJECT;
}

static bool is_flat(const struct json *j)
{
    for (const struct json *c = json_first(j); c != NULL; c = json_next(c)) {
        if (!is_scalar(c) && json_type(json_first(c)) == JSON_OBJECT) {
            return false;
        }
    }
    return true;
}

static void put_line(const struct json *o, struct buf *b)
{
    const char *gap = "";
    for (const struct json *c = json_first(o); c != NULL; c = json_next(c)) {
        buf_puts(b, gap);
        gap = "  ";
        if (is_scalar(c)) {
            put_scalar(c, b);
            continue;
        }
        buf_puts(b, "[");
        for (const struct json *d = json_first(c); d != NULL;
             d = json_next(d)) {
            put_scalar(d, b);
            buf_puts(b, json_next(d) != NULL ? ", " : "");
        }
        buf_puts(b, "]");
    }
    buf_puts(b, "\n");
}

/* Members one a line; a list of flat objects one object a line. Depth is that
 * of the trees built above. */
static void put_text(const struct json *j, int depth, struct buf *b)
{
    for (const struct json *c = json_first(j); c != NULL; c = json_next(c)) {
        buf_printf(b, "%*s", depth * 2, "");
        if (json_key(c) != NULL) {
            buf_printf(b, "%s", json_key(c));
        }
        if (is_scalar(c)) {
            buf_puts(b, "  ");
            put_scalar(c, b);
            buf_puts(b, "\n");
        } else if (json_type(j) == JSON_ARRAY && is_flat(c)) {
            put_line(c, b);
        } else {
            buf_puts(b, json_key(c) != NULL ? "\n" : "-\n");
            put_text(c, depth + 1, b);
        }
    }
}

static int print(struct json *root, bool as_json, bool sound, struct err *e)
{
    struct buf b;
    int rc = 0;
    buf_init(&b, OUTPUT_MAX);
    json_add_bool(root, "sound", sound);
    if (as_json) {
        json_write(root, true, &b);
        buf_puts(&b, "\n");
    } else {
        put_text(root, 0, &b);
    }
    if (!buf_ok(&b)) {
        rc = err_set(e, ERR_TOO_BIG, "more than %d bytes of text", OUTPUT_MAX);
    } else if (fwrite(b.p, 1, b.n, stdout) != b.n || fflush(stdout) != 0) {
        rc = err_set(e, ERR_IO, "standard output cannot be written");
    }
    buf_fini(&b);
    return rc;
}

int cli_inspect(int argc, char **argv)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL,   0,           NULL, 0  },
    };
    struct err e = {0};
    bool as_json = false;
    int c = 0;
    while ((c = getopt_long(argc, argv, "jh", options, NULL)) != -1) {
        if (c == 'h') {
            (void)fputs(usage, stdout);
            return EXIT_SUCCESS;
        }
        if (c != 'j') {
            (void)fputs(usage, stderr);
            return EXIT_USAGE;
        }
        as_json = true;
    }
    if (argc - optind != 1) {
        return cli_usage(usage, "inspect takes one path");
    }
    struct json *root = json_object();
    int rc = inspect(argv[optind], root, &e);
    if (rc == 0) {
        rc = print(root, as_json, true, &e);
    } else if (json_get(root, "graph") != NULL) {
        struct err first = e; /* an error of the output is the lesser one */
        (void)print(root, as_json, false, &e);
        e = first;
    }
    json_free(root);
    return rc < 0 ? err_print(&e) : EXIT_SUCCESS;
}
