"""HAProxy with the configuration of launchd/proxy.md, in front of two daemons."""
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess

import httpx
import pytest

import world
from conftest import has_ended, metric, status, stopped, until, wait_idle
from world import (Conversation, Lost, alone, asking, client, free_ports, moved, pair, put, run,  # noqa: F401
                   slow_home, streaming, warm)

HAPROXY = shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin")
pytestmark = pytest.mark.skipif(HAPROXY is None, reason="haproxy is not installed: ./dev test proxy")


class HAProxy:
    """With that configuration; the folder is its $HOME too."""

    def __init__(self, folder, text, key):
        self.dir = folder
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / "haproxy.cfg").write_text(text)
        self.env = dict(os.environ, XDG_RUNTIME_DIR=str(folder), HOME=str(folder), ANED_KEY=key)
        checked = subprocess.run([HAPROXY, "-c", "-f", folder / "haproxy.cfg"], env=self.env, capture_output=True, text=True)
        assert checked.returncode == 0, checked.stdout + checked.stderr
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


def over_tcp(a, b, folder):
    port, = free_ports(1)
    text = put(world.block("haproxy"), {"127.0.0.1:11440": f"127.0.0.1:{port}",
                                        "127.0.0.1:11441": f"127.0.0.1:{a.port}", "127.0.0.1:11442": f"127.0.0.1:{b.port}"})
    return HAProxy(folder, text, a.key), client(f"http://127.0.0.1:{port}", a.key)


def lines_put(text, lines):
    """The document's other lines, each in the place of the one that begins with the same words."""
    for line in lines.splitlines():
        word = re.match(r" *(bind|server \w+) ", line)[0]
        text, n = re.subn(rf"^{word}.*$", lambda _: line, text, flags=re.M)
        assert n == 1, word
    return text


def over_unix(a, b, folder):
    folder.mkdir(mode=0o700)
    for d in (a, b):
        (folder / f"aned-{d.name}").symlink_to(d.dir)
    deny, = re.findall(r"^ *http-request deny .*\n", world.block("haproxy"), re.M)
    ha = HAProxy(folder, lines_put(put(world.block("haproxy"), {deny: ""}), world.block("haproxy", 1)), "no key")
    return ha, client("http://aned", "no key", transport=httpx.HTTPTransport(uds=str(folder / "aned-all.sock")))


@contextlib.contextmanager
def site(aned, home, folder, conf="", way=over_tcp):
    a, b = pair(aned, home, folder, conf)
    ha = None
    try:
        ha, c = way(a, b, folder / "haproxy")
        until(lambda: ha.up("a", "b"))
        with c:
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


@pytest.fixture
def slow(aned, tmp_path):
    """Its model takes 20 ms for a token."""
    with site(aned, *slow_home(tmp_path)) as x:
        yield x


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
    chats, lost = run(s.client, Conversation.KINDS, at=[(50, "b", drain), (90, None, back), (150, "a", kill)])
    found = warm(chats)
    print(f"warm turns: {found}, {alone} with one daemon undisturbed; {moved(chats)} moved; lost: {lost}")
    assert all(len(c.turns) == world.TURNS for c in chats)
    assert all(e.begun and e.server == "a" for e in lost) and len(lost) <= world.WORKERS
    assert found >= 0.95 * alone
    assert moved(chats) >= 2
    assert {t.server for c in chats[-10:] for t in c.turns} == {"b"}


def test_a_kill_takes_only_what_was_streaming_there(slow):
    s = slow
    streams, late, whole = s.of("a", True), s.of("a", True, 2000), s.of("a", False, 3000)
    ask, first = streaming(streams, 300)
    with asking(ask) as (one,):
        assert first.wait(60)  # an event is passed on when it comes, long before the answer is over
        with stopped(s.a.engines()[0]), asking(lambda: late.ask(8), lambda: whole.ask(8)) as two:
            until(lambda: (x := status(s.a))["running"] + x["queued"] == 3)
            s.a.kill(signal.SIGKILL)
            assert [f.result().server for f in two] == ["b", "b"]
        with pytest.raises(Lost) as e:
            one.result()
    assert e.value.begun and e.value.server == "a"
    assert streams.ask(8).server == "b" and late.ask(8).server == "b" and late.warm() == 1


def test_what_one_has_no_room_for_goes_to_another(aned, tmp_path):
    home, folder, conf = slow_home(tmp_path)
    with site(aned, home, folder, conf + "[limits]\nqueue = 1\nstreams = 1\n") as s:
        one, two, three = s.of("a", False), s.of("a", False, 2000), s.of("a", False, 3000)
        with asking(lambda: one.ask(100)) as (f,):
            until(lambda: status(s.a)["running"] == 1)
            with asking(lambda: two.ask(4)) as (g,):
                until(lambda: status(s.a)["queued"] == 1)
                assert three.ask(4).server == "b"
                assert not f.done() and not g.done()
        assert f.result().server == g.result().server == "a"


