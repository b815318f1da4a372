/* step.c - a step: sequences that prefill, decode or verify drafts, together.
 *
 * Rows that cannot run are removed first and do not affect the other rows,
 * which run as one evaluation. When the logits of a row arrive, its token is
 * drawn if all drafts before it were right; else the row is not used. With a
 * grammar: constrain.c. Of rows that are scored the logits say how likely the
 * token behind them was, which is known.
 */
#include <math.h>
#include <string.h>

#include "base/num.h"
#include "engine/impl.h"

/* By how much the best logit leads the second. */
static float lead(const float *logits, uint32_t n)
{
    float best = -INFINITY;
    float second = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        if (logits[i] > best) {
            second = best;
            best = logits[i];
        } else if (logits[i] > second) {
            second = logits[i];
        }
    }
    return best - second;
}

/* The token could be another one at another width, so it is drawn at the width
 * that a row has alone. */
static bool too_close(const struct step *st, const float *logits)
{
    const struct engine *g = st->r->seq->g;
    return g->margin > 0 && !st->alone && st->v->n > 1 &&
           st->r->row->sampling.temperature <= 0 &&
           lead(logits, g->b->vocab) < g->margin;
}

/* Draw token j of the row. mirostat's number follows the drawn tokens, so it is
 * the row's for the first one. */
static int draw(struct step *st, float *logits, uint32_t j, struct err *e)
{
    const struct engine_seq *s = st->r->seq;
    const struct msg_row *row = st->r->row;
    struct msg_row_done *done = st->r->done;
    struct msg_token *t = &done->tokens[j];
    if (s->g->b->argmax) {
        return tops_draw(s->g, logits, t, e);
    }
    struct sampler *sampler = s->g->samplers[st->v->worker];
    struct msg_sampling p = row->sampling;
    p.mu = done->mu;
    uint32_t n = s->n + row->n_tokens + j;
    RETERR(sampler_draw(sampler, logits, &p, s->tokens, n, row->out_index + j,
                        t, e));
    if (st->constraint != NULL) {
        RETERR(constrain_draw(st, logits, &p, n, row->out_index + j, t, e));
    }
    done->mu = sampler_mu(sampler);
    return 0;
}

/* How likely the tokens behind those of the rows [first, first + n) were that
 * are to be scored. */
static int score(const struct step *st, uint32_t first, uint32_t n,
                 const float *logits, struct err *e)
{
    const struct msg_row *row = st->r->row;
    struct msg_row_done *done = st->r->done;
    const struct engine *g = st->r->seq->g;
    for (uint32_t i = 0; i < n && first + i < done->n_scores; i++) {
        uint32_t k = first + i + 1;
        int32_t id = k < row->n_tokens ? row->tokens[k] : row->after;
        RETERR(sampler_score(g->samplers[st->v->worker],
                             logits + (size_t)i * g->row_out, id,
                             row->sampling.logprobs, &done->scores[k - 1], e));
    }
    return 0;
}

/* Draw after the last token, then after each draft that was drawn. Rows are
 * numbers among the step's tokens and drafts. */
static int on_logits(void *ctx, uint32_t first, uint32_t n, float *logits,
                     struct err *e)
{
    struct step *st = ctx;
    const struct msg_row *row = st->r->row;
    struct msg_row_done *done = st->r->done;
    const struct engine_seq *s = st->r->seq;
    RETERR(score(st, first, n, logits, e));
    uint32_t before = row->sample ? row->n_tokens - 1 : UINT32_MAX;
    for (uint32_t i = first < before ? (uint32_t)num_min(before - first, n) : 0;
         i < n; i++) {
        uint32_t j = first + i - (row->n_tokens - 1); /* drafts before it */
        if (done->n_accepted < j) {
            break; /* one of them was not drawn */
        }
        float *of = logits + (size_t)i * s->g->row_out;
        if (too_close(st, of)) {
            st->unsure = true;
            done->n_accepted -= j > 0; /* the last token follows the drafts */
            break;
        }
        RETERR(draw(st, of, j, e));
        done->n_tokens = j + 1;
        done->n_accepted +=
            j < st->drafts && done->tokens[j].id == row->drafts[j];
    }
    return 0;
}

