"""Packages of the public ane-book converter are known to run on the Neural Engine; the rules say so of each operation."""
import json

import pytest

from oracle_tools import run

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
