/* constrain_check.h - what tests of constraints of answers share: tools, and
 * the constraint of a form, compiled. */
#pragma once

#include "grammar_check.h"
#include "model/reply/constrain.h"
#include "tests/unit/model/reply_check.h"

/* f(city, days?, unit?), g_2(flag, note?, list?, more?), h(); items: the type
 * of the list's. */
#define TOOL_F                                                        \
    "{~type~: ~function~, ~function~: {~name~: ~f~, ~strict~: true, " \
    "~parameters~: {~type~: ~object~, ~properties~: {"                \
    "~city~: {~type~: ~string~}, ~days~: {~type~: ~integer~}, "       \
    "~unit~: {~type~: ~string~, ~enum~: [~c~, ~f~]}}, "               \
    "~required~: [~city~], ~additionalProperties~: false}}}"
#define TOOL_G(items)                                                     \
    "{~type~: ~function~, ~function~: {~name~: ~g_2~, ~strict~: true, "   \
    "~parameters~: {~type~: ~object~, ~properties~: {"                    \
    "~flag~: {~type~: ~boolean~}, ~note~: {~type~: [~string~, ~null~]}, " \
    "~list~: {~type~: ~array~, ~items~: {~type~: ~" items "~}, "          \
    "~maxItems~: 2}, ~more~: {~$ref~: ~#/$defs/m~}}, "                    \
    "~required~: [~flag~], ~additionalProperties~: false, "               \
    "~$defs~: {~m~: {~type~: ~object~, ~properties~: {~x~: {~type~: "     \
    "~number~}}, ~required~: [~x~], ~additionalProperties~: false}}}}}"
#define TOOLS_OF(items)                                                 \
    "[" TOOL_F ", " TOOL_G(items) ", {~type~: ~function~, ~function~: " \
                                  "{~name~: ~h~}}]"
#define TOOLS TOOLS_OF("string")

struct held {
    struct reply_how how;
    struct json *tools;
    struct grammar *g;
    struct matcher *m;
};

static inline struct json *json_of(const char *text)
{
    struct err e = {0};
    struct json *j = NULL;
    char *p = reply_quoted(text);
    unit_ok(json_parse(p, strlen(p), &j, &e), &e);
    free(p);
    return j;
}

static inline bool param_is_string(void *ctx, const char *name, size_t n,
                                   const char *key, size_t key_n)
{
    (void)ctx;
    return n == 1 && *name == 'f' && key_n == 4 &&
           (memcmp(key, "city", 4) == 0 || memcmp(key, "unit", 4) == 0);
}

static inline void hold(struct held *h, const char *tmpl,
                        const struct reply_want *w)
{
    struct err e = {0};
    struct buf b;
    struct reply_want want = *w;
    h->how = reply_how(tmpl);
    h->how.is_string = param_is_string;
    h->tools = json_of(TOOLS);
    want.tools = want.tools != NULL ? want.tools : h->tools;
    buf_init(&b, MIB(1));
    unit_ok(reply_constraint(&h->how.forms, &want, &b, &e), &e);
    int rc = grammar_from_text(b.p, b.n, &h->g, &e);
    if (rc != 0) {
        fail_msg("%s: %s: %s", b.p, err_name(rc), e.msg);
    }
    unit_ok(matcher_new(h->g, &h->m, &e), &e);
    buf_fini(&b);
}

static inline void let_go(struct held *h)
{
    matcher_free(h->m);
    grammar_free(h->g);
    json_free(h->tools);
}
