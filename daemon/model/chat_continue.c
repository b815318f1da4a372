/* chat_continue.c - see chat_continue.h. */
#include "model/chat_continue.h"

#include <string.h>

#include "model/jinja/text.h"

#define MARK "CONTINUE_FINAL_MESSAGE_TAG"

/* The last message of the list in the variables; NULL. */
static struct val_dict *last_message(struct val_dict *vars,
                                     struct val_list **ret_list)
{
    const struct val *v = dict_gets(vars, zspan("messages"));
    if (v == NULL || v->kind != V_LIST || v->list->n == 0) {
        return NULL;
    }
    const struct val *last = &v->list->v[v->list->n - 1];
    *ret_list = v->list;
    return last->kind == V_DICT ? last->dict : NULL;
}

bool continue_wanted(struct val_dict *vars)
{
    struct val_list *list = NULL;
    const struct val_dict *m = last_message(vars, &list);
    if (m == NULL) {
        return false;
    }
    const struct val *role = dict_gets(m, zspan("role"));
    const struct val *text = dict_gets(m, zspan("content"));
    const struct val *calls = dict_gets(m, zspan("tool_calls"));
    if (role == NULL || role->kind != V_STR || !span_is(role->s, "assistant") ||
        text == NULL || text->kind != V_STR ||
        (calls != NULL && val_true(calls))) {
        return false;
    }
    if (span_ltrim(text->s).n > 0) {
        return true;
    }
    list->n -= list->n > 1 ? 1 : 0;
    return false;
}

/* Whose member `content` or `text` is the text to go on with, and its name. */
static struct val_dict *holder(struct val_dict *m, const char **ret_key)
{
    const struct val *v = dict_gets(m, zspan("content"));
    if (v != NULL && v->kind == V_STR) {
        *ret_key = "content";
        return m;
    }
    for (size_t i = v != NULL && v->kind == V_LIST ? v->list->n : 0; i > 0;
         i--) {
        const struct val *part = &v->list->v[i - 1];
        const struct val *text =
            part->kind == V_DICT ? dict_gets(part->dict, zspan("text")) : NULL;
        if (text != NULL && text->kind == V_STR) {
            *ret_key = "text";
            return part->dict;
        }
    }
    return NULL;
}

int continue_mark(struct arena *a, struct val_dict *vars, struct span *ret,
                  struct err *e)
{
    static const char mark[] = MARK " ";
    const char *key = NULL;
    struct val_list *list = NULL;
    struct val_dict *m = last_message(vars, &list);
    m = m != NULL ? holder(m, &key) : NULL;
    if (m == NULL) {
        return err_set(e, ERR_TEMPLATE_INPUT,
                       "the last message has no text to go on with");
    }
    struct span s = dict_gets(m, zspan(key))->s;
    char *p = arena_alloc(a, s.n + sizeof(mark));
    if (p == NULL) {
        return err_set(e, ERR_TOO_BIG, "the messages");
    }
    memcpy(p, s.p, s.n);
    memcpy(p + s.n, mark, sizeof(mark));
    *ret = span_rtrim(span_ltrim((struct span){p, s.n}));
    struct val v = val_str((struct span){p, s.n + sizeof(mark) - 1});
    return dict_put(a, m, val_strz(key), v)
               ? 0
               : err_set(e, ERR_TOO_BIG, "the messages");
}

/* Where the last mark begins; s.n: nowhere. */
static size_t find_mark(struct span s)
{
    const size_t n = sizeof(MARK) - 1;
    for (size_t at = s.n >= n ? s.n - n + 1 : 0; at > 0; at--) {
        if (memcmp(s.p + at - 1, MARK, n) == 0) {
            return at - 1;
        }
    }
    return s.n;
}

int continue_cut(struct buf *b, size_t from, struct span text, struct err *e)
{
    struct span s = {b->p + from, b->n - from};
    size_t at = find_mark(s);
    struct span before = {s.p, at};
    struct span trimmed = span_rtrim(before);
    if (at == s.n || trimmed.n < text.n ||
        (text.n > 0 &&
         memcmp(trimmed.p + trimmed.n - text.n, text.p, text.n) != 0)) {
        return err_set(e, ERR_TEMPLATE_INPUT,
                       "the last message cannot be continued: the model's chat "
                       "template does not write its text as it is");
    }
    size_t behind = at + sizeof(MARK) - 1;
    bool kept = behind < s.n && s.p[behind] == ' ';
    b->n = from + (kept ? before.n : trimmed.n);
    b->p[b->n] = '\0';
    return 0;
}
