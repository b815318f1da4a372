#!/usr/bin/env python3
"""conf/demo/expected.json: what the demo model is everywhere, as this machine makes it.

usage: demo_expected.py ANED >conf/demo/expected.json

Run it when the converter, the bundle's format or the arithmetic changed on purpose; test_acceptance.py compares. It shares no
code with what reads the record (client/accept_demo.c)."""
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

CONTEXT = 512
TOKENS = 96
ASK = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
PROMPTS = [ASK.format("What is aned?"), ASK.format("How do I convert a model?"), "The socket", "= "]
TOP = pathlib.Path(__file__).parents[2]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def tree_digest(root: pathlib.Path) -> str:
    """Of the lines that `sha256sum` prints for all files, sorted by path."""
    files = sorted((str(p.relative_to(root)).encode(), p) for p in root.rglob("*") if p.is_file())
    return sha256(b"".join(sha256(p.read_bytes()).encode() + b"  " + name + b"\n" for name, p in files))


def drawn(client, prompt: str) -> dict:
    """A timeline, continued greedily."""
    s = client.post("/aned/v1/sessions", json={"model": "demo", "prompt": prompt}).json()
    r = client.post(f"/aned/v1/sessions/{s['id']}/generate",
                    json={"max_tokens": TOKENS, "temperature": 0, "ignore_eos": True})
    assert r.status_code == 200, r.text
    ids = client.get(f"/aned/v1/sessions/{s['id']}").json()["tokens"]
    assert len(ids) == s["n_tokens"] + TOKENS
    return {"prompt": prompt, "n_prompt": s["n_tokens"], "tokens": ids}


def logits_digest(aned: str, bundle: pathlib.Path, ids: list, folder: pathlib.Path) -> str:
    import numpy
    numpy.save(folder / "ids.npy", numpy.array(ids, dtype=numpy.int32))
    subprocess.run([aned, "logits", bundle, folder / "ids.npy", folder / "out.npy"], check=True, stdin=subprocess.DEVNULL)
    return sha256((folder / "out.npy").read_bytes())


def expected(aned: str) -> dict:
    from conftest import Daemon
    demo = TOP / "conf" / "demo" / "aned-demo.gguf"
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "home").mkdir(mode=0o700)
        (folder / "home" / "aned.conf").write_text("[engine]\nbackend = cpu\n")
        d = Daemon(aned, home=folder / "home")
        try:
            assert d.convert(demo, "demo", context=CONTEXT)["state"] == "done"
            with d.http() as c:
                runs = [drawn(c, p) for p in PROMPTS]
        finally:
            assert d.close() == 0
        bundle = folder / "home" / "models" / "demo"
        return {"source": demo.name, "source_sha256": sha256(demo.read_bytes()), "context": CONTEXT,
                "bundle_sha256": tree_digest(bundle),
                "logits_sha256": logits_digest(aned, bundle, runs[0]["tokens"], folder), "runs": runs}


def text(x: dict) -> str:
    """One run a line."""
    runs = ",\n  ".join(json.dumps(r) for r in x["runs"])
    head = json.dumps({k: v for k, v in x.items() if k != "runs"}, indent=1)
    return head[:-2] + f',\n "runs": [\n  {runs}\n ]\n}}\n'


if __name__ == "__main__":
    sys.stdout.write(text(expected(sys.argv[1])))
