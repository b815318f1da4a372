#!/usr/bin/env python3
"""Write the packages that test_ops.py runs, their inputs and what they must give. Needs coremltools.

    op_build.py OUT [N...]     all programs, or each of these forms alone

OUT/NAME.mlpackage, OUT/NAME/in/step0/*.npy, OUT/NAME/want.npz, and OUT/table.json: the row of each output
(operation, opset, precision, source of truth, output name, a factor on the bound).
"""

import json
import logging
import pathlib
import sys

logging.disable(logging.CRITICAL)
import numpy as np  # noqa: E402
import coremltools as ct  # noqa: E402
from coremltools.converters.mil.mil import Builder as mb, Function, Placeholder, Program, types  # noqa: E402

from coremltools.converters.mil.mil.program import StateTensorPlaceholder, get_new_symbol  # noqa: E402

import forms_math, forms_move, forms_more  # noqa: E402,E401,F401 -- they fill FORMS
from forms_length import LENGTHS, WIDTH  # noqa: E402
from op_forms import FORMS, Draw, draw, half  # noqa: E402

TARGETS = {15: ct.target.iOS15, 16: ct.target.iOS16, 17: ct.target.iOS17, 18: ct.target.iOS18}
BATCHES = [(15, "fp32"), (16, "fp16"), (17, "fp32"), (18, "fp16"), (18, "fp32")]
KINDS = {"fp32": types.fp32, "fp16": types.fp16}


class Builder(Draw):
    """What a form is built with: the operations of coremltools, constants in the program's precision."""

    def __init__(self, seed, precision):
        super().__init__(seed)
        self.precision = precision

    def c(self, x):
        return np.asarray(x, np.float16 if self.precision == "fp16" else np.float32)

    def cast(self, x, dtype):
        if dtype == "fp32" and self.precision == "fp16":
            dtype = "fp16"
        return mb.cast(x=x, dtype=dtype)

    types = types
    as_fp32 = staticmethod(lambda x: mb.cast(x=x, dtype="fp32"))

    def __getattr__(self, op):
        return getattr(mb, op)


def as_list(v):
    return list(v) if isinstance(v, (tuple, list)) else [v]


def truth(form, arrays, precision, opset):
    """[(array or None, source)], one an output."""
    inferred, wanted = None, None
    if form.weight is not None:
        return [(v, "coremltools") for v in of_weight(form, arrays, opset)]
    with Function({}, opset_version=TARGETS[opset]):
        constants = [mb.const(val=a) for a in arrays]
        b = Builder(form.seed, "fp32")
        found = as_list(form.run(b, *constants)) if form.infer else []
        if found and all(v.val is not None for v in found):
            inferred = [np.asarray(v.val) for v in found]
    if form.want is not None:
        with np.errstate(all="ignore"):
            wanted = as_list(form.want(Draw(form.seed), *arrays))
    assert inferred or wanted, f"{form.op}: form {form.seed} has no expectation"
    if inferred and wanted:
        for a, b in zip(inferred, wanted):
            assert b is None or np.allclose(
                a, b, rtol=1e-4, atol=1e-5
            ), f"{form.op}: form {form.seed}: coremltools {a} numpy {b}"
        return [(a, "both") for a in inferred]
    return [(a, "coremltools") for a in inferred] if inferred else [(a, "numpy") for a in wanted]


def dense(var):
    """What coremltools decompresses a constant to; pairs of sparse operations go through its own steps."""
    op = var.op
    if op.op_type == "const":
        return var.val
    if op.op_type == "constexpr_sparse_to_dense" and op.mask.val is None:
        return type(op).decompress(dense(op.nonzero_data), dense(op.mask))
    if op.op_type == "constexpr_lut_to_dense" and op.opset_version == TARGETS[18] and op.lut.val is None:
        return type(op).decompress(op.indices.val, dense(op.lut), None)
    if op.op_type == "constexpr_sparse_blockwise_shift_scale" and op.data_mask.val is None:
        both = type(op).decompress(dense(op.data_mask), dense(op.nonzero_data), op.scale.val, None)
    else:
        both = op.materialized_val_inference()
    return both[op.outputs.index(var)] if isinstance(both, tuple) else both


