"""A conversion that is disturbed: a daemon that may be dead, the files of a model, points of a job."""
import contextlib
import hashlib
import json
import random
import time
from pathlib import Path

import httpx

from conftest import OVER, SLOW_S, Daemon

NAME = "m"


def hashes(folder):
    """Every file below it."""
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(Path(folder).rglob("*")) if p.is_file()}


class Host:
    """One home, and daemons on it, one after the other."""

    def __init__(self, aned, home):
        self.aned, self.home, self.d = aned, Path(home), None

    def start(self):
        self.d = Daemon(self.aned, home=self.home)
        return self.d

    def ask(self, method, path, **kw):
        """The JSON of an answer; None from a daemon that has died."""
        try:
            with self.d.http() as c:
                r = c.request(method, path, **kw)
            assert r.status_code < 300, r.text
            return r.json()
        except httpx.HTTPError:
            return None

    def job(self, job):
        return self.ask("GET", f"/aned/v1/jobs/{job}")

    def model(self):
        return next((m for m in self.ask("GET", "/aned/v1/models")["models"] if m["name"] == NAME), None)

    def post(self, source, options):
        return self.ask("POST", "/aned/v1/jobs", json={"source": str(source), "name": NAME, **options})["id"]

    def log(self):
        return self.d.log.read_text()

    def close(self):
        return self.d.close()


def is_whole(host, want):
    """Listed, or lying there: then all of it."""
    folder = host.home / "models" / NAME
    if host.d.proc.poll() is None and (m := host.model()) is not None:
        assert m["state"] in ("ready", "unverified", "loaded", "rejected"), m
        assert m["fingerprint"] == want["fingerprint"], m
    if folder.exists():
        assert hashes(folder) == want["files"]


def wait_over(host, job, want=None, seconds=300, each=None):
    end = time.monotonic() + seconds * SLOW_S
    while True:
        j = host.job(job)
        assert j is not None, host.log()[-3000:]
        if want is not None:
            is_whole(host, want)
        if j["state"] in OVER:
            return j
        if each is not None and each(j):
            return j
        assert time.monotonic() < end, j
        time.sleep(0.02)


def undisturbed(aned, home, source, options):
    """Its files, fingerprint and time; twice, for what is compared must be the same without any disturbance."""
    found = []
    for i in range(2):
        host = Host(aned, Path(home) / f"quiet{i}")
        host.start()
        began = time.monotonic()
        try:
            j = wait_over(host, host.post(source, options))
            assert j["state"] == "done", j
            found.append({"files": hashes(host.home / "models" / NAME), "fingerprint": host.model()["fingerprint"],
                          "seconds": time.monotonic() - began, "bytes": sum(p.stat().st_size for p in (host.home / "models").rglob("*"))})
        finally:
            assert host.close() == 0
    assert found[0]["files"] == found[1]["files"]
    return found[1]


class Points:
    """Where to disturb: half by progress, half by time, and what (of `victims`, in turn). Seeded."""

    def __init__(self, seed, victims, seconds):
        self.random, self.victims, self.seconds, self.n = random.Random(seed), victims, seconds, 0

    def next(self):
        victim = self.victims[self.n % len(self.victims)]
        by_time = self.n // len(self.victims) % 2 == 1
        self.n += 1
        at = self.random.uniform(0, 0.97)
        return victim, ("seconds", at * self.seconds) if by_time else ("progress", at)


def reach(host, job, at):
    """Wait for the point; the job as it then is."""
    kind, value = at
    began = time.monotonic()

    def there(j):
        return (time.monotonic() - began if kind == "seconds" else j["progress"]) >= value
    return wait_over(host, job, each=there)


def kept(home):
    """Bytes that a later run goes on with, by file: those on record in staging, and whole layers' codes."""
    found = {f"calibration/{f.name}": f.stat().st_size for f in Path(home).glob("staging/work-*/.staging-*/calibration/layer_???")}
    for journal in Path(home).glob("staging/work-*/.staging-*/journal"):
        for line in journal.read_text(errors="replace").splitlines()[1:]:
            with contextlib.suppress(ValueError, IndexError):
                _, kind, size, _, path = line.split(" ")
                if kind == "file":
                    found[path] = int(size)
    return found


def tell(report, **row):
    report.append(row)
    print(json.dumps(row), flush=True)
