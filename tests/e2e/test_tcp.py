"""Loopback TCP: off by default; then only with the key, by this machine's names, and for no web page that is not listed. The
attacks are those of SECURITY.md, a test each."""
import concurrent.futures
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess

import anthropic
import httpx
import openai
import pytest

from activation import spawn
from conftest import SLOW_S, TOP, Daemon, status, until
from fake import make_home

pytestmark = pytest.mark.asan

ASK = {"model": "fake", "prompt": "hello", "max_tokens": 8, "temperature": 0}
CHAT = {"model": "fake", "max_tokens": 8, "messages": [{"role": "user", "content": "hello"}]}
CONF = "[http]\nlisten = 127.0.0.1:0\n"
PAGE = "http://localhost:3000"


def tcp_inodes(pid):
    """Sockets of TCP that a process has: the numbers of its descriptors, looked up in /proc/net. A child that has ended
    meanwhile has none."""
    mine, rows = set(), []
    with contextlib.suppress(FileNotFoundError):
        for f in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                mine.add(os.readlink(f"/proc/{pid}/fd/{f}"))
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError):
            rows += open(f"/proc/self/net/{name}").read().splitlines()[1:]
    return [r for r in rows if f"socket:[{r.split()[9]}]" in mine]


def addresses(d):
    return [x["address"] for x in status(d)["listeners"] if x["transport"] == "tcp"]


def key_of(d):
    return (d.home / "http.key").read_text().strip()


def port_of(d):
    return int(addresses(d)[0].rsplit(":", 1)[1])


@pytest.fixture(scope="module")
def d(aned, tmp_path_factory):
    home = make_home(tmp_path_factory.mktemp("tcp") / "home", conf=CONF + f"cors_origins = {PAGE}, app://obsidian.md\n")
    x = Daemon(aned, home=home)
    x.port, x.key = port_of(x), key_of(x)
    yield x
    assert x.close() == 0


@pytest.fixture
def start(aned, tmp_path):
    made = []

    def go(conf=CONF, fake="", args=()):
        made.append(Daemon(aned, home=make_home(tmp_path / f"h{len(made)}", conf=conf, fake=fake), args=args))
        return made[-1]
    yield go
    for x in made:
        assert x.close() == 0


def web(d, key=True, **kw):
    head = {"Authorization": f"Bearer {d.key}"} if key else {}
    return httpx.Client(base_url=f"http://127.0.0.1:{d.port}", headers=head, timeout=120 * SLOW_S, **kw)


def connect(d):
    s = socket.create_connection(("127.0.0.1", d.port))
    s.settimeout(60 * SLOW_S)
    return s


def read_all(s):
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while chunk := s.recv(65536):
            data += chunk
    return data


def raw(d, data, half_close=False):
    """All that comes back for these bytes, until the daemon closes."""
    with connect(d) as s:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            s.sendall(data)
        if half_close:
            s.shutdown(socket.SHUT_WR)
        return read_all(s)


def head(d, *lines, method="GET", path="/v1/models", host=True, key=True, version="1.1", end="\r\n"):
    own = ([f"Host: 127.0.0.1:{d.port}"] if host else []) + ([f"Authorization: Bearer {d.key}"] if key else [])
    return "".join(x + end for x in [f"{method} {path} HTTP/{version}", *own, *lines]).encode() + end.encode()


def codes(data):
    return [int(x) for x in re.findall(rb"HTTP/1\.1 (\d{3}) ", data)]


def refused(d, data, code):
    """One answer with that code, and the connection ends; the daemon is well."""
    got = raw(d, data)
    assert codes(got) == [code], got[:400]
    assert b"\r\nConnection: close\r\n" in got and d.key.encode() not in got
    assert b'"object":"list"' not in got
    error = json.loads(got.split(b"\r\n\r\n", 1)[1])["error"]
    assert d.proc.poll() is None
    return error


def answered(d, data):
    got = raw(d, data)
    assert codes(got) == [200], got[:400]
    return got


CLOSE = "Connection: close"


# --- off by default, and where it listens ---

def test_without_the_option_nothing_listens(aned, tmp_path):
    x = Daemon(aned, home=make_home(tmp_path / "home"))
    try:
        with x.http() as c:
            assert c.post("/v1/completions", json=ASK).status_code == 200
        for pid in (x.proc.pid, *x.children()):
            assert tcp_inodes(pid) == []
        assert addresses(x) == [] and not (x.home / "http.key").exists()
    finally:
        assert x.close() == 0