def test_a_drained_one_ends_its_streams(slow):
    s = slow
    streams, other = s.of("b", True), s.of("b", False, 2000)
    ask, first = streaming(streams, 200)
    with asking(ask) as (one,):
        assert first.wait(60)
        s.ha.say("set server daemons/b state drain")
        assert other.ask(4).server == "a"
        assert not one.done()
        assert one.result().server == "b"
    until(lambda: s.ha.open("b") == 0)
    s.ha.say("set server daemons/b state ready")
    assert other.ask(4).server == "b"


def test_what_was_warm_is_found_after_a_restart(s):
    c = s.of("b", False)
    c.messages[0]["content"] += " ".join(f"more {i}" for i in range(60))  # shorter ones are not saved ([cache] disk_tokens)
    c.messages = c.messages[:1]
    assert c.ask().prompt > 256
    s.ha.say("set server daemons/b state drain")
    until(lambda: "UP" not in s.ha.stat("b", "status") and s.ha.open("b") == 0)
    assert s.b.stop() == 0
    s.b.again()
    s.ha.say("set server daemons/b state ready")
    until(lambda: s.ha.up("b"))
    turn = c.ask()
    assert turn.server == "b" and turn.cached >= 256


def test_sigterm_alone_loses_nothing_that_ends_in_time(s):
    chats, lost = run(s.client, Conversation.KINDS, at=[(20, "b", s.b.stop)], n=60)
    assert lost == [] and s.b.proc.returncode == 0
    assert {t.server for c in chats[-10:] for t in c.turns} == {"a"}


def test_one_that_cannot_serve_gets_nothing(s):
    """503 of /health: here a configuration that is wrong."""
    c = s.of("b", False)
    s.b.stop()
    text = (s.b.home / "aned.conf").read_text()
    (s.b.home / "aned.conf").write_text(text + "nonsense = 1\n")
    s.b.args = ["--service"]
    s.b.proc = subprocess.Popen([s.b.aned, "serve", "--service", "--home", s.b.home, "--socket", s.b.sock],
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: s.ha.stat("b", "check_code") in ("503", "0", "") and s.ha.stat("b", "status") == "DOWN")
    assert c.ask().server == "a"
    (s.b.home / "aned.conf").write_text(text)
    s.b.proc.send_signal(signal.SIGHUP)
    until(lambda: s.ha.up("b"))
    assert c.ask().server == "b"


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_ends_its_work(slow, stream):
    s = slow
    c = s.of("a", stream)
    c.messages.append({"role": "user", "content": "x"})
    with s.client.stream("POST", "/v1/chat/completions", json=c.body(400), headers=c.headers) if stream else contextlib.nullcontext() as r:
        if stream:
            next(r.iter_lines())
    if not stream:
        with socket.create_connection(("127.0.0.1", s.client.base_url.port)) as raw:
            body = json.dumps(c.body(400)).encode()
            raw.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                        + f"Authorization: Bearer {s.a.key}\r\nx-session-id: {c.headers['x-session-id']}\r\n".encode()
                        + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
            until(lambda: status(s.a)["running"] == 1)
    until(lambda: metric(s.a, "generations_cancelled_total") == 1)
    wait_idle(s.a)


def test_longer_than_the_buffer(s):
    """1 MiB. What tells conversations apart is not seen behind that; a header is, however long the body."""
    assert "tune.bufsize 1048576" in world.block("haproxy")
    for name in ("a", "b"):
        c = s.of(name, False)
        for mib in (0.9, 1.5, 3.9):
            r = s.client.post("/v1/chat/completions", content=json.dumps(Conversation.body(c, 1)) + " " * int(mib * 2**20),
                              headers={**c.headers, "Content-Type": "application/json"})
            assert r.status_code == 200 and r.headers["x-aned-server"] == name, r.text
    r = s.client.post("/v1/chat/completions", content=b"{" + b" " * 2**21 + json.dumps(c.body(1)).encode()[1:],
                      headers={"Content-Type": "application/json"})
    assert r.status_code == 200, r.text
    r = s.client.post("/v1/chat/completions", content=b" " * (5 * 2**20), headers={"Content-Type": "application/json"})
    assert r.status_code == 413, r.text
    s.b.kill(signal.SIGKILL)  # and one that is dead is known before anything is sent
    r = s.client.post("/v1/chat/completions", content=json.dumps(c.body(1)) + " " * (2 * 2**20),
                      headers={**c.headers, "Content-Type": "application/json"})
    assert r.status_code == 200 and r.headers["x-aned-server"] == "a", r.text


def test_who_may_ask_stays_as_it_is(s):
    ask = {"json": {"model": "demo", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}}
    for head, code in (({}, 200), ({"Authorization": "Bearer wrong"}, 401), ({"Origin": "http://evil.example"}, 403),
                       ({"Host": "evil.example"}, 403), ({"Host": "localhost"}, 200), ({"Host": "[::1]:8080"}, 200)):
        assert s.client.post("/v1/chat/completions", headers=head, **ask).status_code == code, head


