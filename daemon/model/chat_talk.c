/* chat_talk.c - see chat_talk.h. */
#include "model/chat_talk.h"

#include <string.h>

#include "proto/limits.h"

#define NONE UINT32_MAX

void talk_put(struct buf *b, const struct chat_message *m, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        buf_u32(b, (uint32_t)strlen(m[i].role));
        buf_u32(b, m[i].content != NULL ? (uint32_t)m[i].content_n : NONE);
        buf_u32(b, (uint32_t)m[i].fields.n);
        buf_u32(b, (uint32_t)m[i].reasoning_n);
        buf_puts(b, m[i].role);
        buf_u8(b, 0);
        if (m[i].content != NULL) {
            buf_put(b, m[i].content, m[i].content_n);
            buf_u8(b, 0);
        }
        buf_put(b, m[i].fields.p, m[i].fields.n);
        buf_u8(b, 0);
        buf_put(b, m[i].reasoning, m[i].reasoning_n);
        buf_u8(b, 0);
    }
}

/* n bytes and a NUL; NULL: they are not there. */
static const char *text(struct cur *c, size_t n)
{
    const char *p = cur_bytes(c, n);
    return cur_u8(c) == 0 && !c->bad ? p : NULL;
}

static bool get(struct cur *c, struct chat_message *m)
{
    uint32_t role = cur_u32(c), content = cur_u32(c), fields = cur_u32(c);
    uint32_t thought = cur_u32(c);
    *m = (struct chat_message){.role = text(c, role)};
    if (content != NONE) {
        m->content_n = content;
        m->content = text(c, content);
    }
    m->fields = (struct span){text(c, fields), fields};
    const char *thinks = text(c, thought);
    m->reasoning = thought > 0 ? thinks : NULL;
    m->reasoning_n = thought;
    return !c->bad && m->role != NULL && strlen(m->role) == role &&
           (content == NONE || m->content != NULL) && m->fields.p != NULL &&
           thinks != NULL;
}

int talk_get(struct arena *a, const char *p, size_t n, size_t before,
             size_t behind, struct chat_message **ret, size_t *ret_n,
             struct err *e)
{
    struct chat_message m;
    struct cur c = cur_of(p, n);
    size_t count = 0;
    while (!cur_done(&c)) {
        if (!get(&c, &m)) {
            return err_set(e, ERR_STORE, "the conversation is damaged");
        }
        count++;
    }
    if (before + count + behind > CHAT_MESSAGES_MAX) {
        return err_set(e, ERR_TOO_BIG, "%zu messages are over the limit of %u",
                       before + count + behind, CHAT_MESSAGES_MAX);
    }
    char *own = arena_alloc(a, n + 1);
    *ret = arena_array(a, before + count + behind, sizeof(**ret));
    if (own == NULL || *ret == NULL) {
        return err_set(e, ERR_TOO_BIG, "the conversation is over the limit");
    }
    memcpy(own, p != NULL ? p : "", n);
    c = cur_of(own, n);
    for (size_t i = 0; i < count; i++) {
        must(get(&c, &(*ret)[before + i])); /* it was looked at */
    }
    *ret_n = count;
    return 0;
}
