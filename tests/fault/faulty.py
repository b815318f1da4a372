"""aned on a disk that fails (seam.c): start it, see what became of it."""
import shutil
import sqlite3
import tempfile
from pathlib import Path

import httpx
import pytest

from activation import client, listen, spawn
from conftest import BIN, OVER, SLOW_S, Daemon, until  # noqa: F401 (OVER is for the tests)

FAULT = BIN / "tests" / "fault" / "aned_fault"


class Faulty(Daemon):
    """Its start may be its end. `fault`, `gate`: see seam.c; it counts while armed."""

    def __init__(self, home, fault=None, gate=None):
        self.work = Path(tempfile.mkdtemp(prefix="aned-fault-"))
        self.count_file, self.arm_file = self.work / "count", self.work / "arm"
        self.worker_gate = Path(home) / "worker"  # while it exists, a converter does not begin
        env = {"ANED_FAULT_COUNT": str(self.count_file), "ANED_FAULT_ARM": str(self.arm_file)}
        if fault:
            env["ANED_FAULT"] = fault
        if gate:
            env["ANED_FAULT_GATE"] = str(gate)
        super().__init__(str(FAULT), home=home, env=env)

    def arm(self):
        self.arm_file.touch()

    def disarm(self):
        self.arm_file.unlink(missing_ok=True)

    def count(self):
        return int.from_bytes(self.count_file.read_bytes(), "little")

    def dead(self):
        return self.proc.poll() is not None

    def ask(self, method, path, **kw):
        """The answer, or None from a daemon that died over it."""
        try:
            with self.http() as c:
                return c.request(method, path, **kw)
        except httpx.HTTPError:
            until(self.dead)
            return None

    def job(self, job):
        r = self.ask("GET", f"/aned/v1/jobs/{job}")
        return None if r is None else r.json()

    def models(self):
        with self.http() as c:
            return {m["name"]: m for m in c.get("/aned/v1/models").json()["models"]}

    def close(self):
        shutil.rmtree(self.work, ignore_errors=True)
        return super().close()


@pytest.fixture
def faulty():
    """faulty(home, fault=None, gate=None) -> Faulty"""
    made = []

    def make(home, fault=None, gate=None):
        made.append(Faulty(home, fault, gate))
        return made[-1]
    yield make
    for d in made:
        d.close()


def new_home(path, conf=""):
    path.mkdir(mode=0o700)
    engine = BIN / "tests" / "unit" / "serve" / "fake_engine"
    (path / "aned.conf").write_text(f"[engine]\nprogram = {engine}\n" + conf)
    return path


def rows(home, query):
    """Of a daemon that has ended."""
    db = sqlite3.connect(home / "aned.db")
    try:
        return db.execute(query).fetchall()
    finally:
        db.close()


class HandedOver:
    """A daemon that is given its listening socket, as systemd does it: clients can connect before it is there."""

    def __init__(self, home, gate):
        self.dir = Path(tempfile.mkdtemp(prefix="aned-fault-"))
        self.sock = self.dir / "s"
        self.listener = listen(self.sock)
        self.log = self.dir / "log"
        self.proc = spawn([FAULT, "serve", "--home", home], [self.listener], self.log, env={"ANED_FAULT_GATE": str(gate)})

    def http(self, timeout=60):
        return client(self.sock, timeout)

    def close(self):
        self.listener.close()
        if self.proc.poll() is None:
            self.proc.terminate()
        code = self.proc.wait(30 * SLOW_S)
        shutil.rmtree(self.dir, ignore_errors=True)
        return code


@pytest.fixture
def handed_over():
    made = []

    def make(home, gate):
        made.append(HandedOver(home, gate))
        return made[-1]
    yield make
    for d in made:
        if d.proc.poll() is None:
            d.proc.kill()
        d.close()
