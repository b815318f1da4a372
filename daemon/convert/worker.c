/* worker.c - the convert role: it runs one job and ends.
 *
 * Only its parent sends it frames. A cancel frame, or the end of file when the
 * parent is gone, stops the job at the next progress call.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/num.h"
#include "base/qos.h"
#include "convert/import/import.h"
#include "convert/reshard.h"
#include "convert/sandbox.h"
#include "model/chat.h"
#include "proto/msg.h"
#include "proto/parent.h"

#define SOURCE_FD  4
#define PATH_ROOM  2048

struct worker {
    struct frame_in in;
    uint32_t request; /* of the job's frame: answers carry it */
    struct json *spec;
    bool imports; /* "kind": the source is a manifest, not a model */
    struct import_options import;
    struct convert_options o;
    struct buf text;         /* to calibrate with */
    struct buf template;     /* in place of the source's */
    struct source_files files; /* from SOURCE_FD on, the one it was given first;
                                  of an import: its vocabulary's */
    struct sandbox_report sandbox;
};

/* --- frames out --- */

static int send_done(const struct worker *w, const struct convert_result *r,
                     struct err *e)
{
    struct json *j = json_object();
    struct json *gates = json_add_array(j, "gates");
    for (size_t i = 0; i < r->n_gates; i++) {
        struct json *g = json_add_object(gates, NULL);
        json_add_str(g, "name", r->gates[i].name);
        json_add_str(g, "verdict", r->gates[i].verdict);
        json_add_str(g, "detail", r->gates[i].detail);
    }
    struct json *notes = json_add_array(j, "warnings");
    for (size_t i = 0; i < r->notes.n; i++) {
        json_add_str(notes, NULL, r->notes.text[i]);
    }
    if (r->target[0] != '\0') {
        json_add_str(j, "target", r->target);
    }
    json_add_int(j, "bundle_bytes", (int64_t)r->bundle_bytes);
    json_add_int(j, "n_shards", r->n_shards);
    json_add_int(j, "n_heads", r->n_heads);
    json_add_int(j, "ms", r->ms);
    struct json *s = json_add_object(j, "sandbox");
    json_add_bool(s, "limits", w->sandbox.limits);
    json_add_bool(s, "landlock", w->sandbox.landlock);
    json_add_bool(s, "seccomp", w->sandbox.seccomp);
    json_add_bool(s, "seatbelt", w->sandbox.seatbelt);
    return parent_tell(w->request, FRAME_CONVERT_DONE, j, e);
}

/* --- frames in --- */

/* Has the parent asked to stop, or gone? Any frame but CANCEL is a mistake of
 * the parent's, and stops as well. It may have come together with the job. */
static bool wanted(struct worker *w)
{
    struct frame f = {.n = 0};
    struct err e = {0};
    struct pollfd p = {.fd = CONTROL_FD, .events = POLLIN};
    if (frame_in_next(&w->in, &f, &e) != 0) {
        return false;
    }
    int n = poll(&p, 1, 0);
    return n == 0 || (n < 0 && errno == EINTR);
}

static bool on_progress(void *ctx, const char *stage, double fraction)
{
    struct worker *w = ctx;
    struct err e = {0};
    if (!wanted(w)) {
        return false;
    }
    struct json *j = json_object();
    json_add_str(j, "stage", stage);
    json_add_num(j, "fraction", fraction);
    return parent_tell(w->request, FRAME_PROGRESS, j, &e) == 0;
}

static int on_report(void *ctx, struct json *j, struct err *e)
{
    const struct worker *w = ctx;
    return parent_tell(w->request, FRAME_CONVERT_REPORT, j, e);
}

/* --- the job --- */

/* "quant_for": strings, which stay in w->spec. */
static int read_rules(struct worker *w, struct err *e)
{
    const struct json *list = json_get(w->spec, "quant_for");
    struct convert_options *o = &w->o;
    for (const struct json *c = json_first(list); c != NULL; c = json_next(c)) {
        if (json_str(c) == NULL || o->n_quant_for == QUANT_RULES_MAX) {
            return err_set(e, ERR_INVALID, "quant_for: at most %u strings",
                           QUANT_RULES_MAX);
        }
        o->quant_for[o->n_quant_for++] = json_str(c);
    }
    return 0;
}

