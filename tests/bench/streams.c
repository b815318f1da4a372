/* streams.c - N completion streams at once, counted as cheaply as can be: on a
 * machine of two cores a client's own work is time that the engine lacks.
 *
 *   bench_streams SOCKET MODEL STREAMS TOKENS SALT [PROMPT]
 *
 * Prints {"tok_s": events a second from the moment when every stream has its
 * first until one of them ends (0: there was no such time), "ttft_ms": the
 * longest time to a first one, "wall_ms": until the last ended}. Events are
 * counted, not parsed. With PROMPT all have that one, and nothing warm is used;
 * else each has one of its own. Exit 1 when a stream ends early or stands still
 * for a minute.
 */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define STREAMS_MAX 64
#define STALL_MS    60000
#define EVENT       "data: {"
#define END         "data: [DONE]"
#define KEEP        (sizeof(END) - 2) /* bytes that may begin a mark */

static const char prompt[] =
    "a daemon that keeps every conversation warm and answers at once";

struct stream {
    int fd;
    bool started, ended;
    size_t tail; /* bytes of the last read that are looked at again */
    char buf[KEEP + 65536 + 1];
};

static struct stream streams[STREAMS_MAX];

static void fail(const char *what)
{
    (void)fprintf(stderr, "bench_streams: %s\n", what);
    exit(1);
}

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int dial(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || strlen(path) >= sizeof(a.sun_path)) {
        fail("no socket");
    }
    memcpy(a.sun_path, path, strlen(path) + 1);
    if (connect(fd, (const struct sockaddr *)&a, sizeof(a)) != 0) {
        fail("nobody listens there");
    }
    return fd;
}

/* model, salt and text (NULL: our own) come from bench_http.py and overhead.py:
 * no quotes in them. */
static void ask(int fd, const char *model, int stream, int tokens,
                const char *salt, const char *text)
{
    char body[1024];
    char head[256];
    char own[256];
    (void)snprintf(own, sizeof(own), "%s %d %s", salt, stream, prompt);
    int n = snprintf(body, sizeof(body),
                     "{\"model\":\"%s\",\"prompt\":\"%s\",\"max_tokens\":%d,"
                     "\"ignore_eos\":true,\"temperature\":0,\"stream\":true,"
                     "\"cache_prompt\":%s}",
                     model, text != NULL ? text : own, tokens,
                     text != NULL ? "false" : "true");
    int h = snprintf(head, sizeof(head),
                     "POST /v1/completions HTTP/1.1\r\nHost: aned\r\n"
                     "Content-Type: application/json\r\n"
                     "Content-Length: %d\r\n\r\n",
                     n);
    if (n < 0 || (size_t)n >= sizeof(body) || write(fd, head, (size_t)h) != h ||
        write(fd, body, (size_t)n) != n) {
        fail("the request was not taken");
    }
}

/* Events that are whole in s->buf of n bytes; the end of the stream is noted.
 */
static unsigned count(struct stream *s, size_t n)
{
    unsigned events = 0;
    s->buf[n] = '\0';
    for (const char *p = s->buf; (p = strstr(p, EVENT)) != NULL;) {
        p += sizeof(EVENT) - 1;
        events++;
    }
    s->ended = strstr(s->buf, END) != NULL;
    s->tail = n < KEEP ? n : KEEP;
    /* a whole event mark in the tail has been counted: spoil it */
    memmove(s->buf, s->buf + n - s->tail, s->tail);
    s->buf[s->tail] = '\0';
    char *again = strstr(s->buf, EVENT);
    if (again != NULL) {
        *again = ' ';
    }
    return events;
}

static unsigned take(struct stream *s)
{
    ssize_t n = read(s->fd, s->buf + s->tail, 65536);
    if (n < 0 && errno == EINTR) {
        return 0;
    }
    if (n <= 0) {
        fail("a stream ended early");
    }
    return count(s, s->tail + (size_t)n);
}

int main(int argc, char **argv)
{
    if (argc != 6 && argc != 7) {
        fail("usage: bench_streams SOCKET MODEL STREAMS TOKENS SALT [PROMPT]");
    }
    int n = atoi(argv[3]);
    int live = n;
    int waiting = n; /* streams without a first event */
    unsigned counted = 0;
    struct pollfd p[STREAMS_MAX];
    if (n < 1 || n > STREAMS_MAX) {
        fail("1 to 64 streams");
    }
    for (int i = 0; i < n; i++) {
        streams[i].fd = dial(argv[1]);
        p[i] = (struct pollfd){.fd = streams[i].fd, .events = POLLIN};
    }
    double start = now();
    double all = start;
    double last = start;
    for (int i = 0; i < n; i++) {
        ask(streams[i].fd, argv[2], i, atoi(argv[4]), argv[5],
            argc == 7 ? argv[6] : NULL);
    }
    while (live > 0) {
        if (poll(p, (nfds_t)n, STALL_MS) <= 0) {
            fail("the streams stand still");
        }
        double at = now();
        for (int i = 0; i < n; i++) {
            if (p[i].revents == 0) {
                continue;
            }
            struct stream *s = &streams[i];
            unsigned events = take(s);
            if (waiting == 0 && live == n) { /* all of them run */
                counted += events;
                last = events > 0 ? at : last;
            }
            if (events > 0 && !s->started) {
                s->started = true;
                all = at;
                waiting--;
            }
            if (s->ended) {
                p[i].fd = -1;
                live--;
            }
        }
    }
    (void)printf("{\"tok_s\": %.3f, \"ttft_ms\": %.3f, \"wall_ms\": %.3f}\n",
                 last > all ? (double)counted / (last - all) : 0.0,
                 (all - start) * 1e3, (now() - start) * 1e3);
    return 0;
}
