/* embeds.h - one request for embeddings: texts -> tokens -> their hidden states,
 * pooled by the engine -> a vector for each.
 *
 *   embeds_start
 *      -> each text: tokens (text thread) -> the model is loaded
 *      -> EMBED_AT_ONCE streams at a time, that pool (sched.h, rule 16); of an
 *         encoder ENCODER_TEXTS_MAX texts, in one queue with everybody's
 *      -> done
 *
 * The routes of a dialect fill struct embeds and write its answer; they know
 * neither frames nor scheduling. Thread: the loop thread.
 */
#pragma once

#include "serve/engines/models.h"
#include "serve/gen/voc.h"

struct server;

struct embed_text {
    /* Set by the owner: a text, or tokens that are taken as they are. */
    const char *text; /* NULL: tokens */
    size_t text_n;
    const int32_t *ids;
    size_t n_ids;
    /* Found: owned by the embeds until embeds_fini. */
    int32_t *tokens;
    uint32_t n;
    float *vector; /* embeds.width of them, as the engine pooled them */
};

struct embeds;
struct embed_slot {
    struct run_stream run; /* of a decoder */
    struct run_tags tags;  /* of an encoder */
    struct embeds *of;
    struct embed_text *text; /* NULL: it is free */
};

struct embeds {
    /* Set by the owner, the rest zero; all of it lives until `done` or
     * embeds_cancel. */
    struct server *srv;
    struct model *m;
    struct embed_text *texts;
    size_t n_texts; /* 1 .. EMBED_INPUTS_MAX */
    bool truncate;  /* texts beyond the context are cut; else refused */
    enum sched_class cls;
    uint64_t peer;
    /* rc 0: every text has its vector. Not called from inside embeds_start. */
    void (*done)(struct embeds *x, int rc, const char *msg);
    /* kept here */
    size_t at;     /* the next text that is tokenised, then that is run */
    uint32_t at_once; /* texts that are with the runner, at most */
    uint32_t n_out;   /* that are there now */
    size_t n_done; /* vectors that are there */
    uint32_t width;
    uint64_t n_tokens; /* of all texts */
    struct admit_req seat;
    bool seated, uses, encoding, running;
    struct text_work work;
    struct model_wait wait;
    struct embed_slot *slots; /* at_once */
};

/* Whether the model gives embeddings. Errors: MODEL_FAILED, UNSUPPORTED, with the
 * reason. */
CHECKED int embeds_check(const struct model *m, struct err *e);
/* Errors: those of embeds_check, BUSY, REJECTED, MODEL_FAILED, UNAVAILABLE; then
 * only embeds_fini is left. */
CHECKED int embeds_start(struct embeds *x, struct err *e);
/* Nobody waits for it. False: the text thread has a text of it; `done` is still
 * called, with an error. */
CHECKED bool embeds_cancel(struct embeds *x);
void embeds_fini(struct embeds *x); /* after it; frees tokens and vectors */
