/* samples.c - the text that calibration runs through the model.
 *
 * What a model writes by itself at temperature 1 is what its inputs look like:
 * on gemma-3-270m that did as well as any text (facts: lut4).
 */
#include <string.h>

#include "base/num.h"
#include "base/utf8.h"
#include "convert/calibrate/impl.h"
#include "convert/calibrate/writer.h"
#include "engine/sampler.h"
#include "model/tokenizer.h"

#define FILE_NAME "samples"

/* --- written by the model --- */

static int own_samples(const struct decoder *d,
                       const struct calibrate_conf *conf, uint32_t sequences,
                       int32_t *tokens, struct err *e)
{
    int32_t bos = writer_bos(d, conf->vocab);
    const struct writer_conf w = {
        .threads = conf->threads,
        .progress = conf->progress,
        .position = cost_sample(d) * sequences / CALIBRATE_SEQUENCES,
        .temperature = 1,
        .seed = CALIBRATE_SEED,
        .tokens = CALIBRATE_TOKENS,
        .given = 1,
    };
    for (uint32_t i = 0; i < sequences; i++) {
        double u = sampler_random(CALIBRATE_SEED, i, 0);
        tokens[(size_t)i * CALIBRATE_TOKENS] =
            bos != TOKEN_NONE ? bos : (int32_t)(u * d->vocab);
    }
    return writer_run(d, &w, sequences, tokens, e);
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
    CHECK(cut(d, ids, n, writer_bos(d, conf->vocab), sequences, tokens, e));
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
