"""Ready means that every read of the store has come back: until then /health says so and other requests wait. The socket
is handed over, so that clients are there before the daemon is; the store stands at a gate."""
import concurrent.futures
import json
import select
import socket

import pytest

from conftest import SLOW_S, raw_post, until
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


def raw_get(d, path):
    """A connection of its own that has asked, and reads nothing."""
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(60 * SLOW_S)
    s.connect(str(d.sock))
    s.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
    return s


def answer(s):
    """The JSON of what comes until the end."""
    data = b""
    while chunk := s.recv(65536):
        data += chunk
    s.close()
    return json.loads(data.split(b"\r\n\r\n", 1)[1])


def test_first_answers_are_true(handed_over, home, tmp_path):
    gate = tmp_path / "gate"
    gate.touch()
    d = handed_over(home, gate)
    r = health(d)
    assert r.status_code == 503 and r.json()["error"]["code"] == "starting", r.text
    assert int(r.headers["retry-after"]) >= 1

    asked = [raw_get(d, "/aned/v1/jobs") for _ in range(15)] + [raw_post(d, ASK) for _ in range(6)]
    assert health(d).status_code == 503  # an answer to what came after them: none of them has one
    assert select.select(asked, [], [], 0)[0] == []
    gate.unlink()
    got = [answer(s) for s in asked]
    assert [[j["state"] for j in a["jobs"]] for a in got[:15]] == [["done"]] * 15
    assert [a["error"]["code"] for a in got[15:]] == ["model.rejected"] * 6
    assert health(d).status_code == 200
    assert d.close() == 0


def test_who_waits_is_counted(handed_over, home, tmp_path):
    """More than HTTP_HELD_MAX are refused at once, with the same code."""
    gate = tmp_path / "gate"
    gate.touch()
    d = handed_over(home, gate)
    assert health(d).status_code == 503  # it listens: as many may wait for it as there are

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
    with raw_get(d, "/aned/v1/jobs") as s:
        assert health(d).status_code == 503  # an answer to what came after it: the daemon holds the first
        d.proc.terminate()
        assert s.recv(65536).startswith(b"HTTP/1.1 503 ")
        gate.unlink()
    assert d.proc.wait(30 * SLOW_S) == 0
