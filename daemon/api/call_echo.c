/* call_echo.c - what an answer repeats of its prompt (echo), and how likely the
 * prompt's tokens were.
 *
 * Text prompts are echoed as they came. The text of a prompt of token ids, and
 * the entry of a prompt's first token, are made in the first callback of its
 * gen: until then the vocabulary may not be open. The choices of a prompt have
 * its log-probabilities in common. */
#include <math.h>
#include <string.h>

#include "api/call_impl.h"
#include "base/utf8.h"

/* The prompt is over the limit; the memory is needed no more. */
static void too_big(struct call *c)
{
    c->refused = ERR_TOO_BIG;
    whole_release(c);
}

/* The text of a prompt of n token ids. */
static void echo_tokens(struct call *c, struct call_gen *g, const int32_t *t,
                        uint32_t n)
{
    struct text_stream s;
    struct buf text;
    struct err e;
    buf_init(&text, ANSWER_BYTES_MAX);
    must(text_stream_init(&s, gen_tokenizer(g->gen), true, NULL, 0, &e) == 0);
    for (uint32_t i = 0; i < n; i++) {
        text_stream_put(&s, t[i], &text);
    }
    text_stream_end(&s, &text);
    text_stream_fini(&s);
    g->echo_at = c->echo.n;
    if (c->p.stream) {
        buf_put(&c->echo, text.p, text.n);
    } else {
        json_put_text(&c->echo, text.p, text.n);
    }
    g->echo_n = c->echo.n - g->echo_at;
    if (!buf_ok(&text) || !buf_ok(&c->echo) ||
        c->echo.n > ANSWER_BYTES_MAX / c->p.req.n) {
        too_big(c);
    }
    buf_fini(&text);
}

static bool begins(struct span text, const char *p, size_t n)
{
    return n > 0 && n <= text.n && memcmp(text.p, p, n) == 0;
}

/* Characters of the echo that are the prompt's next token. A tokenizer may put
 * a token and a space in front of a text. */
static size_t width(struct call_gen *g, struct span s)
{
    const struct gen_req *q = gen_request(g->gen);
    const struct span text = {q->text, q->text_n};
    if (q->kind != GEN_TEXT || g->n_noted >= 2 || g->in_text) {
        return utf8_count(s.p, s.n);
    }
    if (begins(text, s.p, s.n)) {
        g->in_text = true;
        return utf8_count(s.p, s.n);
    }
    g->in_text = s.n > 1 && s.p[0] == ' ' && begins(text, s.p + 1, s.n - 1);
    return g->in_text ? utf8_count(s.p + 1, s.n - 1) : 0;
}

static void note(struct call *c, struct call_gen *g, const struct msg_token *t)
{
    struct span s = tokenizer_piece(gen_tokenizer(g->gen), t->id, true);
    probs_prompt(c, g, t, width(g, s));
    g->n_noted++;
}

/* What `note` has added since. */
static void hold(struct call *c, const struct call_gen *g, size_t before)
{
    size_t n = probs_bytes(&g->prompt) - before;
    (void)whole_hold(c, n * c->p.req.n); /* each choice has them */
    if (c->refused == 0 && (c->full || !probs_ok(&g->prompt))) {
        too_big(c);
    }
}

/* Once, before anything else is made of g's prompt. Where its deadline came
 * before the tokens, there is nothing to tell of them. */
static void open_prompt(struct call *c, struct call_gen *g)
{
    uint32_t n = 0;
    const int32_t *t = gen_tokens(g->gen, &n);
    if (g->opened || n == 0) {
        return;
    }
    g->opened = true;
    if (gen_request(g->gen)->kind == GEN_TOKENS) {
        echo_tokens(c, g, t, n);
    }
    if (c->p.req.score && c->refused == 0) {
        note(c, g, &(struct msg_token){.id = t[0], .logprob = NAN});
        hold(c, g, 0);
    }
}

void echo_open(struct call_gen *g, uint32_t i)
{
    struct call *c = g->call;
    struct call_choice *x = &c->choices[i];
    if (!c->p.echo || x->opened) {
        return;
    }
    open_prompt(c, g);
    if (c->refused != 0) {
        return;
    }
    x->opened = true;
    x->offset = g->offset;
    x->probs.before = c->p.req.score ? &g->prompt : NULL;
    if (c->p.stream) { /* with the prompt's log-probabilities alone */
        (void)call_begin_choice(c, i);
    }
}

void echo_scores(void *ctx, const struct msg_token *t, uint32_t n)
{
    struct call_gen *g = ctx;
    struct call *c = g->call;
    c->gen = g->gen;
    if (c->refused == 0) {
        open_prompt(c, g);
    }
    size_t before = probs_bytes(&g->prompt);
    for (uint32_t k = 0; c->refused == 0 && k < n; k++) {
        note(c, g, &t[k]);
    }
    if (c->refused == 0) {
        hold(c, g, before);
    }
}
