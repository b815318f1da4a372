"""A conversion whose worker or daemon is killed, at random points, again and again: it goes on, ends with the bytes of an undisturbed
run, and nothing half-made is listed."""
import os
import random
import signal
import subprocess

from conftest import until
from jobs import NAME, Host, Points, hashes, is_whole, kept, reach, tell, undisturbed, wait_over

from resume_conf import FULL, KILLS, OPTIONS, SEED, source  # noqa: F401 (a fixture)

PER_JOB = 2  # kills: the third attempt is the last one (JOB_ATTEMPTS_MAX)


def disturb(host, victim, job):
    """False: too late."""
    if victim == "worker":
        found = host.d.of_role("convert-worker")
        if not found:
            return False
        os.kill(found[0], signal.SIGKILL)
        return True
    host.d.kill()
    return True


def test_killed_at_random_points(aned, source, tmp_path):
    want = undisturbed(aned, tmp_path, source, OPTIONS)
    points = Points(SEED, ("worker", "daemon"), want["seconds"])
    host, done, report, went_on = Host(aned, tmp_path / "home"), 0, [], 0
    host.start()
    try:
        while done < KILLS:
            job = host.post(source, OPTIONS)
            for _ in range(PER_JOB):
                victim, at = points.next()
                j = reach(host, job, at)
                if j["state"] in ("done",) or not disturb(host, victim, job):
                    break
                is_whole(host, want)
                before = kept(host.home)
                if victim == "daemon":
                    host.start()
                is_whole(host, want)
                done += 1
                went_on += any("layer" in p for p in before)
                tell(report, n=done, victim=victim, at=at, stage=j["stage"], progress=round(j["progress"], 3), kept=sum(before.values()))
            j = wait_over(host, job, want)
            assert j["state"] == "done", (j, host.log()[-3000:])
            assert hashes(host.home / "models" / NAME) == want["files"]
            assert host.model()["fingerprint"] == want["fingerprint"]
            host.ask("DELETE", f"/aned/v1/models/{NAME}")
        # some had whole layers to go on with, in each of which the next attempt found them
        assert went_on >= KILLS // 10, report
    finally:
        assert host.close() == 0


def test_a_worker_that_dies_each_time(aned, source, tmp_path):
    """Three times, and the job has failed with the reason; then the same request may try anew."""
    host = Host(aned, tmp_path / "home")
    host.start()
    try:
        job = host.post(source, OPTIONS)
        dead = set()

        def kill(j):
            for pid in host.d.of_role("convert-worker"):
                if pid not in dead:
                    dead.add(pid)
                    os.kill(pid, signal.SIGKILL)
            return False
        j = wait_over(host, job, each=kill)
        assert j["state"] == "failed" and j["error"]["code"] == "convert.worker_lost" and "3 times" in j["error"]["message"], j
        assert j["attempts"] == 3 and len(dead) == 3
        assert host.model() is None
        assert wait_over(host, host.post(source, OPTIONS))["state"] == "done"
    finally:
        assert host.close() == 0


def test_cancelled_and_asked_for_again(aned, source, tmp_path):
    """Another job for the same goes on with the work; one with another option does not touch it."""
    host = Host(aned, tmp_path / "home")
    host.start()
    try:
        job = host.post(source, OPTIONS)
        wait_over(host, job, each=lambda j: any("layers" in p for p in kept(host.home)))
        host.ask("DELETE", f"/aned/v1/jobs/{job}")
        assert wait_over(host, job)["state"] == "cancelled"
        assert host.model() is None and not list((host.home / "models").iterdir())
        before = kept(host.home)
        assert any("layers" in p for p in before)
        j = wait_over(host, host.post(source, {**OPTIONS, "quant": "int8"}))
        assert j["state"] == "done" and kept(host.home) == before
        host.ask("DELETE", f"/aned/v1/models/{NAME}")
        assert wait_over(host, host.post(source, OPTIONS))["state"] == "done"
        assert "work_found" in host.log()
        want = undisturbed(aned, tmp_path, source, OPTIONS)
        assert hashes(host.home / "models" / NAME) == want["files"]
    finally:
        assert host.close() == 0


def test_cancelled_and_not_wanted_again(aned, anectl, source, tmp_path):
    host = Host(aned, tmp_path / "home")
    host.start()
    try:
        job = host.post(source, OPTIONS)
        wait_over(host, job, each=lambda j: any("layers" in p for p in kept(host.home)))
        with host.d.http() as c:
            assert c.request("DELETE", f"/aned/v1/jobs/{job}", json={"discart": True}).status_code == 400
        subprocess.run([anectl, "--socket", host.d.sock, "cancel", "--discard", job], check=True)
        assert wait_over(host, job)["state"] == "cancelled"
        until(lambda: not list((host.home / "staging").iterdir()))
    finally:
        assert host.close() == 0


def test_damaged_records_and_files(aned, source, tmp_path):
    """What lies there is no proof: bytes changed, cut, or a journal of nonsense; the result is the same."""
    want = undisturbed(aned, tmp_path, source, OPTIONS)
    rnd = random.Random(SEED)
    for n in range(4 if FULL else 2):
        host = Host(aned, tmp_path / f"home{n}")
        host.start()
        job = host.post(source, OPTIONS)
        wait_over(host, job, each=lambda j: any("layers" in p for p in kept(host.home)))
        host.d.kill()
        work = next((host.home / "staging").glob("work-*/.staging-*/journal")).parent
        bundle = work.with_name(work.name + ".bundle")
        if n % 2 == 0:  # a byte of a file that is on record
            path = bundle / next(p for p in kept(host.home) if "layers" in p)
            with open(path, "r+b") as f:
                f.seek(rnd.randrange(kept(host.home)[str(path.relative_to(bundle))]))
                at = f.tell()
                old = f.read(1)
                f.seek(at)
                f.write(bytes([old[0] ^ 1]))
        else:  # the journal's last line is torn, and something else follows
            text = (work / "journal").read_bytes()
            (work / "journal").write_bytes(text[:-20] + b"\nrubbish")
        host.start()
        try:
            assert wait_over(host, job, want)["state"] == "done"
            assert hashes(host.home / "models" / NAME) == want["files"]
        finally:
            assert host.close() == 0
