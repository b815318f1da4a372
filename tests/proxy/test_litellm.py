"""LiteLLM's proxy, its router configured as in launchd/proxy.md, in front of two daemons."""
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess

import httpx
import pytest

import world
from conftest import status, stopped, until
from world import (Conversation, Lost, alone, asking, client, free_ports, moved, pair, put, run,  # noqa: F401
                   slow_home, streaming, warm)

LITELLM = pathlib.Path(os.environ.get("ANED_LITELLM", world.TOP / ".build" / "venv-proxy" / "bin" / "litellm"))
if not LITELLM.exists():
    pytest.skip("litellm is not installed: ./dev test proxy", allow_module_level=True)


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
def site(aned, home, folder, conf=""):
    a, b = pair(aned, home, folder, conf)
    lite = None
    try:
        port, = free_ports(1)
        text = put(world.block("yaml"), {"127.0.0.1:11441": f"127.0.0.1:{a.port}", "127.0.0.1:11442": f"127.0.0.1:{b.port}"})
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


def test_the_key_is_asked_for(s):
    ask = {"json": {"model": "demo", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}}
    assert s.client.post("/v1/chat/completions", headers={"Authorization": "Bearer wrong"}, **ask).status_code in (400, 401)
