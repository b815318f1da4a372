"""The arithmetic of `./dev bench cpu`: which samples count, and what the columns mean."""
import sys

import pytest

from conftest import TOP

sys.path.insert(0, str(TOP / "tests" / "bench"))
import bench_cpu  # noqa: E402


def sample(ms, state="2ccd", others=0.0, stolen=0.0, read=50.0):
    return {"ms": ms, "state": state, "read_gb_s": read,
            "quiet": others <= bench_cpu.OTHERS_MAX and stolen <= bench_cpu.OTHERS_MAX}


def row(samples, base=None, tokens=1, state="2ccd", n_bytes=500_000_000, products=None, peak=100.0):
    return bench_cpu.figures(samples, base or samples, tokens, state, n_bytes, products, peak)


def test_median_of_quiet_samples_in_the_usual_state():
    f = row([sample(10), sample(12), sample(11), sample(1, others=0.5), sample(2, stolen=0.2), sample(3, "1ccd"),
             sample(4, "mixed")], tokens=4)
    assert (f["ms"], f["ms_min"], f["ms_max"], f["n"], f["dropped"], f["other_state"]) == (11, 10, 12, 3, 3, 1)
    assert f["tok_s"] == pytest.approx(4 / 0.011)
    assert not f["noisy"]


def test_share_of_the_bus_is_taken_sample_by_sample():
    f = row([sample(10, read=100.0), sample(20, read=50.0)])  # 50 and 25 GB/s
    assert f["of_bus"] == pytest.approx(0.5)
    assert f["gb_s"] == pytest.approx(37.5)


def test_cost_relative_to_one_token_is_paired_by_round():
    f = row([sample(15), sample(40), sample(90, "1ccd")], [sample(10), sample(20), sample(30)])
    assert f["x_t1"] == pytest.approx(1.75)
    assert f["ms_over_t1"] == pytest.approx(12.5)
    assert "x_t1" not in row([sample(15, others=0)], [sample(10, others=1)])


def test_prefill_is_measured_against_the_multipliers():
    f = row([sample(100)], products=5_000_000_000, peak=100.0)
    assert f["of_multipliers"] == pytest.approx(0.5)
    assert "gb_s" not in f and "of_bus" not in f


def test_without_a_quiet_sample_a_figure_is_marked():
    f = row([sample(10, others=0.5), sample(30, "mixed")])
    assert f["noisy"] and f["n"] == 0 and f["ms"] == 20
    a = bench_cpu.against([sample(10, others=0.5)], [sample(20)], "2ccd")
    assert a == {"ratio": 2, "pairs": 0}


def test_a_peer_is_compared_within_a_round_and_a_state():
    ours = [sample(10), sample(10), sample(10, "1ccd"), sample(10)]
    peer = [sample(20), sample(30), sample(90, "1ccd"), sample(90, others=1)]
    assert bench_cpu.against(ours, peer, "2ccd") == {"ratio": 2.5, "pairs": 2}


def test_rounds_go_on_until_every_side_has_enough():
    w = ("decode", 1)
    aned = {w: [sample(1), sample(1), sample(1, others=1)]}
    assert bench_cpu.enough({"aned": aned}, [w], 2)
    assert not bench_cpu.enough({"aned": aned}, [w], 3)
    assert not bench_cpu.enough({"aned": aned, "ik": {w: [sample(2, "1ccd"), sample(2), sample(2)]}}, [w], 2)


def test_a_side_that_hangs_or_ends_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(bench_cpu, "OPEN_TIMEOUT", 60)
    with pytest.raises(SystemExit, match="ended\nreason"):
        bench_cpu.Side("x", ["sh", "-c", "echo reason >&2"], tmp_path / "log")
    side = bench_cpu.Side("x", ["sh", "-c", "echo '{}'; exec sleep 60"], tmp_path / "log")
    try:
        with pytest.raises(SystemExit, match="no answer"):
            side.ask("decode 1 0.1", 0.2)
    finally:
        side.close()
    assert side.p.returncode is not None