def test_with_it_only_the_daemon_listens_and_only_on_loopback(d):
    with d.http() as c:
        assert c.post("/v1/completions", json=ASK).status_code == 200
    rows = [r for r in tcp_inodes(d.proc.pid) if r.split()[3] == "0A"]
    assert [r.split()[1] for r in rows] == [f"0100007F:{d.port:04X}"]
    assert d.children() and all(tcp_inodes(pid) == [] for pid in d.children())
    assert f"tcp=127.0.0.1:{d.port} key=yes" in d.log.read_text()


def test_several_addresses(start):
    x = start(conf="[http]\nlisten = 127.0.0.1:0, 127.0.0.2:0\n")
    key = key_of(x)
    got = addresses(x)
    assert [a.split(":")[0] for a in got] == ["127.0.0.1", "127.0.0.2"]
    for a in got:
        assert httpx.get(f"http://{a}/health", headers={"x-api-key": key}).status_code == 200
    # a page's name for another listener's address is not this one's
    assert httpx.get(f"http://{got[0]}/health", headers={"x-api-key": key, "Host": got[1]}).status_code == 403


def test_localhost_is_both(start):
    x = start(conf="[http]\nlisten = localhost:0\n")
    got = addresses(x)
    assert got[0].startswith("127.0.0.1:")
    if len(got) > 1:  # a machine may have no ::1
        assert got[1].startswith("[::1]:")
        assert httpx.get(f"http://{got[1]}/health", headers={"x-api-key": key_of(x)}).status_code == 200


@pytest.mark.parametrize("where", ["0.0.0.0:11435", "[::]:11435", "192.0.2.1:11435", "example.com:11435", "11435"])
def test_what_is_not_loopback_ends_the_start(aned, tmp_path, where):
    home = make_home(tmp_path / "home", conf=f"[http]\n\nlisten = {where}\n")
    r = subprocess.run([aned, "serve", "--home", home, "--socket", tmp_path / "s" / "a"], capture_output=True, text=True)
    assert r.returncode == 78 and "aned.conf:5: 'listen': " in r.stderr and where.rsplit(":", 1)[0] in r.stderr


def test_a_port_in_use_ends_the_start(aned, tmp_path, d):
    home = make_home(tmp_path / "home", conf=f"[http]\nlisten = 127.0.0.1:0 127.0.0.1:{d.port}\n")
    r = subprocess.run([aned, "serve", "--home", home, "--socket", tmp_path / "s" / "a"], capture_output=True, text=True)
    assert r.returncode == 75 and f"conflict: 127.0.0.1:{d.port}: another program listens there" in r.stderr
    assert not (tmp_path / "s" / "a").exists()


