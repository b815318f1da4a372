"""A device that fails while a daemon runs on it, in each way that the stand-in knows (standin/fault.h)."""
import pytest

from conftest import engine_pid, raw_post, until
from device import (  # noqa: F401  (bundle, place: fixtures)
    ask, bundle, compilings, counter, engine, load, model, place, residency, shown, stream, text)

CALM = "arith = fp16"  # the interpreter's bits, as always, in a file of another size
LAYERS, HEAD = "*layers_00_05*", "*head_0*"
NO_DISK = "[cache]\ndisk_mib = 0\n[speculation]\nmax_draft = 0\n"


def disturbed(p, d, *faults, at=10, **body):
    """The text of a stream in whose middle the device got these faults."""
    def switch(n):
        if n == at:
            p.device.set(CALM, *faults)
    return stream(d, switch, **body)


@pytest.fixture
def up(place):
    """A daemon whose model is loaded, and what it says undisturbed."""
    d = place.serve(NO_DISK)
    load(d)
    place.want = stream(d, lambda n: None)
    return d


@pytest.mark.smoke
@pytest.mark.parametrize("what", ["predict_error", "predict_exception"])
@pytest.mark.parametrize("package", [LAYERS, HEAD], ids=["layers", "head"])
def test_fails_once(place, up, what, package):
    """Nobody notices."""
    pid = engine_pid(up, "demo")
    assert disturbed(place, up, f"{what} = {package} from=3 times=1") == place.want
    assert engine_pid(up, "demo") == pid
    assert engine(up)["packages_reopened"] == engine(up)["packages_on_cpu"] == 0


@pytest.mark.parametrize("package", [LAYERS, HEAD], ids=["layers", "head"])
def test_fails_twice_and_is_opened_anew(place, up, package):
    pid = engine_pid(up, "demo")
    assert disturbed(place, up, f"predict_error = {package} from=3 times=2") == place.want
    assert engine_pid(up, "demo") == pid
    assert engine(up)["packages_reopened"] == 1 and engine(up)["packages_on_cpu"] == 0
    assert counter(up, "engine_packages_reopened_total") == 1
    assert "package_reopened" in up.log.read_text()


@pytest.mark.parametrize("what", [pytest.param("predict_error", marks=pytest.mark.smoke), "predict_exception"])
def test_fails_always(place, up, what):
    """Opened anew, then on the CPU; the answer goes on, and it is told everywhere."""
    pid = engine_pid(up, "demo")
    arith = engine(up)["arith"]
    whole = disturbed(place, up, f"{what} = {LAYERS}")
    assert len(whole) > 100
    r = ask(up)
    assert r["timings"]["package_on_cpu"] is True
    assert engine_pid(up, "demo") == pid
    e = engine(up)
    assert e["packages_on_cpu"] == 1 and "layers_00_05" in e["last_failure"] and e["arith"] != arith
    assert counter(up, "engine_packages_on_cpu_total") == 1
    s = shown(up)
    assert "on the CPU    1" in s and "last failure" in s, s
    log = up.log.read_text()
    assert "package_on_cpu" in log and "engine_on_cpu" in log
    with up.http() as c:  # the next engine begins on the device again
        assert c.post("/aned/v1/models/demo/unload").status_code == 200
    until(lambda: model(up)["state"] == "ready")
    place.device.set(CALM + "  # again")
    r = ask(up, max_tokens=20)
    assert "package_on_cpu" not in r["timings"] and engine(up)["arith"] == arith


def test_head_and_layers_on_the_cpu_give_the_cpus_tokens(place, up):
    place.device.set(CALM, "predict_error = *")
    got = text(up, max_tokens=100)
    assert engine(up)["packages_on_cpu"] == 2
    up.stop()
    d = place.serve(NO_DISK, backend="cpu")
    assert text(d, max_tokens=100) == got


@pytest.mark.parametrize("what", [pytest.param("predict_kill", marks=pytest.mark.smoke), "predict_abort"])
def test_the_engine_dies_once(place, up, what):
    pid = engine_pid(up, "demo")
    assert disturbed(place, up, f"{what} = {LAYERS} from=3 once={place.folder / 'died'}") == place.want
    assert (place.folder / "died").exists() and engine_pid(up, "demo") != pid


