"""Clients for the events of traffic.py: they ask, read, leave, vanish, rest and come back, and keep what they got.

Raw HTTP over the daemon's socket, because a client that leaves in the middle or does not read is what a library hides.
"""
import asyncio
import dataclasses
import json
import time

READ_AHEAD = 16384  # bytes a client that rests has taken all the same
PATHS = {"complete": "/v1/completions", "chat": "/v1/chat/completions"}
FOR_THE_WAY = ("stream", "stream_options", "resumable", "service_tier", "prediction")  # change no text


class Lost(Exception):
    """The connection ended before the answer did."""


@dataclasses.dataclass
class Got:
    """What came of one request. path, body: what gives the same text to who asks alone, with nothing warm."""
    path: str
    body: dict
    does: str = "reads"
    texts: dict = dataclasses.field(default_factory=dict)     # choice -> text
    reasons: dict = dataclasses.field(default_factory=dict)   # choice -> why it ended
    events: int = 0
    last: int = 0          # number of the last event, of a resumable stream
    name: str = ""         # of the stream
    done: bool = False
    usage: dict = dataclasses.field(default_factory=dict)

    def take(self, choices):
        for x in choices:
            text = x.get("text") or (x.get("delta") or x.get("message") or {}).get("content") or ""
            self.texts[x["index"]] = self.texts.get(x["index"], "") + text
            if x.get("finish_reason"):
                self.reasons[x["index"]] = x["finish_reason"]


