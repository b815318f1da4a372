"""Forms of compressed weights and of control flow."""

import numpy as np

from op_forms import f, fixed, form, weight

# --- compressed weights ---


def pack(b, values, bits):
    """The bit stream of the iOS16 forms."""
    out = np.zeros(-(-values.size * bits // 8), np.uint8)
    for at, v in enumerate(values.ravel()):
        for k in range(bits):
            out[(at * bits + k) // 8] |= ((int(v) >> k) & 1) << ((at * bits + k) % 8)
    return out


def sub(b, lo, hi, dtype, *shape):
    """Integers of any width, as coremltools holds them."""
    kinds = {"int8": np.int8, "uint8": np.uint8}
    return b.rng.integers(lo, hi, shape).astype(kinds.get(dtype) or getattr(b.types, f"np_{dtype}_dtype"))


for dtype, axis, scalar in (("int8", 0, False), ("uint8", 1, False), ("int8", 0, True)):
    weight(
        "constexpr_affine_dequantize",
        lambda b, t=dtype, a=axis, s=scalar: b.constexpr_affine_dequantize(
            quantized_data=sub(b, 0, 120, t, 6, 8),
            axis=np.int32(a),
            scale=b.w(*([] if s else [(6, 8)[a]]), lo=0.01, hi=0.1),
            zero_point=np.dtype(t).type(3) if s else sub(b, 0, 9, t, (6, 8)[a]),
        ),
    )
for bits in (1, 2, 4, 6, 8):
    weight(
        "constexpr_lut_to_dense",
        lambda b, n=bits: b.constexpr_lut_to_dense(
            lut=b.w(2**n), indices=pack(b, b.ints(0, 2**n, 6, 7), n), shape=np.array([6, 7], np.uint32)
        ),
        until=17,
        shape=(6, 7),
    )


def sparse(b, *shape):
    mask = b.rng.integers(0, 2, shape)
    mask.flat[0] = 1
    return mask, int(mask.sum())


weight(
    "constexpr_sparse_to_dense",
    lambda b: (
        lambda m: b.constexpr_sparse_to_dense(
            nonzero_data=b.w(m[1]), mask=pack(b, m[0], 1), shape=np.array([6, 7], np.uint32)
        )
    )(sparse(b, 6, 7)),
    until=17,
    shape=(6, 7),
)
form(
    "constexpr_cast",
    lambda b, x: b.mul(
        x=b.as_fp32(x), y=b.constexpr_cast(source_val=b.rng.uniform(-1, 1, 3).astype(np.float16), output_dtype="fp32")
    ),
    [f(2, 3)],
    lambda b, x: x * b.rng.uniform(-1, 1, 3).astype(np.float16).astype(np.float32),
    since=16,
    infer=False,
)

for dtype, lo, hi, blocks, offset in (
    ("int4", -8, 8, (6, 2), None),
    ("int4", -8, 8, (1, 1), None),
    ("uint4", 0, 16, (3, 4), "uint4"),
    ("int8", -128, 128, (6, 1), None),
    ("uint8", 0, 256, (6, 8), "float"),
    ("int8", -128, 128, (2, 1), "int8"),
):

    def blockwise(b, dtype=dtype, lo=lo, hi=hi, blocks=blocks, offset=offset):
        data = sub(b, lo, hi, dtype, 6, 8)
        more = (
            {}
            if offset is None
            else {"offset": b.w(*blocks) if offset == "float" else sub(b, max(lo, 0), min(hi, 9), offset, *blocks)}
        )
        return b.constexpr_blockwise_shift_scale(data=data, scale=b.w(*blocks, lo=0.01, hi=0.1), **more)

    weight("constexpr_blockwise_shift_scale", blockwise, since=18)
weight(
    "constexpr_blockwise_shift_scale",
    lambda b: b.constexpr_blockwise_shift_scale(data=b.w(6, 8), scale=b.w(6, 1, lo=0.1)),
    since=18,
)
for bits, groups, vector, axis in (
    (1, (1, 1), 1, None),
    (2, (3, 1), 1, None),
    (3, (1, 2), 1, None),
    (4, (6, 1), 1, None),
    (6, (2, 2), 1, None),
    (8, (1, 1), 1, None),
    (4, (1, 1), 2, 0),
    (2, (2, 1), 4, 1),
    (3, (1, 1), 2, -1),
):

    def palette(b, bits=bits, groups=groups, vector=vector, axis=axis):
        shape = [6, 8]
        if axis is not None:
            shape[axis] //= vector
        return b.constexpr_lut_to_dense(
            indices=sub(b, 0, 2**bits, f"uint{bits}", *shape),
            lut=b.w(*groups, 2**bits, vector),
            **({} if axis is None else {"vector_axis": np.int32(axis)}),
        )

    weight("constexpr_lut_to_dense", palette, since=18)
weight(
    "constexpr_lut_to_dense",
    lambda b: b.constexpr_lut_to_dense(
        indices=sub(b, 0, 16, "uint4", 6, 8),
        lut=b.constexpr_blockwise_shift_scale(data=b.w(1, 2, 16, 1), scale=b.w(1, 2, 1, 1, lo=0.5)),
    ),
    since=18,
)
weight(
    "constexpr_sparse_to_dense",
    lambda b: (lambda m: b.constexpr_sparse_to_dense(nonzero_data=b.w(m[1]), mask=m[0].astype(b.types.np_uint1_dtype)))(
        sparse(b, 6, 8)
    ),
    since=18,
)


def sparse_lut(b, bits=4, vector=1, axis=None, groups=(1, 1), quantised=False):
    shape = [6, 8]
    if axis is not None:
        shape[axis] //= vector
    m, n = sparse(b, *shape)
    lut = sub(b, -9, 9, "int8", *groups, 2**bits, vector) if quantised else b.w(*groups, 2**bits, vector)
    mask, values = b.constexpr_lut_to_sparse(
        indices_mask=m.astype(b.types.np_uint1_dtype),
        indices_nonzero_data=sub(b, 0, 2**bits, f"uint{bits}", n),
        lut=lut,
        **({} if axis is None else {"vector_axis": np.int32(axis)}),
    )
    if quantised:
        mask, values = b.constexpr_sparse_blockwise_shift_scale(
            data_mask=mask, nonzero_data=values, scale=b.w(6, 2, lo=0.01, hi=0.1)
        )
    return b.constexpr_sparse_to_dense(nonzero_data=values, mask=mask)


def sparse_scaled(b, dtype, blocks, offset):
    m, n = sparse(b, 6, 8)
    mask, values = b.constexpr_sparse_blockwise_shift_scale(
        data_mask=m.astype(b.types.np_uint1_dtype),
        nonzero_data=sub(b, 0, 8, dtype, n),
        scale=b.w(*blocks, lo=0.01, hi=0.1),
        **({"offset": sub(b, 0, 8, dtype, *blocks)} if offset else {}),
    )
    return b.constexpr_sparse_to_dense(nonzero_data=values, mask=mask)


for options in (
    {},
    {"bits": 1},
    {"bits": 3, "groups": (3, 2)},
    {"bits": 2, "vector": 2, "axis": 1},
    {"bits": 4, "vector": 3, "axis": 0},
):
    weight("constexpr_lut_to_sparse", lambda b, o=options: sparse_lut(b, **o), since=18)
weight("constexpr_lut_to_sparse", lambda b: sparse_lut(b, quantised=True), since=18)
for dtype, blocks, offset in (
    ("int8", (6, 1), False),
    ("int4", (6, 2), False),
    ("uint4", (2, 4), True),
    ("int8", (1, 1), True),
):
    weight(
        "constexpr_sparse_blockwise_shift_scale",
        lambda b, t=dtype, k=blocks, o=offset: sparse_scaled(b, t, k, o),
        since=18,
    )

# --- control flow ---


def branch(b, p, x, y):
    p = b.squeeze(x=b.cast(x=p, dtype="bool"))
    return b.cond(
        pred=p,
        _true_fn=lambda: (b.add(x=x, y=y), b.mul(x=x, y=b.c(2))),
        _false_fn=lambda: (b.sub(x=x, y=y), b.identity(x=y)),
    )


for p in (0, 1):
    form(
        "cond",
        branch,
        [fixed([p]), f(2, 3), f(2, 3)],
        lambda b, p, x, y: (x + y, x * 2) if p[0] else (x - y, y),
        infer=False,
    )
form(
    "cond",
    lambda b, p, q, x: b.cond(
        pred=b.squeeze(x=b.cast(x=p, dtype="bool")),
        _true_fn=lambda: b.cond(
            pred=b.squeeze(x=b.cast(x=q, dtype="bool")),
            _true_fn=lambda: b.mul(x=x, y=b.c(3)),
            _false_fn=lambda: b.exp(x=x),
        ),
        _false_fn=lambda: b.tanh(x=x),
    ),
    [fixed([1]), fixed([0]), f(4)],
    lambda b, p, q, x: np.exp(x),
    infer=False,
)


def power(b, n, x):
    """x * 0.5^n, and the rounds."""
    return b.while_loop(
        _cond=lambda k, y: b.less(x=k, y=b.squeeze(x=n)),
        _body=lambda k, y: (b.add(x=k, y=1), b.mul(x=y, y=b.c(0.5))),
        loop_vars=(b.sub(x=b.squeeze(x=n), y=b.squeeze(x=n)), x),
    )


for n in (0, 1, 7):
    form("while_loop", power, [fixed([n]), f(2, 3)], lambda b, n, x: (n[0], x * 0.5 ** n[0]), infer=False)
form(
    "while_loop",
    lambda b, n, x: b.while_loop(
        _cond=lambda k, y: b.less(x=b.reduce_sum(x=k), y=9),
        _body=lambda k, y: (
            b.add(x=k, y=n),
            b.cond(
                pred=b.greater(x=b.reduce_sum(x=k), y=4),
                _true_fn=lambda: b.add(x=y, y=x),
                _false_fn=lambda: b.mul(x=y, y=x),
            ),
        ),
        loop_vars=(n, x),
    ),
    [fixed([2]), f(3)],
    lambda b, n, x: (np.array([10]), (lambda y: y)(np.float32(x * x) * x + x + x)),
    infer=False,
)
