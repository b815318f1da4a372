#!/usr/bin/env python3
"""Write grids.c from the `gguf` package (pip install gguf), or with --check say whether it is what is there.

usage: mkgrids.py [--check]

The package holds a grid as the hexadecimal digits of its bytes; two of them are an entry of ours.
"""
import pathlib
import sys

OUT = pathlib.Path(__file__).with_name("grids.c")
# Name, the package's class, codes to an entry, bits each has there, and what it makes of them.
GRIDS = [
    ("grid_iq1", "IQ1_S", 8, 2, (-1, 0, 1)),
    ("grid_iq2_xxs", "IQ2_XXS", 8, 2, (8, 25, 43)),
    ("grid_iq2_xs", "IQ2_XS", 8, 2, (8, 25, 43)),
    ("grid_iq2_s", "IQ2_S", 8, 2, (8, 25, 43)),
    ("grid_iq3_xxs", "IQ3_XXS", 4, 4, (4, 12, 20, 28, 36, 44, 52, 62)),
    ("grid_iq3_s", "IQ3_S", 4, 4, (1, 3, 5, 7, 9, 11, 13, 15)),
]
HEAD = """\
/* The grids of the i-quants. Made by mkgrids.py from the tables of the `gguf`
 * Python package, which is part of llama.cpp:
 *
 * MIT License
 *
 * Copyright (c) 2023 Georgi Gerganov
 * Copyright (c) 2023-2026 The ggml authors
 *
 * Permission is hereby granted, free of charge, to any person obtaining a copy
 * of this software and associated documentation files (the "Software"), to deal
 * in the Software without restriction, including without limitation the rights
 * to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
 * copies of the Software, and to permit persons to whom the Software is
 * furnished to do so, subject to the following conditions:
 *
 * The above copyright notice and this permission notice shall be included in all
 * copies or substantial portions of the Software.
 *
 * THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
 * IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
 * FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
 * AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
 * LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
 * OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
 * SOFTWARE.
 */
#include "source/grids.h"

/* clang-format off */
"""


def entries(cls, codes, bits, values):
    """The grid's entries, checked: aned's arithmetic knows the values and has no code beyond them."""
    assert tuple(int(v) for v in cls.grid_map) == values and cls.grid_shape[1] == codes and codes * bits == 16
    raw = bytes.fromhex(cls.grid_hex.decode())
    got = [int.from_bytes(raw[i:i + 2], "little") for i in range(0, len(raw), 2)]
    assert len(got) == cls.grid_shape[0]
    assert all(e >> (bits * k) & (1 << bits) - 1 < len(values) for e in got for k in range(codes))
    return got


def text():
    from gguf import quants
    out = [HEAD]
    for name, kind, codes, bits, values in GRIDS:
        got = entries(getattr(quants, kind), codes, bits, values)
        out.append(f"const uint16_t {name}[{len(got)}] = {{\n")
        for i in range(0, len(got), 11):
            out.append("".join(f"0x{e:04x}," for e in got[i:i + 11]) + "\n")
        out.append("};\n")
    return "".join(out) + "/* clang-format on */\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(0 if OUT.read_text() == text() else f"{OUT} is not what mkgrids.py writes")
    OUT.write_text(text())
