/* voc.h - vocabulary and chat template of a model, from its published bundle.
 * The model need not be loaded.
 *
 * The first piece of text work that needs the vocabulary opens it, on the text
 * thread. Such work holds a reference. When its done() runs, the loop thread
 * may read what was opened; it never changes afterwards. From then on the loop
 * thread does the work for texts up to TEXT_HERE_MAX itself. When opening
 * fails, it is tried again, at most every VOC_RETRY_MS: a file may be repaired,
 * descriptors may become free.
 */
#pragma once

#include "model/chat.h"
#include "model/fim.h"
#include "model/reply/reply.h"
#include "model/tokenizer.h"
#include "serve/workq.h"

#define VOC_EOG_MAX 32

struct voc {
    unsigned refs; /* loop thread only */
    bool open;     /* tok is set; loop thread only */
    /* one for the loop thread, one for the text thread; made at first use */
    struct tokenizer_words *words[2];
    char dir[1024];
    /* the text thread writes these until `open`; nothing does after that */
    uint64_t again_ms;     /* try again then, by uv_hrtime() */
    struct tokenizer *tok; /* NULL: see error */
    struct err error;
    struct chat_template *tmpl;
    int tmpl_rc; /* 0, or why chat is not possible */
    struct err tmpl_error;
    struct reply_forms forms; /* of what the template's model answers */
    struct buf bos, eos;      /* texts of those tokens */
    size_t n_eog;
    int32_t eog[VOC_EOG_MAX];
};

struct voc *voc_new(const char *dir); /* one reference */
struct voc *voc_ref(struct voc *v);
void voc_unref(struct voc *v); /* NULL is fine */

/* Whether the template shows tools to the model, in a form whose calls are
 * understood. Once v is open. */
bool voc_has_tools(const struct voc *v);

/* What an answer is to keep to. Borrowed texts. */
struct text_want {
    const char *answer; /* JSON text, as grammar_from_text takes it; NULL: any */
    const char *answer_field; /* of the request: errors begin with it */
    bool call;                /* at least one call of a tool */
    const char *name;         /* with that: of this one; NULL: any */
    bool one;                 /* at most one */
    bool strict; /* some tool is: its calls keep to its schema */
    const bool *strict_tools; /* of each tool; NULL: none is */
};
static inline bool text_wants(const struct text_want *w)
{
    return w->answer != NULL || w->call || w->strict;
}

/* What to turn into tokens, or tokens into text. Strings are owned by the
 * caller and stay alive until done. */
struct text_work {
    struct work work;
    struct voc *voc; /* a reference is held from text_put to done */
    enum { TEXT_ENCODE, TEXT_CHAT, TEXT_DECODE, TEXT_OPEN, TEXT_FIM } kind;
    const struct fim_text *fim; /* FIM */
    size_t fim_room;            /* FIM: tokens at most */
    bool cut;                   /* FIM: something was left out */
    const char *text;           /* ENCODE */
    size_t text_n;
    bool special; /* ENCODE: special tokens' texts become those tokens */
    bool bos;     /* ENCODE: BOS in front where the vocabulary says so */
    bool eos;     /* ENCODE: EOS behind where the vocabulary says so */
    const struct chat_message *messages; /* CHAT */
    size_t n_messages;
    bool add_generation;
    struct span tools, documents, kwargs; /* CHAT: JSON, see chat.h */
    struct text_want want; /* CHAT, ENCODE, OPEN, FIM; zeroed: nothing */
    const char
        *guess; /* ENCODE, CHAT, OPEN: also this plain text; may be NULL */
    size_t guess_n;
    const char *const *breakers; /* the same: also these, by breakers_find */
    size_t n_breakers;
    bool here;          /* set by text_put: it runs on the loop thread */
    bool rendered;      /* set by text_put: `out` has the prompt */
    bool opened;        /* the vocabulary was there for it */
    const int32_t *ids; /* DECODE */
    size_t n_ids;
    /* results, owned by the caller after done */
    int rc;
    struct err e;
    int32_t *tokens;
    size_t n_tokens;
    int32_t *guess_tokens;
    size_t n_guess_tokens;
    int32_t *breaks;
    size_t n_breaks;
    struct buf out; /* DECODE: text; CHAT: the rendered prompt */
    struct buf constraint; /* what `want` comes to; checked, JSON text */
    const char *blame; /* rc is about this field of `want`; NULL: it is not */
    /* Called after the work, on its thread, also when it failed; may be NULL.
     */
    void (*then)(struct text_work *w);
    void (*done)(struct text_work *w); /* on the loop thread */
};

/* Errors: BUSY. Then done is not called. */
CHECKED int text_put(struct workq *q, struct voc *v, struct text_work *w);
/* Take w back before it is begun; then done is not called. False: too late,
 * done will be called. */
bool text_cancel(struct workq *q, struct text_work *w);
void text_fini(struct text_work *w); /* frees the results; zeroed is fine */