def test_a_service_says_that_the_port_is_in_use_and_goes_on_when_it_is_free(aned, tmp_path):
    holder = socket.create_server(("127.0.0.1", 0))
    port = holder.getsockname()[1]
    home = make_home(tmp_path / "home", conf=f"[http]\nlisten = 127.0.0.1:{port}\n")
    log = open(tmp_path / "log", "wb")
    p = subprocess.Popen([aned, "serve", "--service", "--home", home, "--socket", tmp_path / "s" / "a"],
                         stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        c = httpx.Client(transport=httpx.HTTPTransport(uds=str(tmp_path / "s" / "a"), verify=False), base_url="http://a")
        until(lambda: (tmp_path / "s" / "a").exists())
        r = c.get("/v1/models")
        assert r.status_code == 503 and f"127.0.0.1:{port}: another program listens there" in r.json()["error"]["message"]
        holder.close()
        until(lambda: c.get("/v1/models").status_code == 200)
        key = (home / "http.key").read_text().strip()
        assert httpx.get(f"http://127.0.0.1:{port}/v1/models", headers={"x-api-key": key}).status_code == 200
    finally:
        p.send_signal(signal.SIGTERM)
        assert p.wait(60 * SLOW_S) == 0
        log.close()


# --- who gets in ---

def test_curl(d):
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not there")
    r = subprocess.run([curl, "-sS", "-N", "--fail", f"http://localhost:{d.port}/v1/completions", "-H", "Content-Type: application/json",
                        "-H", f"Authorization: Bearer {d.key}", "-d", json.dumps(dict(ASK, stream=True))],
                       capture_output=True, text=True, timeout=60 * SLOW_S)
    assert r.returncode == 0 and r.stdout.endswith("data: [DONE]\n\n")


def test_the_openai_sdk(d):
    with openai.OpenAI(base_url=f"http://127.0.0.1:{d.port}/v1", api_key=d.key, max_retries=0) as c:
        assert [m.id for m in c.models.list()] == ["fake"]
        whole = c.chat.completions.create(**CHAT, temperature=0)
        text = "".join(x.choices[0].delta.content or "" for x in c.chat.completions.create(**CHAT, temperature=0, stream=True))
        assert text and text == whole.choices[0].message.content
    with openai.OpenAI(base_url=f"http://127.0.0.1:{d.port}/v1", api_key="wrong", max_retries=0) as c:
        with pytest.raises(openai.AuthenticationError, match="anectl key"):
            c.models.list()


def test_the_anthropic_sdk(d):
    for kw in ({"api_key": d.key}, {"auth_token": d.key}):
        with anthropic.Anthropic(base_url=f"http://127.0.0.1:{d.port}", max_retries=0, **kw) as c:
            whole = c.messages.create(**CHAT, extra_body={"temperature": 0})
            with c.messages.stream(**CHAT, extra_body={"temperature": 0}) as s:
                assert s.get_final_text() == whole.content[0].text != ""
    with anthropic.Anthropic(base_url=f"http://127.0.0.1:{d.port}", max_retries=0, api_key="wrong") as c:
        with pytest.raises(anthropic.AuthenticationError, match="anectl key") as e:
            c.messages.create(**CHAT)
    assert e.value.body["error"]["type"] == "authentication_error"


def test_the_ollama_dialect(d):
    with web(d) as c:
        assert c.get("/").text == "Ollama is running"
        assert c.post("/api/chat", json=dict(CHAT, stream=False, max_tokens=None)).json()["message"]["content"]
    with web(d, key=False) as c:
        r = c.post("/api/chat", json=CHAT)
        assert r.status_code == 401 and "anectl key" in r.json()["error"]  # a text, as Ollama has it
        assert c.get("/").status_code == 401


def test_every_route_needs_the_key(d):
    paths = json.loads((TOP / "proto" / "api.json").read_text())["paths"]
    with web(d, key=False) as c:
        for path, methods in paths.items():
            for m in methods:
                r = c.request(m.upper(), re.sub(r"\{\w+\}", "x", path), json={} if m == "post" else None)
                assert r.status_code == 401 and r.headers["www-authenticate"] == "Bearer", (m, path)
        assert c.get("/nothing").status_code == 401  # what exists is not told either


def test_the_unix_socket_needs_none(d):
    with d.http() as c:
        assert c.get("/v1/models").status_code == 200
        assert c.get("/v1/models", headers={"Origin": "http://evil.example"}).status_code == 200
        assert c.post("/v1/completions", content=json.dumps(ASK), headers={"Content-Type": "text/plain"}).status_code == 200


def test_keep_alive(d):
    with connect(d) as s:
        for _ in range(3):
            s.sendall(head(d, path="/health"))
            got = b""
            while not got.endswith(b'{"status":"ok"}'):
                assert (chunk := s.recv(4096)), got
                got += chunk
            assert b"Connection:" not in got


def test_a_client_that_leaves_is_cancelled(start):
    """Also while it waits for its answer: over TCP the end of input means that."""
    x = start(fake="delay_us 20000\n")
    x.port, x.key = port_of(x), key_of(x)
    body = json.dumps(dict(ASK, max_tokens=400)).encode()
    with connect(x) as s:
        s.sendall(head(x, "Content-Type: application/json", f"Content-Length: {len(body)}", method="POST",
                       path="/v1/completions") + body)
        until(lambda: status(x)["running"] == 1)
    until(lambda: status(x)["running"] == 0)
    with web(x) as c, c.stream("POST", "/v1/completions", json=dict(ASK, max_tokens=400, stream=True)) as r:
        next(r.iter_lines())
    until(lambda: status(x)["running"] == 0)
    with x.http() as c:
        assert "aned_generations_cancelled_total 2" in c.get("/metrics").text


def test_metrics_say_the_transport(d):
    with web(d) as c:
        text = c.get("/metrics").text
    for name in ("connections_total", "connections_open", "requests_total"):
        for kind in ("unix", "tcp"):
            m = re.search(rf'^aned_http_transport_{name}{{transport="{kind}"}} (\d+)$', text, re.M)
            assert m and (int(m.group(1)) > 0 or (kind, name) == ("unix", "connections_open")), (name, kind)
    assert re.search(r"^aned_http_refused_key_total \d+$", text, re.M)


def test_open_to_all_by_option(start):
    x = start(conf=CONF + "allow_unauthenticated = yes\n")
    x.port, x.key = port_of(x), "none"
    with web(x, key=False) as c:
        assert c.get("/v1/models").status_code == 200
        assert not (x.home / "http.key").exists()  # nothing needs one
        # but still for no page
        assert c.get("/v1/models", headers={"Origin": PAGE}).status_code == 403
        assert c.get("/v1/models", headers={"Host": "evil.example"}).status_code == 403
        assert c.post("/v1/completions", content="{}", headers={"Content-Type": "text/plain"}).status_code == 415
        assert c.post("/v1/completions", content="{}").status_code == 415  # as a page's beacon


# --- the key ---

def test_the_keys_file(d):
    st = os.stat(d.home / "http.key")
    assert stat.S_IMODE(st.st_mode) == 0o600 and st.st_uid == os.geteuid()
    assert re.fullmatch(r"aned-[0-9a-f]{64}\n", (d.home / "http.key").read_text())


def test_a_key_that_others_may_know_is_refused(aned, tmp_path):
    home = make_home(tmp_path / "home", conf=CONF)
    key = home / "http.key"
    key.write_text("0123456789abcdef0123456789abcdef\n")
    for mode in (0o644, 0o640, 0o666):
        key.chmod(mode)
        r = subprocess.run([aned, "serve", "--home", home, "--socket", tmp_path / "s" / "a"], capture_output=True, text=True)
        assert r.returncode == 78 and "http.key" in r.stderr and f"{mode:04o}" in r.stderr and "0123456789" not in r.stderr


def test_the_key_stays_over_a_restart(start):
    x = start()
    key = key_of(x)
    assert x.stop() == 0
    x.start()
    assert key_of(x) == key
    assert httpx.get(f"http://{addresses(x)[0]}/v1/models", headers={"x-api-key": key}).status_code == 200


def test_the_key_is_nowhere_else(d):
    with web(d, key=False) as c:
        c.get("/v1/models", headers={"Authorization": f"Bearer {d.key}x"})
        c.get(f"/v1/models?key={d.key}")
    with web(d) as c:
        for path in ("/aned/v1/status", "/metrics", "/v1/models"):
            assert d.key not in c.get(path).text
    assert d.key not in d.log.read_text()
    for pid in (d.proc.pid, *d.children()):
        for name in ("cmdline", "environ"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a child may have ended
                assert d.key.encode() not in open(f"/proc/{pid}/{name}", "rb").read()


def test_anectl_key(d, anectl, tmp_path):
    def say(*args, **env):
        return subprocess.run([anectl, *args], capture_output=True, text=True, env=dict(os.environ, ANED_SOCKET=str(d.sock), **env))
    assert say("key").stdout.strip() == d.key
    assert say("key", "--path").stdout.strip() == str(d.home / "http.key")
    assert json.loads(say("--json", "key").stdout) == {"key_file": str(d.home / "http.key"), "key": d.key}
    assert f"tcp      127.0.0.1:{d.port}, with the key" in say("status").stdout


def test_anectl_over_tcp(d, anectl):
    env = {k: v for k, v in os.environ.items() if not k.startswith("ANED_")}

    def say(*args, **more):
        return subprocess.run([anectl, "--url", f"http://localhost:{d.port}/", *args], capture_output=True, text=True,
                              env=dict(env, **more))
    assert "fake" in say("models", ANED_API_KEY=d.key).stdout
    assert "fake" in say("models", "--key-file", str(d.home / "http.key")).stdout
    r = say("models")
    assert r.returncode == 77 and "unauthorized" in r.stderr and "--key-file" in r.stderr
    assert say("key", "--new", ANED_API_KEY=d.key).returncode == 77  # a stolen key must not lock its owner out
    for url in ("http://192.0.2.1:80", "https://127.0.0.1:80", "http://127.0.0.1", "http://127.0.0.1:80/x", "http://a@127.0.0.1:80"):
        assert subprocess.run([anectl, "--url", url, "models"], capture_output=True, env=env).returncode == 64


def test_a_new_key_ends_the_old_one_at_once(start, anectl):
    x = start()
    x.port, x.key = port_of(x), key_of(x)
    with web(x) as c:  # a connection that stays open
        assert c.get("/v1/models").status_code == 200
        r = subprocess.run([anectl, "--socket", x.sock, "key", "--new"], capture_output=True, text=True)
        assert r.returncode == 0 and r.stdout.strip() == key_of(x) != x.key
        assert c.get("/v1/models").status_code == 401
        assert c.get("/v1/models", headers={"Authorization": f"Bearer {key_of(x)}"}).status_code == 200
        # by file and reload
        old, new = key_of(x), "my-own-key-0123456789abcdef"
        (x.home / "http.key").write_text(new + "\n")
        n = status(x)["config"]["reloads"]
        x.proc.send_signal(signal.SIGHUP)
        until(lambda: status(x)["config"]["reloads"] == n + 1)
        assert c.get("/v1/models", headers={"Authorization": f"Bearer {old}"}).status_code == 401
        assert c.get("/v1/models", headers={"Authorization": f"Bearer {new}"}).status_code == 200
        # a wrong file changes nothing
        (x.home / "http.key").chmod(0o644)
        x.proc.send_signal(signal.SIGHUP)
        until(lambda: status(x)["config"]["reloads"] == n + 2)
        assert "http.key" in status(x)["config"]["error"]
        assert c.get("/v1/models", headers={"Authorization": f"Bearer {new}"}).status_code == 200


# --- attacks ---

@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "localhost.evil.example:{port}", "127.0.0.1.nip.io", "0.0.0.0:{port}",
                                  "localhost.", "127.0.0.1:1", "127.0.0.1:{port}@evil.example", "", "aned"])
