#!/usr/bin/env python3
"""Real clients against a real aned, and the table of what works: `run.py BUILD [NAME...]` (`./dev test clients [NAME...]`).

BUILD is .build; each client is installed below it, in an environment of its own. NAME: rows whose name has it. The table is
RESULTS.md beside this file; rows that were not run stay as they are; `structured`, `embeddings`: those of that file alone. Exit 1: something failed that no reason explains.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import embeddings  # noqa: E402
import structured  # noqa: E402
from conftest import BIN  # noqa: E402
from envs import Failed, environment, install, last_words, version_of  # noqa: E402
from results import COLUMNS, write_clients  # noqa: E402
from table import CLIENTS, EXPECTED  # noqa: E402
from world import World, until  # noqa: E402

CASE_S = 300


def command(client, folder):
    if client.script.endswith(".mjs"):
        for f in ("case.mjs", client.script):  # node looks for packages from where a script lies
            shutil.copy(HERE / "js" / f, folder)
        return ["node", str(folder / client.script)]
    python = sys.executable if client.npm else str(folder / "bin" / "python")
    return [python, str(HERE / "py" / client.script)]


def left(world, p, before):
    """The client has left, or is ended now, in the middle of an answer: nothing is computed for it any longer."""
    word = next((x.strip() for x in p.stdout if x.strip() in ("LEFT", "RUNS")), None)
    if word is None:
        raise Failed(last_words(p.stderr.read()))
    if word == "RUNS":
        try:
            until(lambda: world.running() > 0, 120)
        except AssertionError:
            raise Failed("no answer began") from None
        p.stdin.close()
    world.until_cancelled(before)


def run_case(client, case, world, folder):
    """Nothing, when it works."""
    with tempfile.TemporaryDirectory(prefix="aned-client-") as home:
        env = {**environment(client, world, folder, pathlib.Path(home)), "ANED_MODEL": world.model(client.scripts)}
        before = world.cancelled()
        p = subprocess.Popen([*command(client, folder), case], env=env, cwd=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
        try:
            if case == "cancel":
                left(world, p, before)
                return
            out, err = p.communicate(timeout=CASE_S)
        except subprocess.TimeoutExpired:
            raise Failed(f"no answer in {CASE_S} s") from None
        except AssertionError:
            raise Failed("the answer went on after the client had left") from None
        finally:
            p.kill()
            p.wait()
    check(client, case, out, err, p.returncode)


def check(client, case, out, err, code):
    found = [json.loads(x[7:]) for x in out.splitlines() if x.startswith("ANSWER ")]
    if not found or code != 0:
        raise Failed(last_words(err or out))
    want = client.answers.get(case, EXPECTED[case])
    text = found[-1]["text"] or ""
    if text != want if client.whole else want not in text:
        raise Failed(f"it said {text[-200:]!r}")
    if "stream" in case and case != "tools_stream" and found[-1]["pieces"] < 2:
        raise Failed("the stream came in one piece")
    if case.startswith("tools") and found[-1]["called"] != client.called:
        raise Failed(f"called: {found[-1]['called']}")


def version(client, folder):
    """name version, as they are installed."""
    if not client.packages:
        return subprocess.run([client.program, "--version"], capture_output=True, text=True).stdout.split(" (")[0]
    return ", ".join(version_of(p, folder, client.npm) for p in client.packages[:1 if len(client.packages) < 4 else None])


def why_not(client, case, world):
    """A reason that a case need not be tried with this aned."""
    if client.route not in world.routes:
        return f"{client.route} is not there"
    if (case.startswith("tools") or client.always_tools) and not world.tools:
        return "aned takes no tools yet"
    return client.known.get(case)


def run_client(client, world, build):
    """(row of the table, did something fail)"""
    results, reasons, bad = {}, {}, False
    try:
        folder = install(client, build)
        versions = version(client, folder)
    except Failed as e:
        return [client.name, " ".join(client.packages[:1]), client.route, *["?"] * 4, str(e)], True
    for case in client.cases:
        why = why_not(client, case, world)
        begin = time.monotonic()
        try:
            if not why:
                run_case(client, case, world, folder)
            results[case] = "✗" if why else "✓"
        except Failed as e:
            results[case], bad, why = "✗", True, str(e)
        if why:
            reasons.setdefault(why, []).append(case)
        print(f"  {client.name:32} {case:13} {results[case]} {time.monotonic() - begin:5.1f} s {why or ''}", flush=True)
    both = {results.get("tools"), results.get("tools_stream")} - {None}
    results["tools"] = "–" if not both else "✓" if both == {"✓"} else "✗"
    remarks = [client.note] if client.note else []
    remarks += [why if len(cases) == len(client.cases) else f"{', '.join(cases)}: {why}" for why, cases in reasons.items()]
    row = [client.name, versions, client.route, *[results.get(c, "–") for c in COLUMNS], "; ".join(remarks)]
    return row, bad


def run_clients(chosen, world, build):
    """Did something fail?"""
    rows, bad = [], False
    for client in chosen:
        row, failed = run_client(client, world, build)
        rows.append(row)
        bad = bad or failed
        write_clients(rows, [c.name for c in CLIENTS], world)
    return bad


def in_world(run, chosen, build, **what):
    """run(chosen, world, build) beside a daemon."""
    world = World(str(BIN / "daemon" / "aned"), str(BIN / "client" / "anectl"), **what)
    try:
        bad = run(chosen, world, build)
    finally:
        code = world.close()
    if code != 0:
        sys.exit(f"aned ended with {code}")
    return bad


def main():
    build = pathlib.Path(sys.argv[1]).absolute()
    names = [n.lower() for n in sys.argv[2:]]
    clients = [c for c in CLIENTS if not names or any(n in c.name.lower() for n in names)]
    features = [f for f in structured.FEATURES if not names or any(n in f"structured {f.client} {f.feature}".lower() for n in names)]
    embeds = [f for f in embeddings.FEATURES if not names or any(n in f"embeddings {f.client} {f.feature}".lower() for n in names)]
    if not clients and not features and not embeds:
        sys.exit(f"no client is called {names}; there are: {', '.join(c.name for c in CLIENTS)}")
    bad = bool(clients) and in_world(run_clients, clients, build)
    if features:
        bad = in_world(structured.run, features, build, aliases=structured.ALIASES, held=True) or bad
    if embeds:
        bad = in_world(embeddings.run, embeds, build) or bad
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
