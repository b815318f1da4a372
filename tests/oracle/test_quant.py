"""The encoder against its textbook in float64: k-means by the definition, GPTQ by inverse and Cholesky factor.

Inputs are multiples of 1/8, so that the fp32 sums of their products are exact: what differs is our mistake.
"""
import os
import pathlib

import numpy as np
import pytest

from oracle_tools import TOP, run

BIN = pathlib.Path(os.environ.get("ANED_BIN", TOP / ".build" / "release"))
DAMPING = 0.01


def draw(kind, rows, cols, tokens, seed):
    rng = np.random.default_rng(seed)
    x = rng.integers(-16, 17, (cols, tokens))
    if kind == "correlated":  # each input has a part of its neighbours', sizes differ
        x = x // 4 + np.roll(x, 1, 0) // 4 + np.roll(x, 5, 0) // 2
        x = x * rng.integers(1, 4, (cols, 1))
    if kind == "dead":
        x[rng.choice(cols, cols // 5, replace=False)] = 0
    w = rng.standard_normal((rows, cols)) * rng.uniform(0.02, 0.2, (rows, 1))
    return w.astype(np.float32), (x / 8).astype(np.float32)


def quantise(folder, spec, w, x, wanted=None, part=0, threads=1):
    folder.mkdir(exist_ok=True)
    np.save(folder / "w.npy", w)
    np.save(folder / "x.npy", x)
    if wanted is not None:
        np.save(folder / "wanted.npy", wanted)
    run(BIN / "tests" / "oracle" / "quantise", folder, spec, part, threads)
    out = {p.stem: np.load(p) for p in folder.glob("*.npy")}
    return {**out, "values": out["values"].reshape(w.shape), "plain": out["plain"].reshape(w.shape)}


def grid_of(spec, params, row, rows):
    """All values that the weights of a row may have, ascending."""
    if spec.startswith("int"):
        top = 7 if spec == "int4" else 127
        return np.float32(params[row]) * np.arange(-top, top + 1, dtype=np.float32)
    palettes = params.reshape(-1, 16 if spec.startswith("lut4") else 64).astype(np.float32)
    return palettes[row * len(palettes) // rows]


def nearest(grid, v):
    return grid[np.abs(grid.astype(np.float64) - v).argmin()]


def hessian(x):
    h = x.astype(np.float64) @ x.T.astype(np.float64)
    return h, h + DAMPING * (np.mean(np.diag(h)) or 100) * np.eye(len(h))


def gptq(w, x, grids, want=None):
    """The published algorithm: columns by falling diagonal, errors spread by the inverse's Cholesky factor."""
    h, damped = hessian(x)
    order = np.argsort(-np.diag(h), kind="stable")
    upper = np.linalg.cholesky(np.linalg.inv(damped[np.ix_(order, order)])).T
    rest = (w if want is None else want).astype(np.float64)[:, order]
    out = np.empty(w.shape)
    for k, col in enumerate(order):
        for row, grid in enumerate(grids):
            out[row, col] = nearest(grid, rest[row, k])
        error = (rest[:, k] - out[:, col]) / upper[k, k]
        rest[:, k:] -= np.outer(error, upper[k, k:])
    return out


def loss(w, q, x):
    d = (w.astype(np.float64) - q) @ x.astype(np.float64)
    return float((d * d).sum())


CASES = [("random", 24, 64, 300), ("random", 7, 200, 500), ("correlated", 16, 96, 400), ("correlated", 50, 144, 333),
         ("random", 9, 100, 20), ("correlated", 12, 60, 7), ("dead", 13, 80, 200), ("dead", 6, 52, 9)]
SPECS = ["lut4", "lut4:2", "lut6", "int4", "int8"]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)))
def test_feedback_is_gptq(tmp_path, case, spec):
    kind, rows, cols, tokens = case
    w, x = draw(kind, rows, cols, tokens, seed=cols + tokens)
    out = quantise(tmp_path, spec, w, x)
    grids = [grid_of(spec, out["params"], r, rows) for r in range(rows)]
    want = gptq(w, x, grids)
    rows_equal = (out["values"] == want).all(axis=1).mean()
    # a weight on the middle of two values may go either way, and its row then takes another course
    assert rows_equal >= 0.9, f"{rows_equal:.3f} of the rows are equal"
    plain = np.array([[nearest(g, v) for v in row] for g, row in zip(grids, w)])
    assert (out["plain"] == plain).mean() >= 0.999
    before, after = loss(w, out["plain"], x), loss(w, out["values"], x)
    print(f"{spec} {kind} {rows} x {cols}, {tokens} tokens: loss {after / before:.3f} of nearest's")
    assert after < before
    assert after <= loss(w, want, x) * 1.001


