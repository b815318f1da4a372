"""Conversion jobs over HTTP: what is refused, the queue, events, cancelling, what a restart finds."""
import hashlib
import json
import os
import shutil
import subprocess
import time

import pytest

from conftest import OVER, SLOW_S, Daemon, until, worker_stopped


@pytest.fixture
def d(aned, tmp_path):
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "aned.conf").write_text("[limits]\njobs_queued = 3\n")
    x = Daemon(aned, home=home)
    yield x
    assert x.close() == 0


def wait(d, job, states=OVER, seconds=60):
    end = time.monotonic() + seconds * SLOW_S
    with d.http() as c:
        while True:
            j = c.get(f"/aned/v1/jobs/{job}").json()
            if j["state"] in states:
                return j
            assert time.monotonic() < end, j
            time.sleep(0.02)


def post(d, **spec):
    with d.http() as c:
        return c.post("/aned/v1/jobs", json=spec)


def test_what_is_refused(d, demo_gguf, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "secret").write_text("x")
    (tmp_path / "broken.jinja").write_text("{% if x %}")
    (tmp_path / "large.jinja").write_text("x" * (256 * 1024 + 1))
    (tmp_path / "nul.jinja").write_bytes(b"a\0b")
    s = str(demo_gguf)
    for spec, param in (({}, "source"), ({"source": 1}, "source"), ({"source": "relative.gguf"}, "source"),
                        ({"source": str(tmp_path / "none")}, "source"), ({"source": str(tmp_path)}, "source"),
                        ({"source": str(tmp_path / "fifo")}, "source"), ({"source": "/dev/zero"}, "source"),
                        ({"source": s, "name": "../x"}, "name"), ({"source": s, "name": ""}, "name"),
                        ({"source": s, "name": "a/b"}, "name"), ({"source": s, "name": "n" * 129}, "name"),
                        ({"source": s, "name": "..."}, "name"), ({"source": s, "quant": "int3"}, "quant"),
                        ({"source": s, "quant": "q4_0"}, "quant"), ({"source": s, "head_quant": "lut4:99"}, "head_quant"),
                        ({"source": s, "quant_for": "a=int8"}, "quant_for"), ({"source": s, "quant_for": [1]}, "quant_for"),
                        ({"source": s, "quant_for": ["a"]}, "quant_for"), ({"source": s, "quant_for": ["a=b"]}, "quant_for"),
                        ({"source": s, "target_kl": 2}, "target_kl"), ({"source": s, "target_kl": 1e-9}, "target_kl"),
                        ({"source": s, "target_bytes": -1}, "target_bytes"), ({"source": s, "target_bytes": 2**50}, "target_bytes"),
                        ({"source": s, "target_kl": 0.1, "quant": "int8"}, "quant"),
                        ({"source": s, "target_kl": 0.1, "target_bytes": 1000}, "target_kl"),
                        ({"source": s, "calibrate": "x"}, "calibrate"), ({"source": s, "calibration": "relative"}, "calibration"),
                        ({"source": s, "calibration": str(tmp_path / "none")}, "calibration"),
                        ({"source": s, "calibrate": "off", "calibration": s}, "calibration"),
                        ({"source": s, "chat_template": 1}, "chat_template"), ({"source": s, "chat_template": "relative"}, "chat_template"),
                        ({"source": s, "chat_template": str(tmp_path / "none")}, "chat_template"),
                        ({"source": s, "chat_template": str(tmp_path / "fifo")}, "chat_template"),
                        ({"source": s, "chat_template": str(tmp_path / "broken.jinja")}, "chat_template"),
                        ({"source": s, "chat_template": str(tmp_path / "large.jinja")}, "chat_template"),
                        ({"source": s, "chat_template": str(tmp_path / "nul.jinja")}, "chat_template"),
                        ({"reshard": "m", "name": "n", "chat_template": s}, "chat_template"),
                        ({"source": s, "kind": "import", "tokenizer": s, "chat_template": s}, "chat_template"),
                        ({"source": s, "context": -1}, "context"), ({"source": s, "context": "x"}, "context"),
                        ({"source": s, "bogus": 1}, "bogus"), ({"source": s, "shape": 5}, "shape")):
        r = post(d, **spec)
        assert r.status_code == 400, (spec, r.text)
        assert r.json()["error"]["param"] == param, (spec, r.text)
    with d.http() as c:
        assert c.get("/aned/v1/jobs").json() == {"jobs": []}