def test_attack_dns_rebinding(d, host):
    refused(d, head(d, "Host: " + host.format(port=d.port), host=False), 403)


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:3001", "https://localhost:3000", PAGE + ".evil.example",
                                    "HTTP://LOCALHOST:3000", "", "http://localhost:{port}", "http://127.0.0.1"])
def test_attack_a_page_of_another_origin(d, origin):
    got = raw(d, head(d, "Origin: " + origin.format(port=d.port)))
    assert codes(got) == [403] and b"access-control" not in got.lower()


@pytest.mark.parametrize("site", ["cross-site", "same-site", "nonsense"])
def test_attack_a_page_without_an_origin(d, site):
    refused(d, head(d, f"Sec-Fetch-Site: {site}"), 403)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "",
                                  "text/plain; application/json"])
def test_attack_a_simple_request(d, kind):
    refused(d, head(d, f"Content-Type: {kind}", "Content-Length: 2", method="POST", path="/aned/v1/models/fake/unload") + b"{}", 415)
    with d.http() as c:
        assert c.get("/aned/v1/models/fake").status_code == 200


def test_a_body_without_a_type(d):
    with web(d) as c:  # httpx sends none with bytes; the key is the proof that no page sent them
        assert c.post("/v1/completions", content=json.dumps(ASK)).status_code == 200
    with web(d, key=False) as c:
        assert c.post("/v1/completions", content=json.dumps(ASK)).status_code == 401


