"""Packages of the public ane-book converter are known to run on the Neural Engine; the rules say so of each operation. Faults
planted in packages of coremltools are caught by name."""
import json
import pathlib

import pytest

from oracle_tools import coreml_python, run

ANEBOOK = ["phi_ranged_fp16", "phi_ranged_int8", "qwen2_ranged_fp16", "qwen2_ranged_int8", "qwen2_fixed1_fp16", "zaya_moe_fp16",
           "zaya_moe_int8", "lfm2_conv_fp16", "lfm2_conv_int8"]


@pytest.fixture
def folder(shared):
    return shared / "data" / "coreml"


def predicted(aned, package, *options):
    return json.loads(run(aned, "residency", package, "--json", *options))


@pytest.mark.parametrize("profile", ["law", "m1", "m4-max"])
@pytest.mark.parametrize("name", ANEBOOK)
def test_what_is_known_to_run_there(aned, folder, name, profile):
    f, = predicted(aned, folder / "anebook" / f"{name}.mlpackage", "--profile", profile)["functions"]
    assert {(o["device"], o["rule"]) for o in f["ops"]} == {("neural_engine", "op.native")}, f["ops"]
    assert f["function"]["plan"]["operations"] > 20 and f["function"]["plan"]["share"] == 1
    # these are cut down to two layers with small weights: the size floor is all that may be found
    assert {x["rule"] for x in f["function"]["findings"]} == {"program.floor"}, f["function"]["findings"]


def test_an_fp32_package(aned, folder):
    """Its input and output are fp32, with a cast at each end."""
    f, = predicted(aned, folder / "executorch-add_all.mlpackage")["functions"]
    ops = {o["type"]: (o["device"], o["rule"]) for o in f["ops"]}
    assert ops == {"cast": ("cpu", "type.fp32"), "add": ("neural_engine", "op.native")}
    assert {x["rule"] for x in f["function"]["findings"]} == {"spec.opset", "program.floor"}


# What coremltools writes: (operation, verdict, rule) of each, and what is found of the function beside the size floor.
ON, OFF, UNKNOWN = "on", "off", "unknown"
MADE = {
    "exp": [("exp", ON, "op.native")],
    "int8": [("conv", ON, "op.native")],
    "int8_tensor": [("conv", ON, "op.native")],
    "int8_blocks": [("conv", OFF, "weights.blocks")],
    "int4": [("conv", UNKNOWN, "weights.int4")],
    "int4_blocks": [("conv", OFF, "weights.blocks")],
    "lut4": [("conv", ON, "op.native")],
    "lut6": [("conv", ON, "op.native")],
    "lut2": [("conv", UNKNOWN, "weights.lut_other")],
    "lut4_blocks": [("conv", OFF, "weights.lut_blocks")],
    "lut4_joint": [("conv", OFF, "weights.lut_int8")],
    "lut4_scales": [("conv", UNKNOWN, "weights.lut_scale")],
    "sparse": [("conv", UNKNOWN, "weights.sparse")],
    "island": [("cast", OFF, "type.fp32"), ("softmax", OFF, "type.fp32")],
    "gather": [("gather", OFF, "op.gather")],
    "topk": [("topk", OFF, "op.topk")],
    "loop": [("while_loop", OFF, "op.control"), ("add", OFF, "op.nested"), ("less", OFF, "op.nested")],
    "slice": [("slice_by_size", OFF, "slice.dynamic")],
    "reshape": [("reshape", OFF, "op.dynamic")],
    "attention": [("scaled_dot_product_attention", OFF, "op.attention_small")],
    "long_axis": [("exp", OFF, "axis.cap")],
    "masked": [(op, ON, "op.native") for op in ("read_state", "mul", "slice_update", "write_state", "exp")],
    "wide_state": [(op, OFF, "state.width") for op in ("read_state", "slice_update", "write_state")] + [("exp", ON, "op.native")],
    "position": [("slice_update", UNKNOWN, "slice_update.position"), ("concat", OFF, "type.integers")],
    "tensor_position": [("slice_update", OFF, "slice_update.tensor")],
    "ranged": [("exp", ON, "op.native")],
    "ranged_beside_fixed": [("add", OFF, "input.no_t")],
    "enumerated": [("exp", ON, "op.native")],
}
FOUND = {"ranged_beside_fixed": {"input.no_t"}, "enumerated": {"input.enumerated"}}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    to = tmp_path_factory.mktemp("made")
    run(coreml_python(), pathlib.Path(__file__).with_name("residency_build.py"), to)
    assert {p.stem for p in to.iterdir()} == set(MADE)
    return to


@pytest.mark.parametrize("name", MADE)
def test_planted_faults(aned, made, name):
    f, = predicted(aned, made / f"{name}.mlpackage", "--ops")["functions"]
    got = {(o["type"], o["verdict"], o["rule"]) for o in f["every_op"]}
    assert got >= set(MADE[name]), got
    wrong = {o for o in got if o[1] != ON} - {o for o in got if o in MADE[name]}
    assert name == "loop" or not wrong, wrong
    assert {x["rule"] for x in f["function"]["findings"]} == {"program.floor"} | FOUND.get(name, set())
