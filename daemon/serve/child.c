/* child.c - see child.h.
 *
 * Three handles are closed before the memory is freed: process, pipe, timer.
 * The exit and the end of the pipe come in any order, so on_exit waits for
 * both; when a grandchild keeps the pipe open, it is closed after LINGER_MS. */
#include "serve/child.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

#if defined(__APPLE__)
#include <mach-o/dyld.h>
#endif

#define CHILD_MAGIC 0x44494843u
#define LINGER_MS   1000u
#define READ_BYTES  KIB(64)

struct child {
    uint32_t magic;
    uv_process_t process;
    uv_pipe_t pipe;
    uv_timer_t timer; /* may come before due_ms, and looks again */
    uint64_t due_ms;  /* the deadline, in the loop's time; 0: none */
    unsigned open; /* handles libuv still holds */
    bool exited, eof, told;
    struct child_exit exit;
    struct child_conf conf; /* callbacks NULL once dropped */
    struct frame_in in;
    struct buf frames; /* put, and not sent yet */
    char read[READ_BYTES];
};

struct out { /* the rest of a frame on its way */
    uv_write_t req;
    struct buf b;
};

static struct child *of_handle(uv_handle_t *h)
{
    struct child *c = uv_handle_get_data(h);
    must(c != NULL && c->magic == CHILD_MAGIC);
    return c;
}

static void on_closed(uv_handle_t *h)
{
    struct child *c = of_handle(h);
    if (--c->open > 0) {
        return;
    }
    frame_in_fini(&c->in);
    buf_fini(&c->frames);
    c->magic = 0;
    free(c);
}

static void close_all(struct child *c)
{
    uv_handle_t *h[] = {(uv_handle_t *)&c->process, (uv_handle_t *)&c->pipe,
                        (uv_handle_t *)&c->timer};
    for (size_t i = 0; i < countof(h); i++) {
        if (!uv_is_closing(h[i])) {
            uv_close(h[i], on_closed);
        }
    }
}

static void maybe_over(struct child *c)
{
    if (!c->exited || !c->eof || c->told) {
        return;
    }
    c->told = true;
    void (*fn)(void *, const struct child_exit *) = c->conf.on_exit;
    struct child_exit x = c->exit;
    close_all(c); /* memory lives until on_closed */
    if (fn != NULL) {
        fn(c->conf.ctx, &x);
    }
}

static void on_timer(uv_timer_t *t)
{
    struct child *c = of_handle((uv_handle_t *)t);
    uint64_t now = uv_now(t->loop);
    if (c->exited) {
        c->eof = true;
        maybe_over(c);
    } else if (c->eof || (c->due_ms != 0 && now >= c->due_ms)) {
        child_kill(c, c->eof ? 0 : ERR_TIMEOUT);
    } else if (c->due_ms != 0) {
        must(uv_timer_start(t, on_timer, c->due_ms - now, 0) == 0);
    }
}

static void on_process_exit(uv_process_t *p, int64_t status, int sig)
{
    struct child *c = of_handle((uv_handle_t *)p);
    c->exited = true;
    c->exit.status = status;
    c->exit.signal = sig;
    must(uv_timer_start(&c->timer, on_timer, LINGER_MS, 0) == 0);
    maybe_over(c);
}

static void on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *ret)
{
    struct child *c = of_handle(h);
    (void)hint;
    *ret = uv_buf_init(c->read, sizeof(c->read));
}

static void take_frames(struct child *c, const char *p, size_t n)
{
    struct err e = {0};
    struct frame f = {.request = 0};
    int rc = frame_in_put(&c->in, p, n, &e);
    while (rc == 0 && (rc = frame_in_next(&c->in, &f, &e)) == 1) {
        rc = 0;
        if (c->conf.on_frame != NULL && c->exit.code == 0) {
            c->conf.on_frame(c->conf.ctx, &f);
        }
    }
    if (rc < 0) {
        log_warn("child_malformed", "pid=%d error=%s, killing it",
                 c->process.pid, e.msg);
        child_kill(c, ERR_FRAME);
    }
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *buf)
{
    struct child *c = of_handle((uv_handle_t *)s);
    if (n < 0) {
        (void)uv_read_stop(s);
        c->eof = true;
        if (!c->exited) { /* it closed the pipe: it has LINGER_MS to exit */
            must(uv_timer_start(&c->timer, on_timer, LINGER_MS, 0) == 0);
        }
        maybe_over(c);
    } else if (n > 0) {
        take_frames(c, buf->base, (size_t)n);
    }
}

