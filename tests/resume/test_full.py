"""A disk that is full at random points of a conversion, the store's too: the job says so, what is made stays, and after room was made the
same request ends with the bytes of an undisturbed run."""
import os
import subprocess

import pytest

from conftest import OVER, until
from jobs import NAME, Host, Points, hashes, is_whole, kept, reach, tell, undisturbed, wait_over
from resume_conf import DISKS, OPTIONS, SEED, source  # noqa: F401 (a fixture)

SPARE = 48 << 20  # beside the bundle: the store, and the room that the check before asks for


@pytest.fixture
def small_disk(tmp_path):
    """small_disk(bytes) -> a mounted tmpfs."""
    made = []

    def mount(size):
        at = tmp_path / "disk"
        at.mkdir()
        r = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", at], capture_output=True, text=True)
        if r.returncode != 0:
            pytest.skip(f"a small disk cannot be mounted here: {r.stderr.strip()}")
        made.append(at)
        return at
    yield mount
    for at in made:
        subprocess.run(["umount", "-l", at], check=True)


def fill(disk):
    """Take what is free, to the last page."""
    with open(disk / "ballast", "ab", buffering=0) as f:
        for size in (1 << 20, 4096):
            try:
                while True:
                    f.write(bytes(size))
            except OSError:
                pass


def stuck(j):
    """It has failed, or cannot even record that."""
    return j["state"] in OVER or (j["message"] or "").startswith("waits to be recorded")


def test_full_at_random_points(aned, source, tmp_path, small_disk):
    want = undisturbed(aned, tmp_path, source, OPTIONS)
    disk = small_disk(want["bytes"] + SPARE)
    points = Points(SEED + 1, ("disk",), want["seconds"])
    host, done, report = Host(aned, disk / "home"), 0, []
    host.start()
    try:
        while done < DISKS:
            job = host.post(source, OPTIONS)
            _, at = points.next()
            j = reach(host, job, at)
            fill(disk)
            j = wait_over(host, job, want, each=stuck)
            before = kept(host.home)
            os.unlink(disk / "ballast")
            j = wait_over(host, job, want)
            if j["state"] == "done":  # it had written all before, or had to wait at its records only
                assert hashes(host.home / "models" / NAME) == want["files"]
            else:
                assert j["state"] == "failed" and j["error"]["code"] == "no_space", j
                assert " MB" in j["error"]["message"], j
                assert host.model() is None and not list((host.home / "models").iterdir())
                done += 1
                tell(report, n=done, at=at, stage=j["stage"], message=j["error"]["message"], kept=sum(before.values()))
                j = wait_over(host, host.post(source, OPTIONS), want)
                assert j["state"] == "done", j
                assert hashes(host.home / "models" / NAME) == want["files"]
            is_whole(host, want)
            host.ask("DELETE", f"/aned/v1/models/{NAME}")
            until(lambda: not list((host.home / "staging").iterdir()))
    finally:
        assert host.close() == 0
