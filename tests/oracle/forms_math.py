"""Forms of elementwise operations, reductions, normalisations and products."""

import itertools
import math

import numpy as np

from op_forms import f, fixed, form, half, i, pos

# --- elementwise ---


def unary(op, inputs=None, want=None, **more):
    form(op, lambda b, x: getattr(b, op)(x=x), inputs or [f(2, 3, 5)], want, **more)


def erf(x):
    return np.vectorize(math.erf)(x)


for op in ("exp", "cos", "sin", "tanh", "erf", "sigmoid", "relu", "floor", "round", "ceil", "tan", "softsign"):
    unary(op)
unary("silu", want=lambda b, x: x / (1 + np.exp(-x)))
unary("relu6", [f(3, 4, lo=-9, hi=9)])
unary("sqrt", [pos(2, 3)])
unary("softplus", [f(7, lo=-30, hi=30)])
unary("round", [fixed([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.25], "float")])
for op, n in itertools.product(("abs", "square", "exp2", "sign"), (0, 1)):
    unary(op, [i(3, 4, lo=-4 if op != "exp2" else 0, hi=5) if n else f(3, 4)])
unary("sign", [fixed([-2.0, -0.0, 0.0, 3.0], "float")])
for op, eps in itertools.product(("rsqrt", "log", "inverse"), (None, 1e-3, 0.5)):
    form(
        op,
        lambda b, x, op=op, eps=eps: getattr(b, op)(x=x, **({} if eps is None else {"epsilon": b.c(eps)})),
        [pos(4, 3)],
        lambda b, x, op=op, eps=eps: {
            "rsqrt": lambda v: 1 / np.sqrt(v + (eps or 0)),
            "log": lambda v: np.log(v + (eps or 0)),
            "inverse": lambda v: 1 / (v + (1e-4 if eps is None else eps)),
        }[op](x),
    )
for mode in ("EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION"):
    form("gelu", lambda b, x, m=mode: b.gelu(x=x, mode=m), [f(3, 7, lo=-5, hi=5)], tolerance=3)
form("gelu", lambda b, x: b.gelu(x=x), [f(3, 7)], lambda b, x: 0.5 * x * (1 + erf(x / math.sqrt(2))), tolerance=3)
for shape, axis in (((5,), None), ((2, 3, 4), None), ((2, 3, 4), 1), ((2, 3, 4, 2), -3), ((1, 7), 0)):
    form("softmax", lambda b, x, a=axis: b.softmax(x=x, **({} if a is None else {"axis": a})), [f(*shape, lo=-8, hi=8)])
form("clip", lambda b, x: b.clip(x=x, alpha=b.c(-0.5), beta=b.c(1.25)), [f(3, 5)])
form("leaky_relu", lambda b, x: b.leaky_relu(x=x, alpha=b.c(0.25)), [f(3, 5)])
form("elu", lambda b, x: b.elu(x=x, alpha=b.c(0.5)), [f(3, 5)])
form("sigmoid_hard", lambda b, x: b.sigmoid_hard(x=x, alpha=b.c(0.25), beta=b.c(0.5)), [f(3, 5, lo=-4, hi=4)])
form("identity", lambda b, x: b.identity(x=x), [f(2, 1, 3)])
form("identity", lambda b, x: b.identity(x=x), [i(2, 3)])
form("logical_not", lambda b, x: b.logical_not(x=b.cast(x=x, dtype="bool")), [i(4, hi=2)])

SHAPES = (
    ((2, 3, 4), (2, 3, 4)),
    ((2, 3, 4), (4,)),
    ((3, 1), (1, 4)),
    ((4,), (2, 1, 1, 4)),
    ((2, 1, 3, 1), (5, 1, 2)),
    ((6,), (1,)),
)
for n, op in enumerate(("add", "sub", "mul", "real_div", "maximum", "minimum", "floor_div", "mod")):
    for k in range(3):
        x, y = SHAPES[(n + 2 * k) % len(SHAPES)]
        form(op, lambda b, x, y, op=op: getattr(b, op)(x=x, y=y), [f(*x), pos(*y)])
    x, y = SHAPES[n % len(SHAPES)]
    form(
        op,
        lambda b, x, y, op=op: getattr(b, op)(x=x, y=y),
        [i(*x, lo=0 if op == "real_div" else -9, hi=9), i(*y, lo=1, hi=5)],
    )
    form(op, lambda b, x, op=op: getattr(b, op)(x=x, y=b.c(2.5)), [f(2, 5)])
