#!/usr/bin/env python3
"""Measure the CPU engine against the machine and, if wanted, against a peer.

    ./dev bench cpu [--shape 0.5b] [--peer llama.cpp|ik] [--rounds 5] [--json]
    ./dev bench cpu --quant lut4 --peer int8
    ./dev bench cpu --quant lut4 --peer ik --peer-type q4_0
    ./dev bench cpu --against /some/checkout/.build/release

Each round runs every workload on each side in turn, with a probe of the read bandwidth and of the place of the cores
before and after every sample. Kept are samples during which the place did not change and others (processes, or the
hypervisor) took at most a tenth of a core; the rest is counted, not shown. Printed are medians over the rounds.

  decode 1     one token after 16 others
  verify N     N tokens of one sequence in one step, logits of all N
  sequences N  one token for each of N sequences in one step
  prefill N    a prompt of N tokens, logits of the last
  depth 1000   one token after 1000 others

  tok/s, ms    of a step: the model alone, nothing drawn (min-max over rounds)
  GB/s         bytes of weights over the time of the step, as if it read them once
  of bus       the same over the bandwidth measured beside the sample; prefill: of multipliers, products of weights over
               the rate of the machine's own dot product of 16-bit integers
  read         with experts: bytes of weights that the kernels counted in a step, over those of what one token needs
               (all but experts that it did not choose). The other figures count what one token needs.
  x T=1        time of the step over that of decode 1 in the same round (tokens a second over those of one sequence are
               N divided by it)
  x peer       tokens a second over the peer's, pairs of the same round in the same state

States: smt (both threads on one core), 1ccd and 2ccd (AMD: one or two last-level caches), other. The same program is up
to 1.7 times faster in one state than in another, so figures of two runs compare only when the states agree. When a
round's state differs from that of most rounds it is kept apart. A figure marked ! comes from no quiet sample at all.

--peer int8 (lut4, lut6, ...): the same model converted so takes turns.  --peer-type q4_0: the peer's file is of the same
shape, its layers are Q4_0, and its head is what llama-quantize makes of it: Q8_0 in the 0.5b shape, else Q6_K.

--against: another build takes turns with this one, on the same package (paired.py tells how they are compared). Exit code 1:
this one is slower in some workload. DIR needs its own bench_cpu: ninja -C DIR tests/bench/bench_cpu.

Models are made or fetched once below .build/models and converted once below .build/bench; --fresh converts again (for
after a change of the converter). Peers are Python packages, called through their C library by
tests/bench/peer.py; ik is built on this machine (minutes, once).
"""
import argparse
import collections
import json
import os
import pathlib
import re
import select
import signal
import statistics
import subprocess
import sys
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import paired  # noqa: E402
import mkgguf  # noqa: E402
from bench import BIN, TOP, machine, source  # noqa: E402

WORKLOADS = [("decode", 1), ("verify", 2), ("verify", 4), ("verify", 8), ("sequences", 2), ("sequences", 4),
             ("sequences", 8), ("prefill", 64), ("prefill", 512), ("depth", 1000)]
AGAINST = [("decode", 1), ("depth", 1000), ("verify", 4), ("verify", 8), ("sequences", 4), ("sequences", 8), ("prefill", 512)]
QUANTS = {  # name here: options of convert
    **{q: ["--quant", q] for q in ("int8", "int4", "lut4", "lut6", "fp16")},
    "lut4-lut6": ["--quant", "lut4", "--head-quant", "lut6"],
}
MIXTURES = [name for name, s in mkgguf.SHAPES.items() if s.experts and s.arch != "openai-privacy-filter"]
OTHERS_MAX = 0.10  # of a core
SETTLE = 0.03  # seconds for the other side's threads to stop spinning
WORK_TIMEOUT, OPEN_TIMEOUT = 300, 600


