"""LiteLLM's proxy, its router configured as in launchd/proxy.md, in front of two daemons."""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess

import httpx
import pytest

import world
from conftest import metric, status, stopped, until, wait_idle
from test_haproxy import HAPROXY, over_tcp
from world import (Conversation, Lost, alone, asking, client, free_ports, moved, pair, put, run,  # noqa: F401
                   slow_home, streaming, warm)

LITELLM = pathlib.Path(os.environ.get("ANED_LITELLM", world.TOP / ".build" / "venv-proxy" / "bin" / "litellm"))
pytestmark = pytest.mark.skipif(not LITELLM.exists(), reason="litellm is not installed: ./dev test proxy")


class LiteLLM:
    def __init__(self, folder, text, key, port):
        folder.mkdir(mode=0o700)
        (folder / "litellm.yaml").write_text(text)
        self.log = folder / "litellm.log"
        self.logf = open(self.log, "ab")
        env = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "LITELLM_", "DATABASE_"))}
        env |= {"ANED_KEY": key, "HOME": str(folder), "NO_PROXY": "*", "no_proxy": "*", "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                "LITELLM_TELEMETRY": "False", "PYTHONDONTWRITEBYTECODE": "1"}
        self.proc = subprocess.Popen([LITELLM, "--config", folder / "litellm.yaml", "--host", "127.0.0.1", "--port", str(port)],
                                     env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=self.logf, stderr=self.logf)

    def close(self):
        self.proc.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.proc.wait(timeout=30)
        self.proc.kill()
        self.proc.wait()
        self.logf.close()


class Site:
    def __init__(self, a, b, lite, c):
        self.a, self.b, self.lite, self.client = a, b, lite, c


@contextlib.contextmanager
def site(aned, home, folder, conf="", behind=None):
    """behind: the port of what stands between, its one deployment: a function of the daemons."""
    a, b = pair(aned, home, folder, conf)
    lite = None
    try:
        port, = free_ports(1)
        text = world.block("yaml")
        if behind:
            last = re.search(r"  - model_name.*?^    model_info: {id: b}\n", text[text.index("{id: a}"):], re.S | re.M)[0]
            text = put(text, {last: "", "127.0.0.1:11441": f"127.0.0.1:{behind(a, b)}"})
        else:
            text = put(text, {"127.0.0.1:11441": f"127.0.0.1:{a.port}", "127.0.0.1:11442": f"127.0.0.1:{b.port}"})
        lite = LiteLLM(folder / "litellm", text, a.key, port)
        with client(f"http://127.0.0.1:{port}", a.key) as c:
            def ready():
                assert lite.proc.poll() is None, lite.log.read_text()[-4000:]
                with contextlib.suppress(httpx.HTTPError):
                    return c.get("/health/liveliness").status_code == 200
            until(ready)
            yield Site(a, b, lite, c)
    finally:
        if lite is not None:
            lite.close()
        for d in (a, b):
            if d.proc.poll() is None:
                assert d.stop() == 0
            shutil.rmtree(d.dir, ignore_errors=True)


@pytest.fixture
def s(aned, demo_home, tmp_path):
    with site(aned, demo_home, tmp_path) as x:
        yield x


@pytest.fixture
def slow(aned, tmp_path):
    with site(aned, *slow_home(tmp_path)) as x:
        yield x


def of(s, name, stream, first):
    """A conversation that is that daemon's."""
    for i in range(first, first + 100):
        c = Conversation(s.client, i, "header", stream=stream)
        if c.ask(max_tokens=1).server == name:
            return c
    raise AssertionError(f"no conversation comes to {name}")


def test_conversations_with_a_header_stay_where_they_are_warm(s, alone):
    chats, lost = run(s.client, ["header"])
    found = warm(chats)
    print(f"warm turns: {found} behind LiteLLM, {alone} with one daemon")
    assert lost == [] and moved(chats) == 0
    assert found >= 0.95 * alone
    assert {t.server for c in chats for t in c.turns} == {"a", "b"}


def test_the_headers_it_knows(s):
    for header in ("x-litellm-session-id", "x-claude-code-session-id"):
        for i in range(6):
            c = Conversation(s.client, i, "header")
            c.headers = {header: f"conversation-{i}"}
            assert len({c.ask().server for _ in range(4)}) == 1


def test_others_do_not(s):
    """What the document says that it cannot do. When this fails, it can, and the document has to say so."""
    chats, lost = run(s.client, ["field", "system", "first"], n=30)
    print(f"of 60 later turns {moved(chats)} moved, {warm(chats)} were warm")
    assert lost == [] and moved(chats) > 0


def test_one_is_drained_and_one_is_killed_meanwhile(s, alone):
    def drain():  # all that there is: its router knows no drained daemon
        assert s.b.stop() == 0
    chats, lost = run(s.client, ["header"], at=[(50, "b", drain), (90, None, s.b.again), (150, "a", lambda: s.a.kill(signal.SIGKILL))])
    found = warm(chats)
    print(f"warm turns: {found}, {alone} with one daemon undisturbed; {moved(chats)} moved; lost: {lost}")
    assert all(len(c.turns) == world.TURNS for c in chats)
    assert all(e.begun and e.server == "a" for e in lost) and len(lost) <= world.WORKERS
    assert found >= 0.95 * alone
    assert moved(chats) >= 2
    assert {t.server for c in chats[-10:] for t in c.turns} == {"b"}


def test_a_kill_takes_only_what_was_streaming_there(slow):
    s = slow
    streams, late, whole = of(s, "a", True, 1000), of(s, "a", True, 2000), of(s, "a", False, 3000)
    ask, first = streaming(streams, 300)
    with asking(ask) as (one,):
        assert first.wait(60)
        with stopped(s.a.engines()[0]), asking(lambda: late.ask(8), lambda: whole.ask(8)) as two:
            until(lambda: (x := status(s.a))["running"] + x["queued"] == 3)
            s.a.kill(signal.SIGKILL)
            assert [f.result().server for f in two] == ["b", "b"]
        with pytest.raises(Lost) as e:
            one.result()
    print(e.value)
    assert e.value.begun and e.value.server == "a"
    assert streams.ask(8).server == "b"


def test_a_client_that_leaves(slow):
    """A stream ends with its client. Another answer does not, as the document says."""
    s = slow

    def cancelled():
        return metric(s.a, "generations_cancelled_total")
    c = of(s, "a", True, 1000)
    c.messages.append({"role": "user", "content": "x"})
    with s.client.stream("POST", "/v1/chat/completions", json=c.body(400), headers=c.headers) as r:
        next(r.iter_lines())
    until(lambda: cancelled() == 1)
    wait_idle(s.a)
    c.stream = False
    with pytest.raises(httpx.ReadTimeout):
        s.client.post("/v1/chat/completions", json=c.body(300), headers=c.headers, timeout=1)
    wait_idle(s.a)
    assert cancelled() == 1


def test_answers_that_are_kept(s):
    """Each is found where it is; one that is nowhere takes no daemon away."""
    def ask(**more):
        return s.client.post("/v1/responses", json={"model": "demo", "input": "What is aned?", "max_output_tokens": 16, **more})
    first = [ask() for _ in range(12)]
    assert {r.headers["x-litellm-model-id"] for r in first} == {"a", "b"}
    for r in first:
        assert ask(previous_response_id="resp_nowhere").status_code == 404
        then = ask(previous_response_id=r.json()["id"])
        assert then.status_code == 200, then.text
        assert then.headers["x-litellm-model-id"] == r.headers["x-litellm-model-id"]


@pytest.mark.skipif(HAPROXY is None, reason="haproxy is not installed: ./dev test proxy")
def test_with_haproxy_behind_it(aned, demo_home, tmp_path):
    """Conversations of every kind stay where they are warm."""
    made = []

    def behind(a, b):
        ha, c = over_tcp(a, b, tmp_path / "haproxy")
        made.append(ha)
        c.close()
        until(lambda: ha.up("a", "b"))
        return c.base_url.port
    try:
        with site(aned, demo_home, tmp_path, behind=behind) as s:
            chats, lost = run(s.client, Conversation.KINDS, n=40)
            assert lost == [] and warm(chats) == 80
            assert all(metric(d, "generations_total") > 0 for d in (s.a, s.b))
    finally:
        for ha in made:
            ha.close()


def test_the_key_is_asked_for(s):
    ask = {"json": {"model": "demo", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}}
    assert s.client.post("/v1/chat/completions", headers={"Authorization": "Bearer wrong"}, **ask).status_code in (400, 401)
