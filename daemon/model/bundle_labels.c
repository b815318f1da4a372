/* bundle_labels.c - what a model is for: a decoder writes text, an encoder gives
 * each token of a text a label. "kind" is absent in bundles of decoders, so that
 * older ones keep their manifest and fingerprint. */
#include <string.h>

#include "model/bundle_impl.h"

#define KIND "encoder"

int bundle_want_kind(const struct bundle *b, bool encoder, struct err *e)
{
    if (encoder == (b->n_labels > 0)) {
        return 0;
    }
    return err_set(e, ERR_UNSUPPORTED,
                   encoder ? "model %s is a decoder: it writes text and has no "
                             "labels"
                           : "model %s is an encoder: it labels text and "
                             "writes none",
                   b->name);
}

int bundle_want_probe(const struct bundle *b, struct err *e)
{
    return b->n_labels == 0
               ? 0
               : err_set(e, ERR_UNSUPPORTED,
                         "model %s is an encoder, and cannot be probed: its "
                         "rows see one another, so that widths and chunks say "
                         "nothing about it",
                         b->name);
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
    const struct json *a = json_get(j, "labels");
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
    if (b->n_labels == 0) {
        return;
    }
    json_add_str(j, "kind", KIND);
    struct json *a = json_add_array(j, "labels");
    for (uint32_t i = 0; i < b->n_labels; i++) {
        json_add_str(a, NULL, b->labels[i]);
    }
}

static int check_encoder(const struct bundle *b, struct err *e)
{
    uint32_t block = layer_block(b->rope.window);
    if (b->rope.window == 0 || block > ENCODER_ROWS_MAX / 4) {
        return err_set(e, ERR_BUNDLE, "rope.window %u: an encoder has 1 to %u",
                       b->rope.window, ENCODER_ROWS_MAX / 4);
    }
    if (b->rope_local.present || b->d_ple > 0 || b->argmax ||
        b->context != ENCODER_ROWS_MAX || strcmp(b->kv, "state") != 0) {
        return err_set(e, ERR_BUNDLE,
                       "an encoder has one kind of layer, no past, and a "
                       "context of %u",
                       ENCODER_ROWS_MAX);
    }
    for (size_t i = 0; i < b->n_shards; i++) {
        if (b->shards[i].t_min % block != 0 || b->shards[i].t_max % block != 0) {
            return err_set(e, ERR_BUNDLE, "%s: T is not a multiple of %u",
                           b->shards[i].path, block);
        }
    }
    return b->n_heads_shards == 1
               ? 0
               : err_set(e, ERR_BUNDLE, "an encoder has one head");
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
    return b->n_labels > 0 ? check_encoder(b, e) : 0;
}