/* What an import has of its own; strings stay in w->spec. */
static int read_import(struct worker *w, struct err *e)
{
    struct import_options *o = &w->import;
    const char *kind = NULL;
    RETERR(json_want_str(w->spec, "kind", false, &kind, e));
    RETERR(json_want_str(w->spec, "tokenizer", false, &o->tokenizer, e));
    w->imports = kind != NULL && strcmp(kind, "import") == 0;
    if (w->imports && (w->o.source == NULL || o->tokenizer == NULL)) {
        return err_set(e, ERR_INVALID, "an import names source and tokenizer");
    }
    const struct json *list = json_get(w->spec, "set");
    for (const struct json *c = json_first(list); c != NULL; c = json_next(c)) {
        if (json_str(c) == NULL || o->n_sets == IMPORT_SETS_MAX) {
            return err_set(e, ERR_INVALID, "set: at most %u strings",
                           IMPORT_SETS_MAX);
        }
        o->sets[o->n_sets++] = json_str(c);
    }
    return 0;
}

static int read_spec(struct worker *w, const struct frame *f, struct err *e)
{
    int64_t context = 0;
    int64_t threads = 0;
    int64_t bytes = 0;
    struct convert_options *o = &w->o;
    convert_options_init(o);
    w->request = f->request;
    if (f->type != FRAME_CONVERT) {
        return err_set(e, ERR_FRAME,
                       "a job comes first, not a frame of type %d",
                       (int)f->type);
    }
    const struct {
        const char *key;
        const char **to;
    } strings[] = {
        {"source",     &o->source    },
        {"out",        &o->out       },
        {"name",       &o->name      },
        {"quant",      &o->quant     },
        {"shape",      &o->shape     },
        {"kv",         &o->kv        },
        {"experts",    &o->experts   },
        {"output",     &o->output    },
        {"bundle",     &o->bundle    },
        {"profile",    &o->profile   },
        {"norm",       &o->norm      },
        {"head_quant", &o->head_quant},
        {"calibrate",  &o->calibrate },
    };
    RETERR(json_parse((const char *)f->payload, f->n, &w->spec, e));
    for (size_t i = 0; i < countof(strings); i++) {
        RETERR(json_want_str(w->spec, strings[i].key, strings[i].to == &o->out,
                             strings[i].to, e));
    }
    RETERR(
        json_want_int(w->spec, "context", false, 0, UINT32_MAX, &context, e));
    RETERR(json_want_int(w->spec, "threads", false, 0, ENGINE_THREADS_MAX,
                         &threads, e));
    RETERR(json_want_num(w->spec, "residual_scale", false, 0, 1,
                         &o->residual_scale, e));
    RETERR(json_want_bool(w->spec, "keep_records", false, &o->keep_records, e));
    RETERR(read_rules(w, e));
    RETERR(read_import(w, e));
    RETERR(json_want_int(w->spec, "target_bytes", false, 0,
                         (int64_t)TARGET_BYTES_MAX, &bytes, e));
    RETERR(json_want_num(w->spec, "target_kl", false, 0, TARGET_KL_MAX,
                         &o->target_kl, e));
    o->target_bytes = (uint64_t)bytes;
    o->context = (uint32_t)context;
    o->threads = (unsigned)threads;
    return 0;
}

/* The folder that `out`, which may end with slashes, will stand in. */
static void parent_of(const char *out, char to[PATH_ROOM])
{
    char path[PATH_ROOM];
    size_t n = strlen(out);
    while (n > 1 && out[n - 1] == '/') {
        n--;
    }
    (void)snprintf(path, sizeof(path), "%.*s", (int)num_min(n, PATH_ROOM), out);
    file_parent(path, to, PATH_ROOM);
}

/* Move the descriptors of parts to SOURCE_FD and the numbers after it: what is
 * above them is closed. The named one was opened first, then the others in
 * order, so in this order no move meets one that is still to be moved. Returns
 * the first number above, or -1. */
static int gather(struct gguf_parts *p)
{
    int next = SOURCE_FD;
    for (size_t k = 0; k < p->n; k++) {
        size_t i = k == 0 ? p->named : k - (k <= p->named);
        if (p->fd[i] < 0) {
            continue; /* told when it is found to be needed */
        }
        if (p->fd[i] != next) {
            if (dup2(p->fd[i], next) < 0) {
                return -1;
            }
            (void)close(p->fd[i]);
            p->fd[i] = next;
        }
        next++;
    }
    return next;
}

/* Bytes of all that is open. */
static uint64_t parts_bytes(const struct gguf_parts *p)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < p->n; i++) {
        struct stat st = {0};
        if (p->fd[i] >= 0 && fstat(p->fd[i], &st) == 0 && st.st_size > 0) {
            sum += (uint64_t)st.st_size;
        }
    }
    return sum;
}

static void enter_sandbox(struct worker *w, struct sandbox_conf c)
{
    char parent[PATH_ROOM];
    parent_of(w->o.out, parent);
    c.writable = parent;
    sandbox_enter(&c, &w->sandbox);
    log_info("sandbox", "limits=%d landlock=%d seccomp=%d seatbelt=%d",
             w->sandbox.limits, w->sandbox.landlock, w->sandbox.seccomp,
             w->sandbox.seatbelt);
}

