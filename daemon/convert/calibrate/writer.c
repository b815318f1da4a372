/* writer.c - one position after the other, of all sequences at once. The
 * sampler and its counter-based generator are the engine's. */
#include "convert/calibrate/writer.h"

#include "base/crew.h"
#include "engine/sampler.h"
#include "model/tokenizer.h"
#include "proto/limits.h"

struct writer {
    const struct decoder *d;
    const struct writer_conf *conf;
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

int32_t writer_bos(const struct decoder *d, const char *vocab)
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
    p.temperature = (float)w->conf->temperature;
    p.seed = w->conf->seed;
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
                           "position %u of the model's own text: its logits "
                           "are not finite",
                           w->at);
        }
        w->tokens[(size_t)i * w->conf->tokens + w->at] = w->now[i];
    }
    return 0;
}

static int write_sequences(struct writer *w, uint32_t sequences, struct err *e)
{
    const struct writer_conf *conf = w->conf;
    double cost = conf->position * w->n / sequences;
    for (w->at = 1; w->at < conf->tokens; w->at++) {
        for (uint32_t i = 0; i < w->n; i++) {
            w->now[i] = w->tokens[(size_t)i * conf->tokens + w->at - 1];
        }
        reference_at(w->r, w->keys, w->at - 1);
        RETERR(reference_embed(w->r, w->now, e));
        RETERR(reference_layers(w->r, 0, w->d->n_layers, e));
        if (w->at >= conf->given) {
            RETERR(draw(w, e));
        }
        if (conf->progress != NULL) {
            RETERR(progress_add(conf->progress, (uint64_t)cost, e));
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
        return err_set(e, ERR_NOMEM, "no memory for %u sequences", w->n);
    }
    for (unsigned i = 0; i < w->n_samplers; i++) {
        RETERR(sampler_new(w->d->vocab, &w->samplers[i], e));
    }
    RETERR(reference_open(w->d, conf, w->n, 1, &w->r, e));
    return reference_keys_open(w->d, w->n, w->conf->tokens, true, &w->keys, e);
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
static uint32_t side_by_side(const struct decoder *d, uint32_t sequences,
                             uint32_t tokens)
{
    uint32_t n = sequences;
    while (n > 1 &&
           reference_keys_bytes(d, n, tokens, true) > CALIBRATE_KEYS_MAX) {
        n /= 2;
    }
    return n;
}

int writer_run(const struct decoder *d, const struct writer_conf *conf,
               uint32_t sequences, int32_t *tokens, struct err *e)
{
    const struct reference_conf source = {.threads = conf->threads};
    struct writer w = {
        .d = d, .conf = conf, .n = side_by_side(d, sequences, conf->tokens)};
    int rc = writer_open(&w, &source, e);
    for (; rc == 0 && w.first < sequences; w.first += w.n) {
        must(w.first + w.n <= sequences);
        w.tokens = tokens + (size_t)w.first * conf->tokens;
        rc = write_sequences(&w, sequences, e);
    }
    writer_close(&w);
    return rc;
}