class Connection:
    """One request and its answer."""

    def __init__(self, sock):
        self.sock = sock
        self.writer = None

    async def ask(self, method, path, obj=None, headers=(), whole=True):
        """Sends it (or half of it); then the status is there."""
        self.reader, self.writer = await asyncio.open_unix_connection(self.sock, limit=READ_AHEAD)
        text = b"" if obj is None else json.dumps(obj).encode()
        lines = [f"{method} {path} HTTP/1.1", "Host: aned", "Connection: close", f"Content-Length: {len(text)}", *headers]
        if obj is not None:
            lines.append("Content-Type: application/json")
        data = ("\r\n".join(lines) + "\r\n\r\n").encode() + text
        self.writer.write(data if whole else data[:-1 - len(text) // 2])
        await self.writer.drain()

    async def head(self):
        """Status and headers."""
        try:
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        except (asyncio.IncompleteReadError, ConnectionError) as e:
            raise Lost from e
        self.headers = dict(x.lower().split(": ", 1) for x in head[1:] if x)
        return int(head[0].split()[1])

    async def pieces(self):
        """The body as it comes."""
        try:
            if self.headers.get("transfer-encoding") != "chunked":
                yield await self.reader.readexactly(int(self.headers.get("content-length", 0)))
                return
            while (size := int(await self.reader.readuntil(b"\r\n"), 16)) > 0:
                yield (await self.reader.readexactly(size + 2))[:-2]
        except (asyncio.IncompleteReadError, ConnectionError) as e:
            raise Lost from e

    async def whole(self):
        return b"".join([p async for p in self.pieces()])

    async def events(self):
        """(number or None, data) of each event; comments are left out."""
        rest = b""
        async for p in self.pieces():
            *blocks, rest = (rest + p).split(b"\n\n")
            for block in blocks:
                number, data = None, None
                for line in block.decode().split("\n"):
                    if line.startswith("id: "):
                        number = int(line[4:])
                    elif line.startswith("data: "):
                        data = line[6:]
                if data is not None:
                    yield number, data

    def close(self):
        if self.writer is not None:
            self.writer.transport.abort()


async def call(sock, method, path, obj=None):
    """(status, text) of a request that is answered at once."""
    c = Connection(sock)
    try:
        await c.ask(method, path, obj)
        return await c.head(), (await c.whole()).decode()
    finally:
        c.close()


class Player:
    """Plays a day's events, `factor` times as fast as they were."""

    def __init__(self, sock, model, has_chat, history, factor, stall_s):
        self.sock, self.model, self.has_chat, self.history = str(sock), model, has_chat, history
        self.factor, self.stall_s = factor, stall_s
        self.got, self.wrong = [], []
        self.refused = self.vanished = 0
        self.late_s = 0.0    # by which an event was sent after its time, at most
        self.said = {}       # chat, turn -> future of what was said until then
        self.sessions = {}   # name -> id
        self.busy = {}       # a program's number -> lock

    # --- requests ---

    async def begin(self, got, body):
        """A connection whose answer has begun."""
        while True:
            c = Connection(self.sock)
            try:
                await c.ask("POST", got.path, body)
                status = await c.head()
                if status == 200:
                    return c
                if status != 503:
                    raise RuntimeError(f"{status} {(await c.whole()).decode()[:200]}")
                self.refused += 1
                await asyncio.sleep(int(c.headers["retry-after"]))
            except BaseException:
                c.close()
                raise
            c.close()

    async def read(self, c, got, most=None):
        """Until the end, or `most` events."""
        if not c.headers["content-type"].startswith("text/event-stream"):
            j = json.loads(await c.whole())
            got.take(j["choices"])
            got.usage, got.done = j["usage"], True
            return
        async for number, data in c.events():
            if number is not None and number != got.last + 1:
                raise RuntimeError(f"event {number} follows event {got.last}")
            got.last, got.events = number or 0, got.events + 1
            if data == "[DONE]":
                got.done = True
                return
            j = json.loads(data)
            if "error" in j:
                raise RuntimeError(data[:200])
            got.name = j["id"]
            got.take(j["choices"])
            got.usage = j.get("usage") or got.usage
            if got.events == most:
                return
        raise Lost

    async def vanish(self, e, got, body):
        self.vanished += 1
        c = Connection(self.sock)
        try:
            await c.ask("POST", got.path, body, whole=body["seed"] % 2 == 0)
        finally:
            c.close()

    async def simply(self, e, got, body, most=None):
        c = None
        try:
            c = await self.begin(got, body)
            await self.read(c, got, most)
        finally:
            if c is not None:
                c.close()

    async def leaves(self, e, got, body):
        try:
            await asyncio.wait_for(self.simply(e, got, body), e["client"]["s"] / self.factor)
        except asyncio.TimeoutError:
            pass

    async def rests(self, e, got, body):
        c = await self.begin(got, body)
        try:
            await asyncio.sleep(min(e["client"]["s"] / self.factor, 1.5 * self.stall_s + 1))
            await self.read(c, got)
        except Lost:
            pass  # the daemon waited long enough
        finally:
            c.close()

    async def loses(self, e, got, body):
        await self.simply(e, got, dict(body, resumable=True), e["client"]["events"])
        await asyncio.sleep(e["client"]["s"] / self.factor)
        if got.done:
            return
        c = Connection(self.sock)
        try:
            await c.ask("GET", f"/aned/v1/streams/{got.name}", headers=[f"Last-Event-ID: {got.last}"])
            status = await c.head()
            if status != 200:
                raise RuntimeError(f"taking up: {status} {(await c.whole()).decode()[:200]}")
            await self.read(c, got)
        finally:
            c.close()

    async def request(self, e, path, fields, alone=None):
        """Ask as the event's client does. alone: (path, body) of who asks for the same alone."""
        body = {**{k: v for k, v in e["body"].items() if k != "rich"}, **fields}
        if e["body"].get("rich"):
            body.update({"logprobs": True, "top_logprobs": 20} if path == PATHS["chat"] else {"logprobs": 20})
        if body.get("stream"):
            body["stream_options"] = {"include_usage": True}
        solo = {k: v for k, v in body.items() if k not in FOR_THE_WAY and "logprobs" not in k}
        got = Got(path, {**solo, **(alone or {})}, e["client"]["does"])
        does = {"vanishes": self.vanish, "leaves": self.leaves, "rests": self.rests, "loses": self.loses}
        try:
            await does.get(got.does, self.simply)(e, got, body)
        finally:
            got.path = PATHS["complete"] if alone is not None else path
            if got.events > 0 or got.done:
                self.got.append(got)
        return got

    # --- events ---

    async def chat(self, e):
        """The answer to a turn, with what was said before as far as it fits."""
        key = (e["chat"], e["turn"])
        future = self.said.setdefault(key, asyncio.get_running_loop().create_future())
        parent = (e["chat"], e["parent"])
        said = [] if e["parent"] is None else await self.said.setdefault(parent, asyncio.get_running_loop().create_future())
        messages = [*said, {"role": "user", "content": e["text"]}]
        answer = ""
        try:
            while len(messages) > 2 and sum(len(m["content"]) for m in messages) > self.history:
                messages = messages[2:]
            if self.has_chat:
                fields = {"messages": messages}
            else:
                fields = {"prompt": "".join(f"{m['role']}: {m['content']}\n" for m in messages) + "assistant:"}
            got = await self.request(e, PATHS["chat" if self.has_chat else "complete"], {"model": self.model, **fields})
            answer = got.texts.get(0, "")
        finally:
            if not future.done():
                future.set_result([*messages, {"role": "assistant", "content": answer or "..."}])

    async def complete(self, e):
        await self.request(e, PATHS["complete"], {"model": self.model, "prompt": e["prompt"]})

    async def op(self, method, path, obj=None):
        status, text = await call(self.sock, method, f"/aned/v1/sessions{path}", obj)
        if status not in (200, 201):
            raise RuntimeError(f"{method} session {path}: {status} {text[:200]}")
        return json.loads(text)

    async def session(self, e):
        name, do = e["session"], e["do"]
        async with self.busy.setdefault(name.split()[0], asyncio.Lock()):
            at = f"/{self.sessions.get(name)}"
            if do == "create":
                self.sessions[name] = (await self.op("POST", "", {"model": self.model, "prompt": e["text"]}))["id"]
            elif do == "append":
                await self.op("POST", f"{at}/append", {"prompt": e["text"]})
            elif do == "fork":
                self.sessions[name] = (await self.op("POST", f"/{self.sessions[e['source']]}/fork"))["id"]
            elif do == "delete":
                await self.op("DELETE", at)
            else:
                now = await self.op("GET", at)
                if do == "truncate":
                    await self.op("POST", f"{at}/truncate", {"n": now["n_tokens"] * 2 // 3})
                else:
                    await self.request(e, f"/aned/v1/sessions{at}/generate", {},
                                       alone={"model": self.model, "prompt": now["tokens"]})

    async def play(self, e):
        try:
            await getattr(self, e["kind"])(e)
        except Exception as x:  # noqa: BLE001  (it is part of the verdict)
            self.wrong.append(f"{e['kind']} at {e['at']}: {type(x).__name__} {x}")

    async def run(self, events, patience_s):
        """All of them at their times; then until the last has its answer."""
        began = time.monotonic()
        tasks = []
        for e in events:
            due = began + e["at"] / self.factor
            await asyncio.sleep(max(0, due - time.monotonic()))
            self.late_s = max(self.late_s, time.monotonic() - due)
            tasks.append(asyncio.create_task(self.play(e)))
        _, waiting = await asyncio.wait(tasks, timeout=patience_s)
        for t in waiting:
            t.cancel()
        if waiting:
            self.wrong.append(f"{len(waiting)} requests have no answer {patience_s} s after the last was sent")
            await asyncio.wait(waiting)


async def solo(sock, got, most):
    """Texts and reasons of got's request for who is alone; at most so many tokens."""
    body = {**got.body, "cache_prompt": False, "max_tokens": min(got.body["max_tokens"], most)}
    status, text = await call(sock, "POST", got.path, body)
    if status != 200:
        raise RuntimeError(f"alone: {status} {text[:200]}")
    alone = Got(got.path, body)
    alone.take(json.loads(text)["choices"])
    return alone
