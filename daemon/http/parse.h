/* parse.h - from the bytes of one connection to requests. Pure: no uv, no
 * clock.
 *
 * llhttp parses the grammar. Before it a byte scanner reads the head; it
 * refuses what an older llhttp accepts (bare CR or LF, a space before a colon,
 * folded lines) and applies limits that llhttp does not have. A sequence of
 * bytes gives the same result however it is cut into reads.
 */
#pragma once

#include <llhttp.h>

#include "base/buf.h"
#include "http/http.h"

struct http_field {
    uint32_t name, value; /* offsets in text, NUL terminated */
};

/* One request as it was sent. */
struct http_msg {
    unsigned method; /* enum http_method; 0: none that a route can have */
    bool is_head;
    bool is_options;
    bool http10;
    bool keep_alive;
    bool expect;   /* the client waits for 100-continue */
    bool has_body; /* bytes follow the head */
    bool chunked;
    bool encoded; /* the body is compressed */
    uint64_t length; /* Content-Length; 0 when absent */
    struct buf target;
    struct buf text; /* headers: name NUL value NUL, names in lower case */
    struct buf body;
    struct http_field fields[HTTP_HEADER_COUNT];
    size_t n_fields;
};

void http_msg_init(struct http_msg *m);
void http_msg_fini(struct http_msg *m);
/* Value of the first header with this lower-case name, NULL when absent. */
const char *http_msg_header(const struct http_msg *m, const char *name);
/* How many headers have this lower-case name. */
size_t http_msg_count(const struct http_msg *m, const char *name);

enum http_parse_event {
    HTTP_PARSE_MORE, /* all bytes used, the request is not complete */
    HTTP_PARSE_HEAD, /* the head is complete: body.max may be set now */
    HTTP_PARSE_DONE, /* the request is complete */
};

struct http_parse {
    llhttp_t ll;
    struct http_msg *msg; /* borrowed, of the request being read */
    enum {
        SCAN_START,
        SCAN_LINE,
        SCAN_NAME_FIRST,
        SCAN_NAME,
        SCAN_VALUE,
        SCAN_CR,
        SCAN_BLANK_CR, /* before the request line */
        SCAN_END_CR,
        SCAN_BODY, /* the head has ended */
    } scan;
    unsigned spaces;               /* seen in the request line */
    size_t line, head, url, lines; /* bytes of the line, head, target; count */
    size_t extension;              /* bytes of chunk extensions */
    bool capital;                  /* the line begins like a method */
    bool headers_done, message_done, head_told;
    int error; /* from a callback */
};

void http_parse_init(struct http_parse *p);
/* Start reading a request into msg (initialised). */
void http_parse_begin(struct http_parse *p, struct http_msg *msg);
/* Parse the next bytes; *used of them were taken. Returns an event or an error
 * code, after which the connection must be closed. After HEAD and MORE call
 * again with the bytes that follow; after DONE call http_parse_begin. */
CHECKED int http_parse_feed(struct http_parse *p, const char *d, size_t n,
                            size_t *used);
