/* json.c - see json.h. A node is a cJSON node: struct json is never defined,
 * the pointer is cast, so nodes need no allocation of their own.
 *
 * Only text that passes json_scan is given to cJSON. Duplicate keys are found
 * on the tree afterwards (after unescaping), by sorting.
 */
#include "proto/json.h"

#include <math.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/utf8.h"
#include "proto/json_impl.h"
#include "proto/limits.h"

static cJSON *node(struct json *j)
{
    return (cJSON *)(void *)j;
}

static const cJSON *cnode(const struct json *j)
{
    return (const cJSON *)(const void *)j;
}

static struct json *wrap(cJSON *c)
{
    return (struct json *)(void *)c;
}

static const struct json *cwrap(const cJSON *c)
{
    return (const struct json *)(const void *)c;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* No key of an object stands twice. */
static int check_twice(const cJSON *c, struct err *e)
{
    int rc = 0;
    size_t n = 0;
    size_t most = json_count(cwrap(c));
    const char **keys = calloc(most + 1, sizeof(*keys));
    if (keys == NULL) {
        return err_set(e, ERR_NOMEM, "an object of %zu members", most);
    }
    for (const cJSON *m = c->child; m != NULL; m = m->next) {
        keys[n++] = m->string;
    }
    qsort(keys, n, sizeof(*keys), by_text);
    for (size_t i = 1; i < n; i++) {
        if (strcmp(keys[i - 1], keys[i]) == 0) {
            rc = err_set(e, ERR_JSON, "key '%.60s' stands twice", keys[i]);
            break;
        }
    }
    free(keys);
    return rc;
}

static int check_keys(const cJSON *c, struct err *e)
{
    if (cJSON_IsObject(c)) {
        RETERR(check_twice(c, e));
    }
    for (const cJSON *m = c->child; m != NULL; m = m->next) {
        if (m->child != NULL) {
            RETERR(check_keys(m, e));
        }
    }
    return 0;
}

static int check(const char *p, size_t n, size_t members, struct err *e)
{
    const char *why = NULL;
    size_t at = 0;
    return json_scan(p, n, members, &why, &at)
               ? 0
               : err_set(e, ERR_JSON, "%s at byte %zu", why, at);
}

int json_check(const char *p, size_t n, struct err *e)
{
    return check(p, n, JSON_MEMBERS_MAX, e);
}

static int parse(const char *p, size_t n, size_t members, struct json **ret,
                 struct err *e)
{
    RETERR(check(p, n, members, e));
    cJSON *c = cJSON_ParseWithLength(p, n);
    if (c == NULL) {
        return err_set(e, ERR_NOMEM, "JSON of %zu bytes", n);
    }
    int rc = check_keys(c, e);
    if (rc < 0) {
        cJSON_Delete(c);
        return rc;
    }
    *ret = wrap(c);
    return 0;
}

int json_parse(const char *p, size_t n, struct json **ret, struct err *e)
{
    return parse(p, n, JSON_MEMBERS_MAX, ret, e);
}

int json_parse_big(const char *p, size_t n, struct json **ret, struct err *e)
{
    return parse(p, n, JSON_MEMBERS_BIG, ret, e);
}

void json_free(struct json *j)
{
    cJSON_Delete(node(j));
}

/* --- looking --- */

enum json_type json_type(const struct json *j)
{
    const cJSON *c = cnode(j);
    if (cJSON_IsBool(c)) {
        return JSON_BOOL;
    }
    if (cJSON_IsNumber(c)) {
        return JSON_NUMBER;
    }
    if (cJSON_IsString(c)) {
        return JSON_STRING;
    }
    if (cJSON_IsArray(c)) {
        return JSON_ARRAY;
    }
    return cJSON_IsObject(c) ? JSON_OBJECT : JSON_NULL;
}

const char *json_type_name(enum json_type t)
{
    static const char *const names[] = {
        [JSON_NULL] = "null",       [JSON_BOOL] = "a boolean",
        [JSON_NUMBER] = "a number", [JSON_STRING] = "a string",
        [JSON_ARRAY] = "an array",  [JSON_OBJECT] = "an object",
    };
    return names[t];
}

const struct json *json_get(const struct json *j, const char *key)
{
    return j != NULL && cJSON_IsObject(cnode(j))
               ? cwrap(cJSON_GetObjectItemCaseSensitive(cnode(j), key))
               : NULL;
}

const struct json *json_first(const struct json *j)
{
    bool has =
        j != NULL && (cJSON_IsObject(cnode(j)) || cJSON_IsArray(cnode(j)));
    return has ? cwrap(cnode(j)->child) : NULL;
}

const struct json *json_next(const struct json *c)
{
    return cwrap(cnode(c)->next);
}

const char *json_key(const struct json *c)
{
    return cnode(c)->string;
}

size_t json_count(const struct json *j)
{
    size_t n = 0;
    for (const struct json *c = json_first(j); c != NULL; c = json_next(c)) {
        n++;
    }
    return n;
}

const char *json_str(const struct json *j)
{
    return j != NULL && cJSON_IsString(cnode(j)) ? cnode(j)->valuestring : NULL;
}

bool json_bool(const struct json *j)
{
    return j != NULL && cJSON_IsTrue(cnode(j));
}

double json_num(const struct json *j)
{
    return j != NULL && cJSON_IsNumber(cnode(j)) ? cnode(j)->valuedouble : 0;
}

bool json_int(const struct json *j, int64_t lo, int64_t hi, int64_t *ret)
{
    if (j == NULL || !cJSON_IsNumber(cnode(j))) {
        return false;
    }
    double v = cnode(j)->valuedouble;
    /* 2^63 as a double; beyond 2^53 integers are not exact and are refused */
    if (v != floor(v) || fabs(v) > 9007199254740992.0) {
        return false;
    }
    int64_t i = (int64_t)v;
    if (i < lo || i > hi) {
        return false;
    }
    *ret = i;
    return true;
}

/* 1: present; 0: absent and not needed. */
static int member(const struct json *j, const char *key, bool need,
                  const struct json **ret, struct err *e)
{
    const struct json *m = json_get(j, key);
    if (m == NULL || json_type(m) == JSON_NULL) {
        return need ? err_set(e, ERR_INVALID, "'%s' is missing", key) : 0;
    }
    *ret = m;
    return 1;
}

static int wrong(const struct json *m, const char *key, const char *want,
                 struct err *e)
{
    return err_set(e, ERR_INVALID, "'%s' must be %s, not %s", key, want,
                   json_type_name(json_type(m)));
}

int json_want_str(const struct json *j, const char *key, bool need,
                  const char **ret, struct err *e)
{
    const struct json *m = NULL;
    int rc = member(j, key, need, &m, e);
    if (rc <= 0) {
        return rc;
    }
    if (json_str(m) == NULL) {
        return wrong(m, key, "a string", e);
    }
    *ret = json_str(m);
    return 0;
}

int json_want_int(const struct json *j, const char *key, bool need, int64_t lo,
                  int64_t hi, int64_t *ret, struct err *e)
{
    const struct json *m = NULL;
    int rc = member(j, key, need, &m, e);
    if (rc <= 0) {
        return rc;
    }
    if (json_type(m) != JSON_NUMBER) {
        return wrong(m, key, "an integer", e);
    }
    if (!json_int(m, lo, hi, ret)) {
        return err_set(e, ERR_INVALID,
                       "'%s' must be an integer from %lld to %lld", key,
                       (long long)lo, (long long)hi);
    }
    return 0;
}

int json_want_num(const struct json *j, const char *key, bool need, double lo,
                  double hi, double *ret, struct err *e)
{
    const struct json *m = NULL;
    int rc = member(j, key, need, &m, e);
    if (rc <= 0) {
        return rc;
    }
    if (json_type(m) != JSON_NUMBER) {
        return wrong(m, key, "a number", e);
    }
    double v = json_num(m);
    if (!(v >= lo && v <= hi)) {
        return err_set(e, ERR_INVALID, "'%s' must be from %g to %g", key, lo,
                       hi);
    }
    *ret = v;
    return 0;
}

int json_want_bool(const struct json *j, const char *key, bool need, bool *ret,
                   struct err *e)
{
    const struct json *m = NULL;
    int rc = member(j, key, need, &m, e);
    if (rc <= 0) {
        return rc;
    }
    if (json_type(m) != JSON_BOOL) {
        return wrong(m, key, "true or false", e);
    }
    *ret = json_bool(m);
    return 0;
}

/* --- building --- */

static struct json *attach(struct json *parent, const char *key, cJSON *c)
{
    must(c != NULL);
    bool ok = key != NULL ? cJSON_AddItemToObject(node(parent), key, c)
                          : cJSON_AddItemToArray(node(parent), c);
    must(ok);
    return wrap(c);
}

struct json *json_object(void)
{
    cJSON *c = cJSON_CreateObject();
    must(c != NULL);
    return wrap(c);
}

struct json *json_array(void)
{
    cJSON *c = cJSON_CreateArray();
    must(c != NULL);
    return wrap(c);
}

struct json *json_add_object(struct json *parent, const char *key)
{
    return attach(parent, key, cJSON_CreateObject());
}

struct json *json_add_array(struct json *parent, const char *key)
{
    return attach(parent, key, cJSON_CreateArray());
}

/* Valid UTF-8 of p[0..n) in a new string; bad bytes become U+FFFD, NUL too. */
static char *clean_utf8(const char *p, size_t n)
{
    char *out = malloc(3 * n + 1);
    must(out != NULL);
    size_t m = 0;
    for (size_t i = 0; i < n;) {
        size_t len = utf8_len(p + i, n - i);
        if (len == 0 || p[i] == '\0') {
            memcpy(out + m, "\xef\xbf\xbd", 3);
            m += 3;
            i++;
        } else {
            memcpy(out + m, p + i, len);
            m += len;
            i += len;
        }
    }
    out[m] = '\0';
    return out;
}

void json_add_strn(struct json *parent, const char *key, const char *v,
                   size_t n)
{
    char *s = clean_utf8(v, n);
    (void)attach(parent, key, cJSON_CreateString(s));
    free(s);
}

void json_add_str(struct json *parent, const char *key, const char *v)
{
    json_add_strn(parent, key, v, strlen(v));
}

void json_add_num(struct json *parent, const char *key, double v)
{
    (void)attach(parent, key, cJSON_CreateNumber(v));
}

void json_add_int(struct json *parent, const char *key, int64_t v)
{
    char text[32];
    (void)snprintf(text, sizeof(text), "%lld", (long long)v);
    cJSON *c = cJSON_CreateRaw(text); /* cJSON would print 1e+15 */
    must(c != NULL);
    (void)attach(parent, key, c);
}

void json_add_bool(struct json *parent, const char *key, bool v)
{
    (void)attach(parent, key, cJSON_CreateBool(v));
}

void json_add_null(struct json *parent, const char *key)
{
    (void)attach(parent, key, cJSON_CreateNull());
}

void json_add_raw(struct json *parent, const char *key, const char *text)
{
    (void)attach(parent, key, cJSON_CreateRaw(text));
}

void json_add_tree(struct json *parent, const char *key, struct json *root)
{
    (void)attach(parent, key, node(root));
}

struct json *json_copy(const struct json *j)
{
    cJSON *c = cJSON_Duplicate(cnode(j), 1);
    must(c != NULL);
    return wrap(c);
}

/* --- writing --- */

/* Bytes at p that stand for themselves between quotes. */
static size_t plain_run(const unsigned char *p, size_t n)
{
    size_t i = 0;
    while (i < n) {
        unsigned char c = p[i];
        size_t len = 1;
        if (c < 0x20 || c == '"' || c == '\\' || c == 0x7f) {
            break;
        }
        if (c >= 0x80 && (len = utf8_len((const char *)p + i, n - i)) == 0) {
            break;
        }
        i += len;
    }
    return i;
}

void json_put_string(struct buf *b, const char *p, size_t n)
{
    buf_put(b, "\"", 1);
    json_put_text(b, p, n);
    buf_put(b, "\"", 1);
}

void json_put_text(struct buf *b, const char *p, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        size_t run = plain_run((const unsigned char *)p + i, n - i);
        buf_put(b, p + i, run);
        i += run;
        if (i == n) {
            break;
        }
        unsigned char c = (unsigned char)p[i];
        if (c == '"' || c == '\\') {
            char two[2] = {'\\', (char)c};
            buf_put(b, two, 2);
        } else if (c == '\n') {
            buf_put(b, "\\n", 2);
        } else if (c < 0x80) {
            char six[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
            buf_put(b, six, 6);
        } else {
            buf_put(b, "\xef\xbf\xbd", 3);
        }
    }
}

/* v as thousandths, which times and rates are, and as whole numbers: printf and
 * reading back take microseconds. k / 1000 is the number that its text reads as,
 * and up to 15 digits no shorter text does. False: it is neither. */
static bool put_plain(struct buf *b, double v)
{
    double k = round(fabs(v) * 1000);
    if (k >= 1e15 || k / 1000 != fabs(v)) {
        return false;
    }
    uint64_t whole = (uint64_t)k / 1000;
    unsigned rest = (unsigned)((uint64_t)k % 1000);
    buf_puts(b, signbit(v) ? "-" : "");
    buf_dec(b, whole);
    if (rest > 0) {
        char text[] = {'.', (char)('0' + rest / 100),
                       (char)('0' + rest / 10 % 10), (char)('0' + rest % 10)};
        buf_put(b, text, rest % 100 == 0 ? 2 : rest % 10 == 0 ? 3 : 4);
    }
    return true;
}

void json_put_number(struct buf *b, double v)
{
    if (!isfinite(v)) {
        buf_puts(b, "null");
    } else if (put_plain(b, v)) {
        return;
    } else if (v == floor(v) && fabs(v) < 9007199254740992.0) {
        buf_printf(b, "%.0f", v);
    } else { /* the shortest of 15..17 digits that reads back the same */
        for (int digits_n = 15; digits_n <= 17; digits_n++) {
            char text[40];
            (void)snprintf(text, sizeof(text), "%.*g", digits_n, v);
            if (digits_n == 17 || strtod(text, NULL) == v) {
                buf_puts(b, text);
                return;
            }
        }
    }
}

void json_put_float(struct buf *b, float v)
{
    if (!isfinite(v)) {
        buf_puts(b, "null");
    } else if (!put_plain(b, (double)v)) {
        buf_printf(b, "%.9g", (double)v);
    }
}

static void put_indent(struct buf *b, bool pretty, int depth)
{
    if (pretty) {
        buf_put(b, "\n", 1);
        for (int i = 0; i < depth; i++) {
            buf_put(b, "  ", 2);
        }
    }
}

static void put_value(const cJSON *c, bool pretty, int depth, struct buf *b)
{
    if (cJSON_IsObject(c) || cJSON_IsArray(c)) {
        bool object = cJSON_IsObject(c);
        buf_put(b, object ? "{" : "[", 1);
        for (const cJSON *m = c->child; m != NULL; m = m->next) {
            put_indent(b, pretty, depth + 1);
            if (object) {
                json_put_string(b, m->string, strlen(m->string));
                buf_puts(b, pretty ? ": " : ":");
            }
            put_value(m, pretty, depth + 1, b);
            if (m->next != NULL) {
                buf_put(b, ",", 1);
            }
        }
        if (c->child != NULL) {
            put_indent(b, pretty, depth);
        }
        buf_put(b, object ? "}" : "]", 1);
    } else if (cJSON_IsString(c)) {
        json_put_string(b, c->valuestring, strlen(c->valuestring));
    } else if (cJSON_IsNumber(c)) {
        json_put_number(b, c->valuedouble);
    } else if (cJSON_IsRaw(c)) {
        buf_puts(b, c->valuestring);
    } else {
        buf_puts(b, cJSON_IsNull(c)   ? "null"
                    : cJSON_IsTrue(c) ? "true"
                                      : "false");
    }
}

void json_write(const struct json *j, bool pretty, struct buf *b)
{
    put_value(cnode(j), pretty, 0, b);
}
