"""Forms of operations that shape, move and make elements."""

import numpy as np

from op_forms import f, fixed, form, i, pos

# --- shape and movement ---


def small(b, x, t):
    return b.cast(x=x, dtype=t) if t else x


MOVES = [("float", None, 15), ("int", None, 15), ("int", "int8", 17), ("int", "uint16", 17)]


def moved(op, shape, run, want=None, kinds=MOVES):
    """One form with several element types."""
    for kind, t, since in kinds:
        form(
            op,
            lambda b, x, t=t: run(b, small(b, x, t)),
            [f(*shape) if kind == "float" else i(*shape, hi=50)],
            want,
            since=since,
        )


moved("reshape", (2, 3, 4), lambda b, x: b.reshape(x=x, shape=[4, 6]))
moved("reshape", (2, 3, 4), lambda b, x: b.reshape(x=x, shape=[-1, 2, 3]), kinds=MOVES[:1])
moved("reshape", (2, 3, 4), lambda b, x: b.reshape(x=x, shape=[24]), kinds=MOVES[:1])
form("reshape", lambda b, x: b.reshape(x=x, shape=[0, -1, 2]), [f(2, 3, 4)], lambda b, x: x.reshape(2, 6, 2))
form("reshape", lambda b, x, s: b.reshape(x=x, shape=s), [f(2, 3, 4), fixed([3, 8])], lambda b, x, s: x.reshape(3, 8))
form("reshape", lambda b, x: b.reshape(x=x, shape=np.array([6, 4], np.int16)), [f(2, 3, 4)], since=17)
form(
    "reshape_like",
    lambda b, x, r, s: b.reshape_like(x=x, ref_tensors=(r, s), begins=(0, 1), ends=(1, 0), end_masks=(False, True)),
    [f(2, 3, 4), f(6, 1), f(9, 2, 2)],
    lambda b, x, r, s: x.reshape(6, 2, 2),
    since=16,
)
form(
    "reshape_like",
    lambda b, x, r: b.reshape_like(x=x, ref_tensors=(r,), begins=(-2,), ends=(3,), end_masks=(False,)),
    [i(2, 6), f(7, 3, 4)],
    lambda b, x, r: x.reshape(3, 4),
    since=16,
)
moved("transpose", (2, 3, 4), lambda b, x: b.transpose(x=x, perm=[2, 0, 1]))
moved("transpose", (2, 3, 1, 4), lambda b, x: b.transpose(x=x, perm=[0, -2, 3, 1]), kinds=MOVES[:1])
moved("transpose", (2, 3, 2, 2, 3), lambda b, x: b.transpose(x=x, perm=[4, 2, 0, 3, 1]), kinds=MOVES[:1])
moved("expand_dims", (2, 3), lambda b, x: b.expand_dims(x=x, axes=[0, -1]))
moved("expand_dims", (2, 3), lambda b, x: b.expand_dims(x=x, axes=[1]), kinds=MOVES[:1])
moved("squeeze", (1, 3, 1, 2), lambda b, x: b.squeeze(x=x, axes=[0, -2]))
moved("squeeze", (1, 3, 1, 2), lambda b, x: b.squeeze(x=x), kinds=MOVES[:1])
for axes in ([0], [-1, 0], None):
    moved("reverse", (2, 3, 4), lambda b, x, a=axes: b.reverse(x=x, **({} if a is None else {"axes": a})))
for axis in (0, 1, -1):
    form(
        "concat",
        lambda b, x, y, a=axis: b.concat(values=(x, y), axis=a),
        [f(2, 3, 4), f(*np.where(np.arange(3) == axis % 3, 5, (2, 3, 4)))],
    )
form(
    "concat",
    lambda b, x, y, z: b.concat(values=(x, y, z), axis=-3, interleave=True),
    [f(2, 3, 4, 2), f(2, 3, 4, 2), f(2, 3, 4, 2)],
    lambda b, x, y, z: np.stack([x, y, z], 2).reshape(2, 9, 4, 2),
    infer=False,
)
form("concat", lambda b, x, y: b.concat(values=(x, y), axis=0), [i(2, 3), i(4, 3)])
form(
    "concat",
    lambda b, x: b.concat(values=(b.squeeze(x=x, axes=[0]), np.int32(7)), axis=0),
    [i(1)],
    lambda b, x: np.array([x[0], 7]),
)
form("concat", lambda b, x: b.concat(values=(x,), axis=1), [f(2, 3)])
for axis in (0, 1, -1):
    form("stack", lambda b, x, y, a=axis: b.stack(values=(x, y), axis=a), [f(2, 3), f(2, 3)])