def test_attack_a_preflight_of_another_page(d):
    got = raw(d, head(d, "Origin: http://evil.example", "Access-Control-Request-Method: POST", method="OPTIONS", key=False))
    assert codes(got) == [403] and b"access-control" not in got.lower()


def test_a_listed_page_gets_a_preflight_and_its_answers(d):
    with web(d, key=False) as c:
        r = c.options("/v1/chat/completions", headers={"Origin": PAGE, "Access-Control-Request-Method": "POST",
                                                       "Access-Control-Request-Headers": "authorization,content-type"})
        assert r.status_code == 200 and r.headers["access-control-allow-origin"] == PAGE and r.headers["vary"] == "Origin"
        assert "POST" in r.headers["access-control-allow-methods"]
        allowed = r.headers["access-control-allow-headers"].split(", ")
        assert {"authorization", "content-type", "x-api-key"} <= set(allowed) and "*" not in allowed
        r = c.post("/v1/completions", json=ASK, headers={"Origin": PAGE, "Sec-Fetch-Site": "cross-site"})
        assert r.status_code == 401 and r.headers["access-control-allow-origin"] == PAGE  # it may read why
    with web(d) as c:
        r = c.post("/v1/completions", json=dict(ASK, stream=True), headers={"Origin": PAGE, "Sec-Fetch-Site": "cross-site"})
        assert r.status_code == 200 and r.headers["access-control-allow-origin"] == PAGE and "[DONE]" in r.text
        assert "access-control-allow-origin" not in c.get("/v1/models").headers


