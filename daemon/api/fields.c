/* fields.c - see fields.h. */
#include "api/fields.h"

#include <math.h>
#include <string.h>

#include "api/api.h"

/* --- what functions of rows say and share --- */

int field_want(const struct field *f, struct err *e, const char *what)
{
    return err_set(e, ERR_INVALID, "%s: must be %s", f->name, what);
}

int field_unsupported(const struct field *f, struct err *e, const char *what)
{
    return err_set(e, ERR_UNSUPPORTED, "%s: %s", f->name, what);
}

int field_full(const struct field *f, struct err *e)
{
    return err_set(e, ERR_TOO_BIG, "%s: the request is over the limit",
                   f->name);
}

int field_int(const struct field *f, const struct json *v, int64_t *ret,
              struct err *e)
{
    if (!json_int(v, (int64_t)f->lo, (int64_t)f->hi, ret)) {
        return err_set(e, ERR_INVALID,
                       "%s: must be a whole number from %.0f to %.0f", f->name,
                       f->lo, f->hi);
    }
    return 0;
}

bool field_is_word(const struct field *f, const struct json *v)
{
    const char *s = json_str(v);
    for (size_t i = 0; s != NULL && f->words[i] != NULL; i++) {
        if (strcmp(s, f->words[i]) == 0) {
            return true;
        }
    }
    return false;
}

const char *field_text_part(const struct json *v)
{
    const char *type = json_str(json_get(v, "type"));
    const struct json *cache = json_get(v, "cache_control");
    bool hint = cache != NULL && (json_type(cache) == JSON_OBJECT ||
                                  json_type(cache) == JSON_NULL);
    return type != NULL && strcmp(type, "text") == 0 &&
                   json_count(v) == (hint ? 3 : 2)
               ? json_str(json_get(v, "text"))
               : NULL;
}

static void *at(struct params *p, const struct field *f)
{
    return (char *)p + f->offset;
}

/* The message lists the words. */
static int want_word(const struct field *f, struct err *e, int code,
                     const char *only)
{
    char list[ERR_MSG_MAX] = "";
    size_t n = 0;
    for (size_t i = 0; f->words[i] != NULL && n < sizeof(list); i++) {
        int k = snprintf(list + n, sizeof(list) - n, "%s%s", i > 0 ? ", " : "",
                         f->words[i]);
        n += k > 0 ? (size_t)k : 0;
    }
    return err_set(e, code, "%s: %s %s", f->name, only, list);
}

/* --- values that arrive somewhere --- */

int set_bool(struct params *p, const struct field *f, const struct json *v,
             struct err *e)
{
    bool b = json_bool(v);
    if (json_type(v) != JSON_BOOL) {
        return field_want(f, e, "true or false");
    }
    memcpy(at(p, f), &b, sizeof(b));
    return 0;
}

int set_float(struct params *p, const struct field *f, const struct json *v,
              struct err *e)
{
    double x = json_num(v);
    if (json_type(v) != JSON_NUMBER || !(x >= f->lo && x <= f->hi)) {
        return err_set(e, ERR_INVALID, "%s: must be a number from %g to %g",
                       f->name, f->lo, f->hi);
    }
    float narrow = (float)x;
    memcpy(at(p, f), &narrow, sizeof(narrow));
    return 0;
}

int set_uint(struct params *p, const struct field *f, const struct json *v,
             struct err *e)
{
    int64_t n = 0;
    int rc = field_int(f, v, &n, e);
    if (rc == 0) {
        uint32_t u = n < 0 ? UINT32_MAX : (uint32_t)n;
        memcpy(at(p, f), &u, sizeof(u));
    }
    return rc;
}

int set_model(struct params *p, const struct field *f, const struct json *v,
              struct err *e)
{
    p->model = json_str(v);
    return p->model != NULL ? 0 : field_want(f, e, "a string");
}

int set_temperature(struct params *p, const struct field *f,
                    const struct json *v, struct err *e)
{
    p->tempered = true;
    return set_float(p, f, v, e);
}

int set_penalty(struct params *p, const struct field *f, const struct json *v,
                struct err *e)
{
    p->penalised = true;
    return set_float(p, f, v, e);
}

int set_top_k(struct params *p, const struct field *f, const struct json *v,
              struct err *e)
{
    int64_t n = 0;
    int rc = field_int(f, v, &n, e);
    if (rc == 0) {
        p->req.sampling.top_k = n < 0 ? 0 : (uint32_t)n;
    }
    return rc;
}

