#!/usr/bin/env python3
"""Print the table of test_dequant.c: for each type the SHA-256 of what the `gguf` package makes of blocks of pseudo-random bytes.

The bytes are those of next_byte() in test_dequant.c; bit 6 and 2 of the bytes named there are cleared, so that no scale is infinite
or NaN: of those, processors do not agree on the sign."""
import hashlib

import gguf
import numpy as np

BLOCKS = 61
SCALES = {"F16": (), "BF16": (), "Q4_0": (1,), "Q4_1": (1, 3), "Q5_0": (1,), "Q5_1": (1, 3), "Q8_0": (1,),
          "Q2_K": (81, 83), "Q3_K": (109,), "Q4_K": (1, 3), "Q5_K": (1, 3), "Q6_K": (209,),
          "IQ2_XXS": (1,), "IQ2_XS": (1,), "IQ3_XXS": (1,), "IQ1_S": (1,), "IQ4_NL": (1,), "IQ3_S": (1,), "IQ2_S": (1,),
          "IQ4_XS": (1,), "IQ1_M": (55,), "TQ1_0": (53,), "TQ2_0": (65,), "MXFP4": (0,)}


def raw(n):
    x, out = 88172645463325252, bytearray()
    for _ in range(n):
        x ^= x << 13 & 0xFFFFFFFFFFFFFFFF
        x ^= x >> 7
        x ^= x << 17 & 0xFFFFFFFFFFFFFFFF
        out.append(x >> 32 & 255)
    return out


def main():
    for kind, at in SCALES.items():
        qtype = gguf.GGMLQuantizationType[kind]
        items, size = gguf.GGML_QUANT_SIZES[qtype]
        blocks = np.frombuffer(raw(BLOCKS * size), np.uint8).reshape(BLOCKS, size)
        for i in at or (size - 1,):
            blocks[:, i] &= 0xBB
        y = gguf.quants.dequantize(blocks, qtype)
        assert np.isfinite(y).all(), kind
        first, second = (*(at or (size - 1,)), -1)[:2]
        digest = hashlib.sha256(np.ascontiguousarray(y, np.float32).tobytes()).hexdigest()
        print(f"    {{GGML_{kind.upper()}, {first}, {second},\n     \"{digest}\"}},")


if __name__ == "__main__":
    main()
