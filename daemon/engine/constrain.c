/* constrain.c - steps whose tokens keep to a grammar (model/grammar).
 *
 * A row names a grammar by its id and says where in its sequence the text
 * begins that the grammar is about. Where the text stands in the grammar depends
 * on its bytes alone, so nothing has to be saved, sent or rolled back: what a
 * sequence keeps of its last step (seq_match) only saves reading the text again,
 * and after a fork, a restart or the loss of an engine it is read again.
 *
 * A token is drawn as without a grammar. If the grammar does not allow it, one
 * more is drawn, with a random number of its own, among the tokens that it does
 * allow. So masks of the vocabulary are made only when a draw was not allowed,
 * and draws that are allowed are those of a request without a grammar.
 *
 * The rows of a step draw on several threads; a matcher belongs to one at a time:
 * each grammar has a lock. Everything else runs on the engine's thread.
 */
#include <string.h>

#include "engine/impl.h"
#include "model/reply/reply.h"
#include "model/tokenizer.h"

/* --- the vocabulary --- */

/* A control token that parsers of answers have to see is text. */
static struct span piece_of(const struct tokenizer *t, int32_t id,
                            const char *const *marks)
{
    struct span piece = tokenizer_piece(t, id, false);
    for (size_t i = 0; piece.n == 0 && marks[i] != NULL; i++) {
        if (tokenizer_find(t, marks[i], strlen(marks[i])) == id) {
            piece = tokenizer_piece(t, id, true);
        }
    }
    return piece;
}

static int fill_vocabulary(struct vocabulary *v, const struct tokenizer *t,
                           uint32_t n, struct err *e)
{
    struct reply_forms forms;
    struct span *pieces = calloc(n, sizeof(*pieces));
    uint8_t *kinds = calloc(n, 1);
    int rc = 0;
    bool ends = false;
    if (pieces == NULL || kinds == NULL) {
        rc = err_set(e, ERR_NOMEM, "a vocabulary");
        goto out;
    }
    reply_forms_find(tokenizer_template(t), &forms);
    for (uint32_t i = 0; i < n; i++) {
        int32_t id = (int32_t)i;
        bool known = id < tokenizer_vocab(t);
        bool end = known && tokenizer_is_eog(t, id);
        kinds[i] = end ? TRIE_END : known ? TRIE_TEXT : TRIE_BANNED;
        pieces[i] = known && !end ? piece_of(t, id, forms.marks)
                                  : (struct span){"", 0};
        ends = ends || end;
    }
    rc = ends ? trie_new(pieces, kinds, n, &v->trie, e)
              : err_set(e, ERR_UNSUPPORTED,
                        "this model has no token that ends a text: no grammar "
                        "can be kept to");
out:
    free(pieces);
    free(kinds);
    return rc;
}

/* Its tokens as text, at the first grammar: most models are never asked for one.
 */
static int open_vocabulary(struct engine *g, struct err *e)
{
    struct vocabulary *v = &g->vocabulary;
    if (v->trie != NULL) {
        return 0;
    }
    if (v->tok == NULL) {
        RETERR(tokenizer_open(g->b->dir, &v->tok, e));
    }
    return fill_vocabulary(v, v->tok, g->b->vocab, e);
}

/* --- grammars --- */

static struct constraint *find(struct engine *g, uint32_t id)
{
    LIST_EACH(l, &g->constraints) {
        struct constraint *c = container_of(l, struct constraint, link);
        if (c->id == id) {
            return c;
        }
    }
    return NULL;
}

static int make(struct engine *g, struct constraint *c, const char *text,
                size_t n)
{
    if (g->b->argmax) {
        return err_set(&c->e, ERR_UNSUPPORTED, MSG_ONLY_TOP ": no grammar");
    }
    RETERR(open_vocabulary(g, &c->e));
    RETERR(grammar_from_text(text, n, &c->grammar, &c->e));
    RETERR(matcher_new(c->grammar, &c->matcher, &c->e));
    return masker_new(c->matcher, g->vocabulary.trie, &c->masker, &c->e);
}

