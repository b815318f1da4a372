/* plan_profile.c - reads conf/ane-profiles.json. A figure without a source of
 * the table "sources", or without a word of confidence, is an error, so that
 * none gets into a plan. */
#include <stddef.h>
#include <string.h>

#include "convert/plan.h"
#include "profiles.h"

#define FILE_MAX KIB(256)

static int parse(struct json **ret, struct err *e)
{
    struct buf b;
    buf_init(&b, FILE_MAX);
    for (size_t i = 0; i < countof(profiles_lines); i++) {
        buf_puts(&b, profiles_lines[i]);
        buf_puts(&b, "\n");
    }
    int rc = buf_ok(&b) ? json_parse(b.p, b.n, ret, e)
                        : err_set(e, ERR_INVALID, "larger than the limit");
    buf_fini(&b);
    return rc;
}

static const struct json *find(const struct json *root, const char *name)
{
    for (const struct json *j = json_first(json_get(root, "profiles"));
         j != NULL; j = json_next(j)) {
        const char *n = json_str(json_get(j, "name"));
        if (n != NULL && strcmp(n, name) == 0) {
            return j;
        }
    }
    return NULL;
}

/* The figure of a profile, or of the one that it is as. NULL: not known. */
static const struct json *figure(const struct json *root, const struct json *p,
                                 const char *key)
{
    for (unsigned i = 0; p != NULL && i < PLAN_PROFILES_MAX; i++) {
        const struct json *f = json_get(json_get(p, "figures"), key);
        if (f != NULL) {
            return json_type(f) == JSON_NULL ? NULL : f;
        }
        const char *as = json_str(json_get(p, "as"));
        p = as != NULL ? find(root, as) : NULL;
    }
    return NULL;
}

/* --- one figure --- */

static int check_source(const struct json *root, const struct json *f,
                        const char *key, struct err *e)
{
    static const char *const words[] = {"measured", "inferred", "conservative"};
    const char *source = NULL;
    const char *word = NULL;
    char who[64];
    RETERR(json_want_str(f, "source", true, &source, e));
    RETERR(json_want_str(f, "confidence", true, &word, e));
    size_t n = strcspn(source, ":");
    (void)snprintf(who, sizeof(who), "%.*s", (int)n, source);
    if (source[n] != ':' || n >= sizeof(who) ||
        json_str(json_get(json_get(root, "sources"), who)) == NULL) {
        return err_set(e, ERR_INVALID, "%s: no source '%s'", key, who);
    }
    for (size_t i = 0; i < countof(words); i++) {
        if (strcmp(word, words[i]) == 0) {
            return 0;
        }
    }
    return err_set(e, ERR_INVALID, "%s: confidence '%.32s'", key, word);
}

/* Absent: not known, `none` in both bounds. */
static int read_span(const struct json *root, const struct json *p,
                     const char *key, double lo, double hi, double none,
                     struct plan_span *ret, struct err *e)
{
    const struct json *f = figure(root, p, key);
    *ret = (struct plan_span){.least = none, .most = none};
    if (f == NULL) {
        return 0;
    }
    struct plan_span s = {.known = true};
    RETERR(check_source(root, f, key, e));
    RETERR(json_want_num(f, "value", true, lo, hi, &s.least, e));
    s.most = s.least;
    RETERR(json_want_num(f, "to", false, s.least, hi, &s.most, e));
    *ret = s;
    return 0;
}

/* A bound of at most 2^53 is exact as a double. */
static int read_limit(const struct json *root, const struct json *p,
                      const char *key, uint64_t lo, uint64_t hi, uint64_t none,
                      uint64_t *ret, struct err *e)
{
    struct plan_span s = {0};
    RETERR(read_span(root, p, key, (double)lo, (double)hi, 0, &s, e));
    *ret = s.known ? (uint64_t)s.least : none;
    return 0;
}

/* --- a profile --- */

static int read_limits(const struct json *root, const struct json *j,
                       struct plan_profile *p, struct err *e)
{
    const struct {
        const char *key;
        uint64_t lo, hi, none;
        uint32_t *to;
    } rows[] = {
        {"states",    2,  1 << 20,           UINT32_MAX, &p->states   },
        {"head_rows", 64, MODEL_VOCAB_MAX,   UINT32_MAX, &p->head_rows},
        {"channels",  1,  UINT32_MAX,        UINT32_MAX, &p->channels },
        {"axis",      32, MODEL_CONTEXT_MAX, UINT32_MAX, &p->axis     },
        {"programs",  2,  1 << 20,           UINT32_MAX, &p->programs },
        {"fold_bits", 0,  16,                0,          &p->fold_bits},
        {"rows",      1,  1 << 20,           0,          &p->rows     },
    };
    RETERR(read_limit(root, j, "program_bytes", 1, (uint64_t)1 << 52, INT64_MAX,
                      &p->program_bytes, e));
    for (size_t i = 0; i < countof(rows); i++) {
        uint64_t v = 0;
        RETERR(read_limit(root, j, rows[i].key, rows[i].lo, rows[i].hi,
                          rows[i].none, &v, e));
        *rows[i].to = (uint32_t)v;
    }
    return 0;
}

