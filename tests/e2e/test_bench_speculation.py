"""`./dev bench speculation`: drafts of a fixed acceptance, its arithmetic, and how it looks for a peer's own drafts."""
import json
import subprocess
import sys
import types

import pytest

from conftest import TOP

sys.path.insert(0, str(TOP / "tests" / "bench"))
import bench_speculation as bench  # noqa: E402

BENCH = str(TOP / "tests" / "bench" / "bench_speculation.py")
PEER = str(TOP / "tests" / "bench" / "peer_server.py")


def test_spoiled_tokens_are_others_and_of_the_wanted_share():
    ids = [i % 50 for i in range(5000)]
    less, more = bench.spoil(ids, 0.1, 50), bench.spoil(ids, 0.3, 50)
    wrong = [{i for i, (a, b) in enumerate(zip(ids, v)) if a != b} for v in (less, more)]
    assert wrong[0] < wrong[1]
    assert len(wrong[0]) == pytest.approx(500, rel=0.15) and len(wrong[1]) == pytest.approx(1500, rel=0.1)
    assert all(0 <= x < 50 for x in more)
    assert bench.spoil(ids, 0, 50) == ids and bench.spoil(ids, 0.1, 50) == less


def run(rate, steps, drafted=0, accepted=0):
    return {"text": "x", "rate": rate, "prompt_tokens": 7, "drafted": drafted, "accepted": accepted, "steps": steps}


def test_rows_are_paired_by_round():
    r = bench.row("a", 0.8, [run(50, 100), run(100, 100), run(10, 100)],
                  [run(100, 40, 100, 80), run(300, 40, 100, 70), run(25, 40, 50, 50)])
    assert r["speedup"] == 2.5 and r["quarters"] == [2.25, 2.75]
    assert r["tokens_a_step"] == 2.5 and r["steps_saved"] == 0.6
    assert r["acceptance"] == 0.8 and (r["drafted"], r["accepted"]) == (50, 50)
    assert bench.row("a", "own", [run(10, 9)], [run(10, 9)])["acceptance"] is None


def test_goals_can_be_missed():
    def met(shape, plain, *rows):
        return [m for _, _, m in bench.goals([dict(zip(("wanted", "acceptance", "speedup"), r))
                                              for r in rows], types.SimpleNamespace(shape=shape, plain=plain))]
    assert met("0.5b", False, (0.8, 0.75, 2.1), (0.5, 0.5, 1.1)) == [True]
    assert met("0.5b", False, (0.8, 0.75, 1.9)) == [False]
    assert met("0.5b", False, (0.5, 0.85, 1.9)) == [False]
    assert met("0.5b", False) == [False]
    assert met("gemma", False, ("own", 0.9, 1.2), ("own", 0.9, 2.0)) == [True]  # twice as long: 1.5
    assert met("gemma", False, ("own", 0.9, 1.1), ("own", 0.9, 2.0)) == [False]
    assert met("gemma", True, ("own", None, 0.98), ("own", None, 1.0)) == [True, True]
    assert met("gemma", True, ("own", None, 0.96), ("own", None, 1.1)) == [True, False]


def test_fixed_acceptance_on_a_daemon(aned, demo_gguf):
    for _ in range(6):  # on a busy machine drafts may seem not to pay for a while
        p = subprocess.run([sys.executable, BENCH, "--shape", "demo", "--context", "512", "--tokens", "96", "--rounds", "2",
                            "--lengths", "60", "--acceptance", "0.7,1", "--json"], capture_output=True, text=True, timeout=300)
        assert p.returncode == 0, p.stderr
        rows = json.loads(p.stdout)["rows"]
        if all(r["steps_saved"] > 0 for r in rows):
            break
    assert [(r["prompt"], r["prompt_tokens"], r["wanted"]) for r in rows] == [
        (k, 60, a) for k in bench.KINDS for a in (0.7, 1)]
    assert all(r["text_equal"] and r["steps_saved"] > 0 for r in rows), rows
    assert all(0 < r["acceptance"] < 1 for r in rows if r["wanted"] < 1), rows


def fake_peer(tmp_path, source):
    (tmp_path / "xllamacpp.py").write_text(source)
    info = tmp_path / "xllamacpp-7.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: xllamacpp\nVersion: 7.0\n")
    return subprocess.Popen([sys.executable, PEER, "llama.cpp", "m.gguf", "--threads", "2"], env={"PYTHONPATH": str(tmp_path)},
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(p, *lines):
    out, _ = p.communicate("".join(json.dumps(x) + "\n" for x in lines), timeout=60)
    assert p.returncode == 0
    return [json.loads(x) for x in out.splitlines()]


def test_a_peer_that_offers_nothing_is_said_to(tmp_path, capsys):
    hello, = ask(fake_peer(tmp_path, "class CommonParams:\n    pass\n"))
    assert hello["offers"] == [] and hello["peer"] == "llama.cpp (xllamacpp 7.0)"
    bench.show_peer(hello, [], [])
    assert "offers no n-gram speculation (looked at: xllamacpp.common_speculative_type" in capsys.readouterr().out


FAKE = """
import types
class common_speculative_type:
    COMMON_SPECULATIVE_TYPE_NONE, COMMON_SPECULATIVE_TYPE_NGRAM_MAP_K, COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE = 0, 5, 9
class CommonParams:
    def __init__(self):
        self.model, self.cpuparams, self.cpuparams_batch = [types.SimpleNamespace() for _ in range(3)]
        self.speculative = types.SimpleNamespace(types=[0])
class Server:
    def __init__(self, p):
        assert p.hostnames == ["127.0.0.1"] and p.cpuparams.n_threads == p.cpuparams_batch.n_threads == 2
        self.kind, self.n = p.speculative.types[0], 0
    def handle_completions(self, body):
        self.n += body["max_tokens"]
        drafts = {"draft_n": 4, "draft_n_accepted": 3} if self.kind else {}
        return {"choices": [{"text": str(self.n)}], "timings": {"predicted_per_second": 10.0 + self.kind, **drafts}}
"""


def test_a_peer_is_asked_by_kind_and_begins_anew(tmp_path):
    line = {"prompt": "x", "tokens": 8}
    hello, _, a, _, b, c, _, d = ask(fake_peer(tmp_path, FAKE), {"type": "none"}, line, {"type": "ngram-map-k"}, line, line,
                                     {"type": "ngram-map-k"}, line)
    assert hello["offers"] == ["ngram-map-k"]
    assert a == {"text": "8", "rate": 10.0, "drafted": 0, "accepted": 0}
    assert b == d == {"text": "8", "rate": 15.0, "drafted": 4, "accepted": 3} and c["text"] == "16"
    row = bench.peer_row("p", {"none": {"p": [a, a]}, "ngram-map-k": {"p": [b, c]}})
    assert row["kinds"]["ngram-map-k"] == {"acceptance": 0.75, "drafted": 4, "text_equal": False, "speedup": 1.5}
