#!/usr/bin/env python3
"""Does a row's result depend on anything but its sequence? `./dev bench sweep [--model M] [--quick]`

M: demo (default), demo-int4, demo-lut4, demo-fp16 (its other quantisations), stories (the shared test data's),
lfm2 (the shared tiny one: short convolutions), lfm2moe (the same: experts), sparse (it in sparse form), zaya, zaya-fp16 (random weights: queries and keys mixed along positions, one expert of six
or none), gemma (fetched), longrope (the shared tiny phi3 with lines on both sides of its original context), random (random weights in
small shapes); the last two need the package gguf. Every one is converted, then the
program tests/bench/sweep.c compares the bits of all logits: one token at a time against every chunk, mixture of
sequences, number of threads, instruction set, fork, cut and draft. Exit code 1: there was a difference.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).parents[2]
DIFFERENT = 1  # exit codes of the program

# model -> arguments of the program's runs in the full form: the whole product on short sequences, then pairs of
# levels on sequences of several blocks of keys (gemma's are longer than its window)
LONG = ["--cells", "200", "--longest", "320"]
FULL = {
    "demo": [["--positions", "24"], LONG],
    "demo-int4": [LONG],
    "demo-lut4": [LONG],
    "demo-fp16": [LONG],
    "stories": [["--positions", "24"], ["--cells", "200", "--longest", "120"]],
    "lfm2": [["--positions", "24"], LONG],
    "lfm2moe": [["--positions", "24"], LONG],
    "sparse": [["--positions", "24"], LONG],
    "zaya": [["--positions", "24"], LONG],
    "zaya-fp16": [LONG],
    "gemma": [["--cells", "60", "--positions", "8"],
              ["--cells", "60", "--positions", "12", "--longest", "600", "--best", "--seconds", "300"]],
    "longrope": [["--cells", "200", "--positions", "60", "--longest", "150"]],
    "random": [["--cells", "200", "--positions", "60", "--longest", "200"]],
}
ORIGINAL = 40  # of longrope: its lines have 20 to 60 tokens, and one more
SMALL = ["--cells", "1", "--positions", "14"]
SHAPES = ["tiny-llama", "tiny-qwen2", "tiny-gemma", "tiny-wide"]  # wide: sums of several blocks


def sources(model, tmp):
    """(name, GGUF or folder, quantisation, context) of each bundle of a model."""
    if model.startswith("demo"):
        quant = model.partition("-")[2] or "int8"
        return [(model, next(iter(sorted((TOP / "conf" / "demo").glob("*.gguf")))), quant, 1024)]
    shared = pathlib.Path(os.environ.get("ANED_SHARED", TOP.parent / "shared"))
    if model == "longrope":
        source = shared / "data/families/phi3/a/model.gguf"
        if not source.exists():
            sys.exit(f"sweep: no {source} here")
        sys.path.insert(0, str(TOP / "tests"))
        from gguf_copy import with_original
        return [(model, with_original(source, pathlib.Path(tmp) / "longrope.gguf", ORIGINAL), "int8", 256)]
    if model == "stories":
        return [(model, shared / "data/models/derived/stories260K.F32.gguf", "int8", 128)]
    if model in ("lfm2", "lfm2moe", "sparse"):
        family = model if model != "sparse" else "lfm2moe"
        return [(model, shared / f"data/families/{family}/a/model.gguf", "int8", 512)]
    if model.startswith("zaya"):
        import mkzaya
        return [(model, mkzaya.write(pathlib.Path(tmp) / "folder"), model.partition("-")[2] or "int8", 512)]
    if model == "gemma":
        return [(model, TOP / ".build/models/gemma-3-270m-q4_k_m.gguf", "int8", 1024)]
    made = []
    for shape in SHAPES:
        path = pathlib.Path(tmp) / f"{shape}.gguf"
        subprocess.run([sys.executable, str(TOP / "tests/bench/mkgguf.py"), shape, str(path)], check=True,
                       stdout=subprocess.DEVNULL)
        made.append((shape, path, "int8", 256))
    return made


def convert(aned, gguf, quant, context, bundle, *form):
    if not gguf.exists():
        sys.exit(f"sweep: no {gguf.name} here")
    r = subprocess.run([str(aned), "convert", str(gguf), "--out", str(bundle), "--quant", quant, "--context", str(context),
                        "--accept", "quality,exactness", *form],
                       capture_output=True, text=True)
    if r.returncode != 0:
        sys.exit(f"sweep: {gguf.name} is not converted: {r.stderr}")


def sweep(program, bundle, args):
    sys.stdout.flush()
    r = subprocess.run([str(program), str(bundle), *args], stdout=subprocess.PIPE, text=True)
    print(r.stdout, end="", flush=True)
    return r


def run_model(build, model, runs, seed):
    """The worst exit code."""
    worst = 0
    with tempfile.TemporaryDirectory() as tmp:
        for name, gguf, quant, context in sources(model, tmp):
            bundle = pathlib.Path(tmp) / name
            form = ("--experts", "sparse") if model == "sparse" else ()
            convert(build / "daemon/aned", gguf, quant, context, bundle, *form)
            for args in runs:
                print(f"{name}, {quant}: {' '.join(args)}")
                worst = max(worst, sweep(build / "tests/bench/sweep", bundle, [*args, "--seed", seed]).returncode)
    return worst


def run_test(build, cells):
    """The quick form on the demo model; and every wrong variant must be found."""
    bad = []
    with tempfile.TemporaryDirectory() as tmp:
        bundle = pathlib.Path(tmp) / "demo"
        convert(build / "daemon/aned", *sources("demo", tmp)[0][1:], bundle)
        if sweep(build / "tests/bench/sweep", bundle, ["--cells", cells]).returncode != 0:
            bad.append("a difference, or a failure")
        for program in sorted((build / "tests/bench").glob("sweep_mutant_*")):
            if program.is_dir():
                continue
            print(f"\n{program.name}: must be found")
            r = sweep(program, bundle, SMALL)
            if r.returncode != DIFFERENT or "first difference" not in r.stdout:
                bad.append(f"{program.name} was not found")
        simulated = build / "tests/bench/sweep_simulated"
        if simulated.exists():
            print("\nAVX-512, simulated:")
            if sweep(simulated, bundle, SMALL).returncode != 0:
                bad.append("simulated AVX-512 differs")
    for b in bad:
        print(f"sweep: {b}", file=sys.stderr)
    return 1 if bad else 0


def main():
    a = argparse.ArgumentParser(prog="./dev bench sweep", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--model", default="demo", choices=FULL)
    a.add_argument("--quick", action="store_true", help="100 cells of short sequences")
    a.add_argument("--seed", default="1")
    a.add_argument("--bin", type=pathlib.Path, default=os.environ.get("ANED_BIN", TOP / ".build/release"),
                   help=argparse.SUPPRESS)
    a.add_argument("--test", metavar="CELLS", help=argparse.SUPPRESS)
    args = a.parse_args()
    build = pathlib.Path(args.bin)
    if args.test:
        return run_test(build, args.test)
    return run_model(build, args.model, [["--cells", "100"]] if args.quick else FULL[args.model], args.seed)


if __name__ == "__main__":
    sys.exit(main())