static int own_path(char *out, size_t size)
{
#if defined(__APPLE__)
    uint32_t n = (uint32_t)size;
    return _NSGetExecutablePath(out, &n) == 0 ? 0 : ERR_UNAVAILABLE;
#else
    /* Also right when the file was replaced or removed meanwhile. */
    return snprintf(out, size, "/proc/self/exe") < (int)size ? 0
                                                             : ERR_UNAVAILABLE;
#endif
}

/* What a child may see of our environment. */
static void child_env(char **env, size_t max, char *text, size_t size)
{
    static const char *const keep[] = {
        "HOME",         "TMPDIR",       "ASAN_OPTIONS",     "UBSAN_OPTIONS",
        "TSAN_OPTIONS", "LSAN_OPTIONS", "XPC_SERVICE_NAME", /* its lines go
                                                               where ours do
                                                               (base/log.c) */
        /* of tests: how what imitates Core ML behaves */
        "ANED_STANDIN", "ANED_STANDIN_COUNTS",
    };
    static char lang[] = "LANG=C";
    size_t n = 0, used = 0;
    env[n++] = lang;
    for (size_t i = 0; i < countof(keep) && n + 1 < max; i++) {
        const char *v = getenv(keep[i]);
        if (v == NULL) {
            continue;
        }
        int w = snprintf(text + used, size - used, "%s=%s", keep[i], v);
        if (w < 0 || (size_t)w >= size - used) {
            continue;
        }
        env[n++] = text + used;
        used += (size_t)w + 1;
    }
    env[n] = NULL;
}

int child_spawn(uv_loop_t *loop, const struct child_conf *conf,
                struct child **ret, struct err *e)
{
    char path[1024], role[32], name[] = "aned", text[4096];
    char *env[16];
    int rc = conf->program != NULL
                 ? (snprintf(path, sizeof(path), "%s", conf->program) <
                            (int)sizeof(path)
                        ? 0
                        : ERR_UNAVAILABLE)
                 : own_path(path, sizeof(path));
    if (rc != 0) {
        return err_set(e, rc, "the path of the program is too long");
    }
    (void)snprintf(role, sizeof(role), "%s", conf->role);
    child_env(env, countof(env), text, sizeof(text));
    struct child *c = calloc(1, sizeof(*c));
    must(c != NULL);
    c->magic = CHILD_MAGIC;
    c->conf = *conf;
    frame_in_init(&c->in, conf->frame_max);
    buf_init(&c->frames, conf->frame_max + FRAME_HEADER);
    must(uv_pipe_init(loop, &c->pipe, 0) == 0);
    must(uv_timer_init(loop, &c->timer) == 0);
    uv_handle_set_data((uv_handle_t *)&c->pipe, c);
    uv_handle_set_data((uv_handle_t *)&c->timer, c);
    uv_handle_set_data((uv_handle_t *)&c->process, c);
    c->open = 3;

    char *argv[] = {name, role, NULL};
    uv_stdio_container_t io[5] = {
        {.flags = UV_IGNORE                    },
        { .flags = UV_INHERIT_FD,              .data.fd = STDERR_FILENO},
        { .flags = UV_INHERIT_FD,              .data.fd = STDERR_FILENO},
        { .flags = (uv_stdio_flags)((unsigned)UV_CREATE_PIPE |
                                   (unsigned)UV_READABLE_PIPE |
                                   (unsigned)UV_WRITABLE_PIPE),
         .data.stream = (uv_stream_t *)&c->pipe},
        { .flags = UV_INHERIT_FD,                   .data.fd = conf->fd},
    };
    uv_process_options_t o = {
        .exit_cb = on_process_exit,
        .file = path,
        .args = argv,
        .env = env,
        .stdio_count = conf->fd >= 0 ? 5 : 4,
        .stdio = io,
    };
    rc = uv_spawn(loop, &c->process, &o);
    if (rc == 0) {
        rc = uv_read_start((uv_stream_t *)&c->pipe, on_alloc, on_read);
        must(rc == 0);
        *ret = c;
        return 0;
    }
    c->told = true;
    close_all(c);
    return err_set(e, ERR_UNAVAILABLE, "cannot start '%s %s': %s",
                   conf->program != NULL ? conf->program : "aned", conf->role,
                   uv_strerror(rc));
}

