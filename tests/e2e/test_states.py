"""Warm state that survives: saved to disk, found again after a restart or a dead engine, never trusted blindly,
within its budgets."""
import json
import os
import shutil
import signal
import stat

import pytest

from conftest import Daemon, metric
from conftest import until as happens

WORDS = ("What is aned? It is a daemon that keeps models and sessions warm. " * 40).split()


def prompt(n, salt=""):
    return salt + " ".join(WORDS[:n])


def ask(d, text, **more):
    with d.http() as c:
        r = c.post("/v1/completions", json={"model": "demo", "prompt": text, "temperature": 0, "max_tokens": 12,
                                             "ignore_eos": True, **more})
        assert r.status_code == 200, r.text
        j = r.json()
        return j["choices"][0]["text"], j["usage"]["prompt_tokens"], j["usage"]["prompt_tokens_details"]["cached_tokens"]


def until(d, name, least):
    """Wait for a metric to reach a value: saving happens when the engine idles."""
    happens(lambda: metric(d, name) >= least)


@pytest.fixture(scope="module")
def home_with_demo(aned, demo_gguf, tmp_path_factory):
    home = tmp_path_factory.mktemp("states") / "home"
    d = Daemon(aned, home=home)
    assert d.convert(demo_gguf, "demo", context=512)["state"] == "done"
    assert d.close() == 0
    return home


@pytest.fixture
def world(make_daemon, home_with_demo, tmp_path):
    """world(**cache options) -> a daemon on the test's own copy of the home; again: the next life of it."""
    home = tmp_path / "home"
    shutil.copytree(home_with_demo, home, ignore=shutil.ignore_patterns("*.sock", "run"))

    def start(backend="cpu", **options):
        conf = tmp_path / "aned.conf"
        lines = {"disk_tokens": 64, **options}
        conf.write_text(f"[engine]\nbackend = {backend}\n[cache]\n" + "".join(f"{k} = {v}\n" for k, v in lines.items()))
        d = make_daemon(home=home, args=["--config", str(conf)])
        d.states = home / "cache" / "states"
        return d
    return start


def files(d):
    return sorted(p for p in d.states.iterdir())


def settled(d, saves):
    """So many states were saved, and what made way for them is gone: a save is refused while the disk is too full."""
    until(d, "states_saves_total", saves)
    happens(lambda: len(files(d)) == metric(d, "states_files"))


def test_after_a_restart(world):
    a = world()
    text, n, cached = ask(a, prompt(120))
    assert n > 130 and cached == 0
    assert a.stop() == 0
    saved = files(a)
    assert len(saved) == 1 and saved[0].suffix == ".state"
    assert stat.S_IMODE(saved[0].stat().st_mode) == 0o600
    assert stat.S_IMODE(a.states.stat().st_mode) == 0o700
    b = world()
    again, n2, cached = ask(b, prompt(120))
    assert (again, n2) == (text, n)
    assert cached == (n - 1) // 64 * 64
    assert metric(b, "states_loads_total") == 1
    assert metric(b, "states_loaded_tokens_total") == cached
    # a longer one continues from it; a different one does not
    assert ask(b, prompt(180))[2] >= cached
    assert ask(b, prompt(120, "No: "))[2] == 0
    # nobody asked for it
    b.stop()
    c = world()
    assert ask(c, prompt(120), cache_prompt=False)[::2] == (text, 0)


