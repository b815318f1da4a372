"""anectl doctor --mac-acceptance, on a machine that is no Mac: the steps that need none pass, and fail when what they look at is
wrong; those of launchd run against a launchd of ours (agents.py), those of the program against files made here; those of Core
ML against the stand-in, when ANED_BIN is a build with it (`./dev build standin`)."""
import dataclasses
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

import pytest

import demo_expected
from agents import Launchd
from conftest import SLOW_S, TOP, has_ended, until

DEMO = TOP / "conf" / "demo"
LYING = pathlib.Path(__file__).with_name("lying_aned.py")
MARK = "--- the same as JSON ---\n"
CPU = ["convert", "cpu-tokens", "cpu-kernels", "cpu-drafts", "cpu-fork", "cpu-restart", "cpu-kill", "cpu-memory"]
AGENT = ["agent-install", "agent-start", "agent-priority", "agent-log", "agent-crash", "agent-stop", "agent-uninstall"]


@pytest.fixture
def tmp_path():
    """A short one, for sockets."""
    with tempfile.TemporaryDirectory(prefix="an-", dir="/tmp") as d:
        yield pathlib.Path(d)


class Volunteer:
    """A user with a home, a PATH and a folder for temporary files of his own, so that what is left behind is seen."""

    def __init__(self, anectl, aned, path):
        self.anectl, self.aned, self.path = anectl, aned, path
        self.user, self.tmp, self.out, self.bin = (path / n for n in ("u", "t", "out", "bin"))
        for p in (self.user, self.tmp, self.bin):
            p.mkdir()
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("ANED_", "XDG_"))}
        self.env = dict(keep, HOME=str(self.user), TMPDIR=str(self.tmp), PATH=f"{self.bin}:{os.environ['PATH']}")

    def argv(self, *args):
        return [self.anectl, "doctor", "--mac-acceptance", "--program", str(self.aned), "--out", str(self.out),
                *map(str, args)]

    def run(self, *args, **env):
        return subprocess.run(self.argv(*args), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=900 * SLOW_S, env={**self.env, **env})

    def report(self, *args, code=None, **env):
        """The report as JSON; what the file says is the same."""
        r = self.run("--json", *args, **env)
        assert r.stdout, r
        o = json.loads(r.stdout)
        assert r.returncode == (69 if o["counts"]["failed"] else 0) if code is None else r.returncode == code, r
        files = sorted(self.out.iterdir(), key=lambda p: p.stat().st_mtime_ns)
        assert json.loads(files[-1].read_text().split(MARK)[1]) == o
        assert not list(self.tmp.iterdir()), "something stays in the folder for temporary files"
        return o

    def steps(self, *names, **env):
        """name -> (result, all that it says), of these steps and what they need."""
        args = [a for n in names for a in ("--only", n)]
        if "manager" in env:
            args += ["--manager", env.pop("manager")]
        if "demo" in env:
            args += ["--demo", env.pop("demo")]
        return said(self.report(*args, *env.pop("args", []), **env))

    def tool(self, name, script):
        """A program for the front of PATH."""
        p = self.bin / name
        p.write_text("#!/bin/sh\n" + script + "\n")
        p.chmod(0o755)


def said(o):
    return {s["name"]: (s["result"], "\n".join(f["text"] for f in s["findings"])) for s in o["steps"]}


def has(step, result, text):
    return step[0] == result and text in step[1]


@pytest.fixture
def v(anectl, aned, tmp_path):
    return Volunteer(anectl, aned, tmp_path)


def machine(aned):
    return json.loads(subprocess.run([aned, "machine", "--json"], capture_output=True, text=True, check=True).stdout)


# --- the record of the demo ---


def test_the_demo_is_as_recorded(aned):
    """The fingerprint that a Mac has to find again is this machine's; made and compared without anectl."""
    want = json.loads((DEMO / "expected.json").read_text())
    assert demo_expected.expected(aned) == want, "python3 tests/e2e/demo_expected.py ANED >conf/demo/expected.json"
    assert (DEMO / "expected.json").read_text() == demo_expected.text(want)
    assert len(want["runs"]) == 4 and all(len(r["tokens"]) == r["n_prompt"] + 96 for r in want["runs"])


# --- the whole, where there is no Mac ---


