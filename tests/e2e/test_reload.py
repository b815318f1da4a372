"""SIGHUP: what counts at once, what with the next load, what not; a wrong file changes nothing. --service: a daemon whose
configuration is wrong stays and says why, until it is right."""
import contextlib
import json
import os
import pty
import signal
import socket
import subprocess
import time

import pytest

from activation import Manager, client
from conftest import SLOW_S, Daemon, engine_pid, status, until
from fake import make_home

pytestmark = pytest.mark.asan

ASK = {"model": "fake", "prompt": "hello", "max_tokens": 8, "temperature": 0}


def write(home, text):
    """As an editor does it: the whole file at once."""
    (home / "new").write_text(text)
    (home / "new").rename(home / "aned.conf")


def reload(d):
    """SIGHUP, and wait until it was answered; the state of the configuration."""
    n = status(d)["config"]["reloads"]
    d.proc.send_signal(signal.SIGHUP)
    until(lambda: status(d)["config"]["reloads"] == n + 1)
    return status(d)["config"]


def model(d, name="fake"):
    with d.http() as c:
        return c.get(f"/aned/v1/models/{name}").json()


def complete(d, **kw):
    with d.http() as c:
        return c.post("/v1/completions", json={**ASK, **kw})


@pytest.fixture
def start(aned, tmp_path):
    """start(fake=, conf=, models=) -> (Daemon, its options): add lines to those and write() them."""
    made = []

    def go(**kw):
        home = make_home(tmp_path / f"h{len(made)}", **kw)
        made.append(Daemon(aned, home=home))
        return made[-1], (home / "aned.conf").read_text()
    yield go
    for d in made:
        assert d.close() == 0


# --- what a reload takes ---


def test_some_options_count_at_once(start):
    d, conf = start(models=("fake", "other"))
    assert complete(d).status_code == 200 and complete(d, model="other").status_code == 200
    engine = engine_pid(d, "fake")
    assert model(d)["keep_alive_ms"] == 3600_000
    assert complete(d, model="other", keep_alive="20m").status_code == 200
    budget = status(d)["memory"]["budget_bytes"]
    write(d.home, conf + "keep_alive_s = 60\n[limits]\njobs_queued = 3\nmemory_mib = 1000\n[server]\nlog = debug\n")
    state = reload(d)
    assert state["error"] is None and state["restart_needed"] == [] and state["file"] == str(d.home / "aned.conf")
    assert abs(state["reloaded_ms"] / 1000 - time.time()) < 600
    s = status(d)
    assert s["jobs"]["limit"] == 3
    assert s["memory"]["budget_bytes"] == 1000 << 20 != budget
    assert model(d)["keep_alive_ms"] == 60_000
    assert model(d, "other")["keep_alive_ms"] == 1200_000  # a request had said so
    assert engine_pid(d, "fake") == engine  # nothing was loaded anew
    assert complete(d).status_code == 200
    assert " debug serve " in d.log.read_text()
    write(d.home, conf)  # and back
    reload(d)
    assert status(d)["memory"]["budget_bytes"] == budget and model(d)["keep_alive_ms"] == 3600_000


def test_fewer_models_let_idle_ones_go(start):
    d, conf = start(models=("fake", "other"))
    assert complete(d).status_code == 200 and complete(d, model="other").status_code == 200
    assert model(d)["state"] == model(d, "other")["state"] == "loaded"
    write(d.home, conf + "[cache]\nmodels = 1\n")
    reload(d)
    until(lambda: model(d)["state"] == "ready")  # the one used longest ago
    assert model(d, "other")["state"] == "loaded"


def test_drafts_go_off_and_on_and_change_no_token(start):
    """Amid a stream too."""
    d, conf = start(fake="period 7\ndelay_us 3000\n", context=2048)
    ask = dict(max_tokens=300, prompt="hello hello hello")
    want = complete(d, **ask).json()["choices"][0]["text"]
    drafted = status(d)["counters"]["drafted_tokens"]
    assert drafted > 0
    off = conf + "[speculation]\nmax_draft = 0\n"
    write(d.home, off)
    reload(d)
    assert complete(d, **ask).json()["choices"][0]["text"] == want
    assert status(d)["counters"]["drafted_tokens"] == drafted
    with d.http() as c, c.stream("POST", "/v1/completions", json={**ASK, **ask, "stream": True}) as r:
        text = ""
        for i, line in enumerate(x for x in r.iter_lines() if x.startswith("data: {")):
            if i == 20:
                write(d.home, conf)
                reload(d)
            choices = json.loads(line[6:])["choices"]
            text += choices[0]["text"] if choices else ""
    assert text == want
    assert status(d)["counters"]["drafted_tokens"] > drafted


