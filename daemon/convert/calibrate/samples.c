/* samples.c - the text that calibration runs through the model.
 *
 * What a model writes by itself at temperature 1 is what its inputs look like:
 * on gemma-3-270m that did as well as any text (facts: lut4). All sequences are
 * written side by side, so each step reads the weights once. The sampler and
 * its counter-based generator are the engine's: a token depends on the seed,
 * its sequence and its place alone.
 */
#include <string.h>

#include "base/crew.h"
#include "base/num.h"
#include "base/utf8.h"
#include "convert/calibrate/impl.h"
#include "engine/sampler.h"
#include "model/tokenizer.h"

#define FILE_NAME "samples"

/* --- written by the model --- */

struct writer {
    const struct decoder *d;
    const struct calibrate_conf *conf;
    uint32_t n;     /* sequences side by side */
    uint32_t first; /* of them all */
    uint32_t at;    /* position of the token that is drawn */
    struct reference *r;
    struct reference_keys *keys;
    struct sampler **samplers; /* of a worker */
    unsigned n_samplers;
    float *logits;
    int32_t *now;    /* a sequence's last token */
    int32_t *tokens; /* of these sequences */
    int *rc;         /* of a sequence */
};

/* The first token of a sequence; TOKEN_NONE: the vocabulary has none. */
static int32_t first_token(const struct decoder *d, const char *vocab)
{
    struct tokenizer *t = NULL;
    struct err ignored = {0};
    uint32_t id = 0;
    int32_t bos = TOKEN_NONE;
    if (tokenizer_open(vocab, &t, &ignored) == 0) {
        bos = tokenizer_bos(t);
        tokenizer_close(t);
    } else if (gguf_get_u32(d->source, "tokenizer.ggml.bos_token_id", &id)) {
        bos = id < d->vocab ? (int32_t)id : TOKEN_NONE;
    }
    return bos != TOKEN_NONE && (uint32_t)bos < d->vocab ? bos : TOKEN_NONE;
}

static void on_sequences(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct writer *w = ctx;
    struct msg_sampling p;
    msg_sampling_init(&p);
    p.temperature = 1;
    p.seed = CALIBRATE_SEED;
    p.no_logprob = true;
    for (size_t i = begin; i < end; i++) {
        struct msg_token t = {0};
        struct err e = {0};
        p.choice = w->first + (uint32_t)i;
        w->rc[i] =
            sampler_draw(w->samplers[worker], w->logits + i * w->d->vocab, &p,
                         NULL, 0, w->at, &t, &e);
        w->now[i] = t.id;
    }
}

static int draw(struct writer *w, struct err *e)
{
    RETERR(reference_head(w->r, w->logits, e));
    crew_run(w->n_samplers, w->n, 1, on_sequences, w);
    for (uint32_t i = 0; i < w->n; i++) {
        if (w->rc[i] < 0) {
            return err_set(e, ERR_CONVERT,
                           "position %u of a calibration sample: the model's "
                           "logits are not finite",
                           w->at);
        }
        w->tokens[(size_t)i * CALIBRATE_TOKENS + w->at] = w->now[i];
    }
    return 0;
}

static int write_sequences(struct writer *w, int32_t bos, struct err *e)
{
    double cost = cost_sample(w->d) * w->n / CALIBRATE_SEQUENCES;
    for (uint32_t i = 0; i < w->n; i++) {
        double u = sampler_random(CALIBRATE_SEED, w->first + i, 0);
        w->now[i] = bos != TOKEN_NONE ? bos : (int32_t)(u * w->d->vocab);
        w->tokens[(size_t)i * CALIBRATE_TOKENS] = w->now[i];
    }
    for (w->at = 1; w->at < CALIBRATE_TOKENS; w->at++) {
        reference_at(w->r, w->keys, w->at - 1);
        RETERR(reference_embed(w->r, w->now, e));
        RETERR(reference_layers(w->r, 0, w->d->n_layers, e));
        RETERR(draw(w, e));
        if (w->conf->progress != NULL) {
            RETERR(progress_add(w->conf->progress, (uint64_t)cost, e));
        }
    }
    return 0;
}

