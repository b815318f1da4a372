"""What the gates found is kept, shown and can be accepted: quality reports, rejected models, `--accept`, and the page that
`anectl report` makes, looked at by a browser."""
import html.parser
import json
import os
import re
import shutil
import struct
import subprocess
import zlib

import pytest

from conftest import SLOW_S, Daemon
from test_anectl import Ctl

COARSE = ["*=int4"]  # an int8 model whose matrices are int4: it does not hold the bars of int8
RUNGS = ["weights", "program", "steps", "chunks", "prompt"]


@pytest.fixture(scope="module")
def d(aned, demo_gguf, tmp_path_factory):
    """good; bad: rejected; taken: as bad, and accepted; and one whose file has a hostile name."""
    hostile = tmp_path_factory.mktemp("source") / "<img src=x onerror=alert(1)>\"'&.gguf"
    shutil.copy(demo_gguf, hostile)
    x = Daemon(aned)
    jobs = {"good": x.convert(demo_gguf, "good", context=256),
            "bad": x.convert(hostile, "bad", context=256, quant_for=COARSE, calibrate="off"),
            "taken": x.convert(demo_gguf, "taken", context=256, quant_for=COARSE, calibrate="off", accept=["quality", "exactness"])}
    assert [j["state"] for j in jobs.values()] == ["done"] * 3
    yield x
    assert x.close() == 0


@pytest.fixture(scope="module")
def ctl(anectl, d):
    return Ctl(anectl, d.sock)


def gate(model, name):
    return next(g for g in model["gates"] if g["name"] == name)


# --- kept and shown ---

def test_the_report_is_kept(d, ctl):
    with d.http() as c:
        q = c.get("/aned/v1/models/good/quality").json()
        m = c.get("/aned/v1/models/good").json()
    r = q["report"]
    assert (q["verdict"], q["fingerprint"]) == ("passed", m["fingerprint"]) and q["created_ms"] > 0
    assert [x["name"] for x in r["rungs"]] == RUNGS and {x["verdict"] for x in r["rungs"]} == {"passed"}
    assert len(r["kl"]) == len(r["cosine"]) == r["positions"] == 256 and len(r["layers"]) == m["layers"]
    assert abs(sum(r["kl"]) / 256 - r["logits"]["kl_mean"]) < 1e-5  # six digits
    s = r["shards"][-1]
    assert s["last"] == m["layers"] and s["cosine_mean"] == r["layers"][-1]["cosine_mean"]
    assert s["worst_cosine"] == min(x["cosine_mean"] for x in r["layers"][s["first"]:s["last"]])
    assert r["bars"]["reason"]
    text = ctl("quality", "good").stdout
    assert text.startswith("passed: ") and all(f"\n  {rung} " in text for rung in [*RUNGS, "exactness"])
    assert ctl.json("quality", "good") == q


def test_verify_shows_the_gates(ctl):
    text = ctl("verify", "good").stdout
    assert text.startswith("good verified") and "\n  quality " in text and "\n  exactness " in text


def test_it_outlives_a_restart_and_goes_with_the_model(d, demo_gguf):
    d.convert(demo_gguf, "gone", context=128)
    with d.http() as c:
        before = c.get("/aned/v1/models/gone/quality").json()
    assert d.stop() == 0
    d.start()
    with d.http() as c:
        assert c.get("/aned/v1/models/gone/quality").json() == before
        assert c.delete("/aned/v1/models/gone").status_code == 200
        assert c.get("/aned/v1/models/gone/quality").status_code == 404
    d.convert(demo_gguf, "gone", context=128)  # the same bundle: a report of its own
    with d.http() as c:
        again = c.get("/aned/v1/models/gone/quality").json()
        assert again["created_ms"] > before["created_ms"] and again["report"] == before["report"]
        assert c.delete("/aned/v1/models/gone").status_code == 200


# --- rejected and accepted ---

def test_a_rejected_model_says_where(d, ctl):
    with d.http() as c:
        m = c.get("/aned/v1/models/bad").json()
        q = c.get("/aned/v1/models/bad/quality").json()
        r = c.post("/v1/completions", json={"model": "bad", "prompt": "x", "max_tokens": 1})
    assert m["state"] == "rejected" and m["accepted"] == [] and gate(m, "quality")["verdict"] == "failed"
    assert re.match(r"gate quality failed: program: layer \d+ of layers_\d+_\d+\.mlpackage: cosine 0\.\d+", m["reason"])
    assert q["verdict"] == "failed" and [x["verdict"] for x in q["report"]["rungs"]][1:4] == ["failed", "not run", "not run"]
    assert gate(m, "residency")["verdict"] == "warned"  # which is no reason to reject
    assert r.status_code >= 400 and "error" in r.json()
    assert "program    failed   layer" in ctl("quality", "bad").stdout


