/* parse.c - see parse.h. The scanner checks each byte of the head, and the
 * limits, before llhttp gets the byte. So an error is found at the same byte
 * however the input is cut. Source of the limits: facts/reliability.md 3.5; of
 * the rules: 3.6. */
#include "http/parse.h"

#include <string.h>
#include <strings.h>

/* 8 KiB for the request line, as for every other line. */
enum { EXTENSION_MAX = 1024, LENGTH_DIGITS_MAX = 15 };

static bool is_token(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
           (c >= 'a' && c <= 'z') || (c != 0 && strchr("!#$%&'*+-.^_`|~", c));
}

void http_msg_init(struct http_msg *m)
{
    *m = (struct http_msg){0};
    buf_init(&m->target, HTTP_URL_MAX);
    /* two NULs a header, in place of ": " and CRLF */
    buf_init(&m->text, HTTP_HEADERS_MAX + 2 * HTTP_HEADER_COUNT);
    buf_init(&m->body, 0);
}

void http_msg_fini(struct http_msg *m)
{
    buf_fini(&m->target);
    buf_fini(&m->text);
    buf_fini(&m->body);
}

const char *http_msg_header(const struct http_msg *m, const char *name)
{
    for (size_t i = 0; i < m->n_fields; i++) {
        if (strcmp(m->text.p + m->fields[i].name, name) == 0) {
            return m->text.p + m->fields[i].value;
        }
    }
    return NULL;
}

size_t http_msg_count(const struct http_msg *m, const char *name)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_fields; i++) {
        n += strcmp(m->text.p + m->fields[i].name, name) == 0;
    }
    return n;
}

/* --- scanner --- */

/* One byte of the request line. */
static int scan_line(struct http_parse *p, unsigned char c)
{
    if (c == '\r') {
        p->scan = SCAN_CR;
        return 0;
    }
    if (c < ' ' || c > '~') {
        return ERR_HTTP;
    }
    if (c == ' ') {
        p->spaces++;
    } else if (p->spaces == 1 && ++p->url > HTTP_URL_MAX) {
        return ERR_HTTP_URI;
    }
    return ++p->line > HTTP_HEADER_LINE_MAX ? ERR_HTTP_URI : 0;
}

/* One byte of a header line, its end excepted. */
static int scan_field(struct http_parse *p, unsigned char c)
{
    if (++p->line > HTTP_HEADER_LINE_MAX || ++p->head > HTTP_HEADERS_MAX) {
        return ERR_HTTP_HEADERS;
    }
    if (p->scan == SCAN_VALUE) {
        bool bad = (c < ' ' && c != '\t') || c == 0x7f;
        return bad ? ERR_HTTP : 0;
    }
    if (p->scan == SCAN_NAME && c == ':') {
        p->scan = SCAN_VALUE;
        return 0;
    }
    if (p->scan == SCAN_NAME_FIRST && ++p->lines > HTTP_HEADER_COUNT) {
        return ERR_HTTP_HEADERS;
    }
    p->scan = SCAN_NAME;
    return is_token(c) ? 0 : ERR_HTTP;
}

static int scan_byte(struct http_parse *p, unsigned char c)
{
    switch (p->scan) {
    case SCAN_START:
        if (c == '\r') { /* RFC 9112 2.2: empty lines before a request */
            p->scan = SCAN_BLANK_CR;
            return ++p->head > HTTP_HEADERS_MAX ? ERR_HTTP : 0;
        }
        p->scan = SCAN_LINE;
        p->head = 0;
        p->capital = c >= 'A' && c <= 'Z';
        return scan_line(p, c);
    case SCAN_LINE:
        return scan_line(p, c);
    case SCAN_BLANK_CR:
        p->scan = SCAN_START;
        return c == '\n' ? 0 : ERR_HTTP;
    case SCAN_CR:
        p->scan = SCAN_NAME_FIRST;
        p->line = 0;
        return c == '\n' ? 0 : ERR_HTTP;
    case SCAN_END_CR:
        p->scan = SCAN_BODY;
        return c == '\n' ? 0 : ERR_HTTP;
    case SCAN_NAME_FIRST:
        if (c == '\r') {
            p->scan = SCAN_END_CR;
            return 0;
        }
        return scan_field(p, c);
    case SCAN_VALUE:
        if (c == '\r') {
            p->scan = SCAN_CR;
            return 0;
        }
        return scan_field(p, c);
    case SCAN_NAME:
        return scan_field(p, c);
    case SCAN_BODY:
    default:
        return 0;
    }
}

/* --- llhttp callbacks --- */

static struct http_parse *of(llhttp_t *ll)
{
    return container_of(ll, struct http_parse, ll);
}

static int stop(struct http_parse *p, int code)
{
    p->error = code;
    return HPE_USER;
}

static int on_url(llhttp_t *ll, const char *s, size_t n)
{
    struct http_parse *p = of(ll);
    buf_put(&p->msg->target, s, n);
    return buf_ok(&p->msg->target) ? 0 : stop(p, ERR_HTTP_URI);
}