form("pow", lambda b, x, y: b.pow(x=x, y=y), [pos(2, 3), f(3)])
form("pow", lambda b, x: b.pow(x=x, y=b.c(2.0)), [f(2, 3)])
form("pow", lambda b, x: b.pow(x=x, y=b.c(0.5)), [pos(2, 3)])
form("pow", lambda b, x, y: b.pow(x=x, y=y), [i(2, 3, lo=-4, hi=5), i(3, lo=0, hi=4)])
for n, op in enumerate(("greater", "greater_equal", "less", "less_equal", "equal", "not_equal")):
    x, y = SHAPES[n]
    form(op, lambda b, x, y, op=op: getattr(b, op)(x=x, y=y), [i(*x, hi=3), i(*y, hi=3)])
    form(op, lambda b, x, y, op=op: getattr(b, op)(x=x, y=y), [f(*y), f(*x)])
    form(op, lambda b, x, op=op: getattr(b, op)(x=x, y=b.c(1.0)), [fixed([0.0, 1.0, 2.0], "float")])
for n, op in enumerate(("logical_and", "logical_or", "logical_xor")):
    x, y = SHAPES[n]
    form(
        op,
        lambda b, x, y, op=op: getattr(b, op)(x=b.cast(x=x, dtype="bool"), y=b.cast(x=y, dtype="bool")),
        [i(*x, hi=2), i(*y, hi=2)],
    )
for c, x, y in (((2, 3), (2, 3), (2, 3)), ((3,), (2, 3), (2, 3)), ((2, 1), (2, 3), (1, 3))):
    form(
        "select",
        lambda b, c, x, y: b.select(cond=b.cast(x=c, dtype="bool"), a=x, b=y),
        [i(*c, hi=2), f(*x), f(*y)],
        lambda b, c, x, y: np.where(c != 0, x, y),
    )
form("select", lambda b, c, x, y: b.select(cond=b.cast(x=c, dtype="bool"), a=x, b=y), [i(2, 3, hi=2), i(2, 3), i(2, 3)])

for dtype in ("int32", "bool", "fp32", "fp16"):
    form("cast", lambda b, x, t=dtype: b.cast(x=x, dtype=t), [f(4, 5, lo=-9, hi=9)])
    form("cast", lambda b, x, t=dtype: b.cast(x=x, dtype=t), [i(4, 5, lo=-9, hi=9)])
for dtype in ("int8", "uint8", "int16", "uint16"):
    form("cast", lambda b, x, t=dtype: b.cast(x=x, dtype=t), [i(4, 5, lo=0, hi=99)], since=17)
    form("cast", lambda b, x, t=dtype: b.cast(x=x, dtype=t), [f(4, 5, lo=0, hi=99)], since=17)

# --- reductions and normalisations ---

REDUCTIONS = (
    "reduce_sum",
    "reduce_mean",
    "reduce_max",
    "reduce_min",
    "reduce_sum_square",
    "reduce_l2_norm",
    "reduce_prod",
    "reduce_l1_norm",
    "reduce_log_sum_exp",
    "reduce_log_sum",
)
AXES = ((None, False), ([1], True), ([-1], False), ([0, 2], False), ([-2, 0], True), ([0, 1, 2, 3], False))
for n, op in enumerate(REDUCTIONS):
    for k in range(4):
        axes, keep = AXES[(n + k) % len(AXES)]
        form(
            op,
            lambda b, x, op=op, a=axes, k=keep: getattr(b, op)(x=x, keep_dims=k, **({} if a is None else {"axes": a})),
            [pos(2, 3, 4, 2) if op == "reduce_log_sum" else f(2, 3, 4, 2)],
            tolerance=4,
        )
    if op in REDUCTIONS[:5]:
        form(
            op,
            lambda b, x, op=op: getattr(b, op)(x=x, axes=[1], keep_dims=False),
            [i(3, 4, lo=0, hi=9)],
            (lambda b, x: x.sum(1) // 4) if op == "reduce_mean" else None,
        )
form("reduce_sum", lambda b, x: b.reduce_sum(x=x, axes=[-1]), [f(2, 300)], tolerance=20)
for op, (axis, keep) in itertools.product(("reduce_argmax", "reduce_argmin"), ((-1, False), (1, True), (0, False))):
    form(op, lambda b, x, op=op, a=axis, k=keep: getattr(b, op)(x=x, axis=a, keep_dims=k), [f(3, 4, 5)])
form("reduce_argmax", lambda b, x: b.reduce_argmax(x=x), [fixed([[3, 1, 3], [2, 7, 7]])])
form("reduce_argmax", lambda b, x: b.reduce_argmax(x=x, axis=1, output_dtype="uint16"), [f(3, 4)], since=17)
form("reduce_argmin", lambda b, x: b.reduce_argmin(x=x, axis=1, output_dtype="int32"), [i(3, 4)], since=17)


def norm(x, axes, gamma=None, beta=None, eps=1e-5):
    axes = tuple(a % x.ndim for a in axes)
    y = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)
    shape = [x.shape[a] if a in axes else 1 for a in range(x.ndim)]
    y = y if gamma is None else y * gamma.reshape(shape)
    return y if beta is None else y + beta.reshape(shape)