def test_the_engine_dies_always(place, up):
    place.device.set(CALM, f"predict_kill = {LAYERS}")
    with up.http() as c:
        r = c.post("/v1/completions", json={"model": "demo", "prompt": "x", "max_tokens": 5})
        assert r.status_code == 503 and "3 crashes" in r.json()["error"]["message"], r.text
    m = model(up)
    assert m["state"] == "failed" and "signal 9" in m["reason"], m
    place.device.set(CALM + " # well")
    load(up)
    assert stream(up, lambda n: None) == place.want


def test_hangs_in_a_prediction(place):
    """[engine] step_ms bounds it: the engine is killed, the stream goes on."""
    d = place.serve("step_ms = 5000\n" + NO_DISK)
    load(d)
    want = stream(d, lambda n: None)
    pid = engine_pid(d, "demo")
    assert disturbed(place, d, f"predict_hang = {LAYERS} from=3 once={place.folder / 'hung'}") == want
    assert engine_pid(d, "demo") != pid


def begin_load(d):
    """A load that nobody waits for: who asked has hung up. As long as somebody does, to unload is refused."""
    with raw_post(d, {}, path="/aned/v1/models/demo/load"):
        until(lambda: model(d)["state"] == "loading" and model(d)["engine"])
        with d.http() as c:
            assert c.post("/aned/v1/models/demo/unload").status_code == 409
    until(lambda: model(d)["users"] == 0)


def unload(d):
    with d.http() as c:
        r = c.post("/aned/v1/models/demo/unload")
        assert r.status_code == 200, r.text
    until(lambda: model(d)["state"] == "ready" and not d.engines(), 60)


def test_hangs_in_a_load(place, up):
    """No key of aned.conf bounds a load (the system may specialise for half an hour); to unload ends it."""
    unload(up)
    place.device.set(CALM, f"load_hang = {HEAD}")
    begin_load(up)
    unload(up)
    place.device.set(CALM + "  # well")
    assert stream(up, lambda n: None) == place.want


@pytest.mark.smoke
def test_ignored_backings(place, up):
    assert disturbed(place, up, "backings_ignored = *") == place.want
    assert stream(up, lambda n: None) == place.want


def refused(r):
    return r.status_code == 409 and r.json()["error"]["code"] == "model.rejected"


def probe_again(d):
    with d.http() as c:
        r = c.post("/aned/v1/models/demo/probe")
        assert r.status_code == 202, r.text
    until(lambda: model(d)["state"] == "ready" and model(d)["probe"]["state"] in ("passed", "warned"))


@pytest.mark.smoke
def test_nan_is_rejected(place):
    place.device.set(CALM, f"predict_nan = {LAYERS}")
    d = place.serve()
    with d.http() as c:
        r = c.post("/v1/completions", json={"model": "demo", "prompt": "x", "max_tokens": 3})
        assert refused(r) and "layers_00_05" in r.json()["error"]["message"], r.text
        m = model(d)
        assert m["state"] == "rejected" and "layers_00_05" in m["reason"], m
        assert residency(d)["measured"]["verdict"] == "failed"
        assert not d.engines()
    place.device.set(CALM)
    probe_again(d)
    assert len(text(d)) > 20


@pytest.mark.smoke
def test_load_succeeds_and_predict_kills(place):
    """The probe's children die, the daemon does not."""
    place.device.set(CALM, f"predict_kill = {LAYERS}")
    d = place.serve()
    pid = d.proc.pid
    with d.http() as c:
        r = c.post("/v1/completions", json={"model": "demo", "prompt": "x", "max_tokens": 3})
        assert refused(r), r.text
        assert c.get("/health").status_code == 200
    m = model(d)
    assert m["state"] == "rejected" and "signal 9" in m["reason"], m
    lost = residency(d)["measured"]["report"]["lost"]
    assert lost and all(x["package"] == "layers_00_05.mlpackage" and "signal 9" in x["how"] for x in lost), lost
    assert d.proc.pid == pid and d.proc.poll() is None and not d.engines()


