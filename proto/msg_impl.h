/* msg_impl.h - what msg.c and msg_step.c share. */
#pragma once

#include "proto/msg.h"

#define PAIR_BYTES 8u /* id and logprob, id and bias */

static inline size_t msg_left(const struct cur *c)
{
    return c->bad ? 0 : c->n - c->at;
}

static inline int msg_bad(struct err *e, const char *msg, const char *field)
{
    return err_set(e, ERR_FRAME, "%s: %s", msg, field);
}

/* Bytes missing or left over at the end of a payload. */
static inline int msg_check_end(const struct cur *c, const char *msg, struct err *e)
{
    if (cur_done(c)) {
        return 0;
    }
    return c->bad ? msg_bad(e, msg, "too short") : msg_bad(e, msg, "too long");
}

static inline bool msg_get_bool(struct cur *c)
{
    uint8_t v = cur_u8(c);
    c->bad = c->bad || v > 1;
    return v == 1;
}

static inline int32_t msg_get_i32(struct cur *c)
{
    return (int32_t)cur_u32(c);
}

static inline void msg_put_i32(struct buf *b, int32_t v)
{
    buf_u32(b, (uint32_t)v);
}