def of_weight(form, arrays, opset):
    """What forms of weight() give."""
    with Function({}, opset_version=TARGETS[opset]):
        w = np.asarray(dense(form.weight(Builder(form.seed, "fp32"))), np.float32)
    x, y, n = arrays
    return [x @ w.T, y * w, w[n]]


def program(forms, opset, precision, folder, name):
    """One package with all these forms; its rows of the table."""
    inputs, arrays, rows, want = {}, {}, [], {}
    for form in forms:
        rng = np.random.default_rng([form.seed])
        form.data = [draw(rng, spec) for spec in form.inputs]
        for k, a in enumerate(form.data):
            key = f"x{form.seed}_{k}"
            kind = types.int32 if a.dtype == np.int32 else KINDS[precision]
            inputs[key] = Placeholder(a.shape, dtype=kind)
            arrays[key] = a
    if not inputs:
        inputs["unused"] = Placeholder((1,), dtype=KINDS[precision])
        arrays["unused"] = np.zeros(1, np.float32)
    with Function(inputs, opset_version=TARGETS[opset]) as fn:
        outputs = []
        for form in forms:
            b = Builder(form.seed, precision)
            made = as_list(form.run(b, *[fn.inputs[f"x{form.seed}_{k}"] for k in range(len(form.data))]))
            for k, (v, (value, source)) in enumerate(zip(made, truth(form, form.data, precision, opset))):
                if value is None:
                    continue
                key = f"y{form.seed}_{k}"
                if v.dtype not in (types.fp16, types.fp32, types.int32):
                    v = mb.cast(x=v, dtype="int32")
                elif v.dtype in (types.fp16, types.fp32) and v.dtype != KINDS[precision]:
                    v = mb.cast(x=v, dtype=precision)
                outputs.append(mb.identity(x=v, name=key))
                want[key] = np.asarray(value).astype(np.float32)
                rows.append(
                    {
                        "op": form.op,
                        "opset": opset,
                        "precision": precision,
                        "source": source,
                        "output": key,
                        "tolerance": form.tolerance,
                    }
                )
        fn.set_outputs(outputs)
    save(fn, opset, folder, name)
    (folder / name / "in" / "step0").mkdir(parents=True)
    for key, a in arrays.items():
        np.save(
            folder / name / "in" / "step0" / f"{key}.npy",
            a if a.dtype == np.int32 or precision == "fp32" else a.astype(np.float16),
        )
    np.savez(folder / name / "want.npz", **want)
    return rows


def save(fn, opset, folder, name, **more):
    prog = Program()
    prog.add_function("main", fn)
    ct.convert(
        prog,
        source="milinternal",
        convert_to="mlprogram",
        minimum_deployment_target=TARGETS[opset],
        compute_precision=ct.precision.FLOAT32,
        pass_pipeline=ct.PassPipeline.EMPTY,
        skip_model_load=True,
        **more,
    ).save(str(folder / f"{name}.mlpackage"))


# --- packages of their own: shapes that vary, states, functions, optional inputs ---


def steps(folder, name, rounds):
    """rounds: [(inputs, wanted outputs)], one a prediction."""
    for k, (inputs, want) in enumerate(rounds):
        at = folder / name / "in" / f"step{k}"
        at.mkdir(parents=True)
        for key, a in inputs.items():
            np.save(at / f"{key}.npy", a)
        np.savez(folder / name / f"want{k}.npz", **want)


def numbers(*shape, seed=0):
    return half(np.random.default_rng([seed, *shape]).uniform(-2, 2, shape))


