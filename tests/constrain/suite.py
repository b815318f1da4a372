#!/usr/bin/env python3
"""Are constrained answers right? `./dev test constrain [--model demo|gemma] [--only PART] [--name TEXT] ...`

grammar   random texts of each schema's grammar are valid, and no instance that the public suite calls invalid matches it
answers   each schema through the daemon, streamed: greedy; at temperature 1, seeded; the same with what ends strings and
          brackets made likelier; at temperature 2. Every answer that is whole is valid; one that max_tokens cut is the beginning
          of a valid one: the grammar, asked for a short end of it, gives one that is valid. Dialects take turns.
refused   each schema that is refused: 400 with the word, nothing generated
same      the same bytes with drafts, beside others, after a restart and a lost engine (same.py)

Valid: by Python's jsonschema and the schema's own $schema, formats that aned writes checked. Exit code 1: something is wrong.
"""
import argparse
import collections
import concurrent.futures
import json
import pathlib
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import asking  # noqa: E402
import judge  # noqa: E402
import same  # noqa: E402
import schemas  # noqa: E402
from conftest import BIN, SHARED, TOP, Daemon, metric  # noqa: E402

WALKS = 200  # random texts of a grammar
AT_ONCE = 4  # streams
SUITES = (("draft 7", pathlib.Path("/usr/share/json-schema-test-suite/tests/draft7"), schemas.D7),
          ("draft 2020-12", TOP / ".build/json-schema-test-suite/json/tests/draft2020-12", schemas.D2020))
SOURCES = {"demo": TOP / "conf/demo/aned-demo.gguf", "gemma": TOP / ".build/models/gemma-3-270m-q4_k_m.gguf"}

# What this daemon does not keep, and refuses: words of the suites, and of schemas.py by name.
NOT_KEPT = {"$ref", "format", "unevaluatedProperties", "unevaluatedItems", "contains", "minContains", "maxContains", "if", "then",
            "else", "not", "patternProperties", "oneOf", "false", "multipleOf", "uniqueItems", "dependentSchemas",
            "dependentRequired", "dependencies", "minProperties", "maxProperties", "$dynamicRef", "$dynamicAnchor", "propertyNames",
            "const", "minimum", "exclusiveMinimum", "pattern", "additionalItems", "items",
            "tilda~field"}  # a word of nobody's
OURS_REFUSED = {'number {"minimum": 0.5, "maximum": 2.5}': "minimum", 'number {"minimum": -0.25}': "minimum",
                'number {"multipleOf": 5}': "multipleOf"}
NUL = "\\u0000 in a string"  # such a request is refused before its schema is looked at


class Case:
    def __init__(self, name, schema, draft=schemas.D2020, instances=(), own=True):
        self.name, self.schema, self.draft, self.instances, self.own = name, schema, draft, instances, own
        self.refused = None  # the message


def cases():
    """All schemas; and what is not here, by reason."""
    out = [Case(n, s) for n, s in schemas.ours().items()]
    missing = []
    if SHARED.is_dir():
        out += [Case(n, s) for n, s in schemas.of_clients(SHARED).items()]
    else:
        missing.append("requests of real clients: the shared test data is not there")
    for draft, folder, uri in SUITES:
        if not folder.is_dir():
            missing.append(f"the public suite, {draft}: not installed")
            continue
        out += [Case(n, s, uri, i, own=False) for n, (s, i) in schemas.of_suite(folder, draft).items()]
    return out, missing


class Report:
    def __init__(self):
        self.wrong = 0

    def bad(self, case, what, text=""):
        self.wrong += 1
        print(f"WRONG {case.name}: {what}\n      {json.dumps(case.schema)[:400]}\n      {text[:400]!r}")


# --- the grammars alone ---

def check_word(case, report):
    """A schema is refused for a word that it has, and that is known to be not kept."""
    word = judge.refused_for(case.refused)
    if case.refused.startswith(NUL):
        return NUL
    known = word in NOT_KEPT if not case.own else OURS_REFUSED.get(case.name) == word
    if not known or word not in json.dumps(case.schema, ensure_ascii=False):
        report.bad(case, f"refused: {case.refused}")
    return word


def grammars(todo, walker, report):
    words, texts, taken = collections.Counter(), 0, collections.Counter()
    for case in todo:
        got = walker.ask(case.schema, walks=WALKS, seed=len(case.name),
                         whole=[json.dumps(v, ensure_ascii=False) for v, _ in case.instances])
        case.refused = got.get("error")
        if case.refused is not None:
            words[check_word(case, report)] += 1
            continue
        if case.name in OURS_REFUSED:
            report.bad(case, f"is not refused for {OURS_REFUSED[case.name]}")
        for text in got["walks"]:
            texts += 1
            why = judge.why_wrong(case.schema, text, case.draft)
            if why:
                report.bad(case, f"a text of the grammar: {why}", text)
                break
        for (value, valid), match in zip(case.instances, got["whole"]):
            taken[valid, match] += 1
            if match and not valid:
                report.bad(case, "the grammar takes an instance that is not valid", json.dumps(value))
    good = sum(c.refused is None for c in todo)
    print(f"grammar: {good} schemas, {texts} random texts; instances: {taken[False, False] + taken[False, True]} invalid, "
          f"{taken[False, True]} of them match; {taken[True, True]} of {taken[True, True] + taken[True, False]} valid ones match")
    print(f"         {len(todo) - good} are refused: " + ", ".join(f"{w} {n}" for w, n in words.most_common()))


