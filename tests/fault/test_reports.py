"""A probe of which the daemon dies, or finds no room, at every call that changes the disk: afterwards there is the whole
report or none, and what was shown as measured is there after a restart."""
import shutil
import subprocess

import pytest

from conftest import BIN, until
from faulty import faulty, rows  # noqa: F401 (fixtures)


@pytest.fixture(scope="module")
def demo(demo_gguf, tmp_path_factory):
    """A home with the demo model; each test copies it."""
    home = tmp_path_factory.mktemp("demo") / "home"
    (home / "models").mkdir(parents=True, mode=0o700)
    home.chmod(0o700)
    subprocess.run([BIN / "daemon" / "aned", "convert", demo_gguf, "--out", home / "models" / "demo", "--context", "512"],
                   check=True, capture_output=True, stdin=subprocess.DEVNULL)
    return home


def copy(demo, to):
    shutil.copytree(demo, to)
    return to


def state(d):
    r = d.ask("GET", "/aned/v1/models/demo")
    return None if r is None else r.json()["probe"]


def over(d):
    p = state(d)
    return p is None or p["state"] not in ("queued", "running")


def check(home):
    """The report is whole or is not there; returns how many there are."""
    reports = rows(home, "SELECT id, verdict, report FROM residency_reports")
    assert len(reports) <= 1
    for _, verdict, report in reports:
        assert verdict == "passed" and report.startswith("{") and report.endswith("}")
    orphans = rows(home, "SELECT count(*) FROM residency_ops WHERE report NOT IN (SELECT id FROM residency_reports)")
    assert orphans == [(0,)]
    return len(reports)


@pytest.mark.parametrize("measured_before", [False, True])
def test_kill_at_every_step(faulty, demo, tmp_path, measured_before):
    n, whole = 0, False
    while not whole:
        n += 1
        home = copy(demo, tmp_path / "home")
        d = faulty(home, f"kill:{n}")
        if measured_before:
            assert d.ask("POST", "/aned/v1/models/demo/probe").status_code == 202
            until(lambda: over(d))
            assert state(d)["state"] == "passed"
        d.arm()
        d.ask("POST", "/aned/v1/models/demo/probe")
        until(lambda: over(d))
        p = state(d)
        whole = not d.dead()
        d.disarm()
        d.close()
        there = check(home)
        assert there >= measured_before and (there or p is None or p["state"] != "passed")
        d = faulty(home)
        assert state(d)["state"] == ("passed" if there else "unknown")
        r = d.ask("GET", "/aned/v1/models/demo/residency").json()
        assert (r["measured"] is not None) == bool(there)
        r = d.ask("POST", "/v1/completions", json={"model": "demo", "prompt": "x", "max_tokens": 2})
        assert r.status_code == 200, r.text
        d.close()
        shutil.rmtree(home)
    assert n > 3  # the seam sees the calls


@pytest.mark.parametrize("fault", ["full", "full+", "sync"])
def test_a_record_that_fails(faulty, demo, tmp_path, fault):
    """The verdict counts as long as the daemon runs, and it says that it is not kept."""
    n, whole, failed = 0, False, 0
    while not whole:
        n += 1
        home = copy(demo, tmp_path / "home")
        d = faulty(home, f"{fault}:{n}")
        d.arm()
        assert d.ask("POST", "/aned/v1/models/demo/probe").status_code == 202
        until(lambda: over(d))
        p = state(d)
        whole = d.count() < n
        assert p["state"] == "passed"
        d.disarm()
        d.close()
        there = check(home)
        if p["error"]:
            failed += 1
            assert p["error"] == "the report could not be stored"
            assert fault == "sync" or not there
        else:
            assert there
        shutil.rmtree(home)
    assert failed > 0
