"""anectl doctor: each thing that can be wrong is made wrong, and found, with its remedy; the remedy is tried where that is
possible. Service managers are ours (managers.py)."""
import contextlib
import http.server
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socketserver
import sqlite3
import subprocess
import tempfile
import threading
import time

import pytest

from activation import Manager
from conftest import SLOW_S, Daemon, until
from fake import make_home
from managers import Managers

NICE = os.nice(0)  # of the tests; daemons have it from them
CHECKS = ["daemon", "service", "socket", "home", "config", "store", "disk", "caches", "priority", "files", "large-pages",
          "neural-engine", "os-build", "name", "clock"]


class Patient:
    """A user, his managers, his home; and what anectl doctor says of them."""

    def __init__(self, anectl, aned, path, kind):
        self.anectl, self.aned, self.path, self.kind = anectl, aned, path, kind
        self.user = path / "u"
        self.user.mkdir()
        self.m = Managers(path / "bin", self.user)
        self.env = self.m.env()
        self.env["PATH"] = f"{os.path.dirname(aned)}:{self.env['PATH']}"
        self.home = self.user / ("Library/Application Support/dev.aned.daemon" if kind == "launchd" else ".local/share/aned")
        self.sock = path / "run" / "s"
        self.env["ANED_SOCKET"] = str(self.sock)
        self.d = None

    def start(self, **kw):
        """A daemon on his home and socket, known to the manager as its own."""
        if not (self.home / "aned.conf").exists():
            make_home(self.home)
        self.d = Daemon.__new__(Daemon)
        self.d.aned, self.d.dir, self.d.home, self.d.sock = self.aned, self.path, self.home, self.sock
        self.d.args, self.d.env, self.d.log = kw.pop("args", []), dict(os.environ, **kw), self.path / "log"
        self.d.start()
        self.m.set(pid=self.d.proc.pid, loaded=f"gui/{os.getuid()}", active={"aned.service": "active", "aned.socket": "active"})
        return self.d

    def stop(self):
        if self.d is not None and self.d.proc.poll() is None:
            assert self.d.stop() == 0
        self.m.set(pid=0)

    def service(self, *args):
        subprocess.run([self.anectl, "service", *args, "--manager", self.kind], env=self.env, check=True, capture_output=True)

    def run(self, *args, **env):
        return subprocess.run([self.anectl, "doctor", *map(str, args), "--manager", self.kind], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=200 * SLOW_S, env={**self.env, **env})

    def report(self, *args, **env):
        r = self.run("--json", *args, **env)
        o = json.loads(r.stdout)
        worst = o["finding"]
        assert r.returncode == {"ok": 0, "note": 0, "warning": 1, "error": 69}[worst], r
        for f in o["findings"]:
            if NICE > 0 and f"has nice {NICE}:" in f["text"]:
                f["finding"] = "ok"  # it is right, and what the tests were started with
        return o

    def of(self, check, *args, **env):
        """The findings of one check, the worst first, as "finding: text | remedy"."""
        order = ["error", "warning", "note", "ok"]
        found = [f for f in self.report(*args, **env)["findings"] if f["check"] == check]
        return [f"{f['finding']}: {f['text']} | {f['remedy']}" for f in sorted(found, key=lambda f: order.index(f["finding"]))]

    def close(self):
        if self.d is not None and self.d.proc.poll() is None:
            self.d.stop()


@pytest.fixture
def tmp_path():
    with tempfile.TemporaryDirectory(prefix="an-", dir="/tmp") as d:
        yield pathlib.Path(d)


@pytest.fixture
def make(anectl, aned, tmp_path):
    made = []

    def go(kind="systemd"):
        made.append(Patient(anectl, aned, tmp_path, kind))
        return made[-1]
    yield go
    for p in made:
        p.close()


@pytest.fixture
def p(make):
    return make()


@pytest.fixture
def mac(make):
    return make("launchd")


class Liar:
    """Answers /aned/v1/status with what the test wants."""

    def __init__(self, path, **status):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        text = json.dumps({"status": "ok", "version": "0.0.1", "pid": os.getpid(), "home": str(path.parent), "backend": "cpu",
                           **status}).encode()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def address_string(self):
                return ""

            def log_message(self, *args):
                pass

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True
        self.server = Server(str(path), Handler)
        os.chmod(path, 0o600)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