def test_attack_no_key(d):
    error = refused(d, head(d, key=False), 401)
    assert error["code"] == "unauthorized" and "Authorization: Bearer" in error["message"] and "anectl key" in error["message"]


def test_attack_wrong_keys(d):
    """Empty, shorter, longer, another, of another scheme: the same bytes come back for all of them."""
    answers = set()
    for value in ("", "Bearer", "Bearer ", "Bearer x", f"Bearer {d.key[:-1]}", f"Bearer {d.key}0", f"Bearer {d.key.upper()}", d.key,
                  f"Basic {d.key}", f"Bearer {d.key} {d.key}", f"Bearer\t{d.key}", "Bearer " + "0" * 5000):
        got = raw(d, head(d, f"Authorization: {value}", key=False))
        assert codes(got) == [401], value
        answers.add(re.sub(rb"\r\nDate: [^\r]*", b"", got))
    assert len(answers) == 1
    refused(d, head(d, "x-api-key: ", key=False), 401)
    refused(d, head(d, f"x-api-key: {d.key[:20]}", key=False), 401)


def test_attack_a_key_elsewhere(d):
    for path in (f"/v1/models?key={d.key}", f"/v1/models?api_key={d.key}", f"/v1/models?access_token={d.key}"):
        refused(d, head(d, key=False, path=path), 401)
    for line in (f"Cookie: key={d.key}", f"Proxy-Authorization: Bearer {d.key}", f"X-Authorization: Bearer {d.key}"):
        refused(d, head(d, line, key=False), 401)


def test_attack_two_keys(d):
    for pair in (("Bearer x", f"Bearer {d.key}"), (f"Bearer {d.key}", "Bearer x"), (f"Bearer {d.key}", f"Bearer {d.key}")):
        refused(d, head(d, *(f"Authorization: {v}" for v in pair), key=False), 401)


def test_attack_a_second_request_without_the_key(d):
    """What is pipelined behind a good request is asked for its own key."""
    got = raw(d, head(d, path="/health") + head(d, path="/v1/models", key=False) + head(d, path="/v1/models"))
    assert codes(got) == [200, 401]  # and the third is not read


POST = {"method": "POST", "path": "/v1/completions"}
INNER = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize("lines", [
    ("Content-Length: 4", "Transfer-Encoding: chunked"), ("Transfer-Encoding: chunked", "Content-Length: 4"),
    ("Content-Length: 4", "Content-Length: 5"), ("Content-Length: 4", "Content-Length: 4"), ("Content-Length: 4, 4",),
    ("Content-Length: +4",), ("Content-Length: 0x4",), ("Content-Length: -1",), ("Content-Length: 4 4",),
    ("Transfer-Encoding: chunked, identity",), ("Transfer-Encoding: xchunked",), ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
    ("Transfer-Encoding : chunked",), ("X: y\r\n Transfer-Encoding: chunked",)],
    ids=["cl-te", "te-cl", "two-cl", "same-cl", "list-cl", "plus-cl", "hex-cl", "minus-cl", "blank-cl", "te-identity", "xchunked", "two-te",
         "te-blank", "obs-fold"])
def test_attack_smuggling_by_framing(d, lines):
    got = raw(d, head(d, "Content-Type: application/json", *lines, **POST) + b"0\r\n\r\n" + INNER)
    assert codes(got) == [400], got[:300]


@pytest.mark.parametrize("data", [
    "GET /v1/models HTTP/1.1\nHost: {host}\nAuthorization: Bearer {key}\n\n",
    "GET /v1/models HTTP/1.1\r\nHost: {host}\nAuthorization: Bearer {key}\r\n\r\n",
    "GET /v1/models HTTP/1.1\r\nHost: {host}\rAuthorization: Bearer {key}\r\n\r\n",
    "GET /v1/models HTTP/1.1\r\nHost: {host}\r\nX: a\0b\r\nAuthorization: Bearer {key}\r\n\r\n",
    "GET /v1/models HTTP/1.1\r\n Host: {host}\r\nAuthorization: Bearer {key}\r\n\r\n"],
    ids=["bare-lf", "one-lf", "bare-cr", "nul", "first-folded"])