static int writer_open(struct writer *w, const struct reference_conf *conf,
                       struct err *e)
{
    w->n_samplers = crew_threads(w->conf->threads);
    w->samplers = calloc(w->n_samplers, sizeof(*w->samplers));
    w->logits = malloc((size_t)w->n * w->d->vocab * sizeof(*w->logits));
    w->now = calloc(w->n, sizeof(*w->now));
    w->rc = calloc(w->n, sizeof(*w->rc));
    if (w->samplers == NULL || w->logits == NULL || w->now == NULL ||
        w->rc == NULL) {
        return err_set(e, ERR_NOMEM, "no memory for %u samples", w->n);
    }
    for (unsigned i = 0; i < w->n_samplers; i++) {
        RETERR(sampler_new(w->d->vocab, &w->samplers[i], e));
    }
    RETERR(reference_open(w->d, conf, w->n, 1, &w->r, e));
    return reference_keys_open(w->d, w->n, CALIBRATE_TOKENS, true, &w->keys, e);
}

static void writer_close(struct writer *w)
{
    for (unsigned i = 0; w->samplers != NULL && i < w->n_samplers; i++) {
        sampler_free(w->samplers[i]);
    }
    free(w->samplers);
    free(w->logits);
    free(w->now);
    free(w->rc);
    reference_close(w->r);
    reference_keys_close(w->keys);
}

/* As many side by side as their keys allow; that changes no token. */
static uint32_t side_by_side(const struct decoder *d, uint32_t sequences)
{
    uint32_t n = sequences;
    while (n > 1 && reference_keys_bytes(d, n, CALIBRATE_TOKENS, true) >
                        CALIBRATE_KEYS_MAX) {
        n /= 2;
    }
    return n;
}

static int own_samples(const struct decoder *d,
                       const struct calibrate_conf *conf, uint32_t sequences,
                       int32_t *tokens, struct err *e)
{
    const struct reference_conf rc_conf = {.threads = conf->threads};
    int32_t bos = first_token(d, conf->vocab);
    struct writer w = {.d = d, .conf = conf, .n = side_by_side(d, sequences)};
    int rc = writer_open(&w, &rc_conf, e);
    for (; rc == 0 && w.first < sequences; w.first += w.n) {
        must(w.first + w.n <= sequences);
        w.tokens = tokens + (size_t)w.first * CALIBRATE_TOKENS;
        rc = write_sequences(&w, bos, e);
    }
    writer_close(&w);
    return rc;
}

/* --- taken from text --- */

int calibrate_check_text(const char *text, size_t n, struct err *e)
{
    if (n > CALIBRATE_TEXT_MAX) {
        return err_set(e, ERR_TOO_BIG,
                       "the calibration text has %zu bytes; at most %u are "
                       "read: give a part of it",
                       n, (unsigned)CALIBRATE_TEXT_MAX);
    }
    return utf8_valid(text, n)
               ? 0
               : err_set(e, ERR_INVALID, "the calibration text is not UTF-8");
}

/* Cut ids into sequences at equal distances, BOS before each if there is one.
 * Fewer sequences than wanted when the text is short. */
static int cut(const struct decoder *d, const int32_t *ids, size_t n,
               int32_t bos, uint32_t *sequences, int32_t *tokens, struct err *e)
{
    size_t own = CALIBRATE_TOKENS - (bos != TOKEN_NONE ? 1 : 0);
    size_t there = n / own;
    if (there < CALIBRATE_SEQUENCES_MIN) {
        return err_set(e, ERR_INVALID,
                       "the calibration text has %zu tokens; at least %zu are "
                       "needed, or no file: then the model writes its own",
                       n, own * CALIBRATE_SEQUENCES_MIN);
    }
    uint32_t take = CALIBRATE_SEQUENCES_MIN; /* whole chunks */
    while (take * 2 <= there && take * 2 <= *sequences) {
        take *= 2;
    }
    for (uint32_t s = 0; s < take; s++) {
        int32_t *to = tokens + (size_t)s * CALIBRATE_TOKENS;
        if (bos != TOKEN_NONE) {
            *to++ = bos;
        }
        for (size_t i = 0; i < own; i++) {
            int32_t id = ids[s * (n - own) / (take - 1) + i];
            if (id < 0 || (uint32_t)id >= d->vocab) {
                return err_set(e, ERR_INVALID,
                               "the vocabulary gives token %d, and the model "
                               "has %u",
                               id, d->vocab);
            }
            to[i] = id;
        }
    }
    *sequences = take;
    return 0;
}

