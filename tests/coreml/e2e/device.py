"""Daemons with `backend = coreml` on the stand-in, and how their device behaves (standin/fault.h)."""
import json
import os
import shutil
import subprocess

import numpy
import pytest

from conftest import Daemon, until

PROMPTS = ["What is aned?", "The socket", "<|im_start|>user\nHow do I convert a model?<|im_end|>\n<|im_start|>assistant\n"]
CONTEXT = 512


class Device:
    """The file that tells the stand-in what to do; running daemons read it again when it changes."""

    def __init__(self, folder):
        self.path = folder / "standin"
        self.set()

    def set(self, *lines):
        new = self.path.with_suffix(".new")
        new.write_text("\n".join(lines) + "\n")
        new.rename(self.path)


def make_bundle(aned, gguf, path, *options):
    path.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
    subprocess.run([aned, "convert", gguf, "--out", path, "--context", str(CONTEXT), *options], check=True,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return path


class Place:
    """A home with the demo model as `demo`, its device, and the daemons that ran there."""

    def __init__(self, aned, folder, bundle):
        self.aned, self.folder, self.home = aned, folder, folder / "home"
        self.device = Device(folder)
        (self.home / "models").mkdir(mode=0o700, parents=True)
        self.home.chmod(0o700)
        shutil.copytree(bundle, self.home / "models" / "demo")
        self.daemons = []

    def serve(self, conf="", backend="coreml", wrap=()):
        """`conf`: sections of aned.conf; `wrap`: a command that starts the daemon."""
        (self.home / "aned.conf").write_text(f"[engine]\nbackend = {backend}\n{conf}")
        program = self.aned
        if wrap:
            program = self.folder / "aned"
            program.write_text(f"#!/bin/sh\nexec {' '.join(wrap)} {self.aned} \"$@\"\n")
            program.chmod(0o700)
        self.daemons.append(Daemon(str(program), home=self.home, env={"ANED_STANDIN": str(self.device.path)}))
        return self.daemons[-1]

    def stop(self):
        for d in self.daemons:
            if d.proc.poll() is None:
                assert d.stop() == 0, "aned serve ended with an error"

    def close(self):
        self.stop()
        for d in self.daemons:
            shutil.rmtree(d.dir, ignore_errors=True)


@pytest.fixture(scope="session")
def bundle(aned, demo_gguf, tmp_path_factory):
    return make_bundle(aned, demo_gguf, tmp_path_factory.mktemp("bundle") / "demo")


@pytest.fixture
def place(aned, bundle, tmp_path):
    p = Place(aned, tmp_path, bundle)
    yield p
    p.close()


def model(d, name="demo"):
    with d.http() as c:
        r = c.get(f"/aned/v1/models/{name}")
        assert r.status_code == 200, r.text
        return r.json()


def engine(d):
    return model(d)["engine"] or {}


def load(d):
    """Load the model and wait for it; it must be on the device."""
    with d.http() as c:
        r = c.post("/aned/v1/models/demo/load")
        assert r.status_code == 200, r.text
    until(lambda: model(d)["state"] == "loaded")
    assert "NE" in engine(d)["arith"], engine(d)


def ask(d, **body):
    with d.http() as c:
        r = c.post("/v1/completions", json={"model": "demo", "prompt": PROMPTS[0], "temperature": 0, "max_tokens": 60,
                                            "ignore_eos": True, **body})
        assert r.status_code == 200, r.text
        return r.json()


def text(d, **body):
    return ask(d, **body)["choices"][0]["text"]


def draw(d, prompt, n=96):
    """A timeline, continued greedily: all ids, and how many are the prompt's."""
    with d.http() as c:
        s = c.post("/aned/v1/sessions", json={"model": "demo", "prompt": prompt}).json()
        r = c.post(f"/aned/v1/sessions/{s['id']}/generate", json={"max_tokens": n, "temperature": 0, "ignore_eos": True})
        assert r.status_code == 200, r.text
        ids = c.get(f"/aned/v1/sessions/{s['id']}").json()["tokens"]
    assert len(ids) == s["n_tokens"] + n
    return ids, s["n_tokens"]


def logits(aned, bundle, ids, folder, *options):
    """Of each position the logits, by another executor than the daemon's."""
    numpy.save(folder / "ids.npy", numpy.array(ids, dtype=numpy.int32))
    subprocess.run([aned, "logits", bundle, folder / "ids.npy", folder / "out.npy", *options], check=True,
                   stdin=subprocess.DEVNULL)
    return numpy.load(folder / "out.npy")


def counter(d, name):
    with d.http() as c:
        return next(float(x.split()[1]) for x in c.get("/metrics").text.splitlines() if x.startswith(f"aned_{name} "))


def compilings(d):
    return d.log.read_text().count("# standin: compiling ")


def residency(d):
    with d.http() as c:
        return c.get("/aned/v1/models/demo/residency").json()


def shown(d):
    """What `anectl show demo` prints."""
    r = subprocess.run([os.environ["ANED_BIN"] + "/client/anectl", "--socket", str(d.sock), "show", "demo"], text=True,
                       capture_output=True, stdin=subprocess.DEVNULL)
    assert r.returncode == 0, r.stderr
    return r.stdout


def stream(d, on_text, **body):
    """The text of a streamed completion; on_text(n pieces) is called for each."""
    whole, n = "", 0
    with d.http() as c, c.stream("POST", "/v1/completions", json={
            "model": "demo", "prompt": PROMPTS[0], "temperature": 0, "max_tokens": 200, "ignore_eos": True, "stream": True,
            **body}) as r:
        assert r.status_code == 200, r.read()
        for line in r.iter_lines():
            if line.startswith("data: {"):
                j = json.loads(line[6:])
                assert "error" not in j, j
                whole += j["choices"][0]["text"]
                n += 1
                on_text(n)
    return whole
