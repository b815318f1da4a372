"""More than the daemon can do at once: streams, clients that never read, a storm of connections. What is answered is right
to the byte, what cannot be is told so with a 503 and a Retry-After, memory stays bounded, and all of it is given back."""
import asyncio
import json
import pathlib
import resource
import signal
import socket
import time

import pytest

from conftest import PAUSE, SLOW_S, engine_pid, metric, status, stopped

PROMPTS = ["What is aned?", "How do I convert a model?", "Where is the socket?", "What is a shard?", "Who are you?"]
SEEDS = range(4)
DEAF = {"logprobs": 20, "max_tokens": 480, "n": 4}  # more than waits in a connection and its socket
STALL_MS = 2000


def body(i):
    return {"model": "demo", "stream": True, "temperature": 0.8, "max_tokens": 24, "ignore_eos": True,
            "prompt": PROMPTS[i % len(PROMPTS)], "seed": i // len(PROMPTS) % len(SEEDS)}


KINDS = len(PROMPTS) * len(SEEDS)  # different requests


class Client:
    """Raw HTTP over the daemon's socket, many at once."""

    def __init__(self, d):
        self.sock = str(d.sock)
        self.texts = {}     # kind -> its text alone
        self.wrong = []
        self.refused = 0
        self.health = []    # seconds a connect and an answer took

    async def open(self, method, path, obj=None):
        reader, writer = await asyncio.open_unix_connection(self.sock)
        text = b"" if obj is None else json.dumps(obj).encode()
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: aned\r\nConnection: close\r\n"
                     f"Content-Length: {len(text)}\r\n\r\n".encode() + text)
        await writer.drain()
        return reader, writer

    async def ask(self, method, path, obj=None):
        """Status, headers and body of an answer that ends with the connection."""
        reader, writer = await self.open(method, path, obj)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(x.lower().split(": ", 1) for x in head[1:] if x)
            data = await reader.read()
        finally:
            writer.close()
        if headers.get("transfer-encoding") == "chunked":
            whole, data = data, b""
            while True:
                size, whole = whole.split(b"\r\n", 1)
                n = int(size, 16)
                if n == 0:
                    break
                data, whole = data + whole[:n], whole[n + 2:]
        return int(head[0].split()[1]), headers, data

    async def stream(self, i):
        """One stream, asked for again as long as the daemon is busy, and compared."""
        while True:
            status, headers, data = await self.ask("POST", "/v1/completions", body(i))
            if status != 503:
                break
            self.refused += 1
            assert int(headers["retry-after"]) >= 1
            assert json.loads(data)["error"]["code"] == "busy"
            await asyncio.sleep(float(headers["retry-after"]) * (0.5 + i % 7 / 7))
        assert status == 200, data
        events = data.decode().split("\n\n")
        assert events[-2:] == ["data: [DONE]", ""], events[-2:]
        text = "".join(json.loads(x[6:])["choices"][0]["text"] for x in events[:-2] if x.startswith("data: "))
        if self.texts.setdefault(i % KINDS, text) != text:
            self.wrong.append((i, text, self.texts[i % KINDS]))

    async def deaf(self, i, over):
        """Asks for a lot and reads nothing until the daemon has had enough."""
        _, writer = await self.open("POST", "/v1/completions", {**body(i), **DEAF})
        await over.wait()
        writer.close()

    async def storm(self, per_second, over):
        """Connections at a fixed rate, each with a question."""
        async def one():
            at = time.monotonic()
            status, _, _ = await self.ask("GET", "/health")
            assert status == 200
            self.health.append(time.monotonic() - at)
        tasks, begun = [], time.monotonic()
        while not over.is_set():
            due = int((time.monotonic() - begun) * per_second)
            tasks += [asyncio.create_task(one()) for _ in range(due - len(tasks))]
            await asyncio.sleep(0.01)
        await asyncio.gather(*tasks)


async def settle(d, deaf):
    """Until nothing runs and every deaf client was cut off."""
    end = time.monotonic() + 300 * SLOW_S
    while True:
        s = status(d)
        if s["running"] == 0 and s["queued"] == 0 and metric(d, "http_streams_stalled_total") >= deaf:
            return
        assert time.monotonic() < end, s
        await asyncio.sleep(0.2)


