"""What is measured of a bundle: `aned probe` on files; asked of the daemon, shown by anectl, kept over restarts; children that
are killed while they measure; models that say what a load is at."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import threading
import time

import pytest

from conftest import SLOW_S, catch, child_of, has_ended, stopped, until
from fake import make_home

WIDTHS = [1, 2, 3, 4]


@pytest.fixture(scope="module")
def bundles(aned, demo_gguf, tmp_path_factory):
    """The demo model in each form."""
    top = tmp_path_factory.mktemp("bundles")
    forms = {"ranged": [], "functions": ["--shape", "functions"], "host": ["--kv", "host"]}
    for name, options in forms.items():
        subprocess.run([aned, "convert", demo_gguf, "--out", top / name, "--context", "512", *options], check=True,
                       capture_output=True, stdin=subprocess.DEVNULL)
    return top


@pytest.fixture
def home(demo_home, tmp_path):
    """On the CPU, where nothing is measured that nobody asks for; of a device: tests/coreml/e2e."""
    to = tmp_path / "home"
    shutil.copytree(demo_home, to)
    (to / "aned.conf").write_text("[engine]\nbackend = cpu\n")
    return to


def run(*command, code=0, **kw):
    p = subprocess.run([str(c) for c in command], capture_output=True, text=True, stdin=subprocess.DEVNULL, **kw)
    assert p.returncode == code, p.stdout + p.stderr
    return p


def measured(aned, bundle, *options, code=0):
    return json.loads(run(aned, "probe", bundle, "--json", *options, code=code).stdout)


def widths(record, package):
    """Width -> what was measured, of all functions of a package."""
    return {w["width"]: w for f in record["report"]["functions"] if f["package"] == package for w in f["widths"]}


def classes(record, package):
    return next(p["classes"] for p in record["report"]["packages"] if p["package"] == package)


# --- aned probe ---

@pytest.mark.parametrize("backend,reference", [("cpu", "interpreter"), ("interpreter", "cpu")])
def test_probe_of_a_sound_bundle(aned, bundles, backend, reference):
    r = measured(aned, bundles / "ranged", "--backend", backend)
    assert (r["kind"], r["verdict"], r["reason"]) == ("measured", "passed", None)
    assert r["options"] == f"backend={backend}" and r["machine"].startswith("kernels ")
    assert r["widths"] == {"layers": WIDTHS, "heads": WIDTHS}
    assert r["report"]["lost"] == [] and r["report"]["margin"] is None and r["ops"] == []
    assert [p["reference"] for p in r["report"]["packages"]] == [reference] * 2
    for f in r["report"]["functions"]:
        assert f["plan"] is None and f["error"] is None  # there is no system to ask
        for w in f["widths"]:
            assert w["sound"] and w["cosine"] > 0.9999 and w["not_finite"] == 0 and w["median_us"] > 0
            assert w["cpu_only_us"] is None


def test_probe_of_functions(aned, bundles):
    """One function for each width, in one package: they agree where the interpreter runs both."""
    r = measured(aned, bundles / "functions", "--backend", "interpreter")
    assert r["widths"]["layers"] == [1, 4] and classes(r, "layers_00_05.mlpackage") == [[1, 4]]
    assert [f["function"] for f in r["report"]["functions"] if f["kind"] == "layers"] == ["t1", "t4"]
    r = measured(aned, bundles / "functions", "--backend", "interpreter", "--widths", "4")
    assert r["widths"] == {"layers": [4], "heads": [4]}


def test_probe_of_given_pasts(aned, bundles):
    """Without states the rows of a call come after the past in one sum, so a row's bits depend on the rows beside it: only
    one row at a time is the same whatever else is computed."""
    r = measured(aned, bundles / "host", "--backend", "interpreter")
    assert r["verdict"] == "warned" and "bits depend on the rows beside it" in r["reason"]
    assert r["widths"] == {"layers": [1], "heads": WIDTHS}
    w = widths(r, "layers_00_05.mlpackage")
    assert {t: x["steady"] for t, x in w.items()} == {1: True, 2: False, 3: False, 4: False}
    assert all(x["cosine"] > 0.9999 for x in w.values())


def test_probe_for_people(aned, bundles):
    text = run(aned, "probe", bundles / "functions", "--backend", "interpreter").stdout
    assert text.startswith("measured   passed  kernels ")
    assert "predicted  not run" in text and "widths     layers 1 4, heads 1 4" in text
    for package in ("layers_00_05.mlpackage", "head_0.mlpackage"):
        assert all(f"\n{package} {f}\n" in text for f in ("t1", "t4"))
    assert text.count("this backend has no plan") == 4


@pytest.mark.parametrize("options,code,says", [
    ([], 64, "one bundle"), (["a", "b"], 64, "one bundle"), (["b", "--widths", "1,x"], 64, "1,x"),
    (["b", "--widths", "4,1"], 64, "4,1"), (["b", "--widths", "0"], 64, "'0'"), (["b", "--time-out", "0"], 64, "'0'"),
    (["b", "--backend", "tpu"], 65, "no backend 'tpu'"), (["b"], 66, "not_found"), (["b", "--march"], 64, "option"),
])
def test_probe_refuses(aned, bundles, tmp_path, options, code, says):
    options = [str(bundles / "ranged") if o == "b" and code == 65 else o for o in options]
    assert says in run(aned, "probe", *options, code=code, cwd=tmp_path).stderr


def test_a_package_that_is_not_one(aned, bundles, tmp_path):
    """Its size is right, its bytes are not: the report says at which step, and measures the other."""
    shutil.copytree(bundles / "ranged", tmp_path / "b")
    path = next((tmp_path / "b" / "head_0.mlpackage").rglob("model.mlmodel"))
    path.write_bytes(b"\xff" * path.stat().st_size)
    r = measured(aned, tmp_path / "b", code=65)
    assert r["verdict"] == "failed" and r["reason"].startswith("head_0.mlpackage: open: ")
    assert r["widths"] == {"layers": WIDTHS, "heads": []}
    head = next(f for f in r["report"]["functions"] if f["kind"] == "head")
    assert head["error"]["step"] == "open" and head["error"]["code"] == "package.protobuf"


def workers(pid):
    """Children of a process."""
    return [int(x) for t in pathlib.Path(f"/proc/{pid}/task").iterdir() for x in (t / "children").read_text().split()]


def kill_after(aned, bundle, delay):
    """A probe whose child is killed once, some time after it began; its record, or None: it was too late, or too early."""
    p = subprocess.Popen([aned, "probe", str(bundle), "--backend", "interpreter", "--json"], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    found = []
    until(lambda: found.extend(workers(p.pid)) or found or p.poll() is not None)
    time.sleep(delay)
    if found and catch(found[0]):
        os.kill(found[0], signal.SIGKILL)
    out, err = p.communicate(timeout=120 * SLOW_S)
    if p.returncode == 69:
        assert err.startswith("backend.failed: ") and "before it began" in err, err
        return None
    assert p.returncode in (0, 65), err
    r = json.loads(out)
    return r if r["report"]["lost"] else None


def test_a_child_that_is_killed(aned, bundles):
    """Wherever that is: the step is named and left out, all else is measured."""
    seen = set()
    for i in range(40):
        r = kill_after(aned, bundles / "ranged", 0.02 * i * SLOW_S)
        if r is None:
            continue
        lost, = r["report"]["lost"]
        seen.add(lost["step"])
        assert lost["how"] == "was ended by signal 9"
        assert {p["package"] for p in r["report"]["packages"]} == {"layers_00_05.mlpackage", "head_0.mlpackage"}
        assert lost["package"] in r["reason"] and lost["step"] in r["reason"] and "signal 9" in r["reason"]
        mine = widths(r, lost["package"])
        if lost["step"] in ("compare", "time", "repeat") and lost["width"]:
            assert set(mine) == set(WIDTHS) - {lost["width"]}
            assert r["verdict"] == "warned"
        elif lost["step"] == "open":
            assert not mine and r["verdict"] == "failed"
        if len(seen) >= 2:
            break
    assert seen


# --- the daemon ---

def model(d, name="demo"):
    with d.http() as c:
        return c.get(f"/aned/v1/models/{name}").json()


def residency(d, name="demo"):
    with d.http() as c:
        r = c.get(f"/aned/v1/models/{name}/residency")
        assert r.status_code == 200, r.text
        return r.json()


def ask(d, name="demo"):
    with d.http() as c:
        r = c.post(f"/aned/v1/models/{name}/probe")
        assert r.status_code == 202, r.text
        return r.json()


def rests(d, name="demo"):
    return model(d, name)["probe"]["state"] not in ("queued", "running")


def test_a_report_is_kept(make_daemon, home, anectl):
    d = make_daemon(home=home)
    assert model(d)["probe"]["state"] == "unknown"
    empty = residency(d)
    assert empty["measured"] is None and empty["predicted"]["kind"] == "predicted" and empty["others"] == []
    with d.http() as c:
        assert c.get("/aned/v1/residency").json()["models"][0]["measured"] is None
    assert ask(d)["probe"]["state"] in ("queued", "running")
    until(lambda: rests(d))
    first = residency(d)
    p = first["probe"]
    assert p["state"] == p["verdict"] == "passed" and p["machine"].startswith("kernels ") and p["error"] is None
    assert first["measured"]["widths"] == {"layers": WIDTHS, "heads": WIDTHS}
    assert len(first["measured"]["report"]["functions"]) == 2
    with d.http() as c:
        one, = c.get("/aned/v1/residency").json()["models"]
    assert one["model"] == "demo" and one["measured"]["verdict"] == "passed"
    assert "report" not in one["measured"]
    d.kill()  # what was shown is durable
    d.start()
    assert residency(d)["measured"] == first["measured"]
    ask(d)
    until(lambda: rests(d))
    again = residency(d)
    assert again["measured"]["created_ms"] > first["measured"]["created_ms"] and again["others"] == []
    with d.http() as c:
        assert c.get("/aned/v1/models/none/residency").status_code == 404
        assert c.post("/aned/v1/models/none/probe").status_code == 404
        assert c.delete("/aned/v1/models/demo").status_code == 200
        assert c.get("/aned/v1/residency").json() == {"models": []}


def test_reports_of_two_backends(make_daemon, home, tmp_path):
    """Each is of its backend; what the other measured is among the others."""
    d = make_daemon(home=home)
    ask(d)
    until(lambda: rests(d))
    assert d.stop() == 0
    conf = tmp_path / "aned.conf"
    conf.write_text("[engine]\nbackend = interpreter\n")
    d = make_daemon(home=home, args=["--config", str(conf)])
    assert model(d)["probe"]["state"] == "unknown" and residency(d)["measured"] is None
    ask(d)
    until(lambda: rests(d))
    r = residency(d)
    assert r["measured"]["options"] == "backend=interpreter"
    other, = r["others"]
    assert other["options"] == "backend=cpu" and other["verdict"] == "passed" and "report" not in other


def test_anectl(make_daemon, home, anectl):
    d = make_daemon(home=home)

    def ctl(*args, code=0):
        return run(anectl, "--socket", d.sock, *args, code=code).stdout
    assert "measured   no report" in ctl("residency")
    text = ctl("probe", "demo")
    assert text.startswith("measured   passed  kernels ") and "layers_00_05.mlpackage" in text
    assert ctl("residency", "demo").splitlines()[2:] == text.splitlines()[2:]  # but for "0s ago"
    assert "measured   passed  kernels " in ctl("residency")
    j = json.loads(ctl("--json", "probe", "demo"))
    assert j["object"] == "aned.residency" and j["measured"]["verdict"] == "passed"
    assert json.loads(ctl("--json", "residency"))["models"][0]["model"] == "demo"
    assert "measured      passed on kernels " in ctl("show", "demo")
    for command in ("probe", "residency"):
        p = run(anectl, "--socket", d.sock, command, "none", code=66)
        assert "model_not_found" in p.stderr


def test_a_killed_worker_of_the_daemon(make_daemon, home):
    """The report names the step; a daemon that is killed meanwhile has none."""
    conf = home / "aned.conf"
    conf.write_text("[engine]\nbackend = interpreter\nthreads = 1\n")
    d = make_daemon(home=home)
    for _ in range(40):
        ask(d)
        until(lambda: model(d)["probe"]["stage"] or rests(d))  # it has begun
        pids = d.of_role("probe-worker")
        if pids and catch(pids[0]):
            os.kill(pids[0], signal.SIGKILL)
        until(lambda: rests(d))
        p = model(d)["probe"]
        if p["error"]:
            assert "before it began" in p["error"]
            continue
        lost = residency(d)["measured"]["report"]["lost"]
        if lost:
            assert lost[0]["how"] == "was ended by signal 9" and p["state"] in ("warned", "failed")
            assert lost[0]["step"] in p["reason"]
            break
    else:
        pytest.fail("it was always too late")
    before = residency(d)["measured"]
    ask(d)
    with stopped(child_of(d, "probe-worker")):
        assert model(d)["probe"]["state"] == "running"
        d.kill()
    d.start()
    assert residency(d)["measured"] == before
    until(lambda: not d.of_role("probe-worker"))


def test_the_daemon_ends_its_worker(make_daemon, home):
    d = make_daemon(home=home)
    ask(d)
    pid = child_of(d, "probe-worker")
    if catch(pid):
        assert d.stop() == 0
        until(lambda: has_ended(pid))


def test_a_device_that_this_build_has_not(make_daemon, home, aned, bundles):
    """A model for it is measured first, which cannot be done: the load says so, and the model is no worse."""
    p = subprocess.run([aned, "probe", bundles / "ranged", "--backend", "coreml"], capture_output=True, text=True,
                       stdin=subprocess.DEVNULL)
    if "no backend 'coreml'" not in p.stderr:
        pytest.skip("this build has the Core ML backend")
    (home / "aned.conf").write_text("[engine]\nbackend = coreml\n")
    d = make_daemon(home=home)
    with d.http() as c:
        r = c.post("/aned/v1/models/demo/load")
    assert r.status_code == 400 and "no backend 'coreml'" in r.json()["error"]["message"], r.text
    m = model(d)
    assert m["state"] == "ready" and m["probe"]["state"] == "unknown" and "coreml" in m["probe"]["error"]
    assert d.engines() == []  # nothing was begun that could not end well


def test_loads_on_the_cpu_measure_nothing(make_daemon, home):
    d = make_daemon(home=home)
    with d.http() as c:
        assert c.post("/v1/completions", json={"model": "demo", "prompt": "x", "max_tokens": 2}).status_code == 200
    assert model(d)["probe"]["state"] == "unknown"
    assert " probing " not in d.log.read_text()


# --- what a load is at ---

def test_warming_is_shown(make_daemon, tmp_path, anectl):
    """While every width runs for the first time: /health, the model, ps and show say so, with progress."""
    d = make_daemon(home=make_home(tmp_path / "home", fake=f"warm_ms {400 * SLOW_S}\n"))
    with d.http() as c:
        assert c.get("/health").json() == {"status": "ok"}

    def load():
        with d.http() as c:
            assert c.post("/aned/v1/models/fake/load").status_code == 200
    t = threading.Thread(target=load)
    t.start()
    try:
        until(lambda: model(d, "fake")["state"] == "warming")
        with d.http() as c:
            health = c.get("/health")
        m = model(d, "fake")
        ps = run(anectl, "--socket", d.sock, "ps").stdout
        show = run(anectl, "--socket", d.sock, "show", "fake").stdout
        assert m["state"] == "warming" and m["stage"] == "warming" and 0 < m["progress"] <= 1, m
        assert health.status_code == 200 and health.json()["status"] == "ok"
        assert health.json()["warming"][0]["model"] == "fake" and 0 < health.json()["warming"][0]["progress"] <= 1
        assert "warming" in ps and "%" in ps.splitlines()[1] and "\nstage         warming " in show
    finally:
        t.join(60 * SLOW_S)
    m = model(d, "fake")
    assert m["state"] == "loaded" and m["stage"] is None and m["progress"] is None
    with d.http() as c:
        assert c.get("/health").json() == {"status": "ok"}


def test_opening_is_shown(make_daemon, tmp_path):
    d = make_daemon(home=make_home(tmp_path / "home", fake="stop_load 1\n"))
    t = threading.Thread(target=lambda: d.http().post("/aned/v1/models/fake/load"))
    t.start()
    until(lambda: d.engines())
    engine = d.engines()[0]
    until(lambda: model(d, "fake")["stage"] == "opening")
    assert model(d, "fake")["state"] == "loading"
    until(lambda: open(f"/proc/{engine}/stat").read().rsplit(")", 1)[1].split()[0] == "T")
    os.kill(engine, signal.SIGCONT)
    t.join(60 * SLOW_S)
    assert model(d, "fake")["state"] == "loaded"
