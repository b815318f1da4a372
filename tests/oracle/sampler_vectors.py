#!/usr/bin/env python3
"""Makes tests/unit/engine/sampler_vectors.json: what chains of samplers leave, by their definitions, in float64.

    python3 tests/oracle/sampler_vectors.py >tests/unit/engine/sampler_vectors.json

Written from the papers and llama.cpp's description of its samplers, apart from daemon/engine, which test_sampler_chain.c compares
with it. Plain and slow: a list of [id, logit] is sorted anew by every sampler. Sources: typical_p, Meister et al. 2022; mirostat,
Basu et al. 2021; top_n_sigma, Tang et al. 2024; random numbers, Salmon et al. 2011."""
import json
import math
import sys

import numpy as np

CHAIN = ["penalties", "dry", "top_n_sigma", "temperature", "top_k", "typ_p", "top_p", "min_p", "xtc"]
FLOATS = {"temperature": 1, "top_p": 1, "min_p": 0, "repeat_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0,
          "dynatemp_range": 0, "dynatemp_exponent": 1, "typical_p": 1, "top_n_sigma": 0, "xtc_probability": 0,
          "xtc_threshold": 0.1, "dry_multiplier": 0, "dry_base": 1.75, "mirostat_tau": 5, "mirostat_eta": 0.1, "mu": 0}
WHOLE = {"top_k": 0, "repeat_last_n": 64, "dry_allowed_length": 2, "dry_last_n": 64, "mirostat": 0, "seed": 0}


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def uniform(seed, index, stream):
    r = philox([0, index, stream, 0], [seed & 0xFFFFFFFF, seed >> 32])
    return ((r[0] << 32 | r[1]) >> 11) * 2.0 ** -53


def softmax(c):
    x = np.array([v for _, v in c])
    w = np.exp(x - x.max())
    return w / w.sum()


def ranked(c):
    return sorted(c, key=lambda t: (-t[1], t[0]))


def entropy(p):
    return float(-(p[p > 0] * np.log(p[p > 0])).sum())


def penalties(c, p, history, hit):
    last = history[max(0, len(history) - p["repeat_last_n"]):] if p["repeat_last_n"] else []
    out = []
    for i, x in c:
        if i in last:
            x = x / p["repeat_penalty"] if x > 0 else x * p["repeat_penalty"]
        n = history.count(i)
        out.append((i, x - n * p["frequency_penalty"] - (n > 0) * p["presence_penalty"]))
    return out


def last_breaker(past, breakers):
    """How many tokens stand behind the last breaker; of those that begin at one token, the longest."""
    for i in range(len(past)):
        at = len(past) - 1 - i
        fits = [len(b) for b in breakers if tuple(past[at:at + len(b)]) == tuple(b)]
        if fits:
            return len(past) - at - max(fits)
    return len(past)


def dry(c, p, history, hit):
    past = history[max(0, len(history) - p["dry_last_n"]):] if p["dry_last_n"] else []
    limit, allowed = last_breaker(past, p["breakers"]), p["dry_allowed_length"]
    longest = {}
    if len(past) > allowed and limit >= allowed:
        for k in range(1, len(past)):
            n = 0
            while n + k < len(past) and past[-1 - n] == past[-1 - n - k]:
                n += 1
            n = min(n, limit)
            if n >= allowed:
                longest[past[-k]] = max(n, longest.get(past[-k], 0))
    most = int(88.7228391 / math.log(p["dry_base"])) if p["dry_base"] > 1.000001 else 0
    out = []
    for i, x in c:
        if i in longest and (i,) not in p["breakers"]:
            e = longest[i] - allowed
            x -= p["dry_multiplier"] * p["dry_base"] ** (min(e, most) if most > 0 else e)
        out.append((i, x))
    return out


def top_n_sigma(c, p, history, hit):
    x = np.array([v for _, v in c])
    return [t for t in c if t[1] >= x.max() - p["top_n_sigma"] * x.std()]


def temperature(c, p, history, hit):
    t = p["temperature"]
    if p["dynatemp_range"] > 0 and not p["mirostat"]:
        if len(c) < 2:
            return c
        low, high = max(0.0, t - p["dynatemp_range"]), t + p["dynatemp_range"]
        t = low + (high - low) * (entropy(softmax(c)) / math.log(len(c))) ** p["dynatemp_exponent"]
    return [(i, x / t) for i, x in c] if t > 0 else ranked(c)[:1]


def top_k(c, p, history, hit):
    return ranked(c)[:p["top_k"]]


def typ_p(c, p, history, hit):
    r = ranked(c)
    q = softmax(r)
    far = [-math.log(v) - entropy(q) if v > 0 else math.inf for v in q]
    order = sorted(range(len(r)), key=lambda k: (abs(far[k]), k if far[k] >= 0 else -k))  # equal ones by the nearer rank
    mass, n = 0.0, 0
    while n < len(order) and (n == 0 or mass <= p["typical_p"]):
        mass += q[order[n]]
        n += 1
    return [r[k] for k in order[:n]]


