"""Which models stay in memory: keep-alive, pins, the byte budget, memory pressure, preload, and what is told of it."""
import json
import shutil
import threading
import time

import pytest

from conftest import BACKEND, SLOW_S, Daemon, status, until


@pytest.fixture(scope="module")
def made(aned, demo_gguf, tmp_path_factory):
    """A folder with the demo model's bundle as a, b, c and d."""
    top = tmp_path_factory.mktemp("residency")
    d = Daemon(aned, home=top / "home")
    try:
        assert d.convert(demo_gguf, "a", context=256)["state"] == "done"
    finally:
        assert d.close() == 0
    for name in "bcd":
        shutil.copytree(top / "home" / "models" / "a", top / "home" / "models" / name)
    return top / "home" / "models"


@pytest.fixture
def serve(made, make_daemon, tmp_path):
    """serve(conf text) -> a daemon with those four models."""
    def go(conf):
        home = tmp_path / "home"
        home.mkdir(mode=0o700)
        shutil.copytree(made, home / "models")
        (tmp_path / "aned.conf").write_text(conf)
        return make_daemon(home=home, args=["--config", str(tmp_path / "aned.conf")])
    return go


def say(d, model, tokens=2, **more):
    with d.http() as c:
        return c.post("/v1/completions", json={"model": model, "prompt": "What is aned?", "max_tokens": tokens,
                                               "temperature": 0, **more})


def use(d, *models, **more):
    for m in models:
        r = say(d, m, **more)
        assert r.status_code == 200, r.text


def model(d, name):
    with d.http() as c:
        return c.get(f"/aned/v1/models/{name}").json()


def loaded(d):
    with d.http() as c:
        return {m["name"] for m in c.get("/aned/v1/models").json()["models"] if m["state"] in ("loaded", "loading")}


def test_keep_alive_of_a_request(serve):
    d = serve("")
    use(d, "a")
    assert model(d, "a")["keep_alive_ms"] == 3600_000 and 0 < model(d, "a")["leaves_ms"] <= 3600_000
    use(d, "a", keep_alive="2s")
    m = model(d, "a")
    assert m["state"] == "ready" or m["leaves_ms"] <= 2000
    until(lambda: model(d, "a")["state"] == "ready")
    use(d, "a")
    assert model(d, "a")["keep_alive_ms"] == 3600_000, "the next load begins anew"
    use(d, "a", keep_alive=-1)
    assert model(d, "a")["keep_alive_ms"] is None and model(d, "a")["leaves_ms"] is None
    use(d, "a", keep_alive=0)
    until(lambda: model(d, "a")["state"] == "ready")
    use(d, "b")
    assert model(d, "b")["state"] == "loaded"


def test_what_keep_alive_may_be(serve):
    d = serve("")
    for bad in ["soon", "", "5 minutes", [1], True]:
        r = say(d, "a", keep_alive=bad)
        assert r.status_code == 400 and r.json()["error"]["param"] == "keep_alive", r.text
    with d.http() as c:
        r = c.post("/v1/chat/completions", json={"model": "a", "messages": [{"role": "user", "content": "Hi"}],
                                                 "max_tokens": 1, "keep_alive": "1h30m"})
        assert r.status_code == 200, r.text
        assert model(d, "a")["keep_alive_ms"] == 5400_000
        r = c.post("/aned/v1/models/a/load", json={"keep_alive": 90, "pinned": True})
        assert r.status_code == 200 and r.json()["pinned"] is True and r.json()["keep_alive_ms"] is None, r.text
        r = c.post("/aned/v1/models/a/load", json={"pinned": False})
        assert r.json()["keep_alive_ms"] == 90_000
        for bad in [{"pinned": 1}, {"keep_alive": "x"}, {"other": 1}]:
            r = c.post("/aned/v1/models/a/load", json=bad)
            assert r.status_code == 400 and r.json()["error"]["param"] in bad, r.text


def test_default_of_the_configuration(serve):
    d = serve("[engine]\nkeep_alive_s = 1\n")
    use(d, "a")
    until(lambda: model(d, "a")["state"] == "ready")


def test_the_least_recently_used_leaves_and_pinned_ones_last(serve):
    d = serve("[cache]\nmodels = 2\n")
    use(d, "a", "b", "a", "c")
    until(lambda: loaded(d) == {"a", "c"})
    with d.http() as c:
        assert c.post("/aned/v1/models/a/load", json={"pinned": True}).status_code == 200
    use(d, "c", "b", "d")
    until(lambda: loaded(d) == {"a", "d"})
    with d.http() as c:
        assert c.post("/aned/v1/models/d/load", json={"pinned": True}).status_code == 200
    use(d, "b")  # only pinned ones are left to go
    until(lambda: loaded(d) == {"b", "d"})


def test_preload_is_pinned(serve):
    d = serve("[engine]\npreload = b nobody c\nkeep_alive_s = 0\n")
    until(lambda: loaded(d) == {"b", "c"})
    assert model(d, "b")["pinned"] and model(d, "b")["leaves_ms"] is None
    assert "preload" in d.log.read_text() and "nobody" in d.log.read_text()


