/* gen_encode.c - what a gen asks of the text thread: its prompt as tokens. */
#include <string.h>

#include "serve/gen/gen_impl.h"

uint32_t gen_context(const struct gen *g)
{
    return g->up ? runner_ready(g->model->runner)->context
                 : g->model->bundle->context;
}

static int copy_ids(const int32_t *t, size_t n, int32_t **ret, size_t *ret_n,
                    struct err *e)
{
    *ret = malloc((n + 1) * sizeof(*t));
    if (*ret == NULL) {
        return err_set(e, ERR_NOMEM, "%zu tokens", n);
    }
    memcpy(*ret, t, n * sizeof(*t));
    *ret_n = n;
    return 0;
}

/* Tokens for the prompt: the context without the answer, which is not asked to
 * have more than half of it. */
static size_t fim_room(const struct gen *g)
{
    uint32_t context = gen_context(g);
    uint32_t answer = g->req.max_tokens;
    return context - (answer < context / 2 ? answer : context / 2);
}

int gen_encode(struct gen *g, void (*done)(struct text_work *w), struct err *e)
{
    struct gen_req *q = &g->req;
    struct text_work *w = &g->work;
    w->done = done;
    w->guess = q->guess;
    w->guess_n = q->guess_n;
    w->want = q->want;
    if (msg_sampling_uses(&q->sampling, SAMPLER_DRY)) {
        w->breakers = q->dry_texts;
        w->n_breakers = q->n_dry_texts;
    }
    switch (q->kind) {
    case GEN_TEXT:
        w->kind = TEXT_ENCODE;
        w->text = q->text;
        w->text_n = q->text_n;
        w->special = true;
        w->bos = true;
        break;
    case GEN_CHAT:
        w->kind = TEXT_CHAT;
        w->messages = q->messages;
        w->n_messages = q->n_messages;
        w->tools = q->tools;
        w->documents = q->documents;
        w->kwargs = q->kwargs;
        w->add_generation = true;
        break;
    case GEN_FIM:
        w->kind = TEXT_FIM;
        w->fim = q->fim;
        w->fim_room = fim_room(g);
        break;
    case GEN_TOKENS: /* no text, but the vocabulary has to be open */
        w->kind = TEXT_OPEN;
        RETERR(copy_ids(q->tokens, q->n_tokens, &w->tokens, &w->n_tokens, e));
        break;
    }
    if (q->guess_tokens != NULL) {
        RETERR(copy_ids(q->guess_tokens, q->n_guess_tokens, &w->guess_tokens,
                        &w->n_guess_tokens, e));
    }
    int rc = text_put(g->srv->text, g->voc, w);
    if (rc != 0) {
        g->srv->stats.refused_busy++;
        return err_set(e, rc, "too many prompts wait to be tokenised");
    }
    g->encoding = true;
    return 0;
}