static void free_constraint(struct constraint *c)
{
    list_del(&c->link);
    masker_free(c->masker);
    matcher_free(c->matcher);
    grammar_free(c->grammar);
    must(pthread_mutex_destroy(&c->lock) == 0);
    free(c);
}

int engine_grammar(struct engine *g, uint32_t id, const char *text, size_t n,
                   struct err *e)
{
    if (find(g, id) != NULL) {
        return err_set(e, ERR_CONFLICT, "there is a grammar %u", id);
    }
    struct constraint *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        return err_set(e, ERR_NOMEM, "a grammar");
    }
    c->id = id;
    must(pthread_mutex_init(&c->lock, NULL) == 0);
    list_push(&g->constraints, &c->link);
    c->rc = make(g, c, text, n);
    *e = c->e;
    return c->rc;
}

void constrain_forget(struct engine_seq *s)
{
    if (s->match.of != NULL) {
        match_drop(s->match.of->matcher, s->match.at);
        s->match = (struct seq_match){0};
    }
}

void engine_grammar_drop(struct engine *g, uint32_t id)
{
    struct constraint *c = find(g, id);
    if (c == NULL) {
        return;
    }
    LIST_EACH(l, &g->seqs) {
        struct engine_seq *s = container_of(l, struct engine_seq, link);
        if (s->match.of == c) {
            constrain_forget(s);
        }
    }
    free_constraint(c);
}

void constrain_close(struct engine *g)
{
    while (g->constraints.next != NULL && !list_empty(&g->constraints)) {
        free_constraint(
            container_of(g->constraints.next, struct constraint, link));
    }
    trie_free(g->vocabulary.trie);
    tokenizer_close(g->vocabulary.tok);
    g->vocabulary = (struct vocabulary){0};
}

/* --- a row --- */

/* Where the text stands behind the row's tokens: from where it stood at the
 * sequence's last step, or from its beginning. Held. */
static int catch_up(struct engine_seq *s, struct constraint *c, uint32_t from,
                    uint32_t to, match_t *ret, struct err *e)
{
    struct seq_match *m = &s->match;
    if (m->of != c || m->from != from || m->n > to) {
        constrain_forget(s);
        *m = (struct seq_match){c, from, from, match_start(c->matcher)};
        match_hold(c->matcher, m->at);
    }
    match_t at = m->at;
    match_hold(c->matcher, at);
    for (uint32_t i = m->n; i < to; i++) {
        if (at == MATCH_DEAD ||
            !mask_token(c->masker, &at, (uint32_t)s->tokens[i])) {
            match_drop(c->matcher, at);
            return err_set(e, ERR_INVALID,
                           "token %u of the answer does not match its grammar",
                           i - from);
        }
    }
    *ret = at;
    return 0;
}

int constrain_begin(struct step *st, struct err *e)
{
    const struct msg_row *row = st->r->row;
    struct engine_seq *s = st->r->seq;
    uint32_t end = s->n + row->n_tokens;
    if (row->grammar == 0 || !row->sample) {
        return 0;
    }
    struct constraint *c = find(s->g, row->grammar);
    if (c == NULL) {
        return err_set(e, ERR_NOT_FOUND, "no grammar %u", row->grammar);
    }
    if (c->rc != 0) {
        *e = c->e;
        return c->rc;
    }
    if (row->n_prompt > end) {
        return err_set(e, ERR_INVALID, "a prompt of %u tokens, the row ends at %u",
                       row->n_prompt, end);
    }
    RETERR(catch_up(s, c, row->n_prompt, end, &st->match, e));
    st->constraint = c;
    return 0;
}

/* The mask at st->match, in memory of the step's thread. NULL: nothing is
 * allowed, or memory is out. */
static const uint64_t *mask_of(struct step *st)
{
    struct engine *g = st->r->seq->g;
    struct constraint *c = st->constraint;
    uint64_t *bits = sampler_mask(g->samplers[st->v->worker]);
    return bits != NULL && mask_fill(c->masker, st->match, bits) ? bits : NULL;
}

