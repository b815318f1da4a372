/* gen.h - one generation: prompt -> tokens -> scheduler -> text -> sink.
 *
 *   gen_new, fill req, gen_start
 *      -> text thread (render, tokenise)   \  both, in any order
 *      -> model loaded                     /
 *      -> streams queued -> on_token ... on_end (per choice) -> on_done, freed
 *
 * Dialects fill struct gen_req and implement struct gen_sink; they know
 * neither frames nor scheduling.
 * Thread: the loop thread. No callback comes from inside gen_start.
 */
#pragma once

#include "model/text.h"
#include "serve/engines/models.h"

enum gen_kind { GEN_TEXT, GEN_TOKENS, GEN_CHAT };

#define GEN_MAX_TOKENS UINT32_MAX /* to the end of the context */

struct gen_req {
    enum gen_kind kind;
    const char *text; /* GEN_TEXT */
    size_t text_n;
    const int32_t *tokens; /* GEN_TOKENS: taken as they are, no BOS added */
    size_t n_tokens;
    struct chat_message *messages; /* GEN_CHAT */
    size_t n_messages;
    struct msg_sampling sampling; /* .choice is set per choice */
    uint32_t n;                   /* choices, 1..CHOICES_MAX */
    uint32_t max_tokens;          /* of each choice; 0: the prompt only */
    bool ignore_eos;              /* end-of-generation tokens are never drawn */
    bool reuse;                   /* continue warm sequences */
    uint32_t deadline_ms;         /* to its end; 0: any time */
    uint64_t arrived_us;          /* since then; 0: gen_new */
    enum sched_class cls;
    uint64_t peer;     /* whose request it is, for fairness */
    uint64_t share;    /* whose ended texts it drafts from; 0: nobody's */
    const char *guess; /* what the answer may look like; NULL: nothing, or */
    size_t guess_n;
    const int32_t *guess_tokens; /* these tokens; NULL: nothing */
    size_t n_guess_tokens;
    size_t n_stops;
    const char *stops[STOP_STRINGS_MAX];
};

/* A stop string; an end-of-generation token; max_tokens or the context; the
 * deadline, in whatever phase it was. */
enum gen_finish { GEN_STOP, GEN_EOG, GEN_LENGTH, GEN_LATE };

struct gen;

/* What the sink wants after a token: none until gen_resume; the next one; no
 * more of this choice than what is on its way, it ends as GEN_LENGTH. */
enum gen_more { GEN_PAUSE, GEN_GO, GEN_ENOUGH };

struct gen_sink {
    /* A token of one choice and the text that became certain with it (valid
     * UTF-8, may be empty). A token that ends the generation is given too. */
    enum gen_more (*on_token)(void *ctx, uint32_t choice,
                              const struct msg_token *t, const char *text,
                              size_t n);
    /* The choice is complete; text is what was held back. */
    void (*on_end)(void *ctx, uint32_t choice, enum gen_finish why,
                   const char *text, size_t n);
    /* Everything is over; the gen can be read during the call and is gone
     * after it. rc 0, or the error (then no on_end for unfinished choices). */
    void (*on_done)(void *ctx, int rc, const struct err *e);
};

struct gen_usage {
    uint32_t n_prompt, n_cached, n_output; /* output: all choices */
    uint32_t n_drafted, n_accepted; /* verified drafts; output that was one */
    uint64_t created_us, started_us, first_us, last_us; /* 0 = not yet */
    uint64_t n_queued; /* steps begun until its first, that one included */
    bool late;         /* the deadline ended it */
};

/* What the request points to is best allocated in the gen's arena, which lives
 * as long as it does. `a` (of GEN_ARENA_MAX) becomes it, and is empty then. */
struct gen *gen_new(struct server *s, struct model *m,
                    const struct gen_sink *sink, void *ctx, struct arena *a);
struct arena *gen_arena(struct gen *g);
struct gen_req *gen_request(struct gen *g);
/* Takes g over. Errors (g is freed, no callback comes): BUSY, REJECTED,
 * MODEL_FAILED, UNAVAILABLE, INVALID, TOO_BIG. */
CHECKED int gen_start(struct gen *g, struct err *e);
/* No callback comes any more; also when not started. Not from inside one. */
void gen_cancel(struct gen *g);
void gen_resume(struct gen *g);

void gen_get_usage(const struct gen *g, struct gen_usage *ret);
const struct model *gen_model(const struct gen *g);
const struct tokenizer *
gen_tokenizer(const struct gen *g); /* once tokens come */