def symbolic(folder, opset):
    """Three unknown dimensions, one of them shared by two inputs, and everything section 6 derives from them."""
    a, b, c = ct.RangeDim(1, 8), ct.RangeDim(1, 16), ct.RangeDim(1, 5)
    with Function(
        {"x": Placeholder((a.symbol, 4, b.symbol)), "y": Placeholder((a.symbol, c.symbol))},
        opset_version=TARGETS[opset],
    ) as fn:
        x, y = fn.inputs["x"], fn.inputs["y"]
        shape = mb.shape(x=x)
        rows, width = mb.gather(x=shape, indices=0, axis=0), mb.gather(x=shape, indices=2, axis=0)
        flat = mb.concat(
            values=[mb.expand_dims(x=mb.mul(x=rows, y=4), axes=[0]), mb.expand_dims(x=width, axes=[0])], axis=0
        )
        mask = mb.less_equal(x=mb.range_1d(start=0, end=width, step=1), y=2)
        fn.set_outputs(
            [
                mb.identity(x=v, name=n)
                for n, v in {
                    "flat": mb.reshape(x=x, shape=flat),
                    "outer": mb.matmul(x=mb.transpose(x=x, perm=[0, 2, 1]), y=x),
                    "softmax": mb.softmax(x=x, axis=-1),
                    "cut": mb.slice_by_index(x=x, begin=[0, 1, 1], end=[0, 3, 0], end_mask=[True, False, True]),
                    "join": mb.concat(values=[y, mb.reduce_sum(x=x, axes=[2])], axis=1),
                    "tail": mb.slice_by_size(x=x, begin=[0, 2, 0], size=[-1, 2, -1]),
                    "masked": mb.select(
                        cond=mb.logical_or(x=mb.cast(x=x, dtype="bool"), y=mask), a=x, b=mb.mul(x=x, y=np.float32(2))
                    ),
                    "filled": mb.fill(shape=flat, value=np.float32(1.5)),
                }.items()
            ]
        )
    inputs = [ct.TensorType("x", shape=ct.Shape([a, 4, b])), ct.TensorType("y", shape=ct.Shape([a, c]))]
    save(fn, opset, folder, "symbolic", inputs=inputs)
    rounds = []
    for na, nb, nc in ((1, 2, 1), (3, 5, 2), (8, 16, 5), (3, 5, 2)):
        x, y = numbers(na, 4, nb), numbers(na, nc)
        e = np.exp(x - x.max(-1, keepdims=True))
        rounds.append(
            (
                {"x": x, "y": y},
                {
                    "flat": x.reshape(na * 4, nb),
                    "outer": np.swapaxes(x, 1, 2) @ x,
                    "softmax": e / e.sum(-1, keepdims=True),
                    "cut": x[:, 1:3, 1:],
                    "join": np.concatenate([y, x.sum(2)], 1),
                    "tail": x[:, 2:4],
                    "masked": np.where((x != 0) | (np.arange(nb) <= 2), x, 2 * x),
                    "filled": np.full((na * 4, nb), 1.5, np.float32),
                },
            )
        )
    steps(folder, "symbolic", rounds)


def enumerated(folder, opset):
    a = get_new_symbol()
    with Function({"x": Placeholder((2, a))}, opset_version=TARGETS[opset]) as fn:
        fn.set_outputs([mb.mul(x=fn.inputs["x"], y=np.float32(2), name="y")])
    save(
        fn,
        opset,
        folder,
        "enumerated",
        inputs=[ct.TensorType("x", shape=ct.EnumeratedShapes([(2, 3), (2, 5), (2, 8)], default=(2, 5)))],
    )
    steps(folder, "enumerated", [({"x": numbers(2, n)}, {"y": numbers(2, n) * 2}) for n in (5, 3, 8)])


def optional(folder, opset):
    with Function({"x": Placeholder((2, 3)), "bias": Placeholder((3,))}, opset_version=TARGETS[opset]) as fn:
        fn.set_outputs([mb.add(x=fn.inputs["x"], y=fn.inputs["bias"], name="y")])
    x, bias = numbers(2, 3), numbers(3)
    save(
        fn,
        opset,
        folder,
        "optional",
        inputs=[
            ct.TensorType("x", shape=(2, 3)),
            ct.TensorType("bias", shape=(3,), default_value=np.full(3, 0.25, np.float32)),
        ],
    )
    steps(
        folder,
        "optional",
        [({"x": x}, {"y": x + 0.25}), ({"x": x, "bias": bias}, {"y": x + bias}), ({"x": x}, {"y": x + 0.25})],
    )