/* Rows are numbers among the step's tokens. */
static int on_hidden(void *ctx, uint32_t first, uint32_t n, float *hidden,
                     struct err *e)
{
    struct step *st = ctx;
    (void)e;
    must(n == 1);
    pool_row(st->r->seq, hidden, st->r->row->position + first == 0);
    return 0;
}

/* Whether the row can be scored, if that is wanted. */
static int check_score(const struct engine *g, const struct msg_row *row,
                       struct err *e)
{
    if (!row->score) {
        return 0;
    }
    if (g->b->argmax) {
        return err_set(e, ERR_UNSUPPORTED,
                       MSG_ONLY_TOP ": no log-probabilities of a prompt");
    }
    return msg_row_scores(row) <= ENGINE_SCORES_MAX &&
                   (row->after < 0 || (uint32_t)row->after < g->b->vocab)
               ? 0
               : err_set(e, ERR_INVALID, "%u scores, token %d behind them",
                         msg_row_scores(row), row->after);
}

/* Check a row and put its tokens after the sequence's. */
static int begin(struct step *st, struct eval *v)
{
    struct engine_row *r = st->r;
    struct engine_seq *s = r->seq;
    const struct msg_row *row = r->row;
    struct err *e = &r->err;
    if (s->in_step) {
        return err_set(e, ERR_CONFLICT, "the sequence is twice in the step");
    }
    if (row->position != s->n) {
        return err_set(e, ERR_CONFLICT, "position %u, the sequence has %u",
                       row->position, s->n);
    }
    if (row->n_tokens == 0) {
        return err_set(e, ERR_INVALID, "a row without tokens");
    }
    if (row->sample) {
        RETERR(tops_check(s->g, &row->sampling, e));
    }
    RETERR(check_tokens(s, row->tokens, row->n_tokens, e));
    RETERR(check_score(s->g, row, e));
    if (row->pool != POOL_NONE) {
        RETERR(pool_begin(s, row, e));
    }
    uint32_t at = s->n + row->n_tokens;
    if (row->sample && s->long_list && at <= bundle_short_max(s->g->b)) {
        return err_set(e, ERR_CONFLICT,
                       "a token after %u, which the short list is for", at);
    }
    uint32_t room = seq_room(s) - row->n_tokens;
    st->drafts = row->sample ? (uint32_t)num_min(row->n_drafts, room) : 0;
    st->v = v;
    memcpy(s->tokens + s->n, row->tokens, row->n_tokens * sizeof(*s->tokens));
    for (uint32_t i = 0; i < st->drafts; i++) {
        if (row->drafts[i] < 0 || (uint32_t)row->drafts[i] >= s->g->b->vocab) {
            return err_set(e, ERR_INVALID, "draft %d of %u", row->drafts[i],
                           s->g->b->vocab);
        }
        s->tokens[at + i] = row->drafts[i];
    }
    RETERR(constrain_begin(st, e));
    msg_row_done_init(r->done, row->seq);
    r->done->mu = row->sampling.mu;
    if (!msg_row_done_room(r->done, msg_row_scores(row))) {
        constrain_end(st, ERR_NOMEM);
        return err_set(e, ERR_NOMEM, "%u scores", msg_row_scores(row));
    }
    uint32_t n = row->n_tokens + st->drafts;
    bool pools = row->pool != POOL_NONE;
    *v = (struct eval){.s = s,
                       .n = n,
                       .want = pools                 ? pool_wants(row)
                               : r->done->n_scores > 0 ? n
                               : row->sample         ? st->drafts + 1
                                                     : 0,
                       .hidden = pools,
                       .fn = pools ? on_hidden : on_logits,
                       .ctx = st,
                       .e = e};
    s->in_step = true;
    return 0;
}

