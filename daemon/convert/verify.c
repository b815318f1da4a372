/* verify.c - the verify role. See verify.h.
 *
 * It reads with read(2) in pieces and holds one piece at a time. The parent
 * ends it with SIGKILL; if the parent has ended, writing the next progress
 * frame fails.
 */
#include "convert/verify.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if defined(__linux__)
#include <sched.h>
#endif
#include <sys/resource.h>

#include "base/log.h"
#include "base/qos.h"
#include "model/bundle.h"
#include "proto/msg.h"
#include "proto/parent.h"

#define TELL_NS     100000000 /* between progress frames */
#define GENTLE_REST 3         /* times as long at rest as at work, */
#define REST_MAX_NS 250000000 /* but no longer; as long when it is busy */

struct verifying {
    struct frame_in in;
    uint32_t request;
    const char *dir;
    const char *known;
    bool gentle, busy;
    uint64_t total;
    int64_t told_ns, piece_ns; /* last progress frame; start of this piece */
};

static int64_t now_ns(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The scheduler runs us when nothing else wants the core. */
static void stand_back(void)
{
    qos_set(QOS_BACKGROUND);
    (void)setpriority(PRIO_PROCESS, 0, 19);
#if defined(__linux__)
    struct sched_param p = {0};
    (void)sched_setscheduler(0, SCHED_IDLE, &p);
#endif
}

/* Take a frame that comes within ms, if one does. */
static int hear(struct verifying *v, int ms, struct err *e)
{
    struct frame f = {.n = 0};
    struct json *j = NULL;
    struct pollfd p = {.fd = CONTROL_FD, .events = POLLIN};
    int rc = frame_in_next(&v->in, &f, e);
    if (rc == 0 && poll(&p, 1, ms) > 0) {
        rc = frame_read_fd(CONTROL_FD, &v->in, &f, e);
        rc = rc != 0 ? rc : err_set(e, ERR_CANCELLED, "the daemon is gone");
    }
    if (rc <= 0) {
        return rc;
    }
    if (f.type != FRAME_BUSY) {
        return err_set(e, ERR_FRAME, "a frame of type %d while hashing",
                       (int)f.type);
    }
    rc = json_parse((const char *)f.payload, f.n, &j, e);
    rc = rc < 0 ? rc : json_want_bool(j, "busy", true, &v->busy, e);
    json_free(j);
    return rc;
}

/* At most REST_MAX_NS: the files of a model that is never idle are hashed too,
 * and a piece that waited for a core needs no rest in proportion. */
static int rest(struct verifying *v, struct err *e)
{
    int64_t from = now_ns();
    int64_t now = from;
    int64_t want = (from - v->piece_ns) * GENTLE_REST;
    do {
        want = v->busy || want > REST_MAX_NS ? REST_MAX_NS : want;
        int64_t left = from + want - now;
        RETERR(hear(v, left > 0 ? (int)(left / 1000000) + 1 : 0, e));
        now = now_ns();
    } while (now < from + want);
    return 0;
}

static bool on_hashed(void *ctx, uint64_t bytes)
{
    struct verifying *v = ctx;
    struct err e = {0};
    if (v->gentle && rest(v, &e) != 0) {
        return false;
    }
    int64_t now = now_ns();
    v->piece_ns = now;
    if (now - v->told_ns < TELL_NS) {
        return true;
    }
    v->told_ns = now;
    struct json *j = json_object();
    json_add_num(j, "fraction",
                 v->total > 0 ? (double)bytes / (double)v->total : 1);
    return parent_tell(v->request, FRAME_PROGRESS, j, &e) == 0;
}

static int verify(struct verifying *v, struct err *e)
{
    struct bundle *b = NULL;
    struct json *j = NULL;
    char before[SHA256_HEX];
    char after[SHA256_HEX];
    bool hash = false;
    int rc = 0;
    CHECK(bundle_open(v->dir, &b, e));
    v->total = b->total_bytes;
    CHECK(bundle_stamp(b, before, e));
    hash = strcmp(before, v->known) != 0;
    if (hash) {
        v->told_ns = v->piece_ns = now_ns();
        CHECK(bundle_verify(b, on_hashed, v, e));
    }
    CHECK(bundle_stamp(b, after, e));
    j = json_object();
    json_add_str(j, "stamp", strcmp(before, after) == 0 ? after : "");
    json_add_bool(j, "hashed", hash);
    rc = parent_tell(v->request, FRAME_VERIFY_DONE, j, e);
out:
    bundle_close(b);
    return rc;
}

static int read_spec(struct verifying *v, const struct frame *f,
                     struct json **spec, struct err *e)
{
    v->request = f->request;
    v->known = "";
    if (f->type != FRAME_VERIFY) {
        return err_set(e, ERR_FRAME, "a frame of type %d comes first",
                       (int)f->type);
    }
    RETERR(json_parse((const char *)f->payload, f->n, spec, e));
    RETERR(json_want_str(*spec, "bundle", true, &v->dir, e));
    RETERR(json_want_str(*spec, "known", false, &v->known, e));
    RETERR(json_want_bool(*spec, "gentle", false, &v->gentle, e));
    return json_want_bool(*spec, "busy", false, &v->busy, e);
}

static int run_spec(struct verifying *v, const struct frame *f,
                    struct json **spec, struct err *e)
{
    RETERR(read_spec(v, f, spec, e));
    if (v->gentle) {
        stand_back();
    }
    return verify(v, e);
}

int verify_role(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    struct verifying v = {0};
    struct frame f = {.n = 0};
    struct json *spec = NULL;
    struct err e = {0};
    log_setup(LOG_INFO, "verify");
    (void)signal(SIGPIPE, SIG_IGN);
    frame_in_init(&v.in, FRAME_WORKER_MAX);
    int rc = frame_read_fd(CONTROL_FD, &v.in, &f, &e);
    int code = EXIT_SUCCESS; /* 0: the parent changed its mind */
    if (rc != 0) {
        rc = rc < 0 ? rc : run_spec(&v, &f, &spec, &e);
        code = rc < 0 ? parent_tell_error(v.request, &e) : EXIT_SUCCESS;
    }
    json_free(spec);
    frame_in_fini(&v.in);
    return code;
}
