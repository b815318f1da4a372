"""Commands that use the device themselves: what they print, and what they leave behind."""
import json
import os
import signal
import subprocess

import pytest

from conftest import until
from device import Device, bundle, place  # noqa: F401  (bundle, place: fixtures)


@pytest.fixture
def shell(tmp_path):
    """(environment, folder of temporary files, what the stand-in does)."""
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    device = Device(tmp_path)
    return os.environ | {"TMPDIR": str(tmp), "ANED_STANDIN": str(device.path)}, tmp, device


def run(*command, env):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, stdin=subprocess.DEVNULL, env=env)


def probe(aned, bundle, *options, env):  # noqa: F811
    p = run(aned, "probe", bundle, "--backend", "coreml", "--json", *options, env=env)
    assert p.returncode == 0, p.stderr
    return json.loads(p.stdout), p.stderr.count("# standin: compiling")


@pytest.mark.smoke
def test_a_probe_leaves_nothing(aned, bundle, shell, tmp_path):  # noqa: F811
    env, tmp, _ = shell
    r, compiled = probe(aned, bundle, env=env)
    assert r["verdict"] in ("passed", "warned") and compiled == 2
    assert os.listdir(tmp) == []
    kept = tmp_path / "kept"
    assert probe(aned, bundle, "--cache", kept, env=env)[1] == 2
    assert len([x for _, dirs, _ in os.walk(kept) for x in dirs if x.endswith(".mlmodelc")]) == 2
    assert probe(aned, bundle, "--cache", kept, env=env)[1] == 0
    assert os.listdir(tmp) == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_probe_that_is_interrupted(aned, bundle, shell, how):  # noqa: F811
    env, tmp, device = shell
    device.set("load_hang = *")
    p = subprocess.Popen([aned, "probe", bundle, "--backend", "coreml"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True, env=env)
    until(lambda: [x for _, dirs, _ in os.walk(tmp) for x in dirs if x.endswith(".mlmodelc")])
    p.send_signal(how)
    out, _ = p.communicate(timeout=60)
    assert p.returncode == 128 + how and out == ""
    assert os.listdir(tmp) == []


@pytest.mark.smoke
def test_lines_of_core_ml_are_not_ours(aned, bundle, shell):  # noqa: F811
    env, tmp, _ = shell
    package = next(bundle.glob("layers*.mlpackage"))
    p = run(aned, "mil", "time", package, "--backend", "coreml", "--count", "3", "--json", env=env)
    assert p.returncode == 0, p.stderr
    o = json.loads(p.stdout)
    assert o["backend"] == "coreml" and o["predictions"] == 3 and o["compiled"]
    assert "# standin: compiling" in p.stderr
    assert os.listdir(tmp) == []


@pytest.mark.smoke
def test_predicted_beside_measured(place, demo_gguf, anectl):  # noqa: F811
    """What the rules say of a model and what the device says stand in one row, each with its reason."""
    place.device.set("plan_cpu = * ops=softmax")
    d = place.serve()

    def ctl(*args):
        p = run(anectl, "--socket", d.sock, *args, env=os.environ)
        assert p.returncode == 0, p.stdout + p.stderr
        return p.stdout
    ctl("convert", demo_gguf, "--name", "m", "--quant", "int4", "--context", "512")
    ctl("probe", "m")
    text = ctl("residency", "m")
    rows = {line.split()[0]: line for line in text.split("head_0.mlpackage\n")[0].splitlines() if line[:2] == "  " != line[2:4]}
    assert rows["operation"].split()[:3] == ["operation", "predicted", "measured"]
    assert rows["softmax"].split()[:5] == ["softmax", "5", "on", "5", "cpu"] and "could:" in rows["softmax"]
    assert rows["conv"].split()[:5] == ["conv", "35", "unknown", "35", "on"] and "weights.int4" in rows["conv"]
    assert rows["all"].split()[:2] == ["all", "others"] and rows["all"].split()[2:4] == rows["all"].split()[4:6]
