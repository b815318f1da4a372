"""Answers that keep to a schema: a small part of tests/constrain, which `./dev test constrain` runs as a whole."""
import sys

import pytest

from conftest import BIN, TOP

sys.path.insert(0, str(TOP / "tests" / "constrain"))
import judge  # noqa: E402
import suite  # noqa: E402

EVERY = 7  # of the schemas by hand and of pydantic's


@pytest.fixture
def walker():
    w = judge.Walker(BIN / "tests/constrain/walk")
    yield w
    w.close()


@pytest.fixture
def todo():
    return [suite.Case(n, s) for n, s in suite.schemas.ours().items()][::EVERY]


def test_answers_are_valid(daemon, walker, todo):
    report = suite.Report()
    suite.grammars(todo, walker, report)
    good = [c for c in todo if c.refused is None]
    assert len(good) > 20
    suite.answers(daemon, "demo", good, 150, walker, report)
    assert report.wrong == 0


def test_what_is_not_kept_is_refused(daemon, walker):
    report = suite.Report()
    todo = [suite.Case(n, suite.schemas.ours()[n]) for n in suite.OURS_REFUSED]
    suite.grammars(todo, walker, report)
    assert all(c.refused for c in todo)
    suite.refused(daemon, "demo", todo, report)
    assert report.wrong == 0
