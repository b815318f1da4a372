/* inspect.h - shared by the files of `aned inspect`. */
#pragma once

#include "proto/json.h"
#include "source/onnx/folder.h"

/* The graph of an ONNX model, as far as it was read, into root: operations and
 * how many of them were understood, initialisers, external files, nodes that
 * were not. */
void inspect_graph(const struct onnx_found *f, struct json *root);