def test_a_rejected_model_ends_a_command_badly(d, ctl, demo_gguf):
    """Exit 65 and the words, in every form that waits for the job; an accepted failure is a success."""
    coarse = ["convert", demo_gguf, "--context", "128", "--calibrate", "off", *(x for form in COARSE for x in ("--quant-for", form))]
    r = ctl(*coarse, "--name", "no", code=65)
    assert "rejected: no failed a gate" in r.stderr and r.stderr.rstrip().endswith("--accept quality") and "next:" not in r.stdout
    with d.http() as c:
        job = c.get("/aned/v1/models/no").json()["job"]
    assert ctl("job", job, "--follow", code=65).stderr.rstrip().endswith("--accept quality")
    r = subprocess.run([ctl.exe, "job", job, "--follow", "--json"], env=ctl.env, capture_output=True, text=True)
    assert (r.returncode, r.stderr, json.loads(r.stdout.splitlines()[-1])["state"]) == (65, "", "done")
    ctl("rm", "no")
    r = ctl(*coarse, "--name", "no", "--accept", "quality")
    assert r.stdout.endswith("next: anectl run no\n") and "(accepted)" in r.stdout
    ctl("rm", "no")
    ctl(*coarse, "--name", "no", "--accept", "exactness", code=65)
    ctl("rm", "no")


def test_one_of_several_contexts_is_rejected(d, ctl, demo_gguf):
    """The smaller one is made of the rejected one's weights; both ends are told."""
    args = ["convert", demo_gguf, "--name", "two", "--context", "256,128", "--calibrate", "off", "--quant-for", COARSE[0]]
    r = ctl(*args, code=65)
    assert r.stderr.count("rejected: ") >= 1 and "two is there" in r.stdout and "two-" in r.stdout + r.stderr
    with d.http() as c:
        for m in c.get("/aned/v1/models").json()["models"]:
            if m["name"].startswith("two"):
                assert c.delete(f"/aned/v1/models/{m['name']}").status_code == 200


def test_an_accepted_failure_is_recorded(d, ctl):
    with d.http() as c:
        m = c.get("/aned/v1/models/taken").json()
        assert (m["state"], m["accepted"]) == ("ready", ["quality"])
        assert gate(m, "quality")["accepted"] is True and "accepted" not in gate(m, "exactness")  # which passed
        r = c.post("/v1/completions", json={"model": "taken", "prompt": "x", "max_tokens": 1})
        assert r.status_code == 200, r.text
    assert "accepted to fail: quality" in next(x for x in ctl("models").stdout.splitlines() if x.startswith("taken"))
    assert "(accepted)" in next(x for x in ctl("show", "taken").stdout.splitlines() if x.startswith("  quality"))
    assert d.stop() == 0
    d.start()
    with d.http() as c:
        assert c.get("/aned/v1/models/taken").json()["accepted"] == ["quality"]


@pytest.mark.parametrize("accept, says", [(["speed"], "no gate 'speed'"), (["structure"], "cannot run"),
                                          (["residency"], "never rejects"), ("quality", "a list"), ([1], "a list")])
def test_what_cannot_be_accepted(d, demo_gguf, accept, says):
    with d.http() as c:
        r = c.post("/aned/v1/jobs", json={"source": str(demo_gguf), "name": "x", "accept": accept})
    assert r.status_code == 400 and r.json()["error"]["param"] == "accept" and says in r.json()["error"]["message"]


def test_force_is_gone(d, ctl, demo_gguf):
    with d.http() as c:
        r = c.post("/aned/v1/jobs", json={"source": str(demo_gguf), "name": "x", "force": True})
    assert r.status_code == 400 and "accept" in r.json()["error"]["message"] and r.json()["error"]["param"] == "force"
    for word in ("--force", "-f"):
        for command in ("convert", "import"):
            assert "--accept" in ctl(command, demo_gguf, word, code=64).stderr
    assert "--force" not in ctl("convert", "--help").stdout + ctl("completion", "fish").stdout
    assert "no gate 'speed'" in ctl("convert", demo_gguf, "--accept", "quality,speed", code=65).stderr


# --- the page ---

class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.words = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module")
def pages(ctl, tmp_path_factory):
    top = tmp_path_factory.mktemp("pages")
    for name in ("good", "bad"):
        out = ctl("report", name, "--out", top / f"{name}.html", "--no-open").stdout
        assert out == f"{top / name}.html\n"
    return top