@pytest.fixture(scope="module")
def whole(anectl, aned):
    """One run of everything: (JSON of the report, text of the file, what was printed for people)."""
    with tempfile.TemporaryDirectory(prefix="an-", dir="/tmp") as d:
        v = Volunteer(anectl, aned, pathlib.Path(d))
        o = v.report()
        (file,) = v.out.iterdir()
        text = file.read_text()
        yield o, text, v.run("--only", "system").stdout, v


def test_what_needs_no_mac_passes(whole):
    o = whole[0]
    found = said(o)
    assert {n: found[n] for n in CPU if found[n][0] != "passed"} == {}
    assert found["system"][0] == "measured"
    assert found["sandbox"][0] in ("passed", "skipped")  # a kernel without Landlock
    assert o["counts"]["failed"] == 0 and o["result"] == "passed" and o["whole"] is True
    assert sum(o["counts"].values()) == len(o["steps"])


def test_what_needs_a_mac_is_skipped(whole, aned):
    found = said(whole[0])
    mac = ["program", "signature", "full-sync", "clones", "engine-sandbox", "pressure", "sleep", "coreml-caches", *AGENT]
    if "coreml" not in machine(aned)["backends"]:
        mac += [n for n in found if n.startswith("coreml-")] + ["neural-engine"]
    assert {n: found[n] for n in mac if found[n][0] != "skipped" or not found[n][1].startswith("not on this system")} == {}
    assert has(found["unit-tests"], "skipped", "--build") and has(found["model-convert"], "skipped", "--model")


def test_the_schema(whole):
    o = whole[0]
    assert list(o) == ["object", "schema", "date", "whole", "result", "counts", "program", "machine", "steps", "send"]
    assert o["object"] == "aned.acceptance" and o["schema"] == 1
    names = [s["name"] for s in o["steps"]]
    assert len(set(names)) == len(names) == 45
    for s in o["steps"]:
        assert list(s) == ["name", "result", "took_s", "limit_s", "proves", "how", "expect", "findings", "numbers"], s
        assert s["result"] in ("passed", "measured", "skipped", "failed") and s["findings"]
        assert s["proves"] and s["how"] and s["expect"] and 0 < s["limit_s"] <= 7200 and s["took_s"] <= s["limit_s"]
        assert all(f["finding"] in ("ok", "note", "warning", "error") and f["text"] for f in s["findings"])
    numbers = {s["name"]: s["numbers"] for s in o["steps"]}
    assert numbers["cpu-drafts"]["drafts_accepted"] > 0 and numbers["cpu-restart"]["positions_from_disk"] > 0
    assert numbers["cpu-fork"]["positions_shared"] >= 80 and numbers["cpu-memory"]["predictions_of_a_package"] == 2048


def test_the_file_tells_nothing_of_this_machine(whole):
    _, text, _, v = whole
    assert text.startswith("aned ") and "To send it: attach this file to an issue of the project." in text
    for path in (v.path, v.user, v.tmp, TOP, pathlib.Path(v.aned).parent, os.uname().nodename):
        assert str(path) not in text, path
    assert "expected: " in text and "proves: " in text and "how: " in text


def test_for_people(whole):
    lines = whole[2].splitlines()
    assert re.fullmatch(r"measured system +\S+", lines[0])
    assert lines[-3] == "passed 0, measured 1, skipped 0, failed 0"
    assert lines[-2].startswith("report: ") and lines[-1] == "  attach this file to an issue of the project"