static int read_profile(const struct json *root, const struct json *j,
                        struct plan_profile *p, struct err *e)
{
    const char *name = NULL;
    const struct {
        const char *key;
        double lo, hi;
        struct plan_span *to;
    } rows[] = {
        {"resident_bytes", 1,    1e15, &p->resident_bytes},
        {"gbytes_per_s",   1e-3, 1e6,  &p->gbytes_per_s  },
        {"efficiency",     1e-3, 1,    &p->efficiency    },
        {"boundary_ms",    0,    1e6,  &p->boundary_ms   },
        {"program_ms",     0,    1e6,  &p->program_ms    },
        {"kv_ms",          0,    1e6,  &p->kv_ms         },
        {"rows_factor",    1,    1e6,  &p->rows_factor   },
    };
    RETERR(json_want_str(j, "name", true, &name, e));
    if (strlen(name) >= sizeof(p->name)) {
        return err_set(e, ERR_INVALID, "a name of %zu bytes", strlen(name));
    }
    memcpy(p->name, name, strlen(name) + 1);
    const struct json *chip = json_get(j, "chip");
    p->chip = chip == NULL || json_bool(chip);
    int rc = read_limits(root, j, p, e);
    for (size_t i = 0; rc == 0 && i < countof(rows); i++) {
        rc = read_span(root, j, rows[i].key, rows[i].lo, rows[i].hi, 0,
                       rows[i].to, e);
    }
    return rc < 0 ? err_prefix(e, rc, "%s", p->name) : 0;
}

int plan_profiles(struct plan_profile ret[PLAN_PROFILES_MAX], size_t *n,
                  struct err *e)
{
    struct json *root = NULL;
    size_t k = 0;
    int rc = parse(&root, e);
    for (const struct json *j = json_first(json_get(root, "profiles"));
         rc == 0 && j != NULL; j = json_next(j)) {
        struct plan_profile p = {.name = ""};
        rc = k < PLAN_PROFILES_MAX
                 ? read_profile(root, j, &p, e)
                 : err_set(e, ERR_INVALID, "more than %u profiles",
                           PLAN_PROFILES_MAX);
        if (rc == 0) {
            ret[k++] = p;
        }
    }
    json_free(root);
    *n = k;
    return rc < 0 ? err_prefix(e, rc, "conf/ane-profiles.json") : 0;
}

int plan_profile(const char *name, struct plan_profile *ret, struct err *e)
{
    struct plan_profile all[PLAN_PROFILES_MAX];
    size_t n = 0;
    char known[ERR_MSG_MAX / 2] = "";
    size_t used = 0;
    name = name != NULL ? name : "law";
    RETERR(plan_profiles(all, &n, e));
    for (size_t i = 0; i < n; i++) {
        if (strcmp(all[i].name, name) == 0) {
            *ret = all[i];
            return 0;
        }
        int k =
            snprintf(known + used, sizeof(known) - used, " %s", all[i].name);
        used += k > 0 && (size_t)k < sizeof(known) - used ? (size_t)k : 0;
    }
    return err_set(e, ERR_INVALID, "profile '%.32s'; there are%s", name, known);
}

struct json *plan_profile_json(const char *name)
{
    struct json *root = NULL;
    struct json *o = json_object();
    struct err e = {0};
    int rc = parse(&root, &e);
    must(rc == 0); /* the caller has read it already */
    const struct json *p = find(root, name);
    const struct json *keys = json_get(root, "figures");
    json_add_str(o, "name", name);
    struct json *list = json_add_object(o, "figures");
    for (const struct json *k = json_first(keys); k != NULL; k = json_next(k)) {
        const struct json *f = figure(root, p, json_key(k));
        if (f != NULL) {
            json_add_tree(list, json_key(k), json_copy(f));
        } else {
            json_add_null(list, json_key(k));
        }
    }
    json_add_tree(o, "sources", json_copy(json_get(root, "sources")));
    json_free(root);
    return o;
}