def test_how_a_conversation_is_known(s):
    """What goes where, for each way that the document names, in each dialect."""
    def where(path, body, **head):
        r = s.client.post(path, json={"model": "demo", **body}, headers={k.replace("_", "-"): v for k, v in head.items()})
        assert r.status_code == 200, r.text
        return r.headers["x-aned-server"]

    def both(ask):
        """Twice the same for each, and not the same for all."""
        found = [ask(i) for i in range(12)]
        assert found == [ask(i) for i in range(12)] and set(found) == {"a", "b"}
    one = {"max_tokens": 1}
    user = [{"role": "user", "content": "x"}]
    both(lambda i: where("/v1/messages", {**one, "messages": user}, x_claude_code_session_id=f"s{i}"))
    both(lambda i: where("/v1/messages", {**one, "messages": [{"role": "user", "content": [{"type": "text", "text": f"{i}?"}]}]}))
    both(lambda i: where("/v1/completions", {**one, "prompt": f"{i}, once upon a time"}))
    both(lambda i: where("/v1/responses", {"max_output_tokens": 16, "input": f"{i}?"}))
    both(lambda i: where("/v1/responses", {"max_output_tokens": 16, "input": "x", "prompt_cache_key": f"k{i}"}))
    both(lambda i: where("/api/chat", {"stream": False, "options": {"num_predict": 1}, "messages": [{"role": "user", "content": f"{i}?"}]}))
    system = {"role": "system", "content": "Be brief."}
    assert len({where("/v1/chat/completions", {**one, "messages": [system, *user, *more]}) for more in (
        [], [{"role": "assistant", "content": "y"}, {"role": "user", "content": "z"}])}) == 1


def test_the_two_daemons_of_the_document(aned, anectl, demo_gguf, tmp_path):
    """Made as it says, word by word."""
    ports = free_ports(2)
    steps = put(world.block("sh"), {"127.0.0.1:11441": f"127.0.0.1:{ports[0]}", "127.0.0.1:11442": f"127.0.0.1:{ports[1]}",
                                    "aned.sock &\n": "aned.sock & echo $! >>pids\n"})
    shutil.copy(demo_gguf, tmp_path / "demo.gguf")
    path = os.pathsep.join([os.path.dirname(aned), os.path.dirname(anectl), os.environ["PATH"]])
    try:
        with open(tmp_path / "out", "wb") as out:
            subprocess.run(["sh", "-eu", "-c", steps], cwd=tmp_path, env=dict(os.environ, HOME=str(tmp_path), PATH=path), check=True,
                           stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=300)
        key = (tmp_path / "aned-a" / "http.key").read_text().strip()
        for port in ports:
            with client(f"http://127.0.0.1:{port}", key) as c:
                assert Conversation(c, 0, "first").ask().prompt > 0
    finally:
        pids = [int(x) for x in (tmp_path / "pids").read_text().split()]
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        until(lambda: all(has_ended(pid) for pid in pids))


def test_over_unix_sockets(aned, demo_home, tmp_path):
    """No key, and a socket for this user only, as aned's own are."""
    with site(aned, demo_home, tmp_path, way=over_unix) as s:
        assert (s.ha.dir / "aned-all.sock").stat().st_mode & 0o777 == 0o600
        chats, lost = run(s.client, Conversation.KINDS, at=[(20, "a", lambda: s.a.kill(signal.SIGKILL))], n=40)
        assert all(e.begun and e.server == "a" for e in lost)
        assert {t.server for c in chats[-10:] for t in c.turns} == {"b"}


def test_another_machine_by_tls(aned, demo_home, tmp_path):
    """The other machine is this one; its proxy, certificate and name are those of the document."""
    made = subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=b.example", "-addext",
                           "subjectAltName=DNS:b.example", "-keyout", tmp_path / "key", "-out", tmp_path / "aned.crt"],
                          capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    (tmp_path / "aned.pem").write_text((tmp_path / "aned.crt").read_text() + (tmp_path / "key").read_text())
    (tmp_path / "aned.pem").chmod(0o600)
    port, = free_ports(1)
    far = []

    def way(a, b, folder):
        text = put(world.block("haproxy", 2), {":11443": f"127.0.0.1:{port}", "/etc/haproxy/aned.pem": str(tmp_path / "aned.pem"),
                                               "127.0.0.1:11441": f"127.0.0.1:{b.port}"})
        far.append(HAProxy(tmp_path / "far", text, "no key"))
        line = put(world.block("haproxy", 3), {"b.example:11443": f"127.0.0.1:{port}", "/etc/haproxy/aned.crt": str(tmp_path / "aned.crt")})
        front, = free_ports(1)
        text = put(world.block("haproxy"), {"127.0.0.1:11440": f"127.0.0.1:{front}", "127.0.0.1:11441": f"127.0.0.1:{a.port}"})
        return HAProxy(folder, lines_put(text, line), a.key), client(f"http://127.0.0.1:{front}", a.key)
    try:
        with site(aned, demo_home, tmp_path, way=way) as s:
            chats, lost = run(s.client, Conversation.KINDS, at=[(20, "b", lambda: s.b.kill(signal.SIGKILL))], n=40)
            assert all(e.begun and e.server == "b" for e in lost)
            assert {t.server for c in chats[:20] for t in c.turns} == {"a", "b"}
            assert {t.server for c in chats[-10:] for t in c.turns} == {"a"}
    finally:
        for h in far:
            h.close()
