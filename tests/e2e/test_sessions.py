"""Sessions that clients name: every operation, what they answer when it makes no sense, and that they last."""
import concurrent.futures

import pytest

from conftest import engine_pid, stopped, until
from fake import make_home

S = "/aned/v1/sessions"
TEXT = "What is aned? "


def post(c, path, want=200, **body):
    r = c.post(path, json=body)
    assert r.status_code == want, r.text
    return r.json()


def test_a_session_is_its_tokens(daemon):
    """Step by step as in one go: the text that /v1/completions gives for all of it."""
    with daemon.http() as c:
        s = post(c, S, 201, model="demo", prompt=TEXT)
        at = f"{S}/{s['id']}"
        n = s["n_tokens"]
        first = post(c, f"{at}/generate", max_tokens=10, temperature=0)
        want = post(c, "/v1/completions", model="demo", prompt=TEXT, max_tokens=10, temperature=0)
        assert first["choices"][0]["text"] == want["choices"][0]["text"]
        now = c.get(at).json()
        drawn = first["usage"]["completion_tokens"] - (first["choices"][0]["finish_reason"] == "stop")
        assert now["n_tokens"] == n + drawn == len(now["tokens"])
        longer = post(c, f"{at}/append", prompt=" And then?")
        assert longer["n_tokens"] > now["n_tokens"]
        tokens = c.get(at).json()["tokens"]
        assert tokens[:now["n_tokens"]] == now["tokens"]
        second = post(c, f"{at}/generate", max_tokens=10, temperature=0)
        want = post(c, "/v1/completions", model="demo", prompt=tokens, max_tokens=10, temperature=0, cache_prompt=False)
        assert second["choices"][0]["text"] == want["choices"][0]["text"]
        assert second["usage"]["prompt_tokens_details"]["cached_tokens"] >= now["n_tokens"] - 1
        # back, and the same again
        assert post(c, f"{at}/truncate", n=n)["n_tokens"] == n
        again = post(c, f"{at}/generate", max_tokens=10, temperature=0)
        assert again["choices"][0]["text"] == first["choices"][0]["text"]
        assert c.delete(at).json() == {"id": s["id"], "deleted": True}
        assert c.get(at).status_code == 404


def test_fork_pin_list(daemon):
    with daemon.http() as c:
        a = post(c, S, 201, model="demo", tokens=[5, 6, 7, 8], pinned=True)
        b = post(c, f"{S}/{a['id']}/fork", 201, n=3)
        r = c.post(f"{S}/{a['id']}/fork")
        assert r.status_code == 201 and r.json()["n_tokens"] == 4
        assert c.get(f"{S}/{b['id']}").json()["tokens"] == [5, 6, 7]
        post(c, f"{S}/{b['id']}/append", tokens=[9])
        assert c.get(f"{S}/{a['id']}").json()["tokens"] == [5, 6, 7, 8]
        assert a["pinned"] and not b["pinned"]
        assert post(c, f"{S}/{b['id']}/pin", pinned=True)["pinned"]
        assert not post(c, f"{S}/{a['id']}/pin", pinned=False)["pinned"]
        ids = [x["id"] for x in c.get(S).json()["sessions"]]
        assert ids.index(r.json()["id"]) < ids.index(b["id"]) < ids.index(a["id"])
        for x in ids:
            assert c.delete(f"{S}/{x}").status_code == 200
        assert c.get(S).json() == {"sessions": []}


@pytest.mark.parametrize("path,body,status", [
    ("", {"model": "none"}, 404),
    ("", {"model": "demo", "text": "x"}, 400),
    ("", {"model": "demo", "prompt": 5}, 400),
    ("", {"model": "demo", "prompt": "x", "tokens": [1]}, 400),
    ("", {"model": "demo", "tokens": [-1]}, 400),
    ("", {"model": "demo", "tokens": [1000000]}, 400),
    ("", {"model": "demo", "tokens": [5] * 600}, 400),
    ("", {"model": "demo", "pinned": "yes"}, 400),
    ("/none/append", {"tokens": [5]}, 404),
    ("/none/generate", {}, 404),
    ("/ID/append", {}, 400),
    ("/ID/append", {"tokens": [5], "prompt": "x"}, 400),
    ("/ID/append", {"tokens": [5] * 510}, 400),
    ("/ID/truncate", {}, 400),
    ("/ID/truncate", {"n": 5}, 400),
    ("/ID/truncate", {"n": -1}, 400),
    ("/ID/fork", {"n": 5}, 400),
    ("/ID/pin", {}, 400),
    ("/ID/generate", {"prompt": "x"}, 400),
    ("/ID/generate", {"model": "demo"}, 400),
    ("/ID/generate", {"n": 2}, 400),
    ("/ID/generate", {"echo": True}, 400),
    ("/ID/generate", {"nonsense": 1}, 400),
])
def test_refusals(daemon, path, body, status):
    with daemon.http() as c:
        s = post(c, S, 201, model="demo", tokens=[5, 6, 7, 8])
        r = c.post(S + path.replace("ID", s["id"]), json=body)
        assert r.status_code == status and r.json()["error"]["message"], r.text
        assert c.get(f"{S}/{s['id']}").json()["tokens"] == [5, 6, 7, 8]
        assert not c.get(f"{S}/{s['id']}").json()["busy"]
        assert c.delete(f"{S}/{s['id']}").status_code == 200