form("stack", lambda b, x, y: b.stack(values=(x, y), axis=0), [i(3), i(3)])
form("split", lambda b, x: b.split(x=x, num_splits=2, axis=1), [f(2, 6, 3)])
form("split", lambda b, x: b.split(x=x, split_sizes=[1, 3, 2], axis=-2), [f(2, 6, 3)])
form("split", lambda b, x: b.split(x=x, num_splits=3, axis=0), [i(6)])
for begin, end, more in (
    ([0, 1, 1], [2, 3, 4], {}),
    ([0, -2, 0], [2, 3, -1], {"stride": [1, 1, 2]}),
    ([1, 0, 2], [0, 3, 3], {"squeeze_mask": [True, False, True]}),
    ([1, 2, 3], [0, 0, 0], {"begin_mask": [True, False, True], "end_mask": [True, True, True]}),
    ([1, 2, -1], [0, 0, -5], {"stride": [1, 1, -1], "end_mask": [True, True, False]}),
    (
        [1, 2, 3],
        [0, 0, 0],
        {"stride": [-1, -1, -2], "begin_mask": [False, True, False], "end_mask": [True, True, True]},
    ),
):
    moved(
        "slice_by_index",
        (2, 3, 5),
        lambda b, x, s=begin, e=end, m=more: b.slice_by_index(x=x, begin=s, end=e, **m),
        kinds=MOVES if not more else MOVES[:1],
    )
form(
    "slice_by_index",
    lambda b, x, s, e: b.slice_by_index(x=x, begin=s, end=e, end_mask=[True, False]),
    [f(4, 6), fixed([1, 2]), fixed([0, 5])],
    lambda b, x, s, e: x[1:, 2:5],
)
moved("slice_by_size", (3, 4, 5), lambda b, x: b.slice_by_size(x=x, begin=[1, 0, 2], size=[2, -1, 2]))
form(
    "slice_by_size",
    lambda b, x, s: b.slice_by_size(x=x, begin=s, size=[1, 3]),
    [f(4, 6), fixed([2, 1])],
    lambda b, x, s: x[2:3, 1:4],
)
form(
    "slice_by_size",
    lambda b, x, s, n: b.slice_by_size(x=x, begin=s, size=n),
    [f(4, 6), fixed([2, 1]), fixed([2, -1])],
    lambda b, x, s, n: x[2:4, 1:],
)


def updated(x, at, value):
    y = x.copy()
    y[at] = value.reshape(y[at].shape)
    return y


S = np.s_
form(
    "slice_update",
    lambda b, x, u: b.slice_update(x=x, update=u, begin=[0, 1, 1], end=[2, 3, 4]),
    [f(2, 3, 5), f(2, 2, 3)],
    lambda b, x, u: updated(x, S[0:2, 1:3, 1:4], u),
    since=18,
)
form(
    "slice_update",
    lambda b, x, u: b.slice_update(x=x, update=u, begin=[0, 2], end=[0, -1], stride=[2, 1], end_mask=[True, False]),
    [f(5, 6), f(3, 3)],
    lambda b, x, u: updated(x, S[::2, 2:-1], u),
    since=18,
)
form(
    "slice_update",
    lambda b, x, u: b.slice_update(x=x, update=u, begin=[1, 0], end=[2, 6], squeeze_mask=[True, False]),
    [i(5, 6), i(6)],
    lambda b, x, u: updated(x, S[1, :], u),
    since=18,
)
form(
    "slice_update",
    lambda b, x, u, s, e: b.slice_update(
        x=x, update=u, begin=s, end=e, begin_mask=[True, False], end_mask=[True, False]
    ),
    [f(2, 6), f(2, 2), fixed([0, 3]), fixed([0, 5])],
    lambda b, x, u, s, e: updated(x, S[:, 3:5], u),
    since=18,
)
form(
    "slice_update",
    lambda b, x, u: b.slice_update(x=x, update=u, begin=[0], end=[0], end_mask=[True]),
    [f(4), f(4)],
    lambda b, x, u: u,
    since=18,
)