def test_each_step_stands_in_mac_md(whole):
    """launchd/mac.md lists a claim for each step, and no step that there is not; all are unproven as yet."""
    table = (TOP / "launchd" / "mac.md").read_text()
    rows = [[c.strip() for c in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("| ")]
    rows = [r for r in rows if len(r) == 4 and r[3] == "unproven"]
    named = [n for r in rows for n in re.findall(r"`([a-z-]+)`", r[1])]
    assert sorted(set(named)) == sorted(s["name"] for s in whole[0]["steps"])


# --- which steps ---


def test_only_some(v):
    assert list(v.steps("cpu-fork")) == ["convert", "cpu-fork"]
    o = v.report("--only", "system", "--only", "sandbox")
    assert [s["name"] for s in o["steps"]] == ["system", "sandbox"] and o["whole"] is False


@pytest.mark.parametrize("args, text", [
    (["--only", "nonsense"], "no step 'nonsense'"),
    (["--home", "/tmp/x"], "a home of its own"),
])
def test_usage(v, args, text):
    r = v.run(*args)
    assert r.returncode == 64 and text in r.stderr and not v.out.exists()


def test_options_of_its_own(v):
    r = subprocess.run([v.anectl, "doctor", "--keep"], capture_output=True, text=True, env=v.env)
    assert r.returncode == 64 and "--keep goes with --mac-acceptance" in r.stderr


def test_no_program(v):
    v.aned = v.path / "none"
    r = v.run("--only", "convert")
    assert r.returncode == 66 and "none" in r.stderr


def test_no_demo(v):
    r = v.run("--demo", v.user)
    assert r.returncode == 66 and "expected.json" in r.stderr


def test_kept(v):
    r = v.run("--only", "convert", "--keep")
    (kept,) = v.tmp.iterdir()
    assert r.returncode == 0 and f"kept: {kept}" in r.stdout and (kept / "home" / "models" / "demo").is_dir()


def test_a_line_on_a_terminal(v):
    """What runs, and for how long at most; nothing of it where stderr is no terminal."""
    master, slave = pty.openpty()
    with subprocess.Popen(v.argv("--only", "convert"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=slave,
                          env=v.env) as p:
        p.communicate(timeout=200 * SLOW_S)
    os.close(slave)
    text = b""
    with open(master, "rb", buffering=0) as f:
        try:
            while piece := f.read(4096):
                text += piece
        except OSError:
            pass
    assert p.returncode == 0
    assert re.search(rb"\[\d+/45\] convert +\d s of at most 600", text), text
    assert v.run("--only", "convert").stderr == ""


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(v, sig):
    """The daemon is ended, the home removed, the report written."""
    with subprocess.Popen(v.argv("--json"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=v.env) as p:
        until(lambda: list(v.tmp.glob("*/home/run/aned.sock")))
        children = [int(x) for x in pathlib.Path(f"/proc/{p.pid}/task/{p.pid}/children").read_text().split()]
        p.send_signal(sig)
        out, _ = p.communicate(timeout=200 * SLOW_S)
    o = json.loads(out)
    assert p.returncode == 130 and children
    assert all(has_ended(c) for c in children) and not list(v.tmp.iterdir())
    assert o["whole"] is False and said(o)["formula"] == ("skipped", "interrupted")
    assert o["counts"]["failed"] == 0 and len(list(v.out.iterdir())) == 1


# --- what is wrong is found ---


@pytest.fixture
def record(tmp_path):
    """A copy of conf/demo whose record a test changes."""
    to = tmp_path / "src" / "conf" / "demo"
    to.mkdir(parents=True)
    shutil.copy(DEMO / "aned-demo.gguf", to)

    def change(fn):
        o = json.loads((DEMO / "expected.json").read_text())
        fn(o)
        (to / "expected.json").write_text(json.dumps(o))
        return to
    return change


def test_another_bundle(v, record):
    found = v.steps("convert", "cpu-fork", demo=record(lambda o: o.update(bundle_sha256="0" * 64)))
    assert has(found["convert"], "failed", "the bundle's digest is")
    assert found["cpu-fork"][0] == "passed"  # a failure does not stop what can go on


def test_another_source(v, record):
    to = record(lambda o: None)
    data = bytearray((to / "aned-demo.gguf").read_bytes())
    data[-1] ^= 1
    (to / "aned-demo.gguf").write_bytes(data)
    found = v.steps("cpu-tokens", demo=to)
    assert has(found["convert"], "failed", "is not the file of the record")
    assert has(found["cpu-tokens"], "skipped", "it needs what convert gives")


def test_another_token(v, record):
    def change(o):
        o["runs"][2]["tokens"][40] += 1
    found = v.steps("cpu-tokens", demo=record(change))
    assert has(found["cpu-tokens"], "failed", "recorded prompt 3: token 40 of ")
    assert "recorded prompt 4: the same 96 tokens" in found["cpu-tokens"][1]


def test_other_logits(v, record):
    found = v.steps("cpu-kernels", demo=record(lambda o: o.update(logits_sha256="0" * 64)))
    assert has(found["cpu-kernels"], "failed", "scalar: the logits' digest is")


@pytest.mark.parametrize("lie, step, text", [
    ("drafts", "cpu-drafts", "drafts that are right: token"),
    ("no_drafts", "cpu-drafts", "no draft was accepted"),
    ("forks", "cpu-fork", "the fork: token"),
    ("not_shared", "cpu-fork", "0 positions were shared"),
    ("metrics", "cpu-restart", "no state was read from disk"),
    ("kills", "cpu-kill", "a stream whose engine was killed: token"),
    ("metrics", "cpu-kill", "the stream was over each time"),
    ("cut", "cpu-kill", "the daemon's answer has no end"),
    ("grows", "cpu-memory", "the engine grew by"),
    ('sandbox:{"by":"x","tries":[{"what":"write_outside","worked":true,"may":false}]}', "sandbox",
     "write_outside: allowed, and must not be"),
])
def test_a_lying_daemon(v, aned, lie, step, text):
    v.aned = LYING
    found = v.steps(step, demo=str(DEMO), ANED_REAL=aned, ANED_LIE=lie)
    assert has(found[step], "failed", text), found[step]


def test_why_a_conversion_failed(v):
    """The code and the words of the job's error."""
    bad = v.path / "bad.gguf"
    bad.write_bytes(b"GGUF" + b"\xff" * 100)
    found = v.steps("model-convert", args=["--model", bad])
    assert has(found["model-convert"], "failed", "conversion: gguf.version: the job is failed: version 4294967295; aned reads"), found


@pytest.mark.parametrize("name", ["is/bad.gguf", "is/none.gguf"])
def test_a_relative_folder_is_hidden(v, name, monkeypatch):
    """As a place of this machine, not as a word: `is` stands in the text for other reasons too."""
    (v.path / "is").mkdir()
    (v.path / "is" / "bad.gguf").write_bytes(b"GGUF" + b"\xff" * 100)
    monkeypatch.chdir(v.path)
    o = v.report("--only", "model-convert", "--model", name, "--build", "is")
    text = said(o)["model-convert"][1]
    assert ("the job is failed: version" if "bad" in name else "MODELS/none.gguf: ") in text, text
    assert str(v.path) not in json.dumps(o)


@pytest.mark.parametrize("before", ["", "x", "xx", "xxx", "xxxx"])
def test_many_paths_in_a_long_text(v, program, before):
    """Their words may be longer than they are, and than what is left."""
    v.tool("codesign", f"echo '{before}{'/b' * 3000}' >&2; exit 3")
    v.aned.write_bytes(macho())
    v.aned.chmod(0o755)
    found = v.steps("signature", manager="launchd", demo=str(DEMO), args=["--build", "/b"])
    assert has(found["signature"], "failed", f"codesign ended with 3: {before}BUILDBUILD") and "/b" not in found["signature"][1][:1000]


@pytest.mark.parametrize("escapes, result", [("false", "passed"), ("true", "failed")])
def test_an_engines_sandbox(v, aned, escapes, result):
    """What an engine must not reach lies in the home for a moment, and not longer."""
    v.tool("launchctl", "exit 1")
    v.aned = LYING
    tries = f'[{{"what":"write_inside","worked":true,"may":true}},{{"what":"write_outside","worked":{escapes},"may":false}}]'
    found = v.steps("engine-sandbox", manager="launchd", demo=str(DEMO), ANED_REAL=aned,
                    ANED_LIE=f'sandbox:{{"by":"seatbelt","tries":{tries}}}')
    assert found["engine-sandbox"][0] == result and "by seatbelt" in found["engine-sandbox"][1]
    assert not list(v.user.iterdir())


def test_a_daemon_that_does_not_lie(v, aned):
    """What stands between is not what fails."""
    v.aned = LYING
    found = v.steps(*CPU, demo=str(DEMO), ANED_REAL=aned)
    assert {n: x for n, x in found.items() if x[0] != "passed"} == {}


def test_a_daemon_that_does_not_start(v, tmp_path):
    v.aned = tmp_path / "bin" / "aned"
    v.tool("aned", "echo 'config: a reason' >&2; exit 78")
    found = v.steps("convert", demo=str(DEMO))
    assert has(found["convert"], "failed", "aned ended at its start: config: a reason")


@pytest.mark.slow
def test_a_step_has_its_limit(v):
    """A program that hangs is ended after the step's minute, and the next step runs."""
    v.tool("launchctl", "exit 1")
    v.tool("codesign", "exec sleep 1000")
    began = time.monotonic()
    found = v.steps("signature", "system", manager="launchd")
    assert 55 <= time.monotonic() - began
    assert has(found["signature"], "failed", "it does not end") and found["system"][0] == "measured"


# --- programs of the system, in place of a Mac's ---


@pytest.mark.parametrize("code, result", [(0, "passed"), (1, "failed")])
def test_unit_tests(v, code, result):
    v.tool("meson", f'printf "%s\\n" "$*" >{v.path}/asked; echo; echo "Ok:   7"; echo "Fail: {code}"; exit {code}')
    o = v.report("--only", "unit-tests", "--build", "/b", "--demo", DEMO)
    assert o["steps"][0]["result"] == result and o["steps"][0]["numbers"] == {"ok": 7, "failed": code}
    assert (v.path / "asked").read_text().split() == ["test", "-C", "/b", "--suite", "unit"]


def test_no_unit_tests(v):
    v.tool("meson", "echo 'No suitable tests defined.'")
    assert has(v.steps("unit-tests", args=["--build", "/b"])["unit-tests"], "failed", "no test ran")


@pytest.mark.parametrize("code, result", [(0, "passed"), (1, "failed")])
def test_formula(v, record, code, result):
    v.tool("brew", f'test "$1" = style && test -f "$2" && exit {code}; exit 9')
    to = record(lambda o: None)
    assert has(v.steps("formula", demo=to)["formula"], "skipped", "./dev package brew")
    (to.parents[1] / ".build" / "package").mkdir(parents=True)
    (to.parents[1] / ".build" / "package" / "aned.rb").write_text("")
    assert v.steps("formula", demo=to)["formula"][0] == result


def test_pressure_wants_root(v):
    v.tool("launchctl", "exit 1")
    v.tool("memory_pressure", "exit 1")
    assert has(v.steps("pressure", manager="launchd")["pressure"], "skipped", "wants root")


@pytest.mark.parametrize("args, code, result", [([], 0, "skipped"), (["--with-sleep"], 0, "passed"), (["--with-sleep"], 1, "skipped")])
def test_sleep(v, args, code, result):
    v.tool("launchctl", "exit 1")
    v.tool("pmset", f'printf "%s\\n" "$*" >>{v.path}/asked; exit {code}')
    found = v.steps("sleep", manager="launchd", args=args)
    assert found["sleep"][0] == result, found
    assert (v.path / "asked").exists() == bool(args)


def macho(cpu=0x0100000C, platform=1, minos=15, bundle="dev.aned.daemon", lib="CoreML", identifier="dev.aned.daemon", flags=2):
    """A program for macOS, as far as its commands tell."""
    plist = f"<dict><key>CFBundleIdentifier</key><string>{bundle}</string></dict>".encode()
    name = f"/System/Library/Frameworks/{lib}.framework/Versions/A/{lib}".encode()
    name += b"\0" * (8 - len(name) % 8)
    blob = struct.pack(">11I", 0xFADE0C02, 60, 0x20400, flags, 0, 44, 0, 0, 0, 0, 0) + identifier.encode() + b"\0"
    sign = struct.pack(">5I", 0xFADE0CC0, 20 + len(blob), 1, 0, 20) + blob
    commands = [
        struct.pack("<2I16s4Q4I", 0x19, 152, b"__TEXT", 0, 0, 0, 0, 0, 0, 1, 0)
        + struct.pack("<16s16s2Q8I", b"__info_plist", b"__TEXT", 0, len(plist), 0, *[0] * 7),
        struct.pack("<6I", 0xC, 24 + len(name), 24, 0, 0, 0) + name,
        struct.pack("<6I", 0x32, 24, platform, minos << 16, 15 << 16 | 1 << 8, 0),
        struct.pack("<4I", 0x1D, 16, 0, len(sign)),
    ]
    size = sum(map(len, commands))
    head = struct.pack("<8I", 0xFEEDFACF, cpu, 0, 2, len(commands), size, 0, 0)
    at = len(head) + size
    commands[0] = commands[0][:72 + 48] + struct.pack("<I", at) + commands[0][72 + 52:]
    commands[3] = struct.pack("<4I", 0x1D, 16, at + len(plist), len(sign))
    return head + b"".join(commands) + plist + sign


@pytest.fixture
def program(v):
    v.tool("launchctl", "exit 1")
    v.tool("codesign", 'test "$1 $2" = "--verify --strict" || exit 9; exit 0')
    v.aned = v.path / "p" / "aned"
    v.aned.parent.mkdir()

    def go(data):
        v.aned.write_bytes(data)
        v.aned.chmod(0o755)
        return v.steps("program", "signature", manager="launchd", demo=str(DEMO))
    return go


def test_a_program_for_a_mac(program):
    found = program(macho())
    assert found["program"] == ("passed", "for arm64 macOS 15.0, made with SDK 15.1\nits Info.plist says dev.aned.daemon\n"
                                          "linked with CoreML")
    assert has(found["signature"], "measured", "signed by nobody (ad hoc), as `dev.aned.daemon`")
    assert program(macho(flags=0))["signature"] == ("passed", "signed as dev.aned.daemon")


@pytest.mark.parametrize("step, fault, text", [
    ("program", {"cpu": 0x01000007}, "for another processor"),
    ("program", {"platform": 2}, "another system"),
    ("program", {"minos": 14}, "macOS 14.0, not for"),
    ("program", {"bundle": "com.apple.aned"}, "its Info.plist says `com.apple.aned`"),
    ("program", {"lib": "Metal"}, "CoreML is not among"),
    ("signature", {"identifier": "aned", "flags": 0}, "signed as `aned`"),
])
def test_a_program_that_is_not_right(program, step, fault, text):
    assert has(program(macho(**fault))[step], "failed", text)


def test_no_program_for_a_mac(program, aned):
    assert has(program(pathlib.Path(aned).read_bytes())["program"], "failed", "no 64-bit Mach-O file")


def test_a_bad_signature(v, program):
    v.tool("codesign", "echo 'invalid signature' >&2; exit 3")
    assert has(program(macho())["signature"], "failed", "codesign ended with 3: invalid signature")


# --- Core ML, on the stand-in ---


CORE = ["neural-engine", "coreml-load", "coreml-probe", "coreml-placement", "coreml-tokens", "coreml-drafts", "coreml-fork",
        "coreml-restart", "coreml-second", "coreml-kill", "coreml-backings", "coreml-memory"]
MODEL = ["model-convert", "model-load", "model-probe", "model-placement", "model-tokens", "model-second"]


@pytest.fixture
def coreml(v):
    """coreml(text, *steps): these steps, where the stand-in's fault file says text."""
    if "coreml" not in machine(v.aned)["backends"]:
        pytest.skip("this build has no stand-in for Core ML: ./dev build standin, ANED_BIN=.build/standin")

    def go(text, *steps, **env):
        (v.path / "faults").write_text(f"cache = {v.path / 'caches'}\n{text}\n")
        return v.steps(*steps, ANED_STANDIN=str(v.path / "faults"), **env)
    return go


@pytest.fixture(scope="module")
def small_model(tmp_path_factory):
    return random_model(tmp_path_factory.mktemp("model") / "small.gguf")


def random_model(path, **shape):
    sys.path.insert(0, str(TOP / "tests" / "bench"))
    import mkgguf
    mkgguf.write(path, dataclasses.replace(mkgguf.SHAPES["tiny-qwen2"], **shape))
    return path


def test_core_ml(whole, aned):
    if "coreml" not in machine(aned)["backends"]:
        pytest.skip("this build has no stand-in for Core ML: ./dev build standin, ANED_BIN=.build/standin")
    found = said(whole[0])
    assert {n: found[n] for n in CORE if found[n][0] != "passed"} == {}
    numbers = {s["name"]: s["numbers"] for s in whole[0]["steps"]}
    assert numbers["coreml-tokens"]["tokens_compared"] >= 96 and numbers["coreml-restart"]["positions_from_disk"] > 0
    assert numbers["coreml-load"]["compiled_models"] == 2 and numbers["coreml-drafts"]["drafts_accepted"] > 0
    assert numbers["coreml-backings"]["layers_00_05.mlpackage moved"] == 0
    probe = numbers["coreml-probe"]
    for key in ("cosine", "warm_ms", "median_us", "cpu_only_us"):
        assert f"layers_00_05.mlpackage width 4 {key}" in probe, probe
    assert probe["layers_00_05.mlpackage width 1 cosine"] > 0.999


def test_core_ml_whose_bits_depend_on_the_width(coreml):
    """Tokens still do not depend on drafts, forks, restarts or kills."""
    found = coreml("width_bits = 4", *[n for n in CORE if n not in ("coreml-memory", "coreml-placement")])
    assert {n: x for n, x in found.items() if x[0] != "passed"} == {}


@pytest.mark.parametrize("fault, step, text", [
    ("neural_engine = 0", "neural-engine", "Core ML lists no Neural Engine"),
    ("load_error = *", "coreml-load", "model.rejected: demo: layers_00_05.mlpackage: open:"),
    ("load_kill = *", "coreml-load", "signal 9 at step open"),
    ("predict_error = *", "coreml-load", "warm: the prediction failed"),
    ("predict_nan = *layers*", "coreml-load", "numbers are not finite"),
    ("load_error = *", "coreml-probe", "the verdict is `failed`"),
    ("predict_nan = *layers*", "coreml-probe", "numbers are not finite"),
    ("predict_kill = *layers*", "coreml-probe", "signal 9 at step warm"),
    ("backings_ignored = *", "coreml-backings", "results came elsewhere"),
])
def test_core_ml_that_is_not_right(coreml, fault, step, text):
    found = coreml(fault, step)
    assert has(found[step], "failed", text), found


def test_core_ml_with_other_tokens(coreml, v, aned):
    v.aned = LYING
    found = coreml("", "coreml-tokens", demo=str(DEMO), ANED_REAL=aned, ANED_LIE="coreml")
    assert has(found["coreml-tokens"], "failed", "differs, where the CPU's likeliest leads by"), found


def test_core_ml_compiles_again(coreml, v, aned):
    v.aned = LYING
    found = coreml("", "coreml-second", demo=str(DEMO), ANED_REAL=aned, ANED_LIE="no_cache")
    assert has(found["coreml-second"], "failed", "the packages were compiled again"), found


def test_a_model(coreml, small_model):
    found = coreml("", *MODEL, args=["--model", small_model])
    assert {n: x for n, x in found.items() if x[0] != "passed"} == {}


def test_a_small_model_elsewhere(coreml, small_model):
    found = coreml("plan_cpu = *", "model-placement", "coreml-placement", args=["--model", small_model])
    for step in ("model-placement", "coreml-placement"):
        assert has(found[step], "skipped", "Core ML leaves small ones to the processor"), found


@pytest.mark.slow
def test_a_large_model_elsewhere(coreml, v):
    large = random_model(v.path / "m.gguf", layers=8, d=512, heads=8, d_head=64, ff=1536, vocab=2048)  # 29 MB
    found = coreml("plan_cpu = *\nthreads = 0", "model-placement", args=["--model", large])
    assert has(found["model-placement"], "failed", "2 of 2 functions are not on the Neural Engine"), found


@pytest.mark.slow
def test_caches_that_do_not_help(coreml):
    found = coreml("cache = \nload_ms = 6000", "coreml-second")
    assert has(found["coreml-second"], "failed", "the system's caches did not help"), found


# --- launchd ---


@pytest.fixture
def launchd(v):
    made = []

    def go(*faults):
        made.append(Launchd(v.path / "ld", faults))
        v.env["PATH"] = f"{made[-1].dir}:{v.env['PATH']}"
        # what the daemon writes to macOS's log, as `log show --style compact` has it
        v.tool("log", f'case "$*" in *dev.aned.daemon*) ;; *) exit 9 ;; esac\n'
                      f'for p in $(cat {made[-1].pids} 2>/dev/null); do\n'
                      'echo "2026-11-23 10:00:00.000 Df aned[$p:1f2] [dev.aned.daemon:serve] ready"; done')
        return made[-1]
    yield go
    for x in made:
        x.close()


def test_launchd(v, launchd):
    """Installed, started by the first client, crashed, ended with a stream open, removed; the user's own agent is not touched."""
    own = v.user / "Library" / "LaunchAgents" / "dev.aned.daemon.plist"
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    d = launchd()
    o = v.report("--manager", "launchd", *[a for n in AGENT for a in ("--only", n)])
    found = said(o)
    nice = os.nice(0)  # of these tests, and so of what they start
    assert {n: found[n] for n in AGENT if found[n][0] != ("failed" if nice > 0 and n == "agent-priority" else "passed")} == {}
    assert "the socket has mode 0600" in found["agent-install"][1]
    assert f"has nice {nice}" in found["agent-priority"][1] and "may open" in found["agent-priority"][1]
    numbers = {s["name"]: s["numbers"] for s in o["steps"]}
    assert 0 < numbers["agent-stop"]["process_gone_after_s"] < 30 and numbers["agent-stop"]["pieces_after_sigterm"] > 0, numbers
    assert numbers["agent-log"]["lines"] > 0
    assert own.read_text() == "mine" and [p.name for p in own.parent.iterdir()] == [own.name]
    assert not list((v.user / "Library" / "Logs").iterdir())
    assert d.jobs == {} and d.enabled == {"dev.aned.acceptance"} and "dev.aned.daemon" not in d.asked


@pytest.mark.parametrize("fault, step, text", [
    ("mode", "agent-install", "the socket's mode is 0666"),
    ("early", "agent-install", "it runs before a client came"),
    ("slow_type", "agent-priority", "does not say: spawn type = interactive"),
    ("no_limits", "agent-priority", "files, its plist asks for 8192"),
    ("no_lines", "agent-log", "no line of pid"),
    pytest.param("no_restart", "agent-crash", "not started again", marks=pytest.mark.slow),
    ("no_time", "agent-stop", "the open stream: "),
    ("default_exit", "agent-stop", "does not say: exit timeout = 30"),
    pytest.param("late", "agent-stop", "the stream was over before SIGTERM", marks=pytest.mark.slow),
    pytest.param("stays", "agent-uninstall", "launchd has not ended", marks=pytest.mark.slow),
])
def test_a_launchd_that_is_not_right(v, launchd, fault, step, text):
    launchd(fault)
    found = v.steps("agent-install", step, manager="launchd")
    assert has(found[step], "failed", text), found[step]


@pytest.mark.parametrize("lie, text", [("background", "runs in the background"), ("few_files", "may open 512 files")])
def test_a_daemon_that_is_held_back(v, aned, launchd, monkeypatch, lie, text):
    monkeypatch.setenv("ANED_REAL", aned)
    monkeypatch.setenv("ANED_LIE", lie)
    v.aned = LYING
    launchd()
    found = v.steps("agent-priority", manager="launchd", demo=str(DEMO), ANED_REAL=aned)
    assert has(found["agent-priority"], "failed", text), found


def test_a_daemon_with_a_socket_of_its_own(v, aned, launchd, monkeypatch):
    monkeypatch.setenv("ANED_REAL", aned)  # of the job
    v.aned = LYING  # it takes launchd's socket, and the real one behind it makes another
    launchd()
    found = v.steps("agent-start", manager="launchd", demo=str(DEMO), ANED_REAL=aned)
    assert has(found["agent-start"], "failed", "it made its socket itself")


def test_a_log_for_administrators(v, launchd):
    launchd()
    v.tool("log", "echo 'log: Could not open local log store: Operation not permitted' >&2; exit 64")
    assert has(v.steps("agent-log", manager="launchd")["agent-log"], "skipped", "wants an administrator")


def test_interrupted_with_an_agent(v, launchd):
    d = launchd()
    with subprocess.Popen(v.argv("--manager", "launchd", "--only", "agent-crash"), stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, env=v.env) as p:
        until(lambda: d.jobs and next(iter(d.jobs.values())).pid())
        p.send_signal(signal.SIGINT)
        p.communicate(timeout=200 * SLOW_S)
    assert p.returncode == 130 and d.jobs == {}
    assert not list((v.user / "Library" / "LaunchAgents").iterdir()) and not list(v.tmp.iterdir())
