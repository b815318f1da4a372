"""A conversion that dies or finds no room at every call that changes the disk: what is listed afterwards is what lies there,
with the gates' verdicts, and nothing that was acknowledged is lost."""
import shutil

import pytest

from conftest import until
from faulty import OVER, faulty, new_home, rows  # noqa: F401 (fixtures)

APART = 4  # tests that wait most of their time share the places to fail at


def post(d, tmp_path, name):
    source = tmp_path / "source.gguf"
    source.write_bytes(b"x")
    return d.ask("POST", "/aned/v1/jobs", json={"source": str(source), "name": name})


def over(d, job):
    j = d.job(job)
    return j is None or j["state"] in OVER


def check_model(d, name, m, said):
    """Its gates have spoken, and are heard."""
    want = "rejected" if name.startswith("bad") else "ready"
    assert (m["state"] == want or want == "ready" and m["state"] in ("loaded", "unverified")) and [g["name"] for g in m["gates"] or []] == ["quality"], m
    r = d.ask("GET", f"/aned/v1/models/{name}/residency").json()
    assert r["prediction"] in said and (r["predicted"] is None) == (r["prediction"] == "not run"), r
    assert r["predicted"] is None or [o["rule"] for o in r["predicted"]["ops"]] == ["op.gather"], r
    r = d.ask("POST", "/v1/completions", json={"model": name, "prompt": "x", "max_tokens": 2})
    assert r.status_code == (409 if want == "rejected" else 200), r.text


def check(d, home, name, jobs, said):
    """Jobs (id: state it was seen in at last, or None), models, folders and rows agree."""
    listed = {j["id"]: j for j in d.ask("GET", "/aned/v1/jobs").json()["jobs"]}
    models = d.models()
    for job, state in jobs.items():
        assert job in listed
        assert state not in OVER or listed[job]["state"] == state
    done = [j for j in listed.values() if j["state"] == "done"]
    assert len(done) == len(models) <= 1, (listed, models)
    for j in done:
        assert j["result"]["gates"] and models[name]["job"] == j["id"]
        check_model(d, name, models[name], said)
    assert {p.name for p in (home / "models").iterdir()} == set(models)
    until(lambda: not list((home / "staging").iterdir()))
    assert d.stop() == 0
    assert {r[0] for r in rows(home, "SELECT name FROM models")} == set(models)
    files = {r[0] for r in rows(home, "SELECT path FROM artifacts")}
    assert ("bundle.json" in files or len(files) >= 4) == bool(models)


def restarted(faulty, home, name, jobs, said=("warned",)):
    d = faulty(home)
    first = d.models()  # before anything goes on
    if name in first:
        check_model(d, name, first[name], said)
    until(lambda: all(j["state"] in OVER for j in d.ask("GET", "/aned/v1/jobs").json()["jobs"]))
    check(d, home, name, jobs, said)
    reports = rows(home, "SELECT count(*) FROM residency_reports WHERE fingerprint NOT IN (SELECT fingerprint FROM models)")
    assert reports == [(0,)]  # a prediction is stored before its bundle is published; none stays behind
    d.close()


@pytest.mark.parametrize("name", ["good", "bad"])
def test_kill_at_every_step(faulty, tmp_path, name):
    n, whole = 0, False
    while not whole:
        n += 1
        home = new_home(tmp_path / "home")
        d = faulty(home, f"kill:{n}")
        d.arm()
        r = post(d, tmp_path, name)
        jobs = {} if r is None else {r.json()["id"]: None}
        for job in jobs:
            until(lambda: over(d, job))
            j = d.job(job)
            jobs[job] = j["state"] if j else None
        until(lambda: d.dead() or not list((home / "staging").iterdir()))
        whole = not d.dead()
        d.disarm()
        d.close()
        restarted(faulty, home, name, jobs)
        shutil.rmtree(home)
    assert n > 20  # the seam sees the calls


@pytest.mark.parametrize("first", range(1, 1 + APART))
@pytest.mark.parametrize("name,fault", [("good", "full"), ("bad", "full+")])
def test_no_room_at_every_write(faulty, tmp_path, name, fault, first):
    """Once, or until somebody makes room; the job goes on or says why it does not, where need be without its prediction."""
    n, whole, said = first - APART, False, ("warned", "not run")
    while not whole:
        n += APART
        home = new_home(tmp_path / "home")
        d = faulty(home, f"{fault}:{n}")
        d.arm()
        r = post(d, tmp_path, name)
        jobs = {}
        if r.status_code == 202:
            job = r.json()["id"]
            until(lambda: over(d, job) or d.count() > n)
            d.disarm()
            until(lambda: over(d, job))
            jobs[job] = d.job(job)["state"]
            assert jobs[job] in ("done", "failed")
        else:
            assert r.status_code == 507 and r.json()["error"]["code"] == "no_space", r.text
        whole = d.count() < n
        d.disarm()
        check(d, home, name, jobs, said)
        d.close()
        restarted(faulty, home, name, jobs, said)
        shutil.rmtree(home)
    assert n > 20


def test_a_sync_fails_at_every_step(faulty, tmp_path, name="bad"):
    """What is on the disk is not known then: nothing more is acknowledged, and a restart finds out."""
    n, whole = 0, False
    while not whole:
        n += 1
        home = new_home(tmp_path / "home")
        d = faulty(home, f"sync:{n}")
        d.arm()
        r = post(d, tmp_path, name)
        jobs = {}
        if r.status_code == 202:
            job = r.json()["id"]
            until(lambda: over(d, job) or "restart aned" in (d.job(job)["message"] or ""))
            jobs[job] = d.job(job)["state"]
        else:
            assert r.status_code == 500 and r.json()["error"]["code"] == "store", r.text
        whole = d.count() < n
        assert d.stop() == 0
        restarted(faulty, home, name, jobs)
        shutil.rmtree(home)
    assert n > 20