def test_other_options_count_with_the_next_load(start):
    d, conf = start()
    assert complete(d).status_code == 200
    before = model(d)["engine"]["sequences"]
    write(d.home, conf + "[cache]\nsessions = 3\n[limits]\nstreams = 2\n")
    assert reload(d)["restart_needed"] == []
    assert model(d)["engine"]["sequences"] == before != 3
    with d.http() as c:
        assert c.post("/aned/v1/models/fake/unload").status_code == 200
    text = complete(d).json()["choices"][0]["text"]
    assert model(d)["engine"]["sequences"] == 3
    os.kill(engine_pid(d, "fake"), signal.SIGKILL)  # a crash is no load: it goes on as it was
    until(lambda: complete(d).json().get("choices", [{}])[0].get("text") == text)
    assert model(d)["engine"]["sequences"] == 3


def test_the_rest_waits_for_a_restart_and_is_named(start):
    d, conf = start()
    write(d.home, conf + "backend = interpreter\npreload = fake\n[cache]\ndisk_mib = 100\n")
    state = reload(d)
    assert state["error"] is None and state["restart_needed"] == ["engine.backend", "engine.preload"]
    assert status(d)["backend"] == "cpu"
    write(d.home, conf + "preload = fake\n")
    assert reload(d)["restart_needed"] == ["engine.preload"]
    d.stop()
    d.start()
    assert status(d)["config"] == {"file": str(d.home / "aned.conf"), "reloads": 0, "reloaded_ms": None, "error": None,
                                   "restart_needed": []}
    until(lambda: model(d)["state"] == "loaded")


def test_saved_states_follow_their_budget(make_daemon, demo_home):
    d = make_daemon(home=demo_home)
    (d.home / "aned.conf").write_text("[cache]\ndisk_tokens = 64\n")
    reload(d)
    states = d.home / "cache" / "states"
    with d.http() as c:
        ask = {"model": "demo", "prompt": "What is aned? " * 30, "max_tokens": 2}
        assert c.post("/v1/completions", json=ask).status_code == 200
        assert c.post("/aned/v1/models/demo/unload").status_code == 200
    assert list(states.glob("*.state"))
    (d.home / "aned.conf").write_text("[cache]\ndisk_mib = 0\n")
    reload(d)
    until(lambda: not list(states.glob("*.state")))


@pytest.mark.parametrize("text, what", [
    ("[limits]\njobs_queued = 3\nqueue = 0\n", ":3: 'queue' takes a whole number from 1 to 4096"),
    ("[limits]\njobs_queued = 3\nbogus = 1\n", "no option 'bogus' in section [limits]"),
    ("nonsense\n", "neither [section] nor key = value"), (None, "")])
def test_a_wrong_file_changes_nothing(start, text, what):
    d, conf = start(conf="[limits]\njobs_queued = 5\n")
    if text is None:  # a folder where the file was
        (d.home / "aned.conf").unlink()
        (d.home / "aned.conf").mkdir()
    else:
        write(d.home, text)
    error = reload(d)["error"]
    assert error and what in error and "aned.conf" in error, error
    assert status(d)["jobs"]["limit"] == 5
    assert "reload_refused" in d.log.read_text()
    assert complete(d).status_code == 200
    if text is None:
        (d.home / "aned.conf").rmdir()
    write(d.home, conf + "queue = 9\n")  # what is right counts again, and the error is gone
    assert reload(d)["error"] is None
    assert status(d)["queue_limit"] == 9


def test_many_signals_at_once(start):
    d, conf = start(conf="[limits]\njobs_queued = 5\n")
    for i in range(200):
        write(d.home, conf + f"queue = {i + 1}\n")
        d.proc.send_signal(signal.SIGHUP)
    until(lambda: status(d)["queue_limit"] == 200)  # the last file counts, whatever fell together


def test_children_do_not_care(start):
    """A manager, or a shell, may send it to all of them."""
    d, _ = start(fake="delay_us 50000\n")
    want = complete(d, max_tokens=20).json()["choices"][0]["text"]
    engine = engine_pid(d, "fake")
    with d.http() as c, c.stream("POST", "/v1/completions", json={**ASK, "max_tokens": 20, "stream": True}) as r:
        lines = r.iter_lines()
        next(lines)
        os.kill(engine, signal.SIGHUP)
        reload(d)
        text = [json.loads(x[6:])["choices"][0]["text"] for x in lines if x.startswith("data: {")]
    assert want.endswith("".join(text)) and engine_pid(d, "fake") == engine


