"""HAProxy with the configuration of launchd/proxy.md, in front of two daemons."""
import concurrent.futures
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import threading

import httpx
import pytest

import world
from conftest import metric, stopped, until, wait_idle
from world import Conversation, Lost, client, free_ports, moved, pair, put, run, warm

HAPROXY = shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin")
if HAPROXY is None:
    pytest.skip("haproxy is not installed: ./dev test proxy", allow_module_level=True)


class HAProxy:
    def __init__(self, folder, text, key):
        self.dir = folder
        folder.mkdir(mode=0o700)
        (folder / "haproxy.cfg").write_text(text)
        self.env = dict(os.environ, XDG_RUNTIME_DIR=str(folder), ANED_KEY=key)
        checked = subprocess.run([HAPROXY, "-c", "-f", folder / "haproxy.cfg"], env=self.env, capture_output=True, text=True)
        assert checked.returncode == 0, checked.stdout + checked.stderr
        assert "WARNING" not in checked.stderr, checked.stderr
        self.logf = open(folder / "haproxy.log", "ab")
        self.proc = subprocess.Popen([HAPROXY, "-db", "-f", folder / "haproxy.cfg"], env=self.env, stdin=subprocess.DEVNULL,
                                     stdout=self.logf, stderr=self.logf)

    def say(self, command):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(60)
            s.connect(str(self.dir / "aned-proxy.sock"))
            s.sendall(command.encode() + b"\n")
            out = b""
            while chunk := s.recv(65536):
                out += chunk
        return out.decode()

    def stat(self, server, field):
        head, *rows = self.say("show stat").lstrip("# ").splitlines()
        at = head.split(",").index(field)
        return next(r.split(",")[at] for r in rows if r.split(",")[:2] == ["daemons", server])

    def open(self, server):
        return int(self.stat(server, "scur"))

    def up(self, *servers):
        with contextlib.suppress(OSError):
            return all(self.stat(s, "status") == "UP" for s in servers)
        return False

    def close(self):
        self.proc.terminate()
        code = self.proc.wait(timeout=60)
        self.logf.close()
        return code


class Site:
    def __init__(self, a, b, ha, c):
        self.a, self.b, self.ha, self.client = a, b, ha, c

    def member(self, name):
        return {"a": self.a, "b": self.b}[name]

    def of(self, name, stream, first=1000):
        """A conversation that is that daemon's."""
        for i in range(first, first + 100):
            c = Conversation(self.client, i, "header", stream=stream)
            if c.ask(max_tokens=1).server == name:
                return c
        raise AssertionError(f"no conversation comes to {name}")


@contextlib.contextmanager
def site(aned, demo_home, folder):
    a, b = pair(aned, demo_home, folder)
    ha = None
    try:
        port, = free_ports(1)
        text = put(world.block("haproxy"), {"127.0.0.1:11440": f"127.0.0.1:{port}", "127.0.0.1:11441": f"127.0.0.1:{a.port}",
                                            "127.0.0.1:11442": f"127.0.0.1:{b.port}"})
        ha = HAProxy(folder / "haproxy", text, a.key)
        until(lambda: ha.up("a", "b"))
        with client(f"http://127.0.0.1:{port}", a.key) as c:
            yield Site(a, b, ha, c)
    finally:
        if ha is not None:
            ha.close()
        for d in (a, b):
            if d.proc.poll() is None:
                assert d.stop() == 0
            shutil.rmtree(d.dir, ignore_errors=True)


@pytest.fixture
def s(aned, demo_home, tmp_path):
    with site(aned, demo_home, tmp_path) as x:
        yield x


@pytest.fixture(scope="module")
def alone(aned, demo_home, tmp_path_factory):
    """Warm turns of the same conversations with one daemon, without a proxy."""
    a, b = pair(aned, demo_home, tmp_path_factory.mktemp("alone"))
    try:
        assert b.close() == 0
        with client(f"http://127.0.0.1:{a.port}", a.key) as c:
            chats, lost = run(c, Conversation.KINDS)
        assert lost == []
        return warm(chats)
    finally:
        a.close()


def test_conversations_stay_where_they_are_warm(s, alone):
    chats, lost = run(s.client, Conversation.KINDS)
    found = warm(chats)
    print(f"warm turns: {found} behind HAProxy, {alone} with one daemon")
    assert lost == [] and moved(chats) == 0
    assert found >= 0.95 * alone
    for kind in Conversation.KINDS:  # and each way to know a conversation uses both daemons
        assert {t.server for c in chats if c.kind == kind for t in c.turns} == {"a", "b"}


def test_one_is_drained_and_one_is_killed_meanwhile(s, alone):
    def drain():
        s.ha.say("set server daemons/b state drain")
        until(lambda: s.ha.open("b") == 0)
        assert s.b.stop() == 0

    def back():
        s.b.again()
        s.ha.say("set server daemons/b state ready")
        until(lambda: s.ha.up("b"))

    def kill():
        s.a.kill(signal.SIGKILL)
    chats, lost = run(s.client, Conversation.KINDS, at={50: drain, 90: back, 150: kill})
    found = warm(chats)
    print(f"warm turns: {found}, {alone} with one daemon undisturbed; {moved(chats)} moved; lost: {lost}")
    assert all(len(c.turns) == world.TURNS for c in chats)
    assert all(e.begun and e.server == "a" for e in lost) and len(lost) <= world.WORKERS
    assert found >= 0.95 * alone
    assert {t.server for c in chats[160:] for t in c.turns} == {"b"}
