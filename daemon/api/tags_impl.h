/* tags_impl.h - shared by tags.c (a request's stages) and tags_out.c (its
 * answer). */
#pragma once

#include "api/api.h"
#include "model/tags.h"

struct tag_text {
    struct span text;
    int32_t *tokens;
    size_t n;
    uint16_t *labels;
    float *probs;
};

struct tag_call {
    struct api_read body;
    struct arena arena;
    bool redacts;
    char param[64]; /* the field an error is about; "": none */
    const char *model_name;
    struct tag_text *texts;
    size_t n_texts, at; /* the one at hand */
    const char **labels; /* classes that are wanted; n_labels 0: all */
    size_t n_labels;
    float biases[TAGS_BIASES];
    struct http_req *r; /* NULL: the client left */
    struct server *srv;
    struct model *m;
    bool uses;
    struct text_work work;
    struct model_wait wait;
    struct run_tags run;
    bool tagging; /* run is in the runner */
    struct buf out;
    struct err e; /* of the writing */
    int rc;
};

/* Append the answer, after room for its head. On the text thread. Errors:
 * UNSUPPORTED (tokens that are not the text's bytes), TOO_BIG, NOMEM. */
CHECKED int tags_put_answer(struct tag_call *c, struct err *e);
