/* work_records.c - reads a journal: see work.h. Nothing in it is trusted: it may
 * have been cut anywhere, or be another program's. */
#include <string.h>

#include "base/parse.h"
#include "convert/work.h"

static void line_hash(const char *p, size_t n, char out[SHA256_HEX])
{
    uint8_t d[SHA256_BYTES];
    struct sha256 s;
    sha256_init(&s);
    sha256_add(&s, p, n);
    sha256_end(&s, d);
    sha256_hex(d, out);
}

/* Copy the next word of *p, which ends at a space; false: there is none, or it
 * has `room` bytes and more. */
static bool word(const char **p, char *out, size_t room)
{
    const char *space = strchr(*p, ' ');
    if (space == NULL || space == *p || (size_t)(space - *p) >= room) {
        return false;
    }
    memcpy(out, *p, (size_t)(space - *p));
    out[space - *p] = '\0';
    *p = space + 1;
    return true;
}

static bool last_word(const char *p, char *out, size_t room)
{
    size_t n = strlen(p);
    if (n == 0 || n >= room || strchr(p, ' ') != NULL) {
        return false;
    }
    memcpy(out, p, n + 1);
    return true;
}

static bool is_hash(const char *s)
{
    return strlen(s) == SHA256_HEX - 1 &&
           strspn(s, "0123456789abcdef") == SHA256_HEX - 1;
}

static bool is_path(const char *s)
{
    return s[0] != '/' && strstr(s, "..") == NULL;
}

/* "file BYTES SHA256 PATH" or "note NAME TEXT" */
static bool read_record(const char *p, struct work_record *r)
{
    char kind[8];
    char count[24];
    *r = (struct work_record){.bytes = 0};
    if (!word(&p, kind, sizeof(kind))) {
        return false;
    }
    if (strcmp(kind, "note") == 0) {
        r->note = true;
        if (!word(&p, r->path, sizeof(r->path))) {
            return false;
        }
        line_hash(p, strlen(p), r->sha256);
        return true;
    }
    return strcmp(kind, "file") == 0 && word(&p, count, sizeof(count)) &&
           parse_u64(count, UINT64_MAX / 2, &r->bytes) &&
           word(&p, r->sha256, sizeof(r->sha256)) && is_hash(r->sha256) &&
           last_word(p, r->path, sizeof(r->path)) && is_path(r->path);
}

/* The line's text without its hash; NULL: it is not whole. */
static const char *open_line(char *line)
{
    char hash[SHA256_HEX];
    const char *p = line;
    char got[SHA256_HEX];
    if (!word(&p, hash, sizeof(hash))) {
        return NULL;
    }
    line_hash(p, strlen(p), got);
    return strcmp(hash, got) == 0 ? p : NULL;
}

static bool is_head(const char *text, const char key[SHA256_HEX])
{
    char want[SHA256_HEX + 16];
    (void)snprintf(want, sizeof(want), "aned-work 1 %s", key);
    return strcmp(text, want) == 0;
}

const struct work_record *work_records_find(const struct work_records *r,
                                            const char *path, bool note)
{
    for (size_t i = 0; i < r->n; i++) {
        if (r->v[i].note == note && strcmp(r->v[i].path, path) == 0) {
            return &r->v[i];
        }
    }
    return NULL;
}

static void keep(struct work_records *r, const struct work_record *one)
{
    for (size_t i = 0; i < r->n; i++) {
        if (r->v[i].note == one->note &&
            strcmp(r->v[i].path, one->path) == 0) {
            r->v[i] = *one;
            return;
        }
    }
    r->v[r->n++] = *one;
}

void work_records_read(const void *bytes, size_t n, const char key[SHA256_HEX],
                       struct work_records *ret, size_t *ret_whole)
{
    const char *p = bytes;
    char line[WORK_LINE_MAX];
    *ret = (struct work_records){.n = 0};
    *ret_whole = 0;
    ret->v = calloc(WORK_RECORDS_MAX, sizeof(*ret->v));
    must(ret->v != NULL);
    for (size_t at = 0; at < n;) {
        const char *end = memchr(p + at, '\n', n - at);
        size_t len = end != NULL ? (size_t)(end - (p + at)) : WORK_LINE_MAX;
        if (len >= sizeof(line) || memchr(p + at, '\0', len) != NULL) {
            break;
        }
        struct work_record r;
        memcpy(line, p + at, len);
        line[len] = '\0';
        const char *text = open_line(line);
        if (text == NULL || ret->n == WORK_RECORDS_MAX ||
            (at == 0 ? !is_head(text, key) : !read_record(text, &r))) {
            break;
        }
        if (at > 0) {
            keep(ret, &r);
        }
        at += len + 1;
        *ret_whole = at;
    }
}

void work_records_fini(struct work_records *r)
{
    free(r->v);
    *r = (struct work_records){.n = 0};
}
