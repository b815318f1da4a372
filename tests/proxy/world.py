"""Two daemons with the demo model and one key, configurations out of launchd/proxy.md, and conversations through a proxy.

A block of the document is taken as it stands; only its ports are put into others, so that suites may run beside each other."""
import collections
import concurrent.futures
import contextlib
import json
import re
import shutil
import socket
import threading
import time

import httpx
import pytest

from conftest import SLOW_S, TOP, Daemon
from fake import TOOLS, make_home

DOC = TOP / "launchd" / "proxy.md"
TURNS = 3
CONVERSATIONS = 200
WORKERS = 4  # conversations at the same time
# So long that no other conversation takes its sequence in place (rule 4 of daemon/sched/sched.h: one that loses few tokens is).
ABOUT = "This is conversation {0}, number {0} of many. Its notes say: " + "; ".join(f"note {{0}}.{n}" for n in range(12)) + ". "
QUESTIONS = ["What is aned?", "How do I convert a model?", "Where does it listen?"]


def block(language, n=0):
    """The n-th block of the document that is written in that language."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", DOC.read_text(), re.S | re.M)
    assert len(found) > n, f"{DOC.name} has no block {n} of {language}"
    return found[n]


def put(text, changes):
    """Each of the words is in the text, and is replaced."""
    for old, new in changes.items():
        assert old in text, f"the document does not say {old!r} any longer"
        text = text.replace(old, new)
    return text


def free_ports(n):
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(socket.socket()) for _ in range(n)]
        for s in socks:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in socks]


class Member(Daemon):
    """A daemon with a port and the key that all have."""

    def __init__(self, aned, home, source, name, port, key=None, conf=""):
        shutil.copytree(source, home)
        (home / "aned.conf").write_text(f"[http]\nlisten = 127.0.0.1:{port}\n[engine]\nthreads = 1\npreload = demo\n{conf}")
        if key is not None:
            (home / "http.key").write_text(key + "\n")
            (home / "http.key").chmod(0o600)
        self.name, self.port = name, port
        super().__init__(aned, home=home)
        self.key = (home / "http.key").read_text().strip()

    def again(self):
        self.start()


def pair(aned, source, folder, conf=""):
    pa, pb = free_ports(2)
    a = Member(aned, folder / "a", source, "a", pa, conf=conf)
    try:
        return a, Member(aned, folder / "b", source, "b", pb, key=a.key, conf=conf)
    except BaseException:
        a.close()
        raise


# --- conversations ---

Turn = collections.namedtuple("Turn", "server prompt cached text")


class Lost(Exception):
    """A request that has no whole answer. begun: something of one had come; server: whose."""

    def __init__(self, server, begun, why):
        super().__init__(f"{why} (begun: {begun}, server: {server})")
        self.server, self.begun = server, begun


class Conversation:
    """Turn by turn; each question comes with all that was said before, as clients send it. `kind` is how the proxy may know
    that its turns belong together."""
    KINDS = ("header", "field", "system", "first")

    def __init__(self, client, i, kind, stream=None):
        self.client, self.i, self.kind, self.turns = client, i, kind, []
        self.headers, self.more, self.messages = {}, {}, []
        self.stream = i % 2 == 0 if stream is None else stream
        if kind == "header":
            self.headers["x-session-id"] = f"conversation-{i}"
        elif kind == "field":
            self.more["prompt_cache_key"] = f"conversation-{i}"
        elif kind == "system":
            self.messages.append({"role": "system", "content": "Be brief."})

    def body(self, max_tokens):
        b = {"model": "demo", "messages": self.messages, "max_tokens": max_tokens, "temperature": 0, **self.more}
        if self.stream:
            b |= {"stream": True, "stream_options": {"include_usage": True}}
        return b

    def ask(self, max_tokens=8, on_first=None):
        """One turn. After Lost the same turn may be asked again."""
        if not self.messages or self.messages[-1]["role"] != "user":
            n = len(self.turns)
            text = (ABOUT.format(self.i) if n == 0 else "") + QUESTIONS[n % len(QUESTIONS)]
            self.messages.append({"role": "user", "content": text})
        server, begun = None, False
        try:
            with self.client.stream("POST", "/v1/chat/completions", json=self.body(max_tokens), headers=self.headers) as r:
                server = r.headers.get("x-aned-server") or r.headers.get("x-litellm-model-id")
                if r.status_code != 200:
                    raise Lost(server, False, f"{r.status_code} {r.read()[:300]}")
                begun = True
                usage, text = (self.read_stream if self.stream else self.read_whole)(r, server, on_first)
        except httpx.HTTPError as e:
            raise Lost(server, begun, repr(e)) from e
        self.messages.append({"role": "assistant", "content": text})
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        self.turns.append(Turn(server, usage["prompt_tokens"], cached, text))
        return self.turns[-1]

    @staticmethod
    def read_whole(r, server, on_first):
        x = json.loads(r.read())
        return x["usage"], x["choices"][0]["message"]["content"] or ""

    @staticmethod
    def read_stream(r, server, on_first):
        usage, text, done = None, "", False
        for line in r.iter_lines():
            if line == "data: [DONE]":
                done = True
            elif line.startswith("data: "):
                x = json.loads(line[6:])
                if "error" in x:
                    raise Lost(server, True, line)
                usage = x.get("usage") or usage
                for c in x["choices"]:
                    piece = c["delta"].get("content") or ""
                    text += piece
                    if piece and on_first:
                        on_first()
                        on_first = None
        if not done or usage is None:
            raise Lost(server, True, "the stream ended early")
        return usage, text

    def warm(self):
        """Turns that found what the one before had computed: all of its prompt."""
        return sum(now.cached >= before.prompt - 1 for before, now in zip(self.turns, self.turns[1:]))


def run(client, kinds, at=(), n=CONVERSATIONS):
    """So many conversations, some at a time. at: [(i, server, what)]: what happens in the middle of the first conversation from
    the i-th on that is there (None: anywhere). -> (conversations, [Lost])"""
    at, lost, lock = list(at), [], threading.Lock()
    chats = [Conversation(client, i, kinds[i % len(kinds)]) for i in range(n)]

    def hold(c):
        for turn in range(TURNS):
            with lock:
                due = turn == 1 and at and c.i >= at[0][0] and at[0][1] in (None, c.turns[0].server)
                what = at.pop(0)[2] if due else None
            if what:
                what()
            while True:
                try:
                    c.ask()
                    break
                except Lost as e:  # its client asks again
                    with lock:
                        lost.append(e)
                        assert len(lost) < 20, lost[-1]
                    time.sleep(0.05)
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        for f in [pool.submit(hold, c) for c in chats]:
            f.result()
    assert at == []
    return chats, lost


def warm(chats):
    return sum(c.warm() for c in chats)


def moved(chats):
    """Turns that another daemon answered than the one before."""
    return sum(a.server != b.server for c in chats for a, b in zip(c.turns, c.turns[1:]))


def client(base, key, **kw):
    return httpx.Client(base_url=base, headers={"Authorization": f"Bearer {key}"}, timeout=120 * SLOW_S, trust_env=False,
                        limits=httpx.Limits(max_connections=None), **kw)


@contextlib.contextmanager
def asking(*asks):
    """Each is asked in a thread of its own; the futures."""
    with concurrent.futures.ThreadPoolExecutor(len(asks)) as pool:
        yield [pool.submit(x) for x in asks]


def streaming(c, max_tokens):
    """(what asks, an event: the first words are here)"""
    first = threading.Event()
    return lambda: c.ask(max_tokens, on_first=first.set), first


def slow_home(folder):
    """(home, folder, configuration) of daemons whose model takes 20 ms for a token."""
    home = make_home(folder / "home", models=("demo",), fake="delay_us 20000\n")
    return home, folder, f"program = {TOOLS / 'fake_engine'}\n"


@pytest.fixture(scope="module")
def alone(aned, demo_home, tmp_path_factory):
    """Warm turns of the same conversations with one daemon, without a proxy."""
    port, = free_ports(1)
    d = Member(aned, tmp_path_factory.mktemp("alone") / "a", demo_home, "a", port)
    try:
        with client(f"http://127.0.0.1:{port}", d.key) as c:
            chats, lost = run(c, Conversation.KINDS)
        assert lost == []
        return warm(chats)
    finally:
        d.close()
