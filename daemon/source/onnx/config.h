/* config.h - what the files beside a graph say of the model: config.json (or
 * hf_config.json) and genai_config.json. The graph is the truth; these numbers
 * are compared with it, and give what no graph has: the context's length, the
 * base of a rotation. */
#pragma once

#include "proto/json.h"
#include "source/onnx/rope.h"

#define ONNX_FACTORS_MAX 512u /* half of what turns in a head */

struct onnx_config {
    char model_type[48]; /* "" : nobody says */
    int64_t layers, d_model, heads, kv, d_head, d_ff, vocab; /* 0: unsaid */
    int64_t context;
    double eps, theta, alpha, local_theta, partial;
    bool scaled; /* it names a rotation that is not the plain one */
    size_t n_short, n_long;
    double shorts[ONNX_FACTORS_MAX], longs[ONNX_FACTORS_MAX];
};

/* hf and genai may be NULL. Errors: INVALID (a number that is none, two that
 * do not agree). */
CHECKED int onnx_config_read(const struct json *hf, const struct json *genai,
                             struct onnx_config *ret, struct err *e);
/* Errors: ONNX_GRAPH, which says the number. */
CHECKED int onnx_config_check(const struct onnx_config *c,
                              const struct onnx_decoder *d, struct err *e);