def test_backends_do_not_share(world):
    """The interpreter keeps states too; what one backend saved is nothing to the other."""
    a = world(backend="interpreter")
    text, n, _ = ask(a, prompt(60))
    a.stop()
    assert len(files(a)) == 1
    b = world()
    assert ask(b, prompt(60))[2] == 0
    b.stop()
    assert len(files(b)) == 2
    c = world(backend="interpreter")
    assert ask(c, prompt(60))[::2] == (text, (n - 1) // 64 * 64)


def test_deltas(world):
    """What is there already is not written again, and a timeline of several files is one."""
    d = world()
    long = prompt(300)
    n = ask(d, prompt(120))[1]
    until(d, "states_saves_total", 1)
    first = metric(d, "states_bytes")
    text, n2, _ = ask(d, long)
    assert n2 > n + 128
    until(d, "states_saves_total", 2)
    both = metric(d, "states_bytes")
    assert both < first * n2 / n * 1.3
    d.stop()
    e = world()
    again, _, cached = ask(e, long)
    assert again == text and cached == (n2 - 1) // 64 * 64
    e.stop()
    assert len(files(e)) == 2


def test_a_dead_engine_and_a_dead_daemon(world):
    d = world()
    text, n, _ = ask(d, prompt(120))
    until(d, "states_saves_total", 1)
    for pid in d.engines():
        os.kill(pid, signal.SIGKILL)
    with d.http() as c:  # who comes before the daemon knows would still count on the engine's memory
        happens(lambda: c.get("/aned/v1/models/demo").json()["engine"] is None)
    again, _, cached = ask(d, prompt(120))
    assert again == text and cached == (n - 1) // 64 * 64
    (d.states / "0000000000000001.state.part").write_bytes(b"half")
    d.kill()
    e = world()
    assert [p for p in files(e) if p.suffix != ".state"] == []  # half a file of an engine that died
    again, _, cached = ask(e, prompt(120))
    assert again == text and cached == (n - 1) // 64 * 64


def test_a_stream_goes_on_from_disk(world):
    """The engine dies under a stream: what a file has of its timeline is loaded, the rest computed, the text the same."""
    a = world(backend="interpreter")  # whose answer takes long enough to be in the middle of
    want, n, _ = ask(a, prompt(120), max_tokens=300)
    a.stop()
    b = world(backend="interpreter")
    body = {"model": "demo", "prompt": prompt(120), "temperature": 0, "max_tokens": 300, "ignore_eos": True, "stream": True}
    text, killed = "", False
    with b.http() as c, c.stream("POST", "/v1/completions", json=body) as r:
        for line in r.iter_lines():
            text += json.loads(line[6:])["choices"][0]["text"] if line.startswith("data: {") else ""
            if text and not killed:
                os.kill(b.engines()[0], signal.SIGKILL)
                killed = True
    assert text == want
    assert metric(b, "engine_restarts_total") == 1
    assert metric(b, "states_loads_total") == 2  # for the prompt, and for the stream
    assert metric(b, "states_loaded_tokens_total") >= 2 * ((n - 1) // 64 * 64)


@pytest.mark.parametrize("fault", ["block", "header", "cut", "empty", "gone"])
def test_damage(world, fault):
    a = world()
    text, n, _ = ask(a, prompt(120))
    a.stop()
    (f,) = files(a)
    data = bytearray(f.read_bytes())
    b = world() if fault in ("block", "gone") else None  # the index is read before, or after
    if fault == "block":
        data[len(data) // 3] ^= 1
    elif fault == "header":
        data[40] ^= 1
    elif fault == "cut":
        del data[-1]
    elif fault == "empty":
        data.clear()
    f.write_bytes(data)
    if fault == "gone":
        f.unlink()
    b = b or world()
    again, _, cached = ask(b, prompt(120))
    assert again == text
    assert cached == 0
    assert metric(b, "states_damaged_total") == 1
    # and it is good for the next one
    b.stop()
    c = world()
    assert ask(c, prompt(120))[::2] == (text, (n - 1) // 64 * 64)


def test_a_write_budget(world):
    """As many bytes as an hour allows, and no more; an hour is not over after a restart."""
    d = world(write_mib_per_hour=1)
    for i in range(12):
        ask(d, prompt(120, f"Number {i}: "))
    d.stop()
    sizes = [p.stat().st_size for p in files(d)]
    assert sizes and sum(sizes) <= 1 << 20
    assert len(sizes) < 12
    e = world(write_mib_per_hour=1)
    for i in range(12):
        ask(e, prompt(120, f"Once more {i}: "))
    e.stop()
    assert sum(p.stat().st_size for p in files(e)) <= 1 << 20
    # nor when the files are gone: what was written is written
    wrote = 0
    for life in range(3):
        for p in files(d):
            wrote += p.stat().st_size
            p.unlink()
        f = world(write_mib_per_hour=1)
        for i in range(12):
            ask(f, prompt(120, f"Life {life}, number {i}: "))
        f.stop()
    assert 1 << 18 < wrote + sum(p.stat().st_size for p in files(d)) <= 1 << 20
    assert stat.S_IMODE((d.states.parent / "states.budget").stat().st_mode) == 0o600


def test_nothing_is_written_when_off(world):
    for off in ({"disk_mib": 0}, {"write_mib_per_hour": 0}):
        d = world(**off)
        ask(d, prompt(120))
        assert d.stop() == 0
        assert files(d) == []


def test_a_bound_of_bytes(world):
    """The oldest go; what was asked for last is there. With one sequence in memory each prompt saves the one before it."""
    d = world(disk_mib=1, sessions=1)
    for i in range(12):
        ask(d, prompt(120, f"Number {i}: "))
        settled(d, i)
        assert sum(p.stat().st_size for p in files(d)) <= 1 << 20
    assert metric(d, "states_evicted_total") > 0
    d.stop()
    assert sum(p.stat().st_size for p in files(d)) <= 1 << 20
    e = world(disk_mib=1)
    assert ask(e, prompt(120, "Number 11: "))[2] > 0
    assert ask(e, prompt(120, "Number 0: "))[2] == 0


def test_places_lost_to_others_are_saved(world):
    """Two sequences in memory, six sessions: what makes way is saved, not computed again."""
    d = world(sessions=2)
    texts = [ask(d, prompt(120, f"Number {i}: "))[:2] for i in range(6)]
    for i, (text, n) in enumerate(texts):
        again, _, cached = ask(d, prompt(120, f"Number {i}: "))
        assert again == text and cached >= (n - 1) // 64 * 64


def test_a_place_for_a_load_does_not_cost_its_files(world):
    """One sequence in memory, the disk full: its state is saved where the oldest file was, but not that which is wanted."""
    d = world(sessions=1, disk_mib=1)
    texts = []
    for i in range(18):
        texts.append(ask(d, prompt(120, f"Number {i}: "), ignore_eos=True)[:2])
        settled(d, i)
    oldest = int(metric(d, "states_saves_total") - metric(d, "states_files"))
    assert oldest > 0
    text, n = texts[oldest]
    assert ask(d, prompt(120, f"Number {oldest}: "), ignore_eos=True) == (text, n, (n - 1) // 64 * 64)
    assert metric(d, "states_damaged_total") == 0


def test_a_deleted_model_takes_its_states_along(world):
    d = world()
    ask(d, prompt(120))
    until(d, "states_saves_total", 1)
    with d.http() as c:
        assert c.delete("/aned/v1/models/demo").status_code in (200, 204)
    happens(lambda: files(d) == [])


@pytest.mark.parametrize("killer", [1, 5, 12])
def test_many_at_once_after_a_restart(world, killer):
    """One load serves all who wait for it; who leaves meanwhile, and an engine that dies while prompts wait for their
    files or after that, change no text."""
    import concurrent.futures

    import httpx
    a = world()
    want = {i: ask(a, prompt(120, f"Number {i}: ")) for i in range(4)}
    a.stop()
    b = world()
    with b.http() as c:
        assert c.post("/aned/v1/models/demo/load", json={}).status_code == 200

    def one(k):
        i = k % 4
        if k % 5 == 4:  # leaves at once
            with b.http() as c:
                try:
                    c.post("/v1/completions", json={"model": "demo", "prompt": prompt(120, f"Number {i}: "),
                                                    "max_tokens": 12}, timeout=0.02)
                except httpx.TimeoutException:
                    pass
            return None
        if k == killer:
            for pid in b.engines():
                os.kill(pid, signal.SIGKILL)
        return i, ask(b, prompt(120, f"Number {i}: "))

    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        got = [x for x in pool.map(one, range(20)) if x is not None]
        # When all these are over, the engine is the one that lives on; it is asked for each prompt from here on.
        got += [x for x in pool.map(one, range(20, 40)) if x is not None]
    assert metric(b, "engine_starts_total") == 2
    for i, (text, n, cached) in got:
        assert (text, n) == want[i][:2]
        assert cached < n
    assert metric(b, "states_loads_total") >= 4
    assert metric(b, "states_damaged_total") == 0
    for i, (text, n, _) in want.items():
        assert ask(b, prompt(120, f"Number {i}: "))[::2] == (text, n - 1)
    assert b.stop() == 0
