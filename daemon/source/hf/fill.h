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

/* Numbers from 1 to `most` that must be there, under their names in GGUF. */
struct hf_count {
    const char *key, *tail;
    uint32_t most;
};
CHECKED int hf_put_counts(struct hf *h, const struct hf_count *rows, size_t n,
                          struct err *e);

extern const char *const hf_gemma2_keys[];
extern const char *const hf_gemma3_keys[];
extern const char *const hf_gemma4_keys[];
CHECKED int hf_fill_gemma(struct hf *h, struct err *e);
CHECKED int hf_fill_gemma2(struct hf *h, struct err *e);
CHECKED int hf_fill_gemma3(struct hf *h, struct err *e);
CHECKED int hf_fill_gemma4(struct hf *h, struct err *e);

extern const char *const hf_zaya_keys[];
CHECKED int hf_fill_zaya(struct hf *h, struct err *e);
CHECKED int hf_take_zaya(struct hf *h, const struct safetensors_tensor *t,
                         const struct hf_place *at, bool *ret, struct err *e);
CHECKED int hf_finish_zaya(struct hf *h, struct err *e);
/* zaya_first.c. Is config.json that of the first release? Then it is replaced
 * by that of the library, and tensors are looked up by their first names. */
#define HF_ZAYA_EXPERT "zaya_block.experts.local_experts."
CHECKED int hf_renew_zaya(struct hf *h, struct err *e);
CHECKED int hf_rename_zaya(const struct hf *h, const char *name,
                           struct hf_place *at, struct err *e);

/* experts.c. Matrices of experts that are tensors of their own, as one tensor
 * for all experts of a layer. */
struct hf_single {
    const char *from, *to; /* behind the expert's number; in GGUF */
};
struct hf_singles {
    const char *prefix; /* before the expert's number */
    const struct hf_single *of;
    size_t n;
    uint32_t step, first; /* layer l is step * l + first in the file's names */
};
struct hf_stacks;
/* *ret: t is such a matrix, and was taken. *s: NULL before the first. */
CHECKED int hf_stacks_take(struct hf *h, struct hf_stacks **s,
                           const struct hf_singles *of,
                           const struct safetensors_tensor *t,
                           const struct hf_place *at, bool *ret, struct err *e);
/* All of them, whole; s may be NULL: there were none. */
CHECKED int hf_stacks_put(struct hf *h, const struct hf_stacks *s,
                          struct err *e);

extern const char *const hf_bert_keys[], *const hf_bert_bodies[];
extern const char *const hf_nomic_keys[], *const hf_nomic_bodies[];
extern const char *const hf_nomic_other[][2];
CHECKED int hf_check_bert(const struct hf *h, struct err *e);
CHECKED int hf_check_nomic(const struct hf *h, struct err *e);
CHECKED int hf_fill_bert(struct hf *h, struct err *e);
CHECKED int hf_fill_nomic(struct hf *h, struct err *e);
CHECKED int hf_take_bert(struct hf *h, const struct safetensors_tensor *t,
                         const struct hf_place *at, bool *ret, struct err *e);
CHECKED int hf_take_nomic(struct hf *h, const struct safetensors_tensor *t,
                          const struct hf_place *at, bool *ret, struct err *e);

extern const char *const hf_lfm2moe_keys[];
/* All of lfm2 but the width of its feed-forward. */
CHECKED int hf_fill_lfm2_layers(struct hf *h, struct err *e);
CHECKED int hf_fill_lfm2moe(struct hf *h, struct err *e);
CHECKED int hf_take_lfm2moe(struct hf *h, const struct safetensors_tensor *t,
                            const struct hf_place *at, bool *ret,
                            struct err *e);
CHECKED int hf_finish_lfm2moe(struct hf *h, struct err *e);

extern const char *const hf_privacy_filter_keys[];
CHECKED int hf_fill_privacy_filter(struct hf *h, struct err *e);
CHECKED int hf_take_privacy_filter(struct hf *h,
                                   const struct safetensors_tensor *t,
                                   const struct hf_place *at, bool *ret,
                                   struct err *e);