def test_a_closed_terminal_ends_it(aned, tmp_path):
    home = make_home(tmp_path / "home")
    sock = tmp_path / "run" / "s"
    pid, master = pty.fork()
    if pid == 0:
        os.execv(aned, [aned, "serve", "--home", str(home), "--socket", str(sock)])
    try:
        def up():
            with contextlib.suppress(Exception), client(sock) as c:
                return c.get("/health").status_code == 200
        until(up)
        os.kill(pid, signal.SIGHUP)  # with the terminal there it is a reload
        with client(sock) as c:
            until(lambda: c.get("/aned/v1/status").json()["config"]["reloads"] == 1)
        os.close(master)
        master = -1
        ended = []
        until(lambda: ended.append(os.waitpid(pid, os.WNOHANG)) or ended[-1][0])
        assert ended[-1] == (pid, 0)
    finally:
        if master >= 0:
            os.close(master)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


# --- --service ---


class Service:
    """`aned serve --service` that may be in trouble from its start."""

    def __init__(self, aned, home, args=(), env=None):
        self.home, self.sock, self.log = home, home.parent / "run" / "s", home.parent / "log"
        with open(self.log, "ab") as log:
            self.proc = subprocess.Popen([aned, "serve", "--service", "--home", str(home), "--socket", str(self.sock), *args],
                                         stdin=subprocess.DEVNULL, stderr=log, env=dict(os.environ, **(env or {})))
        until(lambda: self.listens() or self.proc.poll() is not None)

    def listens(self):
        with socket.socket(socket.AF_UNIX) as s:
            return s.connect_ex(str(self.sock)) == 0

    def http(self):
        return client(self.sock)

    def health(self):
        with self.http() as c:
            return c.get("/health")

    def stop(self):
        self.proc.send_signal(signal.SIGTERM)
        return self.proc.wait(60 * SLOW_S)


@pytest.fixture
def service(aned):
    made = []

    def go(*args, **kw):
        made.append(Service(aned, *args, **kw))
        return made[-1]
    yield go
    for s in made:
        if s.proc.poll() is None:
            s.proc.kill()
            s.proc.wait()


def test_without_service_a_wrong_file_ends_it(aned, tmp_path):
    home = make_home(tmp_path / "home", conf="[limits]\nqueue = 0\n")
    r = subprocess.run([aned, "serve", "--home", home, "--socket", tmp_path / "s"], capture_output=True, text=True,
                       timeout=60 * SLOW_S)
    assert r.returncode == 78 and "queue" in r.stderr
    r = subprocess.run([aned, "serve", "--service", "--check", "--home", home], capture_output=True, text=True)
    assert r.returncode == 78  # a check is one with --service too


def test_a_service_says_what_is_wrong_until_it_is_mended(service, tmp_path):
    home = make_home(tmp_path / "home", conf="[limits]\nqueue = 0\n")
    good = (home / "aned.conf").read_text().replace("queue = 0", "queue = 7")
    s = service(home)
    with s.http() as c:
        for method, path in (("GET", "/health"), ("GET", "/v1/models"), ("GET", "/aned/v1/status"), ("GET", "/metrics"),
                             ("POST", "/v1/completions"), ("DELETE", "/aned/v1/models/fake")):
            r = c.request(method, path, json={} if method == "POST" else None)
            e = r.json()["error"]
            assert r.status_code == 503 and e["code"] == "config", (path, r.text)
            assert "aned.conf:4: 'queue' takes a whole number from 1 to 4096" in e["message"]
            assert int(r.headers["retry-after"]) >= 1
    assert not (home / "aned.db").exists()  # nothing was begun
    write(home, good.replace("queue = 7", "quue = 7"))  # another mistake, seen by itself
    until(lambda: "no option 'quue'" in s.health().text)
    write(home, good)
    until(lambda: s.health().status_code == 200)
    with s.http() as c:
        assert c.get("/aned/v1/status").json()["queue_limit"] == 7
        assert c.post("/v1/completions", json=ASK).status_code == 200
    log = s.log.read_text()
    assert log.count(" trouble ") == 2 and log.count("trouble_over") == 1  # said once each, not each look
    assert s.stop() == 0


def test_a_signal_is_a_look(service, tmp_path):
    """SIGHUP does not wait for the next look. Both are allowed to see it; that it came at once is seen by the log."""
    home = make_home(tmp_path / "home", conf="[limits]\nqueue = 0\n")
    s = service(home)
    assert s.health().status_code == 503
    write(home, (home / "aned.conf").read_text().replace("queue = 0", "queue = 7"))
    s.proc.send_signal(signal.SIGHUP)
    until(lambda: s.health().status_code == 200)
    assert s.stop() == 0