# --- the report ---


@pytest.mark.parametrize("kind", ["systemd", "launchd"])
def test_a_healthy_patient(make, kind):
    p = make(kind)
    p.start()
    p.service("install", "--no-wait")
    p.m.set(pid=p.d.proc.pid, active={"aned.service": "active", "aned.socket": "active"})
    o = p.report()
    machine = {"large-pages", "files"}  # what the machine is like
    bad = [f for f in o["findings"] if f["finding"] in ("warning", "error") and f["check"] not in machine]
    assert bad == []
    for check in ("daemon", "service", "socket", "home", "config", "store", "caches", "priority", "name", "clock"):
        assert any(x.startswith("ok: ") for x in p.of(check)), check


def test_the_schema_is_stable(p):
    o = p.report()
    assert list(o) == ["object", "schema", "version", "finding", "checks", "findings"]
    assert o["object"] == "aned.doctor" and o["schema"] == 1
    assert [c["name"] for c in o["checks"]] == CHECKS
    assert all(c["expect"] for c in o["checks"])
    for f in o["findings"]:
        assert list(f) == ["check", "finding", "text", "remedy"] and f["finding"] in ("ok", "note", "warning", "error")
        assert f["text"] and (f["remedy"] or f["finding"] in ("ok", "note"))
    assert [c for c in CHECKS if not any(f["check"] == c for f in o["findings"])] == []


def test_for_people(p):
    r = p.run()
    lines = r.stdout.splitlines()
    assert r.returncode == 69 and r.stderr == ""
    assert re.fullmatch(r"errors: 1, warnings: \d+", lines[-1])
    i = next(i for i, x in enumerate(lines) if x.startswith("error    daemon "))
    assert "no aned listens on" in lines[i] and "anectl service install" in lines[i + 1]


def test_usage(p):
    assert p.run("nonsense").returncode == 64
    r = subprocess.run([p.anectl, "doctor", "--manager", "upstart"], env=p.env, capture_output=True, text=True)
    assert r.returncode == 64 and "upstart" in r.stderr


# --- the daemon ---


def test_no_daemon(p):
    assert "no aned listens" in p.of("daemon")[0] and p.of("daemon")[0].endswith("anectl service install, or: aned serve")
    p.service("install", "--no-wait")
    assert p.of("daemon")[0].startswith("error: ") and p.of("daemon")[0].endswith("| anectl service start")
    assert p.of("priority") == ["note: not known: no daemon answers | None"]


def test_another_version(p):
    with Liar(p.sock):
        assert p.of("daemon")[0].startswith("warning: it is version 0.0.1, anectl is ")
        assert p.of("daemon")[0].endswith("| start it again")
        p.service("install", "--no-wait")
        p.m.set(pid=os.getpid(), active={"aned.service": "active", "aned.socket": "active"})
        assert p.of("daemon")[0].endswith("| anectl service restart")


def test_a_daemon_in_trouble(p):
    make_home(p.home, conf="[limits]\nqueue = 0\n")
    with open(p.path / "log", "wb") as log:
        proc = subprocess.Popen([p.aned, "serve", "--service", "--home", p.home, "--socket", p.sock], stderr=log)
    try:
        until(p.sock.exists)
        assert p.of("daemon")[0].startswith("error: it serves nothing: ") and "'queue' takes" in p.of("daemon")[0]
        assert p.of("config")[0].startswith("error: config: ") and ":4: 'queue' takes" in p.of("config")[0]
    finally:
        proc.terminate()
        assert proc.wait(60 * SLOW_S) == 0


def test_it_starts_a_daemon_that_waits(p, aned):
    """Socket activation is part of what is looked at."""
    make_home(p.home)
    m = Manager(aned, p.home)
    try:
        p.env["ANED_SOCKET"] = str(m.sock)
        assert p.of("daemon")[0].startswith("ok: version ")
        assert m.starts == 1
    finally:
        m.close()


# --- socket, folders ---


def chmod_remedy(finding):
    """Do what it says."""
    cmd = re.search(r"\| (chmod \d+ '.*')$", finding).group(1)
    subprocess.run(cmd, shell=True, check=True)


