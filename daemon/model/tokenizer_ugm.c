/* tokenizer_ugm.c - SentencePiece's Unigram ("t5" in GGUF): of all ways to write
 * a word as tokens the one with the highest sum of scores, found from left to
 * right. A character that begins no token costs ten more than the worst one;
 * neighbours of that sort are one unknown token, or fall apart into bytes.
 *
 * Tokens that begin at a place are found in one list, sorted by bytes: each
 * byte of the text narrows the range of tokens that begin so. Sums are in doubles
 * over scores of single precision, so they are exact, and a text may be cut
 * where no token reaches over.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/utf8.h"
#include "model/tokenizer_impl.h"
#include "model/tokenizer_norm.h"
#include "source/gguf.h"

#define UNKNOWN_COSTS 10.0

struct ugm_token {
    const char *p;
    uint32_t n;
    float score;
    int32_t id;
};

struct ugm {
    struct norm norm;
    struct ugm_token *tokens; /* sorted by bytes, no text twice */
    size_t n;
    uint32_t first[257]; /* where those with a first byte begin */
    double unknown;      /* score of a character without a token */
    bool bytes;          /* it falls apart into bytes */
};

/* The best way to the end of so many bytes. */
struct ugm_best {
    double score;
    int32_t id;
    uint32_t from; /* UINT32_MAX: none yet */
    uint32_t to;   /* on the way that was chosen */
};

/* --- loading --- */

void ugm_free(struct ugm *u)
{
    if (u != NULL) {
        norm_fini(&u->norm);
        free(u->tokens);
        free(u);
    }
}

static int by_bytes(const void *a, const void *b)
{
    const struct ugm_token *x = a;
    const struct ugm_token *y = b;
    int d = memcmp(x->p, y->p, num_min(x->n, y->n));
    return d != 0 ? d : (x->n > y->n) - (x->n < y->n);
}

static bool from_text(uint8_t type)
{
    return type == TOKEN_NORMAL || type == TOKEN_USER || type == TOKEN_UNUSED;
}

static int add_tokens(struct tokenizer *t, const struct gguf_kv *scores,
                      struct err *e)
{
    struct ugm *u = t->ugm;
    double least = 0;
    u->tokens = calloc((size_t)t->n_vocab, sizeof(*u->tokens));
    if (u->tokens == NULL) {
        return tokenizer_too_much(e);
    }
    for (int32_t i = 0; i < t->n_vocab; i++) {
        struct span s = token_text(t, i);
        uint8_t type = t->tokens[i].type;
        float score = gguf_arr_f32(scores, (uint64_t)i);
        if (!isfinite(score)) {
            return err_set(e, ERR_GGUF_VOCAB,
                           "the score of token %d is no number", i);
        }
        if (type == TOKEN_NORMAL && s.n > UGM_TOKEN_MAX) {
            return err_set(e, ERR_TOKENIZER,
                           "token %d has %zu bytes: one of a Unigram "
                           "vocabulary has at most %u",
                           i, s.n, UGM_TOKEN_MAX);
        }
        if (type == TOKEN_NORMAL && (double)score < least) {
            least = (double)score;
        }
        if (from_text(type) && s.n > 0 && s.n <= UGM_TOKEN_MAX &&
            text_map_get(t, s.p, s.n) == i) {
            u->tokens[u->n++] = (struct ugm_token){
                s.p, (uint32_t)s.n, type == TOKEN_USER ? 0 : score, i};
        }
    }
    u->unknown = least - UNKNOWN_COSTS;
    return 0;
}

static void sort_tokens(struct ugm *u)
{
    size_t at = 0;
    qsort(u->tokens, u->n, sizeof(*u->tokens), by_bytes);
    for (unsigned b = 0; b < 256; b++) {
        u->first[b] = (uint32_t)at;
        while (at < u->n && (uint8_t)u->tokens[at].p[0] == b) {
            at++;
        }
    }
    u->first[256] = (uint32_t)at;
}

static bool flag(const struct gguf *g, const char *key)
{
    bool v = false;
    return gguf_get_bool(g, key, &v) && v;
}