def stateful(folder, opset):
    """Two states, updates at a position that is an input, one whole overwrite; the values wanted follow in numpy."""
    states = {"rows": (4, 6), "sum": (3,)}
    inputs = {
        "x": Placeholder((2, 6), dtype=types.fp16),
        "at": Placeholder((1,), dtype=types.int32),
        **{k: StateTensorPlaceholder(v, dtype=types.fp16) for k, v in states.items()},
    }
    with Function(inputs, opset_version=TARGETS[opset]) as fn:
        x, at = fn.inputs["x"], fn.inputs["at"]
        rows = mb.read_state(input=fn.inputs["rows"])
        two = mb.concat(values=[at, np.array([0], np.int32)], axis=0)
        end = mb.concat(values=[mb.add(x=at, y=2), np.array([6], np.int32)], axis=0)
        new = mb.slice_update(
            x=rows,
            update=x,
            begin=two,
            end=end,
            stride=[1, 1],
            begin_mask=[False, True],
            end_mask=[False, True],
            squeeze_mask=[False, False],
        )
        rows = mb.coreml_update_state(state=fn.inputs["rows"], value=new)
        old = mb.read_state(input=fn.inputs["sum"])
        add = mb.add(x=old, y=mb.slice_by_index(x=mb.reduce_sum(x=x, axes=[0]), begin=[0], end=[3]))
        whole = mb.slice_update(
            x=old, update=add, begin=[0], end=[0], stride=[1], begin_mask=[True], end_mask=[True], squeeze_mask=[False]
        )
        total = mb.coreml_update_state(state=fn.inputs["sum"], value=whole)
        fn.set_outputs([mb.mul(x=rows, y=np.float16(2), name="twice"), mb.identity(x=total, name="total")])
    save(fn, opset, folder, "stateful")
    rounds, held, total = [], np.zeros((4, 6), np.float32), np.zeros(3, np.float32)
    for k, at in enumerate((0, 2, 1)):
        x = numbers(2, 6, seed=k)
        held[at : at + 2] = x
        total = half(total + half(x.sum(0)[:3]))
        rounds.append(
            ({"x": x.astype(np.float16), "at": np.array([at], np.int32)}, {"twice": held * 2, "total": total.copy()})
        )
    steps(folder, "stateful", rounds)


def lengths(folder, opset):
    """The forms of forms_length.py, a package each: T is 1, then more, then less."""
    for name, (_, build, want) in LENGTHS.items():
        t = ct.RangeDim(1, 16)
        with Function({"x": Placeholder((1, WIDTH, t.symbol, 1))}, opset_version=TARGETS[opset]) as fn:
            fn.set_outputs([mb.identity(x=build(mb, fn.inputs["x"]), name="y")])
        inputs = [ct.TensorType("x", shape=ct.Shape([1, WIDTH, t, 1]))]
        save(fn, opset, folder, f"length_{name}", inputs=inputs)
        xs = [numbers(1, WIDTH, n, 1) for n in (1, 5, 2)]
        steps(folder, f"length_{name}", [({"x": x}, {"y": want(x).astype(np.float32)}) for x in xs])


SPECIALS = {
    "lengths": (lengths, 16),
    "symbolic": (symbolic, 15),
    "enumerated": (enumerated, 16),
    "optional": (optional, 15),
    "stateful": (stateful, 18),
}


def lists(folder, opset):
    """A program with a list, which aned refuses."""
    with Function({"x": Placeholder((2, 3))}, opset_version=TARGETS[opset]) as fn:
        x = fn.inputs["x"]
        items = mb.make_list(init_length=2, elem_shape=(2, 3), dtype="fp32")
        items = mb.list_write(ls=items, index=0, value=x)
        fn.set_outputs([mb.identity(x=mb.list_read(ls=items, index=0), name="y")])
    save(fn, opset, folder, "refused")
    print(folder / "refused.mlpackage")


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    if "--lists" in sys.argv:
        lists(folder, 15)
        return
    table = {}
    for opset, precision in BATCHES:
        forms = [g for g in FORMS if g.since <= opset <= g.until]
        if sys.argv[2:]:
            for form in forms:
                if str(form.seed) in sys.argv[2:] or "all" in sys.argv[2:]:
                    name = f"ios{opset}_{precision}_{form.seed}_{form.op}"
                    try:
                        table[name] = program([form], opset, precision, folder, name)
                    except Exception as problem:  # a form that cannot be built is what this mode is for
                        print(f"{name}: {type(problem).__name__}: {problem}")
        else:
            name = f"ios{opset}_{precision}"
            table[name] = program(forms, opset, precision, folder, name)
    for name, (make, opset) in SPECIALS.items():
        if not sys.argv[2:] or name in sys.argv[2:]:
            make(folder, opset)
    (folder / "table.json").write_text(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
