/* bundle_calibration.c - what a bundle's quantisation was calibrated with. */
#include <string.h>

#include "model/bundle_impl.h"

static const char *const words[] = {[BUNDLE_CALIBRATION_OFF] = "off",
                                    [BUNDLE_CALIBRATION_OWN] = "own samples",
                                    [BUNDLE_CALIBRATION_TEXT] = "text"};

int bundle_read_calibration(struct bundle *b, const struct json *j,
                            struct err *e)
{
    struct bundle_calibration *c = &b->calibration;
    const char *from = NULL;
    int64_t n[3] = {0};
    if (j == NULL) { /* before there was calibration */
        return 0;
    }
    RETERR(json_want_str(j, "from", true, &from, e));
    size_t i = 0;
    while (i < countof(words) && strcmp(from, words[i]) != 0) {
        i++;
    }
    if (i == countof(words)) {
        return err_set(e, ERR_INVALID, "calibration from '%.32s'", from);
    }
    c->from = (enum bundle_calibration_from)i;
    if (c->from == BUNDLE_CALIBRATION_OFF) {
        return 0;
    }
    RETERR(json_want_int(j, "sequences", true, 1, UINT32_MAX, &n[0], e));
    RETERR(json_want_int(j, "tokens", true, 1, UINT32_MAX, &n[1], e));
    RETERR(json_want_int(j, "seed", true, 0, INT64_MAX, &n[2], e));
    c->sequences = (uint32_t)n[0];
    c->tokens = (uint32_t)n[1];
    c->seed = (uint64_t)n[2];
    return c->from == BUNDLE_CALIBRATION_TEXT
               ? bundle_want_sha256(j, "sha256", c->sha256, e)
               : 0;
}

void bundle_put_calibration(struct json *j, const struct bundle *b)
{
    const struct bundle_calibration *c = &b->calibration;
    struct json *o = json_add_object(j, "calibration");
    json_add_str(o, "from", words[c->from]);
    if (c->from != BUNDLE_CALIBRATION_OFF) {
        json_add_int(o, "sequences", c->sequences);
        json_add_int(o, "tokens", c->tokens);
        json_add_int(o, "seed", (int64_t)c->seed);
    }
    if (c->from == BUNDLE_CALIBRATION_TEXT) {
        json_add_str(o, "sha256", c->sha256);
    }
}
