/* tops.c - heads that give each row's likeliest token in place of its logits
 * ("output": "argmax"). What a row of logits is elsewhere has two numbers then:
 * the token's id, which a float holds exactly (MODEL_VOCAB_MAX), and its logit.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "engine/impl.h"

static_assert(MODEL_VOCAB_MAX <= 1u << 24, "ids are exact as floats");

/* Slices come in the order of their ids, so of equal ones the first stays: the
 * sampler's rule. */
void tops_merge(float *row, bool first, uint32_t vocab_first, float id,
                float value)
{
    if (first || isnan(value) || value > row[TOP_VALUE]) {
        row[TOP_ID] = (float)vocab_first + id;
        row[TOP_VALUE] = value;
    }
}

int tops_draw(const struct engine *g, const float *row, struct msg_token *ret,
              struct err *e)
{
    if (!isfinite(row[TOP_VALUE])) {
        return err_set(e, ERR_INVALID, "logits are not finite");
    }
    if (!(row[TOP_ID] >= 0 && row[TOP_ID] < (float)g->b->vocab)) {
        return err_set(e, ERR_BUNDLE, "a head gave token %g of %u",
                       (double)row[TOP_ID], g->b->vocab);
    }
    *ret = (struct msg_token){.id = (int32_t)row[TOP_ID]};
    return 0;
}

int tops_check(const struct engine *g, const struct msg_sampling *s,
               struct err *e)
{
    const char *what = msg_sampling_beyond_top(s);
    return !g->b->argmax || what == NULL
               ? 0
               : err_set(e, ERR_UNSUPPORTED, MSG_ONLY_TOP ": no %s", what);
}