for shape, axes, affine, eps in (
    ((2, 3, 8), [-1], True, 1e-5),
    ((2, 3, 8), [2], False, 1e-3),
    ((2, 6, 4), [1, 2], True, None),
    ((1, 6, 1, 3), [1], True, 1e-6),
    ((2, 3, 4, 2), [1, 2], True, 1e-5),
    ((4, 5), [0], False, None),
    ((3, 4, 5), [0, 2], True, 1e-5),
    ((2, 3, 4), [0, 1, 2], True, 1e-5),
):
    dims = [shape[a] for a in axes]

    def options(b, dims=dims, affine=affine, eps=eps):
        o = {"gamma": b.w(*dims), "beta": b.w(*dims)} if affine else {}
        return o | ({} if eps is None else {"epsilon": b.c(eps)})

    form(
        "layer_norm",
        lambda b, x, a=axes, o=options: b.layer_norm(x=x, axes=a, **o(b)),
        [f(*shape)],
        lambda b, x, a=axes, o=options: norm(x, a, **{{"epsilon": "eps"}.get(k, k): v for k, v in o(b).items()}),
        tolerance=4,
    )


def channels(v, x):
    return v.reshape([1, -1] + [1] * (x.ndim - 2))


for shape, affine in (((2, 3, 5), True), ((1, 4, 3, 2), True), ((2, 3, 4, 2), False)):

    def params(b, n=shape[1], affine=affine):
        more = {"gamma": b.w(n), "beta": b.w(n)} if affine else {}
        return {"mean": b.w(n), "variance": b.w(n, lo=0.25, hi=2), "epsilon": b.c(1e-3)} | more

    form(
        "batch_norm",
        lambda b, x, p=params: b.batch_norm(x=x, **p(b)),
        [f(*shape)],
        lambda b, x, p=params: (
            lambda q: (x - channels(q["mean"], x))
            / np.sqrt(channels(q["variance"], x) + 1e-3)
            * (channels(q["gamma"], x) if "gamma" in q else 1)
            + (channels(q["beta"], x) if "beta" in q else 0)
        )(p(b)),
        tolerance=4,
    )
    form(
        "instance_norm",
        lambda b, x, p=params: b.instance_norm(x=x, **{k: v for k, v in p(b).items() if k not in ("mean", "variance")}),
        [f(*shape)],
        lambda b, x, p=params: (
            lambda q: norm(x, range(2, x.ndim), eps=1e-3) * (channels(q["gamma"], x) if "gamma" in q else 1)
            + (channels(q["beta"], x) if "beta" in q else 0)
        )(p(b)),
        tolerance=4,
    )
form(
    "l2_norm",
    lambda b, x: b.l2_norm(x=x, epsilon=b.c(1e-3)),
    [f(2, 3, 4, 2)],
    lambda b, x: x / np.sqrt((x * x).sum((1, 2, 3), keepdims=True) + 1e-3),
    tolerance=4,
)

# --- products ---


