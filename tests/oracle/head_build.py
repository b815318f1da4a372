#!/usr/bin/env python3
"""Write heads whose logits are the hidden state itself, in the form of ane-book's own heads. Needs coremltools.

    head_build.py OUT D_MODEL SLICES     OUT/head_K.mlpackage: ids [K * D_MODEL / SLICES, ...)
"""
import logging
import pathlib
import sys

logging.disable(logging.CRITICAL)
import numpy as np  # noqa: E402
import coremltools as ct  # noqa: E402
from coremltools.converters.mil.mil import Builder as mb, Function, Placeholder, Program, types  # noqa: E402
from coremltools.converters.mil.mil.program import get_new_symbol  # noqa: E402


def head(rows):
    """rows: (vocab, d_model)"""
    x = Placeholder((1, rows.shape[1], get_new_symbol(), 1), dtype=types.fp16)
    with Function({"hidden": x}, opset_version=ct.target.iOS18) as f:
        y = mb.conv(x=f.inputs["hidden"], weight=rows[:, :, None, None].astype(np.float16), name="logits")
        f.set_outputs([y])
    p = Program()
    p.add_function("main", f)
    shape = ct.Shape((1, rows.shape[1], ct.RangeDim(1, 4), 1))
    return ct.convert(p, convert_to="mlprogram", minimum_deployment_target=ct.target.iOS18,
                      inputs=[ct.TensorType("hidden", shape, np.float16)],
                      compute_precision=ct.precision.FLOAT16)


def main(out, d_model, slices):
    for k, rows in enumerate(np.split(np.eye(d_model), slices)):
        head(rows).save(str(pathlib.Path(out) / f"head_{k}.mlpackage"))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
