/* gen.h - one generation: prompt -> tokens -> scheduler -> text -> sink.
 *
 *   gen_new, fill req, gen_start
 *      -> text thread (render, tokenise)   \  both, in any order
 *      -> model loaded                     /
 *      -> streams queued -> on_token ... on_end (per choice) -> on_done, freed
 *
 * The routes of a dialect fill struct gen_req and implement struct gen_sink;
 * they know neither frames nor scheduling.
 *
 * Thread: the loop thread. gen_start calls no callback.
 */
#pragma once

#include "model/reply/reply.h"
#include "model/text.h"
#include "serve/engines/models.h"
#include "serve/gen/voc.h"

enum gen_kind { GEN_TEXT, GEN_TOKENS, GEN_CHAT, GEN_FIM };

#define GEN_MAX_TOKENS UINT32_MAX /* to the end of the context */

struct gen_req {
    enum gen_kind kind;
    const char *text; /* GEN_TEXT */
    size_t text_n;
    const int32_t *tokens; /* GEN_TOKENS: taken as they are, no BOS added */
    size_t n_tokens;
    const struct fim_text *fim;    /* GEN_FIM */
    struct chat_message *messages; /* GEN_CHAT */
    size_t n_messages;
    struct span tools, documents, kwargs; /* GEN_CHAT: JSON, see chat.h */
    struct text_want want; /* what the answer keeps to; zeroed: nothing */
    bool parts; /* GEN_CHAT: calls and thoughts are told apart from text, where
                   gen_has_parts() */
    struct msg_sampling sampling; /* without .choice, .mu, .breaks */
    const char *const *dry_texts; /* that .breaks is made of; at most
                                     DRY_TEXTS_MAX of DRY_TEXT_BYTES */
    size_t n_dry_texts;
    uint32_t n;                   /* choices, 1..CHOICES_MAX */
    uint32_t max_tokens;          /* of each choice; 0: the prompt only */
    bool ignore_eos;              /* end-of-generation tokens are never drawn */
    bool reuse;                   /* continue warm sequences */
    bool score; /* the prompt's tokens get log-probabilities too (on_scores), as
                   many as sampling.logprobs says; then nothing is reused */
    uint32_t deadline_ms;         /* from arrived_us to its end; 0: none */
    uint32_t lines_ms;   /* from the first token; then a choice that has ended a
                            line ends as GEN_LATE; 0: none */
    uint32_t indent;     /* text.h; a choice then ends as GEN_STOP; 0: none */
    uint64_t arrived_us; /* 0: the time of gen_new */
    enum sched_class cls;
    uint64_t peer;     /* the client's number, for fairness */
    uint64_t share;    /* sched.h, rule 11; 0: drafts from its own text only */
    const char *guess; /* the prediction as text; NULL: none, or as tokens */
    size_t guess_n;
    const int32_t *guess_tokens; /* the prediction as tokens; NULL: none */
    size_t n_guess_tokens;
    size_t n_stops;
    const char *stops[STOP_STRINGS_MAX];
};

/* Why a choice ended: a stop string; an end-of-generation token; max_tokens or
 * the context; the deadline, in whatever phase the gen was. */
enum gen_finish { GEN_STOP, GEN_EOG, GEN_LENGTH, GEN_LATE };

struct gen;

/* What the sink wants after a token. GEN_PAUSE: none until gen_resume. GEN_GO:
 * the next one. GEN_ENOUGH: none but those already drawn; the choice then ends
 * as GEN_LENGTH. */
enum gen_more { GEN_PAUSE, GEN_GO, GEN_ENOUGH };

struct gen_sink {
    /* A token of one choice, and the text that became certain with it (valid
     * UTF-8, may be empty). Also called for a token that ends the choice. */
    enum gen_more (*on_token)(void *ctx, uint32_t choice,
                              const struct msg_token *t, const char *text,
                              size_t n);
    /* The next n tokens of the prompt, from its second one on, with their
     * log-probabilities; before any on_token. NULL where req.score is never
     * set. */
    void (*on_scores)(void *ctx, const struct msg_token *t, uint32_t n);
    /* The choice is complete; text is what was held back until now. */
    void (*on_end)(void *ctx, uint32_t choice, enum gen_finish why,
                   const char *text, size_t n);
    /* The gen has ended; it can be read during the call and is freed after it.
     * rc is 0 or the error. After an error, choices that had not ended get no
     * on_end. */
    void (*on_done)(void *ctx, int rc, const struct err *e);
};

struct gen_usage {
    uint32_t n_prompt, n_cached, n_output; /* output: all choices */
    uint32_t n_drafted, n_accepted; /* drafts verified; drafts accepted */
    uint32_t n_again; /* tokens computed again by the long list (sched.h) */
    uint64_t created_us, started_us, first_us, last_us; /* 0 = not yet */
    uint64_t n_queued; /* steps begun up to its first, that one included */
    bool late;         /* the deadline ended it */
    bool cut;          /* GEN_FIM: some of the text had no room */
    bool on_cpu;       /* a package ran on the CPU in place of its device */
};

/* Make a gen. Its arena lives as long as the gen: allocate there what the
 * request points to. The arena `a` (of GEN_ARENA_MAX) moves into the gen and is
 * empty afterwards. */
struct gen *gen_new(struct server *s, struct model *m,
                    const struct gen_sink *sink, void *ctx, struct arena *a);
/* Make another gen for the model of g, with the request as it is now, whose
 * memory they share. */
struct gen *gen_beside(const struct gen *g, void *ctx);
struct arena *gen_arena(struct gen *g);
struct gen_req *gen_request(struct gen *g);
/* Start g; it frees itself after on_done. Errors: BUSY, REJECTED, MODEL_FAILED,
 * UNAVAILABLE, INVALID, TOO_BIG; then g is freed and no callback is called. */
CHECKED int gen_start(struct gen *g, struct err *e);
/* End and free g, started or not; no callback is called any more. Not from
 * inside a callback. */
void gen_cancel(struct gen *g);
void gen_resume(struct gen *g);

void gen_get_usage(const struct gen *g, struct gen_usage *ret);
const struct model *gen_model(const struct gen *g);
/* The stop string that ended a choice; NULL: none did, or the indentation.
 * Lives as long as g. */
const char *gen_stop(const struct gen *g, uint32_t choice);
/* Whether the text of answers consists of parts: there are tools, or the model
 * writes down what it thinks. Then the marks of its forms are text, and
 * model/reply/reply.h takes it apart. Once tokens come. */
bool gen_has_parts(const struct gen *g);
/* The forms of the model's answers; lives as long as g. Once tokens come. */
const struct reply_forms *gen_forms(const struct gen *g);
/* The field of the request that on_done's error is about, where `want` could not
 * be had; else NULL. */
const char *gen_blamed(const struct gen *g);
/* The rendered prompt of GEN_CHAT, else empty; lives as long as g. */
struct span gen_prompt(const struct gen *g);
const struct tokenizer *
gen_tokenizer(const struct gen *g); /* once tokens come */
/* The prompt's tokens; none before it was tokenised. They live as long as g. */
const int32_t *gen_tokens(const struct gen *g, uint32_t *ret_n);
