/* bundle_forms.c - which form each matrix has, and why, in the manifest.
 *
 * The packages say the forms too; this list is for people, and for a gate that
 * holds a bundle to what was asked of it. */
#include <string.h>

#include "model/bundle_impl.h"
#include "proto/json.h"

#define FORMS_MAX (MODEL_LAYERS_MAX * 16u) /* matrices of a layer, and more */

void bundle_put_forms(struct json *j, const struct bundle *b)
{
    const struct bundle_target *t = &b->target;
    if (b->n_forms > 0) {
        struct json *a = json_add_array(j, "forms");
        for (size_t i = 0; i < b->n_forms; i++) {
            struct json *o = json_add_object(a, NULL);
            json_add_str(o, "tensor", b->forms[i].tensor);
            json_add_str(o, "quant", b->forms[i].quant);
        }
    }
    if (t->present) {
        struct json *o = json_add_object(j, "target");
        if (t->bytes > 0) {
            json_add_int(o, "bytes", (int64_t)t->bytes);
        } else {
            json_add_num(o, "kl", t->kl);
        }
        json_add_num(o, "measured_kl", t->measured_kl);
        json_add_num(o, "expected_kl", t->expected_kl);
        json_add_num(o, "reached_kl", t->reached_kl);
        json_add_int(o, "positions", t->positions);
    }
}

static int keep_str(struct bundle *b, const struct json *j, const char *key,
                    size_t max, const char **ret, struct err *e)
{
    const char *v = NULL;
    RETERR(json_want_str(j, key, true, &v, e));
    if (v[0] == '\0' || strlen(v) > max) {
        return err_set(e, ERR_INVALID, "%s is empty or too long", key);
    }
    *ret = arena_str(&b->arena, v);
    return *ret != NULL ? 0 : err_set(e, ERR_NOMEM, "%s", key);
}

static int read_list(struct bundle *b, const struct json *a, struct err *e)
{
    size_t n = json_count(a);
    if (json_type(a) != JSON_ARRAY || n > FORMS_MAX) {
        return err_set(e, ERR_INVALID, "forms is not an array of at most %u",
                       FORMS_MAX);
    }
    b->forms = arena_array(&b->arena, n > 0 ? n : 1, sizeof(*b->forms));
    if (b->forms == NULL) {
        return err_set(e, ERR_NOMEM, "forms");
    }
    for (const struct json *c = json_first(a); c != NULL; c = json_next(c)) {
        struct bundle_form *f = &b->forms[b->n_forms];
        int rc = keep_str(b, c, "tensor", GGUF_NAME_MAX, &f->tensor, e);
        rc = rc < 0 ? rc
                    : keep_str(b, c, "quant", BUNDLE_TEXT_MAX, &f->quant, e);
        if (rc < 0) {
            return err_prefix(e, rc, "forms[%zu]", b->n_forms);
        }
        b->n_forms++;
    }
    return 0;
}

static int read_target(struct bundle_target *t, const struct json *j,
                       struct err *e)
{
    int64_t bytes = 0;
    int64_t positions = 0;
    RETERR(json_want_int(j, "bytes", false, 0, (int64_t)TARGET_BYTES_MAX,
                         &bytes, e));
    RETERR(json_want_num(j, "kl", false, 0, TARGET_KL_MAX, &t->kl, e));
    RETERR(json_want_num(j, "measured_kl", true, 0, 1e300, &t->measured_kl, e));
    RETERR(json_want_num(j, "expected_kl", true, 0, 1e300, &t->expected_kl, e));
    RETERR(json_want_int(j, "positions", true, 0, UINT32_MAX, &positions, e));
    t->reached_kl = t->expected_kl; /* as bundles had it that lack the next */
    RETERR(json_want_num(j, "reached_kl", false, 0, 1e300, &t->reached_kl, e));
    t->bytes = (uint64_t)bytes;
    t->positions = (uint32_t)positions;
    t->present = true;
    return (bytes > 0) != (t->kl > 0)
               ? 0
               : err_set(e, ERR_INVALID, "neither, or both, of bytes and kl");
}

int bundle_read_forms(struct bundle *b, const struct json *j, struct err *e)
{
    const struct json *forms = json_get(j, "forms");
    const struct json *target = json_get(j, "target");
    if (forms != NULL) {
        RETERR(read_list(b, forms, e));
    }
    int rc = target != NULL ? read_target(&b->target, target, e) : 0;
    return rc < 0 ? err_prefix(e, rc, "target") : 0;
}