/* Any 64-bit pattern is a seed; negative ones count from the top. But -1 is
 * what every peer takes for a random one. */
int set_seed(struct params *p, const struct field *f, const struct json *v,
             struct err *e)
{
    int64_t n = 0;
    int rc = field_int(f, v, &n, e);
    if (rc == 0) {
        p->req.sampling.seed = (uint64_t)n;
        p->seeded = n != -1;
    }
    return rc;
}

int set_keep_alive(struct params *p, const struct field *f,
                   const struct json *v, struct err *e)
{
    (void)f;
    p->keeps = true;
    return api_keep_alive(v, &p->keep_ms, e);
}

int set_ttl(struct params *p, const struct field *f, const struct json *v,
            struct err *e)
{
    return json_type(v) == JSON_NUMBER
               ? set_keep_alive(p, f, v, e)
               : field_want(f, e, "a number of seconds");
}

static int add_stop(struct params *p, const struct field *f,
                    const struct json *v, struct err *e)
{
    const char *s = json_str(v);
    if (s == NULL || s[0] == '\0' || strlen(s) > STOP_BYTES_MAX) {
        return err_set(e, ERR_INVALID,
                       "%s: each must be a string of 1 to %u bytes", f->name,
                       STOP_BYTES_MAX);
    }
    if (p->req.n_stops >= STOP_STRINGS_MAX) {
        return err_set(e, ERR_INVALID, "%s: at most %u", f->name,
                       STOP_STRINGS_MAX);
    }
    char *copy = arena_str(p->a, s);
    if (copy == NULL) {
        return field_full(f, e);
    }
    p->req.stops[p->req.n_stops++] = copy;
    return 0;
}

int set_stop(struct params *p, const struct field *f, const struct json *v,
             struct err *e)
{
    if (json_type(v) == JSON_STRING) {
        return json_str(v)[0] != '\0' ? add_stop(p, f, v, e) : 0;
    }
    if (json_type(v) != JSON_ARRAY) {
        return field_want(f, e, "a string or an array of strings");
    }
    for (const struct json *c = json_first(v); c != NULL; c = json_next(c)) {
        RETERR(add_stop(p, f, c, e));
    }
    return 0;
}

static bool parse_id(const char *s, int32_t *ret)
{
    int64_t n = 0;
    if (*s == '\0') {
        return false;
    }
    for (; *s != '\0'; s++) {
        if (*s < '0' || *s > '9' || n > (int64_t)MODEL_VOCAB_MAX) {
            return false;
        }
        n = 10 * n + (*s - '0');
    }
    *ret = (int32_t)n;
    return n < (int64_t)MODEL_VOCAB_MAX;
}

/* {"id": bias}; false bans the token as llama-server has it. */
int set_bias(struct params *p, const struct field *f, const struct json *v,
             struct err *e)
{
    struct msg_sampling *s = &p->req.sampling;
    if (json_type(v) != JSON_OBJECT) {
        return field_want(f, e, "an object of token id and bias");
    }
    size_t n = json_count(v);
    if (n > ENGINE_BIAS_MAX) {
        return err_set(e, ERR_INVALID, "%s: at most %u entries", f->name,
                       ENGINE_BIAS_MAX);
    }
    s->bias = arena_array(p->a, n, sizeof(*s->bias));
    if (s->bias == NULL) {
        return field_full(f, e);
    }
    for (const struct json *c = json_first(v); c != NULL; c = json_next(c)) {
        int32_t id = 0;
        double x = json_num(c);
        bool ban = json_type(c) == JSON_BOOL && !json_bool(c);
        if (!parse_id(json_key(c), &id)) {
            return err_set(e, ERR_INVALID, "%s: '%.32s' is no token id",
                           f->name, json_key(c));
        }
        if (!ban && (json_type(c) != JSON_NUMBER || x < -100 || x > 100)) {
            return err_set(e, ERR_INVALID,
                           "%s: the bias of %d must be a number from -100 to "
                           "100, or false",
                           f->name, (int)id);
        }
        s->bias[s->n_bias++] =
            (struct msg_bias){.id = id, .bias = ban ? -INFINITY : (float)x};
    }
    return 0;
}