def test_one_width_kills(place):
    """Only what kills is left out: the model runs on the other widths."""
    place.device.set(CALM, f"predict_kill = {LAYERS} once={place.folder / 'once'}")
    d = place.serve()
    load(d)
    m = residency(d)["measured"]
    assert m["verdict"] == "warned" and len(m["report"]["lost"]) == 1, m
    assert m["report"]["lost"][0]["width"] not in m["widths"]["layers"]


@pytest.mark.smoke
def test_wrong_plan(place):
    place.device.set(CALM, f"plan_cpu = {LAYERS} ops=conv,ios17.conv")
    d = place.serve()
    load(d)
    m = residency(d)["measured"]
    plan = {f["package"]: f["plan"] for f in m["report"]["functions"]}
    assert plan["layers_00_05.mlpackage"]["on_neural_engine"] < plan["layers_00_05.mlpackage"]["operations"]
    assert plan["head_0.mlpackage"]["share"] == 1
    assert m["verdict"] == "warned" and any("layers_00_05" in x and "Neural Engine" in x for x in m["report"]["reasons"]), m


@pytest.mark.parametrize("what", [pytest.param("load_error", marks=pytest.mark.smoke), "load_exception", "load_kill", "load_abort"])
def test_does_not_load(place, what):
    """-14 and worse: rejected, with the reason; well again it is measured anew when somebody asks."""
    place.device.set(CALM, f"{what} = {HEAD}")
    d = place.serve()
    with d.http() as c:
        r = c.post("/v1/completions", json={"model": "demo", "prompt": "x", "max_tokens": 3})
    assert refused(r), r.text
    m = model(d)
    assert m["state"] == "rejected" and "head_0" in m["reason"], m
    assert m["probe"]["machine"].endswith("fast prediction")  # although nothing opened that could tell
    place.device.set(CALM + " # well")
    probe_again(d)
    assert len(text(d)) > 20


def test_a_failure_is_of_the_machine(place):
    """Behind a restart nobody measures again to learn which machine this is."""
    place.device.set(CALM, "load_error = *")
    d = place.serve()
    with d.http() as c:
        assert refused(c.post("/v1/completions", json={"model": "demo", "prompt": "x", "max_tokens": 3}))
    machine = model(d)["probe"]["machine"]
    assert machine and d.stop() == 0
    d = place.serve()
    until(lambda: "machine_known" in d.log.read_text())
    m = model(d)
    assert m["state"] == "rejected" and m["probe"]["machine"] == machine
    assert "model_probed" not in d.log.read_text() and compilings(d) == 0


def test_what_was_compiled_does_not_load_any_more(place, up):
    """Error -14 of a package that was compiled earlier: it is compiled anew, and nobody notices."""
    assert up.stop() == 0
    place.device.set(CALM, f"load_error = {HEAD} once={place.folder / 'once'}")
    d = place.serve(NO_DISK)
    load(d)
    assert compilings(d) == 1 and (place.folder / "once").exists()
    assert stream(d, lambda n: None) == place.want


@pytest.mark.smoke
def test_slow_specialisation(place):
    """State `warming`, progress, no step time-out; to unload ends it."""
    d = place.serve("step_ms = 1000\n" + NO_DISK)
    load(d)
    want = stream(d, lambda n: None)
    unload(d)
    place.device.set(CALM, "shape_ms = 1200")  # more than a step may take
    begin_load(d)
    seen, told = [], ""

    def over():
        nonlocal told
        m = model(d)
        if m["state"] == "warming":
            assert m["stage"] == "warming"
            seen.append(m["progress"])
            with d.http() as c:  # one of these may come when it is over
                told += shown(d) + c.get("/health").text
        return m["state"] == "loaded"
    until(over)
    assert seen == sorted(seen) and len(set(seen)) > 2, seen
    assert "stage         warming" in told and '"warming":' in told, told
    assert stream(d, lambda n: None) == want
    assert counter(d, "engine_restarts_total") == 0
    unload(d)
    place.device.set(CALM, "shape_ms = 5000")
    begin_load(d)
    until(lambda: model(d)["state"] == "warming")
    unload(d)
