/* verify.c - see verify.h.
 *
 *   UNKNOWN --load, ask--> QUEUED --child--> RUNNING --same--> SOUND
 *      ^                      ^                 |   \--other--> DAMAGED
 *      +---child was lost-----+---somebody waits for another model
 *
 * The next one is a model that a load waits for, then one that was asked
 * about, then any; who waits takes the place of who does not.
 */
#include "serve/engines/verify.h"

#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "proto/json.h"
#include "proto/msg.h"
#include "serve/child.h"
#include "serve/engines/models_impl.h"
#include "serve/jobs/jobs.h"

#define KNOWN_FILE "verified.json"
#define KNOWN_MAX  MIB(1)
#define LOST_MAX   3u /* children of one model that ended without an answer */

struct verifier {
    struct models *ms;
    struct model *current; /* what is hashed or compared; NULL */
    struct child *child;   /* NULL while the store is asked for the rows */
    struct rows *rows;     /* asked for; NULL */
    struct model *holding; /* inside verify_holds for it; NULL */
    bool stopping;
    char known_path[HOME_PATH_MAX];
};

struct rows { /* the model may go before they come */
    struct verifier *v;
    struct model *m; /* NULL: gone */
    char stamp[SHA256_HEX];
};

const char *verify_state_name(enum verify_state s)
{
    static const char *const names[] = {"unknown", "queued", "running",
                                        "verified", "damaged"};
    return names[s];
}

static void next(struct verifier *v);

/* --- what is known over a restart --- */

static void read_known(struct verifier *v, const struct json *j)
{
    for (struct model *m = models_first(v->ms); m != NULL; m = models_next(m)) {
        const struct json *o = json_get(j, m->name);
        const char *stamp = json_str(json_get(o, "stamp"));
        int64_t ms = 0;
        m->verify.first = o == NULL;
        if (stamp == NULL || strlen(stamp) != SHA256_HEX - 1 ||
            !json_int(json_get(o, "checked_ms"), 0, INT64_MAX, &ms)) {
            continue;
        }
        memcpy(m->verify.stamp, stamp, SHA256_HEX);
        m->verify.checked_ms = ms;
        m->verify.state = VERIFY_SOUND;
    }
}

void verify_start(struct models *ms)
{
    struct verifier *v = calloc(1, sizeof(*v));
    struct buf b = {0};
    struct json *j = NULL;
    struct err e = {0};
    must(v != NULL);
    v->ms = ms;
    ms->verifier = v;
    for (struct model *m = models_first(ms); m != NULL; m = models_next(m)) {
        m->verify.first = true;
    }
    must(file_join(v->known_path, sizeof(v->known_path), ms->srv->home.dir,
                   KNOWN_FILE)); /* shorter than the socket's */
    if (file_read(v->known_path, KNOWN_MAX, &b, &e) == 0 && b.p != NULL &&
        json_parse(b.p, b.n, &j, &e) == 0) {
        read_known(v, j);
    } else if (models_count(ms) > 0) {
        log_info("unclean_end", "models=%zu are hashed before they are used",
                 models_count(ms));
    }
    json_free(j);
    buf_fini(&b);
    (void)unlink(v->known_path);
}

static void write_known(const struct verifier *v)
{
    struct json *j = json_object();
    struct buf b;
    struct err e = {0};
    for (struct model *m = models_first(v->ms); m != NULL; m = models_next(m)) {
        if (m->verify.first) {
            continue; /* still to be hashed before it is used */
        }
        struct json *o = json_add_object(j, m->name);
        json_add_str(o, "stamp", m->verify.stamp);
        json_add_int(o, "checked_ms", m->verify.checked_ms);
    }
    buf_init(&b, KNOWN_MAX);
    json_write(j, true, &b);
    json_free(j);
    if (!buf_ok(&b) || file_write(v->known_path, b.p, b.n, &e) != 0) {
        log_warn("verified", "%s is not written: %s, continuing",
                 v->known_path, e.msg);
    }
    buf_fini(&b);
}

void verify_end(struct models *ms)
{
    if (ms->verifier != NULL) {
        write_known(ms->verifier);
        free(ms->verifier);
        ms->verifier = NULL;
    }
}

/* --- what it comes to --- */

/* A word for a shell. */
static void put_word(struct buf *b, const char *s)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/";
    if (s[0] != '\0' && s[strspn(s, plain)] == '\0') {
        buf_puts(b, s);
        return;
    }
    buf_puts(b, "'");
    for (; *s != '\0'; s++) {
        if (*s == '\'') {
            buf_puts(b, "'\\''");
        } else {
            buf_u8(b, (uint8_t)*s);
        }
    }
    buf_puts(b, "'");
}