def test_attack_smuggling_by_line_ends(d, data):
    got = raw(d, data.format(host=f"127.0.0.1:{d.port}", key=d.key).encode() + INNER)
    assert codes(got) == [400], got[:300]


@pytest.mark.parametrize("size", ["FFFFFFFFFFFFFFFF", "10000000000000000", "-2", " 2", "0x2", "2;" + "x" * 1100, "", "2\n"],
                         ids=["max", "overflow", "minus", "blank", "hex", "extension", "none", "lf"])
def test_attack_chunk_sizes(d, size):
    got = raw(d, head(d, "Content-Type: application/json", "Transfer-Encoding: chunked", **POST) + size.encode() + b"\r\n{}\r\n0\r\n\r\n" + INNER)
    assert codes(got)[:1] in ([400], [413]) and len(codes(got)) == 1, got[:300]


@pytest.mark.parametrize("path", ["http://evil.example/v1/models", "http://127.0.0.1:{port}/v1/models", "*", "evil.example:80", "v1/models"])
def test_attack_other_forms_of_the_target(d, path):
    assert codes(raw(d, head(d, path=path.format(port=d.port)))) == [400]


@pytest.mark.parametrize("method,want", [("CONNECT", 501), ("TRACE", 501), ("TRACK", 501), ("DEBUG", 501), ("get", 400)])
def test_attack_methods(d, method, want):
    path = f"127.0.0.1:{d.port}" if method == "CONNECT" else "/v1/models"
    got = raw(d, head(d, "X-Secret: 12345", method=method, path=path))
    assert codes(got)[0] in (want, 400) and len(codes(got)) == 1 and b"12345" not in got


def test_attack_head(d):
    """HEAD needs what GET needs, and says nothing but the head."""
    got = raw(d, head(d, method="HEAD", key=False))
    assert codes(got) == [401] and got.endswith(b"\r\n\r\n")
    got = raw(d, head(d, CLOSE, method="HEAD"))
    assert codes(got) == [200] and got.endswith(b"\r\n\r\n")


def test_attack_old_and_new_versions(d):
    for data in (b"GET /v1/models\r\n\r\n", b"GET /v1/models HTTP/0.9\r\n\r\n"):
        got = raw(d, data, half_close=True)
        assert b'"list"' not in got and codes(got) in ([400], [505])
    assert codes(raw(d, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))[0] in (400, 505)
    refused(d, head(d, version="1.0", host=False), 403)  # without Host nobody knows whose name was asked for
    answered(d, head(d, version="1.0"))


def test_attack_upgrade(d):
    got = raw(d, head(d, "Connection: Upgrade, close", "Upgrade: websocket", "Sec-WebSocket-Key: x", "Sec-WebSocket-Version: 13"))
    assert b" 101 " not in got and codes(got) == [200]


def test_attack_header_floods(d):
    assert codes(raw(d, head(d, *(f"X-{i}: y" for i in range(100)), key=False))) == [431]
    assert codes(raw(d, head(d, "X: " + "y" * 9000, key=False))) == [431]
    assert codes(raw(d, head(d, *(f"X-{i}: " + "y" * 4000 for i in range(12)), key=False))) == [431]
    assert codes(raw(d, head(d, path="/" + "x" * 5000, key=False))) == [414]


def test_attack_a_large_body_without_the_key(d):
    """It is refused at its head: nothing of it is kept."""
    before = d.rss_kib()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda _: raw(d, head(d, "Content-Type: application/json", "Content-Length: 4000000", key=False, **POST) +
                                          b"x" * 4_000_000), range(24)))
    assert all(codes(g) in ([401], []) for g in got) and any(codes(g) == [401] for g in got)  # or reset while it was sending
    assert d.rss_kib() < before + 32 * 1024 * SLOW_S


def test_attack_reflection(d):
    """No header comes back, and nothing that was sent ends a line of the answer."""
    got = raw(d, head(d, "X-Evil: 1", CLOSE, path="/v1/models/a%0d%0aSet-Cookie:%20x"))
    assert codes(got)[0] in (400, 404) and b"\r\nSet-Cookie" not in got and b"X-Evil" not in got
    assert b"\r\nX-Content-Type-Options: nosniff\r\n" in got and b"\r\nCache-Control: no-store\r\n" in got