static int on_field(llhttp_t *ll, const char *s, size_t n)
{
    struct http_parse *p = of(ll);
    struct http_msg *m = p->msg;
    if (p->headers_done) {
        return stop(p, ERR_HTTP); /* trailers */
    }
    if (m->n_fields == HTTP_HEADER_COUNT) {
        return stop(p, ERR_HTTP_HEADERS);
    }
    struct http_field *f = &m->fields[m->n_fields];
    if (f->name == 0 && f->value == 0) { /* a new one: 0 is the NUL below */
        if (m->text.n == 0) {
            buf_u8(&m->text, 0);
        }
        f->name = (uint32_t)m->text.n;
    }
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        buf_u8(&m->text, (uint8_t)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c));
    }
    return buf_ok(&m->text) ? 0 : stop(p, ERR_HTTP_HEADERS);
}

static int on_field_end(llhttp_t *ll)
{
    struct http_parse *p = of(ll);
    struct http_msg *m = p->msg;
    if (m->n_fields == HTTP_HEADER_COUNT) {
        return stop(p, ERR_HTTP_HEADERS);
    }
    buf_u8(&m->text, 0);
    m->fields[m->n_fields].value = (uint32_t)m->text.n;
    return buf_ok(&m->text) ? 0 : stop(p, ERR_HTTP_HEADERS);
}

static int on_value(llhttp_t *ll, const char *s, size_t n)
{
    struct http_parse *p = of(ll);
    buf_put(&p->msg->text, s, n);
    return buf_ok(&p->msg->text) ? 0 : stop(p, ERR_HTTP_HEADERS);
}

static int on_value_end(llhttp_t *ll)
{
    struct http_parse *p = of(ll);
    struct http_msg *m = p->msg;
    while (m->text.n > m->fields[m->n_fields].value &&
           strchr(" \t", m->text.p[m->text.n - 1]) != NULL) {
        m->text.n--;
    }
    buf_u8(&m->text, 0);
    m->n_fields++;
    return buf_ok(&m->text) ? 0 : stop(p, ERR_HTTP_HEADERS);
}

static int check_framing(struct http_msg *m)
{
    const char *length = http_msg_header(m, "content-length");
    const char *te = http_msg_header(m, "transfer-encoding");

    if (length != NULL && te != NULL) {
        return ERR_HTTP;
    }
    if (length != NULL) {
        size_t n = strspn(length, "0123456789");
        if (http_msg_count(m, "content-length") != 1 || n == 0 ||
            length[n] != '\0' || n > LENGTH_DIGITS_MAX) {
            return n > LENGTH_DIGITS_MAX && length[n] == '\0' ? ERR_TOO_BIG
                                                              : ERR_HTTP;
        }
        for (size_t i = 0; i < n; i++) {
            m->length = m->length * 10 + (uint64_t)(length[i] - '0');
        }
        m->has_body = m->length > 0;
    }
    if (te != NULL) {
        if (m->http10 || http_msg_count(m, "transfer-encoding") != 1 ||
            strcasecmp(te, "chunked") != 0) {
            return ERR_HTTP;
        }
        m->chunked = true;
        m->has_body = true;
    }
    return 0;
}

/* A coding other than none, of any of the headers that name one. */
static bool is_encoded(const struct http_msg *m)
{
    bool encoded = false;
    for (size_t i = 0; i < m->n_fields; i++) {
        encoded = encoded ||
                  (strcmp(m->text.p + m->fields[i].name, "content-encoding") ==
                       0 &&
                   strcasecmp(m->text.p + m->fields[i].value, "identity") != 0);
    }
    return encoded;
}

/* enum http_method, 0 for what gets a 405 by its route, or an error. */
static int method_of(uint8_t method)
{
    static const struct {
        uint8_t llhttp;
        int ours;
    } rows[] = {
        {HTTP_GET,     HTTP_M_GET   },
        {HTTP_POST,    HTTP_M_POST  },
        {HTTP_DELETE,  HTTP_M_DELETE},
        {HTTP_HEAD,    HTTP_M_HEAD  },
        {HTTP_PUT,     0            },
        {HTTP_PATCH,   0            },
        {HTTP_OPTIONS, 0            },
    };
    for (size_t i = 0; i < countof(rows); i++) {
        if (rows[i].llhttp == method) {
            return rows[i].ours;
        }
    }
    return ERR_HTTP_METHOD;
}

static int check_head(const llhttp_t *ll, struct http_msg *m)
{
    int rc = 0;
    if (ll->http_major != 1 || ll->http_minor > 1) {
        return ERR_HTTP_VERSION;
    }
    m->http10 = ll->http_minor == 0;
    rc = method_of(ll->method);
    if (rc < 0) {
        return rc;
    }
    m->method = (unsigned)rc;
    m->is_head = m->method == HTTP_M_HEAD;
    m->is_options = ll->method == HTTP_OPTIONS;
    size_t hosts = http_msg_count(m, "host");
    if (hosts > 1 || (hosts == 0 && !m->http10) || m->target.n == 0 ||
        m->target.p[0] != '/') {
        return ERR_HTTP;
    }
    rc = check_framing(m);
    m->encoded = m->has_body && is_encoded(m);
    const char *expect = http_msg_header(m, "expect");
    if (rc == 0 && expect != NULL && !m->http10) {
        if (strcasecmp(expect, "100-continue") != 0) {
            return ERR_HTTP_EXPECT;
        }
        m->expect = m->has_body;
    }
    return rc;
}