V = {"validate_indices": False}


def along(x, idx, axis):
    return np.take_along_axis(x, np.where(idx < 0, idx + x.shape[axis], idx), axis)


for shape, ids, axis in (((4, 3), (2,), 0), ((4, 3), (2, 2), 1), ((2, 4, 3), (5,), -2), ((4, 3), (), 0)):
    form(
        "gather",
        lambda b, x, n, a=axis: b.gather(x=x, indices=n, axis=a),
        [f(*shape), i(*(ids or (1,)), hi=3)] if ids else [f(*shape), i(1, hi=3)],
        lambda b, x, n, a=axis: np.take(x, n, a),
    )
form("gather", lambda b, x: b.gather(x=x, indices=np.int32(2), axis=1), [f(3, 4, 2)], lambda b, x: x[:, 2])
form("gather", lambda b, x, n: b.gather(x=x, indices=n, axis=0), [i(6), i(3, hi=6)])
form(
    "gather",
    lambda b, x, n: b.gather(x=x, indices=n, axis=0),
    [f(6, 2), i(3, lo=-6, hi=6)],
    lambda b, x, n: np.take(x, n, 0),
    until=16,
)
form(
    "gather",
    lambda b, x, n: b.gather(x=x, indices=n, axis=1, batch_dims=1),
    [f(2, 4, 3), i(2, 3, hi=4)],
    lambda b, x, n: np.stack([x[k][n[k]] for k in range(2)]),
    since=16,
)
form(
    "gather",
    lambda b, x, n: b.gather(x=x, indices=n, axis=2, batch_dims=1),
    [f(2, 3, 4), i(2, 2, 2, hi=4)],
    lambda b, x, n: np.stack([x[k][:, n[k]] for k in range(2)]),
    since=16,
)
form(
    "gather",
    lambda b, x, n: b.gather(x=b.cast(x=x, dtype="int8"), indices=b.cast(x=n, dtype="uint8"), axis=0, **V),
    [i(6, 2), i(3, hi=6)],
    lambda b, x, n: x[n],
    since=17,
)
form("gather", lambda b, n: b.gather(x=b.w(9, 4), indices=n, axis=0), [i(2, 3, hi=9)], lambda b, n: b.w(9, 4)[n])
for axis in (0, 1, -1):
    form(
        "gather_along_axis",
        lambda b, x, n, a=axis: b.gather_along_axis(x=x, indices=n, axis=a),
        [f(3, 4, 3), i(*np.where(np.arange(3) == axis % 3, 2, (3, 4, 3)), hi=3)],
        lambda b, x, n, a=axis: along(x, n, a),
    )
form("gather_along_axis", lambda b, x, n: b.gather_along_axis(x=x, indices=n, axis=1), [i(2, 3), i(2, 3, hi=3)])
form(
    "gather_along_axis",
    lambda b, x, n: b.gather_along_axis(x=b.cast(x=x, dtype="uint16"), indices=b.cast(x=n, dtype="int8"), axis=1, **V),
    [i(2, 3), i(2, 4, hi=3)],
    lambda b, x, n: along(x, n, 1),
    since=17,
)
form(
    "gather_nd",
    lambda b, x, n: b.gather_nd(x=x, indices=n),
    [f(3, 4, 2), i(5, 2, hi=3)],
    lambda b, x, n: x[n[:, 0], n[:, 1]],
)
form(
    "gather_nd", lambda b, x, n: b.gather_nd(x=x, indices=n), [f(3, 4), i(2, 3, 1, hi=3)], lambda b, x, n: x[n[..., 0]]
)
form(
    "gather_nd",
    lambda b, x, n: b.gather_nd(x=x, indices=n, batch_dims=1),
    [f(2, 4, 3), i(2, 5, 1, hi=4)],
    lambda b, x, n: np.stack([x[k][n[k, :, 0]] for k in range(2)]),
    since=16,
)
form(
    "gather_nd",
    lambda b, x, n: b.gather_nd(x=b.cast(x=x, dtype="uint8"), indices=n, **V),
    [i(3, 4), i(2, 2, hi=3)],
    lambda b, x, n: x[n[:, 0], n[:, 1]],
    since=17,
)

