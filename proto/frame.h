/* frame.h - the frames that serve and its children exchange over a socketpair.
 *
 * A frame is a 16-byte little-endian header and a payload:
 *   u32 magic 'ANF1'   u16 type   u16 zero   u32 length (of the payload)
 *   u32 request id (0 when it answers nothing)
 * A frame with another magic, an unknown type or a length above the channel's
 * limit (FRAME_WORKER_MAX, FRAME_ENGINE_MAX) is malformed: the reader gives
 * ERR_FRAME, and serve kills that child.
 *
 * frame_put and frame_in do no I/O: the caller reads and writes the bytes.
 */
#pragma once

#include "base/buf.h"
#include "proto/limits.h"

#define FRAME_MAGIC  0x31464e41u /* "ANF1" */
#define FRAME_HEADER 16u

enum frame_type {
    /* serve -> engine (payloads: msg.h) */
    FRAME_LOAD = 1,
    FRAME_SEQ_OPEN,
    FRAME_SEQ_FORK,
    FRAME_SEQ_TRUNCATE,
    FRAME_SEQ_CLOSE,
    FRAME_STEP,
    FRAME_STATE_SAVE,
    FRAME_STATE_LOAD,
    FRAME_UNLOAD,
    FRAME_GRAMMAR,      /* msg_grammar */
    FRAME_GRAMMAR_DROP, /* the same without a text */
    FRAME_TAGS,         /* msg_tags: an encoder's; CANCEL ends it */
    /* engine -> serve */
    FRAME_READY = 32,
    FRAME_STEP_DONE,
    FRAME_STATE_DONE, /* msg_state_done: state_* */
    FRAME_NOTICE,     /* msg_notice: unasked, before what it concerns */
    FRAME_TAGS_DONE,  /* msg_tags_done */
    /* both kinds of child -> serve */
    FRAME_PROGRESS = 48, /* worker: JSON; engine: msg_progress */
    FRAME_ERROR,         /* msg_error */
    FRAME_OK,            /* empty: seq_* done */
    /* serve -> convert worker, and back */
    FRAME_CONVERT = 64, /* JSON: the job, see convert/convert.h */
    FRAME_CANCEL,
    FRAME_CONVERT_DONE, /* JSON: the result */
    /* serve -> verify worker, and back */
    FRAME_VERIFY, /* JSON: the bundle, see convert/verify.h */
    FRAME_VERIFY_DONE,
    FRAME_BUSY, /* JSON: {"busy": bool}, to a gentle verify worker */
    /* serve -> probe worker, and back: JSON, see engine/probe/probe.h */
    FRAME_PROBE,
    FRAME_PROBE_RESULT,
    FRAME_PROBE_DONE,
    /* convert worker -> serve: JSON, what a gate found (convert/convert.h) */
    FRAME_CONVERT_REPORT,
};

/* Append one frame to out. */
void frame_put(struct buf *out, enum frame_type type, uint32_t request,
               const void *payload, size_t n);

struct frame {
    enum frame_type type;
    uint32_t request;
    const uint8_t *payload; /* borrowed from the frame_in until the next call */
    size_t n;
};

struct frame_in {
    struct buf b;
    size_t max;   /* payload limit of this channel */
    size_t taken; /* bytes of b already returned */
};

void frame_in_init(struct frame_in *in, size_t payload_max);
void frame_in_fini(struct frame_in *in);
/* Add received bytes. Errors: FRAME (header already known to be bad). */
CHECKED int frame_in_put(struct frame_in *in, const void *p, size_t n,
                         struct err *e);
/* 1 and *ret: a whole frame; 0: more bytes needed; ERR_FRAME: malformed. */
CHECKED int frame_in_next(struct frame_in *in, struct frame *ret,
                          struct err *e);

/* Blocking helpers for children, whose end of the pair is a blocking fd.
 * frame_read: 1 frame, 0 end of file, <0 error. */
CHECKED int frame_write_fd(int fd, enum frame_type type, uint32_t request,
                           const void *payload, size_t n, struct err *e);
/* Write n bytes of frames that frame_put made. */
CHECKED int frames_write_fd(int fd, const void *p, size_t n, struct err *e);
CHECKED int frame_read_fd(int fd, struct frame_in *in, struct frame *ret,
                          struct err *e);
