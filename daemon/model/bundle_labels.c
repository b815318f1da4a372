/* bundle_labels.c - what a model is for: a decoder writes text; an encoder gives
 * each token of a text a label, or, without "labels", a text its vector. "kind" is
 * absent in bundles of decoders, so that older ones keep their manifest and
 * fingerprint. */
#include <string.h>

#include "base/num.h"
#include "model/bundle_impl.h"

#define KIND "encoder"

int bundle_want_kind(const struct bundle *b, enum bundle_kind kind,
                     struct err *e)
{
    static const char *const is[] = {
        [BUNDLE_DECODER] = "a decoder: it writes text and has no labels",
        [BUNDLE_TAGGER] = "an encoder: it labels text and writes none",
        [BUNDLE_EMBEDDER] = ("an encoder that gives embeddings: it writes no "
                             "text and has no labels"),
    };
    return bundle_kind(b) == kind ? 0
                                  : err_set(e, ERR_UNSUPPORTED, "model %s is %s",
                                            b->name, is[bundle_kind(b)]);
}

int bundle_want_probe(const struct bundle *b, struct err *e)
{
    return !b->encoder
               ? 0
               : err_set(e, ERR_UNSUPPORTED,
                         "model %s is an encoder, and cannot be probed: its "
                         "rows see one another, so that widths and chunks say "
                         "nothing about it",
                         b->name);
}

/* Of an encoder without labels. */
static int read_positions(struct bundle *b, const struct json *j,
                          struct err *e)
{
    return json_get(j, "position_file") == NULL
               ? 0
               : bundle_want_str(b, j, "position_file", BUNDLE_PATH_MAX,
                                 &b->position_file, e);
}

int bundle_read_labels(struct bundle *b, const struct json *j, struct err *e)
{
    const char *kind = NULL;
    RETERR(json_want_str(j, "kind", false, &kind, e));
    if (kind == NULL) {
        return 0;
    }
    if (strcmp(kind, KIND) != 0) {
        return err_set(e, ERR_INVALID, "kind '%.32s' is not known", kind);
    }
    b->encoder = true;
    const struct json *a = json_get(j, "labels");
    if (a == NULL) {
        return read_positions(b, j, e);
    }
    size_t n = a != NULL && json_type(a) == JSON_ARRAY ? json_count(a) : 0;
    if (n == 0 || n > MODEL_LABELS_MAX) {
        return err_set(e, ERR_INVALID, "labels is not an array of 1 to %u names",
                       MODEL_LABELS_MAX);
    }
    b->labels = arena_array(&b->arena, n, sizeof(*b->labels));
    if (b->labels == NULL) {
        return err_set(e, ERR_NOMEM, "labels");
    }
    for (const struct json *c = json_first(a); c != NULL; c = json_next(c)) {
        const char *s = json_str(c);
        if (s == NULL) {
            return err_set(e, ERR_INVALID, "labels are not strings");
        }
        b->labels[b->n_labels] = arena_str(&b->arena, s);
        if (b->labels[b->n_labels++] == NULL) {
            return err_set(e, ERR_NOMEM, "labels");
        }
    }
    return 0;
}

void bundle_put_labels(struct json *j, const struct bundle *b)
{
    if (!b->encoder) {
        return;
    }
    json_add_str(j, "kind", KIND);
    if (b->position_file != NULL) {
        json_add_str(j, "position_file", b->position_file);
    }
    if (b->n_labels == 0) {
        return;
    }
    struct json *a = json_add_array(j, "labels");
    for (uint32_t i = 0; i < b->n_labels; i++) {
        json_add_str(a, NULL, b->labels[i]);
    }
}

/* Labels: a window, and any length. Embeddings: a text at once. */
static int check_reach(const struct bundle *b, uint32_t block, struct err *e)
{
    bool labels = b->n_labels > 0;
    if (labels ? b->rope.window == 0 || block > ENCODER_ROWS_MAX / 4
               : b->rope.window != 0) {
        return err_set(e, ERR_BUNDLE,
                       labels ? "rope.window %u: an encoder with labels has 1 "
                                "to %u"
                              : "rope.window %u: an encoder without labels has "
                                "none",
                       b->rope.window, ENCODER_ROWS_MAX / 4);
    }
    uint32_t most =
        (uint32_t)num_min(b->context_train, ENCODER_WHOLE_MAX);
    if (labels ? b->context != ENCODER_ROWS_MAX : b->context > most) {
        return err_set(e, ERR_BUNDLE, "context %u: this encoder has %s %u",
                       b->context, labels ? "one of" : "at most",
                       labels ? ENCODER_ROWS_MAX : most);
    }
    return 0;
}

static int check_encoder(const struct bundle *b, struct err *e)
{
    uint32_t block = layer_block(b->rope.window);
    RETERR(check_reach(b, block, e));
    if (b->rope_local.present || b->d_ple > 0 || b->argmax ||
        strcmp(b->kv, "state") != 0) {
        return err_set(e, ERR_BUNDLE,
                       "an encoder has one kind of layer and no past");
    }
    for (size_t i = 0; i < b->n_shards; i++) {
        const struct bundle_shard *s = &b->shards[i];
        if (s->t_min % block != 0 || s->t_max % block != 0) {
            return err_set(e, ERR_BUNDLE, "%s: T is not a multiple of %u",
                           s->path, block);
        }
        if (b->n_labels == 0 && s->t_max < b->context) {
            return err_set(e, ERR_BUNDLE,
                           "%s: %u rows for a context of %u, and without a "
                           "window a text is read at once",
                           s->path, s->t_max, b->context);
        }
    }
    size_t heads = b->n_labels > 0 ? 1 : 0;
    return b->n_heads_shards == heads
               ? 0
               : err_set(e, ERR_BUNDLE,
                         "%zu heads: an encoder has %zu, with%s labels",
                         b->n_heads_shards, heads, heads > 0 ? "" : "out");
}

int bundle_check_labels(const struct bundle *b, struct err *e)
{
    if (b->n_labels > MODEL_LABELS_MAX) {
        return err_set(e, ERR_BUNDLE, "%u labels, at most %u", b->n_labels,
                       MODEL_LABELS_MAX);
    }
    for (uint32_t i = 0; i < b->n_labels; i++) {
        size_t n = strlen(b->labels[i]);
        if (n == 0 || n > MODEL_LABEL_BYTES_MAX) {
            return err_set(e, ERR_BUNDLE, "labels[%u] is no name", i);
        }
        for (uint32_t k = 0; k < i; k++) {
            if (strcmp(b->labels[i], b->labels[k]) == 0) {
                return err_set(e, ERR_BUNDLE, "label %s is there twice",
                               b->labels[i]);
            }
        }
    }
    return b->encoder ? check_encoder(b, e) : 0;
}