int ugm_load(const struct gguf *g, struct tokenizer *t, struct err *e)
{
    const struct gguf_kv *scores =
        gguf_get_arr(g, "tokenizer.ggml.scores", GGUF_F32);
    if (scores == NULL || scores->count < (uint64_t)t->n_vocab) {
        return err_set(e, ERR_GGUF_VOCAB,
                       "tokenizer.ggml.scores: %llu numbers for %d tokens",
                       scores != NULL ? (unsigned long long)scores->count : 0,
                       t->n_vocab);
    }
    t->ugm = calloc(1, sizeof(*t->ugm));
    if (t->ugm == NULL) {
        return tokenizer_too_much(e);
    }
    t->ugm->bytes = flag(g, "tokenizer.aned.byte_fallback");
    t->ugm->norm.prefix = t->space_prefix;
    t->ugm->norm.merge = flag(g, "tokenizer.ggml.remove_extra_whitespaces");
    t->ugm->norm.first = flag(g, "tokenizer.aned.space_first");
    RETERR(norm_load(g, &t->ugm->norm, e));
    RETERR(add_tokens(t, scores, e));
    sort_tokens(t->ugm);
    return 0;
}

/* --- a word --- */

/* The first token of [lo, hi) whose byte at `depth` is c or more: all of them
 * are longer than that. */
