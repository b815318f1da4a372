#!/usr/bin/env python3
"""Run an .mlpackage in numpy: a second opinion on `aned mil run`, same arguments.

    mil_numpy.py PKG IN OUT [FUNCTION]

coremltools reads the package and expands compressed weights; each operation is
a few lines of numpy in fp32, states are kept as fp16. IN/stepK/NAME.npy are the
inputs of consecutive predictions, OUT/stepK/NAME.npy and OUT/state/NAME.npy
the results. Needs coremltools, not a Mac. An operation that is not here is an
error, never a guess.
"""
import logging
import math
import pathlib
import sys

logging.disable(logging.CRITICAL)
import numpy as np  # noqa: E402
import coremltools as ct  # noqa: E402
from coremltools.converters.mil.frontend.milproto.load import load  # noqa: E402


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu(x, mode="EXACT"):
    if mode == "TANH_APPROXIMATION":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    if mode == "EXACT":
        return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    raise NotImplementedError(f"gelu {mode}")


def softmax(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def conv(x, weight, bias=None, strides=None, pad_type="valid", pad=None, dilations=None, groups=1):
    spatial = x.ndim - 2
    strides = list(strides) if strides is not None else [1] * spatial
    dilations = list(dilations) if dilations is not None else [1] * spatial
    if pad_type == "custom":
        x = np.pad(x, [(0, 0), (0, 0)] + [(int(pad[2 * i]), int(pad[2 * i + 1])) for i in range(spatial)])
    elif pad_type != "valid":
        raise NotImplementedError(f"pad_type {pad_type}")
    n, c_in = x.shape[:2]
    c_out, c_group = weight.shape[:2]
    assert c_group * groups == c_in, (x.shape, weight.shape, groups)
    size = [(x.shape[2 + i] - dilations[i] * (weight.shape[2 + i] - 1) - 1) // strides[i] + 1 for i in range(spatial)]
    out = np.zeros([n, c_out] + size, np.float32)
    per = c_out // groups
    for tap in np.ndindex(*weight.shape[2:]):
        at = tuple(
            slice(tap[i] * dilations[i], tap[i] * dilations[i] + strides[i] * (size[i] - 1) + 1, strides[i])
            for i in range(spatial)
        )
        seen = x[(slice(None), slice(None)) + at]
        w = weight[(slice(None), slice(None)) + tap]
        for g in range(groups):
            part = seen[:, g * c_group : (g + 1) * c_group].reshape(n, c_group, -1)
            out[:, g * per : (g + 1) * per] += (w[g * per : (g + 1) * per] @ part).reshape([n, per] + size)
    return out if bias is None else out + np.asarray(bias).reshape([1, -1] + [1] * spatial)


def window(rank, shape, begin, end, stride=None, begin_mask=None, end_mask=None, squeeze_mask=None):
    """The index that slice_by_index and slice_update share."""
    stride = [1] * rank if stride is None else stride
    no = [False] * rank
    begin_mask, end_mask, squeeze_mask = begin_mask or no, end_mask or no, squeeze_mask or no
    index = []
    for i in range(rank):
        if squeeze_mask[i]:
            index.append(int(begin[i]))
            continue
        first = None if begin_mask[i] else int(begin[i])
        last = None if end_mask[i] else int(end[i])
        index.append(slice(first, last, int(stride[i])))
    return tuple(index)


def slice_by_index(x, begin, end, **masks):
    return x[window(x.ndim, x.shape, begin, end, **{k: list(v) for k, v in masks.items()})]


def slice_update(x, update, begin, end, **masks):
    masks = {k: list(v) for k, v in masks.items()}
    out = np.array(x)
    at = window(x.ndim, x.shape, begin, end, **masks)
    out[at] = np.asarray(update).reshape(out[at].shape)
    return out


def slice_by_size(x, begin, size):
    return x[tuple(slice(int(b), None if int(s) == -1 else int(b) + int(s)) for b, s in zip(begin, size))]


def reshape(x, shape):
    return x.reshape([x.shape[i] if int(s) == 0 else int(s) for i, s in enumerate(shape)])


def squeeze(x, axes=None):
    return np.squeeze(x, axis=None if axes is None else tuple(int(a) for a in axes))


def expand_dims(x, axes):
    return np.expand_dims(x, tuple(int(a) for a in axes))


def reduce(fn):
    def run(x, axes=None, keep_dims=False):
        return fn(x, axis=None if axes is None else tuple(int(a) for a in axes), keepdims=bool(keep_dims))

    return run


def batch_norm(x, mean, variance, gamma=None, beta=None, epsilon=1e-5):
    shape = [1, -1] + [1] * (x.ndim - 2)
    y = (x - mean.reshape(shape)) / np.sqrt(variance.reshape(shape) + epsilon)
    y = y if gamma is None else y * gamma.reshape(shape)
    return y if beta is None else y + beta.reshape(shape)


def matmul(x, y, transpose_x=False, transpose_y=False):
    return np.matmul(np.swapaxes(x, -1, -2) if transpose_x else x, np.swapaxes(y, -1, -2) if transpose_y else y)


def cast(x, dtype):
    kinds = {"fp16": np.float32, "fp32": np.float32, "int32": np.int32, "bool": np.bool_}
    return np.asarray(x).astype(kinds[dtype])


OPS = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "real_div": lambda x, y: x / y,
    "pow": lambda x, y: x**y,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "abs": np.abs,
    "square": lambda x: x * x,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "tanh": np.tanh,
    "rsqrt": lambda x, epsilon=1e-12: 1 / np.sqrt(x + epsilon),
    "inverse": lambda x, epsilon=1e-4: 1 / (x + epsilon),
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "gelu": gelu,
    "softmax": lambda x, axis=-1: softmax(x, int(axis)),
    "reduce_sum": reduce(np.sum),
    "reduce_mean": reduce(np.mean),
    "reduce_max": reduce(np.max),
    "reduce_min": reduce(np.min),
    "conv": conv,
    "matmul": matmul,
    "linear": lambda x, weight, bias=0: x @ np.swapaxes(weight, -1, -2) + bias,
    "batch_norm": batch_norm,
    "transpose": lambda x, perm: np.transpose(x, [int(p) for p in perm]),
    "reshape": reshape,
    "squeeze": squeeze,
    "expand_dims": expand_dims,
    "concat": lambda values, axis, interleave=False: np.concatenate(values, axis=int(axis)),
    "slice_by_index": slice_by_index,
    "slice_by_size": slice_by_size,
    "slice_update": slice_update,
    "cast": cast,
    "identity": lambda x: x,
}


def widen(a):
    a = np.asarray(a)
    return a.astype(np.float32) if a.dtype in (np.float16, np.float64) else a


class Runner:
    def __init__(self, path, function=None):
        spec = ct.utils.load_spec(str(path))
        weights = pathlib.Path(path) / "Data" / "com.apple.CoreML" / "weights"
        program = load(spec, specification_version=spec.specificationVersion, file_weights_dir=str(weights))
        name = function or spec.description.defaultFunctionName or "main"
        self.function = program.functions[name]
        self.const = {}
        self.state = {}
        for key, var in self.function.inputs.items():
            if type(var).__name__ == "StateVar" or hasattr(var, "_sym_type") and "state" in str(var._sym_type):
                self.state[key] = np.zeros([int(d) for d in var.shape], np.float16)

    def value(self, env, var):
        if isinstance(var, (list, tuple)):
            return [self.value(env, v) for v in var]
        if var.name in env:
            return env[var.name]
        if var.name not in self.const:
            v = var.val
            if v is None and var.op is not None and var.op.op_type.startswith("constexpr"):
                v = var.op.materialized_val_inference()
            if v is None:
                raise KeyError(f"{var.name} has no value")
            if isinstance(v, (str, bool)):
                self.const[var.name] = v
            else:
                v = widen(v)
                self.const[var.name] = v.item() if v.ndim == 0 and v.dtype != np.float32 else v
        return self.const[var.name]

    def operation(self, env, op):
        if op.op_type == "const" or op.op_type.startswith("constexpr"):
            return  # materialised when used
        if op.op_type == "read_state":
            env[op.outputs[0].name] = widen(self.state[op.input.name])
            return
        if op.op_type == "coreml_update_state":  # write_state, then read_state
            self.state[op.state.name] = self.value(env, op.value).astype(np.float16)
            env[op.outputs[0].name] = widen(self.state[op.state.name])
            return
        args = {k: self.value(env, v) for k, v in op.inputs.items() if v is not None and k != "name"}
        if op.op_type == "split":
            parts = args.get("num_splits") or np.cumsum(args["split_sizes"])[:-1]
            out = np.split(args["x"], parts, axis=int(args["axis"]))
        elif op.op_type in OPS:
            out = [OPS[op.op_type](**args)]
        else:
            raise NotImplementedError(f"no numpy form of {op.op_type} ({op.name})")
        for var, v in zip(op.outputs, out):
            env[var.name] = widen(v)

    def step(self, inputs):
        env = {k: widen(v) for k, v in inputs.items()}
        for op in self.function.operations:
            self.operation(env, op)
        return {v.name: self.value(env, v) for v in self.function.outputs}


def main():
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    np.seterr(over="ignore")
    source, target = pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    r = Runner(sys.argv[1], *sys.argv[4:])
    k = 0
    while (source / f"step{k}").is_dir():
        step = {p.stem: np.load(p) for p in (source / f"step{k}").glob("*.npy")}
        out = target / f"step{k}"
        out.mkdir(parents=True, exist_ok=True)
        for name, v in r.step(step).items():
            np.save(out / f"{name}.npy", v)
        k += 1
    (target / "state").mkdir(parents=True, exist_ok=True)
    for name, v in r.state.items():
        np.save(target / "state" / f"{name}.npy", v)


if __name__ == "__main__":
    main()
