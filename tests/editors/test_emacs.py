"""The package of client/editors/emacs in the real Emacs: each test of aned-tests.el, which has the tests themselves."""
import contextlib
import os
import re
import shutil
import subprocess

import pytest

import models
from conftest import SLOW_S, TOP, Daemon
from standin import StandIn, error, events, texts

HERE = TOP / "tests" / "editors"
PACKAGE = TOP / "client" / "editors" / "emacs"
EMACS = shutil.which("emacs")

pytestmark = pytest.mark.skipif(EMACS is None, reason="emacs is not installed: ./dev test editors does it where Debian has it")

NAMES = re.findall(r"\(ert-deftest aned-t-([\w-]+)", (HERE / "aned-tests.el").read_text())
WELL = {"choices": [{"delta": {"content": "Well"}}]}
ERRORS = {  # what is said: words of what the user is told
    "busy": (error(503, "the queue is full", "busy"), "try again in a moment"),
    "context": (error(400, "too long", "context_length_exceeded"), "send less"),
    "bug": (error(500, "a bug in aned", "internal"), "a bug in aned"),
    "early": ([b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\nx"], "ended early"),
    "other": ([b"SSH-2.0-x\r\n\r\n"], "no HTTP answer"),
    "chunk": ([b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"], "a bad chunk"),
    "text": ([b"HTTP/1.1 502 X\r\nContent-Length: 3\r\n\r\nbad"], "anectl doctor"),
    "nothing": ([b""], "ended early"),
    "silent": (events("[DONE]"), "said nothing"),
    "within": (events({"error": {"message": "the engine process ended", "code": "engine.lost"}}), "try again"),
}


def run(args, env, cwd):
    return subprocess.run([EMACS, "--batch", "-Q", "-L", PACKAGE, *map(str, args)], capture_output=True, text=True, cwd=cwd,
                          env={**os.environ, **env}, timeout=600 * SLOW_S)


@pytest.fixture(scope="module")
def ran(aned, tmp_path_factory):
    """All tests in one Emacs: its output, and what stand-ins were asked."""
    folder = tmp_path_factory.mktemp("emacs")
    d = Daemon(aned)
    source = models.make(folder / "s.gguf")
    for path, name in ((source, "s"), (models.without_template(source, folder / "bare.gguf"), "bare")):
        job = d.convert(path, name, context=models.CONTEXT)
        assert job["state"] == "done", job

    def no_suffix(body):
        return error(400, "suffix: only an empty one", "invalid", "suffix") if "suffix" in body else texts("x")
    sayings = {"BYTES": lambda _: texts("ä", "漢\nx"), "NOSUFFIX": no_suffix,
               "AMID": lambda _: events(WELL, {"error": {"message": "gone", "code": "engine.lost"}}),
               **{f"ERR_{k}": lambda _, said=said: said for k, (said, _) in ERRORS.items()}}
    rows = " ".join(f'("ERR_{k}" . "{words}")' for k, (_, words) in ERRORS.items())
    with contextlib.ExitStack() as stack:
        there = {k: stack.enter_context(StandIn(f)) for k, f in sayings.items()}
        env = {f"ANED_T_{k}": str(s.sock) for k, s in there.items()}
        env.update(ANED_T_DAEMON=str(d.sock), ANED_T_NOWHERE=str(folder / "none"), ANED_T_TEXT=models.TEXT, LC_ALL="C.UTF-8",
                   ANED_T_SECOND=models.SECOND, ANED_T_CODE=models.CODE, ANED_T_ERRORS=f"({rows})", HOME=str(folder))
        r = run(["-l", HERE / "aned-tests.el", "-f", "ert-run-tests-batch-and-exit"], env, folder)
    yield r.stdout + r.stderr, {k: s.bodies for k, s in there.items()}
    assert d.close() == 0


@pytest.mark.parametrize("name", NAMES)
def test_ert(ran, name):
    assert re.search(rf"^ +passed +\d+/\d+ +aned-t-{name} ", ran[0], re.M), ran[0]


def test_what_is_asked(ran):
    ask = {"max_tokens": 64, "temperature": 0, "stream": True}
    assert ran[1]["BYTES"] == [{"prompt": "before ä ", "suffix": "behind", **ask}]
    assert ["suffix" in b for b in ran[1]["NOSUFFIX"]] == [True, False, False]


def test_compiles_without_warnings(tmp_path):
    shutil.copy(PACKAGE / "aned.el", tmp_path)
    r = run(["--eval", "(setq byte-compile-error-on-warn t)", "-f", "batch-byte-compile", "aned.el"], {}, tmp_path)
    assert r.returncode == 0, r.stderr