def test_open_to_others(p):
    p.start()
    for check, path, mode in (("socket", p.sock, 0o666), ("socket", p.sock.parent, 0o755), ("home", p.home, 0o750),
                              ("home", p.home / "models", 0o701), ("home", p.home / "cache/states", 0o704),
                              ("store", p.home / "aned.db", 0o640)):
        assert p.of(check)[0].startswith("ok: "), check
        path.chmod(mode)
        found = p.of(check)[0]
        assert found.startswith("error: ") and f"{path} is open to others ({mode:04o})" in found
        chmod_remedy(found)
        assert p.of(check)[0].startswith("ok: "), check


@pytest.fixture
def shared(tmp_path):
    """A folder like /tmp."""
    (tmp_path / "all").mkdir()
    (tmp_path / "all").chmod(0o1777)
    return tmp_path / "all"


def test_a_folder_for_many_stays_one(p, shared, aned):
    """Nobody is told to close it."""
    with Liar(shared / "s"):
        found = p.of("socket", ANED_SOCKET=str(shared / "s"))
        assert found == [f"error: its folder {shared} is shared with other users | "
                         "choose another with --socket: anectl service install"]
    assert p.of("home", "--home", shared)[0].endswith("is open to others (1777) | choose another with --home")
    make_home(p.home)
    r = subprocess.run([aned, "serve", "--home", p.home, "--socket", shared / "t"], capture_output=True, text=True)
    assert r.returncode == 78 and "shared with other users; choose another with --socket" in r.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")
def test_a_folder_of_another_user(p, tmp_path):
    (tmp_path / "his").mkdir()
    with Liar(tmp_path / "his/s"):
        os.chown(tmp_path / "his", 12345, -1)
        found = p.of("socket", ANED_SOCKET=str(tmp_path / "his/s"))[0]
        assert "is shared with other users | choose another with --socket" in found


def test_no_socket_and_no_home_yet(p):
    assert p.of("socket")[0].startswith("note: ") and "No such file" in p.of("socket")[0]
    assert p.of("home")[0] == f"note: {p.home} is made at the first start | None"
    assert p.of("store")[0].startswith("note: it is made")


def test_something_else_at_the_sockets_place(p):
    p.sock.parent.mkdir(mode=0o700)
    p.sock.write_text("")
    assert p.of("socket")[0] == f"error: {p.sock} is no socket | move it away, start aned again"
    p.sock.unlink()
    p.sock.symlink_to("/nonexistent")
    assert "is a symbolic link" in p.of("socket")[0]


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")
def test_another_owner(p):
    p.start()
    os.chown(p.home, 12345, -1)
    try:
        assert f"error: the home {p.home} belongs to uid 12345 | chown 0 '{p.home}', as root" in p.of("home")
    finally:
        os.chown(p.home, 0, -1)


def test_a_home_where_macos_guards(mac):
    """Where the daemon refuses one: base/macos.c has the list for both."""
    for name, bad in (("Documents/x", True), ("desktop", True), ("Library/Mobile Documents/i", True),
                      ("Library/CloudStorage/Dropbox/h", True), ("/Volumes/disk/h", True), ("Documents2", False), ("x", False)):
        home = mac.user / name
        if name[0] != "/":
            home.mkdir(mode=0o700, parents=True)
        found = mac.of("home", "--home", home)[0]
        assert found.startswith("warning: macOS keeps" if bad else "ok: "), found


# --- configuration ---


def test_a_wrong_file(p):
    make_home(p.home, conf="[limits]\nbogus = 1\n")
    found = p.of("config")[0]
    assert found.startswith("error: config: ") and "aned.conf:4: no option 'bogus'" in found
    assert found.endswith("anectl service reload")
    make_home_again = (p.home / "aned.conf").read_text().replace("bogus = 1", "queue = 1")
    (p.home / "aned.conf").write_text(make_home_again)
    assert p.of("config") == [f"ok: {p.home}/aned.conf | None"]
    (p.home / "aned.conf").unlink()
    assert p.of("config") == ["ok: no file: all options have defaults | None"]


