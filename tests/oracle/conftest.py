"""Session fixtures: the real model is dequantised once and converted once a quantisation."""
import shutil

import pytest

from forward import Model
from oracle_tools import convert


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