def test_forms_of_tensors(d, demo_gguf, anectl):
    wanted = {"calibrate": "off", "quant": "lut4", "head_quant": "lut6:4", "quant_for": ["blk.*.attn_v.*=int8", "blk.0.*=lut6"]}
    assert d.convert(demo_gguf, "four", context=256, **wanted)["state"] == "done"
    with d.http() as c:
        assert c.get("/aned/v1/models/four").json()["quant"] == "lut4"
    end = d.convert(demo_gguf, "none", context=256, quant_for=["blk.*.attn_w=int8"])
    assert end["state"] == "failed" and "blk.*.attn_w" in end["error"]["message"]
    r = subprocess.run([anectl, "--socket", d.sock, "convert", demo_gguf, "--name", "six", "-q", "lut6", "-c", "256", "--calibrate", "off",
                        "--quant-for", "*=lut4", "--quant-for", "token_embd*=int8", "--accept", "quality"], capture_output=True, text=True)
    assert r.returncode == 0, r.stderr


def test_forms_by_target(d, demo_gguf, anectl):
    assert d.convert(demo_gguf, "fits", context=256, target_kl=0.02)["state"] == "done"
    with d.http() as c:
        assert c.get("/aned/v1/models/fits").json()["quant"] == "mixed"
    r = subprocess.run([anectl, "--socket", d.sock, "convert", demo_gguf, "--name", "small", "-c", "256", "--target-bytes", "1"],
                       capture_output=True, text=True)
    assert r.returncode != 0 and "smallest form of each matrix" in r.stderr, r.stderr