int child_pid(const struct child *c)
{
    return c->process.pid;
}

static void on_written(uv_write_t *w, int status)
{
    struct out *o = container_of(w, struct out, req);
    (void)status; /* a dead child is noticed by its end of file */
    buf_fini(&o->b);
    free(o);
}

/* Nearly always the pipe takes all of it at once; what it does not waits. */
void child_flush(struct child *c)
{
    must(c->magic == CHILD_MAGIC);
    uv_stream_t *s = (uv_stream_t *)&c->pipe;
    uv_buf_t b = uv_buf_init(c->frames.p, (unsigned)c->frames.n);
    if (b.len == 0 || c->eof || uv_is_closing((uv_handle_t *)s)) {
        return;
    }
    int done = uv_try_write(s, &b, 1);
    if (done != (int)b.len) {
        size_t from = done > 0 ? (size_t)done : 0; /* an error comes again */
        struct out *o = calloc(1, sizeof(*o));
        must(o != NULL);
        buf_init(&o->b, c->frames.n);
        buf_put(&o->b, c->frames.p + from, c->frames.n - from);
        must(buf_ok(&o->b));
        b = uv_buf_init(o->b.p, (unsigned)o->b.n);
        if (uv_write(&o->req, s, &b, 1, on_written) != 0) {
            on_written(&o->req, 0);
        }
    }
    buf_clear(&c->frames);
    if (c->frames.cap > READ_BYTES) { /* a long prompt's; most are small */
        size_t max = c->frames.max;
        buf_fini(&c->frames);
        buf_init(&c->frames, max);
    }
}

void child_put(struct child *c, enum frame_type type, uint32_t request,
               const void *payload, size_t n)
{
    must(c->magic == CHILD_MAGIC);
    uv_stream_t *s = (uv_stream_t *)&c->pipe;
    if (c->eof || c->exit.code != 0 || uv_is_closing((uv_handle_t *)s)) {
        return;
    }
    must(n <= c->conf.frame_max);
    if (c->frames.n + FRAME_HEADER + n > c->frames.max) {
        child_flush(c);
    }
    if (uv_stream_get_write_queue_size(s) + n > FRAME_QUEUE_MAX) {
        log_warn("child_stuck", "pid=%d does not read, killing it",
                 c->process.pid);
        child_kill(c, ERR_TIMEOUT);
        return;
    }
    frame_put(&c->frames, type, request, payload, n);
    must(buf_ok(&c->frames));
}

void child_send(struct child *c, enum frame_type type, uint32_t request,
                const void *payload, size_t n)
{
    child_put(c, type, request, payload, n);
    child_flush(c);
}

void child_send_json(struct child *c, enum frame_type type, uint32_t request,
                     const struct json *j)
{
    struct buf b;
    buf_init(&b, FRAME_WORKER_MAX);
    json_write(j, false, &b);
    if (buf_ok(&b)) {
        child_send(c, type, request, b.p, b.n);
    } else {
        child_kill(c, ERR_TOO_BIG);
    }
    buf_fini(&b);
}

void child_kill(struct child *c, int code)
{
    must(c->magic == CHILD_MAGIC);
    if (c->exit.code == 0) {
        c->exit.code = code;
    }
    if (!c->exited) {
        (void)uv_process_kill(&c->process, SIGKILL);
    }
}

/* Called twice a step, so a timer that comes early enough stays as it is. */
void child_deadline(struct child *c, uint64_t ms)
{
    must(c->magic == CHILD_MAGIC);
    if (c->exited || c->eof) {
        return; /* the timer counts the lingering half */
    }
    c->due_ms = ms > 0 ? uv_now(c->timer.loop) + ms : 0;
    bool armed = uv_is_active((uv_handle_t *)&c->timer) != 0;
    if (ms > 0 && (!armed || uv_timer_get_due_in(&c->timer) > ms)) {
        must(uv_timer_start(&c->timer, on_timer, ms, 0) == 0);
    }
}

void child_drop(struct child *c)
{
    if (c == NULL) {
        return;
    }
    c->conf.on_frame = NULL;
    c->conf.on_exit = NULL;
    child_kill(c, ERR_CANCELLED);
}
