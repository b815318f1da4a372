"""Session fixtures: the real model is dequantised once a process, and converted once a quantisation."""
import fcntl
import os
import shutil

import pytest

from forward import Model
from oracle_tools import convert


@pytest.fixture(scope="session")
def gemma_model(gemma):
    return Model(gemma)


@pytest.fixture(scope="session")
def gemma_bundle(aned, gemma, tmp_path_factory):
    """gemma_bundle("int8 --calibrate on") -> a bundle of context 1024 that tests only read, also those of other processes of
    this session. The last one removes it."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # of all workers

    def get(quant):
        form, *more = quant.split()
        path = folder / ("gemma-" + "".join(quant.split()))
        with open(path.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                convert(aned, gemma, path, form, "--context", 1024, *more)
        return path

    with open(folder / "gemma.users", "w") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        yield get
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # somebody reads them
        for path in folder.glob("gemma-*"):
            if path.is_dir():
                shutil.rmtree(path)
