"""Every operation of ML Programs that aned knows, form by form and opset by opset, against coremltools' own value
inference where it has one and numpy elsewhere (forms_*.py have the forms, op_build.py makes packages of them).

OPS.md beside this file is the table of what is tested: operation, opsets, source of truth. It is made anew here and
must be the one that is checked in; `op_build.py OUT` and then `test_ops.py OUT` write it."""

import json
import pathlib
import shutil
import sys

import numpy as np
import pytest

from forms_length import LENGTHS
from oracle_tools import coreml_python, run

HERE = pathlib.Path(__file__).parent
PROGRAMS = ["ios15_fp32", "ios16_fp16", "ios17_fp32", "ios18_fp16", "ios18_fp32"]
SPECIALS = {"symbolic": 4, "enumerated": 3, "optional": 3, "stateful": 3}  # name: predictions
BACKENDS = ["interpreter", "cpu"]

# Every operation an ML Program may hold by the facts this project keeps (section 5), whoever emits it.
KNOWN = """
    const constexpr_affine_dequantize constexpr_blockwise_shift_scale constexpr_lut_to_dense constexpr_sparse_to_dense
    constexpr_cast constexpr_lut_to_sparse constexpr_sparse_blockwise_shift_scale quantize dequantize
    conv linear matmul scaled_dot_product_attention einsum
    add sub mul real_div pow maximum minimum floor_div mod greater greater_equal less less_equal equal not_equal
    logical_and logical_or logical_not sqrt exp cos sin tanh erf sigmoid silu relu softplus abs square exp2 floor round
    ceil sign rsqrt log inverse gelu softmax clip leaky_relu select cast identity
    reduce_sum reduce_mean reduce_max reduce_min reduce_sum_square reduce_l2_norm reduce_argmax reduce_argmin
    layer_norm batch_norm instance_norm l2_norm
    reshape transpose expand_dims squeeze concat stack split slice_by_index slice_by_size slice_update
    gather gather_along_axis gather_nd scatter scatter_along_axis scatter_nd tile pad fill fill_like range_1d shape topk
    argsort cumsum band_part one_hot reverse reshape_like sliding_windows non_zero
    read_state write_state cond while_loop
    make_list list_read list_write list_gather list_scatter list_length
""".split()
WITHIN = {  # tested as a part of something else
    "const": "holds the constants of every form",
    "read_state": "the package `stateful`",
    "write_state": "the package `stateful`",
}
LISTS = "a list is no tensor: values of aned have one shape; Core ML keeps such programs on the CPU too"
REFUSED = {name: LISTS for name in KNOWN if "list" in name}


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    out = tmp_path_factory.mktemp("ops")
    run(coreml_python(), HERE / "op_build.py", out)
    yield out
    shutil.rmtree(out)


@pytest.fixture(scope="session")
def table(built):
    return json.loads((built / "table.json").read_text())


def close(row, got, want):
    """None, or what is wrong. Both precisions are computed in fp32; fp16 constants differ from the fp32 ones."""
    bound = row["tolerance"] * (2e-6 if row["precision"] == "fp32" else 2e-3)
    if got.shape != want.shape:
        return f"shape {got.shape}, wanted {want.shape}"
    ok = np.isclose(got, want, rtol=bound, atol=bound, equal_nan=True)
    return None if ok.all() else f"{got[~ok][:4]}, wanted {want[~ok][:4]}"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_forms(aned, built, table, program, backend):
    here = built / program
    run(aned, "mil", "run", built / f"{program}.mlpackage", here / "in", here / backend, "--backend", backend)
    want, wrong = np.load(here / "want.npz"), []
    for row in table[program]:
        problem = close(row, np.load(here / backend / "step0" / f"{row['output']}.npy"), want[row["output"]])
        if problem:
            wrong.append(f"{row['op']} ({row['output']}, by {row['source']}): {problem}")
    assert not wrong, f"{len(wrong)} of {len(table[program])} outputs:\n" + "\n".join(wrong[:40])
    assert len(table[program]) > 300


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("special", SPECIALS)
def test_packages(aned, built, special, backend):
    here = built / special
    run(aned, "mil", "run", built / f"{special}.mlpackage", here / "in", here / backend, "--backend", backend)
    for k in range(SPECIALS[special]):
        want = np.load(here / f"want{k}.npz")
        for name in want.files:
            got = np.load(here / backend / f"step{k}" / f"{name}.npy")
            problem = close(
                {"precision": "fp32", "tolerance": 500.0 if special == "stateful" else 4.0}, got, want[name]
            )
            assert not problem, f"prediction {k}, {name}: {problem}"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", LENGTHS)
