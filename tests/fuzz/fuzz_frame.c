/* fuzz_frame.c - bytes of a channel: frames in pieces, and each payload through
 * its decoder. What a decoder takes must encode to the very same bytes. */
#include <string.h>

#include "proto/frame.h"
#include "proto/msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

#define DECODE(NAME, FINI)                                        \
    do {                                                          \
        struct msg_##NAME m_;                                     \
        if (msg_##NAME##_get(p, n, &m_, &e) == 0) {               \
            msg_##NAME##_put(&b, &m_);                            \
            must(b.n == n && (n == 0 || memcmp(b.p, p, n) == 0)); \
            FINI(&m_);                                            \
        }                                                         \
        buf_clear(&b);                                            \
    } while (0)

static void keep(void *p)
{
    (void)p;
}

static void error_again(const uint8_t *p, size_t n, struct buf *b)
{
    struct msg_error m;
    struct err e = {0};
    if (msg_error_get(p, n, &m, &e) == 0) {
        e.code = m.code;
        memcpy(e.msg, m.msg, sizeof(e.msg));
        msg_error_put(b, &e);
        must(b->n == n && memcmp(b->p, p, n) == 0);
    }
    buf_clear(b);
}

static void decode_all(const uint8_t *p, size_t n)
{
    struct err e;
    struct buf b;
    buf_init(&b, MIB(8));
    DECODE(load, msg_load_fini);
    DECODE(ready, keep);
    DECODE(seq, keep);
    DECODE(grammar, keep);
    DECODE(step, msg_step_fini);
    DECODE(step_done, msg_step_done_fini);
    DECODE(state, msg_state_fini);
    DECODE(state_done, keep);
    DECODE(progress, keep);
    DECODE(tags, msg_tags_fini);
    DECODE(tags_done, msg_tags_done_fini);
    error_again(p, n, &b);
    buf_fini(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    decode_all(p, n);
    if (n < 1) {
        return 0;
    }
    struct err e;
    struct frame_in in;
    frame_in_init(&in, KIB(4));
    size_t piece = (size_t)p[0] + 1;
    for (size_t at = 1; at < n; at += piece) {
        size_t k = n - at < piece ? n - at : piece;
        int rc = frame_in_put(&in, p + at, k, &e);
        struct frame f;
        while (rc == 0 && frame_in_next(&in, &f, &e) == 1) {
            must(f.n <= KIB(4));
            decode_all(f.payload, f.n);
        }
        if (rc < 0) {
            must(frame_in_next(&in, &f, &e) < 0);
            break;
        }
    }
    frame_in_fini(&in);
    return 0;
}
