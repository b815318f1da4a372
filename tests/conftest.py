"""What the Python suites share: the executables, the shared test data, a running daemon.

Everything is found through the environment `./dev test` sets (ANED_BIN: the build folder; ANED_TOP: the project), or
its defaults. ANED_BACKEND: what daemons run on whose configuration does not say it (`with_backend`). Sockets and homes are temporary; only processes started here are ended, by their id.
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import httpx
import pytest

TOP = pathlib.Path(os.environ.get("ANED_TOP", pathlib.Path(__file__).parents[1]))
BIN = pathlib.Path(os.environ.get("ANED_BIN", TOP / ".build" / "release"))
SHARED = TOP.parent / "shared"
SLOW_S = 4 if "asan" in BIN.name else 1  # what a sanitizer costs, as a factor: how long may be waited
OVER = ("done", "failed", "cancelled", "interrupted")  # states of a job
PAUSE = 2 if "asan" in BIN.name else 1  # the same of a time that is always waited
BACKEND = os.environ.get("ANED_BACKEND", "")


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="run the tests marked slow too")


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: minutes long; run with --slow")
    config.addinivalue_line("markers", "smoke: of tests/coreml/e2e, in every ./dev test")
    config.addinivalue_line("markers", "asan: run again on the sanitizer build")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--slow"):
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))


@pytest.fixture(scope="session")
def aned():
    p = BIN / "daemon" / "aned"
    assert p.exists(), f"{p} is not built: ./dev build"
    return str(p)


@pytest.fixture(scope="session")
def anectl():
    p = BIN / "client" / "anectl"
    assert p.exists(), f"{p} is not built: ./dev build"
    return str(p)


@pytest.fixture(scope="session")
def shared():
    if not SHARED.is_dir():
        pytest.skip("shared test data is not there")
    return SHARED


@pytest.fixture(scope="session")
def gemma():
    p = TOP / ".build" / "models" / "gemma-3-270m-q4_k_m.gguf"
    if not p.exists():
        pytest.skip("gemma-3-270m: not installed")
    return p


@pytest.fixture(scope="session")
def demo_gguf():
    found = sorted((TOP / "conf" / "demo").glob("*.gguf"))
    assert found, "conf/demo/*.gguf is missing"
    return found[0]


def with_backend(conf):
    """ANED_BACKEND into a daemon's configuration, unless that names a backend, or another engine (tests/fake.py)."""
    conf = pathlib.Path(conf)
    text = conf.read_text() if conf.exists() else ""
    if BACKEND and not re.search(r"^(backend|program) *=", text, re.M):
        conf.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        conf.write_text(f"{text.rstrip()}\n[engine]\nbackend = {BACKEND}\n".lstrip())


class Daemon:
    """A running `aned serve` on a private home and socket."""

    def __init__(self, aned, home=None, args=(), env=None):
        self.aned = aned
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="aned-test-"))
        self.home = pathlib.Path(home) if home else self.dir / "home"
        self.sock = self.dir / "run" / "aned.sock"
        self.args = list(args)
        self.env = dict(os.environ, **(env or {}))
        self.log = self.dir / "aned.log"
        self.proc = None
        self.start()

    def start(self):
        with_backend(self.args[self.args.index("--config") + 1] if "--config" in self.args else self.home / "aned.conf")
        self.logf = open(self.log, "ab")
        self.proc = subprocess.Popen(
            [self.aned, "serve", "--home", str(self.home), "--socket", str(self.sock), *self.args],
            stdin=subprocess.DEVNULL, stdout=self.logf, stderr=self.logf, env=self.env)
        end = time.monotonic() + 60 * SLOW_S
        while True:
            try:
                if self.http().get("/health").status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            if self.proc.poll() is not None or time.monotonic() > end:
                raise RuntimeError("aned did not start:\n" + self.log.read_text()[-4000:])
            time.sleep(0.05)

    def http(self, timeout=120):
        # Without verify=False each client reads the system's certificates, for 20 ms, which no Unix socket asks for.
        return httpx.Client(transport=httpx.HTTPTransport(uds=str(self.sock), verify=False), base_url="http://aned",
                            timeout=timeout * SLOW_S)

    def convert(self, source, name, timeout=240, **spec):
        """Convert and wait; returns the final job object."""
        with self.http() as c:
            r = c.post("/aned/v1/jobs", json={"source": str(source), "name": name, **spec})
            assert r.status_code == 202, r.text
            job = r.json()["id"]
            end = time.monotonic() + timeout * SLOW_S
            while time.monotonic() < end:
                j = c.get(f"/aned/v1/jobs/{job}").json()
                if j["state"] in OVER:
                    return j
                time.sleep(0.1)
        raise AssertionError(f"job {job} did not end: {json.dumps(j)}")

    def children(self):
        out = []
        for t in pathlib.Path(f"/proc/{self.proc.pid}/task").iterdir():
            with contextlib.suppress(OSError):  # a thread may end meanwhile
                out += [int(x) for x in (t / "children").read_text().split()]
        return out

    def of_role(self, role):
        """The children in that role: engine, convert-worker, verify-worker (which comes and goes by itself)."""
        def argv(pid):
            try:
                return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                return []  # it is gone
        return [p for p in self.children() if role.encode() in argv(p)]

    def engines(self):
        return self.of_role("engine")

    def fds(self):
        return len(list(pathlib.Path(f"/proc/{self.proc.pid}/fd").iterdir()))

    def rss_kib(self):
        for line in pathlib.Path(f"/proc/{self.proc.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        return 0

    def kill(self, sig=signal.SIGKILL):
        self.proc.send_signal(sig)
        code = self.proc.wait(timeout=30 * SLOW_S)
        self.logf.close()
        return code

    def stop(self):
        """SIGTERM; returns the exit code."""
        if self.proc.poll() is None:
            self.proc.send_signal(signal.SIGTERM)
            try:
                self.proc.wait(timeout=30 * SLOW_S)
            except subprocess.TimeoutExpired:
                self.proc.kill()
                self.proc.wait()
        self.logf.close()
        return self.proc.returncode

    def close(self):
        code = self.stop()
        shutil.rmtree(self.dir, ignore_errors=True)
        return code


@contextlib.contextmanager
def converted(d, source, name, **spec):
    """A model that a daemon which tests share has in the block, and not after it."""
    job = d.convert(source, name, **spec)
    assert job["state"] == "done", job
    try:
        yield
    finally:
        with d.http() as c:
            assert c.delete(f"/aned/v1/models/{name}").status_code in (200, 204)


def until(what, seconds=120):
    """Wait for a condition. The time is only for a test that fails: what is waited for has no business to be slow, but
    the machine may have."""
    end = time.monotonic() + seconds * SLOW_S
    while not what():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.02)