class Side:
    """A process that answers a line with a line."""

    def __init__(self, name, argv, log):
        self.name = name
        self.log = open(log, "w+")
        self.p = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, bufsize=0)
        self.rest = b""
        try:
            self.hello = {**self.answer(OPEN_TIMEOUT), **self.memory()}
        except BaseException:
            self.close()
            raise

    def answer(self, timeout):
        end = time.monotonic() + timeout
        while b"\n" not in self.rest:
            ready, _, _ = select.select([self.p.stdout], [], [], max(0, end - time.monotonic()))
            more = os.read(self.p.stdout.fileno(), 65536) if ready else b""
            if not more:
                self.log.seek(0)
                tail = "".join(self.log.readlines()[-5:])
                raise SystemExit(f"{self.name}: {'ended' if ready else f'no answer in {timeout} s'}\n{tail}")
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        a = json.loads(line)
        if "error" in a:
            raise SystemExit(f"{self.name}: {a['error']}")
        return a

    def memory(self):
        try:
            text = pathlib.Path(f"/proc/{self.p.pid}/status").read_text()
        except OSError:
            text = ""
        kib = dict(re.findall(r"^Rss(Anon|File):\s*(\d+) kB", text, re.M))
        return {"anon_mib": int(kib.get("Anon", 0)) / 1024, "file_mib": int(kib.get("File", 0)) / 1024}

    def ask(self, line, timeout=WORK_TIMEOUT):
        try:
            self.p.stdin.write(line.encode() + b"\n")
        except BrokenPipeError:
            pass  # answer() tells why
        return self.answer(timeout)

    def close(self):
        try:
            self.p.stdin.close()
            self.p.wait(3)
        except (OSError, subprocess.TimeoutExpired):
            self.p.kill()
            self.p.wait()
        self.p.stdout.close()
        self.log.close()


# --- what is measured ---

def cached_bundle(src, name, context, quant, fresh):
    """Folder of the bundle made of src."""
    aned = BIN / "daemon" / "aned"
    out = TOP / ".build" / "bench" / f"{name}-{quant}"
    stamp = out.with_name(out.name + ".made")
    of = f"{src.stat().st_size} {src.stat().st_mtime_ns} {context}"
    if fresh or not out.exists() or not stamp.exists() or stamp.read_text() != of:
        out.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["rm", "-rf", str(out)], check=True)
        print(f"converting {src.name}", file=sys.stderr)
        r = subprocess.run([aned, "convert", src, "--out", out, "--context", str(context), *QUANTS[quant],
                            "--accept", "quality,exactness", *(["--profile", "cpu"] if name in MIXTURES else [])],
                           capture_output=True, text=True, timeout=7200)
        if r.returncode != 0:
            sys.exit(f"aned convert: {r.stderr.strip()}")
        stamp.write_text(of)
    return out


def gguf_bytes(path, shape=None):
    """Bytes of weights a token reads: all tensors, but not the embedding where the head has its own, nor the experts of a
    shape that it does not choose."""
    import gguf
    s = mkgguf.SHAPES.get(shape)
    tensors = {t.name: int(t.n_bytes) * (s.top / s.experts if "_exps." in t.name else 1) for t in gguf.GGUFReader(path).tensors}
    return sum(tensors.values()) - (tensors["token_embd.weight"] if "output.weight" in tensors else 0)


def needed(shape, quant):
    """Bytes of matrices that a token of a mixture needs, in the converted form; without scales and tables, as the kernels
    count them. The embedding is the head."""
    s = mkgguf.SHAPES[shape]
    layer = {"int8": 1, "int4": 0.5, "lut4": 0.5, "lut4-lut6": 0.5, "lut6": 0.75, "fp16": 2}[quant]
    head = {"fp16": 2, "int4": 0.5, "lut4-lut6": 0.75}.get(quant, 1)
    n = 0
    for name, dims, kind in mkgguf.tensor_list(s):
        size = int(np.prod(dims)) * (s.top / s.experts if "_exps." in name else 1)
        if kind == "matrix":
            n += size * (head if name == "token_embd.weight" else layer)
        elif name.endswith("ffn_gate_inp.weight"):
            n += size * 2  # routers are fp16
    return n


def sample(side, ours, work, seconds, before):
    """One sample with the probes around it; the probe after it is the next one's before."""
    time.sleep(SETTLE)
    s = side.ask(f"{work[0]} {work[1]} {seconds}")
    time.sleep(SETTLE)
    after = ours.ask("place", 60)
    s["state"] = before["state"] if before["state"] == after["state"] else "mixed"
    s["read_gb_s"] = (before["read_gb_s"] + after["read_gb_s"]) / 2
    s["trip_ns"] = [before["trip_ns"], after["trip_ns"]]
    s["quiet"] = s["others"] <= OTHERS_MAX and s["stolen"] <= OTHERS_MAX
    return s, after


def enough(got, works, rounds):
    """Are there `rounds` rounds of each workload in which every side's sample counts?"""
    state = usual_state(got)
    return all(sum(all(counts(s, state) for s in one) for one in zip(*(side[w] for side in got.values()))) >= rounds
               for w in works)


