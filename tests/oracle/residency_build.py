#!/usr/bin/env python3
"""Write the packages that test_predicted.py asks `aned residency` about, as coremltools makes them. Needs coremltools.

    residency_build.py OUT     OUT/NAME.mlpackage for each of CASES: one operation of interest in each
"""
import logging
import pathlib
import sys

logging.disable(logging.CRITICAL)
import numpy as np  # noqa: E402
import coremltools as ct  # noqa: E402
from coremltools.converters.mil.mil import Builder as mb, Function, Placeholder, types  # noqa: E402
from coremltools.converters.mil.mil.program import StateTensorPlaceholder  # noqa: E402

from op_build import save  # noqa: E402

RNG = np.random.default_rng(5)
SHAPE = (1, 64, 4, 32)
T = ct.RangeDim(1, 4)


def half(*shape):
    return RNG.uniform(0.1, 1, shape).astype(np.float16)


def small(kind, top, *shape):
    """Integers of a few bits; coremltools has numpy types for them."""
    return RNG.integers(0, top, shape).astype(getattr(types, f"np_{kind}_dtype"))


def scaled(kind, *blocks):
    data = small(kind, 7, 64, 64, 1, 1) if kind == "int4" else RNG.integers(-9, 9, (64, 64, 1, 1)).astype(np.int8)
    return mb.constexpr_blockwise_shift_scale(data=data, scale=half(*blocks, 1, 1))


def palette(bits, *groups, lut=None):
    return mb.constexpr_lut_to_dense(indices=small(f"uint{bits}", 2**bits, 64, 64, 1, 1),
                                     lut=half(*groups, 1, 1, 2**bits, 1) if lut is None else lut())


def joint():
    return mb.constexpr_blockwise_shift_scale(data=RNG.integers(-9, 9, (64, 1, 1, 1, 16, 1)).astype(np.int8),
                                              scale=half(64, 1, 1, 1, 1, 1))


def sparse():
    mask = np.ones((64, 64, 1, 1))
    return mb.constexpr_sparse_to_dense(nonzero_data=half(64 * 64), mask=mask.astype(types.np_uint1_dtype))


def conv(make):
    return lambda f: mb.conv(x=f["x"], weight=make())


def island(f):
    return mb.cast(x=mb.softmax(x=mb.cast(x=f["x"], dtype="fp32"), axis=-1), dtype="fp16")


def loop(f):
    return mb.while_loop(_cond=lambda a: mb.less(x=mb.reduce_max(x=a, axes=[0, 1, 2, 3], keep_dims=False), y=np.float16(9)),
                         _body=lambda a: mb.add(x=a, y=np.float16(1)), loop_vars=(f["x"],))


def update(f, value, whole=True, **at):
    masks = {"begin_mask": [whole] * 4, "end_mask": [True] * 4, "squeeze_mask": [False] * 4, "stride": [1] * 4}
    new = mb.slice_update(x=mb.read_state(input=f["k"]), update=value, **masks, **{"begin": [0] * 4, "end": [0] * 4, **at})
    return mb.exp(x=mb.coreml_update_state(state=f["k"], value=new))


def masked(f):
    """The recipe: blended as a whole, written, read back."""
    return update(f, mb.mul(x=mb.read_state(input=f["k"]), y=np.float16(0.5)))


def at_position(f):
    begin = mb.concat(values=[np.array([0, 0], np.int32), f["pos"], np.array([0], np.int32)], axis=0)
    return update(f, f["row"], whole=False, begin=begin)


def at_tensor(f):
    return update(f, f["row"], whole=False, begin=f["begin"])


def fp16(*shape):
    return Placeholder(shape, dtype=types.fp16)


def int32(*shape):
    return Placeholder(shape, dtype=types.int32)


def state(width=32):
    return {"k": StateTensorPlaceholder((1, 2, 64, width), dtype=types.fp16)}


X = {"x": fp16(*SHAPE)}
RANGED = {"x": Placeholder((1, 64, T.symbol, 1), dtype=types.fp16)}
AS_RANGED = {"x": (1, 64, T, 1)}

# name: (placeholders, body, shapes that vary)
CASES = {
    "exp": (X, lambda f: mb.exp(x=f["x"]), {}),
    "int8": (X, conv(lambda: scaled("int8", 64, 1)), {}),
    "int8_tensor": (X, conv(lambda: scaled("int8", 1, 1)), {}),
    "int8_blocks": (X, conv(lambda: scaled("int8", 64, 4)), {}),
    "int4": (X, conv(lambda: scaled("int4", 64, 1)), {}),
    "int4_blocks": (X, conv(lambda: scaled("int4", 64, 2)), {}),
    "lut4": (X, conv(lambda: palette(4, 64, 1)), {}),
    "lut6": (X, conv(lambda: palette(6, 4, 1)), {}),
    "lut2": (X, conv(lambda: palette(2, 1, 1)), {}),
    "lut4_blocks": (X, conv(lambda: palette(4, 1, 4)), {}),
    "lut4_joint": (X, conv(lambda: palette(4, lut=joint)), {}),
    "lut4_scales": (X, conv(lambda: mb.constexpr_blockwise_shift_scale(data=palette(4, 1, 1), scale=half(64, 1, 1, 1))), {}),
    "sparse": (X, conv(sparse), {}),
    "island": (X, island, {}),
    "gather": (X, lambda f: mb.gather(x=f["x"], indices=np.array([0, 2], np.int32), axis=1), {}),
    "topk": (X, lambda f: mb.topk(x=f["x"], k=3, axis=1)[0], {}),
    "loop": (X, loop, {}),
    "slice": ({**X, "begin": int32(4)}, lambda f: mb.slice_by_size(x=f["x"], begin=f["begin"], size=[1, 1, 1, 1]), {}),
    "reshape": ({**X, "to": int32(4)}, lambda f: mb.reshape(x=f["x"], shape=f["to"]), {}),
    "attention": ({"q": fp16(1, 2, 4, 32), "k": fp16(1, 2, 64, 32)}, lambda f: mb.scaled_dot_product_attention(
        query=f["q"], key=f["k"], value=f["k"]), {}),
    "long_axis": ({"x": fp16(1, 8, 1, 20000)}, lambda f: mb.exp(x=f["x"]), {}),
    "masked": (state(), masked, {}),
    "wide_state": (state(270), masked, {}),
    "position": ({**state(), "row": fp16(1, 2, 1, 32), "pos": int32(1)}, at_position, {}),
    "tensor_position": ({**state(), "row": fp16(1, 2, 1, 32), "begin": int32(4)}, at_tensor, {}),
    "ranged": (RANGED, lambda f: mb.exp(x=f["x"]), AS_RANGED),
    "ranged_beside_fixed": ({**RANGED, "y": fp16(1, 64, 1, 1)}, lambda f: mb.add(x=f["x"], y=f["y"]),
                            {**AS_RANGED, "y": (1, 64, 1, 1)}),
    "enumerated": (RANGED, lambda f: mb.exp(x=f["x"]), {"x": ct.EnumeratedShapes([(1, 64, 1, 1), (1, 64, 4, 1)])}),
}


def main(folder):
    for name, (inputs, body, shapes) in CASES.items():
        with Function(inputs, opset_version=ct.target.iOS18) as fn:
            fn.set_outputs([body(fn.inputs)])
        more = {"inputs": [ct.TensorType(k, shape=v, dtype=np.float16) for k, v in shapes.items()]} if shapes else {}
        save(fn, 18, folder, name, **more)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
