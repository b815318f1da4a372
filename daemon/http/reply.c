/* reply.c - answers, whole and as streams, and the getters of a request. A
 * handler may answer after its client left, while the connection is closing and
 * on_gone was not called yet: then the calls only end the request. */
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "http/conn.h"
#include "http/route.h"

static bool alive(const struct http_req *r)
{
    must(r != NULL && r->magic == REQ_MAGIC);
    return r->conn->state != CONN_CLOSING;
}

const char *http_reason(int status)
{
    static const struct {
        int status;
        const char *reason;
    } rows[] = {
        {200, "OK"                             },
        {201, "Created"                        },
        {202, "Accepted"                       },
        {204, "No Content"                     },
        {400, "Bad Request"                    },
        {401, "Unauthorized"                   },
        {403, "Forbidden"                      },
        {404, "Not Found"                      },
        {405, "Method Not Allowed"             },
        {408, "Request Timeout"                },
        {409, "Conflict"                       },
        {413, "Content Too Large"              },
        {414, "URI Too Long"                   },
        {415, "Unsupported Media Type"         },
        {417, "Expectation Failed"             },
        {422, "Unprocessable Content"          },
        {429, "Too Many Requests"              },
        {431, "Request Header Fields Too Large"},
        {499, "Client Closed Request"          },
        {500, "Internal Server Error"          },
        {501, "Not Implemented"                },
        {503, "Service Unavailable"            },
        {505, "HTTP Version Not Supported"     },
        {507, "Insufficient Storage"           },
    };
    for (size_t i = 0; i < countof(rows); i++) {
        if (rows[i].status == status) {
            return rows[i].reason;
        }
    }
    return "Unknown"; /* the reason is for people; RFC 9112 lets it be any */
}

