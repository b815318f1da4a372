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
    """gemma_bundle("int8") -> a bundle of context 1024 that tests only read."""
    made = {}

    def get(quant):
        if quant not in made:
            made[quant] = tmp_path_factory.mktemp(f"gemma-{quant}") / "bundle"
            convert(aned, gemma, made[quant], quant, "--context", 1024)
        return made[quant]

    yield get
    for path in made.values():
        shutil.rmtree(path)
