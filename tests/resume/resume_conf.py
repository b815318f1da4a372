"""What the tests of this folder are asked for: how many points, which options.

./dev test resume runs few points; `ANED_RESUME=full ./dev test resume` those of the issue: 50 kills, 20 full disks. ANED_RESUME_OPTIONS
is a job's JSON in place of {"quant": "lut6"}, ANED_RESUME_SOURCE a model file in place of the one made here, ANED_RESUME_SEED another
choice of points.
"""
import json
import os
import subprocess
import sys

import pytest

from conftest import TOP

FULL = os.environ.get("ANED_RESUME") == "full"
KILLS = 50 if FULL else 6
DISKS = 20 if FULL else 2
OPTIONS = json.loads(os.environ.get("ANED_RESUME_OPTIONS", '{"quant": "lut6"}'))
SEED = int(os.environ.get("ANED_RESUME_SEED", "16"))


@pytest.fixture(scope="session")
def source(tmp_path_factory):
    """Long enough at lut6 for a second's kill to hit the middle, with several marks a package."""
    if "ANED_RESUME_SOURCE" in os.environ:
        return os.environ["ANED_RESUME_SOURCE"]
    path = tmp_path_factory.mktemp("source") / "m.gguf"
    subprocess.run([sys.executable, TOP / "tests" / "bench" / "mkgguf.py", "0.5b", path, "--layers", "4", "--vocab", "2000"], check=True)
    return path