static uint32_t lower(const struct ugm *u, uint32_t lo, uint32_t hi,
                      size_t depth, unsigned c)
{
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if ((uint8_t)u->tokens[mid].p[depth] < c) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

static void better(struct ugm_best *b, double score, int32_t id, size_t from)
{
    if (b->from == UINT32_MAX || score > b->score) {
        *b = (struct ugm_best){score, id, (uint32_t)from, 0};
    }
}

/* Every token that p[at..n) begins with. Is one of them n_char bytes long? */
static bool try_tokens(const struct ugm *u, struct ugm_best *best,
                       const char *p, size_t at, size_t n, size_t n_char)
{
    uint32_t lo = u->first[(uint8_t)p[at]];
    uint32_t hi = u->first[(uint8_t)p[at] + 1u];
    bool whole = false;
    for (size_t depth = 1; lo < hi; depth++) {
        const struct ugm_token *k = &u->tokens[lo];
        if (k->n == depth) {
            better(&best[at + depth], best[at].score + (double)k->score, k->id,
                   at);
            whole = whole || depth == n_char;
            lo++;
        }
        if (at + depth == n) {
            break;
        }
        unsigned c = (uint8_t)p[at + depth];
        lo = lower(u, lo, hi, depth, c);
        hi = lower(u, lo, hi, depth, c + 1);
    }
    return whole;
}

static int room_for(struct encoder *c, size_t n, struct err *e)
{
    if (n > c->best_cap) {
        struct ugm_best *best = realloc(c->best, n * sizeof(*best));
        if (best == NULL) {
            return err_set(e, ERR_NOMEM, "a word of %zu bytes", n);
        }
        c->best = best;
        c->best_cap = n;
    }
    for (size_t i = 0; i < n; i++) {
        c->best[i] = (struct ugm_best){0, TOKEN_NONE, UINT32_MAX, 0};
    }
    return 0;
}

/* Characters without a token. */
static int emit_unknown(struct encoder *c, const char *p, size_t n,
                        struct err *e)
{
    const struct tokenizer *t = c->t;
    bool all = t->ugm->bytes;
    for (size_t i = 0; all && i < n; i++) {
        all = t->byte_id[(uint8_t)p[i]] != TOKEN_NONE;
    }
    for (size_t i = 0; all && i < n; i++) {
        RETERR(encoder_emit(c, t->byte_id[(uint8_t)p[i]], e));
    }
    return all || t->unk == TOKEN_NONE ? 0 : encoder_emit(c, t->unk, e);
}

static int emit_best(struct encoder *c, const char *p, size_t n, struct err *e)
{
    const struct ugm_best *best = c->best;
    size_t run = 0; /* where unknown characters began; n: there are none */
    for (size_t at = n; at > 0; at = best[at].from) {
        c->best[best[at].from].to = (uint32_t)at;
    }
    run = n;
    for (size_t at = 0; at < n; at = best[at].to) {
        int32_t id = best[best[at].to].id;
        if (id == TOKEN_NONE) {
            run = num_min(run, at);
            continue;
        }
        RETERR(run < at ? emit_unknown(c, p + run, at - run, e) : 0);
        run = n;
        RETERR(encoder_emit(c, id, e));
    }
    return run < n ? emit_unknown(c, p + run, n - run, e) : 0;
}

static int encode_word(struct encoder *c, const char *p, size_t n,
                       struct err *e)
{
    const struct ugm *u = c->t->ugm;
    RETERR(room_for(c, n + 1, e));
    c->best[0].from = 0;
    for (size_t at = 0, len = 0; at < n; at += len) {
        must(utf8_seq(p + at, n - at, &len) == UTF8_OK); /* repaired */
        if (!try_tokens(u, c->best, p, at, n, len)) {
            better(&c->best[at + len], c->best[at].score + u->unknown,
                   TOKEN_NONE, at);
        }
    }
    return emit_best(c, p, n, e);
}

/* --- a fragment --- */

/* p[0..n) may be cut where no token reaches over, which changes nothing; with
 * `cut` before every U+2581, which does. */
static int encode_piece(struct encoder *c, const char *p, size_t n, bool cut,
                        struct err *e)
{
    const struct tokenizer *t = c->t;
    for (size_t at = 0; at < n;) {
        size_t end = n;
        if (cut) {
            const char *next = memmem(p + at + 1, n - at - 1, SPM_SPACE, 3);
            end = next != NULL ? (size_t)(next - p) : n;
        } else {
            end = spm_word_end(t, p, n, at);
        }
        size_t before = c->n_ids;
        RETERR(encoder_word(c, p + at, end - at, encode_word, e));
        bool joined = !cut && at > 0 && !t->ugm->bytes && before > 0 &&
                      c->n_ids > before && c->ids[before] == t->unk &&
                      c->ids[before - 1] == t->unk;
        if (joined) { /* one run of unknown characters */
            c->n_ids--;
            memmove(c->ids + before, c->ids + before + 1,
                    (c->n_ids - before) * sizeof(*c->ids));
        }
        at = end;
    }
    return 0;
}

/* A word as a tokenizer.json has it: spaces as U+2581, and one in front. */
static int encode_spaced(struct encoder *c, struct span in, bool front,
                         struct buf *out, struct err *e)
{
    const struct norm *m = &c->t->ugm->norm;
    bool there = in.n >= 3 && memcmp(in.p, SPM_SPACE, 3) == 0;
    bool add = (m->space == SPACE_ALWAYS || (m->space == SPACE_FIRST && front));
    if (m->space == SPACE_STAYS) {
        return encode_piece(c, in.p, in.n, m->cut, e);
    }
    buf_clear(out);
    if (add && !there && in.p[0] != ' ') {
        buf_puts(out, SPM_SPACE);
    }
    for (size_t i = 0; i < in.n; i++) {
        if (in.p[i] == ' ') {
            buf_puts(out, SPM_SPACE);
        } else {
            buf_u8(out, (uint8_t)in.p[i]);
        }
    }
    return buf_ok(out) ? encode_piece(c, out->p, out->n, m->cut, e)
                       : err_set(e, ERR_TOO_BIG, "the text");
}

/* Words at white space, which is dropped; or all as one. */
static int encode_words(struct encoder *c, struct span in, bool front,
                        struct buf *out, struct err *e)
{
    size_t len = 0;
    if (!c->t->ugm->norm.split) {
        return in.n > 0 ? encode_spaced(c, in, front, out, e) : 0;
    }
    for (size_t at = 0; at < in.n;) {
        size_t end = at;
        while (end < in.n) {
            must(utf8_seq(in.p + end, in.n - end, &len) == UTF8_OK);
            if (norm_is_space(utf8_char(in.p + end, len))) {
                break;
            }
            end += len;
        }
        if (end > at) {
            struct span word = {in.p + at, end - at};
            RETERR(encode_spaced(c, word, front && at == 0, out, e));
        }
        at = end < in.n ? end + len : end;
    }
    return 0;
}

static int repair(struct buf *out, const char *p, size_t n, struct err *e)
{
    size_t len = 0;
    buf_clear(out);
    for (size_t i = 0; i < n; i += len) {
        if (utf8_seq(p + i, n - i, &len) != UTF8_OK) {
            len = 1;
            buf_puts(out, UTF8_REPLACEMENT);
        } else {
            buf_put(out, p + i, len);
        }
    }
    return buf_ok(out) ? 0 : err_set(e, ERR_TOO_BIG, "the text");
}

int ugm_fragment(struct encoder *c, const char *p, size_t n, struct err *e)
{
    const struct norm *m = &c->t->ugm->norm;
    struct buf *from = &c->text;
    struct buf *to = &c->other;
    bool moved = false;
    RETERR(repair(from, p, n, e));
    if (!m->steps_given) {
        bool inside = m->first; /* spaces at a token's side are the text's */
        struct span in = {from->p, from->n};
        return norm_pieces(m, in, c->begins || !inside, c->ends_text || !inside,
                           to)
                   ? encode_piece(c, to->p, to->n, false, e)
                   : err_set(e, ERR_TOO_BIG, "the text");
    }
    for (size_t i = 0; i < m->n_steps; i++) {
        struct span in = {from->p, from->n};
        if (!norm_step_run(m, &m->step[i], in, to, &moved)) {
            return err_set(e, ERR_TOO_BIG, "the text");
        }
        struct buf *next = from;
        from = to;
        to = next;
    }
    return encode_words(c, (struct span){from->p, from->n}, c->begins && !moved,
                        to, e);
}
