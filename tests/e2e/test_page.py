"""The page of GET /: what it is and who gets it, the streams that it tells of, and itself in a headless Chromium."""
import base64
import hashlib
import json
import re
import shutil
import socket
import subprocess
import threading
import time

import httpx
import pytest

import scripted
from browser import Browser
from conftest import SLOW_S, TOP, Daemon, until
from fake import make_home
from test_anectl import Ctl

HTML = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}  # as Firefox sends it
CONF = "[http]\nlisten = 127.0.0.1:0\n"
SOURCES = TOP / "daemon" / "api" / "page"
AXE = "axe-core@4.14.1"
HOSTILE = "<img src=x onerror=alert(1)><b id=bold>no markup</b>"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def at(d):
    """Its address, and its key."""
    with d.http() as c:
        address = next(x["address"] for x in c.get("/aned/v1/status").json()["listeners"] if x["transport"] == "tcp")
    return f"http://{address}/", (d.home / "http.key").read_text().strip() if (d.home / "http.key").exists() else ""


# --- who gets it, and what it is ---

@pytest.fixture(scope="module")
def d(aned, tmp_path_factory):
    x = Daemon(aned, home=make_home(tmp_path_factory.mktemp("page") / "home", conf=CONF, fake="delay_us 20000\n"))
    x.url, x.key = at(x)
    yield x
    assert x.close() == 0


@pytest.fixture(scope="module")
def page(d):
    r = httpx.get(d.url, headers=HTML)
    assert r.status_code == 200, r.text
    return r


@pytest.mark.asan
def test_it_needs_no_key_and_tells_nothing(d, page):
    assert page.headers["content-type"] == "text/html; charset=utf-8" and page.text.startswith("<!doctype html>")
    for secret in (d.key, str(d.home), "fake", str(d.proc.pid)):
        assert secret not in page.text and secret not in str(page.headers)
    with httpx.Client(base_url=d.url, headers={"Authorization": f"Bearer {d.key}", **HTML}) as c:
        assert c.get("/").text == page.text  # with a key it is no other
        r = c.head("/")
        assert r.status_code == 200 and r.content == b"" and r.headers["content-length"] == str(len(page.content))


@pytest.mark.asan
def test_nothing_else_is_without_a_key(d):
    paths = json.loads((TOP / "proto" / "api.json").read_text())["paths"]
    with httpx.Client(base_url=d.url, headers=HTML) as c:
        for path, methods in paths.items():
            for m in methods:
                if (path, m) != ("/", "get"):
                    r = c.request(m.upper(), re.sub(r"\{\w+\}", "x", path), json={} if m == "post" else None)
                    assert r.status_code == 401, (m, path)
        for path in ("/index.html", "/favicon.ico", "/page.js"):
            assert c.get(path).status_code == 401, path
        assert c.post("/", json={}).status_code == 401 and c.delete("/").status_code == 401
        assert c.request("GET", "/", content="x").status_code == 401
        assert c.get("/?model=fake").text.startswith("<!doctype")
    host = d.url.split("/")[2]
    for path in ("//", "/./", "/%2e", "/x/..", "/%00", "*", "http://evil.example/"):  # as httpx would not send them
        with socket.create_connection(host.split(":")) as s:
            s.settimeout(60 * SLOW_S)
            s.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: text/html\r\nConnection: close\r\n\r\n".encode())
            assert s.recv(65536).split()[1] in (b"400", b"401"), path


@pytest.mark.asan
def test_other_clients_get_what_they_got(d):
    for accept in ("*/*", "application/json", "text/plain", "text/htmlx", "x/text/html", "", "text/plain;q=text/html"):
        assert httpx.get(d.url, headers={"Accept": accept}).status_code == 401, accept
        r = httpx.get(d.url, headers={"Accept": accept, "x-api-key": d.key})
        assert r.text == "Ollama is running" and r.headers["vary"] == "Accept", accept
    for accept in ("text/html", "TEXT/HTML;q=0.5", "application/json , text/html"):
        assert httpx.get(d.url, headers={"Accept": accept}).text.startswith("<!doctype"), accept
    with d.http() as c:  # and on the Unix socket
        assert c.get("/").text == "Ollama is running" and c.get("/", headers=HTML).text.startswith("<!doctype")