def test_the_page_is_whole_and_escaped(d, pages):
    text = (pages / "bad.html").read_text()
    p = Page(text)
    kinds = {t for t, _ in p.tags}
    assert not kinds & {"script", "img", "link", "iframe", "object", "base", "form", "a"}, kinds
    assert not re.search(r"url\(|@import|https?:|javascript:", text)
    assert not [a for _, a in p.tags if {"src", "href"} & set(a) or any(k.startswith("on") for k in a)]
    csp = [a["content"] for t, a in p.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert csp == ["default-src 'none'; style-src 'unsafe-inline'"]
    with d.http() as c:
        m = c.get("/aned/v1/models/bad").json()
    assert "onerror" in m["source"]["name"] and m["source"]["name"] in p.words
    assert m["fingerprint"] in p.words and m["reason"] in p.words


def test_the_page_has_what_was_found(d, pages):
    p = Page((pages / "bad.html").read_text())
    with d.http() as c:
        q = c.get("/aned/v1/models/bad/quality").json()["report"]
        f = c.get("/aned/v1/models/bad/residency").json()["predicted"]["report"]["functions"]
    kinds = [a.get("class") for t, a in p.tags if t == "td"]
    ops = {v: sum(max(1, len(g["layers"])) for x in f for g in x["map"]["groups"] for o in g["ops"] if o[2] == v)
           for v in ("on", "unknown", "off")}
    seen = {"on": kinds.count("on"), "unknown": kinds.count("unk"), "off": kinds.count("off")}
    assert ops["unknown"] == 7 * 5 + 1 == seen["unknown"] and seen["off"] == ops["off"] == 0  # the int4 convs and the head's
    assert sum(x["plan"]["operations"] for x in f) == sum(ops.values())
    assert any(a.get("title") == "weights.int4" for t, a in p.tags if t == "td")
    assert sum(t == "circle" for t, _ in p.tags) == len(q["layers"])
    assert sum(t == "rect" and a.get("class") == "ink" and "x" in a for t, a in p.tags) == len(q["kl"])
    labels = [a["aria-label"] for t, a in p.tags if t == "svg" and "aria-label" in a]
    assert len(labels) == 2 and "256 values of KL" in labels[1]
    headings = [a["id"] for t, a in p.tags if t == "h2"]
    assert headings == ["gates", "quality", "likeness", "positions", "devices", "packages", "bytes"]
    assert any("layer" in w and "cosine" in w for w in p.words)


def test_bytes_by_tensor_are_those_of_the_packages(d):
    """The weights that a map tells of are all a package has."""
    with d.http() as c:
        f = c.get("/aned/v1/models/good/residency").json()["predicted"]["report"]["functions"]
    for x in f:
        told = sum(sum(o[4]) if isinstance(o[4], list) else o[4] * max(1, len(g["layers"]))
                   for g in x["map"]["groups"] for o in g["ops"])
        assert 0.9 < told / x["weight_bytes"] <= 1.02, (told, x["weight_bytes"])


def test_where_it_goes(ctl, tmp_path):
    env = dict(ctl.env, XDG_CACHE_HOME=str(tmp_path))
    out = subprocess.run([ctl.exe, "report", "good"], env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    path = tmp_path / "aned" / "reports" / "good.html"
    assert (out.returncode, out.stdout) == (0, f"{path}\n") and path.stat().st_mode & 0o077 == 0
    assert json.loads(ctl("report", "good", "--out", path, "--json").stdout) == {"path": str(path)}
    ctl("report", "nobody", "--out", tmp_path / "none.html", code=66)
    assert not (tmp_path / "none.html").exists()


@pytest.fixture(scope="module")
def browser():
    exe = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if exe is None:
        pytest.skip("no Chromium: ./dev test e2e installs chromium-headless-shell")

    def run(page, *args):
        flags = ["--headless", "--disable-gpu", "--hide-scrollbars", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        r = subprocess.run([exe, *flags, *map(str, args), page.as_uri()], capture_output=True, stdin=subprocess.DEVNULL,
                           timeout=120 * SLOW_S)
        assert r.returncode == 0, r.stderr.decode()[-2000:]
        return r
    return run


def ground(png):
    """Width, height and the first pixel of a picture."""
    data = png.read_bytes()
    wide, high, depth, color = struct.unpack(">IIBB", data[16:26])
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and depth == 8 and color in (2, 6)
    at, packed = 8, b""
    while at < len(data):
        n, kind = struct.unpack(">I4s", data[at:at + 8])
        packed += data[at + 8:at + 8 + n] if kind == b"IDAT" else b""
        at += 12 + n
    return wide, high, tuple(zlib.decompress(packed)[1:4])  # before it there is nothing that a filter could add


@pytest.mark.parametrize("name", ["good", "bad"])
def test_a_browser_shows_it(browser, pages, tmp_path, name):
    page = pages / f"{name}.html"
    r = browser(page, "--enable-logging=stderr", "--dump-dom")
    dom = r.stdout.decode()
    assert "</footer>" in dom and dom.count("<section") == 7 and dom.count("<svg") >= 2
    assert b"Content Security Policy" not in r.stderr and "<img" not in dom  # nothing was tried that is forbidden
    light = {}
    for wide in (1200, 420):
        shot = tmp_path / f"{wide}.png"
        browser(page, f"--window-size={wide},2400", f"--screenshot={shot}")
        light[wide] = ground(shot)
        assert light[wide][:2] == (wide, 2400) and min(light[wide][2]) > 240
    dark = tmp_path / "dark.png"
    browser(page, "--window-size=1200,2400", "--blink-settings=preferredColorScheme=0", f"--screenshot={dark}")
    assert max(ground(dark)[2]) < 48