/* Before the sandbox, which sees no other folder; only their bytes are read
 * here. */
static int open_texts(struct worker *w, struct err *e)
{
    const char *path = NULL;
    RETERR(json_want_str(w->spec, "calibration", false, &path, e));
    if (path != NULL) {
        RETERR(file_read(path, CALIBRATE_TEXT_MAX, &w->text, e));
        w->o.calibration = w->text.n > 0 ? w->text.p : "";
        w->o.calibration_bytes = w->text.n;
        path = NULL;
    }
    RETERR(json_want_str(w->spec, "chat_template", false, &path, e));
    if (path != NULL) {
        int rc = chat_read(path, &w->template, e);
        w->o.chat_template = w->template.p;
        return rc < 0 ? err_prefix(e, rc, "chat_template") : 0;
    }
    return 0;
}

static int open_source(struct worker *w, struct err *e)
{
    struct stat st = {0};
    bool given = fstat(SOURCE_FD, &st) == 0;
    if (!given && w->o.source == NULL) {
        return err_set(e, ERR_INVALID, "a job names its source");
    }
    RETERR(source_files_open(w->o.source, given ? SOURCE_FD : -1, &w->files, e));
    if (given) {
        (void)close(SOURCE_FD); /* its duplicate is among the files, or it is
                                   their folder */
    }
    int above = gather(&w->files.parts);
    if (above < 0) {
        return err_errno(e, errno, "source");
    }
    w->o.files = &w->files;
    const struct sandbox_conf c = {
        .keep_fds = above,
        .source_bytes = parts_bytes(&w->files.parts),
    };
    enter_sandbox(w, c);
    return 0;
}

/* A bundle of ours: by its name. */
static void open_bundle(struct worker *w)
{
    const struct sandbox_conf c = {
        .readable = w->o.bundle,
        .keep_fds = SOURCE_FD,
        .source_bytes = file_tree_bytes(w->o.bundle),
    };
    enter_sandbox(w, c);
}

/* A manifest is read by its path, with all below its folder; the vocabulary may
 * lie anywhere. */
static int open_import(struct worker *w, struct err *e)
{
    char folder[PATH_ROOM];
    char path[PATH_ROOM];
    RETERR(import_vocabulary(w->import.tokenizer, path, sizeof(path), e));
    (void)close(SOURCE_FD);
    int rc = source_files_open(path, -1, &w->files, e);
    if (rc < 0) {
        return err_prefix(e, rc, "tokenizer");
    }
    int above = gather(&w->files.parts);
    if (above < 0) {
        return err_errno(e, errno, "tokenizer");
    }
    w->import.vocabulary = &w->files;
    file_parent(w->o.source, folder, sizeof(folder));
    const struct sandbox_conf c = {
        .readable = folder,
        .keep_fds = above,
        .file_bytes = IMPORT_FILE_BYTES,
    };
    enter_sandbox(w, c);
    return 0;
}

static int run_job(struct worker *w, const struct frame *f,
                   struct convert_result *r, struct err *e)
{
    RETERR(read_spec(w, f, e));
    w->o.progress = on_progress;
    w->o.report = on_report;
    w->o.ctx = w;
    if (w->o.bundle != NULL) {
        open_bundle(w);
        return reshard_run(&w->o, r, e);
    }
    RETERR(open_texts(w, e));
    RETERR(w->imports ? open_import(w, e) : open_source(w, e));
    w->import.common = w->o;
    return w->imports ? import_run(&w->import, r, e) : convert_run(&w->o, r, e);
}

int convert_role(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    struct worker w = {.request = 0};
    struct frame f = {.n = 0};
    struct err e = {0};
    struct convert_result r = {0};
    log_setup(LOG_INFO, "convert");
    qos_set(QOS_JOB);
    (void)signal(SIGPIPE, SIG_IGN);
    frame_in_init(&w.in, FRAME_WORKER_MAX);
    int rc = frame_read_fd(CONTROL_FD, &w.in, &f, &e);
    if (rc == 0) { /* the parent changed its mind */
        frame_in_fini(&w.in);
        return EXIT_SUCCESS;
    }
    rc = rc < 0 ? rc : run_job(&w, &f, &r, &e);
    if (rc == 0) {
        rc = send_done(&w, &r, &e);
        rc = rc < 0 ? err_exit(rc) : EXIT_SUCCESS;
    } else {
        rc = parent_tell_error(w.request, &e);
    }
    json_free(w.spec);
    buf_fini(&w.text);
    buf_fini(&w.template);
    source_files_close(&w.files);
    frame_in_fini(&w.in);
    return rc;
}
