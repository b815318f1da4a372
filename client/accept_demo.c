/* accept_demo.c - the demo model against what is recorded of it in
 * conf/demo/expected.json: every byte of its bundle, its tokens, its logits.
 * The record was made on Linux (tests/e2e/demo_expected.py makes it anew). */
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/npy.h"
#include "client/accept.h"

#define FILES_MAX 4096u /* of a bundle */
#define DEPTH_MAX 8

/* --- a folder's digest: of the lines "SHA-256  path\n", sorted by path --- */

struct listing {
    char *path[FILES_MAX]; /* relative, owned */
    size_t n;
};

static int by_name(const void *x, const void *y)
{
    return strcmp(*(char *const *)x, *(char *const *)y);
}

static int list_files(const char *root, const char *below, int depth,
                      struct listing *l, struct err *e)
{
    char dir[SERVICE_PATH_MAX];
    int rc = 0;
    if (!file_join(dir, sizeof(dir), root, below) || depth > DEPTH_MAX) {
        return err_set(e, ERR_TOO_BIG, "%s: too deep", root);
    }
    DIR *d = opendir(dir);
    if (d == NULL) {
        return err_set(e, ERR_NOT_FOUND, "%s cannot be read", dir);
    }
    for (struct dirent *x = readdir(d); x != NULL && rc == 0; x = readdir(d)) {
        char rel[SERVICE_PATH_MAX];
        char full[SERVICE_PATH_MAX];
        if (strcmp(x->d_name, ".") == 0 || strcmp(x->d_name, "..") == 0) {
            continue;
        }
        bool ok =
            below[0] == '\0'
                ? snprintf(rel, sizeof(rel), "%s", x->d_name) < (int)sizeof(rel)
                : file_join(rel, sizeof(rel), below, x->d_name);
        ok = ok && file_join(full, sizeof(full), root, rel);
        if (!ok || l->n == FILES_MAX) {
            rc = err_set(e, ERR_TOO_BIG, "%s: too many files", root);
        } else if (file_is_dir(full)) {
            rc = list_files(root, rel, depth + 1, l, e);
        } else {
            l->path[l->n] = strdup(rel);
            must(l->path[l->n++] != NULL);
        }
    }
    (void)closedir(d);
    return rc;
}

static int add_file(const char *root, const char *path, struct sha256 *all,
                    struct err *e)
{
    char full[SERVICE_PATH_MAX];
    char hex[SHA256_HEX];
    uint64_t bytes = 0;
    if (!file_join(full, sizeof(full), root, path)) {
        return err_set(e, ERR_TOO_BIG, "%s", path);
    }
    RETERR(sha256_file(full, hex, &bytes, e));
    sha256_add(all, hex, strlen(hex));
    sha256_add(all, "  ", 2);
    sha256_add(all, path, strlen(path));
    sha256_add(all, "\n", 1);
    return 0;
}

static int tree_digest(const char *root, char out[SHA256_HEX], size_t *ret_n,
                       struct err *e)
{
    struct listing *l = calloc(1, sizeof(*l));
    uint8_t digest[SHA256_BYTES];
    struct sha256 all;
    must(l != NULL);
    int rc = list_files(root, "", 0, l, e);
    qsort(l->path, l->n, sizeof(l->path[0]), by_name);
    sha256_init(&all);
    for (size_t i = 0; i < l->n; i++) {
        rc = rc == 0 ? add_file(root, l->path[i], &all, e) : rc;
        free(l->path[i]);
    }
    sha256_end(&all, digest);
    sha256_hex(digest, out);
    *ret_n = l->n;
    free(l);
    return rc;
}

/* --- convert --- */

static int demo_file(const struct accept *a, char out[SERVICE_PATH_MAX],
                     struct err *e)
{
    const char *name = json_str(json_get(a->expected, "source"));
    return name != NULL && file_join(out, SERVICE_PATH_MAX, a->demo, name)
               ? 0
               : err_set(e, ERR_INVALID, "expected.json names no source");
}

/* The demo is what the record is about. */
static int check_source(const struct accept *a, const char *path, struct err *e)
{
    char hex[SHA256_HEX];
    uint64_t bytes = 0;
    RETERR(sha256_file(path, hex, &bytes, e));
    return strcmp(hex, ask_str(a->expected, "source_sha256")) == 0
               ? 0
               : err_set(e, ERR_INVALID, "%s is not the file of the record",
                         path);
}

static int convert(struct accept *a, char bundle[SERVICE_PATH_MAX],
                   struct err *e)
{
    char source[SERVICE_PATH_MAX];
    RETERR(demo_file(a, source, e));
    RETERR(check_source(a, source, e));
    RETERR(box_backend(a, false, 0, e));
    RETERR(box_convert(a, source, "demo",
                       (int)json_num(json_get(a->expected, "context")), e));
    return file_join(bundle, SERVICE_PATH_MAX, a->home, "models/demo")
               ? 0
               : err_set(e, ERR_TOO_BIG, "%s", a->home);
}