def test_what_a_reload_left(p):
    d = p.start()
    good = (p.home / "aned.conf").read_text()

    def reload(text):
        (p.home / "aned.conf").write_text(text)
        with d.http() as c:
            n = c.get("/aned/v1/status").json()["config"]["reloads"]
            d.proc.send_signal(signal.SIGHUP)
            until(lambda: c.get("/aned/v1/status").json()["config"]["reloads"] == n + 1)
    reload(good + "threads = many\n")
    found = p.of("config")
    assert found[0].startswith("error: ") and "whole number" in found[0]
    assert any(x.startswith("warning: the last reload changed nothing: ") for x in found)
    reload(good + "backend = interpreter\n")
    assert p.of("config")[0] == "warning: engine.backend was changed, but counts only after a restart | anectl service restart"
    reload(good)
    assert p.of("config")[0].startswith("ok: ")


def test_the_file_that_the_daemon_was_given(p):
    make_home(p.home)
    other = p.path / "other.conf"
    other.write_text((p.home / "aned.conf").read_text())
    p.start(args=["--config", str(other)])
    assert p.of("config") == [f"ok: {other} | None"]
    other.write_text("nonsense\n")
    assert "other.conf:1: neither" in p.of("config")[0]


# --- store, disk, caches, clock ---


def test_the_store(p):
    p.start()
    assert "the daemon found it sound when it started" in p.of("store")[0]
    p.stop()
    assert p.of("store")[0].startswith("ok: ") and "sound" in p.of("store")[0]
    db = p.home / "aned.db"
    held = sqlite3.connect(db, isolation_level=None)
    held.execute("PRAGMA locking_mode=EXCLUSIVE")
    held.execute("BEGIN EXCLUSIVE")
    assert p.of("store")[0].startswith("note: not known: ") and "in use by another process" in p.of("store")[0]
    held.close()
    good = db.read_bytes()
    db.write_bytes(good[:4096] + b"\xff" * 4096 + good[8192:])
    found = p.of("store")[0]
    assert found.startswith("error: store: ") and "is damaged" in found and "Move it and its -wal file" in found
    db.write_bytes(b"x" * 8192)
    assert p.of("store")[0].startswith("error: ")
    db.write_bytes(good)
    assert p.of("store")[0].startswith("ok: ")


def test_a_look_at_the_store_changes_nothing(p, aned):
    """Also not that the last run did not end cleanly: the next start has to see that."""
    p.start()
    p.d.kill()
    wal = p.home / "aned.db-wal"
    before = {x.name: x.read_bytes() for x in p.home.glob("aned.db*")}
    assert wal.stat().st_size > 0
    assert p.of("store")[0].startswith("ok: ")
    assert {x.name: x.read_bytes() for x in p.home.glob("aned.db*")} == before
    other = p.path / "other.db"
    other_home = p.path / "h2"
    other_home.mkdir(mode=0o700)
    with contextlib.closing(sqlite3.connect(other_home / "aned.db")) as c:
        c.execute("CREATE TABLE t(x)")
        c.commit()
    r = subprocess.run([aned, "serve", "--check-store", "--home", other_home], capture_output=True, text=True)
    assert r.returncode == 70 and "a database of another program" in r.stderr
    r = subprocess.run([aned, "serve", "--check-store", "--home", other], capture_output=True, text=True)
    assert r.returncode == 66


@pytest.fixture
def small_disk(tmp_path):
    """mount(mebibytes) -> a folder on a file system of that size."""
    made = []

    def mount(mib):
        at = tmp_path / f"disk{mib}"
        at.mkdir()
        r = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=700", "none", at], capture_output=True, text=True)
        if r.returncode:
            pytest.skip(f"no tmpfs can be mounted here: {r.stderr.strip()}")
        made.append(at)
        return at
    yield mount
    for at in made:
        subprocess.run(["umount", at], check=True)


def test_a_full_disk(p, small_disk):
    assert p.of("disk", "--home", small_disk(200))[0].startswith("error: ")
    found = p.of("disk", "--home", small_disk(700))[0]
    assert found.startswith("warning: ") and "a conversion may need 1.1 GB" in found and "anectl rm" in found
    assert p.of("disk", "--home", small_disk(2000))[0].startswith("ok: ")
    home = small_disk(3000)  # a model of 1.5 GB: there is room for one more, but on a Mac not for what Core ML makes of it
    (home / "models/m").mkdir(parents=True)
    with open(home / "models/m/weight.bin", "wb") as f:
        f.truncate(1_500_000_000)
    found = p.of("disk", "--home", home)[0]
    assert found.startswith("ok: ") and "models take 1.5 GB" in found