def test_lengths(aned, built, name, backend):
    """What looks at T gives the same in every chunk, and says so where it cannot run as rows."""
    package, here = f"length_{name}", built / f"length_{name}"
    run(aned, "mil", "run", built / f"{package}.mlpackage", here / "in", here / backend, "--backend", backend)
    for k in range(3):
        got, want = np.load(here / backend / f"step{k}" / "y.npy"), np.load(here / f"want{k}.npz")["y"]
        problem = close({"precision": "fp32", "tolerance": 1.0}, got, want)
        assert not problem, f"prediction {k}: {problem}"
    text = run(aned, "mil", "compile", built / f"{package}.mlpackage")
    assert ("depends on how many rows there are" not in text) == LENGTHS[name][0], text


@pytest.mark.parametrize(
    "special,step,message",
    [
        ("symbolic", {"x": (9, 4, 2), "y": (9, 1)}, "dimension 0 is 9"),
        ("symbolic", {"x": (2, 4, 3), "y": (3, 1)}, "mil.shape"),
        ("enumerated", {"x": (2, 4)}, "not one of the enumerated shapes"),
        ("optional", {"bias": (3,)}, "input x is missing"),
        ("optional", {"x": (2, 3), "bias": (2,)}, "input bias"),
    ],
)
def test_wrong_inputs(aned, built, tmp_path, special, step, message):
    (tmp_path / "step0").mkdir()
    for name, shape in step.items():
        np.save(tmp_path / "step0" / f"{name}.npy", np.zeros(shape, np.float32))
    assert message in run(aned, "mil", "run", built / f"{special}.mlpackage", tmp_path, tmp_path / "out", code=65)


def as_text(table):
    """The table of what is tested."""
    found = {}
    for rows in table.values():
        for row in rows:
            at = found.setdefault(row["op"], {"opsets": {}, "forms": set(), "sources": set()})
            at["opsets"].setdefault(row["opset"], set()).add(row["precision"])
            at["forms"].add(row["output"].split("_")[0])
            at["sources"].add(row["source"])
    lines = [
        "# What test_ops.py runs",
        "",
        "Both CPU backends, fp32 programs in iOS15, 17, 18 and fp16 programs in iOS16, 18. Truth: coremltools' own value",
        "inference, numpy where it has none, or both where they must agree.",
        "",
        "| operation | forms | opsets | truth |",
        "|---|---|---|---|",
    ]
    for op in sorted(found):
        at = found[op]
        sources = {"coremltools", "numpy"} if "both" in at["sources"] else at["sources"]
        lines.append(
            f"| {op} | {len(at['forms'])} | {' '.join(f'iOS{n}' for n in sorted(at['opsets']))} |"
            f" {', '.join(sorted(sources))} |"
        )
    lines += ["", "Within other tests:", ""] + [f"- {op}: {why}" for op, why in WITHIN.items()]
    lines += ["", "Refused with `mil.op`, by name:", ""] + [f"- {op}: {why}" for op, why in sorted(REFUSED.items())]
    return "\n".join(lines) + "\n", set(found)


def test_nothing_is_left_out(table):
    text, tested = as_text(table)
    for op in KNOWN:
        places = (op in tested) + (op in WITHIN) + (op in REFUSED)
        assert places == 1, f"{op} is {'nowhere' if not places else 'in several places'}: tested, within, refused"
    assert (
        text == (HERE / "OPS.md").read_text()
    ), "OPS.md is out of date: `op_build.py OUT && test_ops.py OUT` writes it"


def test_refused(aned, tmp_path):
    """What REFUSED lists is refused by name, before anything runs: the signature table does not know it."""
    done = run(coreml_python(), HERE / "op_build.py", tmp_path, "--lists")
    assert "refused.mlpackage" in done
    message = run(aned, "mil", "run", tmp_path / "refused.mlpackage", tmp_path, tmp_path / "out", code=65)
    assert "mil.op" in message and "list" in message, message


if __name__ == "__main__":  # a folder of op_build.py -> OPS.md
    (HERE / "OPS.md").write_text(as_text(json.loads((pathlib.Path(sys.argv[1]) / "table.json").read_text()))[0])