@pytest.mark.asan
@pytest.mark.parametrize("more", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"},
                                  {"Sec-Fetch-Site": "same-site"}, {"Origin": "null"}], ids=str)
def test_attack_another_page_does_not_get_it(d, more):
    assert httpx.get(d.url, headers={**HTML, **more}).status_code == 403


@pytest.mark.asan
def test_the_page_itself_may_ask_with_the_key(d):
    own = d.url.rstrip("/")
    port = own.rsplit(":", 1)[1]
    ask = {"model": "fake", "prompt": "hello", "max_tokens": 2}
    with httpx.Client(base_url=d.url, headers={"x-api-key": d.key, "Sec-Fetch-Site": "same-origin"}) as c:
        r = c.post("/v1/completions", json=ask, headers={"Origin": own})
        assert r.status_code == 200 and "access-control-allow-origin" not in r.headers
        for origin in (f"http://localhost:{port}", f"https://127.0.0.1:{port}", "http://127.0.0.1", own + ".evil.example", own.upper()):
            assert c.post("/v1/completions", json=ask, headers={"Origin": origin}).status_code == 403, origin
        assert c.post("/v1/completions", json=ask, headers={"Origin": own, "Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert httpx.post(d.url + "v1/completions", json=ask, headers={"Origin": own}).status_code == 401


def inside(text, tag):
    found = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.S)
    assert len(found) == 1 and text.count(f"<{tag}") == 1, tag
    return found[0]


@pytest.mark.asan
def test_its_policy_allows_what_is_in_it_and_nothing_else(page):
    def hash_of(tag):
        return "'sha256-" + base64.b64encode(hashlib.sha256(inside(page.text, tag).encode()).digest()).decode() + "'"
    policy = dict(x.strip().partition(" ")[::2] for x in page.headers["content-security-policy"].split(";"))
    assert policy == {"default-src": "'none'", "connect-src": "'self'", "script-src": hash_of("script"), "style-src": hash_of("style"),
                      "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'",
                      "require-trusted-types-for": "'script'", "trusted-types": "'none'"}
    assert {k: page.headers[k] for k in ("x-content-type-options", "referrer-policy", "cache-control", "x-frame-options",
                                         "cross-origin-opener-policy", "cross-origin-resource-policy")} == {
        "x-content-type-options": "nosniff", "referrer-policy": "no-referrer", "cache-control": "no-store", "x-frame-options": "DENY",
        "cross-origin-opener-policy": "same-origin", "cross-origin-resource-policy": "same-origin"}


def test_a_service_in_trouble_has_it_too(aned, tmp_path):
    """The page can tell what is wrong; it would not come if it had to wait until that is mended."""
    home = make_home(tmp_path / "home", conf="[http]\nlisten = nowhere\n")
    p = subprocess.Popen([aned, "serve", "--service", "--home", home, "--socket", tmp_path / "s" / "a"], stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until((tmp_path / "s" / "a").exists)
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(tmp_path / "s" / "a"), verify=False), base_url="http://a") as c:
            assert c.get("/", headers=HTML).text.startswith("<!doctype")
            assert c.get("/").status_code == 503 and "nowhere" in c.get("/aned/v1/status").json()["error"]["message"]
    finally:
        p.terminate()
        assert p.wait(60 * SLOW_S) == 0


