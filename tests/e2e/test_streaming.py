"""Streams that meet the world: a client that never reads, a connection that is lost, a silent engine, a daemon that is told
to stop."""
import json
import os
import signal
import threading
import time

import httpx
import pytest

from conftest import PAUSE, SLOW_S, engine_pid, is_stopped, metric, raw_post, status, stopped, until

BODY = {"model": "demo", "prompt": "What is aned?", "max_tokens": 200, "stream": True, "ignore_eos": True, "seed": 7,
        "temperature": 0.8}


@pytest.fixture
def serve(demo_home, make_daemon, tmp_path):
    def go(conf):
        (tmp_path / "aned.conf").write_text(conf)
        return make_daemon(home=demo_home, args=["--config", str(tmp_path / "aned.conf")])
    return go


def said(events):
    """The texts of the choices."""
    text = {}
    for _, j in events:
        for x in j["choices"] if j else []:
            text[x["index"]] = text.get(x["index"], "") + x["text"]
    return text


class Events:
    """The events of a response: (id, data) pairs, comments counted, and whether [DONE] came."""

    def __init__(self, response, stop_after=None, on_comment=None):
        self.got, self.comments, self.done, number = [], 0, False, None
        assert response.status_code == 200, response.read()
        for line in response.iter_lines():
            if line.startswith(":"):
                self.comments += 1
                if on_comment is not None:
                    on_comment(self.comments)
            elif line.startswith("id: "):
                number = int(line[4:])
            elif line == "data: [DONE]":
                self.done = True
                self.got.append((number, None))
            elif line.startswith("data: "):
                j = json.loads(line[6:])
                assert "error" not in j, j
                self.got.append((number, j))
            if stop_after is not None and len(self.got) >= stop_after:
                return

    @property
    def text(self):
        return said(self.got)


def stream(d, stop_after=None, **more):
    with d.http() as c, c.stream("POST", "/v1/completions", json={**BODY, **more}) as r:
        return Events(r, stop_after)


def resume(d, name, after=None, stop_after=None):
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    with d.http() as c, c.stream("GET", f"/aned/v1/streams/{name}", headers=headers) as r:
        return Events(r, stop_after)


BIG = {"logprobs": 20, "max_tokens": 480, "n": 4}  # some MB: more than waits in a connection and its socket


@pytest.mark.asan
def test_who_never_reads_is_cut_off_and_hurts_nobody(serve):
    d = serve(f"[http]\nstall_ms = {6000 * PAUSE}\n")
    alone = stream(d).text
    before = d.rss_kib()
    with stopped(engine_pid(d, "demo")):  # none stalls before the last has come
        deaf = [raw_post(d, {**BODY, **BIG, "seed": i}) for i in range(4)]
        until(lambda: (s := status(d))["running"] + s["queued"] == 16)
    until(lambda: status(d)["running"] == 16)
    until(lambda: metric(d, "http_queued_bytes") > 4 * 128 * 1024)
    got = []
    threads = [threading.Thread(target=lambda: got.append(stream(d).text)) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120 * SLOW_S)
    assert got == [alone] * 4
    assert metric(d, "http_queued_bytes") < 4 * 300 * 1024, "256 KiB each and a step's events"
    until(lambda: metric(d, "http_streams_stalled_total") == 4)
    until(lambda: status(d)["running"] == 0)
    if SLOW_S == 1:
        assert d.rss_kib() - before < 16 * 1024, "what waits for a reader is bounded"
    for s in deaf:
        s.close()