# --- through the daemon ---

def runs_of(i, dialects, bias):
    """(how, dialect, fields) of the answers of schema i."""
    takes_bias = [x for x in dialects if x in ("chat", "completions", "llama.cpp")]
    biased = takes_bias[i % len(takes_bias)]
    yield "greedy", dialects[i % len(dialects)], {"temperature": 0}
    yield "warm", dialects[(i + 3) % len(dialects)], {"temperature": 1, "seed": 1000 + i}
    yield "ending", biased, {"temperature": 1, "seed": 2000 + i, "logit_bias": bias}
    yield "hot", biased, {"temperature": 2, "seed": 3000 + i, "logit_bias": bias, "top_p": 1, "top_k": 0, "min_p": 0}


def check_answer(case, text, end, walker, lock, report):
    """stop, length (what was cut begins a valid text), unended (it begins one of the grammar, whose end is far), or wrong."""
    whole = text
    if end == "stop":
        why = judge.why_wrong(case.schema, text, case.draft)
    elif end != "length":
        why = f"the stream ends without an end: {end}"
    else:
        with lock:
            whole = walker.ask(case.schema, begun=[text])["ended"][0]
        if whole is True:
            return "unended"
        why = "cut, and no beginning of the grammar" if whole is None else judge.why_wrong(case.schema, whole, case.draft)
    if why:
        report.bad(case, why, text if end == "stop" else f"{text} ... {whole}")
        return "wrong"
    return end


def answers(d, model, todo, tokens, walker, report):
    bias = asking.closers(d, model)
    dialects = asking.dialects(d, model)
    lock = threading.Lock()
    counts = collections.Counter()

    def one(case, how, dialect, fields):
        if not case.schema or case.schema is True:
            dialect = "chat"  # the fields of the others take {} for no schema at all
        if dialect not in asking.SEEDED:
            fields = {"temperature": fields["temperature"]}
        text, end = asking.ask(d, dialect, case.schema, model, max_tokens=tokens, **fields)
        counts[how, check_answer(case, text, end, walker, lock, report)] += 1
        counts[dialect] += 1

    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        jobs = {pool.submit(one, c, *run): c for i, c in enumerate(todo) for run in runs_of(i, dialects, bias)}
        for job in concurrent.futures.as_completed(jobs):
            if job.exception() is not None:
                report.bad(jobs[job], f"{type(job.exception()).__name__} {job.exception()}")
    for how in ("greedy", "warm", "ending", "hot"):
        print(f"answers ({model}, {how}): {counts[how, 'stop']} whole and valid, {counts[how, 'length']} cut that begin a valid one, "
              f"{counts[how, 'unended']} cut whose end is too far to find, {counts[how, 'wrong']} wrong")
    print(f"         {len(todo)} schemas; by dialect: " + ", ".join(f"{x} {counts[x]}" for x in dialects) +
          f"; {time.monotonic() - began:.0f} s")


def refused(d, model, todo, report):
    steps = metric(d, "steps_total")
    for i, case in enumerate(todo):
        dialect = list(asking.DIALECTS)[i % 6] if isinstance(case.schema, dict) and case.schema else "chat"
        try:
            asking.ask(d, dialect, case.schema, model, max_tokens=4)
            report.bad(case, f"is not refused ({dialect})")
        except asking.Refused as e:
            want = NUL if case.refused.startswith(NUL) else case.refused
            if e.status != 400 or want not in e.message:
                report.bad(case, f"{dialect}: {e.status} {e.message}, not {want}")
    if metric(d, "steps_total") != steps:
        report.bad(todo[0], "something was generated for a schema that is refused")
    print(f"refused: {len(todo)} schemas, each 400 with the word, before a step of the engine")


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--model", default="demo", choices=list(SOURCES))
    a.add_argument("--only", choices=["grammar", "answers", "refused", "same"])
    a.add_argument("--name", default="", help="schemas whose name has this")
    a.add_argument("--every", type=int, default=1, help="of the schemas every n-th")
    a.add_argument("--tokens", type=int, default=400)
    args = a.parse_args()
    if not SOURCES[args.model].exists():
        sys.exit(f"constrain: {SOURCES[args.model].name} is not here")
    todo, missing = cases()
    todo = [c for c in todo if args.name in c.name][::args.every]
    report = Report()
    walker = judge.Walker(BIN / "tests/constrain/walk")
    for reason in missing:
        print(f"skipped: {reason}")
    wants = [args.only] if args.only else ["grammar", "answers", "refused", "same"]
    grammars(todo, walker, report)
    good = [c for c in todo if c.refused is None]
    d = Daemon(str(BIN / "daemon" / "aned"))
    try:
        if wants != ["grammar"]:
            job = d.convert(SOURCES[args.model], "m", context=1024)
            assert job["state"] == "done", job
        if "answers" in wants:
            chats = "chat" in asking.dialects(d, "m")
            answers(d, "m", [c for c in good if chats or (c.schema and c.schema is not True)], args.tokens, walker, report)
        if "refused" in wants:
            refused(d, "m", [c for c in todo if c.refused is not None], report)
        if "same" in wants:
            same.run(d, "m", good, report)
    finally:
        d.close()
        walker.close()
    print("constrain: " + (f"{report.wrong} wrong" if report.wrong else "nothing wrong"))
    sys.exit(report.wrong > 0)


if __name__ == "__main__":
    main()