def measure(sides, ours, works, rounds, seconds, end):
    """{side name: {workload: [a sample for each round]}}, rounds, multipliers; stops at `end` or with enough samples
    that count. The multipliers' rate is the best of the rounds: with both threads on one core it is half."""
    got = {s.name: collections.defaultdict(list) for s in sides}
    n, mul = 0, {"g_products_s": 0}
    while n < rounds or (n < 3 * rounds and not enough(got, works, rounds)):
        mul = max(mul, ours.ask("multiply", 60), key=lambda m: m["g_products_s"])
        for w in works:
            place = ours.ask("place", 60)
            for side in sides if n % 2 == 0 else reversed(sides):
                s, place = sample(side, ours, w, seconds, place)
                got[side.name][w].append(s)
        n += 1
        print(f"\rround {n}", end="", file=sys.stderr, flush=True)
        if time.monotonic() > end:
            break
    print("\r", end="", file=sys.stderr)
    return got, n, mul


def drop_from_cache(folder):
    """The pages of all files below it."""
    for f in folder.rglob("*"):
        if f.is_file():
            with open(f, "rb") as h:
                os.fsync(h.fileno())
                os.posix_fadvise(h.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def load_times(argv, bundle, rounds):
    """From exec to the engine opened and to its first logits, cold and warm page cache in turn; then its memory."""
    got = {k: [] for k in ("cold", "warm")}
    for i in range(2 * rounds):
        cold = i % 2 == 0
        if cold:
            drop_from_cache(bundle)
        at = time.monotonic()
        side = Side("aned", argv, TOP / ".build" / "bench" / "load.log")
        try:
            wall = 1e3 * (time.monotonic() - at)
            before = wall - side.hello["first_token_ms"]  # exec, and the answer's way
            got["cold" if cold else "warm"].append((before + side.hello["open_ms"], wall))
        finally:
            side.close()
    return {k: {"n": rounds, "open_ms": statistics.median(o for o, _ in v), "first_logits_ms": statistics.median(
                f for _, f in v), "first_logits_ms_max": max(f for _, f in v)} for k, v in got.items()}


# --- figures ---

def good(s):
    return s["quiet"] and s["state"] != "mixed"


def counts(s, state):
    return good(s) and s["state"] == state


def usual_state(got):
    c = collections.Counter(s["state"] for side in got.values() for w in side.values() for s in w if good(s))
    return c.most_common(1)[0][0] if c else None


def figures(samples, base, n_tokens, state, n_bytes, products, peak):
    """One row of the table. samples, base: those of the workload and of decode 1, round by round."""
    use = [s for s in samples if counts(s, state)]
    noisy = not use
    use = use or samples
    ms = [s["ms"] for s in use]
    f = {"n": 0 if noisy else len(use), "dropped": len(samples) - sum(map(good, samples)),
         "other_state": sum(good(s) and s["state"] != state for s in samples), "noisy": noisy,
         "state": state or "mixed", "tokens": n_tokens, "ms": statistics.median(ms), "ms_min": min(ms),
         "ms_max": max(ms)}
    f["tok_s"] = 1e3 * n_tokens / f["ms"]
    if "weight_bytes" in use[0]:
        f["weight_bytes"] = statistics.median(s["weight_bytes"] for s in use)
    f["read_gb_s"] = statistics.median(s["read_gb_s"] for s in use)
    if products is None:
        f["gb_s"] = statistics.median(n_bytes / s["ms"] * 1e-6 for s in use)
        f["of_bus"] = statistics.median(n_bytes / s["ms"] * 1e-6 / s["read_gb_s"] for s in use)
    elif peak:
        f["of_multipliers"] = products / f["ms"] * 1e-6 / peak
    pairs = [(s["ms"], b["ms"]) for s, b in zip(samples, base)
             if noisy or (counts(s, state) and counts(b, state))]
    if pairs and products is None:
        f["x_t1"] = statistics.median(s / b for s, b in pairs)
        f["ms_over_t1"] = statistics.median(s - b for s, b in pairs)
    return f


def against(ours, peer, state):
    """Tokens a second over the peer's: median over pairs, and how many there were."""
    pairs = [p["ms"] / o["ms"] for o, p in zip(ours, peer) if counts(o, state) and counts(p, state)]
    noisy = not pairs
    pairs = pairs or [p["ms"] / o["ms"] for o, p in zip(ours, peer)]
    return {"ratio": statistics.median(pairs), "pairs": 0 if noisy else len(pairs)}


def compared(old, new, works):
    """Rows of paired.py. Of quiet pairs in the usual state when there are enough, else of all."""
    state = usual_state({"old": old, "new": new})
    rows = []
    for w in works:
        pairs = [(o, n) for o, n in zip(old[w], new[w]) if counts(o, state) and counts(n, state)]
        noisy = paired.interval([1] * len(pairs)) is None
        pairs = list(zip(old[w], new[w])) if noisy else pairs
        rows.append(paired.judge(f"{w[0]} {w[1]}", "ms", [o["ms"] for o, _ in pairs], [n["ms"] for _, n in pairs],
                                 more_is_better=False, noisy=noisy))
    return rows


def results(args, sides, got, rounds, peak, n_bytes):
    ours = sides[0].hello
    state = usual_state(got)
    out = []
    for w in got[sides[0].name]:
        row = {"workload": f"{w[0]} {w[1]}"}
        tokens = 1 if w[0] == "depth" else w[1]
        per_row = needed(args.shape, "int8") - ours["head_products"] if args.shape in MIXTURES else ours["layer_products"]
        products = per_row * w[1] + ours["head_products"] if w[0] == "prefill" else None
        for s in sides:
            f = row[s.name] = figures(got[s.name][w], got[s.name][("decode", 1)], tokens, state, n_bytes[s.name], products,
                                  peak)
            if args.shape in MIXTURES and "weight_bytes" in f:
                f["read"] = f["weight_bytes"] / n_bytes[s.name]
        if len(sides) > 1:
            row["against"] = against(got["aned"][w], got[sides[1].name][w], state)
        out.append(row)
    return {"rounds": rounds, "state": state or "none was quiet", "workloads": out}


def kind():
    """What makes two machines comparable: the core's family and its vector instructions."""
    text = pathlib.Path("/proc/cpuinfo").read_text() if os.path.exists("/proc/cpuinfo") else ""
    number = {k: m.group(1) for k in ("cpu family", "model") if (m := re.search(rf"^{k}\s*: (\d+)$", text, re.M))}
    flags = [f for f in ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "amx_int8", "asimddp", "i8mm")
             if re.search(rf"\b{f}\b", text)]
    return f"family {number.get('cpu family', '?')} model {number.get('model', '?')}: {' '.join(flags)}"