class Slow(threading.Thread):
    """Reads a long stream of `name` until told to stop."""

    def __init__(self, d, name):
        super().__init__(daemon=True)
        self.d, self.name_, self.stop, self.events = d, name, False, 0
        self.start()
        until(lambda: self.events > 0)

    def run(self):
        body = {"model": self.name_, "prompt": "What?", "max_tokens": 200, "stream": True, "ignore_eos": True}
        with self.d.http() as c:
            while not self.stop:
                with c.stream("POST", "/v1/completions", json=body) as r:
                    for line in r.iter_lines():
                        self.events += line.startswith("data")
                        if self.stop:
                            return


def test_the_budget_is_kept(serve):
    # of the states so little that any two fit, by some MiB: what a process needs beside them is measured when it is up
    mib = 96 if BACKEND == "coreml" else 48  # a device's library comes with each engine
    d = serve(f"[cache]\nmodels = 8\nstate_mib = 16\n[limits]\nmemory_mib = {mib}\n")

    def within():
        s = status(d)
        assert s["memory"]["budget_bytes"] == mib << 20
        assert s["memory"]["used_bytes"] == sum(x["engine"]["bytes"] for x in s["models"] if x["engine"])
        return 0 < s["memory"]["used_bytes"] <= mib << 20
    for m in "abcd":  # a size is known when the model is up; then another leaves, when its states are on the disk
        use(d, m)
        until(within)
    for m in "abdc":  # now others leave before it comes
        use(d, m)
        assert within()
        until(lambda: model(d, m)["state"] == "loaded")
    assert len(loaded(d)) < 4
    busy = Slow(d, "a")
    try:
        for m in "bcdbcd":
            use(d, m)
            assert "a" in loaded(d), "a model in use never leaves"
    finally:
        busy.stop = True
        busy.join(30 * SLOW_S)


def test_a_model_that_cannot_fit_is_refused(serve):
    d = serve("[limits]\nmemory_mib = 2\n")
    r = say(d, "a")
    assert r.status_code == 503 and r.json()["error"]["code"] == "no_memory", r.text
    assert "needs" in r.json()["error"]["message"] and r.headers["Retry-After"]
    assert d.children() == [], "nothing was started"


def test_memory_pressure_takes_states_first_then_models(serve, tmp_path):
    psi = tmp_path / "psi"
    total = 10_000_000

    def press():
        """One sign: the file says that a second was waited, once."""
        nonlocal total
        total += 1_000_000
        new = tmp_path / "psi.new"
        new.write_text(f"some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n")
        new.rename(psi)

    def signs():
        with d.http() as c:
            return c.get("/aned/v1/status").json()["memory"]["pressure_signs"]

    def step():
        n = signs()
        press()
        until(lambda: signs() > n)
        assert signs() == n + 1

    press()
    d = serve(f"[cache]\nmodels = 4\n[limits]\npressure_file = {psi}\n")
    use(d, "a", "b", "c")
    with d.http() as c:
        assert c.post("/aned/v1/models/a/load", json={"pinned": True}).status_code == 200
    assert [model(d, m)["engine"]["warm"] for m in "abc"] == [1, 1, 1]
    time.sleep(0.3)
    assert signs() == 0, "what was waited before does not count"
    step()
    until(lambda: [model(d, m)["engine"]["warm"] for m in "abc"] == [0, 0, 0])
    assert loaded(d) == {"a", "b", "c"}
    step()
    until(lambda: loaded(d) == {"a", "c"})
    step()
    until(lambda: loaded(d) == {"a"})
    busy = Slow(d, "a")
    step()
    assert loaded(d) == {"a"}, "a model in use never leaves"
    busy.stop = True
    busy.join(30 * SLOW_S)
    until(lambda: model(d, "a")["users"] == 0)
    step()  # its warm states
    assert loaded(d) == {"a"}
    step()
    until(lambda: loaded(d) == set())
    with d.http() as c:
        metrics = c.get("/metrics").text
    assert "aned_models_evicted_total 3\n" in metrics
    use(d, "a", "b")  # and everything still works


def test_events_follow_a_load(serve):
    d = serve("")
    seen = []

    def watch():
        with d.http() as c, c.stream("GET", "/aned/v1/models/a/events") as r:
            for line in r.iter_lines():
                if line.startswith("data: "):
                    j = json.loads(line[6:])
                    seen.append((j["state"], j["engine"] and j["engine"]["progress"]))
        seen.append("over")
    t = threading.Thread(target=watch, daemon=True)
    t.start()
    until(lambda: seen)
    assert seen == [("unverified", None)]
    use(d, "a", keep_alive=0)
    until(lambda: len(seen) > 2 and seen[-1] == ("ready", None))
    states = [s for s, _ in seen]
    assert states.index("loading") < states.index("loaded") < len(states) - 1
    # without an engine its files are hashed: this home's daemon did not end in order before, there was none
    progress = [p for s, p in seen if s == "loading" and p is not None]
    assert progress == sorted(progress) and progress[0] == 0
    with d.http() as c:
        assert c.delete("/aned/v1/models/a").status_code == 200
    t.join(60 * SLOW_S)
    assert seen[-1] == "over"