/* Rejected drafts stay after the length, where nothing sees them. */
static void finish(struct step *st, int rc)
{
    struct engine_seq *s = st->r->seq;
    const struct msg_row *row = st->r->row;
    if (rc == 0 && row->keep) {
        rc = seq_mark(s, s->n + row->n_tokens - 1, false, &st->r->err);
    }
    if (row->pool != POOL_NONE) {
        rc = rc < 0 ? rc : pool_end(s, row, st->r->done, &st->r->err);
        if (rc < 0 && rc != ERR_CANCELLED) { /* some rows may be in it */
            pool_drop(s);
        }
    }
    st->r->rc = rc;
    s->in_step = false;
    if (rc == 0) {
        s->n += row->n_tokens + st->r->done->n_accepted;
        st->r->done->length = s->n;
    } else {
        msg_row_done_fini(st->r->done);
    }
    constrain_end(st, rc);
}

/* A step draws at least one token: row by row, where the first was too close. */
static void run_columns(const struct engine *g, struct step *st, struct eval *v,
                        struct engine_times *times)
{
    columns_run(v, 0, times);
    if (v->rc == 0 && st->unsure && st->r->done->n_tokens == 0) {
        must(g->margin > 0);
        st->alone = true;
        st->drafts = 0;
        *v = (struct eval){.s = v->s,
                           .n = st->r->row->n_tokens,
                           .want = 1,
                           .fn = on_logits,
                           .ctx = st,
                           .e = v->e};
        columns_run(v, 1, times);
    }
}

/* At most ENGINE_SEQS_MAX of them. */
static void run_some(struct engine *g, struct engine_row *rows, size_t n,
                     struct engine_times *times)
{
    size_t k = 0; /* rows that run: evals and steps [0, k) */
    for (size_t i = 0; i < n; i++) {
        struct step *st = &g->steps[k];
        *st = (struct step){.r = &rows[i]};
        rows[i].rc = begin(st, &g->evals[k]);
        k += rows[i].rc == 0;
    }
    if (g->rows.max > 0) {
        rows_run(g, g->evals, k, 0, times);
    }
    for (size_t i = 0; i < k; i++) {
        if (g->rows.max == 0) {
            run_columns(g, &g->steps[i], &g->evals[i], times);
        }
        finish(&g->steps[i], g->evals[i].rc);
    }
}

void engine_step_rows(struct engine *g, struct engine_row *rows, size_t n,
                      struct engine_times *times)
{
    struct engine_times mine = {0};
    for (size_t at = 0; at < n; at += ENGINE_SEQS_MAX) {
        run_some(g, rows + at, num_min(n - at, ENGINE_SEQS_MAX),
                 times != NULL ? times : &mine);
    }
}

uint32_t engine_can_stop(const struct engine *g)
{
    return (uint32_t)num_min(g->rows.max, ENGINE_SEQS_MAX);
}

void engine_step_rows_if(struct engine *g, struct engine_row *rows, size_t n,
                         engine_go_fn *go, void *ctx,
                         struct engine_times *times)
{
    size_t all = 0;
    for (size_t i = 0; i < n; i++) {
        all += rows[i].row->n_tokens + rows[i].row->n_drafts;
    }
    must(all <= engine_can_stop(g)); /* they are one batch */
    g->go = go;
    g->go_ctx = ctx;
    engine_step_rows(g, rows, n, times);
    g->go = NULL;
}

int engine_step(struct engine_seq *s, const struct msg_row *row,
                struct msg_row_done *ret, struct engine_times *times,
                struct err *e)
{
    struct msg_row_done done;
    struct engine_row r = {.seq = s, .row = row, .done = &done};
    engine_step_rows(s->g, &r, 1, times);
    if (r.rc < 0) {
        *e = r.err;
        return r.rc;
    }
    *ret = done;
    return 0;
}
