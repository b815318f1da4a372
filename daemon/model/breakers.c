/* breakers.c - see breakers.h.
 *
 * A group is all tokens with the same rest: that of text i behind its first k
 * bytes has the number i * DRY_TEXT_BYTES + k, and 0 (k is never 0 there) is
 * the group without a rest. One walk over the vocabulary notes pairs of group
 * and token; then the groups are written, in which tokens keep their order. */
#include "model/breakers.h"

#include <stdlib.h>
#include <string.h>

#define NUMBERS (DRY_TEXTS_MAX * DRY_TEXT_BYTES)

struct pair {
    uint32_t group;
    int32_t id;
};

struct found {
    const char *const *texts;
    size_t n_texts;
    uint32_t lengths[DRY_TEXTS_MAX];
    bool first[256]; /* bytes with which a text begins */
    uint32_t counts[NUMBERS];
    struct pair *pairs; /* owned; DRY_BREAKS_MAX */
    size_t n_pairs;
    int32_t *numbers; /* owned; DRY_BREAKS_MAX */
    size_t n_numbers;
};

static int too_many(struct err *e)
{
    return err_set(e, ERR_TOO_BIG,
                   "too many tokens of this vocabulary have to do with the "
                   "texts");
}

static int note(struct found *f, uint32_t group, int32_t id, struct err *e)
{
    if (f->n_pairs == DRY_BREAKS_MAX) {
        return too_many(e);
    }
    f->pairs[f->n_pairs++] = (struct pair){group, id};
    f->counts[group]++;
    return 0;
}

static bool contains(const struct span *w, const char *text, size_t n)
{
    for (size_t at = 0; at + n <= w->n; at++) {
        if (memcmp(w->p + at, text, n) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_whole(const struct found *f, const struct span *w)
{
    for (size_t i = 0; i < f->n_texts; i++) {
        if (contains(w, f->texts[i], f->lengths[i])) {
            return true;
        }
    }
    return false;
}

/* Tokens that end with the beginning of a text. */
static int note_heads(struct found *f, const struct span *w, int32_t id,
                      struct err *e)
{
    for (size_t i = 0; i < f->n_texts; i++) {
        if (contains(w, f->texts[i], f->lengths[i])) {
            continue; /* as a whole */
        }
        for (uint32_t k = 1; k < f->lengths[i] && k <= w->n; k++) {
            if (memcmp(w->p + w->n - k, f->texts[i], k) == 0) {
                RETERR(note(f, (uint32_t)i * DRY_TEXT_BYTES + k, id, e));
            }
        }
    }
    return 0;
}

static int walk(struct found *f, const struct tokenizer *t, struct err *e)
{
    int32_t vocab = tokenizer_vocab(t);
    for (int32_t id = 0; id < vocab; id++) {
        struct span w = tokenizer_piece(t, id, true);
        bool any = false; /* most tokens have no such byte */
        for (size_t i = 0; i < w.n && !any; i++) {
            any = f->first[(uint8_t)w.p[i]];
        }
        if (any && is_whole(f, &w)) {
            RETERR(note(f, 0, id, e));
        }
        if (any) {
            RETERR(note_heads(f, &w, id, e));
        }
    }
    return 0;
}

static int put(struct found *f, const int32_t *v, size_t n, struct err *e)
{
    if (n > DRY_BREAKS_MAX - f->n_numbers) {
        return too_many(e);
    }
    if (n > 0) {
        memcpy(f->numbers + f->n_numbers, v, n * sizeof(*v));
    }
    f->n_numbers += n;
    return 0;
}

/* The rest of a group's text, as tokens. */
static int put_tail(struct found *f, const struct tokenizer *t, uint32_t group,
                    struct err *e)
{
    uint32_t k = group % DRY_TEXT_BYTES;
    uint32_t i = group / DRY_TEXT_BYTES;
    int32_t *tail = NULL;
    size_t n = 0;
    if (k > 0) {
        RETERR(tokenizer_encode(t, f->texts[i] + k, f->lengths[i] - k, false,
                                &tail, &n, e));
    }
    n = n < DRY_TAIL_MAX ? n : DRY_TAIL_MAX;
    int rc = put(f, &(int32_t){(int32_t)n}, 1, e);
    if (rc == 0) {
        rc = put(f, tail, n, e);
    }
    free(tail);
    return rc;
}

static int put_group(struct found *f, const struct tokenizer *t, uint32_t group,
                     struct err *e)
{
    RETERR(put_tail(f, t, group, e));
    RETERR(put(f, &(int32_t){(int32_t)f->counts[group]}, 1, e));
    for (size_t i = 0; i < f->n_pairs; i++) {
        if (f->pairs[i].group == group) {
            RETERR(put(f, &f->pairs[i].id, 1, e));
        }
    }
    return 0;
}

static int find(struct found *f, const struct tokenizer *t, struct err *e)
{
    uint32_t groups = 0;
    RETERR(walk(f, t, e));
    for (uint32_t g = 0; g < NUMBERS; g++) {
        if (f->counts[g] == 0) {
            continue;
        }
        if (++groups > DRY_GROUPS_MAX) {
            return too_many(e);
        }
        RETERR(put_group(f, t, g, e));
    }
    return 0;
}

int breakers_find(const struct tokenizer *t, const char *const *texts, size_t n,
                  int32_t **ret, size_t *ret_n, struct err *e)
{
    int rc = 0;
    struct found *f = calloc(1, sizeof(*f));
    must(f != NULL && n <= DRY_TEXTS_MAX);
    f->texts = texts;
    f->n_texts = n;
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(texts[i]);
        must(length > 0 && length <= DRY_TEXT_BYTES);
        f->lengths[i] = (uint32_t)length;
        f->first[(uint8_t)texts[i][0]] = true;
    }
    f->pairs = malloc(DRY_BREAKS_MAX * sizeof(*f->pairs));
    f->numbers = malloc(DRY_BREAKS_MAX * sizeof(*f->numbers));
    if (f->pairs == NULL || f->numbers == NULL) {
        rc = err_set(e, ERR_NOMEM, "%u tokens", DRY_BREAKS_MAX);
    } else {
        rc = find(f, t, e);
    }
    if (rc == 0) {
        *ret_n = f->n_numbers;
        *ret = NULL;
    }
    if (rc == 0 && f->n_numbers > 0) {
        *ret = f->numbers; /* given away */
        f->numbers = NULL;
    }
    free(f->pairs);
    free(f->numbers);
    free(f);
    return rc;
}