/* RFC 9110 5.6.7; strftime would follow the locale. */
static void put_date(struct http_server *s, struct buf *out)
{
    static const char days[] = "SunMonTueWedThuFriSat";
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    time_t now = time(NULL);
    struct tm t = {0};
    if (now != s->date_at && gmtime_r(&now, &t) != NULL) {
        s->date_at = now;
        (void)snprintf(s->date, sizeof(s->date),
                       "Date: %.3s, %02d %.3s %04d %02d:%02d:%02d GMT\r\n",
                       days + 3 * t.tm_wday, t.tm_mday, months + 3 * t.tm_mon,
                       t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
    }
    buf_puts(out, s->date);
}

void reply_head(struct http_req *r, int status, const char *type,
                int64_t length, const char *extra, struct buf *out)
{
    struct http_conn *c = r->conn;
    struct http_stats *st = &c->srv->stats;

    st->responses_4xx += status >= 400 && status < 500;
    st->responses_5xx += status >= 500;
    if (c->srv->draining || (length < 0 && r->msg.http10)) {
        c->keep = false;
    }
    buf_puts(out, "HTTP/1.1 ");
    buf_dec(out, (uint64_t)status);
    buf_puts(out, " ");
    buf_puts(out, http_reason(status));
    buf_puts(out, "\r\n");
    put_date(c->srv, out);
    buf_puts(out, "Content-Type: ");
    buf_puts(out, type != NULL ? type : "application/json");
    buf_puts(out, "\r\n");
    if (length >= 0) {
        buf_puts(out, "Content-Length: ");
        buf_dec(out, (uint64_t)length);
        buf_puts(out, "\r\n");
    } else if (!r->msg.http10) {
        buf_puts(out, "Transfer-Encoding: chunked\r\n");
    }
    buf_puts(out, "X-Content-Type-Options: nosniff\r\n"
                  "Cache-Control: no-store\r\n");
    if (status == 503) {
        buf_puts(out, "Retry-After: 1\r\n");
    }
    if (!c->keep) {
        buf_puts(out, "Connection: close\r\n");
    } else if (r->msg.http10) {
        buf_puts(out, "Connection: keep-alive\r\n");
    }
    if (r->pass.origin != NULL) { /* of our own list; never a '*' */
        buf_puts(out, "Access-Control-Allow-Origin: ");
        buf_puts(out, r->pass.origin);
        buf_puts(out, "\r\nVary: Origin\r\n");
    }
    if (extra != NULL) {
        buf_puts(out, extra);
    }
    buf_puts(out, "\r\n");
    must(buf_ok(out)); /* all parts are ours and small */
}

enum { HEAD_MAX = 2048 };

/* A large answer has room among what others have not read yet. */
static bool has_room(const struct http_req *r, size_t n)
{
    if (n <= HTTP_OUT_HIGH) {
        return true;
    }
    struct http_stats st;
    http_get_stats(r->conn->srv, &st);
    return st.bytes_queued + n <= HTTP_QUEUED_MAX;
}

static void reply(struct http_req *r, int status, const char *type,
                  const void *body, size_t n, const char *extra)
{
    struct http_conn *c = r->conn;
    struct buf head;

    must(!r->streaming);
    if (!alive(r)) {
        conn_answered(c);
        return;
    }
    buf_init(&head, HEAD_MAX);
    reply_head(r, status, type, (int64_t)n, extra, &head);
    if (!r->msg.is_head && n > 0) { /* one write with the body */
        buf_put(&c->waiting, head.p, head.n);
        c->srv->stats.bytes_out += head.n;
        conn_write(c, body, n);
    } else {
        conn_write(c, head.p, head.n);
    }
    buf_fini(&head);
    conn_answered(c);
}

void http_reply(struct http_req *r, int status, const char *content_type,
                const void *body, size_t n)
{
    http_reply_with(r, status, content_type, NULL, body, n);
}

void http_reply_with(struct http_req *r, int status, const char *content_type,
                     const char *headers, const void *body, size_t n)
{
    must(r != NULL && r->magic == REQ_MAGIC);
    must(headers == NULL || strlen(headers) <= HTTP_EXTRA_MAX);
    if (n > HTTP_REPLY_MAX - HEAD_MAX) {
        http_reply_error(r, ERR_INTERNAL,
                         "the answer is larger than the limit");
        return;
    }
    if (!has_room(r, n)) {
        http_reply_error(r, ERR_BUSY, "too many large answers are not read");
        return;
    }
    reply(r, status, content_type, body, n, headers);
}

void http_reply_take(struct http_req *r, int status, const char *content_type,
                     struct buf *b)
{
    struct buf head;
    must(r != NULL && r->magic == REQ_MAGIC && b->n >= HTTP_HEAD_ROOM);
    size_t n = b->n - HTTP_HEAD_ROOM;
    if (r->msg.is_head || !alive(r) || n > HTTP_REPLY_MAX - HEAD_MAX ||
        !has_room(r, n)) {
        http_reply(r, status, content_type, b->p + HTTP_HEAD_ROOM, n);
        return;
    }
    buf_init(&head, HTTP_HEAD_ROOM); /* ours and small */
    reply_head(r, status, content_type, (int64_t)n, NULL, &head);
    memcpy(b->p + HTTP_HEAD_ROOM - head.n, head.p, head.n);
    conn_take(r->conn, b, HTTP_HEAD_ROOM - head.n);
    buf_fini(&head);
    conn_answered(r->conn);
}

const char *http_error_type(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 501:
        return "not_supported_error";
    case 503:
        return "unavailable_error";
    default:
        return status < 500 ? "invalid_request_error" : "server_error";
    }
}

/* Messages are ASCII without control bytes (err.h); here only JSON's own two
 * need an escape, and anything else unexpected becomes '?'. */
static void put_text(struct buf *b, const char *s)
{
    buf_u8(b, '"');
    for (; *s != '\0'; s++) {
        if (*s == '"' || *s == '\\') {
            buf_u8(b, '\\');
        }
        buf_u8(b, *s >= ' ' && *s <= '~' ? (uint8_t)*s : '?');
    }
    buf_u8(b, '"');
}