def test_its_source(page):
    """It stands in the tree as it is sent, takes nothing from elsewhere, and writes no markup."""
    limit = re.search(r"HTTP_PAGE_MAX +KIB\((\d+)\)", (TOP / "proto" / "limits.h").read_text())
    assert len(page.content) < int(limit.group(1)) * 1024
    for f in SOURCES.glob("*.js"):
        assert f.read_text() in page.text, f
    assert (SOURCES / "page.css").read_text() in page.text
    addresses = set(re.findall(r"https?://[^\"'\s)`]*", page.text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, which nobody asks for
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|localStorage|cookie", page.text)
    assert not re.search(r"<[^>]+\s(on\w+|style)=", page.text)


def test_without_tcp_anectl_says_what_to_set(anectl, aned, tmp_path):
    x = Daemon(aned, home=make_home(tmp_path / "home"))
    try:
        r = Ctl(anectl, x.sock)("page", code=65)
        assert "listen = 127.0.0.1:11435" in r.stderr and "[http]" in r.stderr and r.stdout == ""
    finally:
        assert x.close() == 0


def test_anectl_tells_the_address_and_opens_it(anectl, d, tmp_path):
    ctl = Ctl(anectl, d.sock)
    assert ctl("page").stdout == d.url + "\n"
    assert ctl.json("page") == {"url": d.url, "key_needed": True}
    opener = tmp_path / "xdg-open"  # in place of the system's
    opener.write_text(f"#!/bin/sh\nprintf '%s' \"$*\" >{tmp_path}/part && mv {tmp_path}/part {tmp_path}/told\n")
    opener.chmod(0o755)
    shutil.copy(opener, tmp_path / "open")  # macOS's
    ctl.env["PATH"] = f"{tmp_path}:{ctl.env['PATH']}"
    assert ctl("page", "--open").stdout == d.url + "\n"
    until((tmp_path / "told").exists)
    assert (tmp_path / "told").read_text() == d.url  # and no key


# --- the streams that it tells of ---

@pytest.mark.asan
def test_streams(d):
    """One that decodes, with a client that reads; nothing when it has left."""
    with d.http() as c:
        assert c.get("/aned/v1/streams").json() == {"streams": []}
        body = {"model": "fake", "prompt": "hello", "max_tokens": 400, "stream": True, "service_tier": "flex", "n": 2}
        with c.stream("POST", "/v1/completions", json=body) as r:
            lines = r.iter_lines()
            while "text" not in next(lines):
                pass
            with d.http() as o:
                a = o.get("/aned/v1/streams").json()["streams"]
                until(lambda: o.get("/aned/v1/streams").json()["streams"][0]["output_tokens"] > a[0]["output_tokens"])
            assert len(a) == 2 and len({x["number"] for x in a}) == 2
            x = a[0]
            assert {k: x[k] for k in ("model", "class", "phase")} == {"model": "fake", "class": "batch", "phase": "decoding"}
            assert x["prompt_tokens"] == x["computed_tokens"] > 0 and x["output_tokens"] >= 1 and x["age_ms"] >= 0
        until(lambda: c.get("/aned/v1/streams").json() == {"streams": []})
        s = c.get("/aned/v1/status").json()["counters"]
        assert s["steps"] > 0 and s["step_us"] > 0


@pytest.mark.asan
def test_streams_that_wait(aned, tmp_path):
    x = Daemon(aned, home=make_home(tmp_path / "home", conf="[limits]\nstreams = 1\n", fake="delay_us 20000\n"))
    try:
        with x.http() as c:
            body = {"model": "fake", "prompt": "hello", "max_tokens": 400, "stream": True, "n": 2}
            with c.stream("POST", "/v1/completions", json=body) as r, x.http() as o:
                lines = r.iter_lines()
                while '"text"' not in next(lines):
                    pass
                one, two = o.get("/aned/v1/streams").json()["streams"]
                assert (one["phase"], two["phase"]) == ("decoding", "waiting") and one["class"] == two["class"] == "interactive"
                assert two["output_tokens"] == two["computed_tokens"] == 0 and two["number"] == one["number"] + 1
    finally:
        assert x.close() == 0


# --- in a browser ---

@pytest.fixture(scope="module")
def browser():
    b = Browser()
    yield b
    b.close()


@pytest.fixture
def tab(browser):
    made = []

    def go(url, **kw):
        made.append(browser.page(url, **kw))
        return made[-1]
    yield go
    for p in made:
        assert p.complaints() == []
        p.close()


@pytest.fixture(scope="module")
def demo(demo_home, aned):
    """The demo model, one whose words are hostile, and a job that failed; the port stays when the daemon is started again."""
    (demo_home / "aned.conf").write_text(f"[http]\nlisten = 127.0.0.1:{free_port()}\n")
    x = Daemon(aned, home=demo_home)
    x.url, x.key = at(x)
    yield x
    assert x.close() == 0


@pytest.fixture(scope="module")
def hostile(demo, tmp_path_factory):
    tmp = tmp_path_factory.mktemp("hostile")
    patch = pytest.MonkeyPatch()
    patch.setattr(scripted, "TEMPLATE", scripted.TEMPLATE.replace(
        "{{ shown(m.content) }}", "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n{% endif %}{{ shown(m.content) }}"))
    path = scripted.write(tmp / "hostile.gguf", [scripted.Script(f"<think>\nI think <i>that</i>.\n</think>\n\n{HOSTILE}")])
    patch.undo()
    assert demo.convert(path, "hostile", context=512)["state"] == "done"
    junk = tmp / "<u>junk.gguf"
    junk.write_bytes(b"GGUF" + b"\0" * 20)
    with demo.http() as c:
        c.post("/aned/v1/jobs", json={"source": str(junk), "name": "junk"})
    return "hostile"


def enter(p, key):
    p.until("!document.querySelector('#door').hidden")
    p.type("#key", key)
    p.enter()


def opened(tab, d, **kw):
    p = tab(d.url, **kw)
    enter(p, d.key)
    p.until("document.querySelector('#link').textContent === 'connected'")
    return p


def say(p, text):
    p.until("!document.querySelector('#send').disabled")
    p.type("#ask", text)
    p.enter()


ENDED = "['Answer complete', 'Stopped'].includes(document.querySelector('#chat-said').textContent)"


def test_without_a_key_it_asks_for_it(tab, d):
    p = tab(d.url)
    p.until("!document.querySelector('#door').hidden")
    assert "anectl key" in p.text("#door") and not p.shown("#board") and p.text("#door-error") == ""
    assert p.js("document.activeElement.id") == "key"


def test_a_wrong_key_is_said_and_the_right_one_is_kept_for_the_tab(tab, d):
    p = tab(d.url)
    enter(p, "aned-wrong")
    p.until("document.querySelector('#door-error').textContent.includes('anectl key')")
    assert not p.shown("#board") and p.js("sessionStorage.length") == 0
    enter(p, "no\u00a0key ä")
    assert "neither spaces" in p.text("#door-error")
    p.js("document.querySelector('#key').value = ''")
    enter(p, d.key)
    p.until("document.querySelector('#models th')")
    p.go(d.url)  # the tab keeps it
    p.until("document.querySelector('#models th')")
    assert not p.shown("#door") and p.js("localStorage.length") == 0 and p.js("document.cookie") == ""
    assert all(d.key not in a and a.startswith(d.url) for a in p.addresses())
    p.click("#forget")
    p.until("document.querySelector('#door') && !document.querySelector('#door').hidden")
    assert p.js("sessionStorage.length") == 0


def test_a_key_that_is_replaced(anectl, aned, tab, tmp_path):
    x = Daemon(aned, home=make_home(tmp_path / "home", conf=CONF))
    try:
        x.url, x.key = at(x)
        p = opened(tab, x)
        new = Ctl(anectl, x.sock)("key", "--new").stdout.strip()
        p.until("document.querySelector('#door-error').textContent.includes('not any more')")
        assert not p.shown("#board")
        enter(p, new)
        p.until("document.querySelector('#link').textContent === 'connected'")
    finally:
        assert x.close() == 0


def test_open_to_all_there_is_no_key_to_ask_for(aned, tab, tmp_path):
    x = Daemon(aned, home=make_home(tmp_path / "home", conf=CONF + "allow_unauthenticated = yes\n"))
    try:
        p = tab(at(x)[0])
        p.until("document.querySelector('#models th')")
        assert not p.shown("#door") and not p.shown("#forget")
        say(p, "hello")
        p.until(ENDED)
    finally:
        assert x.close() == 0


def test_no_models(aned, tab, tmp_path):
    x = Daemon(aned, home=make_home(tmp_path / "home", models=(), conf=CONF))
    try:
        x.url, x.key = at(x)
        p = opened(tab, x)
        p.until("document.querySelector('#models-none').checkVisibility()")
        assert "anectl convert" in p.text("#models-none") and not p.shown("#models-table")
        assert p.js("document.querySelector('#send').disabled") and "None runs" in p.text("#streams-none")
    finally:
        assert x.close() == 0


def test_a_chat_with_the_demo_model(tab, demo):
    p = opened(tab, demo)
    p.js("document.querySelector('#model').value = 'demo'")
    say(p, "What is aned?")
    p.until(ENDED)
    assert "local inference daemon" in p.text("#talk article:last-child .text")
    assert re.search(r"\d+ tokens, [\d.]+ a second", p.text("#talk article:last-child .note"))
    say(p, "How do I list the models?")
    p.until("document.querySelectorAll('#talk article').length === 4 && " + ENDED)
    p.until("document.querySelector('#models .good')")
    assert "loaded" in p.text("#models") and " MB" in p.text("#models")
    p.until("/last [1-9]|highest [1-9]/.test(document.querySelector('figcaption').textContent)")
    assert re.search(r"\d ms, lowest", p.text("#plots")) and p.js("document.querySelectorAll('#plots path.line').length") >= 2
    assert "since the start" in p.text("#tiles")
    p.click("#fresh")
    assert p.text("#talk") == ""
    p.type("#ask", "one")
    p.press("Enter", 13, "\r", shift=True)
    assert p.js("document.querySelector('#ask').value") == "one\n" and p.text("#talk") == ""


def test_streams_are_shown_and_stop_stops(tab, d):
    p = opened(tab, d)
    say(p, "go on")
    p.until("document.querySelector('#streams th')")
    p.until("document.querySelector('#chat-said').textContent === 'Answering'")
    assert re.search(r"fake\s+chat\s+decoding", p.text("#streams")) and p.shown("#streams-table")
    p.until("/^[\\d.]+$/.test(document.querySelector('#streams tr').children[5].textContent)")
    assert p.js("document.querySelector('#send').disabled") and not p.js("document.querySelector('#stop').disabled")
    p.click("#stop")
    p.until(ENDED)
    assert "stopped" in p.text("#talk .note:last-child") and len(p.text("#talk article:last-child .text")) > 0
    p.until("document.querySelector('#streams-none').checkVisibility()")
    with d.http() as c:
        until(lambda: c.get("/aned/v1/status").json()["running"] == 0)


def test_a_load_shows_how_far_it_is(tab, aned, tmp_path):
    x = Daemon(aned, home=make_home(tmp_path / "home", conf=CONF, fake="warm_ms 1000\n"))
    try:
        x.url, x.key = at(x)
        p = opened(tab, x)
        say(p, "hello")
        p.until("document.querySelector('#models progress')")
        p.until("/being loaded: warming \\d+ %/.test(document.querySelector('#chat-said').textContent)")
        assert "warming" in p.text("#models") and p.js("document.querySelector('#models progress').value") < 1
        p.until(ENDED)
        p.until("!document.querySelector('#models progress')")
    finally:
        assert x.close() == 0


def test_a_job_shows_how_far_it_is(tab, demo, demo_gguf):
    p = opened(tab, demo)
    with demo.http() as c:
        job = c.post("/aned/v1/jobs", json={"source": str(demo_gguf), "name": "later", "quant": "lut4", "context": 256}).json()["id"]
    p.until("document.querySelector('#jobs tr[data-key=\"%s\"] progress')" % job)
    row = "document.querySelector('#jobs tr[data-key=\"%s\"]')" % job
    assert re.search(r"later\s+(queued|running|gating)", p.text("#jobs"))
    p.until(row + ".textContent.includes('done')", 240)
    assert not p.js(row + ".querySelector('progress')")
    p.until("[...document.querySelectorAll('#model option')].some(o => o.value === 'later')")
    with demo.http() as c:
        assert c.delete("/aned/v1/models/later").status_code == 200
    p.until("![...document.querySelectorAll('#model option')].some(o => o.value === 'later')")


def test_words_of_models_and_jobs_are_text_and_thoughts_are_apart(tab, demo, hostile):
    p = opened(tab, demo)
    p.until(f"[...document.querySelectorAll('#model option')].some(o => o.value === '{hostile}')")
    p.js(f"document.querySelector('#model').value = '{hostile}'")
    say(p, HOSTILE)
    p.until(ENDED)
    assert p.text("#talk .mine .text") == HOSTILE and p.text("#talk article:last-child > .text").strip() == HOSTILE
    assert p.js("document.querySelector('.thoughts').textContent").strip() == "I think <i>that</i>."
    assert not p.js("document.querySelector('details:has(.thoughts)').open")
    p.until("document.querySelector('#jobs').textContent.includes('junk')")
    assert p.js("document.querySelectorAll('#board img, #board b, #board i, #board u').length") == 0


def test_errors_say_what_to_do(tab, demo):
    p = opened(tab, demo)
    p.js("document.querySelector('#model').value = 'demo'")
    say(p, "word " * 3000)
    p.until("document.querySelector('#chat-error').textContent")
    assert "context size" in p.text("#chat-error") and "Begin a new chat" in p.text("#chat-error")
    assert p.js("document.querySelector('#ask').value.length") > 10000  # what was asked is not lost
    with demo.http() as c:
        assert c.get("/health").status_code == 200


def test_a_daemon_that_ends_and_comes_back(tab, aned, tmp_path):
    x = Daemon(aned, home=make_home(tmp_path / "home", conf=f"[http]\nlisten = 127.0.0.1:{free_port()}\n", fake="delay_us 20000\n"))
    try:
        x.url, x.key = at(x)
        p = opened(tab, x)
        say(p, "go on")
        p.until("document.querySelector('#chat-said').textContent === 'Answering'")
        x.kill()
        p.until("document.querySelector('#lost').checkVisibility()")
        assert p.text("#link") == "no connection" and "Next try in" in p.text("#lost") and p.shown("#board")
        p.until("document.querySelector('#chat-error').textContent.includes('send it again')")
        p.until("tries >= 2")  # it waits longer each time
        x.start()
        p.click("#retry")
        p.until("document.querySelector('#link').textContent === 'connected'")
        assert not p.shown("#lost") and not p.shown("#door")
        say(p, "again")
        p.until("document.querySelector('#chat-said').textContent === 'Answering'")
        x.stop()
        x.start()
        p.until("document.querySelector('#link').textContent === 'connected' && tries === 0")  # also by itself
    finally:
        assert x.close() == 0


def test_something_else_at_its_address(tab, aned, tmp_path):
    """What answers there is no daemon: nothing of it is shown as one."""
    x = Daemon(aned, home=make_home(tmp_path / "home", conf=CONF))
    x.url, x.key = at(x)
    p = opened(tab, x)
    assert x.close() == 0
    with socket.create_server(("127.0.0.1", int(x.url.rstrip("/").rsplit(":", 1)[1]))) as s:
        def serve():
            for body in [b"<b>hello"] * 4 + [b'{"status": 7}'] * 100:
                try:
                    c, _ = s.accept()
                except OSError:
                    return
                with c:
                    c.recv(65536)
                    c.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        t = threading.Thread(target=serve, daemon=True)
        t.start()
        p.until("document.querySelector('#lost').checkVisibility()")
        assert p.text("#link") == "no connection"
        p.until("document.querySelector('#lost-title').textContent.includes('not as expected')")
        assert "Reload this page" in p.text("#lost-why")
        s.shutdown(socket.SHUT_RDWR)
    t.join(30)


def test_nothing_is_asked_while_the_tab_is_hidden(tab, d):
    p = opened(tab, d)
    p.js("Object.defineProperty(document, 'hidden', {get: () => window.hide, configurable: true}); window.hide = true; "
         "document.dispatchEvent(new Event('visibilitychange'))")
    time.sleep(1.5)
    before = len(p.addresses())
    time.sleep(3)
    assert len(p.addresses()) == before
    p.js("window.hide = false; document.dispatchEvent(new Event('visibilitychange'))")
    until(lambda: len(p.addresses()) > before)


# --- for everybody ---

@pytest.fixture(scope="module")
def axe():
    """The text of axe-core; fetched once into .build."""
    npm, folder = shutil.which("npm"), TOP / ".build" / "npm-axe"
    if npm is None:
        pytest.skip("npm is not there: axe-core cannot be fetched")
    file, stamp = folder / "node_modules" / "axe-core" / "axe.min.js", folder / ".packages"
    if not stamp.exists() or stamp.read_text() != AXE:
        folder.mkdir(parents=True, exist_ok=True)
        r = subprocess.run([npm, "install", "--prefix", folder, "--no-audit", "--no-fund", "--loglevel=error", AXE], capture_output=True,
                           text=True, stdin=subprocess.DEVNULL, timeout=300)
        if r.returncode != 0:
            pytest.skip(f"axe-core cannot be fetched: {r.stderr[-300:]}")
        stamp.write_text(AXE)
    return file.read_text()


def violations(p, axe):
    p.js(f"{axe}; 0")  # the debugger's, which the page's policy does not bind
    found = p.js("axe.run(document, {resultTypes: ['violations', 'incomplete']}).then(r => ({"
                 "violations: r.violations.map(v => [v.id, v.nodes.map(n => n.html + ' ' + n.failureSummary)]), passes: r.passes.length}))")
    assert found["passes"] > 10
    return found["violations"]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_axe_finds_nothing(tab, demo, hostile, axe, width, dark):
    p = opened(tab, demo, width=width, dark=dark)
    p.js(f"document.querySelector('#model').value = '{hostile}'")
    say(p, "What is aned?")
    p.until(ENDED)
    p.until("document.querySelector('#jobs').textContent.includes('junk')")
    p.js("document.querySelectorAll('details').forEach(e => e.open = true)")
    assert violations(p, axe) == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_at_the_door_or_when_it_is_lost(tab, aned, tmp_path, axe, dark):
    x = Daemon(aned, home=make_home(tmp_path / "home", conf=CONF))
    x.url, x.key = at(x)
    try:
        p = tab(x.url, dark=dark)
        enter(p, "wrong")
        p.until("document.querySelector('#door-error').textContent")
        assert violations(p, axe) == []
        enter(p, x.key)
        p.until("document.querySelector('#models th')")
    finally:
        assert x.close() == 0
    p.until("document.querySelector('#lost').checkVisibility()")
    assert violations(p, axe) == []


def test_at_400_pixels_nothing_is_beside_the_page(tab, demo):
    p = opened(tab, demo, width=400)
    p.until("document.querySelector('#models th')")
    say(p, "x" * 300)
    p.until(ENDED)
    assert p.js("document.documentElement.scrollWidth") == 400


def test_by_the_keyboard_alone(tab, demo):
    p = opened(tab, demo)
    p.go(demo.url)
    p.until("document.querySelector('#models th')")
    stops = []
    for _ in range(16):
        p.tab()
        stops.append(p.js("document.activeElement.id || document.activeElement.getAttribute('href') || document.activeElement.tagName"))
        assert p.js("document.activeElement === document.body || getComputedStyle(document.activeElement).outlineStyle !== 'none'"), stops
    want = ["#main", "#chat", "forget", "SUMMARY", "models-table", "model", "fresh", "talk", "ask", "send"]
    assert [s for s in stops if s in want][:len(want)] == want, stops
    p.go(demo.url)
    p.until("document.querySelector('#models th')")
    p.tab()
    p.tab()
    p.enter()  # the second way past
    p.tab()
    assert p.js("document.activeElement.id") == "model"


def test_live_regions_are_quiet_and_nothing_moves(tab, d):
    """While figures and an answer come, those who listen are told of the answer's beginning and end alone."""
    p = opened(tab, d, still=True)
    p.js("window.told = []; for (const e of document.querySelectorAll('[role=status], [role=alert], [aria-live]')) "
         "new MutationObserver(() => told.push(e.textContent)).observe(e, {childList: true, characterData: true, subtree: true})")
    say(p, "go on")
    p.until("document.querySelector('#chat-said').textContent === 'Answering'")
    time.sleep(2.5)
    assert p.js("document.getAnimations().length") == 0
    p.click("#stop")
    p.until(ENDED)
    told = p.js("told")
    assert told[-2:] == ["Answering", "Stopped"] and len(told) <= 4, told
    assert p.js("getComputedStyle(document.querySelector('#talk')).ariaLive || document.querySelector('#talk').ariaLive") in (None, "", "off")