MODES = {
    "update": lambda a, u: u,
    "add": lambda a, u: a + u,
    "sub": lambda a, u: a - u,
    "mul": lambda a, u: a * u,
    "div": lambda a, u: a / u,
    "max": np.maximum,
    "min": np.minimum,
}


def scatter(data, cells, values, mode):
    """cells: an index tuple of data for every update."""
    y = data.copy()
    for at, v in zip(cells, values):
        y[at] = MODES[mode](y[at], v)
    return y


for mode in MODES:
    one = "update" == mode  # with indices that differ: the order of equal ones is nobody's promise
    form(
        "scatter",
        lambda b, x, u, m=mode, o=one: b.scatter(
            data=x, indices=[3, 0, 2] if o else [1, 3, 1], updates=u, axis=0, mode=m
        ),
        [f(4, 3), pos(3, 3)],
        lambda b, x, u, m=mode, o=one: scatter(x, [3, 0, 2] if o else [1, 3, 1], u, m),
    )
    form(
        "scatter_along_axis",
        lambda b, x, n, u, m=mode: b.scatter_along_axis(data=x, indices=n, updates=u, axis=1, mode=m),
        [f(3, 4), fixed([[0, 2], [3, 1], [1, 2]]), pos(3, 2)],
        lambda b, x, n, u, m=mode: scatter(x, [(r, n[r, c]) for r in range(3) for c in range(2)], u.ravel(), m),
        infer=one,
    )
    form(
        "scatter_nd",
        lambda b, x, n, u, m=mode: b.scatter_nd(data=x, indices=n, updates=u, mode=m),
        [f(3, 4, 2), fixed([[0, 1], [2, 3], [1, 0]]), pos(3, 2)],
        lambda b, x, n, u, m=mode: scatter(x, [tuple(r) for r in n], u, m),
    )
form(
    "scatter",
    lambda b, x, n, u: b.scatter(data=x, indices=n, updates=u, axis=-1, mode="update"),
    [f(2, 5), fixed([4, 1]), f(2, 2)],
    lambda b, x, n, u: updated(x, S[:, [4, 1]], u),
)
form(
    "scatter",
    lambda b, x, n, u: b.scatter(data=x, indices=n, updates=u),
    [f(4), fixed([2, 2]), f(2)],
    lambda b, x, n, u: scatter(x, n, u, "add"),
)
form(
    "scatter",
    lambda b, x, n, u: b.scatter(data=x, indices=n, updates=u, axis=0, mode="add", validate_indices=True),
    [i(4, 2), fixed([3, 1]), i(2, 2)],
    lambda b, x, n, u: scatter(x, n, u, "add"),
    since=17,
)
form(
    "scatter_nd",
    lambda b, x, n, u: b.scatter_nd(data=x, indices=n, updates=u, mode="update"),
    [i(5), fixed([[4], [1]]), i(2)],
    lambda b, x, n, u: updated(x, S[[4, 1]], u),
)
form(
    "scatter_along_axis",
    lambda b, x, n, u: b.scatter_along_axis(data=x, indices=n, updates=u, axis=0, mode="update"),
    [i(3, 2), fixed([[2, 0]]), i(1, 2)],
    lambda b, x, n, u: scatter(x, [(2, 0), (0, 1)], u.ravel(), "update"),
)

for shape, reps in (((2, 3), [2, 1]), ((2, 3), [1, 3]), ((3,), [4]), ((2, 1, 2), [2, 3, 2])):
    form("tile", lambda b, x, r=reps: b.tile(x=x, reps=r), [f(*shape)])