def test_one_generation_at_a_time(make_daemon, tmp_path):
    """The engine stands still for three questions."""
    daemon = make_daemon(home=make_home(tmp_path / "home", fake="delay_us 20000\n"))
    with daemon.http() as c:
        s = post(c, S, 201, model="fake", prompt=TEXT)
        at = f"{S}/{s['id']}"
        with c.stream("POST", f"{at}/generate", json={"max_tokens": 400, "temperature": 0, "ignore_eos": True,
                                                      "stream": True}) as r:
            lines = r.iter_lines()
            next(lines)
            with daemon.http() as d, stopped(engine_pid(daemon, "fake")):
                assert d.post(f"{at}/generate", json={}).status_code == 409
                assert d.post(f"{at}/append", json={"tokens": [5]}).status_code == 409
                assert d.get(at).json()["busy"]
        # left in the middle: as it was
    with daemon.http() as c:
        until(lambda: not c.get(at).json()["busy"])
        assert c.get(at).json()["n_tokens"] == s["n_tokens"]
        c.delete(at)


def test_many_at_once(daemon):
    def one(i):
        with daemon.http() as c:
            s = post(c, S, 201, model="demo", prompt=f"{TEXT}{i % 3}")
            t = post(c, f"{S}/{s['id']}/generate", max_tokens=8, temperature=0)["choices"][0]["text"]
            c.delete(f"{S}/{s['id']}")
            return i % 3, t
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        got = set(pool.map(one, range(24)))
    assert len(got) == 3


def test_they_last(make_daemon, demo_gguf, tmp_path):
    """Over kill -9, and their state over a restart; they go with their model."""
    home = tmp_path / "home"
    conf = tmp_path / "aned.conf"
    conf.write_text("[cache]\ndisk_tokens = 64\n")
    a = make_daemon(home=home, args=["--config", str(conf)])
    assert a.convert(demo_gguf, "demo", context=512)["state"] == "done"
    with a.http() as c:
        s = post(c, S, 201, model="demo", prompt=TEXT * 30)
        at = f"{S}/{s['id']}"
        text = post(c, f"{at}/generate", max_tokens=10, temperature=0)["choices"][0]["text"]
        post(c, f"{at}/truncate", n=s["n_tokens"])
    a.stop()
    b = make_daemon(home=home, args=["--config", str(conf)])
    with b.http() as c:
        again = post(c, f"{at}/generate", max_tokens=10, temperature=0)
        assert again["choices"][0]["text"] == text
        assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == (s["n_tokens"] - 1) // 64 * 64
        t = post(c, S, 201, model="demo", tokens=[5, 6])
    b.kill()
    d = make_daemon(home=home, args=["--config", str(conf)])
    with d.http() as c:
        assert c.get(f"{S}/{t['id']}").json()["tokens"] == [5, 6]
        assert len(c.get(S).json()["sessions"]) == 2
        assert c.delete("/aned/v1/models/demo").status_code in (200, 204)
        assert c.get(S).json() == {"sessions": []}


def test_anectl(daemon, anectl):
    import subprocess

    def run(*args, code=0, text=""):
        p = subprocess.run([anectl, "--socket", str(daemon.sock), *args], input=text, capture_output=True, text=True)
        assert p.returncode == code, p.stderr
        return p.stdout.strip()
    one = run("session", "new", "demo", "What is aned?", "--pin")
    assert run("sessions", "-q") == one
    assert ", pinned" in run("session", "show", one)
    run("session", "append", one, text=" Well, ")
    said = run("session", "generate", one, "-n", "8", "-t", "0")
    assert said
    two = run("session", "fork", one, "3").split()[0]
    assert "3 tokens" in run("session", "show", two)
    assert "2 tokens" in run("session", "truncate", two, "2")
    assert "pinned" not in run("session", "unpin", one)
    assert set(run("sessions", "--quiet").split()) == {one, two}
    run("session", "truncate", two, "x", code=64)
    run("session", "sing", two, code=64)
    run("session", "show", "ses_none", code=66)
    run("session", "rm", one, two)
    assert run("sessions", "-q") == ""
    assert "new show append" in run("completion", "bash")
