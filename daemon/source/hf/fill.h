/* fill.h - of the families' files: what several rows of the table share, and the
 * rows' parts that stand in another file. */
#pragma once

#include "source/hf/hf.h"

/* The rotation of families that turn whole heads in all layers. theta: the
 * default. */
CHECKED int hf_put_plain_rope(struct hf *h, double theta, struct err *e);
/* layer_types, where it is there: layer l is of kind a where (l + 1) % every is
 * not 0, else of kind b. every 0: all are b. Errors: UNSUPPORTED. */
CHECKED int hf_check_layers(const struct hf *h, const char *a, const char *b,
                            uint32_t every, struct err *e);

extern const char *const hf_gemma2_keys[];
extern const char *const hf_gemma3_keys[];
extern const char *const hf_gemma4_keys[];
CHECKED int hf_fill_gemma(struct hf *h, struct err *e);
CHECKED int hf_fill_gemma2(struct hf *h, struct err *e);
CHECKED int hf_fill_gemma3(struct hf *h, struct err *e);
CHECKED int hf_fill_gemma4(struct hf *h, struct err *e);

extern const char *const hf_zaya_keys[];
CHECKED int hf_check_zaya(const struct hf *h, struct err *e);
CHECKED int hf_fill_zaya(struct hf *h, struct err *e);
CHECKED int hf_take_zaya(struct hf *h, const struct safetensors_tensor *t,
                         const struct hf_place *at, bool *ret, struct err *e);
CHECKED int hf_finish_zaya(struct hf *h, struct err *e);
