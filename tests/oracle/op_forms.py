"""The forms of every operation that test_ops.py runs: small programs in coremltools' builder, and what they must give.

    form(op, run, inputs, want=None, since=15, until=18, name="")

`run(b, *values)` builds the form: b has the builder's operations, b.w(shape) a constant of random floats in the
program's precision, b.c(x) any constant in it. The same function is run a second time over constants, where
coremltools infers the value; `want(b, *arrays)` says it in numpy, for what coremltools does not infer and as a second
opinion elsewhere. All data are numbers fp16 holds exactly, so one expectation serves fp32 and fp16 programs.
"""

import numpy as np

FORMS = []


class Form:
    def __init__(self, op, run, inputs, want, since, until, tolerance, infer):
        self.op, self.run, self.inputs, self.want = op, run, inputs, want
        self.since, self.until, self.tolerance, self.infer = since, until, tolerance, infer
        self.seed = len(FORMS)
        self.weight = None


def form(op, run, inputs, want=None, since=15, until=18, tolerance=1.0, infer=True):
    """tolerance: a factor on the usual bound. infer=False: coremltools' inference is known to be wrong or to fail."""
    FORMS.append(Form(op, run, inputs, want, since, until, tolerance, infer))


def weight(op, make, since=16, until=18, shape=(6, 8)):
    """A compressed constant of this shape, read by a product, by elements and by rows; coremltools decompresses it."""

    def run(b, x, y, n):
        w = make(b)
        return b.linear(x=x, weight=w), b.mul(x=y, y=w), b.gather(x=w, indices=n, axis=0)

    form(op, run, [f(3, shape[1]), f(*shape), i(4, hi=shape[0])], None, since, until, 4)
    FORMS[-1].weight = make


def f(*shape, lo=-2.0, hi=2.0):
    """An input of floats."""
    return ("float", shape, lo, hi)


def pos(*shape):
    return f(*shape, lo=0.25, hi=3.0)


def i(*shape, lo=0, hi=5):
    """An input of int32 in lo..hi-1."""
    return ("int", shape, lo, hi)


def fixed(values, kind="int"):
    """An input of these very values."""
    a = np.asarray(values)
    return (kind, a.shape, a, None)


def half(a):
    return np.asarray(a).astype(np.float16).astype(np.float32)


def draw(rng, spec):
    kind, shape, lo, hi = spec
    if hi is None:
        return lo.astype(np.int32 if kind == "int" else np.float32)
    if kind == "int":
        return rng.integers(lo, hi, shape).astype(np.int32)
    return half(rng.uniform(lo, hi, shape))


class Draw:
    """Constants of one form: the same ones every time it is built."""

    def __init__(self, seed):
        self.rng = np.random.default_rng([seed, 1])

    def w(self, *shape, lo=-1.0, hi=1.0):
        return self.c(half(self.rng.uniform(lo, hi, shape)))

    def ints(self, lo, hi, *shape, dtype=np.int32):
        return self.rng.integers(lo, hi, shape).astype(dtype)

    def c(self, x):
        return np.asarray(x, np.float32)