void http_reply_error(struct http_req *r, int code, const char *msg)
{
    must(r != NULL && r->magic == REQ_MAGIC);
    const struct http_conf *conf = &r->conn->srv->conf;
    int status = err_http(code);
    char extra[64] = "";
    struct buf b;

    buf_init(&b, KIB(64));
    if (msg == NULL) {
        msg = err_text(code);
    }
    if (conf->error_body != NULL) {
        conf->error_body(r->path, code, msg, &b);
    } else {
        buf_printf(&b,
                   "{\"error\":{\"code\":\"%s\",\"message\":", err_name(code));
        put_text(&b, msg);
        buf_printf(&b, ",\"type\":\"%s\"}}", http_error_type(status));
    }
    if (code == ERR_BAD_METHOD && r->allow != 0) {
        char allow[40];
        http_route_allow(r->allow, allow);
        (void)snprintf(extra, sizeof(extra), "Allow: %s\r\n", allow);
    }
    if (code == ERR_HTTP_ENCODING) { /* RFC 9110 15.5.16 */
        (void)snprintf(extra, sizeof(extra), "Accept-Encoding: identity\r\n");
    }
    if (code == ERR_UNAUTHORIZED) { /* RFC 9110 15.5.2 */
        (void)snprintf(extra, sizeof(extra), "WWW-Authenticate: Bearer\r\n");
    }
    reply(r, status, NULL, b.n > 0 ? b.p : "", b.n, extra);
    buf_fini(&b);
}

/* What a page of a listed origin may send: the methods of the routes, and the
 * headers of the SDKs that run in browsers. */
void reply_preflight(struct http_req *r)
{
    static const char text[] =
        "Access-Control-Allow-Methods: GET, POST, DELETE\r\n"
        "Access-Control-Allow-Headers: authorization, content-type, x-api-key, "
        "last-event-id, anthropic-version, anthropic-beta, "
        "anthropic-dangerous-direct-browser-access, openai-beta, "
        "openai-organization, openai-project, x-stainless-arch, "
        "x-stainless-helper-method, x-stainless-lang, x-stainless-os, "
        "x-stainless-package-version, x-stainless-retry-count, "
        "x-stainless-runtime, x-stainless-runtime-version, "
        "x-stainless-timeout\r\n"
        "Access-Control-Max-Age: 600\r\n";
    reply(r, 200, NULL, "{}", 2, text);
}

/* --- streams --- */

void http_stream_begin(struct http_req *r, int status, const char *content_type)
{
    struct buf head;

    must(r != NULL && r->magic == REQ_MAGIC && !r->streaming);
    r->streaming = true;
    r->headed = r->msg.is_head;
    r->raw = r->msg.http10;
    r->wrote_ms = uv_now(r->conn->srv->loop);
    r->events = r->events || strcmp(content_type, "text/event-stream") == 0;
    r->conn->srv->stats.streams_open++;
    if (!alive(r)) {
        return;
    }
    buf_init(&head, HEAD_MAX);
    reply_head(r, status, content_type, -1, NULL, &head);
    conn_write(r->conn, head.p, head.n);
    buf_fini(&head);
    if (r->headed) {
        conn_wait(r->conn);
    }
}

void http_stream_expect(struct http_req *r, const char *ping)
{
    must(r->magic == REQ_MAGIC && !r->streaming);
    r->events = true;
    r->ping = ping;
    r->wrote_ms = uv_now(r->conn->srv->loop);
    conn_wait(r->conn);
}

bool http_stream_begun(const struct http_req *r)
{
    must(r->magic == REQ_MAGIC);
    return r->streaming;
}

