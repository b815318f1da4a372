/* verify.c - which model is hashed next, its child, and what is known over a
 * restart. See verify.h; what a child's answer comes to is verify_result.c.
 *
 *   UNKNOWN --load, ask--> QUEUED --child--> RUNNING --same--> SOUND
 *      ^                      ^                 |   \--other--> DAMAGED
 *      +---child was lost-----+---somebody waits for another model
 *
 * The next one is a model that a load waits for, then one that was asked
 * about, then any; who waits takes the place of who does not.
 */
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "proto/json.h"
#include "proto/msg.h"
#include "serve/child.h"
#include "serve/engines/verify_impl.h"

#define KNOWN_FILE "verified.json"
#define KNOWN_MAX  MIB(1)
#define LOST_MAX   3u /* children of one model that ended without an answer */

const char *verify_state_name(enum verify_state s)
{
    static const char *const names[] = {"unknown", "queued", "running",
                                        "verified", "damaged"};
    return names[s];
}

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
        verify_next(v);
    } else {
        verify_rows(v, stamp);
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
        verify_damaged(m, x.msg);
    } else {
        lost(v, x.code < 0 ? x.code : ERR_INTERNAL, x.msg);
    }
    verify_next(v);
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
    verify_next(v);
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
    v->gentle = !m->verify.asked && !m->awaits_check;
    m->verify.state = VERIFY_RUNNING;
    m->verify.progress = 0;
    if (child_spawn(&v->ms->srv->loop, &c, &v->child, &e) != 0) {
        v->child = NULL;
        lost(v, e.code, e.msg);
        return;
    }
    struct json *o = json_object();
    json_add_str(o, "bundle", m->dir);
    json_add_str(o, "known",
                 m->verify.asked || m->verify.first ? "" : m->verify.stamp);
    json_add_bool(o, "gentle", v->gentle);
    json_add_bool(o, "busy", v->ms->n_used > 0);
    child_send_json(v->child, FRAME_VERIFY, 1, o);
    json_free(o);
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

void verify_next(struct verifier *v)
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
    verify_next(v);
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

void verify_busy(struct models *ms)
{
    struct verifier *v = ms->verifier;
    if (v == NULL || v->child == NULL || !v->gentle) {
        return;
    }
    struct json *o = json_object();
    json_add_bool(o, "busy", ms->n_used > 0);
    child_send_json(v->child, FRAME_BUSY, 1, o);
    json_free(o);
}

void verify_forget(struct model *m)
{
    struct verifier *v = m->of->verifier;
    if (v == NULL || v->current != m) {
        return;
    }
    verify_rows_leave(v);
    v->current = NULL;
    drop_child(v);
    m->verify.state = VERIFY_UNKNOWN;
    verify_next(v);
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
