/* onnx_mask.h - the mask that onnxruntime-genai's builder wrote before 0.5, node
 * by node, for MultiHeadAttention: the one that mask.c knows. */
#pragma once

#include "onnx_kit.h"

/* "mask" and "ids" are inputs; "pk" is a state's name. A tensor is one number
 * (of rank 4: four), an attribute without one a whole number. */
static const struct {
    const char *op, *in, *out, *attr;
    int32_t type;
    unsigned rank;
    int64_t v;
} kit_mask_nodes[] = {
    {"Constant", "", "m0", "value", ONNX_FLOAT16, 0, 0x3c00},
    {"Constant", "", "m1", "value", ONNX_INT64, 1, 1},
    {"Unsqueeze", "mask,m1", "m2", NULL, 0, 0, 0},
    {"Constant", "", "m3", "value", ONNX_INT64, 1, 2},
    {"Unsqueeze", "m2,m3", "m4", NULL, 0, 0, 0},
    {"Shape", "mask", "m5", NULL, 0, 0, 0},
    {"Constant", "", "m6", "value", ONNX_INT64, 0, 0},
    {"Gather", "m5,m6", "m7", "axis", 0, 0, 0},
    {"Constant", "", "m8", "value", ONNX_INT64, 1, 0},
    {"Unsqueeze", "m7,m8", "m9", NULL, 0, 0, 0},
    {"Shape", "ids", "m10", NULL, 0, 0, 0},
    {"Constant", "", "m11", "value", ONNX_INT64, 0, 1},
    {"Gather", "m10,m11", "m12", "axis", 0, 0, 0},
    {"Unsqueeze", "m12,m8", "m13", NULL, 0, 0, 0},
    {"Shape", "mask", "m14", NULL, 0, 0, 0},
    {"Gather", "m14,m11", "m15", "axis", 0, 0, 0},
    {"Unsqueeze", "m15,m8", "m16", NULL, 0, 0, 0},
    {"Concat", "m9,m1,m13,m16", "m17", "axis", 0, 0, 0},
    {"Shape", "m17", "m18", NULL, 0, 0, 0},
    {"ConstantOfShape", "m18", "m19", "value", ONNX_INT64, 1, 1},
    {"Constant", "", "m20", "value", ONNX_INT64, 0, -1},
    {"Mul", "m19,m20", "m21", NULL, 0, 0, 0},
    {"Equal", "m17,m21", "m22", NULL, 0, 0, 0},
    {"Where", "m22,m19,m17", "m23", NULL, 0, 0, 0},
    {"Expand", "m4,m23", "m24", NULL, 0, 0, 0},
    {"Cast", "m24", "m25", "to", 0, 0, 10},
    {"Sub", "m0,m25", "m26", NULL, 0, 0, 0},
    {"Cast", "m26", "m27", "to", 0, 0, 9},
    {"Constant", "", "m28", "value", ONNX_FLOAT16, 0, 0xfbff},
    {"Where", "m27,m28,m26", "m29", NULL, 0, 0, 0},
    {"Unsqueeze", "m12,m8", "m30", NULL, 0, 0, 0},
    {"Unsqueeze", "m12,m8", "m31", NULL, 0, 0, 0},
    {"Concat", "m30,m31", "m32", "axis", 0, 0, 0},
    {"ConstantOfShape", "m32", "m33", "value", ONNX_FLOAT16, 1, 0xfbff},
    {"Shape", "m33", "m34", NULL, 0, 0, 0},
    {"Constant", "", "m35", "value", ONNX_INT64, 1, -1},
    {"Constant", "", "m36", "value", ONNX_INT64, 1, INT64_MAX},
    {"Slice", "m34,m35,m36,m8", "m37", NULL, 0, 0, 0},
    {"Squeeze", "m37,m8", "m38", NULL, 0, 0, 0},
    {"Range", "m6,m38,m11", "m39", NULL, 0, 0, 0},
    {"Add", "m39,m11", "m40", NULL, 0, 0, 0},
    {"Shape", "m33", "m41", NULL, 0, 0, 0},
    {"Slice", "m41,m35,m36,m8", "m42", NULL, 0, 0, 0},
    {"Squeeze", "m42,m8", "m43", NULL, 0, 0, 0},
    {"Unsqueeze", "m43,m8", "m44", NULL, 0, 0, 0},
    {"Concat", "m44,m1", "m45", "axis", 0, 0, 0},
    {"Reshape", "m40,m45", "m46", NULL, 0, 0, 0},
    {"Less", "m39,m46", "m47", NULL, 0, 0, 0},
    {"Constant", "", "m48", "value", ONNX_FLOAT16, 0, 0x0},
    {"Where", "m47,m48,m33", "m49", NULL, 0, 0, 0},
    {"Unsqueeze", "m49,m8", "m50", NULL, 0, 0, 0},
    {"Unsqueeze", "m50,m1", "m51", NULL, 0, 0, 0},
    {"Shape", "ids", "m52", NULL, 0, 0, 0},
    {"Gather", "m52,m6", "m53", "axis", 0, 0, 0},
    {"Unsqueeze", "m53,m8", "m54", NULL, 0, 0, 0},
    {"Unsqueeze", "m12,m8", "m55", NULL, 0, 0, 0},
    {"Shape", "pk", "m56", NULL, 0, 0, 0},
    {"Constant", "", "m57", "value", ONNX_INT64, 0, 2},
    {"Gather", "m56,m57", "m58", "axis", 0, 0, 0},
    {"Add", "m12,m58", "m59", NULL, 0, 0, 0},
    {"Unsqueeze", "m59,m8", "m60", NULL, 0, 0, 0},
    {"Concat", "m54,m1,m55,m60", "m61", "axis", 0, 0, 0},
    {"Shape", "m61", "m62", NULL, 0, 0, 0},
    {"ConstantOfShape", "m62", "m63", "value", ONNX_INT64, 1, 1},
    {"Mul", "m63,m20", "m64", NULL, 0, 0, 0},
    {"Equal", "m61,m64", "m65", NULL, 0, 0, 0},
    {"Where", "m65,m63,m61", "m66", NULL, 0, 0, 0},
    {"Expand", "m51,m66", "m67", NULL, 0, 0, 0},
    {"Add", "m29,m67", "m68", NULL, 0, 0, 0},
    {"Constant", "", "m69", "value", ONNX_INT64, 4, 1},
    {"Tile", "m68,m69", "m70", NULL, 0, 0, 0},
};

/* past: the state of keys whose length it reads. The result is "m70". */
static inline void kit_mask(struct kit *k, const char *past)
{
    for (size_t i = 0; i < countof(kit_mask_nodes); i++) {
        const int64_t v = kit_mask_nodes[i].v;
        const int64_t four[4] = {v, v, v, v};
        const bool tile = kit_mask_nodes[i].rank == 4;
        const int64_t dims[1] = {tile ? 4 : 1};
        const int32_t type = kit_mask_nodes[i].type;
        const char *in = kit_mask_nodes[i].in;
        Ox__Node *n = kit_node(k, k->g, kit_mask_nodes[i].op,
                               strcmp(in, "pk") == 0 ? past : in,
                               kit_mask_nodes[i].out);
        if (type != 0) { /* little endian: its first bytes are the number */
            kit_attr(k, n, kit_mask_nodes[i].attr, ONNX_ATTR_TENSOR)->t =
                kit_tensor(k, "", type, dims, kit_mask_nodes[i].rank > 0, four,
                           tile ? 32 : type == ONNX_INT64 ? 8 : 2);
        } else if (kit_mask_nodes[i].attr != NULL) {
            kit_int(k, n, kit_mask_nodes[i].attr, v);
        }
    }
}
