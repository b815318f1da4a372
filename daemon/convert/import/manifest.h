/* manifest.h - reads the `*_runtime_meta.json` of the public ane-book
 * repository: a decoder that is already a row of Core ML packages.
 *
 *   {"artifacts_version": 1, "model_family": "Phi 4 Mini Instruct",
 *    "d_model", "n_heads", "n_kv_heads", "d_head", "rope_dim", "d_ff",
 *    "vocab_size", "n_layers", "max_seq_len", "rms_norm_eps",
 *    "rope_freq_base", "eos_token_id", "bos_token_id",
 *    "embed_bin": "x_token_embd_fp16.bin",
 *    "layers": [{"start": 0, "end": 20, "path": "layer0_20.mlmodelc"}, ...],
 *    "lm_head_shards": [{"shard_idx": 0, "vocab_start": 0, "vocab_end": 50016,
 *                        "mlmodelc": "lm_head/s0.mlmodelc"}, ...]}
 *
 * It names compiled models (.mlmodelc), which only Core ML reads: aned takes
 * the .mlpackage of the same name beside each. A key that is not understood
 * could change the arithmetic, so it is refused by name.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "proto/limits.h"

struct import_part {
    const char *path;     /* relative to the manifest, ends with .mlpackage */
    uint32_t first, last; /* layers or ids: [first, last) */
};

struct import_manifest {
    struct arena arena;
    const char *family; /* as it is written; never empty */
    uint32_t n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff, rope_dim;
    uint32_t vocab, context;
    float norm_eps, rope_base;
    uint32_t eos, bos;   /* UINT32_MAX: not told */
    uint32_t quant_bits; /* 0: not told */
    uint32_t t_max;      /* rows of a prediction; 0: not told */
    bool verifier;       /* it has a second set of packages, which aned leaves:
                            the first one verifies as well */
    const char *embed;   /* relative: fp16 (vocab, d_model) */
    size_t n_parts, n_heads_parts;
    struct import_part *parts, *heads; /* in order, without gaps */
};

/* Read n bytes of JSON. sets: "KEY=NUMBER" for numbers that the manifest does
 * not have. Paths are relative and stay below the manifest; whether there are
 * such files is not looked at. import_manifest_fini() also after an error.
 * Errors: CONVERT (what is wrong, by key), UNSUPPORTED (a key that is not
 * understood), INVALID (sets), JSON, NOMEM. */
CHECKED int import_manifest_read(const char *text, size_t n,
                                 const char *const *sets, size_t n_sets,
                                 struct import_manifest *ret, struct err *e);
void import_manifest_fini(struct import_manifest *m); /* zeroed is fine */

/* The name of a model from its manifest's file name: without "_runtime_meta"
 * and ".json"; the caller checks it. */
void import_name(const char *path, char out[MODEL_NAME_MAX + 1]);
