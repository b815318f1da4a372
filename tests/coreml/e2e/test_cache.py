"""Compiled packages and verdicts: kept over a restart, gone with the model, made anew behind an update of the system."""
import os
import platform
import re

import pytest

from conftest import until
from device import bundle, compilings, load, model, place, residency, text  # noqa: F401  (bundle, place: fixtures)

OLD_SYSTEM = ("setarch", platform.machine(), "--uname-2.6")  # uname tells another release: the stand-in's OS build


def folders(p):
    """All below the home; what goes meanwhile is left out."""
    return [os.path.join(at, x) for at, inside, _ in os.walk(p.home) for x in inside]


def compiled(p):
    return [x for x in folders(p) if x.endswith(".mlmodelc")]


@pytest.mark.smoke
def test_the_second_start_compiles_nothing(place):
    d = place.serve()
    load(d)
    want = text(d)
    assert compilings(d) == 2 and len(compiled(place)) == 2
    assert d.log.read_text().count("model_probed") == 1
    assert d.stop() == 0
    d = place.serve()
    load(d)
    assert text(d) == want
    assert compilings(d) == 0 and "model_probed" not in d.log.read_text()


@pytest.mark.smoke
def test_a_deleted_model_takes_its_compiled_packages_along(place):
    d = place.serve()
    load(d)
    assert len(compiled(place)) == 2
    with d.http() as c:
        assert c.delete("/aned/v1/models/demo").status_code == 200
    until(lambda: not os.listdir(place.home / "cache" / "coreml"))
    assert not compiled(place)


@pytest.mark.skipif(not os.path.exists("/usr/bin/setarch"), reason="no setarch (util-linux): the system's build cannot be another")
def test_another_build_of_the_system(place):
    """Models are probed again, compiled again, and the old compiled packages go."""
    d = place.serve()
    load(d)
    want = text(d)
    old = model(d)["probe"]["machine"]
    before = compiled(place)
    assert d.stop() == 0
    place.device.set("os_build = another")
    d = place.serve(wrap=OLD_SYSTEM)
    load(d)
    m = residency(d)["measured"]
    assert m["machine"] != old and re.search(r"\b2\.6\.", m["machine"]), m["machine"]
    assert d.log.read_text().count("model_probed") == 1
    assert text(d) == want
    now = compiled(place)
    assert compilings(d) == 2 and len(now) == 2 and not set(now) & set(before)
