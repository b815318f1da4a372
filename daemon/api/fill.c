/* fill.c - see fill.h. */
#include "api/fill.h"

#include <string.h>

#include "api/messages.h"

int fill_copy(struct arena *a, const char *s, struct span *ret, struct err *e)
{
    s = s != NULL ? s : "";
    ret->n = strlen(s);
    ret->p = arena_strn(a, s, ret->n);
    return ret->p != NULL ? 0 : message_too_big(e);
}

int fill_request(struct arena *a, const char *prefix, const char *prompt,
                 const char *suffix, struct gen_req *q, struct fim_text **ret,
                 struct err *e)
{
    struct fim_text *f = arena_array(a, 1, sizeof(*f));
    if (f == NULL) {
        return message_too_big(e);
    }
    RETERR(fill_copy(a, prefix, &f->prefix, e));
    RETERR(fill_copy(a, prompt, &f->prompt, e));
    RETERR(fill_copy(a, suffix, &f->suffix, e));
    q->kind = GEN_FIM;
    q->fim = f;
    *ret = f;
    return 0;
}
