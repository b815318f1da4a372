"""How `./dev bench ... --against DIR` compares two builds: what it lets pass, and what it does not."""
import json
import random
import sys

import pytest

from conftest import TOP

sys.path.insert(0, str(TOP / "tests" / "bench"))
import bench_cpu  # noqa: E402
import paired  # noqa: E402

ROUNDS = 15


def rounds(seed, slower=1.0, noise=0.01, n=ROUNDS):
    """Milliseconds of both sides in a machine whose speed comes and goes; new takes `slower` times as long."""
    draw = random.Random(seed)
    old, new = [], []
    for _ in range(n):
        machine = draw.choice([1.0, 1.0, 1.7])  # both sides of a round
        old.append(10 * machine * draw.lognormvariate(0, noise))
        new.append(10 * machine * slower * draw.lognormvariate(0, noise))
    return old, new


def verdict(*sides, **more):
    return paired.judge("x", "ms", *sides, more_is_better=False, **more)


def test_equal_samples_pass():
    r = verdict([10.0] * ROUNDS, [10.0] * ROUNDS)
    assert (r["ratio"], r["interval"], r["verdict"]) == (1, (1, 1), "holds")
    assert not paired.failed([r])


@pytest.mark.parametrize("seed", range(20))
def test_five_percent_slower_fails(seed):
    r = verdict(*rounds(seed, slower=1.05))
    assert r["verdict"] == "slower" and paired.failed([r]), r
    assert r["interval"][0] <= r["ratio"] <= r["interval"][1] < paired.FLOOR


def test_noise_alone_does_not_fail():
    """Nor does it when it is much larger than what is looked for."""
    for noise in (0.01, 0.05, 0.2):
        rows = [verdict(*rounds(seed, noise=noise)) for seed in range(200)]
        slow = sum(r["verdict"] == "slower" for r in rows)
        assert slow <= 200 * 0.05, (noise, slow)
    assert sum(verdict(*rounds(s, noise=0.01))["verdict"] == "slower" for s in range(200)) == 0
    r = verdict(*rounds(1, noise=0.2))
    assert r["verdict"] == "unclear" and not paired.failed([r])


def test_faster_passes():
    assert all(verdict(*rounds(s, slower=0.9))["verdict"] == "holds" for s in range(20))


def test_direction():
    less, more = [9.0] * 5, [10.0] * 5
    assert paired.judge("x", "ms", less, more, more_is_better=False)["verdict"] == "slower"
    assert paired.judge("x", "ms", more, less, more_is_better=False)["verdict"] == "holds"
    assert paired.judge("x", "tok/s", more, less)["verdict"] == "slower"
    assert paired.judge("x", "tok/s", less, more)["ratio"] == pytest.approx(10 / 9)


def test_the_interval_has_the_median_in_nine_of_ten():
    for n in (5, 7, 15, 40):
        draw, inside = random.Random(n), 0
        for _ in range(2000):
            low, high = paired.interval([draw.lognormvariate(0, 1) for _ in range(n)])
            inside += low <= 1 <= high
        assert inside >= 0.88 * 2000, (n, inside)
        assert paired.interval(list(range(n))) != (0, n - 1) or n <= 7, "not all of it"


def test_a_few_pairs_show_nothing():
    r = verdict([10.0] * 4, [10.0] * 4)
    assert r["interval"] is None and r["verdict"] == "too few"
    assert paired.failed([r]) and paired.failed([])
    assert "too few" in paired.text([r]) and "too few" in paired.text([verdict([], [])])


def test_a_pair_without_a_figure_is_left_out():
    assert verdict([10.0] * 6, [10.0] * 5 + [0.0])["pairs"] == 5


def test_what_is_printed(capsys):
    rows = [verdict(*rounds(1, slower=1.05)), verdict(*rounds(1), noisy=True)]
    assert paired.show("a run", rows, False) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].endswith("slower") and lines[3].endswith("holds !") and lines[2].split()[4].startswith("0.9")
    assert paired.show("a run", rows[1:], True) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["verdict"] == "holds"


# --- bench cpu: which samples make a pair ---

def sample(ms, state="2ccd", others=0.0):
    return {"ms": ms, "state": state, "quiet": others <= bench_cpu.OTHERS_MAX}


def test_quiet_pairs_count_when_there_are_enough():
    w = ("decode", 1)
    old = {w: [sample(10)] * 6 + [sample(10), sample(10, others=1)]}
    new = {w: [sample(10)] * 6 + [sample(30, "1ccd"), sample(30)]}
    r = bench_cpu.compared(old, new, [w])[0]
    assert (r["workload"], r["pairs"], r["ratio"], r["noisy"], r["verdict"]) == ("decode 1", 6, 1, False, "holds")
    r = bench_cpu.compared({w: old[w][3:]}, {w: new[w][3:]}, [w])[0]
    assert (r["pairs"], r["noisy"]) == (5, True), "three quiet ones are too few: all"


def test_a_machine_that_is_never_quiet_still_compares():
    w = ("verify", 4)
    old, new = ({w: [sample(ms, others=1) for ms in side]} for side in rounds(3, slower=1.05))
    r = bench_cpu.compared(old, new, [w])[0]
    assert (r["pairs"], r["noisy"], r["verdict"]) == (ROUNDS, True, "slower")
