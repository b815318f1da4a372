/* page.c - GET / for browsers: one document with its style and its program in
 * it (page/). It has nothing of this daemon, and asks for all that it shows
 * with the key that its reader types.
 *
 * The policy allows this style and this program by their hashes, and nothing
 * else: no other source, no form, no frame. They are hashed for each answer,
 * which takes a tenth of a millisecond, so there is nothing to keep. */
#include <string.h>

#include "api/api.h"
#include "base/hash.h"

/* Made by the build out of page/. */
extern const unsigned char page_html[], page_css[], page_js[];
extern const size_t page_html_n, page_css_n, page_js_n;

static struct span bytes_of(const unsigned char *p, size_t n)
{
    return (struct span){(const char *)p, n};
}

/* What is before the first `mark` of rest, which then begins after it. */
static struct span cut(struct span *rest, const char *mark)
{
    const char *at = memmem(rest->p, rest->n, mark, strlen(mark));
    must(at != NULL); /* page.html is ours */
    struct span before = {rest->p, (size_t)(at - rest->p)};
    rest->p = at + strlen(mark);
    rest->n -= before.n + strlen(mark);
    return before;
}

static void put_element(struct buf *b, const char *tag, struct span text)
{
    buf_printf(b, "<%s>", tag);
    buf_put(b, text.p, text.n);
    buf_printf(b, "</%s>", tag);
}

static void put_hash(struct buf *b, const char *directive, struct span text)
{
    struct sha256 s;
    uint8_t digest[SHA256_BYTES];
    char out[SHA256_BASE64];
    sha256_init(&s);
    sha256_add(&s, text.p, text.n);
    sha256_end(&s, digest);
    sha256_base64(digest, out);
    buf_printf(b, "; %s 'sha256-%s'", directive, out);
}

static void put_headers(struct buf *b, struct span style, struct span script)
{
    buf_puts(b, "Content-Security-Policy: default-src 'none'; "
                "connect-src 'self'");
    put_hash(b, "style-src", style);
    put_hash(b, "script-src", script);
    buf_puts(b, "; base-uri 'none'; form-action 'none'; "
                "frame-ancestors 'none'; require-trusted-types-for 'script'; "
                "trusted-types 'none'\r\n"
                "Cross-Origin-Opener-Policy: same-origin\r\n"
                "Cross-Origin-Resource-Policy: same-origin\r\n"
                "Referrer-Policy: no-referrer\r\n"
                "Vary: Accept\r\n"
                "X-Frame-Options: DENY\r\n");
}

void api_page(struct http_req *r)
{
    struct span rest = bytes_of(page_html, page_html_n);
    struct span style = bytes_of(page_css, page_css_n);
    struct span script = bytes_of(page_js, page_js_n);
    struct buf headers, page;
    buf_init(&headers, HTTP_EXTRA_MAX);
    buf_init(&page, HTTP_PAGE_MAX);
    struct span head = cut(&rest, "<style></style>");
    struct span body = cut(&rest, "<script></script>");
    buf_put(&page, head.p, head.n);
    put_element(&page, "style", style);
    buf_put(&page, body.p, body.n);
    put_element(&page, "script", script);
    buf_put(&page, rest.p, rest.n);
    put_headers(&headers, style, script);
    must(buf_ok(&page) && buf_ok(&headers)); /* all of it is ours */
    http_reply_with(r, 200, "text/html; charset=utf-8", headers.p, page.p,
                    page.n);
    buf_fini(&page);
    buf_fini(&headers);
}