def test_a_home_that_others_can_read(service, tmp_path):
    home = make_home(tmp_path / "home")
    home.chmod(0o755)
    s = service(home)
    e = s.health().json()["error"]
    assert e["code"] == "config" and "chmod 700" in e["message"]
    home.chmod(0o700)
    until(lambda: s.health().status_code == 200)
    assert s.stop() == 0


def test_trouble_ends_with_sigterm(service, tmp_path):
    s = service(make_home(tmp_path / "home", conf="[limits]\nqueue = 0\n"))
    assert s.health().status_code == 503
    assert s.stop() == 0
    assert not s.sock.exists()


def test_a_named_file_that_is_absent(service, tmp_path):
    s = service(make_home(tmp_path / "home"), args=["--config", str(tmp_path / "absent.conf")])
    assert "absent.conf" in s.health().json()["error"]["message"]
    (tmp_path / "absent.conf").write_text("[limits]\nqueue = 9\n")
    until(lambda: s.health().status_code == 200)
    assert s.stop() == 0


def test_the_mended_file_may_name_another_socket(aned, tmp_path):
    home = make_home(tmp_path / "home", conf="[limits]\nqueue = 0\n")
    env = {k: v for k, v in os.environ.items() if k not in ("ANED_SOCKET", "XDG_RUNTIME_DIR")}
    first, second = home / "run" / "aned.sock", tmp_path / "other" / "s"
    with open(tmp_path / "log", "wb") as log:
        p = subprocess.Popen([aned, "serve", "--service", "--home", str(home)], stdin=subprocess.DEVNULL, stderr=log, env=env)
    try:
        until(first.exists)
        with client(first) as c:
            assert c.get("/health").status_code == 503
        write(home, (home / "aned.conf").read_text().replace("queue = 0", f"queue = 7\n[server]\nsocket = {second}"))
        until(second.exists)
        with client(second) as c:
            until(lambda: c.get("/health").status_code == 200)
        assert not first.exists()
        p.send_signal(signal.SIGTERM)
        assert p.wait(60 * SLOW_S) == 0 and not second.exists()
    finally:
        if p.poll() is None:
            p.kill()
            p.wait()


def test_trouble_on_a_socket_that_was_handed_over(aned, tmp_path):
    home = make_home(tmp_path / "home", conf="[limits]\nqueue = 0\n")
    m = Manager(aned, home, ["--service"])
    try:
        with m.http() as c:
            assert c.get("/v1/models").status_code == 503
            said = m.notice()
            assert "READY=1" in said and any(x.startswith("STATUS=serves nothing: ") and "queue" in x for x in said), said
            write(home, (home / "aned.conf").read_text().replace("queue = 0", "queue = 7"))
            until(lambda: c.get("/health").status_code == 200)
            s = c.get("/aned/v1/status").json()
        assert m.starts == 1 and s["pid"] == m.proc.pid and s["service"] is True and s["activated"] is True
        assert "STATUS=" in m.notice()
    finally:
        m.close()
    assert m.codes == [0]


def test_what_will_not_mend_itself_ends_a_service_too(service, aned, tmp_path):
    """A damaged store: to start again and again is the manager's decision."""
    home = make_home(tmp_path / "home")
    d = Daemon(aned, home=home)
    assert d.close() == 0
    (home / "aned.db").write_bytes(b"x" * 8192)
    s = service(home)
    assert s.proc.wait(60 * SLOW_S) == 70
    assert "damaged" in s.log.read_text()


def test_nobody_can_listen_there(aned, tmp_path):
    """Without a socket there is nobody to tell: the exit stays."""
    home = make_home(tmp_path / "home")
    (tmp_path / "open").mkdir(mode=0o755)
    r = subprocess.run([aned, "serve", "--service", "--home", home, "--socket", tmp_path / "open" / "s"], capture_output=True,
                       text=True, timeout=60 * SLOW_S)
    assert r.returncode == 78 and "chmod 700" in r.stderr


def test_a_notice_that_nobody_reads_harms_nothing(service, tmp_path):
    full = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    full.bind(str(tmp_path / "n"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                s.sendto(b"x", str(tmp_path / "n"))
    d = service(make_home(tmp_path / "home"), env={"NOTIFY_SOCKET": str(tmp_path / "n")})
    until(lambda: d.health().status_code == 200)
    assert d.stop() == 0
    full.close()
