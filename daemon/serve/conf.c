/* conf.c - see conf.h. inih splits lines; everything else is the table. */
#include "serve/conf.h"

#include <errno.h>
#include <ini.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "serve/tcp.h"

#define ALIASES "aliases" /* the section */

enum kind { KIND_INT, KIND_STR, KIND_WORD };

struct option {
    const char *section, *key, *help;
    enum kind kind;
    enum conf_when when;
    size_t offset; /* in struct conf */
    int64_t def, min, max;
    const char *text; /* default of STR and WORD */
    const char *words;
};

#define ROW_INT(s, k, w, d, lo, hi, h)         \
    {.section = #s,                            \
     .key = #k,                                \
     .help = h,                                \
     .kind = KIND_INT,                         \
     .when = CONF_##w,                         \
     .offset = offsetof(struct conf, s##_##k), \
     .def = (int64_t)(d),                      \
     .min = (int64_t)(lo),                     \
     .max = (int64_t)(hi)},
#define ROW_STR(s, k, w, d, h)                 \
    {.section = #s,                            \
     .key = #k,                                \
     .help = h,                                \
     .kind = KIND_STR,                         \
     .when = CONF_##w,                         \
     .offset = offsetof(struct conf, s##_##k), \
     .text = d},
#define ROW_WORD(s, k, w, d, ws, h)            \
    {.section = #s,                            \
     .key = #k,                                \
     .help = h,                                \
     .kind = KIND_WORD,                        \
     .when = CONF_##w,                         \
     .offset = offsetof(struct conf, s##_##k), \
     .text = d,                                \
     .words = ws},

static const struct option options[] = {CONF_MAP(ROW_INT, ROW_STR, ROW_WORD)};

/* Texts that have a form of their own. */
static const struct {
    size_t offset;
    int (*check)(const char *text, struct err *e);
} forms[] = {
    {offsetof(struct conf, http_listen),       tcp_check_listen },
    {offsetof(struct conf, http_cors_origins), tcp_check_origins},
};

static char *str_of(struct conf *c, const struct option *o)
{
    return (char *)c + o->offset;
}

static void set_int(struct conf *c, const struct option *o, int64_t v)
{
    memcpy((char *)c + o->offset, &v, sizeof(v));
}

void conf_init(struct conf *c)
{
    memset(c, 0, sizeof(*c));
    for (size_t i = 0; i < countof(options); i++) {
        const struct option *o = &options[i];
        if (o->kind == KIND_INT) {
            set_int(c, o, o->def);
        } else {
            (void)snprintf(str_of(c, o), CONF_STR_MAX, "%s", o->text);
        }
    }
}

static bool has_word(const char *words, const char *v)
{
    size_t n = strlen(v);
    for (const char *p = words; *p != '\0';) {
        size_t m = strcspn(p, " ");
        if (m == n && memcmp(p, v, n) == 0) {
            return true;
        }
        p += m;
        p += *p == ' ' ? 1 : 0;
    }
    return false;
}

/* --- reading --- */

struct reading {
    struct conf conf;
    FILE *f;
    const char *path;
    int line;
    bool seen[countof(options)];
    struct err *e;
    int rc;
};

static int set_alias(struct reading *r, const char *name, const char *value)
{
    struct err why = {0};
    if (aliases_add(&r->conf.aliases, name, value, &why) == 0) {
        return 0;
    }
    return err_set(r->e, ERR_CONFIG, "%s:%d: %.300s", r->path, r->line,
                   why.msg);
}

static int check_form(struct reading *r, const struct option *o,
                      const char *value)
{
    for (size_t i = 0; i < countof(forms); i++) {
        struct err why = {0};
        if (forms[i].offset == o->offset && forms[i].check(value, &why) != 0) {
            return err_set(r->e, ERR_CONFIG, "%s:%d: '%s': %.300s", r->path,
                           r->line, o->key, why.msg);
        }
    }
    return 0;
}

static int set(struct reading *r, size_t i, const char *value)
{
    const struct option *o = &options[i];
    int64_t v = 0;
    if (r->seen[i]) {
        return err_set(r->e, ERR_CONFIG,
                       "%s:%d: '%s' is given twice (an indented line goes on "
                       "with the one above)",
                       r->path, r->line, o->key);
    }
    r->seen[i] = true;
    switch (o->kind) {
    case KIND_INT:
        if (!parse_i64(value, &v) || v < o->min || v > o->max) {
            return err_set(r->e, ERR_CONFIG,
                           "%s:%d: '%s' takes a whole number from %lld to %lld",
                           r->path, r->line, o->key, (long long)o->min,
                           (long long)o->max);
        }
        set_int(&r->conf, o, v);
        return 0;
    case KIND_WORD:
        if (!has_word(o->words, value)) {
            return err_set(r->e, ERR_CONFIG, "%s:%d: '%s' is one of: %s",
                           r->path, r->line, o->key, o->words);
        }
        break;
    case KIND_STR:
        RETERR(check_form(r, o, value));
        break;
    }
    if (snprintf(str_of(&r->conf, o), CONF_STR_MAX, "%s", value) >=
        CONF_STR_MAX) {
        return err_set(r->e, ERR_CONFIG, "%s:%d: '%s' is too long", r->path,
                       r->line, o->key);
    }
    return 0;
}

/* inih's handler: 1 continues, 0 is an error (the first one is kept). */
static int on_value(void *user, const char *section, const char *name,
                    const char *value)
{
    struct reading *r = user;
    if (r->rc != 0) {
        return 0;
    }
    if (strcmp(section, ALIASES) == 0) {
        r->rc = set_alias(r, name, value != NULL ? value : "");
        return r->rc == 0;
    }
    for (size_t i = 0; i < countof(options); i++) {
        if (strcmp(options[i].section, section) == 0 &&
            strcmp(options[i].key, name) == 0) {
            r->rc = set(r, i, value != NULL ? value : "");
            return r->rc == 0;
        }
    }
    r->rc = err_set(r->e, ERR_CONFIG,
                    "%s:%d: no option '%s' in section [%s]; "
                    "`aned serve --print-config` lists them all",
                    r->path, r->line, name, section);
    return 0;
}

/* One line for inih, which itself would split one that is too long. */
static char *on_line(char *str, int num, void *stream)
{
    struct reading *r = stream;
    if (r->rc != 0 || fgets(str, num, r->f) == NULL) {
        return NULL;
    }
    r->line++;
    size_t n = strlen(str);
    if (n > 0 && str[n - 1] != '\n' && !feof(r->f)) {
        r->rc = err_set(r->e, ERR_CONFIG, "%s:%d: line longer than %d bytes",
                        r->path, r->line, num - 1);
        return NULL;
    }
    return str;
}

int conf_read(struct conf *c, const char *path, struct err *e)
{
    struct reading *r = calloc(1, sizeof(*r)); /* too much for a stack */
    must(r != NULL);
    r->conf = *c;
    r->path = path;
    r->e = e;
    memset(&r->conf.aliases, 0, sizeof(r->conf.aliases));
    r->f = fopen(path, "re");
    if (r->f == NULL) {
        int no = errno;
        free(r);
        return err_errno(e, no, path);
    }
    int bad = ini_parse_stream(on_line, r, on_value, r);
    if (r->rc == 0 && bad != 0) {
        r->rc =
            err_set(e, ERR_CONFIG, "%s:%d: neither [section] nor key = value",
                    path, bad > 0 ? bad : r->line);
    }
    if (r->rc == 0 && ferror(r->f)) {
        r->rc = err_set(e, ERR_CONFIG, "%s: cannot be read", path);
    }
    (void)fclose(r->f);
    if (r->rc == 0) {
        *c = r->conf;
    }
    int rc = r->rc;
    free(r);
    return rc;
}

#define ALIASES_HELP                                                         \
    "Names that clients ask for, and the models that answer: a name or a\n"  \
    "pattern ('*' is any text, '?' one byte) on the left, a model on the\n"  \
    "right, as in `claude-* = gemma`. The first line that fits counts, but\n" \
    "a model of that very name comes first. Write '?' for a ':'.\n"

static void print_help(FILE *to, const char *help)
{
    while (*help != '\0') {
        size_t n = strcspn(help, "\n");
        (void)fprintf(to, "# %.*s\n", (int)n, help);
        help += n;
        help += *help == '\n' ? 1 : 0;
    }
}

static const char *when_text(enum conf_when when)
{
    static const char *const text[] = {
        [CONF_NOW] = "A reload changes it at once.",
        [CONF_LOAD] =
            "A reload changes it for models that are loaded afterwards.",
        [CONF_START] = "Only a restart changes it.",
    };
    return text[when];
}

void conf_print(FILE *to)
{
    const char *section = "";
    (void)fprintf(to,
                  "# aned.conf: every option with its default. Read from\n"
                  "# HOME/aned.conf or --config FILE when the daemon starts,\n"
                  "# and again on SIGHUP (`anectl service reload`).\n"
                  "# Written by `aned serve --print-config`.\n");
    for (size_t i = 0; i < countof(options); i++) {
        const struct option *o = &options[i];
        if (strcmp(section, o->section) != 0) {
            section = o->section;
            (void)fprintf(to, "\n[%s]\n", section);
        }
        (void)fprintf(to, "\n");
        print_help(to, o->help);
        (void)fprintf(to, "# %s\n", when_text(o->when));
        if (o->kind == KIND_INT) {
            (void)fprintf(to, "# %lld to %lld\n%s = %lld\n", (long long)o->min,
                          (long long)o->max, o->key, (long long)o->def);
            continue;
        }
        if (o->kind == KIND_WORD) {
            (void)fprintf(to, "# one of: %s\n", o->words);
        }
        (void)fprintf(to, "%s =%s%s\n", o->key, o->text[0] != '\0' ? " " : "",
                      o->text);
    }
    (void)fprintf(to, "\n[%s]\n\n", ALIASES);
    print_help(to, ALIASES_HELP);
    (void)fprintf(to, "# %s\n", when_text(CONF_NOW));
}

static bool same(const struct conf *a, const struct conf *b,
                 const struct option *o)
{
    const char *x = (const char *)a + o->offset;
    const char *y = (const char *)b + o->offset;
    return o->kind == KIND_INT ? memcmp(x, y, sizeof(int64_t)) == 0
                               : strcmp(x, y) == 0;
}

void conf_take(struct conf *was, const struct conf *is, conf_change_fn *fn,
               void *ctx)
{
    for (size_t i = 0; i < countof(options); i++) {
        const struct option *o = &options[i];
        char name[64];
        if (same(was, is, o)) {
            continue;
        }
        if (o->when != CONF_START) {
            memcpy((char *)was + o->offset, (const char *)is + o->offset,
                   o->kind == KIND_INT ? sizeof(int64_t) : CONF_STR_MAX);
        }
        (void)snprintf(name, sizeof(name), "%s.%s", o->section, o->key);
        if (fn != NULL) {
            fn(ctx, name, o->when);
        }
    }
    if (!aliases_same(&was->aliases, &is->aliases)) {
        was->aliases = is->aliases;
        if (fn != NULL) {
            fn(ctx, ALIASES, CONF_NOW);
        }
    }
}
