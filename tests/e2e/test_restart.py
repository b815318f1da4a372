"""What survives: jobs over kill -9, models over a restart, an engine that is killed."""
import os
import signal
import subprocess
import threading
import time

from conftest import OVER, SLOW_S, child_of, status, stopped, until

QUESTION = {"model": "demo", "messages": [{"role": "user", "content": "What is aned?"}], "temperature": 0,
            "max_tokens": 40}


def answer(d):
    with d.http() as c:
        r = c.post("/v1/chat/completions", json=QUESTION)
        assert r.status_code == 200, r.text
        return r.json()["choices"][0]["message"]["content"]


def test_models_are_there_after_a_restart(make_daemon, demo_gguf, tmp_path):
    home = tmp_path / "home"
    a = make_daemon(home=home)
    assert a.convert(demo_gguf, "demo", context=256)["state"] == "done"
    text = answer(a)
    assert a.stop() == 0
    b = make_daemon(home=home)
    assert answer(b) == text


def test_a_job_survives_kill_9(make_daemon, demo_gguf, tmp_path):
    home = tmp_path / "home"
    a = make_daemon(home=home)
    with a.http() as c:
        ids = [c.post("/aned/v1/jobs", json={"source": str(demo_gguf), "name": f"m{i}", "context": 256}).json()["id"]
               for i in range(3)]
    a.kill()
    b = make_daemon(home=home)
    end = time.monotonic() + 120 * SLOW_S
    with b.http() as c:
        while True:
            states = [c.get(f"/aned/v1/jobs/{i}").json()["state"] for i in ids]
            if all(s in OVER for s in states) or time.monotonic() > end:
                break
            time.sleep(0.1)
        assert all(s in ("done", "interrupted") for s in states), states
        listed = {m["name"] for m in c.get("/aned/v1/models").json()["models"]}
        for i, s in enumerate(states):
            assert (f"m{i}" in listed) == (s == "done")
    until(lambda: not list((home / "staging").iterdir()))  # a thread removes what is left


def test_a_killed_engine_is_replaced_and_the_stream_goes_on(make_daemon, demo_gguf):
    d = make_daemon()
    assert d.convert(demo_gguf, "demo", context=512)["state"] == "done"
    want = answer(d)
    engine = child_of(d, "engine")
    got = []
    t = threading.Thread(target=lambda: got.append(answer(d)))
    with stopped(engine):
        t.start()
        until(lambda: status(d)["running"] == 1)
        os.kill(engine, signal.SIGKILL)
    t.join(120 * SLOW_S)
    assert got == [want]
    assert answer(d) == want


def test_a_second_daemon_is_refused(make_daemon, aned, tmp_path):
    a = make_daemon()
    r = subprocess.run([aned, "serve", "--home", str(tmp_path / "other"), "--socket", str(a.sock)],
                       capture_output=True, timeout=30 * SLOW_S)
    assert r.returncode in (75, 78), r.stderr
    r = subprocess.run([aned, "serve", "--home", str(a.home), "--socket", str(tmp_path / "run" / "x.sock")],
                       capture_output=True, timeout=30 * SLOW_S)
    assert r.returncode in (75, 78), r.stderr
    with a.http() as c:
        assert c.get("/health").status_code == 200
