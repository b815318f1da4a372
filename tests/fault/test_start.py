"""Ready means that every read of the store has come back: until then /health says so and other requests wait. The socket
is handed over, so that clients are there before the daemon is; the store stands at a gate."""
import concurrent.futures
import socket

import pytest

from conftest import SLOW_S, until
from faulty import faulty, handed_over, new_home  # noqa: F401 (fixtures)

ASK = {"model": "bad", "prompt": "x", "max_tokens": 4}


@pytest.fixture
def home(faulty, tmp_path):
    """One job that is done, and its model, which is rejected."""
    home = new_home(tmp_path / "home")
    d = faulty(home)
    source = tmp_path / "source.gguf"
    source.write_bytes(b"x")
    assert d.convert(source, "bad")["state"] == "done"
    assert d.models()["bad"]["state"] == "rejected"
    assert d.stop() == 0
    return home


def health(d):
    """Of a daemon that listens already; connections before that wait in the socket's queue."""
    with d.http() as c:
        return c.get("/health")


def test_first_answers_are_true(handed_over, home, tmp_path):
    gate = tmp_path / "gate"
    gate.touch()
    d = handed_over(home, gate)
    r = health(d)
    assert r.status_code == 503 and r.json()["error"]["code"] == "starting", r.text
    assert int(r.headers["retry-after"]) >= 1

    def jobs(_):
        with d.http() as c:
            return [j["state"] for j in c.get("/aned/v1/jobs").json()["jobs"]]

    def generate(_):
        with d.http() as c:
            return c.post("/v1/completions", json=ASK).json().get("error", {}).get("code")
    with concurrent.futures.ThreadPoolExecutor(21) as pool:
        asked = [pool.submit(jobs, i) for i in range(15)] + [pool.submit(generate, i) for i in range(6)]
        until(lambda: sum(f.running() for f in asked) == 21)
        assert health(d).status_code == 503  # an answer to what came after them: none of them has one
        assert not any(f.done() for f in asked)
        gate.unlink()
        got = [f.result(60 * SLOW_S) for f in asked]
    assert got == [["done"]] * 15 + ["model.rejected"] * 6
    assert health(d).status_code == 200
    assert d.close() == 0


def test_who_waits_is_counted(handed_over, home, tmp_path):
    """More than HTTP_HELD_MAX are refused at once, with the same code."""
    gate = tmp_path / "gate"
    gate.touch()
    d = handed_over(home, gate)

    def ask(_):
        with d.http() as c:
            r = c.get("/aned/v1/jobs")
            return r.status_code, len(r.json().get("jobs", []))
    with concurrent.futures.ThreadPoolExecutor(300) as pool:
        asked = [pool.submit(ask, i) for i in range(300)]
        until(lambda: sum(f.done() for f in asked) == 300 - 256)
        gate.unlink()
        got = [f.result(60 * SLOW_S) for f in asked]
    assert got.count((200, 1)) == 256 and got.count((503, 0)) == 300 - 256
    assert d.close() == 0


def test_a_stop_while_starting(handed_over, home, tmp_path):
    """Requests that wait get an answer; nothing is left and nothing hangs."""
    gate = tmp_path / "gate"
    gate.touch()
    d = handed_over(home, gate)
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(60 * SLOW_S)
        s.connect(str(d.sock))
        s.sendall(b"GET /aned/v1/jobs HTTP/1.1\r\nHost: a\r\n\r\n")
        assert health(d).status_code == 503  # an answer to what came after it: the daemon holds the first
        d.proc.terminate()
        assert s.recv(65536).startswith(b"HTTP/1.1 503 ")
        gate.unlink()
    assert d.proc.wait(30 * SLOW_S) == 0
