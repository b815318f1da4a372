#!/usr/bin/env python3
"""The first turns of Claude Code, Codex and opencode on gemma, at their real length.

    ./dev bench agents [--only claude,codex,opencode] [--json]

gemma-3-270m is converted (int8, profile cpu, context 32768) with a chat template that shows tools (gemma_tools.jinja), for
its file has none. Each agent's largest first turn comes from ../shared/data/clients, where texts were shortened: each is made
as long as it was with plain English words, and the first system text longer still, up to the tokens that the agent sent
(--real-tokens: what they were is in ../shared/facts/clients.md). Fields, tools, schemas and their order are the agent's own.

Before each agent the daemon is started anew without what it had saved, so that nothing of another is warm. Printed for each turn: prompt tokens, those of them
that were warm, the seconds to the first event that has something of the answer, the CPU time of the engine for the whole
answer (of 16 tokens at most: on a busy machine it says more than the seconds), and what the daemon and the engine hold then
(VmRSS and RssAnon in MiB, two seconds later, because a state is written meanwhile).

    cold       the first request of the agent
    warm       the same once more
    second     its answer and another word of the user's behind it
    restarted  the first one again, by a daemon that was stopped and started: its state comes from the disk
    second'    the second one again

The daemon has its own defaults. Without ../shared: exit code 2.
"""
import argparse
import copy
import json
import pathlib
import re
import shutil
import sys
import time

import bench_latency
import overhead
from bench import BIN, Daemon, machine, source

HERE = pathlib.Path(__file__).parent
CLIENTS = HERE.parents[2] / "shared" / "data" / "clients"
CONTEXT = 32768
COUNTING = 256  # positions of a model that refuses every one of these prompts, and says how long it is
LEFT_OUT = re.compile(r" ?\u2026 ?\[(\d+) characters left out\]\u2026 ?")
ANSWER = 16  # tokens
PATIENCE_S = 3600