int set_object(struct params *p, const struct field *f, const struct json *v,
               struct err *e)
{
    size_t skip = strlen(f->name) + 1; /* "options." */
    if (json_type(v) != JSON_OBJECT) {
        return field_want(f, e, "an object");
    }
    for (const struct json *c = json_first(v); c != NULL; c = json_next(c)) {
        const struct field *x = f->sub;
        char name[64];
        (void)snprintf(name, sizeof(name), "%s.%s", f->name, json_key(c));
        params_blame(p, name);
        if (json_type(c) == JSON_NULL) {
            continue;
        }
        while (x->name != NULL && strcmp(x->name + skip, json_key(c)) != 0) {
            x++;
        }
        if (x->name == NULL) {
            return err_set(e, ERR_UNSUPPORTED, "%s: no such field here", name);
        }
        RETERR(x->set(p, x, c, e));
    }
    params_blame(p, f->name);
    return 0;
}

/* --- taken, and nothing changes --- */

int take_any(struct params *p, const struct field *f, const struct json *v,
             struct err *e)
{
    (void)p, (void)f, (void)v, (void)e;
    return 0;
}

int take_bool(struct params *p, const struct field *f, const struct json *v,
              struct err *e)
{
    (void)p;
    return json_type(v) == JSON_BOOL ? 0 : field_want(f, e, "true or false");
}

int take_number(struct params *p, const struct field *f, const struct json *v,
                struct err *e)
{
    int64_t n = 0;
    (void)p;
    return field_int(f, v, &n, e);
}

int take_string(struct params *p, const struct field *f, const struct json *v,
                struct err *e)
{
    (void)p;
    return json_type(v) == JSON_STRING ? 0 : field_want(f, e, "a string");
}

int take_word(struct params *p, const struct field *f, const struct json *v,
              struct err *e)
{
    (void)p;
    return field_is_word(f, v) ? 0
                               : want_word(f, e, ERR_INVALID, "must be one of");
}

int take_object(struct params *p, const struct field *f, const struct json *v,
                struct err *e)
{
    (void)p;
    return json_type(v) == JSON_OBJECT ? 0 : field_want(f, e, "an object");
}

int take_strings(struct params *p, const struct field *f, const struct json *v,
                 struct err *e)
{
    bool ok = json_type(v) == JSON_ARRAY;
    (void)p;
    for (const struct json *c = ok ? json_first(v) : NULL; c != NULL;
         c = json_next(c)) {
        ok = ok && json_type(c) == JSON_STRING;
    }
    return ok ? 0 : field_want(f, e, "an array of strings");
}

/* --- only the value that changes nothing --- */

int only_number(struct params *p, const struct field *f, const struct json *v,
                struct err *e)
{
    char only[32];
    (void)p;
    (void)snprintf(only, sizeof(only), "only %g", f->lo);
    return json_type(v) == JSON_NUMBER && json_num(v) == f->lo
               ? 0
               : field_unsupported(f, e, only);
}

int only_false(struct params *p, const struct field *f, const struct json *v,
               struct err *e)
{
    (void)p;
    return json_type(v) == JSON_BOOL && !json_bool(v)
               ? 0
               : field_unsupported(f, e, "only false");
}

int only_absent(struct params *p, const struct field *f, const struct json *v,
                struct err *e)
{
    (void)p, (void)v; /* null does not come here */
    return field_unsupported(f, e, "not here");
}

int only_empty(struct params *p, const struct field *f, const struct json *v,
               struct err *e)
{
    const char *s = json_str(v);
    (void)p;
    return (s != NULL && s[0] == '\0') ||
                   (json_type(v) == JSON_ARRAY && json_first(v) == NULL)
               ? 0
               : field_unsupported(f, e, "only an empty one");
}

int only_no_members(struct params *p, const struct field *f,
                    const struct json *v, struct err *e)
{
    (void)p;
    return json_type(v) == JSON_OBJECT && json_first(v) == NULL
               ? 0
               : field_unsupported(f, e, "only an empty one");
}

int only_word(struct params *p, const struct field *f, const struct json *v,
              struct err *e)
{
    bool ok = field_is_word(f, v);
    const struct json *c = json_type(v) == JSON_ARRAY ? json_first(v) : NULL;
    (void)p;
    for (; c != NULL; c = json_next(c)) {
        ok = field_is_word(f, c);
        if (!ok) {
            break;
        }
    }
    return ok ? 0 : want_word(f, e, ERR_UNSUPPORTED, "only");
}