def wait_idle(d):
    """Until nothing runs or waits."""
    until(lambda: (s := status(d))["running"] + s["queued"] == 0)


def state_of(pid):
    return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0]


def has_ended(pid):
    try:
        return state_of(pid) in "ZX"
    except OSError:
        return True


def is_stopped(pid):
    return state_of(pid) == "T"


@contextlib.contextmanager
def stopped(pid):
    """A process stands still in the block: nothing of it is over before all was looked at."""
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: is_stopped(pid))
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):  # it may have been ended meanwhile
            os.kill(pid, signal.SIGCONT)


def catch(pid):
    """Stop a process; False: it has ended."""
    try:
        os.kill(pid, signal.SIGSTOP)
        until(lambda: state_of(pid) in "TZX")
        return is_stopped(pid)
    except OSError:
        return False


@contextlib.contextmanager
def worker_stopped(d, source, names):
    """A job whose converter stands still in the block; its id. It has the first of the names whose conversion was not near
    its end before that."""
    for name in names:
        with d.http() as c:
            r = c.post("/aned/v1/jobs", json={"source": str(source), "name": name})
            assert r.status_code == 202, r.text
            job = r.json()["id"]

            def state():
                return c.get(f"/aned/v1/jobs/{job}").json()["state"]
            until(lambda: d.of_role("convert-worker") or state() in OVER)
            found = [pid for pid in d.of_role("convert-worker") if catch(pid)]
            if found and [state(), state()][1] == "running":  # the second answer comes after all that it said
                with stopped(found[0]):
                    yield job
                return
            for pid in found:
                os.kill(pid, signal.SIGCONT)
            until(lambda: state() in OVER)
    raise AssertionError("each was over too early")


def engine_pid(d, model):
    with d.http() as c:
        return c.get(f"/aned/v1/models/{model}").json()["engine"]["pid"]


def child_of(d, role):
    """The pid of a child in that role: engine or convert-worker. Waits for one."""
    found = []
    until(lambda: found.extend(d.of_role(role)) or found)
    return found[0]


def rests(d, ticks):
    """In two seconds the daemon and its engines use so few ticks of 10 ms of their own, once what was begun (states that are
    saved) is over."""
    def used():
        stat = [open(f"/proc/{p}/stat").read().rsplit(")", 1)[1].split() for p in (d.proc.pid, *d.engines())]
        return sum(int(f[11]) + int(f[12]) for f in stat)
    for _ in range(20):
        before = used()
        time.sleep(2)
        if used() - before <= ticks:
            return True
    return False


def status(d):
    with d.http() as c:
        return c.get("/aned/v1/status").json()


def metric(d, name):
    """A counter or gauge of /metrics that has no labels."""
    with d.http() as c:
        return next(float(x.split()[1]) for x in c.get("/metrics").text.splitlines() if x.startswith(f"aned_{name} "))


def raw_post(d, body, path="/v1/completions", rcvbuf=None):
    """A connection of its own that has asked, and reads nothing."""
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(60 * SLOW_S)
    if rcvbuf is not None:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
    s.connect(str(d.sock))
    text = json.dumps(body).encode()
    s.sendall(f"POST {path} HTTP/1.1\r\nHost: aned\r\nConnection: close\r\nContent-Type: application/json\r\n"
              f"Content-Length: {len(text)}\r\n\r\n".encode() + text)
    return s


@pytest.fixture(scope="module")
def demo_home(aned, demo_gguf, tmp_path_factory):
    """A home with the demo model converted as `demo`, for a module's own daemons."""
    home = tmp_path_factory.mktemp("demo") / "home"
    d = Daemon(aned, home=home)
    try:
        assert d.convert(demo_gguf, "demo", context=512)["state"] == "done"
    finally:
        assert d.close() == 0
    return home


@pytest.fixture(scope="session")
def daemon_class():
    """For folders whose own conftest.py hides this one from import."""
    return Daemon


@pytest.fixture
def make_daemon(aned):
    """make_daemon(home=None, args=(), env=None) -> Daemon; all are ended at the end of the test."""
    made = []

    def make(**kw):
        made.append(Daemon(aned, **kw))
        return made[-1]
    yield make
    for d in made:
        d.close()


@pytest.fixture(scope="session")
def daemon(aned, demo_gguf):
    """A daemon that many tests share, with the demo model converted as `demo`."""
    d = Daemon(aned)
    job = d.convert(demo_gguf, "demo", context=512)
    assert job["state"] == "done", job
    yield d
    assert d.close() == 0, "aned serve ended with an error"