static int on_headers_end(llhttp_t *ll)
{
    struct http_parse *p = of(ll);
    int rc = check_head(ll, p->msg);
    if (rc < 0) {
        return stop(p, rc);
    }
    p->headers_done = true;
    p->msg->keep_alive = llhttp_should_keep_alive(ll) != 0;
    ll->upgrade = 0; /* an offer that aned does not take */
    return 0;
}

static int on_body(llhttp_t *ll, const char *s, size_t n)
{
    struct http_parse *p = of(ll);
    buf_put(&p->msg->body, s, n);
    return buf_ok(&p->msg->body) ? 0 : stop(p, ERR_TOO_BIG);
}

/* The chunk's own size is known before its first byte: one that cannot fit is
 * not waited for. */
static int on_chunk(llhttp_t *ll)
{
    struct http_parse *p = of(ll);
    const struct buf *b = &p->msg->body;
    return ll->content_length > b->max - b->n ? stop(p, ERR_TOO_BIG) : 0;
}

static int on_extension(llhttp_t *ll, const char *s, size_t n)
{
    struct http_parse *p = of(ll);
    (void)s;
    p->extension += n;
    return p->extension > EXTENSION_MAX ? stop(p, ERR_HTTP) : 0;
}

static int on_message_end(llhttp_t *ll)
{
    struct http_parse *p = of(ll);
    p->message_done = true;
    return HPE_PAUSED;
}

static const llhttp_settings_t *settings(void)
{
    static const llhttp_settings_t s = {
        .on_url = on_url,
        .on_header_field = on_field,
        .on_header_field_complete = on_field_end,
        .on_header_value = on_value,
        .on_header_value_complete = on_value_end,
        .on_headers_complete = on_headers_end,
        .on_body = on_body,
        .on_chunk_header = on_chunk,
        .on_chunk_extension_name = on_extension,
        .on_chunk_extension_value = on_extension,
        .on_message_complete = on_message_end,
    };
    return &s;
}

/* --- feeding --- */

void http_parse_init(struct http_parse *p)
{
    *p = (struct http_parse){0};
    llhttp_init(&p->ll, HTTP_REQUEST, settings());
}

void http_parse_begin(struct http_parse *p, struct http_msg *msg)
{
    llhttp_t ll = p->ll;
    *p = (struct http_parse){.ll = ll, .msg = msg};
    if (llhttp_get_errno(&p->ll) == HPE_PAUSED) {
        llhttp_resume(&p->ll);
    }
}

/* Give n bytes to llhttp. Returns 0 or an error code; *used as far as the
 * message's end. */
static int feed_llhttp(struct http_parse *p, const char *d, size_t n,
                       size_t *used)
{
    *used = n;
    if (n == 0) {
        return 0; /* to llhttp no bytes mean the end of input */
    }
    llhttp_errno_t rc = llhttp_execute(&p->ll, d, n);
    if (rc == HPE_PAUSED && p->message_done) {
        const char *at = llhttp_get_error_pos(&p->ll);
        *used = at != NULL ? (size_t)(at - d) : n;
        return 0;
    }
    if (rc == HPE_OK) {
        return 0;
    }
    if (p->error != 0) {
        return p->error;
    }
    if (rc == HPE_INVALID_VERSION || rc == HPE_PAUSED_H2_UPGRADE) {
        return ERR_HTTP_VERSION;
    }
    return rc == HPE_INVALID_METHOD && p->capital ? ERR_HTTP_METHOD : ERR_HTTP;
}

static int feed_head(struct http_parse *p, const char *d, size_t n,
                     size_t *used)
{
    size_t i = 0;
    int bad = 0;
    while (i < n && bad == 0 && p->scan != SCAN_BODY) {
        bad = scan_byte(p, (unsigned char)d[i]);
        i += bad == 0;
    }
    /* What was sound before the bad byte first: llhttp may object earlier. */
    RETERR(feed_llhttp(p, d, i, used));
    RETERR(bad);
    if ((p->scan == SCAN_BODY) != p->headers_done) {
        return ERR_HTTP; /* two readings of one head: smuggling */
    }
    return p->scan == SCAN_BODY && *used != i ? ERR_HTTP : 0;
}

int http_parse_feed(struct http_parse *p, const char *d, size_t n, size_t *used)
{
    *used = 0;
    if (p->scan != SCAN_BODY) {
        int rc = feed_head(p, d, n, used);
        if (rc < 0) {
            return rc;
        }
        if (p->scan != SCAN_BODY) {
            return HTTP_PARSE_MORE;
        }
        return HTTP_PARSE_HEAD;
    }
    if (!p->message_done) {
        int rc = feed_llhttp(p, d, n, used);
        if (rc < 0) {
            return rc;
        }
    }
    return p->message_done ? HTTP_PARSE_DONE : HTTP_PARSE_MORE;
}
