"""Two builds in turns: is the new one as fast as the old one?

Rounds are pairs: both builds did the same work one right after the other, in an order that alternates. Judged is the ratio of
their speeds, new over old, of each pair; what slows the machine down for a while slows both sides of a pair. The median ratio
has an interval of order statistics (the sign test's), which assumes nothing about how the ratios are distributed: of n pairs
the k-th least and the k-th largest, with the largest k for which the true median is outside in at most one of ten cases. Five
pairs are the fewest that have one.

  holds     the whole interval is at FLOOR or above
  unclear   its upper end is: nothing says that the new build is slower, but so few or so noisy rounds could not
  slower    all of it is below FLOOR; the run fails
  too few   less than five pairs; the run fails, for nothing was shown
"""
import json
import math
import statistics

from bench import machine

FLOOR, LEVEL = 0.98, 0.90


def interval(ratios, level=LEVEL):
    """(low, high) of the median; None: too few ratios."""
    n, k, below = len(ratios), 0, 0.0
    while True:
        below += math.comb(n, k) / 2**n  # of k or fewer heads in n throws
        if 2 * below > 1 - level or k >= n // 2:
            break
        k += 1
    ordered = sorted(ratios)
    return (ordered[k - 1], ordered[n - k]) if k > 0 else None


def judge(workload, unit, old, new, more_is_better=True, noisy=False):
    """One row of the table, of samples in their pairs. noisy: others used the machine meanwhile."""
    ratios = [n / o if more_is_better else o / n for o, n in zip(old, new, strict=True) if o > 0 and n > 0]
    span = interval(ratios)
    verdict = ("too few" if span is None else "slower" if span[1] < FLOOR else "unclear" if span[0] < FLOOR else "holds")
    return {"workload": workload, "unit": unit, "pairs": len(ratios), "noisy": noisy,
            "old": statistics.median(old) if old else None, "new": statistics.median(new) if new else None,
            "ratio": statistics.median(ratios) if ratios else None, "interval": span, "verdict": verdict}


def failed(rows):
    return any(r["verdict"] not in ("holds", "unclear") for r in rows) or not rows


def text(rows):
    out = [f"{'workload':28}{'old':>11}{'new':>11} {'':10}{'ratio':>7}  {'90% interval':15}{'pairs':>6}  verdict"]
    for r in rows:
        if r["ratio"] is None:
            out.append(f"{r['workload']:28}{'':61}{r['pairs']:6}  {r['verdict']}")
            continue
        span = "{:.3f} - {:.3f}".format(*r["interval"]) if r["interval"] else ""
        out.append(f"{r['workload']:28}{r['old']:11.2f}{r['new']:11.2f} {r['unit']:10}{r['ratio']:7.3f}  {span:15}{r['pairs']:6}"
                   f"  {r['verdict']}{' !' if r['noisy'] else ''}")
    out.append(f"ratio: of speeds, new over old; above 1 the new build is faster. Slower: the interval lies below {FLOOR}.")
    if any(r["noisy"] for r in rows):
        out.append("! others used the machine: pairs of all samples, not of quiet ones.")
    return "\n".join(out)


def show(what, rows, as_json):
    """Print the comparison; the exit code."""
    if as_json:
        print(json.dumps({"machine": machine(), "what": what, "rows": rows}, indent=2))
    else:
        print(f"{machine()}; {what}\n{text(rows)}")
    return 1 if failed(rows) else 0