def prose(seed, n):
    """n characters of sentences, different for every seed."""
    words = bench_latency.text(seed, n // 3 + 16).split()
    out, at = [], 0
    while words[at:at + 9]:
        some = words[at:at + 6 + (seed + at) % 9]
        out.append(" ".join(some).capitalize() + ".")
        at += len(some)
    return (" ".join(out) + " ")[:n].ljust(n, ".")


class Lengthener:
    """Texts as long as they were; each gap gets another prose."""

    def __init__(self):
        self.gaps = 0

    def text(self, s):
        def fill(m):
            self.gaps += 1
            return prose(self.gaps, int(m[1]))
        return LEFT_OUT.sub(fill, s)

    def all(self, x):
        if isinstance(x, str):
            return self.text(x)
        if isinstance(x, list):
            return [self.all(v) for v in x]
        return {k: self.all(v) for k, v in x.items()} if isinstance(x, dict) else x


def real_length(body):
    text = json.dumps(body, ensure_ascii=False)
    return len(text) + sum(int(n) for n in LEFT_OUT.findall(text))


class Dialect:
    """What an agent's requests and the events of the answer look like."""

    def __init__(self, path, items, limit):
        self.path, self.items, self.limit = path, items, limit

    def answered(self, body):
        """An answer of the model's is in it: not a first turn."""
        return any(m.get("role") == "assistant" or m.get("type") == "function_call" for m in body[self.items])

    def request(self, body):
        return copy.deepcopy(body) | {"model": "m", self.limit: ANSWER, "stream": True}

    def longer_system(self, body, words):
        body = copy.deepcopy(body)
        body[self.items][0]["content"] = self.behind(body[self.items][0]["content"], words)
        return body

    @staticmethod
    def behind(content, words):
        if isinstance(content, str):
            return content + words
        return [*content[:-1], content[-1] | {"text": content[-1]["text"] + words}]

    def second(self, body, answer):
        new = [{"role": "assistant", "content": answer}, {"role": "user", "content": "Thanks. And what is in them?"}]
        return body | {self.items: body[self.items] + new}

    def text(self, event):
        """Text or call that the event brings, or None."""
        for c in event.get("choices", []):
            delta = c.get("delta", {})
            if delta.get("content") or delta.get("tool_calls"):
                return delta.get("content") or ""
        return None

    def usage(self, event):
        """(prompt tokens, warm ones), or None."""
        u = event.get("usage")
        return u and (u["prompt_tokens"], (u.get("prompt_tokens_details") or {}).get("cached_tokens", 0))


class Anthropic(Dialect):
    def longer_system(self, body, words):
        return copy.deepcopy(body) | {"system": self.behind(body["system"], words)}

    def text(self, event):
        if event.get("type") == "content_block_start" and event["content_block"]["type"] == "tool_use":
            return ""
        return event["delta"].get("text", "") if event.get("type") == "content_block_delta" else None

    def usage(self, event):
        u = event["message"]["usage"] if event.get("type") == "message_start" else None
        warm = u and (u.get("cache_read_input_tokens") or 0)
        return u and (u["input_tokens"] + warm + (u.get("cache_creation_input_tokens") or 0), warm)


class Responses(Dialect):
    def text(self, event):
        return event["delta"] if event.get("type", "").endswith(".delta") else None

    def usage(self, event):
        u = (event.get("response") or {}).get("usage")
        return u and (u["input_tokens"], u["input_tokens_details"]["cached_tokens"])


# files, how it talks, the tokens that it really sent (facts/clients.md, 1.9)
AGENTS = {
    "claude": ("claude-code*.json", Anthropic("/v1/messages", "messages", "max_tokens"), 22700),
    "codex": ("codex*.json", Responses("/v1/responses", "input", "max_output_tokens"), 8600),
    "opencode": ("opencode*.json", Dialect("/v1/chat/completions", "messages", "max_tokens"), 7300),
}


def first_turn(pattern, dialect):
    """(the file's name, the body) of the largest request before which nothing was answered."""
    found = []
    for f in sorted(CLIENTS.glob(pattern)):
        r = json.loads(f.read_text())
        if r["path"].split("?")[0] == dialect.path and r["body"].get("tools") and not dialect.answered(r["body"]):
            found.append((real_length(r["body"]), f.name, r["body"]))
    _, name, body = max(found, key=lambda x: x[0])
    return name, body


def count(d, dialect, body):
    """The prompt's tokens, as the model with too small a context says."""
    with d.http() as c:
        r = c.post(dialect.path, json=body | {"model": "count"})
    m = re.search(r"(\d+) tokens in the prompt", r.text)
    if r.status_code != 400 or not m:
        sys.exit(f"{dialect.path}: {r.status_code} {r.text[:500]}")
    return int(m[1])


def at_length(d, dialect, body, real):
    """The request with as many tokens as the agent sent, or its own if those are more; (it, its tokens before, after)."""
    before = have = count(d, dialect, body)
    size, best = 0, body
    for _ in range(6):
        if abs(real - have) <= 8 or (size == 0 and have > real):
            break
        size = max(0, size + int((real - have) * (5.5 if size == 0 else size / max(1, have - before))))
        best = dialect.longer_system(body, "\n\n" + prose(999, size))
        have = count(d, dialect, best)
    return best, before, have


def ask(d, dialect, body):
    """{"seconds", "prompt", "warm", "text"} of one streamed answer."""
    first, text, usage = None, "", None
    with d.http(PATIENCE_S) as c:
        c.get("/health")
        began = time.monotonic()
        with c.stream("POST", dialect.path, json=body) as r:
            if r.status_code != 200:
                sys.exit(f"{dialect.path}: {r.status_code} {r.read().decode()[:500]}")
            for line in r.iter_lines():
                if not line.startswith("data: {"):
                    continue
                event = json.loads(line[6:])
                got = dialect.text(event)
                if got is not None:
                    first = first or time.monotonic() - began
                    text += got
                usage = dialect.usage(event) or usage
        end = time.monotonic() - began
    if usage is None:
        sys.exit(f"{dialect.path}: the stream said no usage")
    # An answer that ends at once brings no text: then its end is what came first.
    return {"seconds": round(first or end, 3), "prompt": usage[0], "warm": usage[1], "text": text}


def memory(pid):
    """(VmRSS, RssAnon) in MiB."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return tuple(round(int(re.search(rf"{k}:\s*(\d+)", text)[1]) / 1024, 1) for k in ("VmRSS", "RssAnon"))


def cpu_s(pid):
    """CPU time that a process has had, all its threads."""
    return overhead.cpu_us(pid) / 1e6


def engine(d):
    with d.http() as c:
        return c.get("/aned/v1/models/m").json()["engine"]["pid"]


def load(d):
    with d.http() as c:
        r = c.post("/aned/v1/models/m/load")
        assert r.status_code in (200, 202), r.text
        while c.get("/aned/v1/models/m").json()["state"] != "loaded":
            time.sleep(0.01)


def convert(d, src):
    for spec in ({"source": str(src), "name": "m", "context": CONTEXT, "chat_template": str(HERE / "gemma_tools.jinja")},
                 {"reshard": "m", "name": "count", "context": COUNTING}):
        job = post_job(d, profile="cpu", **spec)
        assert job["state"] == "done", job


def start_cold(d):
    d.stop()
    shutil.rmtree(d.home / "cache" / "states", ignore_errors=True)
    d.start()


def run(d, name, tell):
    pattern, dialect, real = AGENTS[name]
    file, body = first_turn(pattern, dialect)
    rows = []

    def turn(what, request):
        tell(f"{name}: {what}")
        pid = engine(d)
        before = cpu_s(pid)
        r = ask(d, dialect, request)
        r["engine_cpu_s"] = round(cpu_s(pid) - before, 2)
        time.sleep(2)
        r["daemon_mib"], r["engine_mib"] = memory(d.proc.pid), memory(engine(d))
        rows.append({"turn": what, **r})
        return r

    full, before, after = at_length(d, dialect, dialect.request(Lengthener().all(body)), real)
    start_cold(d)
    load(d)
    loaded = {"daemon_mib": memory(d.proc.pid), "engine_mib": memory(engine(d))}
    cold = turn("cold", full)
    turn("warm", full)
    then = dialect.second(full, cold["text"].strip() or "I see.")
    turn("second", then)
    d.stop()
    d.start()
    load(d)
    turn("restarted", full)
    turn("second'", then)
    return {"agent": name, "file": file, "path": dialect.path, "tools": len(body["tools"]), "sent_tokens": real,
            "lengthened_tokens": before, "tokens": after, "loaded": loaded, "turns": rows}


def post_job(d, **spec):
    with d.http() as c:
        r = c.post("/aned/v1/jobs", json=spec)
        assert r.status_code == 202, r.text
        while True:
            job = c.get(f"/aned/v1/jobs/{r.json()['id']}").json()
            if job["state"] in ("done", "failed", "cancelled", "interrupted"):
                return job
            time.sleep(0.1)


def show(out):
    print(out["machine"])
    for a in out["agents"]:
        print(f"\n{a['agent']}: {a['path']}, {a['tools']} tools ({a['file']}); {a['tokens']} tokens, {a['sent_tokens']} were sent, "
              f"{a['lengthened_tokens']} without the words put to the system text")
        print(f"{'':10} {'prompt':>7} {'warm':>7} {'first token s':>14} {'engine CPU s':>13} {'daemon RSS':>11} {'anon':>7} {'engine RSS':>11} {'anon':>7}")
        blank = {"turn": "loaded", "prompt": "", "warm": "", "seconds": "", "engine_cpu_s": "", **a["loaded"]}
        for r in [blank, *a["turns"]]:
            print(f"{r['turn']:10} {r['prompt']:>7} {r['warm']:>7} {r['seconds']:>14} {r['engine_cpu_s']:>13} {r['daemon_mib'][0]:>11} "
                  f"{r['daemon_mib'][1]:>7} {r['engine_mib'][0]:>11} {r['engine_mib'][1]:>7}")


def main():
    a = argparse.ArgumentParser(prog="./dev bench agents", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--only", default=",".join(AGENTS), help="agents, with commas between (default: all)")
    a.add_argument("--json", action="store_true")
    args = a.parse_args()
    names = args.only.split(",")
    if not set(names) <= set(AGENTS):
        a.error(f"--only: of {', '.join(AGENTS)}")
    if not CLIENTS.is_dir():
        print("the recorded requests are not there: ../shared/data/clients", file=sys.stderr)
        sys.exit(2)
    src = source("gemma")

    def tell(text):
        print(f"\r{text:40}", end="", file=sys.stderr, flush=True)
    out = {"machine": machine(), "model": "gemma-3-270m, int8", "context": CONTEXT}
    d = Daemon(str(BIN / "daemon" / "aned"))
    try:
        tell("converting")
        convert(d, src)
        out["agents"] = [run(d, n, tell) for n in names]
    finally:
        d.close()
    tell("")
    print("\r", end="", file=sys.stderr)
    if args.json:
        print(json.dumps(out, indent=2))
    else:
        show(out)


if __name__ == "__main__":
    main()