static void put_option(struct buf *b, const char *name, const struct json *v)
{
    char number[32];
    if (json_type(v) == JSON_NUMBER) {
        (void)snprintf(number, sizeof(number), "%.9g", json_num(v));
    } else if (json_str(v) == NULL) {
        return;
    }
    buf_printf(b, " --%s ", name);
    put_word(b, json_str(v) != NULL ? json_str(v) : number);
}

/* How to make the model again: as its job was asked to, or, without a job's
 * record, from what the manifest tells of its source. */
static void put_repair(struct buf *b, const struct model *m)
{
    static const char *const options[] = {"quant",  "context", "shape",
                                          "kv",     "profile", "norm",
                                          "residual-scale"};
    static const char *const keys[] = {"quant", "context", "shape",
                                       "kv",    "profile", "norm",
                                       "residual_scale"};
    struct jobs *js = m->of->srv->jobs;
    struct job *j = js != NULL ? jobs_find(js, m->job) : NULL;
    struct json *spec = NULL;
    if (j != NULL && job_row(j)->spec != NULL &&
        json_parse(job_row(j)->spec, strlen(job_row(j)->spec), &spec, NULL) !=
            0) {
        spec = NULL;
    }
    const char *source = json_str(json_get(spec, "source"));
    buf_puts(b, "; convert it again: anectl rm ");
    put_word(b, m->name);
    buf_puts(b, " && anectl convert ");
    put_word(b, source != NULL ? source : m->bundle->source_name);
    buf_puts(b, " --name ");
    put_word(b, m->name);
    for (size_t i = 0; source != NULL && i < countof(keys); i++) {
        put_option(b, options[i], json_get(spec, keys[i]));
    }
    if (source == NULL) {
        buf_puts(b, " --quant ");
        put_word(b, m->bundle->quant);
        buf_printf(b, " --context %u", m->bundle->context);
    }
    json_free(spec);
}

static void damaged(struct model *m, const char *what)
{
    struct buf b;
    struct err why = {0};
    m->verify.state = VERIFY_DAMAGED;
    m->verify.stamp[0] = '\0';
    buf_init(&b, KIB(16));
    buf_printf(&b, "damaged: %s", what);
    put_repair(&b, m);
    log_error("model_damaged", "model=%s %s", m->name, what);
    (void)err_set(&why, ERR_MODEL_FAILED, "damaged: %s", what);
    model_condemn(m, &why, buf_ok(&b) ? b.p : why.msg);
    buf_fini(&b);
}

static void sound(struct model *m, const char *stamp)
{
    m->verify.state = VERIFY_SOUND;
    m->verify.first = false;
    m->verify.lost = 0;
    m->verify.checked_ms = server_unix_ms();
    (void)snprintf(m->verify.stamp, sizeof(m->verify.stamp), "%s", stamp);
    log_info("model_verified", "model=%s bytes=%llu", m->name,
             (unsigned long long)m->bundle->total_bytes);
    model_checked(m, NULL);
}

/* Rows come by path, of which they keep so many bytes. */
static int by_path(const void *path, const void *row)
{
    const struct store_artifact *a = row;
    return strncmp(path, a->path, sizeof(a->path) - 1);
}

/* The rows that were written when it was published. */
static bool same_rows(const struct bundle *b, const struct store_artifact *v,
                      size_t n)
{
    for (size_t i = 0; n == b->n_files && i < n; i++) {
        const struct bundle_file *f = &b->files[i];
        const struct store_artifact *a =
            bsearch(f->path, v, n, sizeof(*v), by_path);
        if (a == NULL || a->bytes != f->bytes ||
            strcmp(a->sha256, f->sha256) != 0) {
            return false;
        }
    }
    return n == b->n_files;
}

static void on_rows(void *ctx, int status, const struct store_artifact *a,
                    size_t n)
{
    struct rows *r = ctx;
    struct verifier *v = r->v;
    struct model *m = r->m;
    if (m != NULL) {
        v->rows = NULL;
        v->current = NULL;
    }
    if (m != NULL && !v->stopping) {
        m->verify.asked = false; /* also when it was asked meanwhile */
        /* n 0: adopted after a crash, when its rows had not been written */
        if (status == 0 && n > 0 && !same_rows(m->bundle, a, n)) {
            damaged(m, "bundle.json does not name the files that the store "
                       "knows");
        } else {
            sound(m, r->stamp);
        }
    }
    free(r);
    next(v);
}

