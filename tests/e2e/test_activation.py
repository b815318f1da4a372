"""Sockets that a service manager owns (LISTEN_FDS): the first client starts aned, the socket outlives it, and the next client
starts it again. Once with a manager of ours, once with systemd's own."""
import json
import os
import shutil
import signal
import socket
import subprocess
import threading

import pytest

from activation import Manager, client, listen, spawn
from conftest import SLOW_S, until
from fake import make_home

ASK = {"model": "fake", "prompt": "hello", "max_tokens": 8, "temperature": 0}


@pytest.fixture
def home(tmp_path):
    return make_home(tmp_path / "home")


@pytest.fixture
def manager(aned):
    """manager(home, args=(), env=None) -> Manager"""
    made = []

    def make(*args, **kw):
        made.append(Manager(aned, *args, **kw))
        return made[-1]
    yield make
    for m in made:
        m.close()


def text_of(c):
    r = c.post("/v1/completions", json=ASK)
    assert r.status_code == 200, r.text
    return r.json()["choices"][0]["text"]


def inode(path):
    st = os.stat(path)
    return st.st_dev, st.st_ino


def test_the_first_client_starts_it_and_the_next_one_again(manager, home):
    m = manager(home)
    here = inode(m.sock)
    assert m.starts == 0
    with m.http() as c:
        text = text_of(c)  # nobody had to ask twice
        s = c.get("/aned/v1/status").json()
    assert m.starts == 1 and s["pid"] == m.proc.pid and s["activated"] is True
    for sig, code in ((signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)):
        n = m.starts
        m.proc.send_signal(sig)
        until(lambda: len(m.codes) == n)
        assert m.codes[-1] == code
        assert inode(m.sock) == here  # it is the manager's
        with m.http() as c:
            assert text_of(c) == text
        assert m.starts == n + 1


def test_many_first_clients_at_once(manager, home):
    """All of them wait in the socket and are answered by one daemon."""
    m = manager(home)
    got = []

    def ask():
        with m.http() as c:
            got.append(text_of(c))
    threads = [threading.Thread(target=ask) for _ in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120 * SLOW_S)
    assert len(got) == 12 and len(set(got)) == 1
    assert m.starts == 1


def test_who_comes_while_it_stops_is_answered_by_the_next(manager, tmp_path):
    m = manager(make_home(tmp_path / "home", fake="delay_us 100000\n", conf="[server]\ndrain_ms = 600000\n"))
    with m.http() as c:
        text_of(c)
        first = m.proc
        with c.stream("POST", "/v1/completions", json=dict(ASK, stream=True, max_tokens=40)) as r:
            lines = r.iter_lines()
            next(lines)
            first.send_signal(signal.SIGTERM)
            until(lambda: b"draining" in m.log.read_bytes())
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(120 * SLOW_S)
            s.connect(str(m.sock))  # nobody accepts it now
            s.sendall(b"GET /aned/v1/status HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            assert "data: [DONE]" in list(lines)  # the open request ends as it should
    data = b""
    while chunk := s.recv(65536):
        data += chunk
    s.close()
    pid = json.loads(data.split(b"\r\n\r\n", 1)[1])["pid"]
    assert m.codes[0] == 0 and m.starts == 2 and pid == m.proc.pid != first.pid


def test_the_manager_is_told(manager, home):
    m = manager(home)
    with m.http() as c:
        assert c.get("/v1/models").status_code == 200
    assert "READY=1" in m.notice()
    m.proc.send_signal(signal.SIGTERM)
    until(lambda: not m.running())
    assert "STOPPING=1" in m.notice()


def test_children_inherit_neither_sockets_nor_variables(manager, home):
    m = manager(home)
    with m.http() as c:
        text_of(c)
        engine = c.get("/aned/v1/models/fake").json()["engine"]["pid"]
    env = open(f"/proc/{engine}/environ").read()
    assert "LISTEN_" not in env and "NOTIFY_SOCKET" not in env
    mine = {x.split()[6] for x in open("/proc/net/unix").read().splitlines() if x.endswith(str(m.sock))}
    assert mine
    held = {os.readlink(f"/proc/{engine}/fd/{f}") for f in os.listdir(f"/proc/{engine}/fd")}
    assert not held & {f"socket:[{i}]" for i in mine}


def test_sockets_for_another_process_are_left_alone(aned, home, tmp_path):
    given = listen(tmp_path / "given")
    own = tmp_path / "run" / "own"
    p = spawn([aned, "serve", "--home", home, "--socket", own], [given], tmp_path / "log", wrong_pid=True)
    try:
        until(own.exists)
        with client(own) as c:
            until(lambda: c.get("/health").status_code == 200)
            assert c.get("/aned/v1/status").json()["activated"] is False
        given.settimeout(1)
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(tmp_path / "given"))
            given.accept()[0].close()  # still ours to accept from
    finally:
        p.send_signal(signal.SIGTERM)
        assert p.wait(60 * SLOW_S) == 0
        given.close()


def test_what_is_no_socket_is_refused(aned, home, tmp_path):
    with open(tmp_path / "file", "w") as f:
        p = spawn([aned, "serve", "--home", home], [f], tmp_path / "log")
        assert p.wait(60 * SLOW_S) == 78
    assert "is not a listening Unix socket" in (tmp_path / "log").read_text()


@pytest.mark.skipif(shutil.which("systemd-socket-activate") is None, reason="systemd-socket-activate is not installed")
def test_systemds_own_activation(aned, home, tmp_path):
    path = tmp_path / "sd.sock"
    log = open(tmp_path / "log", "wb")
    p = subprocess.Popen(["systemd-socket-activate", "-l", str(path), aned, "serve", "--home", str(home)],
                         stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        until(path.exists)
        here = inode(path)
        with client(path) as c:
            text_of(c)
            s = c.get("/aned/v1/status").json()
        assert s["activated"] is True and s["pid"] == p.pid  # it has become aned
        p.send_signal(signal.SIGTERM)
        assert p.wait(60 * SLOW_S) == 0
        assert inode(path) == here
    finally:
        if p.poll() is None:
            p.kill()
            p.wait()
        log.close()