def test_room_for_what_core_ml_makes(mac, small_disk):
    home = small_disk(3000)
    (home / "models/m").mkdir(parents=True)
    with open(home / "models/m/weight.bin", "wb") as f:
        f.truncate(1_500_000_000)
    found = mac.of("disk", "--home", home)[0]
    assert found.startswith("warning: ") and "a conversion may need 4.5 GB" in found


def test_caches_of_core_ml(mac):
    make_home(mac.home)
    assert len(mac.of("caches")) == 1
    cache = mac.user / "Library/Caches/dev.aned.daemon"
    e5 = cache / "com.apple.e5rt.e5bundlecache"
    (e5 / "24A335/abc").mkdir(parents=True)
    (e5 / "24A335/abc/x.bundle").write_bytes(b"x" * 1000)
    assert [x.split(":")[0] for x in mac.of("caches")] == ["ok", "ok"]
    (e5 / "24B83/abc").mkdir(parents=True)
    os.utime(e5 / "24A335", (1, 1))
    found = mac.of("caches")[0]
    assert found.startswith("warning: 1.0 kB of build 24A335, which is not this one | rm -r '")
    subprocess.run(found.split(" | ")[1], shell=True, check=True)
    assert [x.split(":")[0] for x in mac.of("caches")] == ["ok", "ok"] and (e5 / "24B83").is_dir()
    with open(e5 / "24B83/abc/w", "wb") as f:
        f.truncate(2 << 30)
    assert mac.of("caches")[0].startswith("warning: 2.1 GB in ") and "stop aned, rm -r" in mac.of("caches")[0]
    other = mac.user / "Library/Caches/aned"  # of a program without a bundle id
    other.mkdir()
    assert any(f"in {other}" in x for x in mac.of("caches"))


def test_caches_and_what_was_left(p):
    make_home(p.home)
    (p.home / "cache/states").mkdir(parents=True)
    (p.home / "cache/states/a.state").write_bytes(b"x" * 5000)
    (p.home / "cache/coreml/m").mkdir(parents=True)
    (p.home / "cache/coreml/m/w").write_bytes(b"x" * 3000000)
    assert [x.split(" in ")[0] for x in p.of("caches")] == ["ok: 5.0 kB of saved states", "ok: 3.0 MB compiled for Core ML"]
    (p.home / "staging/j").mkdir(parents=True)
    (p.home / "staging/j/w").write_bytes(b"x" * 7000)
    assert p.of("caches")[0] == "note: 7.0 kB of an unfinished conversion | the next start removes it"


def test_a_clock_that_was_set_back(p):
    make_home(p.home)
    (p.home / "aned.db").write_bytes(b"")
    assert p.of("clock")[0].startswith("ok: 20")
    later = time.time() + 86400
    os.utime(p.home / "aned.db", (later, later))
    found = p.of("clock")[0]
    assert found.startswith("warning: it is 20") and "aned.db was written later" in found


# --- priority and limits ---


def test_a_daemon_that_is_nice(p):
    nice = NICE + 1
    os.setpriority(os.PRIO_PROCESS, p.start().proc.pid, nice)
    found = p.of("priority")[0]
    assert found.startswith("warning: pid ") and f"has nice {nice}" in found and found.endswith("| start it without nice")


def test_a_daemon_in_the_background(p):
    pid = p.start().proc.pid
    os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0))
    assert "runs in the background" in p.of("priority")[0]
    os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))
    assert p.of("priority")[0].startswith("ok: ")


