/* reader.h - shared by the files of onnx/ that use protobuf-c; private. */
#pragma once

#include "source/onnx/onnx.h"
#include "source/onnx/onnx.pb-c.h"

/* external.c: where a tensor's bytes are. Errors: ONNX_DATA, as find. */
CHECKED int onnx_external(struct onnx *m, const struct onnx_files *files,
                          const Ox__Tensor *in, struct onnx_tensor *t,
                          struct err *e);
/* Shared weights are one range that two names have. Ranges that overlap
 * otherwise come from no exporter: a file that is damaged or meant to harm. Errors:
 * ONNX_DATA. */
CHECKED int onnx_check_overlap(struct onnx *m, struct err *e);
/* tensor.c */
CHECKED int onnx_tensor_read(struct onnx *m, const struct onnx_files *files,
                             const Ox__Tensor *in,
                             struct onnx_tensor *t, struct err *e);