def top_p(c, p, history, hit):
    r = ranked(c)
    q = softmax(r)
    mass, n = 0.0, 0
    while n < len(r) and (n == 0 or mass < p["top_p"]):
        mass += q[n]
        n += 1
    return r[:n]


def min_p(c, p, history, hit):
    q = softmax(c)
    return [t for t, v in zip(c, q) if v >= p["min_p"] * q.max()]


def xtc(c, p, history, hit):
    r = ranked(c)
    above = int((softmax(r) >= p["xtc_threshold"]).sum())
    return r[above - 1:] if hit and above > 1 else r


ON = {"penalties": lambda p: p["repeat_penalty"] != 1 or p["presence_penalty"] or p["frequency_penalty"],
      "dry": lambda p: p["dry_multiplier"] > 0 and p["dry_base"] >= 1, "top_n_sigma": lambda p: p["top_n_sigma"] > 0,
      "temperature": lambda p: True, "top_k": lambda p: p["top_k"] > 0, "typ_p": lambda p: p["typical_p"] < 1,
      "top_p": lambda p: p["top_p"] < 1, "min_p": lambda p: p["min_p"] > 0,
      "xtc": lambda p: p["xtc_probability"] > 0 and p["xtc_threshold"] <= 0.5}


def cut(c, p, vocab):
    """mirostat's."""
    r = ranked(c)
    q = softmax(r)
    if p["mirostat"] == 2:
        return [t for t, v in zip(r, q) if v > 0 and -math.log2(v) <= p["mu"]] or r[:1]
    n = min(100, len(r)) - 1
    if n < 1:
        return r
    t = np.log((np.arange(n) + 2) / (np.arange(n) + 1))
    b = np.array([r[k][1] - r[k + 1][1] for k in range(n)])
    s = float((t * b).sum() / (t * t).sum())
    k = ((s - 1) * 2 ** p["mu"] / (1 - vocab ** -(s - 1))) ** (1 / s)
    return r[:max(1, int(k))]


def leave(logits, p, history, chain, hit):
    """Probabilities by id."""
    c = [(i, float(x)) for i, x in enumerate(logits) if x > -math.inf]
    for name in chain if not p["mirostat"] else ["temperature"]:
        if ON[name](p):
            c = globals()[name](c, p, history, hit)
    if p["temperature"] <= 0 and (p["dynatemp_range"] <= 0 or p["mirostat"]):
        c = ranked(c)[:1]
    elif p["mirostat"]:
        c = cut(c, p, len(logits))
    out = np.zeros(len(logits))
    out[[i for i, _ in c]] = softmax(c)
    return out


def mixture(logits, p, history, chain):
    """Over xtc's random number."""
    hit, miss = (leave(logits, p, history, chain, h) for h in (True, False))
    q = min(p["xtc_probability"], 1)
    return q * hit + (1 - q) * miss


# --- cases ---

class Cases:
    def __init__(self):
        self.rng = np.random.RandomState(110)
        self.list = []

    def logits(self, n):
        """Many are equal, some are minus infinity."""
        r = self.rng
        x = np.round(r.normal(0, r.choice([0.5, 2, 6]), n) * r.choice([4, 64])) / 64
        x = np.where(r.rand(n) < 0.1, -math.inf, x)
        x[r.randint(n)] = 1.0
        return [float(v) for v in x]

    def add(self, p, chain=None, n=None, history=None, draws=False):
        r = self.rng
        n = n or int(r.randint(2, 24))
        logits = self.logits(n) if not draws else [float(v) for v in np.round(r.normal(0, 1.2, n) * 64) / 64]
        history = [int(v) for v in r.randint(0, n, r.randint(0, 30))] if history is None else history
        q = {**FLOATS, **WHOLE, "breakers": [], **p}
        q = {k: float(np.float32(v)) if k in FLOATS else v for k, v in q.items()}  # as a message has them
        hit = uniform(q["seed"], 0, 2) < q["xtc_probability"]
        probs = leave(logits, q, history, chain or CHAIN, hit)
        case = {"params": {k: v for k, v in p.items() if k != "breakers"}, "chain": chain or [], "breakers": q["breakers"],
                "history": history, "logits": [v if v > -math.inf else None for v in logits], "probs": short(probs)}
        if draws:
            case["draws"] = short(mixture(logits, q, history, chain or CHAIN))
        self.list.append(case)


def short(probs):
    return [float(f"{v:.12g}") for v in probs]