def conv(x, w, bias=None, strides=None, pad_type="valid", pad=None, dilations=None, groups=1):
    n = x.ndim - 2
    strides, dilations = strides or [1] * n, dilations or [1] * n
    if pad_type.startswith("same"):
        pad = []
        for k in range(n):
            total = max(
                (-(-x.shape[2 + k] // strides[k]) - 1) * strides[k]
                + dilations[k] * (w.shape[2 + k] - 1)
                + 1
                - x.shape[2 + k],
                0,
            )
            pad += [total - total // 2, total // 2] if pad_type == "same_lower" else [total // 2, total - total // 2]
    pad = [0] * (2 * n) if pad is None or pad_type == "valid" else pad
    x = np.pad(x, [(0, 0), (0, 0)] + [(pad[2 * k], pad[2 * k + 1]) for k in range(n)])
    size = [(x.shape[2 + k] - dilations[k] * (w.shape[2 + k] - 1) - 1) // strides[k] + 1 for k in range(n)]
    out = np.zeros([x.shape[0], w.shape[0], *size])
    g_in, g_out = w.shape[1], w.shape[0] // groups
    for at in np.ndindex(*size):
        cut = tuple(slice(a * s, a * s + d * (k - 1) + 1, d) for a, s, d, k in zip(at, strides, dilations, w.shape[2:]))
        for g in range(groups):
            field = x[(slice(None), slice(g * g_in, (g + 1) * g_in)) + cut].reshape(x.shape[0], -1)
            out[(slice(None), slice(g * g_out, (g + 1) * g_out)) + at] = (
                field @ w[g * g_out : (g + 1) * g_out].reshape(g_out, -1).T
            )
    return out if bias is None else out + channels(bias, out)


for shape, kernel, bias, options in (
    ((1, 8, 1, 3), (6, 8, 1, 1), True, {}),
    ((2, 4, 5, 1), (3, 4, 1, 1), False, {}),
    ((1, 3, 7), (4, 3, 3), True, {"pad_type": "custom", "pad": [1, 2]}),
    ((1, 3, 7, 6), (4, 3, 3, 2), True, {"pad_type": "same", "strides": [2, 1]}),
    ((2, 4, 6, 6), (6, 2, 3, 3), True, {"groups": 2, "dilations": [2, 1]}),
    ((1, 4, 9), (4, 1, 4), False, {"groups": 4, "strides": [3]}),
    ((1, 2, 4, 3, 5), (3, 2, 2, 2, 2), True, {"pad_type": "custom", "pad": [0, 1, 1, 0, 1, 1]}),
):
    form(
        "conv",
        lambda b, x, w=kernel, h=bias, o=options: b.conv(
            x=x, weight=b.w(*w), **({"bias": b.w(w[0])} if h else {}), **o
        ),
        [f(*shape)],
        lambda b, x, w=kernel, h=bias, o=options: conv(x, b.w(*w), b.w(w[0]) if h else None, **o),
        tolerance=4,
    )
form(
    "conv",
    lambda b, x: b.conv(x=x, weight=b.w(3, 2, 4), pad_type="same_lower", strides=[2]),
    [f(1, 2, 7)],
    lambda b, x: conv(x, b.w(3, 2, 4), pad_type="same_lower", strides=[2]),
    since=16,
    tolerance=4,
)
form("conv", lambda b, x, w: b.conv(x=x, weight=w), [f(1, 3, 5), f(2, 3, 2)], lambda b, x, w: conv(x, w), tolerance=4)
for shape, n in (((5,), 3), ((2, 5), 3), ((2, 3, 8), 6)):
    form(
        "linear", lambda b, x, s=shape, n=n: b.linear(x=x, weight=b.w(n, s[-1]), bias=b.w(n)), [f(*shape)], tolerance=4
    )
form("linear", lambda b, x: b.linear(x=x, weight=b.w(4, 6)), [f(3, 6)], tolerance=4)
for x, y, tx, ty in (
    ((2, 3), (3, 4), 0, 0),
    ((3, 2), (3, 4), 1, 0),
    ((2, 3), (4, 3), 0, 1),
    ((3, 2), (4, 3), 1, 1),
    ((3,), (3, 4), 0, 0),
    ((2, 1, 3, 4), (5, 4, 6), 0, 0),
    ((2, 3, 2, 4), (1, 3, 5, 4), 0, 1),
    ((1, 1, 40), (40, 33), 0, 0),
):
    form(
        "matmul",
        lambda b, x, y, tx=bool(tx), ty=bool(ty): b.matmul(x=x, y=y, transpose_x=tx, transpose_y=ty),
        [f(*x), f(*y)],
        lambda b, x, y, tx=tx, ty=ty: np.matmul(
            np.swapaxes(x, -1, -2) if tx else x, np.swapaxes(y, -1, -2) if ty else y
        ),
        tolerance=8,
    )
form("matmul", lambda b, x: b.matmul(x=x, y=b.w(3, 4, 5)), [f(3, 2, 4)], tolerance=4)
form("matmul", lambda b, x: b.matmul(x=x, y=b.w(5, 4), transpose_y=True), [f(3, 2, 4)], tolerance=4)
form("matmul", lambda b, y: b.matmul(x=b.w(2, 4), y=y), [f(3, 4, 5)], tolerance=4)
form("matmul", lambda b, x, y: b.matmul(x=x, y=y), [i(2, 3, lo=-3), i(3, 4, lo=-3)])
form("linear", lambda b, x: b.linear(x=x, weight=b.ints(-3, 4, 4, 3), bias=b.ints(-3, 4, 4)), [i(2, 3, lo=-3)])


def attention(q, k, v, mask=None):
    a = q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        a = np.where(mask, a, -np.inf) if mask.dtype == bool else a + mask
    e = np.exp(a - a.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


for lead, L, S, E, V in (((2,), 3, 4, 8, 8), ((1, 2), 3, 5, 4, 6), ((2, 2, 1), 1, 7, 4, 4)):
    io = [f(*lead, L, E), f(*lead, S, E), f(*lead, S, V)]
    form(
        "scaled_dot_product_attention",
        lambda b, q, k, v: b.scaled_dot_product_attention(query=q, key=k, value=v),
        io,
        lambda b, q, k, v: attention(q, k, v),
        since=18,
        tolerance=4,
    )
    form(
        "scaled_dot_product_attention",
        lambda b, q, k, v, m: b.scaled_dot_product_attention(query=q, key=k, value=v, attn_mask=m),
        io + [f(L, S)],
        lambda b, q, k, v, m: attention(q, k, v, m),
        since=18,
        tolerance=4,
    )
form(
    "scaled_dot_product_attention",
    lambda b, q, k, v, m: b.scaled_dot_product_attention(query=q, key=k, value=v, attn_mask=b.cast(x=m, dtype="bool")),
    [f(1, 2, 3, 4), f(1, 2, 3, 4), f(1, 2, 3, 4), fixed(np.tri(3))],
    lambda b, q, k, v, m: attention(q, k, v, m != 0),
    since=18,
    tolerance=4,
)
for eq, x, y in (
    ("nchw,nwhu->nchu", (2, 3, 4, 5), (2, 5, 4, 6)),
    ("nchw,nwhu->nchu", (1, 3, 4, 5), (2, 5, 1, 6)),
    ("abcd,adce->abce", (2, 3, 1, 5), (1, 5, 4, 3)),
    ("chw,whr->chr", (3, 4, 5), (5, 4, 6)),
    ("chw,whr->chr", (3, 4, 5), (5, 1, 2)),
):
    form("einsum", lambda b, x, y, eq=eq: b.einsum(values=(x, y), equation=eq), [f(*x), f(*y)], tolerance=4)
for zero, axis, dtype in ((False, None, "int8"), (True, None, "uint8"), (True, 1, "int8"), (False, -1, "uint8")):

    def quant(b, t=dtype, axis=axis, zero=zero):
        n = () if axis is None else ((3,) if axis == 1 else (5,))
        o = {"scale": b.c(half(b.rng.uniform(0.01, 0.05, n)))}
        if zero:
            o["zero_point"] = b.rng.integers(0, 20, n).astype(t) if n else np.dtype(t).type(7)
        return o if axis is None else o | {"axis": axis}

    form(
        "quantize",
        lambda b, x, t=dtype, q=quant: b.quantize(input=x, output_dtype=t, **q(b)),
        [f(2, 3, 5, lo=-4, hi=4)],
        since=17,
    )
    form(
        "dequantize",
        lambda b, x, t=dtype, q=quant: b.dequantize(input=b.cast(x=x, dtype=t), **q(b)),
        [i(2, 3, 5, lo=0, hi=120)],
        lambda b, x, q=quant, axis=axis: (
            lambda o: (lambda s, z: (x - z) * s)(
                *(
                    (
                        v
                        if axis is None or np.ndim(v) == 0
                        else np.reshape(v, [-1 if a == axis % 3 else 1 for a in range(3)])
                    )
                    for v in (o["scale"], np.asarray(o.get("zero_point", 0), np.float32))
                )
            )
        )(q(b)),
        since=17,
    )
form(
    "quantize",
    lambda b, x: b.quantize(input=x, scale=b.c(0.5), output_dtype="int8"),
    [fixed([0.25, 0.75, 1.25, -0.25, 200.0, -200.0], "float")],
    since=17,
)
