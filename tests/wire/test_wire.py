"""Raw bytes on the socket of a real daemon with the fake engine: framing that HTTP libraries hide."""
import json
import socket
import time

import pytest

from conftest import SLOW_S, Daemon, rests, until
from fake import make_home

BODY = {"model": "fake", "prompt": "hello", "max_tokens": 8, "temperature": 0}


@pytest.fixture(scope="module")
def d(aned, tmp_path_factory):
    x = Daemon(aned, home=make_home(tmp_path_factory.mktemp("wire") / "home", fake="delay_us 1000\n"))
    yield x
    assert x.close() == 0


def request(body, extra=b"", version=b"1.1"):
    raw = json.dumps(body).encode()
    return b"POST /v1/completions HTTP/%s\r\nHost: a\r\n%sContent-Length: %d\r\n\r\n%s" % (version, extra, len(raw), raw)


def connect(d):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(60 * SLOW_S)
    s.connect(str(d.sock))
    return s


def read_all(s):
    data = b""
    while chunk := s.recv(65536):
        data += chunk
    return data


def read_one(s):
    """One answer with a Content-Length: status, JSON."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += s.recv(1)
    n = int(next(x for x in data.split(b"\r\n") if x.lower().startswith(b"content-length")).split(b":")[1])
    body = b""
    while len(body) < n:
        body += s.recv(n - len(body))
    return int(data.split()[1]), json.loads(body)


def unchunk(data):
    out = b""
    while True:
        size, data = data.split(b"\r\n", 1)
        n = int(size, 16)
        if n == 0:
            assert data == b"\r\n"
            return out
        out, data = out + data[:n], data[n:]
        assert data[:2] == b"\r\n"
        data = data[2:]


def test_byte_by_byte_and_pipelined(d):
    with connect(d) as s:
        s.sendall(request(BODY))
        status, want = read_one(s)
        assert status == 200
        for b in request(BODY):
            s.send(bytes([b]))
        assert read_one(s)[1]["choices"] == want["choices"]
        s.sendall(request(BODY) + b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n" + request({**BODY, "prompt": 5}))
        assert read_one(s)[1]["choices"] == want["choices"]
        assert read_one(s) == (200, {"status": "ok"})
        assert read_one(s)[0] == 400


def test_stream_framing(d):
    with connect(d) as s:
        s.sendall(request({**BODY, "stream": True}, b"Connection: close\r\n"))
        head, body = read_all(s).split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 200 ") and b"transfer-encoding: chunked" in head.lower()
    text = unchunk(body).decode()
    assert text.endswith("data: [DONE]\n\n")
    events = text.split("\n\n")[:-2]
    assert all(e.startswith("data: {") and "\n" not in e for e in events)
    assert sum(len(json.loads(e[6:])["choices"][0]["text"]) for e in events) == 8


def test_old_clients_get_a_stream_without_chunks(d):
    with connect(d) as s:
        s.sendall(request({**BODY, "stream": True}, version=b"1.0"))
        head, body = read_all(s).split(b"\r\n\r\n", 1)
    assert b"chunked" not in head.lower()
    assert body.startswith(b"data: {") and body.endswith(b"data: [DONE]\n\n")


def test_a_claimed_body_over_the_limit_is_answered_at_once(d):
    with connect(d) as s:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 4194305\r\n\r\n")
        data = read_all(s)
    assert data.startswith(b"HTTP/1.1 413 ") and b'"error"' in data
    with connect(d) as s:
        s.sendall(b"POST /aned/v1/jobs HTTP/1.1\r\nHost: a\r\nContent-Length: 262145\r\n\r\n")
        assert read_all(s).startswith(b"HTTP/1.1 413 ")


def test_a_compressed_body_is_refused(d):
    with connect(d) as s:
        s.sendall(request(BODY, b"Content-Encoding: gzip\r\n"))
        data = read_all(s)
    assert data.startswith(b"HTTP/1.1 415 ") and b'"http.content_encoding"' in data
    assert b"\r\nAccept-Encoding: identity\r\n" in data


def test_head_of_an_event_stream(d):
    """Its head, and the connection goes on; who reads a resumable stream is not cut off by it."""
    with connect(d) as s, connect(d) as reader:
        s.sendall(b"HEAD /aned/v1/models/fake/events HTTP/1.1\r\nHost: a\r\n\r\nGET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        data = b""
        while not data.endswith(b'{"status":"ok"}'):
            assert (chunk := s.recv(65536)), data
            data += chunk
        assert data.count(b"HTTP/1.1 200 ") == 2 and b"text/event-stream" in data and b"data:" not in data
        reader.sendall(request({**BODY, "max_tokens": 400, "stream": True, "resumable": True}, b"Connection: close\r\n"))
        got = b""
        while b'"id":"' not in got:
            got += reader.recv(65536)
        name = got.split(b'"id":"')[1].split(b'"')[0]
        s.sendall(b"HEAD /aned/v1/streams/%s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" % name)
        head = read_all(s)
        assert head.startswith(b"HTTP/1.1 200 ") and head.endswith(b"\r\n\r\n") and b"data:" not in head
        assert (got + read_all(reader)).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


@pytest.mark.parametrize("stream", [False, True])
def test_a_half_closed_client_is_answered(d, stream):
    with connect(d) as s:
        s.sendall(request({**BODY, "max_tokens": 60, "stream": stream}))
        s.shutdown(socket.SHUT_WR)
        data = read_all(s)
    assert data.startswith(b"HTTP/1.1 200 ")
    if stream:
        assert data.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    else:
        assert json.loads(data.split(b"\r\n\r\n", 1)[1])["usage"]["completion_tokens"] == 60


def test_large_bodies_are_answered_in_order(d):
    """They are read beside the loop; what follows them on the connection waits, what others ask does not."""
    large = request({**BODY, "prompt": "x" * 900_000})
    with connect(d) as s, connect(d) as other:
        s.sendall(large + b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n" + large + request(BODY))
        other.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        assert read_one(other) == (200, {"status": "ok"})
        assert read_one(s)[1]["error"]["code"] == "context_length_exceeded"
        assert read_one(s) == (200, {"status": "ok"})
        assert [read_one(s)[0] for _ in range(2)] == [400, 200]
    fds = d.fds()
    for _ in range(12):  # nobody waits for these
        with connect(d) as s:
            s.sendall(large)
    with connect(d) as s:
        s.sendall(request(BODY))
        assert read_one(s)[0] == 200
    until(lambda: d.fds() <= fds)


def test_errors_after_the_head_end_the_stream(aned, tmp_path):
    """The engine fails in the middle: an error event, no [DONE], a proper end of the body."""
    x = Daemon(aned, home=make_home(tmp_path / "home", fake="crash_at 6\n"))
    with connect(x) as s:
        s.sendall(request({**BODY, "max_tokens": 100, "stream": True}, b"Connection: close\r\n"))
        body = unchunk(read_all(s).split(b"\r\n\r\n", 1)[1]).decode()
    assert x.close() == 0
    events = [json.loads(e[6:]) for e in body.split("\n\n") if e]
    assert events[0]["choices"] and events[-1]["error"]["code"] == "model.failed"


def test_idle_costs_nothing(d):
    time.sleep(0.3)
    assert rests(d, 1)
