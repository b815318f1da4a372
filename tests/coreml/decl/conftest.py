"""What the tests of our declarations share: the sources, fetched once; what cannot be had skips what needs it."""
import pathlib
import re

import fetch
import frameworks
import lint
import objc2
import ours
import prove
import pyobjc
import pytest


def fetched(name: str) -> pathlib.Path:
    try:
        fetch.fetch(name)
        return fetch.source(name)
    except fetch.Missing as e:
        pytest.skip(str(e))


@pytest.fixture(scope="session")
def wheel():
    try:
        return fetch.wheel()
    except fetch.Missing as e:
        pytest.skip(str(e))


@pytest.fixture(scope="session")
def metadata():
    return pyobjc.PyObjC(fetched("pyobjc"))


@pytest.fixture(scope="session")
def crates():
    return objc2.Objc2(fetched("objc2"))


@pytest.fixture(scope="session")
def sdk(wheel):
    """Headers alone: enough to compile and to analyze."""
    return lint.sdk()


@pytest.fixture(scope="session")
def linked_sdk(sdk, metadata, crates):
    """With the lists of symbols."""
    frameworks.write_symbols(sdk)
    return sdk


@pytest.fixture(scope="session")
def system(wheel):
    return set(re.findall(r"[\w$]+", (wheel / "libc/darwin/libSystem.tbd").read_text()))


@pytest.fixture
def proof_of(wheel, metadata, crates, system):
    """A function: headers' folder -> the finished Proof."""
    def of(include: pathlib.Path) -> prove.Proof:
        proof = prove.Proof(ours.read(include, wheel), metadata, crates, system)
        proof.run()
        return proof
    return of
