/* reply_check.h - one answer in pieces of every size must give these events.
 * In all texts '~' stands for '"', for legibility. */
#pragma once

#include "tests/unit/model/reply_events.h"
#include "tests/unit/unit.h"

struct reply_case {
    const char *in, *want;
};

static inline char *reply_quoted(const char *s)
{
    char *p = strdup(s);
    assert_non_null(p);
    for (char *q = p; *q != '\0'; q++) {
        *q = *q == '~' ? '"' : *q;
    }
    return p;
}

struct reply_how {
    struct reply_forms forms;
    bool no_tools;
    const char *tail; /* of the prompt; NULL: none */
    reply_string_fn is_string;
};

/* The caller frees the result. */
static inline char *reply_run(const struct reply_how *how, const char *in,
                              size_t n, size_t step)
{
    struct reply_events v = {.last = '\0'};
    buf_init(&v.b, MIB(8));
    buf_puts(&v.b, "");
    const char *tail = how->tail != NULL ? how->tail : "";
    struct reply *r = reply_new(&how->forms, !how->no_tools, tail,
                                strlen(tail), &events_sink, &v);
    if (how->is_string != NULL) {
        reply_strings(r, how->is_string, NULL);
    }
    for (size_t i = 0; i < n; i += step) {
        reply_put(r, in + i, step < n - i ? step : n - i);
    }
    reply_end(r);
    reply_free(r);
    events_close(&v);
    assert_true(buf_ok(&v.b));
    return v.b.p;
}

static inline void reply_check(const struct reply_how *how, const char *in,
                               const char *want)
{
    char *p = reply_quoted(in);
    char *w = reply_quoted(want);
    size_t n = strlen(p);
    for (size_t step = 1; step <= n + 1; step++) {
        char *got = reply_run(how, p, n, step);
        if (strcmp(got, w) != 0) {
            fail_msg("%s\nin pieces of %zu bytes\n  got  %s\n  want %s", p,
                     step, got, w);
        }
        free(got);
    }
    free(p);
    free(w);
}

static inline void reply_check_all(const struct reply_how *how,
                                   const struct reply_case *t, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        reply_check(how, t[i].in, t[i].want);
    }
}

#define REPLY_CHECK_ALL(how, t) reply_check_all((how), (t), countof(t))

/* A form by the texts that a template has. */
static inline struct reply_how reply_how(const char *tmpl)
{
    struct reply_how how = {.no_tools = false};
    reply_forms_find(tmpl, &how.forms);
    return how;
}