form("tile", lambda b, x: b.tile(x=x, reps=[2, 2]), [i(2, 3)])
form("tile", lambda b, x, r: b.tile(x=x, reps=r), [f(2, 3), fixed([3, 1])], lambda b, x, r: np.tile(x, r))
for shape, pad in (((2, 3), [1, 2]), ((2, 3), [1, 0, 0, 2]), ((1, 2, 4), [0, 0, 0, 1, 2, 3]), ((4, 5), [3, 3, 1, 2])):
    form("pad", lambda b, x, p=pad: b.pad(x=x, pad=p, mode="constant", constant_val=b.c(-1.5)), [f(*shape)])
    for mode, numpy in (("reflect", "reflect"), ("replicate", "edge")):
        last = pad[-4:]
        form(
            "pad",
            lambda b, x, p=last, m=mode: b.pad(x=x, pad=p, mode=m),
            [f(*[d + 3 for d in shape])],
            lambda b, x, p=last, m=numpy: np.pad(
                x, [(0, 0)] * (x.ndim - len(p) // 2) + list(zip(p[::2], p[1::2])), mode=m
            ),
        )
form("pad", lambda b, x: b.pad(x=x, pad=[2, 1]), [f(2, 3)])
form(
    "pad",
    lambda b, x, p: b.pad(x=x, pad=p),
    [f(2, 3), fixed([1, 0, 2, 1])],
    lambda b, x, p: np.pad(x, [(1, 0), (2, 1)]),
)
for value in (1.5, np.int32(3), True):
    form("fill", lambda b, v=value: b.fill(shape=[2, 3], value=b.c(v) if isinstance(v, float) else v), [])
form("fill", lambda b: b.fill(shape=[4]), [])
form("fill", lambda b, s: b.fill(shape=s, value=b.c(0.5)), [fixed([3, 2])], lambda b, s: np.full((3, 2), 0.5))
form(
    "fill_like",
    lambda b, x: b.fill_like(ref_tensor=x, value=b.c(2.5)),
    [f(2, 3)],
    lambda b, x: np.full((2, 3), 2.5),
    since=16,
)
form(
    "fill_like",
    lambda b, x: b.fill_like(ref_tensor=x, value=np.int32(4)),
    [f(2, 3)],
    lambda b, x: np.full((2, 3), 4),
    since=16,
)
form("range_1d", lambda b: b.range_1d(start=np.int32(2), end=np.int32(11), step=np.int32(3)), [])
form("range_1d", lambda b: b.range_1d(start=b.c(0.5), end=b.c(-2), step=b.c(-0.75)), [])
form(
    "range_1d",
    lambda b, n: b.range_1d(start=np.int32(0), end=b.squeeze(x=n), step=np.int32(2)),
    [fixed([7])],
    lambda b, n: np.arange(0, 7, 2),
)
form("shape", lambda b, x: b.shape(x=x), [f(2, 3, 1, 4)])
form("shape", lambda b, x: b.shape(x=x), [i(5)])


def top(x, k, axis, ascending):
    order = np.argsort(x if ascending else -x, axis=axis, kind="stable")
    order = np.take(order, np.arange(k), axis)
    return np.take_along_axis(x, order, axis), order


for shape, k, axis, ascending in (
    ((3, 7), 2, -1, False),
    ((5, 3), 3, 0, True),
    ((2, 6, 2), 6, 1, False),
    ((9,), 1, 0, True),
):
    form(
        "topk",
        lambda b, x, k=k, a=axis, s=ascending: b.topk(x=x, k=k, axis=a, ascending=s),
        [f(*shape)],
        lambda b, x, k=k, a=axis, s=ascending: top(x, k, a, s),
    )
    form(
        "argsort",
        lambda b, x, a=axis, s=ascending: b.argsort(x=x, axis=a, ascending=s),
        [f(*shape)],
        lambda b, x, a=axis, s=ascending: np.argsort(x if s else -x, a, kind="stable"),
    )
form("topk", lambda b, x: b.topk(x=x), [f(3, 4)], lambda b, x: top(x, 1, -1, False))
form("topk", lambda b, x: b.topk(x=x, k=3), [fixed([[4, 1, 9, 2], [0, 8, 3, 5]])], lambda b, x: top(x, 3, -1, False))
form(
    "topk",
    lambda b, x: b.topk(x=x, k=2, sort=True, return_indices=False),
    [f(3, 4)],
    lambda b, x: top(x, 2, -1, False)[0],
    since=16,
)
form("topk", lambda b, x: b.topk(x=x, k=4, sort=False), [f(3, 4)], lambda b, x: top(x, 4, -1, False), since=16)
form(
    "topk",
    lambda b, x: b.topk(x=x, k=2, output_indices_dtype="uint16"),
    [f(3, 5)],
    lambda b, x: top(x, 2, -1, False),
    since=17,
)
form("argsort", lambda b, x: b.argsort(x=x), [fixed([[4, 1, 9, 2], [0, 8, 3, 5]])], lambda b, x: np.argsort(-x, -1))


def running(x, axis, exclusive, reverse):
    x = np.flip(x, axis) if reverse else x
    y = np.cumsum(x, axis) - (x if exclusive else 0)
    return np.flip(y, axis) if reverse else y


for axis, exclusive, reverse in ((0, False, False), (1, True, False), (-1, False, True), (1, True, True)):
    form(
        "cumsum",
        lambda b, x, a=axis, e=exclusive, r=reverse: b.cumsum(x=x, axis=a, exclusive=e, reverse=r),
        [f(3, 4, 2)],
        lambda b, x, a=axis, e=exclusive, r=reverse: running(x, a, e, r),
        tolerance=4,
        infer=not exclusive,
    )
form("cumsum", lambda b, x: b.cumsum(x=x), [i(4, 3)])
for lower, upper in ((-1, 0), (0, -1), (1, 1), (0, 0), (-1, -1), (2, 0)):
    form(
        "band_part",
        lambda b, x, lo=lower, up=upper: b.band_part(x=x, lower=lo, upper=up),
        [f(2, 4, 5)],
        lambda b, x, lo=lower, up=upper: x
        * np.array([[(lo < 0 or r - c <= lo) and (up < 0 or c - r <= up) for c in range(5)] for r in range(4)]),
    )
form(
    "band_part",
    lambda b, x: b.band_part(x=x, lower=0, upper=1),
    [i(3, 3, lo=1)],
    lambda b, x: x * (np.tri(3, 3, 1) - np.tri(3, 3, -1)).astype(int),
)
for axis, on, off in ((-1, 1, 0), (0, 3, -1)):
    form(
        "one_hot",
        lambda b, n, a=axis, on=on, off=off: b.one_hot(
            indices=n, one_hot_vector_size=4, axis=a, on_value=np.int32(on), off_value=np.int32(off)
        ),
        [i(2, 3, hi=4)],
        lambda b, n, a=axis, on=on, off=off: np.moveaxis(np.where(np.eye(4)[n] > 0, on, off), -1, a),
    )
form(
    "one_hot",
    lambda b, n: b.one_hot(indices=n, one_hot_vector_size=3, on_value=b.c(1), off_value=b.c(0)),
    [i(5, hi=3)],
    lambda b, n: np.eye(3)[n],
)
form(
    "one_hot",
    lambda b, n: b.one_hot(indices=n, one_hot_vector_size=3),
    [fixed([0, 5, -1])],
    lambda b, n: np.eye(3)[[0, 0, 2]] * [[1], [0], [0]],
)
for shape, axis, size, stride in (((2, 7), 1, 3, 1), ((6, 2), 0, 2, 3), ((2, 8, 3), -2, 4, 2)):
    form(
        "sliding_windows",
        lambda b, x, a=axis, n=size, s=stride: b.sliding_windows(x=x, axis=a, size=n, stride=s),
        [f(*shape)],
        lambda b, x, a=axis, n=size, s=stride: np.moveaxis(
            np.stack([np.take(x, range(k, k + n), a) for k in range(0, x.shape[a] - n + 1, s)], 0), 0, a % x.ndim
        ),
    )
form("non_zero", lambda b, x: b.non_zero(x=x), [fixed([[0.0, 1.5, 0.0], [2.0, -1.0, 0.0]], "float")])
form("non_zero", lambda b, x: b.non_zero(x=x), [i(3, 2, 2, hi=2)])
