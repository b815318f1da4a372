/* embed.h - requests for embeddings: embed.c has the life of one, embed_fields.c
 * what it may say, embed_out.c its answer in each dialect. */
#pragma once

#include "api/api.h"
#include "api/params.h"
#include "serve/gen/embeds.h"

extern const struct fields embed_openai_fields, embed_llamacpp_fields,
    embed_ollama_fields, embed_ollama_old_fields;

struct embed_call;

/* A dialect's form of it. */
struct embed_form {
    const struct fields *fields;
    const char *input[2]; /* fields that have the texts: one of them */
    bool ids;             /* they may be token ids */
    bool one;             /* one text, no array */
    bool may_be_empty;    /* no text at all: the model is loaded, and the answer
                             has no vector */
    void (*put)(struct embed_call *c); /* the answer to c->out */
};

struct embed_call {
    struct api_read body;
    struct arena arena;
    struct params p;
    const struct embed_form *form;
    const char *param; /* the field an error is about; NULL: none */
    struct http_req *r; /* NULL: the client left */
    struct server *srv;
    struct embeds x;
    struct text_work work; /* that writes the answer */
    struct model_wait wait; /* without texts: for the model */
    uint64_t arrived_us, loaded_us;
    bool started, writing;
    struct buf out;
};

/* Numbers of a vector in the answer. */
uint32_t embed_width(const struct embed_call *c);

/* embed_out.c; on the text thread. */
void embed_put_openai(struct embed_call *c);
void embed_put_llamacpp(struct embed_call *c);
void embed_put_ollama(struct embed_call *c);
void embed_put_ollama_old(struct embed_call *c);
/* Make v (n numbers) of length 1; zeros stay. */
void embed_normalize(float *v, size_t n);