static void compare_rows(struct verifier *v, const char *stamp)
{
    struct rows *r = calloc(1, sizeof(*r));
    must(r != NULL);
    r->v = v;
    r->m = v->current;
    v->rows = r;
    (void)snprintf(r->stamp, sizeof(r->stamp), "%s", stamp);
    if (store_artifacts(v->ms->srv->store, r->m->name, on_rows, r) != 0) {
        on_rows(r, ERR_BUSY, NULL, 0);
    }
}

/* --- the child --- */

static void drop_child(struct verifier *v)
{
    child_drop(v->child);
    v->child = NULL;
}

static void on_progress(struct verifier *v, const struct frame *f)
{
    struct json *o = NULL;
    if (json_parse((const char *)f->payload, f->n, &o, NULL) == 0 &&
        json_want_num(o, "fraction", true, 0, 1, &v->current->verify.progress,
                      NULL) == 0) {
        model_changed(v->current);
    }
    json_free(o);
}

static void on_done(struct verifier *v, const struct frame *f)
{
    struct model *m = v->current;
    struct json *o = NULL;
    const char *stamp = "";
    bool hashed = true;
    if (json_parse((const char *)f->payload, f->n, &o, NULL) != 0 ||
        json_want_str(o, "stamp", true, &stamp, NULL) != 0 ||
        json_want_bool(o, "hashed", true, &hashed, NULL) != 0) {
        json_free(o);
        child_kill(v->child, ERR_FRAME);
        return;
    }
    drop_child(v);
    m->verify.asked = false;
    if (!hashed) {
        m->verify.state = VERIFY_SOUND;
        v->current = NULL;
        model_checked(m, NULL);
        next(v);
    } else {
        compare_rows(v, stamp);
    }
    json_free(o);
}

/* It ended without an answer (somebody killed it, memory was short): nothing is
 * known. Tried again while somebody waits for it. */
static void lost(struct verifier *v, int code, const char *why)
{
    struct model *m = v->current;
    struct err e = {0};
    v->current = NULL;
    log_warn("verify_lost", "model=%s %s, continuing", m->name, why);
    if (++m->verify.lost < LOST_MAX && (m->verify.asked || m->awaits_check)) {
        m->verify.state = VERIFY_QUEUED;
        return;
    }
    m->verify.state = VERIFY_UNKNOWN;
    m->verify.asked = false;
    m->verify.lost = 0;
    (void)err_set(&e, code, "its files could not be verified: %s", why);
    if (m != v->holding) {
        model_checked(m, &e);
    }
}

static void on_error(struct verifier *v, const struct frame *f)
{
    struct model *m = v->current;
    struct msg_error x = {0};
    struct err e = {0};
    if (msg_error_get(f->payload, f->n, &x, &e) != 0) {
        child_kill(v->child, ERR_FRAME);
        return;
    }
    drop_child(v);
    if (x.code == ERR_BUNDLE || x.code == ERR_IO) {
        v->current = NULL;
        m->verify.asked = false;
        damaged(m, x.msg);
    } else {
        lost(v, x.code < 0 ? x.code : ERR_INTERNAL, x.msg);
    }
    next(v);
}

static void on_frame(void *ctx, const struct frame *f)
{
    struct verifier *v = ctx;
    if (f->type == FRAME_PROGRESS) {
        on_progress(v, f);
    } else if (f->type == FRAME_VERIFY_DONE) {
        on_done(v, f);
    } else if (f->type == FRAME_ERROR) {
        on_error(v, f);
    } else {
        child_kill(v->child, ERR_FRAME);
    }
}

static void on_gone(void *ctx, const struct child_exit *x)
{
    struct verifier *v = ctx;
    char why[64];
    v->child = NULL;
    if (v->current != NULL) {
        (void)snprintf(why, sizeof(why), "status %d, signal %d",
                       (int)x->status, x->signal);
        lost(v, ERR_WORKER_LOST, why);
    }
    next(v);
}