def test_a_lost_connection_is_resumed(serve):
    d = serve("")
    want = stream(d)
    assert want.done and want.got[0][0] is None, "no ids where nobody asked"
    first = stream(d, stop_after=20, resumable=True)
    name = first.got[0][1]["id"]
    assert [n for n, _ in first.got] == list(range(1, 21))
    got = list(first.got)
    for more in (1, 30, 50):
        part = resume(d, name, got[-1][0], more)
        got += part.got
    last = resume(d, name, got[-1][0])
    assert last.done
    got += last.got
    assert [n for n, _ in got] == list(range(1, len(got) + 1)), "each event once, in order"
    assert said(got) == want.text
    again = resume(d, name)  # all of it, after its end
    assert again.got == got
    assert resume(d, name, len(got)).got == []
    with d.http() as c:
        assert c.get(f"/aned/v1/streams/{name}?from={len(got) - 1}").text.count("data:") == 1
        assert c.get(f"/aned/v1/streams/{name}", headers={"Last-Event-ID": str(len(got) + 1)}).status_code == 400
        assert c.get(f"/aned/v1/streams/{name}", headers={"Last-Event-ID": "x"}).status_code == 400
        assert c.get("/aned/v1/streams/cmpl-nobody").status_code == 404
        assert c.get(f"/aned/v1/streams/{want.got[0][1]['id']}").status_code == 404, "it was not resumable"
        assert c.delete(f"/aned/v1/streams/{name}").status_code == 200
        assert c.get(f"/aned/v1/streams/{name}").status_code == 404
        r = c.post("/v1/completions", json={**BODY, "stream": False, "resumable": True})
        assert r.status_code == 400 and r.json()["error"]["param"] == "resumable"


@pytest.mark.asan
def test_without_a_reader_it_waits_full_and_loses_nothing(serve):
    d = serve("")
    want = stream(d, **BIG)
    first = stream(d, stop_after=3, resumable=True, **BIG)
    name = first.got[0][1]["id"]
    made = -1
    while made != (made := metric(d, "output_tokens_total")):
        time.sleep(0.3 * PAUSE)
    assert status(d)["running"] == 4 and made < 2 * 4 * 480, "it waits for its reader"
    rest = resume(d, name, first.got[-1][0])
    assert rest.done and said(first.got + rest.got) == want.text
    with d.http() as c:
        r = c.get(f"/aned/v1/streams/{name}")
        assert r.status_code == 404 and "gone" in r.json()["error"]["message"], "the oldest half is not kept"


def test_two_readers_the_newer_one_has_it(serve):
    d = serve("")
    with d.http() as c, c.stream("POST", "/v1/completions", json={**BODY, **BIG, "resumable": True}) as r:
        lines = r.iter_lines()
        name = next(json.loads(x[6:])["id"] for x in lines if x.startswith("data: "))
        other = resume(d, name)
        assert other.done and len(other.got) > 1000
        assert sum(x == "data: [DONE]" for x in lines) == 0, "the older one ended early"


def test_nobody_comes_back(serve):
    d = serve("[http]\nresume_s = 6\n")
    name = stream(d, stop_after=3, resumable=True, **BIG).got[0][1]["id"]
    assert status(d)["running"] == 4
    until(lambda: status(d)["running"] == 0)
    with d.http() as c:
        assert c.get(f"/aned/v1/streams/{name}").status_code == 404
    name = stream(d, stop_after=3, resumable=True, **BIG).got[0][1]["id"]
    with d.http() as c:
        assert c.delete(f"/aned/v1/streams/{name}").status_code == 200
    assert status(d)["running"] == 0


def test_resumable_streams_are_bounded(serve):
    d = serve("[limits]\nqueue = 100\n[http]\nresume_s = 600\n")
    names = [stream(d, stop_after=1, resumable=True, **BIG).got[0][1]["id"] for _ in range(8)]
    until(lambda: status(d)["running"] == 32)
    waiting = [raw_post(d, {**BODY, "resumable": True}) for _ in range(56)]
    until(lambda: status(d)["queued"] == 56)
    with d.http() as c:
        r = c.post("/v1/completions", json={**BODY, "resumable": True})
        assert r.status_code == 503 and r.headers["Retry-After"], r.text
        assert "resumable" in r.json()["error"]["message"]
        for s in waiting:
            s.close()
        for n in names:
            assert c.delete(f"/aned/v1/streams/{n}").status_code == 200
    until(lambda: status(d)["running"] == 0)


@pytest.mark.asan
def test_comments_keep_a_silent_stream_alive(serve):
    d = serve("[http]\nkeepalive_ms = 100\n")
    want = stream(d)
    for resumable in (False, True):
        engine = hold(d)
        began = time.monotonic()
        with d.http() as c, c.stream("POST", "/v1/completions", json={**BODY, "resumable": resumable}) as r:
            got = Events(r, on_comment=lambda n: os.kill(engine, signal.SIGCONT) if n == 3 else None)
        assert got.text == want.text and got.done
        assert 3 <= got.comments <= (time.monotonic() - began) / 0.1, "one in 100 ms of silence"


