/* role_impl.h - shared by role.c, role_state.c and role_tags.c. */
#pragma once

#include <stdatomic.h>

#include "engine/ahead.h"
#include "engine/encode.h"
#include "engine/snapshot.h"
#include "model/tags.h"
#include "proto/frame.h"

/* By the sequence's number; numbers are serve's, small and dense. */
struct slot {
    uint32_t id;
    struct engine_seq *seq; /* NULL: free */
};

/* A state on its way to or from a file. */
struct job {
    struct snapshot *x;
    struct msg_state m; /* the message; a load borrows it */
    uint32_t request;
    bool loads;
};

struct role {
    struct engine *g;                 /* NULL before LOAD */
    struct encoder *t;                /* in its place: an encoder, with */
    struct tags *tags;                /* its labels */
    struct job *jobs[STATE_JOBS_MAX]; /* the first is worked on; owned */
    uint32_t n_jobs;
    bool unloading;
    struct frame_in in;
    struct frame f; /* the present frame */
    bool peeked;    /* it was read early, and is not dispatched yet */
    int in_rc;      /* result of frame_read_fd for it */
    struct err in_err;
    struct ahead ahead;
    bool agreed;          /* serve sent the step that was begun early */
    uint64_t answered_us; /* time of the last step's answer */
    uint64_t looked_us; /* last look for the frame of a step begun early */
    struct slot slots[ENGINE_SEQS_MAX];
    struct engine_row rows[ENGINE_SEQS_MAX]; /* of the present step */
    struct buf out;
    struct buf answers; /* whole frames: sent with the next one, or before the
                           process waits */
    struct buf going;    /* frames that a worker thread is writing */
    uint32_t request;    /* number of the request being answered */
    atomic_int write_rc; /* first error of writing: the parent is gone */
};

/* role.c. Answer r->request with r->out. put: the frame is sent later, at the
 * latest when the process waits; the other: now. */
void role_put_answer(struct role *r, enum frame_type type);
void role_answer(struct role *r, enum frame_type type);
void role_answer_error(struct role *r, const struct err *e);
struct slot *role_find(struct role *r, uint32_t id); /* NULL: none */
/* A free slot with this number. Errors: CONFLICT, BUSY. */
CHECKED int role_add(struct role *r, uint32_t id, struct slot **ret,
                     struct err *e);

/* No frame has come, and serve is there. One that has is kept for later. */
bool role_quiet(struct role *r);

/* role_tags.c. Errors: those of encoder_open and tags_open. */
CHECKED int role_tags_load(struct role *r, const struct msg_load *m,
                           const struct engine_conf *conf,
                           struct msg_ready *ret, struct err *e);
void role_tags_close(struct role *r);
/* Answer a TAGS frame. */
CHECKED int role_on_tags(struct role *r, const struct frame *f, struct err *e);

/* role_state.c. Add the job of a STATE_* frame. */
CHECKED int role_on_state(struct role *r, const struct frame *f,
                          struct err *e);
/* Work for a while on the first job; there is one. */
void role_job_run(struct role *r);
/* Drop the first job. */
void role_job_end(struct role *r);