static void begin(struct verifier *v, struct model *m)
{
    struct child_conf c = {
        .role = "verify-worker",
        .fd = -1,
        .frame_max = FRAME_WORKER_MAX,
        .ctx = v,
        .on_frame = on_frame,
        .on_exit = on_gone,
    };
    struct err e = {0};
    v->current = m;
    m->verify.state = VERIFY_RUNNING;
    m->verify.progress = 0;
    if (child_spawn(&v->ms->srv->loop, &c, &v->child, &e) != 0) {
        v->child = NULL;
        lost(v, e.code, e.msg);
        return;
    }
    struct json *o = json_object();
    struct buf b;
    json_add_str(o, "bundle", m->dir);
    json_add_str(o, "known",
                 m->verify.asked || m->verify.first ? "" : m->verify.stamp);
    json_add_bool(o, "gentle", !m->verify.asked && !m->awaits_check);
    buf_init(&b, FRAME_WORKER_MAX);
    json_write(o, false, &b);
    json_free(o);
    if (buf_ok(&b)) {
        child_send(v->child, FRAME_VERIFY, 1, b.p, b.n);
    } else {
        child_kill(v->child, ERR_TOO_BIG);
    }
    buf_fini(&b);
    model_changed(m);
}

static int rank(const struct model *m)
{
    return m->awaits_check ? 2 : m->verify.asked ? 1 : 0;
}

/* The most wanted one of those that wait; NULL. */
static struct model *wanted(const struct verifier *v)
{
    struct model *best = NULL;
    for (struct model *m = models_first(v->ms); m != NULL; m = models_next(m)) {
        if (m->verify.state == VERIFY_QUEUED &&
            (best == NULL || rank(m) > rank(best))) {
            best = m;
        }
    }
    return best;
}

static void next(struct verifier *v)
{
    struct model *m = v->stopping ? NULL : wanted(v);
    if (m == NULL) {
        return;
    }
    if (v->current != NULL) {
        if (v->child == NULL || rank(v->current) >= rank(m)) {
            return; /* the store is answering, or it is as urgent */
        }
        v->current->verify.state = VERIFY_QUEUED;
        v->current = NULL;
        drop_child(v);
    }
    begin(v, m);
}

/* --- what others ask for --- */

static void queue(struct model *m)
{
    struct verifier *v = m->of->verifier;
    if (v == NULL || v->stopping) {
        return;
    }
    if (m->verify.state != VERIFY_RUNNING) {
        m->verify.state = VERIFY_QUEUED;
    } else if (v->child != NULL) { /* begin again, the other way */
        drop_child(v);
        v->current = NULL;
        m->verify.state = VERIFY_QUEUED;
    }
    next(v);
}

void verify_loaded(struct model *m)
{
    if (m->bundle != NULL && m->verify.state != VERIFY_QUEUED &&
        m->verify.state != VERIFY_RUNNING) {
        queue(m);
    }
}

bool verify_holds(struct model *m)
{
    if (!m->verify.first || m->of->verifier == NULL) {
        return false;
    }
    m->awaits_check = true;
    m->of->verifier->holding = m;
    queue(m);
    m->of->verifier->holding = NULL;
    /* without a child for it there would be none for the engine either */
    m->awaits_check = m->verify.state == VERIFY_QUEUED ||
                      m->verify.state == VERIFY_RUNNING;
    return m->awaits_check;
}

int verify_ask(struct model *m, struct err *e)
{
    if (m->bundle == NULL) {
        return err_set(e, ERR_BUNDLE, "%s: %s", m->name,
                       m->reason != NULL ? m->reason : "it has no manifest");
    }
    if (!m->verify.asked) {
        m->verify.asked = true;
        queue(m);
    }
    return 0;
}

void verify_forget(struct model *m)
{
    struct verifier *v = m->of->verifier;
    if (v == NULL || v->current != m) {
        return;
    }
    if (v->rows != NULL) {
        v->rows->m = NULL;
        v->rows = NULL;
    }
    v->current = NULL;
    drop_child(v);
    m->verify.state = VERIFY_UNKNOWN;
    next(v);
}

void verify_stop(struct models *ms)
{
    struct verifier *v = ms->verifier;
    if (v == NULL) {
        return;
    }
    v->stopping = true;
    if (v->child != NULL) {
        v->current->verify.state = VERIFY_UNKNOWN;
        v->current = NULL;
        drop_child(v);
    }
}

void verify_put(struct json *o, const struct model *m)
{
    struct json *x = json_add_object(o, "verification");
    bool runs = m->verify.state == VERIFY_RUNNING;
    json_add_str(x, "state", verify_state_name(m->verify.state));
    if (runs) {
        json_add_num(x, "progress", m->verify.progress);
    } else {
        json_add_null(x, "progress");
    }
    if (m->verify.checked_ms != 0) {
        json_add_int(x, "checked_ms", m->verify.checked_ms);
    } else {
        json_add_null(x, "checked_ms");
    }
}