def test_attack_slow_heads_and_bodies(aned, tmp_path):
    """Clients that send a byte now and then hold no others up, and are sent away; so are those that send nothing."""
    x = Daemon(aned, home=make_home(tmp_path / "home", conf=CONF))
    x.port, x.key = port_of(x), key_of(x)
    slow = [connect(x) for _ in range(60)]
    try:
        for i, s in enumerate(slow):
            if i % 3 == 0:
                s.sendall(b"GET /v1/models HTTP/1.1\r\nHo")
            elif i % 3 == 1:
                s.sendall(head(x, "Content-Type: application/json", "Content-Length: 100", **POST) + b"{")
        with web(x) as c:
            for _ in range(10):
                assert c.post("/v1/completions", json=ASK).status_code == 200
        for i, s in enumerate(slow):
            if i % 3 != 2:
                assert codes(read_all(s)) == [408]
    finally:
        for s in slow:
            s.close()
        assert x.close() == 0


def test_attack_a_flood_of_connections(start):
    """More than TCP may have: the rest is told so, and the Unix socket is as free as before."""
    x = start()
    x.port, x.key = port_of(x), key_of(x)
    held = []
    try:
        for _ in range(300):
            s = socket.socket()
            s.settimeout(60 * SLOW_S)
            s.connect(("127.0.0.1", x.port))
            held.append(s)
        with x.http() as c:
            assert c.post("/v1/completions", json=ASK).status_code == 200
        refusals = sum(codes(raw_of) == [503] for raw_of in map(read_all, held[256:]))
        assert refusals == 44
    finally:
        for s in held:
            s.close()
    until(lambda: httpx.get(f"http://127.0.0.1:{x.port}/health", headers={"x-api-key": x.key}).status_code == 200)


def test_attack_connections_that_say_nothing(d):
    """Opened and closed, reset, or half-closed without a byte: none stays."""
    fds = d.fds()
    for i in range(60):
        s = connect(d)
        if i % 3 == 0:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        elif i % 3 == 1:
            s.shutdown(socket.SHUT_WR)
        s.close()
    until(lambda: d.fds() <= fds)
    answered(d, head(d, CLOSE))


# --- handed over ---

def hand(aned, home, tmp_path, listeners):
    p = spawn([aned, "serve", "--home", home, "--socket", tmp_path / "own" / "s"], listeners, tmp_path / "log")
    return p


def test_a_handed_loopback_socket_is_taken(aned, tmp_path):
    home = make_home(tmp_path / "home")
    with socket.create_server(("127.0.0.1", 0)) as given:
        p = hand(aned, home, tmp_path, [given])
        port = given.getsockname()[1]
        try:
            until((home / "http.key").exists)
            until(lambda: "ready" in (tmp_path / "log").read_text())
            key = (home / "http.key").read_text().strip()
            assert httpx.get(f"http://127.0.0.1:{port}/v1/models", headers={"x-api-key": key}).status_code == 200
            assert httpx.get(f"http://127.0.0.1:{port}/v1/models").status_code == 401
            assert (tmp_path / "own" / "s").exists()  # anectl's way in is there all the same
        finally:
            p.send_signal(signal.SIGTERM)
            assert p.wait(60 * SLOW_S) == 0


def test_a_handed_unix_socket_needs_no_key(aned, tmp_path):
    home = make_home(tmp_path / "home")
    with socket.socket(socket.AF_UNIX) as given:
        given.bind(str(tmp_path / "given"))
        given.listen()
        p = hand(aned, home, tmp_path, [given])
        until(lambda: "ready" in (tmp_path / "log").read_text())
        assert tcp_inodes(p.pid) == [] and not (home / "http.key").exists() and not (tmp_path / "own" / "s").exists()
        p.send_signal(signal.SIGTERM)
        assert p.wait(60 * SLOW_S) == 0


def test_a_handed_socket_for_everybody_is_refused(aned, tmp_path):
    with socket.create_server(("0.0.0.0", 0)) as given:
        p = hand(aned, make_home(tmp_path / "home"), tmp_path, [given])
        assert p.wait(60 * SLOW_S) == 78
    assert "nor one on a loopback address" in (tmp_path / "log").read_text()