void step_convert(struct doctor *d)
{
    struct accept *a = accept_of(d);
    char bundle[SERVICE_PATH_MAX];
    char hex[SHA256_HEX];
    size_t files = 0;
    struct err e = {0};
    if (convert(a, bundle, &e) < 0 ||
        tree_digest(bundle, hex, &files, &e) < 0) {
        accept_error(a, "the demo's conversion", &e);
        return;
    }
    accept_number(a, "files", (double)files);
    accept_number(a, "bytes", (double)file_tree_bytes(bundle));
    if (strcmp(hex, ask_str(a->expected, "bundle_sha256")) == 0) {
        accept_pass(a, "every byte is as recorded: %.16s...", hex);
        a->has |= ACCEPT_DEMO;
    } else {
        accept_fail(a, "the bundle's digest is %s, recorded is %s", hex,
                    ask_str(a->expected, "bundle_sha256"));
        a->has |= ACCEPT_DEMO; /* other bytes may still do */
    }
}

/* --- tokens --- */

void step_cpu_tokens(struct doctor *d)
{
    struct accept *a = accept_of(d);
    struct draw want;
    struct draw got;
    const char *prompt = NULL;
    struct err e = {0};
    size_t i = 0;
    int rc = box_backend(a, false, 0, &e);
    while (rc == 0 && i < ACCEPT_RUNS_MAX &&
           draw_expected(a, i, &prompt, &want)) {
        char what[40];
        const struct draw_wish w = {
            .model = "demo", .prompt = prompt, .n = want.n - want.n_prompt};
        rc = draw(a, &w, &got, &e);
        (void)snprintf(what, sizeof(what), "recorded prompt %zu", ++i);
        if (rc == 0) {
            (void)draw_same(a, what, &want, &got);
        }
    }
    if (rc != 0) {
        accept_error(a, "the demo on the CPU backend", &e);
    } else if (i == 0) {
        accept_fail(a, "expected.json has no runs");
    }
}

/* --- kernels --- */

/* The tokens of the first recorded run, as an array. */
static int write_tokens(struct accept *a, const char *path, struct err *e)
{
    struct draw *want = calloc(1, sizeof(*want));
    const char *prompt = NULL;
    must(want != NULL);
    int rc =
        draw_expected(a, 0, &prompt, want)
            ? npy_write(path, NPY_I32, 1, (int64_t[]){want->n}, want->ids, e)
            : err_set(e, ERR_INVALID, "expected.json has no runs");
    free(want);
    return rc;
}

/* One run of `aned logits`; its file's digest. `more`: one more option and its
 * value. */
static int logits(struct accept *a, const char *isa, const char *const more[2],
                  char hex[SHA256_HEX], struct err *e)
{
    char tokens[SERVICE_PATH_MAX];
    char out[SERVICE_PATH_MAX];
    char bundle[SERVICE_PATH_MAX];
    const char *argv[] = {NULL,    "logits", bundle,  tokens,  out,
                          "--isa", isa,      more[0], more[1], NULL};
    struct buf said = {0};
    uint64_t bytes = 0;
    int code = 0;
    int rc = 0;
    box_path(a, "tokens.npy", tokens);
    box_path(a, "logits.npy", out);
    box_path(a, "home/models/demo", bundle);
    CHECK(write_tokens(a, tokens, e));
    CHECK(box_aned(a, argv, &said, &code, e));
    CHECK(sha256_file(out, hex, &bytes, e));
out:
    buf_fini(&said);
    return rc;
}

static void compare(struct accept *a, const char *isa,
                    const char *const more[2], const char *want)
{
    char hex[SHA256_HEX];
    char how[80];
    struct err e = {0};
    (void)snprintf(how, sizeof(how), "%s%s%s%s%s", isa,
                   more[0] != NULL ? " " : "", more[0] != NULL ? more[0] : "",
                   more[1] != NULL ? " " : "", more[1] != NULL ? more[1] : "");
    if (logits(a, isa, more, hex, &e) < 0) {
        accept_error(a, how, &e);
    } else if (strcmp(hex, want) != 0) {
        accept_fail(a, "%s: the logits' digest is %s, recorded is %s", how, hex,
                    want);
    } else {
        accept_pass(a, "%s: bit for bit as recorded", how);
    }
}

void step_kernels(struct doctor *d)
{
    static const char *const plain[2] = {NULL, NULL};
    static const char *const chunks[2] = {"--chunk", "7"};
    struct accept *a = accept_of(d);
    const char *want = ask_str(a->expected, "logits_sha256");
    const struct json *list = json_get(a->machine, "kernels");
    const char *best = json_str(json_first(list));
    if (best == NULL) {
        accept_fail(a, "`aned machine` names no kernels");
        return;
    }
    if (d->mac && strcmp(best, "neon_dot") != 0 &&
        strcmp(best, "neon_i8mm") != 0) {
        accept_fail(a, "the best kernels are %s, not neon_dot or neon_i8mm",
                    best);
    }
    for (const struct json *k = json_first(list); k != NULL; k = json_next(k)) {
        compare(a, json_str(k), plain, want);
    }
    compare(a, best, chunks, want);
    accept_note(a, "used by default: %s", best);
}
