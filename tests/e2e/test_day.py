"""`./dev bench day`: its generator is a pure function with the traffic it promises, its verdict sees what is wrong, and a
day of the demo model in seconds finds nothing wrong."""
import argparse
import collections
import sys

import pytest

from conftest import BACKEND, TOP

sys.path.insert(0, str(TOP / "tests" / "bench"))
import day  # noqa: E402
import player  # noqa: E402
import traffic  # noqa: E402

HOURS = 2
SIZE = day.MODELS["gemma"].size


@pytest.fixture(scope="module", params=[1, 2, 3])
def events(request):
    return traffic.day(request.param, HOURS * 3600, SIZE)


def typed(events):
    return [e for e in events if e["kind"] == "complete" and "stop" in e["body"]]


def test_the_same_seed_is_the_same_day(events):
    again = [traffic.day(seed, HOURS * 3600, SIZE) for seed in (1, 2, 3)]
    assert events in again and again[0] != again[1] != again[2]


def test_times_and_rests(events):
    at = [e["at"] for e in events]
    assert at == sorted(at) and 0 <= at[0] and at[-1] <= HOURS * 3600
    gaps = sorted(b - a for a, b in zip(at, at[1:]))
    assert gaps[-2] > 0.03 * HOURS * 3600, "two stretches in which nobody is there"
    assert gaps[len(gaps) // 2] < 6


def test_editors_type_on(events):
    """Most prompts begin as the one before; some are edited further up; nearly all are given up when the next comes."""
    t = typed(events)
    grown = edited = 0
    for a, b in zip(t, t[1:]):
        grown += b["prompt"].startswith(a["prompt"][:-1]) and len(b["prompt"]) > len(a["prompt"])
        edited += not b["prompt"].startswith(a["prompt"][:40])
    assert grown > 0.3 * len(t) and edited > 10
    assert max(len(e["prompt"]) for e in t) <= SIZE.prefix
    does = collections.Counter(e["client"]["does"] for e in t)
    assert does["leaves"] > 0.9 * len(t) and does["vanishes"] > 0
    assert all(0 < e["client"]["s"] for e in t if e["client"]["does"] == "leaves")


def test_chats_are_trees_in_order(events):
    turns, again, back = set(), 0, 0
    children = collections.Counter()
    for e in events:
        if e["kind"] == "chat":
            assert e["parent"] is None or (e["chat"], e["parent"]) in turns
            turns.add((e["chat"], e["turn"]))
            children[e["chat"], e["parent"]] += 1
            again += "again" in str(e["turn"])
            back += e["parent"] is not None and isinstance(e["turn"], int) and e["parent"] != e["turn"] - 1
    assert len(turns) > 100 and again > 5 and back > 0
    assert max(children.values()) > 1


def test_all_that_a_day_has(events):
    does = collections.Counter(e["client"]["does"] for e in events)
    assert set(does) == {"reads", "leaves", "vanishes", "rests", "loses"}
    ops = [(e["session"], e["do"]) for e in events if e["kind"] == "session"]
    assert {do for _, do in ops} == {"create", "generate", "append", "fork", "truncate", "delete"}
    made = {e.get("session") for e in events if e.get("do") in ("create", "fork")}
    assert all(name in made for name, _ in ops)
    assert sum(e["body"].get("service_tier") == "flex" for e in events) > 10
    assert any("prediction" in e["body"] for e in events)


# --- the verdict ---

MODEL = day.Model(None, 1024, SIZE, disk_mib=10, write_mib=12, state_mib=100, sessions=5)


def sample(at, **more):
    return {"at": at, "serve_mib": 20, "fds": 18, "children": 1, "engine_mib": 50, "engine_wrote": 0, "states": 0, "rest": 0,
            "written": 0, "promised_mib": 300, "running": 0, "queued": 0, "connections": 1, "saves": 0, **more}


def wrong(**last):
    samples = [sample(t) for t in range(600)]
    samples[-1].update(last)
    return day.judge_resources(samples, MODEL, 200, 12)


def test_growth_is_seen():
    assert wrong() == []
    for k, v in {"serve_mib": 29, "fds": 23, "children": 2, "engine_mib": 61, "states": 11 << 20, "rest": 9 << 20,
                 "engine_wrote": 5 << 20}.items():
        assert len(wrong(**{k: v})) == 1, k
    assert "counted" in wrong(engine_mib=101)[0]
    assert wrong(engine_mib=59, serve_mib=27, fds=22) == []


def test_the_budget_of_writes_is_a_bucket():
    mib = 1 << 20
    slow = [sample(t, written=6 * mib + 6 * mib * t / 3600 if t > 0 else 0) for t in range(7200)]
    assert day.over_budget(slow, 12 * mib) <= 0, "half at once, then half an hour"
    fast = [sample(t, written=6 * mib + 6.5 * mib * t / 3600 if t > 0 else 0) for t in range(7200)]
    assert day.over_budget(fast, 12 * mib) > 0
    late = [sample(t, written=0 if t < 3000 else 7 * mib) for t in range(3600)]
    assert day.over_budget(late, 12 * mib) > 0, "what was not used is not saved up"
    assert day.most_in(fast, 3600) == pytest.approx(12.5 * mib, rel=0.01)
    assert any("an hour" in x for x in day.judge_resources([sample(0), sample(299, written=13 * mib)], MODEL, 200, 12))


def test_a_different_text_is_seen():
    def got(text, reason=None, done=False):
        return player.Got("/v1/completions", {}, texts={0: text}, reasons={0: reason} if reason else {}, done=done)
    alone = got("abcdef", "length", True)
    assert day.judge_stream(got("abcdef", "length", True), alone) is None
    assert day.judge_stream(got("abc"), alone) is None and day.judge_stream(got(""), alone) is None
    for bad in (got("abcdef", "stop", True), got("abc", "length", True), got("abx"), got("abcdefg"), got("b")):
        assert day.judge_stream(bad, alone) is not None


def test_errors_of_the_log_are_seen():
    good = "2026-01-01T00:00:00.000Z info serve engine_exit status=0 signal=0 reason=none\n"
    assert day.judge_log(good) == []
    assert len(day.judge_log(good + "2026-01-01T00:00:00.000Z info serve engine_exit status=0 signal=9 reason=none\n"
                             "2026-01-01T00:00:00.000Z error serve store_failed x\n")) == 2


# --- the day ---

@pytest.mark.skipif(BACKEND not in ("", "cpu"), reason="a day in four seconds needs the CPU backend's batches")
def test_a_day_of_the_demo_model():
    """Who waits has an answer, and no answer is wrong. How many of those who leave had one before, and whether every part of a
    day occurred in four seconds, depends on the machine: `./dev bench day` judges that."""
    asked = [e for e in traffic.day(9, 3600, day.MODELS["demo"].size) if "client" in e]
    waits = sum(e["client"]["does"] in ("reads", "rests", "loses") for e in asked)
    assert waits > 50
    r = day.run(argparse.Namespace(model="demo", seed=9, hours=1, minutes=0.06))
    print({k: r[k] for k in ("counts", "answers", "resources", "seconds", "day_s")})
    assert [x for x in r["wrong"] if not x.endswith("that part was not shown")] == []
    assert r["different"] == 0 and waits <= r["answers"] <= len(asked) and r["distinct"] == r["answers"]
