"""What the clients meet: a daemon with models that say what a script has, behind a port of 127.0.0.1."""
import asyncio
import contextlib
import functools
import json
import pathlib
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import held as held_model  # noqa: E402
import scripted  # noqa: E402
from conftest import Daemon, metric, status, until  # noqa: E402
from scripted import Script, calls_text  # noqa: E402

TEXT = "Hello from aned: this is a scripted answer, with ä and 漢字 in it."
ANSWER = "The tool has answered: it is sunny in Paris."
CALL = ("get_weather", {"city": "Paris"})
ENDLESS = "neverending-please"  # what a question has whose answer does not end by itself
PLAIN = "plainly-please"  # and one that is answered by a text although there are tools
CONTEXT = 32768
SLOW = 8192  # the model's ff: an answer without an end lasts longer than it takes to interrupt a program


def scripts_of(call=CALL, text=TEXT, then=None, result="messages|selectattr('role', 'equalto', 'tool')|list"):
    """A call where there are tools, and after its result an answer, or the call `then`; a text otherwise. result: whether it is there."""
    after = calls_text([then]) if then else ANSWER
    return [Script(after, result),
            Script("On and on and on it goes. ", f"'{ENDLESS}' in messages|string", endless=True),
            Script(calls_text([call]), f"tools and '{PLAIN}' not in messages|string"), Script(text)]


class Relay:
    """A port that hands every byte to the Unix socket and back: for a daemon that does not listen on one itself."""

    def __init__(self, sock):
        self.sock, self.loop = str(sock), asyncio.new_event_loop()
        ready = threading.Event()
        threading.Thread(target=self.run, args=(ready,), daemon=True).start()
        ready.wait()

    def run(self, ready):
        asyncio.set_event_loop(self.loop)
        self.server = self.loop.run_until_complete(asyncio.start_server(self.serve, "127.0.0.1", 0))
        self.port = self.server.sockets[0].getsockname()[1]
        ready.set()
        self.loop.run_forever()

    async def serve(self, r, w):
        try:
            far_r, far_w = await asyncio.open_unix_connection(self.sock)
        except OSError:
            return w.close()
        both = [asyncio.ensure_future(self.pump(r, far_w)), asyncio.ensure_future(self.pump(far_r, w))]
        # The daemon has closed, or the client has: half closed by the latter is closed, as by a client that left.
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for x in (w, far_w):
            with contextlib.suppress(OSError):
                x.close()
        for x in both:
            x.cancel()

    @staticmethod
    async def pump(r, w):
        with contextlib.suppress(OSError, asyncio.CancelledError):
            while data := await r.read(65536):
                w.write(data)
                await w.drain()

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)


def listens(aned):
    """Does this aned have [http] listen?"""
    text = subprocess.run([aned, "serve", "--print-config"], capture_output=True, text=True, check=True).stdout
    return "listen" in text.split("[http]")[-1].split("\n[")[0]


class World:
    def __init__(self, aned, anectl, aliases="claude-* = m0\n", held=False):
        """held: with the model of held.py, by that name; it is what a request gets that names none."""
        self.aned, self.dir = aned, pathlib.Path(tempfile.mkdtemp(prefix="aned-clients-"))
        self.own_port = listens(aned)
        self.relay, self.key, self.models = None, "none", {}
        conf = self.dir / "aned.conf"
        conf.write_text("[http]\n" + ("listen = 127.0.0.1:0\n" if self.own_port else "") + f"default_model = {'held' if held else 'm0'}\n[aliases]\n{aliases}")
        self.d = Daemon(aned, args=["--config", str(conf)])
        if self.own_port:
            self.key = subprocess.run([anectl, "--socket", str(self.d.sock), "key"], capture_output=True, text=True,
                                      check=True).stdout.strip()
            at = next(x["address"] for x in status(self.d)["listeners"] if x["transport"] == "tcp")
            self.port = int(at.rpartition(":")[2])
        else:
            self.relay = Relay(self.d.sock)
            self.port = self.relay.port

        listed = subprocess.run([aned, "api"], capture_output=True, text=True, check=True).stdout
        self.routes = {line.split()[1] for line in listed.splitlines() if line.split()[1:]}
        if held:
            self.convert(held_model.write(self.dir / "held.gguf", CONTEXT), "held")

    @functools.cached_property
    def tools(self):
        """Does this aned take tools, and make a call of what the model says?"""
        body = {"model": self.model(scripts_of()), "messages": [{"role": "user", "content": "x"}], "tools": [
            {"type": "function", "function": {"name": CALL[0], "parameters": {"type": "object", "properties": {}}}}]}
        with self.d.http() as c:
            r = c.post("/v1/chat/completions", json=body)
        return r.status_code == 200 and bool(r.json()["choices"][0]["message"].get("tool_calls"))

    def model(self, scripts):
        """The name of a model with these scripts."""
        key = json.dumps([[s.text, s.when, s.endless] for s in scripts])
        if key not in self.models:
            name = f"m{len(self.models)}"
            path = scripted.write(self.dir / f"{name}.gguf", scripts, context=CONTEXT, ff=SLOW)
            self.convert(path, name)
            self.models[key] = name
        return self.models[key]

    def convert(self, path, name, **more):
        """more: of the job; None: not said."""
        spec = {"context": CONTEXT, "profile": "cpu", **more}
        job = self.d.convert(path, name, **{k: v for k, v in spec.items() if v is not None})
        if job["state"] != "done":
            raise SystemExit(f"the model {name} does not convert: {json.dumps(job)}")

    def cancelled(self):
        return metric(self.d, "generations_cancelled_total")

    def served(self):
        return metric(self.d, "generations_total")

    def running(self):
        return status(self.d)["running"]

    def until_cancelled(self, before):
        until(lambda: self.cancelled() > before and self.running() == 0, 30)

    def close(self):
        if self.relay:
            self.relay.close()
        return self.d.close()