def hold(d):
    """Stop the engine, so that what runs goes on running."""
    engine = engine_pid(d, "demo")
    os.kill(engine, signal.SIGSTOP)
    until(lambda: is_stopped(engine))
    return engine


class Running(threading.Thread):
    def __init__(self, d, **more):
        super().__init__(daemon=True)
        self.d, self.more, self.error = d, more, None
        self.start()

    def run(self):
        try:
            self.events = stream(self.d, **self.more)
        except Exception as e:  # noqa: BLE001  (looked at by the test)
            self.error = e


class Follower(threading.Thread):
    """Follows a model until the daemon ends that."""

    def __init__(self, d):
        super().__init__(daemon=True)
        self.d, self.seen = d, 0
        self.start()
        until(lambda: self.seen > 0)

    def run(self):
        with self.d.http() as c, c.stream("GET", "/aned/v1/models/demo/events") as r:
            for _ in r.iter_lines():
                self.seen += 1


def test_drain_lets_streams_finish_and_refuses_new_ones(serve):
    d = serve("[server]\ndrain_ms = 60000\n")
    want = stream(d).text
    follow = Follower(d)
    engine = hold(d)  # it cannot be over before all was looked at
    t = Running(d)
    until(lambda: status(d)["running"] + status(d)["queued"] == 1)
    d.proc.send_signal(signal.SIGTERM)
    until(lambda: status(d)["status"] == "draining")
    with d.http() as x:
        r = x.post("/v1/completions", json=BODY)
        assert r.status_code == 503 and r.headers["Retry-After"] and "stopping" in r.json()["error"]["message"]
        assert x.get("/health").status_code == 503
    follow.join(60 * SLOW_S)
    assert not follow.is_alive(), "who follows a model does not hold it up"
    assert d.proc.poll() is None
    os.kill(engine, signal.SIGCONT)
    t.join(120 * SLOW_S)
    assert t.error is None and t.events.done and t.events.text == want
    assert d.proc.wait(30 * SLOW_S) == 0


def test_a_second_sigterm_ends_at_once(serve):
    d = serve("[server]\ndrain_ms = 600000\n")
    stream(d)
    stream(d, stop_after=5, resumable=True, **BIG)
    hold(d)
    t = Running(d)
    until(lambda: status(d)["running"] + status(d)["queued"] == 5)
    d.proc.send_signal(signal.SIGTERM)
    until(lambda: status(d)["status"] == "draining")
    d.proc.send_signal(signal.SIGTERM)
    assert d.proc.wait(120 * SLOW_S) == 0, "of the ten minutes that the drain would take"
    t.join(60 * SLOW_S)
    assert isinstance(t.error, (httpx.HTTPError, AssertionError)), t.error


def test_the_drain_has_an_end(serve):
    d = serve("[server]\ndrain_ms = 500\n")
    stream(d)
    hold(d)
    t = Running(d)
    until(lambda: status(d)["running"] + status(d)["queued"] == 1)
    began = time.monotonic()
    assert d.stop() == 0, "the engine stands still: nothing else would end it"
    assert time.monotonic() - began > 0.4
    t.join(60 * SLOW_S)


def test_a_chat_is_resumed(serve):
    d = serve("")
    ask = {"model": "demo", "stream": True, "seed": 3, "max_tokens": 40, "ignore_eos": True, "resumable": True,
           "stream_options": {"include_usage": True}, "messages": [{"role": "user", "content": "What is aned?"}]}
    with d.http() as c:
        with c.stream("POST", "/v1/chat/completions", json=ask) as r:
            first = Events(r, 5)
        name = first.got[0][1]["id"]
        rest = resume(d, name, 5)
        with c.stream("POST", "/v1/chat/completions", json=ask) as r:
            whole = Events(r)

    def deltas(events):
        return "".join(x["delta"].get("content") or "" for _, j in events if j for x in j["choices"])
    assert rest.done and deltas(first.got + rest.got) == deltas(whole.got) != ""
    assert rest.got[-2][1]["usage"]["completion_tokens"] == 40