/* Move on behind a token; false: it is not allowed. */
static bool move_on(struct step *st, int32_t id)
{
    struct constraint *c = st->constraint;
    match_t next = st->match;
    match_hold(c->matcher, next);
    if (!mask_token(c->masker, &next, (uint32_t)id)) {
        match_drop(c->matcher, next);
        return false;
    }
    match_drop(c->matcher, st->before);
    st->before = st->match;
    st->match = next;
    st->moved = true;
    return true;
}

int constrain_draw(struct step *st, float *logits,
                   const struct msg_sampling *p, size_t n_history,
                   uint32_t out_index, struct msg_token *t, struct err *e)
{
    struct constraint *c = st->constraint;
    struct engine_seq *s = st->r->seq;
    const uint64_t *mask = NULL;
    must(pthread_mutex_lock(&c->lock) == 0);
    bool legal = move_on(st, t->id);
    mask = legal ? NULL : mask_of(st);
    must(pthread_mutex_unlock(&c->lock) == 0);
    if (legal) {
        return 0;
    }
    if (mask == NULL) {
        return err_set(e, ERR_INVALID,
                       "the text is deeper than this daemon follows a grammar");
    }
    RETERR(sampler_draw_masked(s->g->samplers[st->v->worker], logits, p,
                               s->tokens, n_history, out_index, mask, t, e));
    must(pthread_mutex_lock(&c->lock) == 0);
    legal = move_on(st, t->id);
    must(pthread_mutex_unlock(&c->lock) == 0);
    return legal ? 0 : err_set(e, ERR_NOMEM, "a grammar");
}

/* The tokens that the tokenizer makes of a text, into done->forced: a model most
 * likely writes the same. False: they do not spell the text. */
static bool spell(const struct tokenizer *t, const struct buf *text,
                  struct msg_row_done *done)
{
    int32_t *ids = NULL;
    size_t n = 0;
    size_t at = 0;
    struct err e;
    if (tokenizer_encode(t, text->p, text->n, false, &ids, &n, &e) != 0) {
        return false;
    }
    bool same = true;
    for (size_t i = 0; i < n && i < ENGINE_DRAFTS_MAX && same; i++) {
        struct span p = tokenizer_piece(t, ids[i], false);
        same = p.n <= text->n - at && memcmp(p.p, text->p + at, p.n) == 0;
        at += p.n;
        done->forced[i] = ids[i];
        done->n_forced = (uint32_t)i + 1;
    }
    free(ids);
    return same;
}

/* What must come next, as drafts. */
static void tell_forced(struct step *st)
{
    struct msg_row_done *done = st->r->done;
    uint32_t ids[ENGINE_DRAFTS_MAX];
    struct buf text;
    buf_init(&text, FORCED_BYTES_MAX);
    uint32_t n = mask_forced(st->constraint->masker, st->match, &text, ids,
                             ENGINE_DRAFTS_MAX);
    if (n > 0 && !spell(st->r->seq->g->vocabulary.tok, &text, done)) {
        done->n_forced = n;
        for (uint32_t i = 0; i < n; i++) {
            done->forced[i] = (int32_t)ids[i];
        }
    }
    buf_fini(&text);
}

void constrain_end(struct step *st, int rc)
{
    struct constraint *c = st->constraint;
    struct engine_seq *s = st->r->seq;
    if (c == NULL) {
        return;
    }
    if (rc == 0) {
        /* The last token that was drawn is not in the sequence yet. */
        match_t at = st->moved ? st->before : st->match;
        match_hold(c->matcher, at);
        constrain_forget(s);
        s->match = (struct seq_match){c, st->r->row->n_prompt, s->n, at};
        if (st->moved && st->match != MATCH_DEAD) {
            tell_forced(st);
        }
    }
    match_drop(c->matcher, st->before);
    match_drop(c->matcher, st->match);
    st->constraint = NULL;
}