def proves(peer):
    """Why figures against this peer prove nothing; None."""
    if "/build/" not in peer["library"]:
        return "its ready-made library, which is for any machine: the figures prove nothing"
    flags = pathlib.Path("/proc/cpuinfo").read_text() if os.path.exists("/proc/cpuinfo") else ""
    if " avx512f " in flags and "AVX512 = 1" not in peer["system_info"]:
        return "its library was not built for this machine (no AVX-512): the figures prove nothing"
    return None


# --- output ---

def mark(text, noisy):
    return text + ("!" if noisy else "")


def line_of(name, f, extra):
    share = f.get("of_bus", f.get("of_multipliers"))
    cells = [f"{name:14}", f"{f['tok_s']:9.1f}", mark(f"{f['ms']:9.2f}", f["noisy"]).ljust(10),
             f"{f['ms_min']:.2f}-{f['ms_max']:.2f}".rjust(16), f"{f['gb_s']:6.1f}" if "gb_s" in f else " " * 6,
             f"{share:6.2f}{'*' if 'of_multipliers' in f else ' '}" if share is not None else " " * 7,
             f"{f['x_t1']:6.2f}" if "x_t1" in f else " " * 6, f"{f['state']}:{f['n']}".rjust(8),
             str(f["dropped"] + f["other_state"]).rjust(7), extra]
    if name.startswith("depth") and "ms_over_t1" in f:
        cells.append(f"{f['ms_over_t1']:+.2f} ms over T=1")
    if "read" in f:
        cells.append(f"{f['weight_bytes'] / 1e6:.1f} MB read, {f['read']:.3f} of what one token needs")
    return "  ".join(cells).rstrip()


def print_side(r, side, peer):
    head = ["workload      ", "    tok/s", "       ms ", "    min-max     ", "  GB/s", "of bus ", " x T=1",
            " state:n", "dropped", f"x {peer}" if peer else ""]
    print("  ".join(head).rstrip())
    for row in r["workloads"]:
        extra = ""
        if peer:
            a = row["against"]
            extra = mark(f"{a['ratio']:.2f}", a["pairs"] == 0) + f" ({a['pairs']})".ljust(len(f"x {peer}"))
        print(line_of(row["workload"], row[side], extra))


