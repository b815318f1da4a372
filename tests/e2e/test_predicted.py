"""Where a model's operations will run, by the rules: `aned residency` on files; the converter's gate, whose report the daemon
keeps beside what is measured."""
import json
import os
import shutil
import subprocess

import pytest

from conftest import until

OFF, ON, UNKNOWN = "cpu", "neural_engine", "unknown"


def run(*command, code=0):
    p = subprocess.run([str(c) for c in command], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert p.returncode == code, p.stdout + p.stderr
    return p


@pytest.fixture(scope="module")
def bundles(aned, demo_gguf, tmp_path_factory):
    top = tmp_path_factory.mktemp("bundles")
    forms = {"ranged": [], "functions": ["--shape", "functions"], "host": ["--kv", "host"], "int4": ["--quant", "int4"]}
    for name, options in forms.items():
        run(aned, "convert", demo_gguf, "--out", top / name, "--context", "512", *options)
    return top


def predicted(aned, path, *options):
    return json.loads(run(aned, "residency", path, "--json", *options).stdout)


def findings(r):
    return {(x["rule"], x["verdict"]) for f in r["functions"] for x in f["function"]["findings"]}


def verdicts(r):
    return {(o["rule"], o["device"]) for f in r["functions"] for o in f["ops"]}


@pytest.fixture
def home(tmp_path):
    """On the CPU, where nothing is measured that nobody asks for."""
    home = tmp_path / "home"
    (home / "models").mkdir(parents=True, mode=0o700)
    home.chmod(0o700)
    (home / "aned.conf").write_text("[engine]\nbackend = cpu\n")
    return home


# --- aned residency ---

@pytest.mark.parametrize("form", ["ranged", "functions"])
def test_the_demo_model_is_all_on(aned, bundles, form):
    """But for its size: so small a program is often given to the CPU, which is a warning."""
    r = predicted(aned, bundles / form)
    assert r["kind"] == "predicted" and r["summary"]["verdict"] == "warned" and r["summary"]["machine"] == "law"
    assert verdicts(r) == {("op.native", ON)} and findings(r) == {("program.floor", "unknown")}
    for f in r["functions"]:
        plan = f["function"]["plan"]
        assert plan["share"] == plan["share_of_cost"] == 1 and plan["operations"] == sum(o["count"] for o in f["ops"])
    names = [f["function"]["function"] for f in r["functions"]]
    assert names == (["", ""] if form == "ranged" else ["t1", "t4", "t1", "t4"])


def test_every_op(aned, bundles):
    r = predicted(aned, bundles / "int4", "--ops")
    for f in r["functions"]:
        every = f["every_op"]
        assert len(every) == f["function"]["plan"]["operations"] and abs(sum(o["cost"] for o in every) - 1) < 1e-6
        for o in every:
            want = ("unknown", "weights.int4") if o["type"] == "conv" else ("on", "op.native")
            assert (o["verdict"], o["rule"]) == want, o
    text = run(aned, "residency", bundles / "int4", "--ops").stdout
    assert text.startswith("warned  predicted for profile law: ") and " head_weight " not in text
    assert "unknown" in next(line for line in text.splitlines() if line.split()[:1] == ["layers_0_q"])
    assert verdicts(predicted(aned, bundles / "int4", "--profile", "m5")) == {("op.native", ON)}


def test_pasts_beside_ranged_inputs(aned, bundles):
    """Given pasts have no T. Their explicit range is what may keep Core ML from ending the process: nobody has tried."""
    r = predicted(aned, bundles / "host")
    assert findings(r) == {("input.explicit", "unknown"), ("program.floor", "unknown")} and verdicts(r) == {("op.native", ON)}
    assert any("input.explicit" in reason for reason in r["summary"]["reasons"])


def test_a_program_that_is_too_large(aned, bundles, tmp_path):
    """300 MB of weights (a hole in the file): more than law has, less than m4; 2.3 GB are too many for all."""
    shutil.copytree(bundles / "ranged" / "head_0.mlpackage", tmp_path / "p.mlpackage")
    weights = next((tmp_path / "p.mlpackage").rglob("weight.bin"))
    os.truncate(weights, 300_000_000)
    r = predicted(aned, tmp_path / "p.mlpackage")
    assert findings(r) == {("program.bytes", "unknown")} and verdicts(r) == {("op.native", ON)}
    assert "300.0 MB, profile law has 250 MB" in r["summary"]["reasons"][0]
    assert predicted(aned, tmp_path / "p.mlpackage", "--profile", "m4")["summary"]["verdict"] == "passed"
    os.truncate(weights, 2_300_000_000)
    r = predicted(aned, tmp_path / "p.mlpackage", "--profile", "m4")
    assert findings(r) == {("program.bytes_max", "off")} and verdicts(r) == {("program.bytes_max", OFF)}


@pytest.mark.parametrize("options,code,says", [
    ([], 64, "one package"), (["a", "b"], 64, "one package"), (["a", "--profile", "m99"], 64, "there are law"),
    (["a", "--march"], 64, "option"), (["a"], 66, "Manifest.json is absent"),
])
def test_refuses(aned, tmp_path, monkeypatch, options, code, says):
    monkeypatch.chdir(tmp_path)
    assert says in run(aned, "residency", *options, code=code).stderr


def test_a_package_that_is_not_one(aned, bundles, tmp_path):
    shutil.copytree(bundles / "ranged" / "head_0.mlpackage", tmp_path / "p.mlpackage")
    assert predicted(aned, tmp_path / "p.mlpackage")["functions"][0]["function"]["package"] == "package"
    path = next((tmp_path / "p.mlpackage").rglob("model.mlmodel"))
    path.write_bytes(b"\xff" * 100)
    assert "package.protobuf" in run(aned, "residency", tmp_path / "p.mlpackage", code=65).stderr


# --- the gate, and what is kept of it ---

def convert(d, source, name, **options):
    with d.http() as c:
        r = c.post("/aned/v1/jobs", json={"source": str(source), "name": name, "context": 512, **options})
        assert r.status_code == 202, r.text
        job = r.json()["id"]
        until(lambda: c.get(f"/aned/v1/jobs/{job}").json()["state"] in ("done", "failed"))
        return c.get(f"/aned/v1/jobs/{job}").json()


def residency(d, name):
    with d.http() as c:
        r = c.get(f"/aned/v1/models/{name}/residency")
        assert r.status_code == 200, r.text
        return r.json()


def test_a_report_is_kept(make_daemon, demo_gguf, home, anectl, aned):
    d = make_daemon(home=home)
    job = convert(d, demo_gguf, "m", quant="int4", profile="m4-max")
    assert job["state"] == "done"  # it warns, and rejects nothing
    gate = next(g for g in job["result"]["gates"] if g["name"] == "residency")
    assert gate["verdict"] == "warned" and gate["detail"].startswith("predicted for profile m4-max: ")
    r = residency(d, "m")
    p = r["predicted"]
    assert r["prediction"] == p["verdict"] == "warned" and r["measured"] is None and r["others"] == []
    assert (p["kind"], p["machine"], p["options"]) == ("predicted", "m4-max", "rules=1")
    assert [f["package"] for f in p["report"]["functions"]] == ["layers_00_05.mlpackage", "head_0.mlpackage"]
    assert not p["report"]["cut"] and p["reason"] == p["report"]["reasons"][0]
    assert {(o["rule"], o["device"]) for o in p["ops"] if o["type"] == "conv"} == {("weights.int4", UNKNOWN)}
    files = predicted(aned, home / "models" / "m", "--profile", "m4-max")
    assert p["report"]["functions"] == [f["function"] for f in files["functions"]]
    with d.http() as c:
        one, = c.get("/aned/v1/residency").json()["models"]
        assert one["prediction"] == "warned" and one["predicted"]["machine"] == "m4-max" and "report" not in one["predicted"]
        assert c.get("/aned/v1/models/m").json()["state"] == "ready"

    def text():
        lines = run(anectl, "--socket", d.sock, "residency", "m").stdout.splitlines()
        return [line for line in lines if " ago" not in line]
    first = text()
    row = next(line for line in first if line.split()[:1] == ["conv"])
    assert "unknown" in row and "weights.int4" in row
    assert "measured   no report" in first and any(line.split()[:2] == ["all", "others"] for line in first)
    d.kill()  # what was shown is durable
    d.start()
    assert residency(d, "m") == r and text() == first
    with d.http() as c:
        assert c.delete("/aned/v1/models/m").status_code == 200
        assert c.get("/aned/v1/residency").json() == {"models": []}


def test_beside_what_is_measured(make_daemon, demo_gguf, home, anectl):
    d = make_daemon(home=home)
    assert convert(d, demo_gguf, "m")["state"] == "done"
    before = residency(d, "m")["predicted"]
    run(anectl, "--socket", d.sock, "probe", "m")
    r = residency(d, "m")
    assert r["predicted"] == before and r["measured"]["verdict"] == "passed" and r["others"] == []
    text = run(anectl, "--socket", d.sock, "residency", "m").stdout
    assert "measured   passed" in text and "predicted  warned  law (rules=1)" in text
    assert "operation           predicted         measured" in text


def test_a_model_of_before(make_daemon, bundles, home, anectl):
    """It was converted elsewhere: no gate of this daemon has looked at it."""
    shutil.copytree(bundles / "ranged", home / "models" / "m")
    d = make_daemon(home=home)
    r = residency(d, "m")
    assert r["predicted"] is None and r["prediction"] == "not run"
    assert "predicted  not run" in run(anectl, "--socket", d.sock, "residency", "m").stdout
    assert "predicted  not run" in run(anectl, "--socket", d.sock, "residency").stdout