@pytest.mark.parametrize("part", [0.5, 1])
@pytest.mark.parametrize("case", [CASES[2], CASES[4], CASES[6]], ids=lambda c: "-".join(map(str, c)))
def test_wanted_outputs(tmp_path, case, part):
    kind, rows, cols, tokens = case
    w, x = draw(kind, rows, cols, tokens, seed=3)
    rng = np.random.default_rng(4)
    wanted = (x + rng.integers(-2, 3, x.shape) / 8).astype(np.float32)
    out = quantise(tmp_path, "lut6:1", w, x, wanted, part)
    damped = hessian(x)[1]
    shift = (wanted.astype(np.float64) - x) @ x.T
    target = w + part * (w @ shift) @ np.linalg.inv(damped)
    grids = [grid_of("lut6", out["params"], r, rows) for r in range(rows)]
    want = gptq(w, x, grids, target)
    assert (out["values"] == want).all(axis=1).mean() >= 0.9


def exact_kmeans(x, w, k):
    """Entries by dynamic programming over sorted values; O(k n^2)."""
    order = np.argsort(x, kind="stable")
    x, w = x[order].astype(np.float64), w[order].astype(np.float64)
    n = len(x)
    cw, cs, cq = (np.concatenate([[0], np.cumsum(v)]) for v in (w, w * x, w * x * x))
    i, j = np.arange(n + 1)[:, None], np.arange(n + 1)[None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        cost = (cq[j] - cq[i]) - (cs[j] - cs[i]) ** 2 / (cw[j] - cw[i])
    cost[i >= j] = np.inf
    best, backs = cost[0], []
    for _ in range(k - 1):
        through = best[:, None] + cost
        backs.append(through.argmin(0))
        best = through.min(0)
    ends = [n]
    for b in reversed(backs):
        ends.append(int(b[ends[-1]]))
    ends = [0, *reversed(ends)]
    return best[n], np.array([(cs[b] - cs[a]) / (cw[b] - cw[a]) for a, b in zip(ends, ends[1:])])


def narrow_error(means, costs, scale):
    """What entries cost that are whole multiples of scale, beyond those at the clusters' means."""
    return (costs * (np.clip(np.rint(means / scale), -127, 127) * scale - means) ** 2).sum()


def scale_of(palette):
    """The largest number of which all entries are multiples."""
    units = np.abs(palette.astype(np.float64) * 2.0**24).astype(np.int64)
    return float(np.gcd.reduce(units)) / 2.0**24


@pytest.mark.parametrize("spec,entries,group,cols", [("lut4", 16, 1, 400), ("lut4:4", 16, 4, 100), ("lut6:1", 64, 1, 500)])
def test_palettes_are_the_best(tmp_path, spec, entries, group, cols):
    rows = 3 * group
    w, x = draw("correlated", rows, cols, 100, seed=cols)
    out = quantise(tmp_path, spec, w, x)
    mean = np.diag(hessian(x)[0]) / x.shape[1]
    assert np.allclose(out["importance"], mean + mean.mean() / 100, rtol=1e-6)
    palettes = out["params"].reshape(-1, entries)
    for i, palette in enumerate(palettes):
        values = w[i * group : (i + 1) * group].ravel()
        weights = np.tile(out["importance"], group)
        _, want = exact_kmeans(values, weights, entries)
        assert np.array_equal(palette, np.sort(palette))
        if entries == 16:  # integers up to 127 times the best scale of 4 bits
            cluster = np.abs(values[:, None] - want).argmin(1)
            costs = np.bincount(cluster, weights, entries)
            scale, peak = scale_of(palette), np.abs(palette).max()
            assert np.abs(palette / scale).max() <= 127
            octave = 2.0 ** (np.floor(np.log2(peak / 127)) - 3)
            scales = [s for s in octave * np.r_[8:16, 16:32:2] if s * 127 >= peak][:8]
            best = min(narrow_error(want, costs, s) for s in scales)
            assert (costs * (palette - want) ** 2).sum() <= best * 1.001
            continue
        off = np.abs(palette.astype(np.float64) - want) / np.spacing(np.abs(want).astype(np.float16)).astype(np.float64)
        assert off.max() <= 0.51, "an entry is not the best one rounded to fp16"


def test_threads_change_nothing(tmp_path):
    w, x = draw("correlated", 30, 250, 400, seed=1)
    a, b = (quantise(tmp_path / str(t), "lut4", w, x, x * np.float32(1.125), 0.5, t) for t in (1, 3))
    assert np.array_equal(a["values"], b["values"])