def print_text(r):
    m, sides = r["machine"], r["sides"]
    names = list(sides)
    print(f"{m['name']}; {m['kind']}; {m['threads']} threads")
    print(f"state {r['state']}; read {m['read_gb_s']:.1f} GB/s; {m['g_products_s']:.0f} G products/s"
          f" ({m['instruction']})")
    for name in names:
        s = sides[name]
        what = f"{s['quant']} on {s['isa']}" if "quant" in s else f"{s['peer']} {s['version']}, {s['settings']}"
        print(f"\n{name}: {r['shape']}, {what}, {s['step_bytes'] / 1e6:.1f} MB a step; open {s['open_ms']:.0f} ms,"
              f" first logits after {s['first_token_ms']:.0f} ms, then {s['anon_mib']:.0f} MiB own and"
              f" {s['file_mib']:.0f} MiB of mapped files resident")
        if s.get("proves_nothing"):
            print(f"{name}: {s['proves_nothing']}")
        print_side(r, name, names[1] if name == "aned" and len(names) > 1 else None)
    for k, v in (r["load"] or {}).items():
        print(f"{k} page cache: exec to opened {v['open_ms']:.0f} ms, to first logits {v['first_logits_ms']:.0f} ms"
              f" (most {v['first_logits_ms_max']:.0f}, n {v['n']})")
    print("\n* of the multipliers' rate, not of the bus.  ! no quiet sample: a hint, not a figure.")
    if len(names) > 1:
        print(f"x {names[1]}: above 1, aned is faster; pairs in brackets. Weights differ in format: see MB a step.")


# --- the run ---

def parse():
    a = argparse.ArgumentParser(prog="./dev bench cpu", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--shape", default="0.5b", choices=["demo", "gemma", "0.5b", "1.5b", "phi4-mini", *MIXTURES],
                   help="the model (default 0.5b); all but demo and gemma have random weights, Q8_0. Those with experts take 9 and "
                        "28 GB, twice")
    a.add_argument("--peer", choices=["llama.cpp", "ik", *QUANTS], help="take turns with it on the same file")
    a.add_argument("--peer-type", choices=["q8_0", "q4_0"], default="q8_0", help="of the peer's file, for a shape (default q8_0)")
    a.add_argument("--against", type=pathlib.Path, metavar="DIR", help="take turns with the build in this folder")
    a.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity")
                   else os.cpu_count(), help="of both sides (default: all cores)")
    a.add_argument("--rounds", type=int,
                   help="good rounds wanted (default 5, with --against 15; at most three times as many)")
    a.add_argument("--seconds", type=float, default=0.5, help="of one sample, three steps at least (default 0.5)")
    a.add_argument("--limit", type=float, default=1800, help="start no round after so many seconds (default 1800)")
    a.add_argument("--load", action="store_true", help="also: from exec to first logits, cold and warm page cache")
    a.add_argument("--only", help="workloads, comma-separated: 'decode 1,verify 4'")
    a.add_argument("--quant", choices=QUANTS, default="int8", help="of the converted weights (default int8)")
    a.add_argument("--isa", help="instruction set of our kernels (default: the best)")
    a.add_argument("--fresh", action="store_true", help="convert again")
    a.add_argument("--json", action="store_true", help="everything, with all samples")
    args = a.parse_args()
    if args.against and (args.peer or args.load):
        a.error("--against goes with neither --peer nor --load")
    if args.peer_type != "q8_0" and (args.shape in ("demo", "gemma") or args.peer not in ("llama.cpp", "ik")):
        a.error("--peer-type is for llama.cpp and ik, and for a shape: 0.5b, 1.5b, phi4-mini")
    args.rounds = args.rounds or (15 if args.against else 5)
    args.works = AGAINST if args.against else WORKLOADS
    if args.only:
        wanted = {x.strip() for x in args.only.split(",")} | (set() if args.against else {"decode 1"})
        args.works = [w for w in WORKLOADS if f"{w[0]} {w[1]}" in wanted]
        if len(args.works) != len(wanted):
            a.error("--only: " + ", ".join(f"{n} {k}" for n, k in WORKLOADS))
    return args