def test_calibration(d, demo_gguf, anectl, tmp_path):
    """The worker, in its sandbox, reads a text that lies in another folder."""
    text = tmp_path / "text.txt"
    text.write_text("Once upon a time there was a little dog who liked to play in the garden.\n" * 200)
    r = subprocess.run([anectl, "--socket", d.sock, "convert", demo_gguf, "--name", "told", "-q", "int8", "-c", "256",
                        "--calibration", text], capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    made = json.loads((d.home / "models" / "told" / "bundle.json").read_text())["calibration"]
    assert made["from"] == "text" and made["sha256"] == hashlib.sha256(text.read_bytes()).hexdigest()
    assert made["tokens"] == 128 and made["sequences"] >= 8
    text.write_text("Too short.")
    end = d.convert(demo_gguf, "short", context=256, calibration=str(text))
    assert end["state"] == "failed" and "calibration text" in end["error"]["message"]


TOOLS = [{"type": "function", "function": {"name": "list_files", "parameters": {"type": "object", "properties": {}}}}]
SHOWS_TOOLS = ("""{% if tools %}<|im_start|>system
# Tools
{% for t in tools %}{{ t | tojson }}
{% endfor %}For a call: <tool_call>{"name": NAME, "arguments": {}}</tool_call><|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{"name": {{ c.function.name | tojson }}, "arguments": """
               """{{ c.function.arguments | tojson }}}</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}""")


def prompt(d, model, **body):
    with d.http() as c:
        r = c.post("/apply-template", json={"model": model, "messages": [{"role": "user", "content": "What is here?"}], **body})
        return r.json()["prompt"] if r.status_code == 200 else r.json()["error"]["message"]


def test_another_chat_template(d, demo_gguf, anectl, aned, tmp_path):
    """The demo model's own shows no tools; with another template it does, and its smaller contexts with it."""
    path = tmp_path / "tools.jinja"
    path.write_text(SHOWS_TOOLS)
    assert d.convert(demo_gguf, "own", context=256)["state"] == "done"
    assert "list_files" not in prompt(d, "own", tools=TOOLS)
    r = subprocess.run([anectl, "--socket", d.sock, "convert", demo_gguf, "--name", "told", "-c", "256,128", "--chat-template", path.name],
                       capture_output=True, text=True, cwd=tmp_path)
    assert r.returncode == 0, r.stderr
    for model in "told", "told-128":
        assert '{"type": "function", "function": {"name": "list_files"' in prompt(d, model, tools=TOOLS)
        assert prompt(d, model) == "<|im_start|>user\nWhat is here?<|im_end|>\n<|im_start|>assistant\n"
    with d.http() as c:
        own, told = (c.get(f"/aned/v1/models/{m}").json() for m in ("own", "told"))
        assert own["fingerprint"] != told["fingerprint"]
        assert c.get("/props", params={"model": "told"}).json()["chat_template"] == SHOWS_TOOLS
    weights = [{p.relative_to(d.home / "models" / m): p.read_bytes() for p in (d.home / "models" / m).rglob("weight*.bin")} for m in ("own", "told")]
    assert weights[0] and weights[0] == weights[1]
    made = tmp_path / "made"
    r = subprocess.run([aned, "convert", demo_gguf, "--out", made, "--context", "256", "--chat-template", path], capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    assert (made / "tokenizer.gguf").read_bytes() == (d.home / "models" / "told" / "tokenizer.gguf").read_bytes()


@pytest.mark.parametrize("text, said", [("a\n{% if x %}\n{% endfor %}", "line 3"), ("x" * (256 * 1024 + 1), "262144 bytes"), ("{% include 'x' %}", "line 1")])
def test_what_is_no_chat_template(d, demo_gguf, anectl, aned, tmp_path, text, said):
    path = tmp_path / "t.jinja"
    path.write_text(text)
    for command in ([anectl, "--socket", d.sock, "convert", demo_gguf], [aned, "convert", demo_gguf, "--out", tmp_path / "b"],
                    [aned, "convert", demo_gguf, "--out", tmp_path / "b", "--dry-run"]):
        r = subprocess.run([*command, "--chat-template", path], capture_output=True, text=True)
        assert r.returncode == 65 and said in r.stderr and "chat" in r.stderr, (r.returncode, r.stderr)
    with d.http() as c:
        assert c.get("/aned/v1/jobs").json() == {"jobs": []}
    assert not (tmp_path / "b").exists()


def test_a_template_that_shows_no_message(d, demo_gguf, tmp_path):
    """It compiles, so only the report of the model's quality can say it."""
    (tmp_path / "t.jinja").write_text("Hi.")
    assert d.convert(demo_gguf, "m", context=256, chat_template=str(tmp_path / "t.jinja"))["state"] == "done"
    with d.http() as c:
        rungs = {r["name"]: r for r in c.get("/aned/v1/models/m/quality").json()["report"]["rungs"]}
    assert rungs["prompt"]["verdict"] == "failed" and "chat template" in rungs["prompt"]["detail"]


def test_a_job_and_its_events(d, demo_gguf):
    r = post(d, source=str(demo_gguf), name="m", context=256)
    assert r.status_code == 202
    job = r.json()
    assert job["state"] in ("queued", "running") and job["name"] == "m"
    with d.http() as c:
        assert post(d, source=str(demo_gguf), name="m").status_code == 409  # being made
        with c.stream("GET", f"/aned/v1/jobs/{job['id']}/events") as s:
            seen = [json.loads(x[6:]) for x in s.iter_lines() if x.startswith("data: ")]
    assert seen[-1]["state"] == "done" and seen[-1]["progress"] == 1 and seen[-1]["error"] is None
    assert all(x["id"] == job["id"] for x in seen)
    order = ["queued", "running", "gating", "done"]
    at = [order.index(x["state"]) for x in seen]
    assert at == sorted(at)
    assert {g["name"] for g in seen[-1]["result"]["gates"]} >= {"structure", "range"}
    assert post(d, source=str(demo_gguf), name="m").status_code == 409  # there
    with d.http() as c:
        m = c.get("/aned/v1/models/m").json()
        assert m["state"] == "ready" and m["job"] == job["id"] and m["context"] == 256
        verdicts = {g["name"]: g["verdict"] for g in m["gates"]}
        assert (verdicts["structure"], verdicts["quality"], verdicts["exactness"]) == ("passed",) * 3
        # events of a job that is over: one, and the end
        assert c.get(f"/aned/v1/jobs/{job['id']}/events").text.count("data: ") == 1
        assert c.delete(f"/aned/v1/jobs/{job['id']}").status_code == 409


def test_a_bad_file_fails_by_name(d, demo_gguf, tmp_path):
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(demo_gguf.read_bytes()[:5000])
    job = post(d, source=str(bad)).json()
    assert job["name"] == "bad"
    j = wait(d, job["id"])
    assert j["state"] == "failed" and j["error"]["code"].startswith("gguf."), j
    with d.http() as c:
        assert c.get("/aned/v1/models").json() == {"models": []}
    until(lambda: not list((d.home / "staging").iterdir()))
    assert post(d, source=str(bad)).status_code == 202  # the name is free again


def test_queue_and_cancel(d, demo_gguf):
    """The first job's worker stands still, so that none ends before all were asked for."""
    def listed():
        with d.http() as c:
            return [j["id"] for j in c.get("/aned/v1/jobs").json()["jobs"]]

    def models():
        with d.http() as c:
            return {m["name"] for m in c.get("/aned/v1/models").json()["models"]}
    with worker_stopped(d, demo_gguf, (f"first{i}" for i in range(20))) as first:
        earlier = listed()[1:]  # none, unless they were over too early
        there = models()
        made = [post(d, source=str(demo_gguf), name=f"m{i}", context=512) for i in range(1, 12)]
        assert [r.status_code for r in made] == [202] * 3 + [503] * 8  # one runs, three wait
        assert made[3].headers["retry-after"] and made[3].json()["error"]["code"] == "busy"
        ids = [first, *(r.json()["id"] for r in made[:3])]
        with d.http() as c:
            assert c.delete(f"/aned/v1/jobs/{ids[3]}").status_code == 200  # it waits
            assert wait(d, ids[3])["state"] == "cancelled"
            assert c.delete(f"/aned/v1/jobs/{ids[0]}").status_code == 200  # it runs
    with d.http() as c:
        assert wait(d, ids[0])["state"] == "cancelled"
        assert listed() == ids[::-1] + earlier  # newest first
        for i in ids[1:3]:
            assert wait(d, i)["state"] == "done"
        assert models() == there | {"m1", "m2"}


def test_priorities(d, demo_gguf):
    """The highest of those that wait is next, then the oldest; a restart keeps the order, and what runs goes on."""
    def ask(name, **more):
        r = post(d, source=str(demo_gguf), name=name, context=256, **more)
        assert r.status_code == 202, r.text
        return r.json()

    for bad in ("urgent", 101, -101, 0.5, True, ["high"]):
        r = post(d, source=str(demo_gguf), priority=bad)
        assert (r.status_code, r.json()["error"]["param"]) == (400, "priority"), bad
    with worker_stopped(d, demo_gguf, (f"first{i}" for i in range(20))):
        made = [ask("low", priority="low"), ask("plain"), ask("high", priority=50)]
        assert [j["priority"] for j in made] == [-50, 0, 50]
        assert made[0]["request"]["priority"] == "low"
        with d.http() as c:
            assert c.delete(f"/aned/v1/jobs/{made[1]['id']}").status_code == 200  # room for one more
        made[1] = ask("plain", priority=None)
        d.kill()  # and the order is still known
    d.start()
    ended = {j["name"]: wait(d, j["id"])["started_ms"] for j in made}
    with d.http() as c:
        jobs = {j["name"]: j for j in c.get("/aned/v1/jobs").json()["jobs"] if j["state"] == "done"}
    assert jobs["low"]["priority"] == -50 and jobs["high"]["priority"] == 50
    first = next(j for name, j in jobs.items() if name.startswith("first"))
    order = sorted(ended, key=lambda name: jobs[name]["started_ms"])
    assert order == ["high", "plain", "low"], jobs
    assert jobs["high"]["started_ms"] <= first["started_ms"] <= jobs["plain"]["started_ms"]  # as plain, and older


def test_folders_and_rows_are_brought_together(d, demo_gguf):
    assert d.convert(demo_gguf, "a", context=256)["state"] == "done"
    d.stop()
    shutil.copytree(d.home / "models" / "a", d.home / "models" / "b")  # published, its row lost
    shutil.rmtree(d.home / "models" / "a")  # removed by hand
    (d.home / "models" / "broken").mkdir()
    (d.home / "staging" / "left").mkdir()
    d.start()
    with d.http() as c:
        got = {m["name"]: m["state"] for m in c.get("/aned/v1/models").json()["models"]}
        assert got == {"b": "unverified", "broken": "failed"}
        r = c.post("/v1/completions", json={"model": "broken", "prompt": "x"})
        assert r.status_code == 503 and r.json()["error"]["code"] == "model.failed"
        assert c.delete("/aned/v1/models/broken").status_code == 200
    until(lambda: not list((d.home / "staging").iterdir()))