def repeats(rng, n):
    """A text that repeats parts of itself."""
    text = [int(v) for v in rng.randint(0, n, 8)]
    while len(text) < 40:
        at, size = rng.randint(len(text)), rng.randint(1, 9)
        text += text[at:at + size] + ([int(rng.randint(n))] if rng.rand() < 0.5 else [])
    return text + text[-7:-1]


def dry_cases(c):
    r = c.rng
    for k in range(24):
        n = int(r.randint(3, 12))
        breakers = [tuple(int(v) for v in r.randint(0, n, r.randint(1, 4))) for _ in range(r.randint(0, 3))]
        p = {"dry_multiplier": float(r.choice([0.5, 1, 2.5])), "dry_base": float(r.choice([1, 1.25, 1.75, 3])),
             "dry_allowed_length": int(r.choice([0, 1, 2, 4])), "dry_last_n": int(r.choice([5, 20, 64, 1000])),
             "breakers": breakers}
        c.add(p, n=n, history=repeats(r, n))
    c.add({"dry_multiplier": 1, "dry_base": 1.75, "dry_last_n": 1000}, n=4, history=[0] * 400)  # the largest penalty
    c.add({"dry_multiplier": 0.5, "dry_allowed_length": 1}, ["top_k", "temperature", "dry", "penalties"], 8, repeats(r, 8))


def one_by_one(c):
    r = c.rng
    ranges = {"temperature": [0, 0.3, 1.7], "top_k": [1, 3, 10], "top_p": [0, 0.4, 0.9], "min_p": [0.05, 0.4, 1],
              "typical_p": [0, 0.3, 0.7, 0.95], "top_n_sigma": [0.2, 1, 2.5], "repeat_penalty": [1.3, 0.7],
              "frequency_penalty": [0.4], "presence_penalty": [-0.5]}
    for name, values in ranges.items():
        for v in values:
            for _ in range(2):
                c.add({name: v})
    for t in (0.05, 0.15, 0.3, 0.5, 0):
        for _ in range(2):
            c.add({"xtc_probability": 1, "xtc_threshold": t})
    for seed in range(8):
        c.add({"xtc_probability": 0.5, "seed": seed << 33 | 5})
    for t, d, e in ((1, 0.5, 1), (0.5, 1, 2), (0, 0.8, 0.5), (1.5, 1.5, 3)):
        c.add({"temperature": t, "dynatemp_range": d, "dynatemp_exponent": e})
    for version in (1, 2):
        for mu in (0.5, 1.5, 3, 6, -2, 40):
            c.add({"mirostat": version, "mu": mu, "temperature": float(r.choice([0.7, 1, 1.4])), "top_k": 1},
                  n=int(r.choice([6, 20, 150])))


def together(c):
    """Any chain of any of them."""
    r = c.rng
    for _ in range(40):
        chain = [str(v) for v in r.permutation(CHAIN)[:r.randint(1, len(CHAIN) + 1)]]
        p = {"temperature": float(r.choice([0.5, 0.8, 1.5])), "top_k": int(r.randint(2, 12)), "top_p": 0.9, "min_p": 0.05,
             "typical_p": 0.9, "top_n_sigma": 2, "xtc_probability": 1, "xtc_threshold": 0.15, "repeat_penalty": 1.2,
             "frequency_penalty": 0.1, "dry_multiplier": 0.5, "dry_allowed_length": 1,
             "dynatemp_range": float(r.choice([0, 0.25]))}
        keep = r.rand(len(p)) < 0.6
        c.add({k: v for (k, v), ok in zip(p.items(), keep) if ok}, chain if r.rand() < 0.8 else None)


def drawn(c):
    """For draws: how often tokens come."""
    for p, chain in (({"temperature": 0.8, "top_k": 8, "top_p": 0.9, "min_p": 0.05}, None), ({"typical_p": 0.8}, None),
                     ({"xtc_probability": 0.4, "xtc_threshold": 0.1, "temperature": 1.3}, None),
                     ({"top_n_sigma": 1.2, "temperature": 1.5}, None), ({"temperature": 1, "dynatemp_range": 0.7}, None),
                     ({"dry_multiplier": 0.4, "dry_allowed_length": 1, "repeat_penalty": 1.1}, None),
                     ({"mirostat": 1, "mu": 4}, None), ({"mirostat": 2, "mu": 4}, None),
                     ({"temperature": 1.6, "top_p": 0.95, "xtc_probability": 0.3, "xtc_threshold": 0.1, "typical_p": 0.95},
                      ["top_p", "xtc", "typ_p", "temperature"])):
        c.add(p, chain, 12, [0, 1, 2, 0, 1, 2, 0], draws=True)


def main():
    c = Cases()
    one_by_one(c)
    dry_cases(c)
    together(c)
    drawn(c)
    sys.stdout.write("[\n" + ",\n".join(json.dumps(x, separators=(",", ":")) for x in c.list) + "\n]\n")


if __name__ == "__main__":
    main()
