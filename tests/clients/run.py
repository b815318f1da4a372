#!/usr/bin/env python3
"""Real clients against a real aned, and the table of what works: `run.py BUILD [NAME...]` (`./dev test clients [NAME...]`).

BUILD is .build; each client is installed below it, in an environment of its own. NAME: rows whose name has it. The table is
RESULTS.md beside this file; rows that were not run stay as they are. Exit 1: something failed that no reason explains.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
TOP = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent)]

from conftest import BIN  # noqa: E402
from table import CLIENTS, EXPECTED  # noqa: E402
from world import World, until  # noqa: E402

COLUMNS = ("chat", "stream", "tools", "cancel")
HEAD = "| client | versions | dialect | chat | stream | tools | cancel | remarks |"
CASE_S = 300


class Failed(Exception):
    pass


def last_words(text):
    """The line of an output that says most of what went wrong."""
    lines = [x.strip() for x in text.splitlines() if x.strip()]
    telling = [x for x in lines if "rror" in x or "refused" in x] or lines
    return telling[-1][-300:] if telling else "no word"


def install(client, build):
    """The folder of its environment."""
    folder = build / "clients" / (("npm-" if client.npm else "py-") + client.env)
    stamp = folder / ".packages"
    if stamp.exists() and stamp.read_text() == " ".join(client.packages):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    if client.npm:
        steps = [["npm", "install", "--prefix", folder, "--no-audit", "--no-fund", "--loglevel=error", *client.packages]]
    else:
        steps = [[sys.executable, "-m", "venv", folder],
                 *([[folder / "bin" / "pip", "install", "-q", "--disable-pip-version-check", *client.packages]] if client.packages else [])]
    for step in steps:
        r = subprocess.run([str(x) for x in step], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if r.returncode != 0:
            raise Failed("not installed: " + last_words(r.stderr or r.stdout))
    stamp.write_text(" ".join(client.packages))
    return folder


def command(client, folder):
    if client.script.endswith(".mjs"):
        for f in ("case.mjs", client.script):  # node looks for packages from where a script lies
            shutil.copy(HERE / "js" / f, folder)
        return ["node", str(folder / client.script)]
    python = sys.executable if client.npm else str(folder / "bin" / "python")
    return [python, str(HERE / "py" / client.script)]


def environment(client, world, folder, home):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "ANTHROPIC_", "OLLAMA_", "CLAUDE", "ANED_"))}
    path = f"{folder / 'bin'}:{env['PATH']}"
    return {**env, "PATH": path, "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1", "ANED_BASE": f"http://127.0.0.1:{world.port}",
            "ANED_KEY": world.key, "ANED_MODEL": world.model(client.scripts), "ANED_KIND": client.kind, "ANED_ENV": str(folder),
            "ANED_PROGRAM": client.program, "NO_PROXY": "*", "no_proxy": "*", "TERM": "dumb"}


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
        env = environment(client, world, folder, pathlib.Path(home))
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
    found = []
    for p in client.packages:
        name = p.replace("==", "@")
        name = name[0] + name[1:].split("@")[0].split("[")[0]
        if client.npm:
            found.append(f"{name} {json.loads((folder / 'node_modules' / name / 'package.json').read_text())['version']}")
        else:
            r = subprocess.run([folder / "bin" / "pip", "show", name], capture_output=True, text=True)
            found.append(f"{name} {r.stdout.split('Version: ')[-1].split()[0] if 'Version: ' in r.stdout else '?'}")
    return ", ".join(found[:1] if len(found) < 4 else found)


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


def cell(text):
    return " ".join(str(text).replace("|", "\\|").split())


def write_table(path, rows, world):
    kept = {}
    if path.exists():
        for line in path.read_text().splitlines():
            cells = [x.strip() for x in line.replace("\\|", "\0").strip("|").split("|")]
            if len(cells) == 8 and cells[0] in {c.name for c in CLIENTS}:
                kept[cells[0]] = [c.replace("\0", "|") for c in cells]
    kept.update({r[0]: [cell(x).replace("\\|", "|") for x in r] for r in rows})
    ordered = [kept[c.name] for c in CLIENTS if c.name in kept]
    well = sum("✗" not in r and "?" not in r[3:7] for r in ordered)
    port = "its own port, with its key" if world.own_port else "a byte relay, because this aned listens on no port"
    text = f"""# Real clients against aned

Made by `./dev test clients` (tests/clients/run.py); each client unmodified, in an environment of its own, through {port}.
{well} of {len(ordered)} work in all that they can. ✓ works · ✗ does not · – the client has no such thing.

The models are scripted (tests/scripted.py): real bundles on the CPU backend whose weights make them say a text, call a tool when there are
tools, and answer after its result. *tools*: the call reaches the client, its function or command runs, and the answer behind its result
arrives. *cancel*: in the middle of an answer without an end the client leaves, or is interrupted, and aned computes no longer.

{HEAD}
|{'---|' * 8}
"""
    text += "\n".join("| " + " | ".join(cell(x) for x in r) + " |" for r in ordered) + "\n"
    path.write_text(text)
    print(f"{well} of {len(ordered)} clients work in all that they can: {path.relative_to(TOP)}")


def main():
    build = pathlib.Path(sys.argv[1])
    names = sys.argv[2:]
    chosen = [c for c in CLIENTS if not names or any(n.lower() in c.name.lower() for n in names)]
    if not chosen:
        sys.exit(f"no client is called {names}; there are: {', '.join(c.name for c in CLIENTS)}")
    world = World(str(BIN / "daemon" / "aned"), str(BIN / "client" / "anectl"))
    rows, bad = [], False
    try:
        for client in chosen:
            row, failed = run_client(client, world, build)
            rows.append(row)
            bad = bad or failed
            write_table(HERE / "RESULTS.md", rows, world)
    finally:
        code = world.close()
    if code != 0:
        sys.exit(f"aned ended with {code}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
