/* reshard.h - a bundle's programs drawn anew: divided for another chip, for
 * another context, or in another form. Weights are copied bit for bit.
 */
#pragma once

#include "convert/convert.h"

/* o->bundle becomes o->out; o->name, profile, context, shape, kv and output say
 * what changes (absent: nothing). The other options must be absent. Gates:
 * structure, residency, and exactness (the same logits as before, on the CPU
 * backend); what depends on the weights alone is not run again. Files that are
 * the same share their bytes on the disk where the system lets them
 * (bundle_share).
 * Errors: BUNDLE (its files are not those that were published, or an imported
 * package), UNSUPPORTED, CONVERT, INVALID, EXISTS, IO, NO_SPACE, CANCELLED. */
CHECKED int reshard_run(const struct convert_options *o,
                        struct convert_result *ret, struct err *e);
/* The same by this plan, of all layers and the whole vocabulary, and not by
 * o->profile's. NULL: as reshard_run. */
CHECKED int reshard_as(const struct convert_options *o,
                       const struct plan *plan, struct convert_result *ret,
                       struct err *e);
