"""Forms that look at the shape of an input with one unknown dimension, T: small programs in coremltools' builder over
x [1, 8, T, 1]. `rows` says whether the backend cpu may run them as rows; where T itself goes into a result it must not.

    LENGTHS[name] = (rows, build(b, x), want(x) in numpy)
"""

import numpy as np

WIDTH = 8
TABLE = np.random.default_rng(7).uniform(-1, 1, (16, WIDTH)).astype(np.float16).astype(np.float32)


def dim(b, x, k):
    return b.gather(x=b.shape(x=x), indices=k, axis=0)


def number(b, x):
    return b.cast(x=x, dtype="fp32")


def places(b, x):
    return b.range_1d(start=0, end=dim(b, x, 2), step=1)


def along(b, v):
    """[T] as [1, 1, T, 1]."""
    return b.expand_dims(x=v, axes=[0, 1, 3])


def full(b, x, value):
    return b.fill(shape=b.shape(x=x), value=np.float32(value))


def looked_up(b, x):
    rows = b.gather(x=TABLE, indices=places(b, x), axis=0)
    return b.add(x=x, y=b.expand_dims(x=b.transpose(x=rows, perm=[1, 0]), axes=[0, 3]))


def triangle(b, x):
    t = b.expand_dims(x=dim(b, x, 2), axes=[0])
    ones = b.fill(shape=b.concat(values=[t, t], axis=0), value=np.float32(1))
    return b.mul(x=x, y=along(b, b.reduce_sum(x=b.band_part(x=ones, lower=-1, upper=0), axes=[1])))


def one_hot(b, x):
    hot = b.one_hot(indices=places(b, x), one_hot_vector_size=WIDTH, on_value=np.float32(1), off_value=np.float32(0))
    return b.sub(x=x, y=b.expand_dims(x=b.transpose(x=hot, perm=[1, 0]), axes=[0, 3]))


def tiled(b, x):
    one = np.arange(WIDTH, dtype=np.float32).reshape(1, WIDTH, 1, 1)
    t = b.expand_dims(x=dim(b, x, 2), axes=[0])
    return b.add(x=x, y=b.tile(x=one, reps=b.concat(values=[np.array([1, 1], np.int32), t, np.array([1], np.int32)], axis=0)))


def apart(b, x):
    t = b.expand_dims(x=dim(b, x, 2), axes=[0])
    shape = b.concat(values=[np.array([1, 2, WIDTH // 2], np.int32), t], axis=0)
    return b.relu(x=b.reshape(x=b.transpose(x=x, perm=[0, 3, 1, 2]), shape=shape))


def length(x):
    return x.shape[2]


LENGTHS = {
    "width": (True, lambda b, x: b.mul(x=x, y=number(b, dim(b, x, 1))), lambda x: x * WIDTH),
    "reshape": (True, apart, lambda x: np.maximum(x[:, :, :, 0], 0).reshape(1, 2, WIDTH // 2, length(x))),
    "fill": (True, lambda b, x: b.add(x=x, y=full(b, x, 0.5)), lambda x: x + 0.5),
    "tile": (True, tiled, lambda x: x + np.arange(WIDTH).reshape(1, WIDTH, 1, 1)),
    "times": (False, lambda b, x: b.mul(x=x, y=number(b, dim(b, x, 2))), lambda x: x * length(x)),
    "over": (False, lambda b, x: b.real_div(x=x, y=number(b, dim(b, x, 2))), lambda x: x / length(x)),
    "range": (
        False,
        lambda b, x: b.add(x=x, y=along(b, number(b, places(b, x)))),
        lambda x: x + np.arange(length(x)).reshape(1, 1, -1, 1),
    ),
    "table": (False, looked_up, lambda x: x + TABLE[: length(x)].T[None, :, :, None]),
    "triangle": (False, triangle, lambda x: x * np.arange(1, length(x) + 1).reshape(1, 1, -1, 1)),
    "one_hot": (False, one_hot, lambda x: x - np.eye(length(x), WIDTH).T[None, :, :, None]),
    "counted": (
        False,
        lambda b, x: b.mul(x=x, y=b.reduce_sum(x=full(b, x, 1), axes=[2], keep_dims=True)),
        lambda x: x * length(x),
    ),
    "running": (
        False,
        lambda b, x: b.add(x=x, y=b.cumsum(x=full(b, x, 1), axis=2)),
        lambda x: x + np.arange(1, length(x) + 1).reshape(1, 1, -1, 1),
    ),
}