bool http_stream_write(struct http_req *r, const void *p, size_t n)
{
    struct http_conn *c = r->conn;

    must(r->magic == REQ_MAGIC && r->streaming);
    if (!alive(r) || n == 0 || r->msg.is_head) {
        return true; /* nothing will ever drain: on_gone comes */
    }
    r->wrote_ms = uv_now(c->srv->loop);
    if (r->raw) {
        conn_write(c, p, n);
    } else {
        size_t before = c->waiting.n;
        buf_hex(&c->waiting, n);
        buf_put(&c->waiting, "\r\n", 2);
        buf_put(&c->waiting, p, n);
        c->srv->stats.bytes_out += c->waiting.n - before;
        conn_write(c, "\r\n", 2);
    }
    if (!alive(r)) {
        return true;
    }
    r->paused = conn_queued(c) >= HTTP_OUT_HIGH;
    return !r->paused;
}

void http_stream_on_drain(struct http_req *r,
                          void (*fn)(struct http_req *r, void *user))
{
    must(r->magic == REQ_MAGIC);
    r->on_drain = fn;
}

void http_stream_end(struct http_req *r)
{
    struct http_conn *c = r->conn;

    must(r->magic == REQ_MAGIC && r->streaming);
    if (alive(r) && !r->raw && !r->msg.is_head) {
        conn_write(c, "0\r\n\r\n", 5);
    }
    conn_answered(c);
}

size_t http_stream_queued(const struct http_req *r)
{
    return alive(r) ? conn_queued(r->conn) : 0;
}

/* --- what handlers may ask --- */

void *http_ctx(const struct http_req *r)
{
    return r->conn->srv->conf.ctx;
}

const char *http_path(const struct http_req *r)
{
    return r->path;
}

const char *http_query(const struct http_req *r, const char *key, char *out,
                       size_t size)
{
    size_t n = strlen(key);
    for (const char *p = r->query; *p != '\0';) {
        size_t len = strcspn(p, "&");
        if (len >= n && strncmp(p, key, n) == 0 && (len == n || p[n] == '=')) {
            size_t skip = len == n ? n : n + 1;
            int rc = http_decode(p + skip, len - skip, true, out, size);
            return rc == 0 ? out : NULL;
        }
        p += len + (p[len] == '&');
    }
    return NULL;
}

struct span http_body(const struct http_req *r)
{
    return (struct span){r->msg.body.p, r->msg.body.n};
}

void http_take_body(struct http_req *r, struct buf *ret)
{
    *ret = r->msg.body;
    buf_init(&r->msg.body, ret->max);
}

const char *http_header(const struct http_req *r, const char *name)
{
    return http_msg_header(&r->msg, name);
}

bool http_wants_page(const struct http_req *r)
{
    return r->page;
}

bool http_is_head(const struct http_req *r)
{
    return r->msg.is_head;
}

int64_t http_peer_pid(const struct http_req *r)
{
    return r->conn->peer_pid;
}

uint64_t http_peer_process(const struct http_req *r)
{
    struct http_conn *c = r->conn;
    if (c->peer_process == 0) {
        c->peer_process = peer_process(c->peer_pid);
    }
    return c->peer_process;
}

uint64_t http_peer(const struct http_req *r)
{
    static const uint64_t tcp = (uint64_t)1 << 63; /* is no pid */
    const struct http_conn *c = r->conn;
    const char *agent = http_msg_header(&r->msg, "user-agent");
    if (!c->srv->tcp) {
        return (uint64_t)c->peer_pid;
    }
    return tcp | (agent != NULL ? hash_bytes(agent, strlen(agent))
                                : hash_bytes(&c->number, sizeof(c->number)));
}

bool http_is_tcp(const struct http_req *r)
{
    return r->conn->srv->tcp;
}

uint64_t http_started_ns(const struct http_req *r)
{
    return r->started_ns;
}

void http_on_gone(struct http_req *r,
                  void (*fn)(struct http_req *r, void *user), void *user)
{
    must(r->magic == REQ_MAGIC);
    r->on_gone = fn;
    r->user = user;
}