static int text_samples(const struct decoder *d,
                        const struct calibrate_conf *conf, uint32_t *sequences,
                        int32_t *tokens, struct err *e)
{
    struct tokenizer *t = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    int rc = tokenizer_open(conf->vocab, &t, e);
    if (rc < 0) {
        return err_prefix(e, rc, "the calibration text cannot be tokenised");
    }
    CHECK(
        tokenizer_encode(t, conf->text, conf->text_bytes, false, &ids, &n, e));
    CHECK(cut(d, ids, n, first_token(d, conf->vocab), sequences, tokens, e));
out:
    free(ids);
    tokenizer_close(t);
    return rc;
}

/* --- kept --- */

/* The key, then the tokens of as many sequences as there are. */
static bool kept(const char *path, const uint8_t key[SHA256_BYTES],
                 const struct decoder *d, struct calibrate_samples *s,
                 int32_t *tokens)
{
    struct buf b = {0};
    struct err ignored = {0};
    size_t one = CALIBRATE_TOKENS * sizeof(*tokens);
    size_t most = SHA256_BYTES + s->sequences * one;
    if (!file_exists(path) || file_read(path, most, &b, &ignored) < 0) {
        return false;
    }
    size_t n = b.n > SHA256_BYTES ? b.n - SHA256_BYTES : 0;
    bool ok = n > 0 && n % one == 0 && memcmp(b.p, key, SHA256_BYTES) == 0;
    if (ok) {
        memcpy(tokens, b.p + SHA256_BYTES, n);
        s->sequences = (uint32_t)(n / one);
    }
    for (size_t i = 0; ok && i < n / sizeof(*tokens); i++) {
        ok = tokens[i] >= 0 && (uint32_t)tokens[i] < d->vocab;
    }
    buf_fini(&b);
    return ok;
}

static int keep(const char *path, const uint8_t key[SHA256_BYTES],
                const int32_t *tokens, uint32_t sequences, struct err *e)
{
    size_t n = (size_t)sequences * CALIBRATE_TOKENS * sizeof(*tokens);
    uint8_t *p = malloc(SHA256_BYTES + n);
    if (p == NULL) {
        return err_set(e, ERR_NOMEM, "no memory for the samples");
    }
    memcpy(p, key, SHA256_BYTES);
    memcpy(p + SHA256_BYTES, tokens, n);
    int rc = file_write(path, p, SHA256_BYTES + n, e);
    free(p);
    return rc;
}

int samples_make(const struct decoder *d, const struct calibrate_conf *conf,
                 const uint8_t key[SHA256_BYTES], struct calibrate_samples *s,
                 int32_t **ret, struct err *e)
{
    char path[PATH_ROOM];
    if (!file_join(path, sizeof(path), conf->dir, FILE_NAME)) {
        return err_set(e, ERR_INVALID, "the path of the bundle is too long");
    }
    int32_t *tokens =
        calloc((size_t)s->sequences * CALIBRATE_TOKENS, sizeof(*tokens));
    if (tokens == NULL) {
        return err_set(e, ERR_NOMEM, "no memory for the samples");
    }
    int rc = 0;
    if (!kept(path, key, d, s, tokens)) {
        CHECK(conf->text != NULL
                  ? text_samples(d, conf, &s->sequences, tokens, e)
                  : own_samples(d, conf, s->sequences, tokens, e));
        CHECK(keep(path, key, tokens, s->sequences, e));
    }
    *ret = tokens;
    return 0;
out:
    free(tokens);
    return rc;
}
