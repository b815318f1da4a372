"""Session fixtures: the real model is dequantised once and converted once a quantisation.

`./dev test` runs two processes of pytest. Tests of a file stay in one, and so do the files that convert the real model,
which begin first: they take longest."""
import shutil

import pytest

from forward import Model
from oracle_tools import convert


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items):
    for item in items:
        own = "gemma_model" in item.fixturenames or "gemma_bundle" in item.fixturenames
        item.add_marker(pytest.mark.xdist_group("gemma" if own else item.path.stem))
    items.sort(key=lambda item: item.get_closest_marker("xdist_group").args[0] != "gemma")


@pytest.fixture(scope="session")
def gemma_model(gemma):
    return Model(gemma)


@pytest.fixture(scope="session")
def gemma_bundle(aned, gemma, tmp_path_factory):
    """gemma_bundle("int8 --calibrate on") -> a bundle of context 1024 that tests only read."""
    made = {}

    def get(quant):
        if quant not in made:
            made[quant] = tmp_path_factory.mktemp(f"gemma-{quant.split()[0]}") / "bundle"
            form, *more = quant.split()
            convert(aned, gemma, made[quant], form, "--context", 1024, *more)
        return made[quant]

    yield get
    for path in made.values():
        shutil.rmtree(path)