async def load(d, c, streams, deaf, connects):
    """Everything at once. Returns the daemon's peak of resident KiB."""
    over, peak = asyncio.Event(), 0

    async def watch():
        nonlocal peak
        while not over.is_set():
            peak = max(peak, d.rss_kib())
            await asyncio.sleep(0.05)
    around = [asyncio.create_task(watch()), asyncio.create_task(c.storm(connects, over))]
    silent = [asyncio.create_task(c.deaf(i, over)) for i in range(deaf)]
    asked = [asyncio.create_task(c.stream(i)) for i in range(streams)]
    if deaf > 0:  # more than there is room for, and not one after the other
        refused, end = metric(d, "refused_busy_total"), time.monotonic() + 60 * SLOW_S
        with stopped(engine_pid(d, "demo")):
            while metric(d, "refused_busy_total") == refused:
                assert time.monotonic() < end, "the queue is never full"
                await asyncio.sleep(0.05)
    await asyncio.gather(*asked)
    await settle(d, deaf)
    over.set()
    await asyncio.gather(*around, *silent)
    return peak


@pytest.mark.parametrize("streams,deaf,connects", [
    (100, 5, 50),
    pytest.param(2000, 100, 500, marks=pytest.mark.slow),
])
@pytest.mark.asan
def test_overload(demo_home, make_daemon, tmp_path, streams, deaf, connects):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    want = streams + deaf + 2 * connects + 200
    if hard != resource.RLIM_INFINITY and hard < want:
        pytest.skip(f"needs {want} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, want), hard))
    conf = tmp_path / "aned.conf"
    conf.write_text(f"[limits]\nqueue = {max(16, streams * 3 // 4)}\n[http]\nstall_ms = {STALL_MS * PAUSE}\n")
    d = make_daemon(home=demo_home, args=["--config", str(conf)])
    c = Client(d)

    async def alone():
        for i in range(KINDS):
            await c.stream(i)
    asyncio.run(alone())
    assert len(set(c.texts.values())) > KINDS // 2
    asyncio.run(load(d, c, min(streams, 64), 0, 10))  # what is allocated once
    before = (d.fds(), len(d.engines()), d.rss_kib())
    began = time.monotonic()
    peak = asyncio.run(load(d, c, streams, deaf, connects))
    took = time.monotonic() - began
    assert not c.wrong, c.wrong[:3]
    assert c.refused > 0, "the queue was never full"
    assert metric(d, "refused_busy_total") >= c.refused
    assert metric(d, "http_streams_stalled_total") == deaf
    time.sleep(2)  # freed memory is given back after a second of rest
    end = time.monotonic() + 120 * SLOW_S
    kept = 16 * 1024 + streams * 8 if SLOW_S == 1 else 1 << 30  # KiB; a sanitizer keeps freed memory on purpose
    while (d.fds() > before[0] + 2 or d.rss_kib() - before[2] >= kept) and time.monotonic() < end:
        time.sleep(0.1)
    after = (d.fds(), len(d.engines()), d.rss_kib())
    health = sorted(c.health)
    print(f"\n{streams} streams, {deaf} deaf, {connects} connects/s: {took:.1f} s, {c.refused} refused with 503; "
          f"{len(health)} asked for health: median {health[len(health) // 2] * 1e3:.1f} ms, "
          f"p99 {health[len(health) * 99 // 100] * 1e3:.1f} ms; RSS {before[2] >> 10} -> {peak >> 10} -> "
          f"{after[2] >> 10} MiB; fds {before[0]} -> {after[0]}")
    assert after[0] <= before[0] + 2 and after[1] == before[1]
    assert after[2] - before[2] < kept
    if SLOW_S == 1:
        assert peak - before[2] < 8 * 1024 + streams * 64 + deaf * 1024


def test_connects_of_one_moment_wait(make_daemon):
    """While the daemon is held up, more than a thousand connects wait for it: none is turned away by the kernel, which
    many clients take for a connection that was made and lost."""
    n = 1500
    somaxconn = pathlib.Path("/proc/sys/net/core/somaxconn")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if not somaxconn.exists() or int(somaxconn.read_text()) < n or hard != resource.RLIM_INFINITY and hard < n + 200:
        pytest.skip("the machine lets fewer wait")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, n + 200), hard))
    d = make_daemon()
    socks = []
    d.proc.send_signal(signal.SIGSTOP)
    try:
        for _ in range(n):
            s = socket.socket(socket.AF_UNIX)
            socks.append(s)
            s.setblocking(False)
            s.connect(str(d.sock))  # BlockingIOError: the queue is full
            s.sendall(b"GET /health HTTP/1.1\r\nHost: aned\r\nConnection: close\r\n\r\n")
        d.proc.send_signal(signal.SIGCONT)
        for s in socks:
            s.settimeout(60 * SLOW_S)
            assert s.recv(4096).startswith(b"HTTP/1.1 200 ")
    finally:
        d.proc.send_signal(signal.SIGCONT)
        for s in socks:
            s.close()