def our_bundle(args, src, quant):
    return cached_bundle(src, args.shape, 1024 if args.shape == "demo" else 2048, quant, args.fresh)


def our_argv(args, bundle, build=BIN):
    argv = [str(build / "tests" / "bench" / "bench_cpu"), str(bundle), "--threads", str(args.threads)]
    return argv + (["--isa", args.isa] if args.isa else [])


def peer_argv(args, src):
    if args.peer in QUANTS:
        return our_argv(args, our_bundle(args, src, args.peer))
    python = TOP / ".build" / f"venv-peer-{args.peer}" / "bin" / "python"
    native = next((TOP / ".build" / f"peer-{args.peer}").glob("build/**/libllama.so"), None)
    if native:  # ik's package looks at the one, peer.py at the other
        os.environ["IK_LLAMA_CPP_LIB_PATH" if args.peer == "ik" else "LLAMA_CPP_LIB_PATH"] = str(native)
    return [str(python), str(pathlib.Path(__file__).with_name("peer.py")), args.peer, str(peer_file(args, src)),
            "--threads", str(args.threads)]


def peer_file(args, src):
    return src if args.peer_type == "q8_0" else source(args.shape, args.peer_type)


def open_sides(args, src, bundle):
    logs = TOP / ".build" / "bench"
    sides = [Side("aned", our_argv(args, bundle), logs / "aned.log")]
    try:
        if args.peer:
            sides.append(Side(args.peer, peer_argv(args, src), logs / "peer.log"))
    except BaseException:
        sides[0].close()
        raise
    return sides


def against_build(args, bundle):
    """The two builds in turns; the exit code."""
    sides, logs = [], TOP / ".build" / "bench"
    try:
        for name, build in (("new", BIN), ("old", args.against)):
            sides.append(Side(name, our_argv(args, bundle, build), logs / f"{name}.log"))
        works = [w for w in args.works if w[1] + 64 <= sides[0].hello["context"]]
        got, rounds, _ = measure(sides, sides[0], works, args.rounds, args.seconds, time.monotonic() + args.limit)
    finally:
        for s in sides:
            s.close()
    rows = compared(got["old"], got["new"], works)
    return paired.show(f"{args.shape}, {args.threads} threads, {rounds} rounds", rows, args.json)


def main():
    args = parse()
    if args.against and not pathlib.Path(our_argv(args, "", args.against)[0]).exists():
        sys.exit(f"{our_argv(args, '', args.against)[0]} is not there: ninja -C {args.against} tests/bench/bench_cpu")
    if not pathlib.Path(our_argv(args, "")[0]).exists():
        sys.exit(f"{our_argv(args, '')[0]} is not there: `./dev bench cpu` builds it")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through the finally below
    src = source(args.shape)
    bundle = our_bundle(args, src, args.quant)
    if args.against:
        sys.exit(against_build(args, bundle))
    loads = load_times(our_argv(args, bundle), bundle, args.rounds) if args.load else None
    sides = open_sides(args, src, bundle)
    try:
        ours = sides[0]
        works = [w for w in args.works if w[1] + 64 <= ours.hello["context"]]
        place = ours.ask("place", 60)
        got, rounds, mul = measure(sides, ours, works, args.rounds, args.seconds, time.monotonic() + args.limit)
    finally:
        for s in sides:
            s.close()
    n_bytes = {s.name: s.hello["layer_bytes"] + s.hello["head_bytes"] for s in sides if "head_bytes" in s.hello}
    if args.shape in MIXTURES:
        n_bytes = {s.name: needed(args.shape, args.peer if s.name in QUANTS else args.quant) for s in sides if s.name in n_bytes}
    if args.peer and args.peer not in QUANTS:
        n_bytes[args.peer] = gguf_bytes(peer_file(args, src), args.shape)
        sides[1].hello["proves_nothing"] = proves(sides[1].hello)
    r = {"machine": {"name": machine(), "kind": kind(), "threads": args.threads, **place, **mul},
         "shape": args.shape, "load": loads, **results(args, sides, got, rounds, mul["g_products_s"], n_bytes),
         "sides": {s.name: {**s.hello, "step_bytes": n_bytes[s.name]} for s in sides}}
    if args.json:
        r["samples"] = {s: {f"{w[0]} {w[1]}": x for w, x in ws.items()} for s, ws in got.items()}
        print(json.dumps(r, indent=2))
    else:
        print_text(r)


if __name__ == "__main__":
    main()