@pytest.mark.parametrize("kind", ["systemd", "launchd"])
def test_what_the_daemon_says_of_itself(make, kind):
    """Of another process a Mac tells neither."""
    p = make(kind)
    with Liar(p.sock, process={"background": True, "files": 300}):
        assert "runs in the background" in p.of("priority")[0]
        assert p.of("files")[0].startswith("warning: the daemon may open 300 files, 4352 are wanted")
    p.sock.unlink()
    with Liar(p.sock, process={"background": False, "files": None}):
        assert p.of("priority")[0].startswith("ok: ") and p.of("files") == ["ok: the daemon may open any number | None"]
    p.sock.unlink()
    with Liar(p.sock, pid=99999999):  # an older one, and nobody else knows
        for check in ("priority", "files"):
            assert "note: not known: a daemon of that version does not tell it | None" in p.of(check)
    p.sock.unlink()
    assert p.of("files")[0].startswith("ok: a daemon started here may open 4352")


def test_an_agent_that_launchd_slows(mac):
    mac.service("install", "--no-wait")
    mac.start()
    assert mac.of("priority")[0].startswith("ok: ")
    plist = mac.user / "Library/LaunchAgents/dev.aned.daemon.plist"
    text = plist.read_text()
    for other in (text.replace("Interactive", "Background"), text.replace("ProcessType", "ProcessTip")):
        plist.write_text(other)
        assert mac.of("priority")[0].startswith("warning: the agent's ProcessType is not Interactive")
    mac.service("install", "--no-wait")  # the remedy
    mac.m.set(pid=mac.d.proc.pid, loaded=f"gui/{os.getuid()}")
    assert mac.of("priority")[0].startswith("ok: ")


def test_too_few_files(p):
    pid = p.start().proc.pid
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (512, 512))
    found = p.of("files")[0]
    assert found.startswith("warning: the daemon may open 512 files, 4352 are wanted") and "LimitNOFILE=8192" in found


# --- service and name ---


def test_the_service(p):
    assert p.of("service") == ["note: systemd does not start it | anectl service install"]
    p.service("install", "--no-wait")
    assert p.of("service")[0].startswith("ok: systemd: inactive")
    p.m.set(linger="no")
    assert any(x.startswith("note: it ends with your last login") for x in p.of("service"))
    p.m.set(enabled=[])
    assert p.of("service")[0] == "warning: it is not enabled: gone after the next login | anectl service install"
    p.service("install", "--no-wait")
    p.service("stop")
    assert p.of("service")[0] == "warning: it is installed, but stopped | anectl service start"
    p.m.set(active={"aned.service": "failed"}, result="exit-code", last_exit=70)
    found = p.of("service")[0]
    assert found.startswith("error: it has failed: failed (failed), exit-code, exit status 70")
    unit = p.user / ".config/systemd/user/aned.service"
    unit.write_text(unit.read_text().replace(" --service", ""))
    assert f"warning: {unit} is of an older aned | anectl service install" in p.of("service")
    p.m.set(bus=False)
    assert p.of("service")[0].startswith("note: not under systemd: ")


def test_two_daemons(p):
    p.service("install", "--no-wait")
    p.start()
    p.m.set(pid=1)
    assert p.of("service")[0] == (f"warning: systemd runs pid 1, but pid {p.d.proc.pid} answers on the socket | "
                                  "end one of them")


def test_another_aned_in_the_path(p, tmp_path):
    assert p.of("name")[0].startswith("ok: ")
    other = tmp_path / "first"
    other.mkdir()
    shutil.copy("/bin/true", other / "aned")
    found = p.of("name", PATH=f"{other}:{p.env['PATH']}")[0]
    assert found == f"warning: PATH has {other}/aned, anectl's own is {p.aned} | put the right folder first in PATH"
    (tmp_path / "link").mkdir()
    (tmp_path / "link/aned").symlink_to(p.aned)
    assert p.of("name", PATH=f"{tmp_path}/link:{p.env['PATH']}")[0].startswith("ok: ")  # it is the same


def test_without_an_aned(anectl, p, tmp_path):
    """anectl alone: what it cannot know it says."""
    lone = tmp_path / "lone"
    lone.mkdir()
    shutil.copy(anectl, lone / "anectl")
    p.anectl = str(lone / "anectl")
    make_home(p.home)
    (p.home / "aned.db").write_bytes(b"x")
    (p.home / "aned.db").chmod(0o600)
    path = str(p.m.dir)
    for check in ("config", "store"):
        assert p.of(check, PATH=path)[0].startswith("note: not known: there is no aned to read it"), check
    assert p.of("name", PATH=path)[0] == "note: no aned in PATH; anectl uses none | None"
