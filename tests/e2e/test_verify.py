"""Files of a model that are not what was published: found at load, after a crash before any use, and by `anectl verify`."""
import json
import os
import shutil
import subprocess

import pytest

from conftest import SLOW_S, child_of, stopped, until

PROMPT = {"model": "demo", "prompt": "Hello", "max_tokens": 4, "temperature": 0}


@pytest.fixture
def home(demo_home, tmp_path):
    """A copy: models are damaged here."""
    to = tmp_path / "home"
    shutil.copytree(demo_home, to)
    return to


def model(d, name="demo"):
    with d.http() as c:
        return c.get(f"/aned/v1/models/{name}").json()


def complete(d, **kw):
    with d.http() as c:
        return c.post("/v1/completions", json={**PROMPT, **kw})


def biggest(home, name="demo"):
    """The weights with most bytes."""
    return max((home / "models" / name).rglob("weight.bin"), key=lambda p: p.stat().st_size)


def zero_block(path):
    """As a power cut leaves it: zeros, and the same size and time of change."""
    st = path.stat()
    with open(path, "r+b") as f:
        f.seek(st.st_size // 2 // 4096 * 4096)
        assert f.read(4096) != bytes(4096)
        f.seek(st.st_size // 2 // 4096 * 4096)
        f.write(bytes(4096))
    os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))


def ran(d, event):
    return d.log.read_text().count(f" {event} ")


def check_damaged(d, demo_gguf, path):
    m = model(d)
    assert m["state"] == "failed" and m["engine"] is None, m
    assert str(path.relative_to(d.home / "models" / "demo")) in m["reason"]
    assert f"anectl convert {demo_gguf} --name demo" in m["reason"] and "--context 512" in m["reason"]
    r = complete(d)
    assert r.status_code == 503 and r.json()["error"]["code"] == "model.failed", r.text


def test_a_zeroed_block_is_found_after_the_load(make_daemon, home, demo_gguf):
    path = biggest(home)
    zero_block(path)
    d = make_daemon(home=home)
    complete(d)  # a text made of zeros, or an error where they are a header: both before all is hashed
    until(lambda: model(d).get("verification", {}).get("state") == "damaged")
    until(lambda: model(d)["engine"] is None)
    check_damaged(d, demo_gguf, path)
    with d.http() as c:  # asked for, it is hashed before it is tried
        r = c.post("/aned/v1/models/demo/load")
        assert r.status_code == 503 and r.json()["error"]["code"] == "model.failed", r.text
    check_damaged(d, demo_gguf, path)
    assert d.stop() == 0
    d.start()  # the store knows
    check_damaged(d, demo_gguf, path)


def test_after_a_crash_nothing_damaged_is_used(make_daemon, home, demo_gguf):
    d = make_daemon(home=home)
    assert complete(d).status_code == 200
    until(lambda: model(d)["verification"]["state"] == "verified")
    d.kill()
    path = biggest(home)
    zero_block(path)
    before = ran(d, "model_loaded")
    d.start()
    r = complete(d)
    assert r.status_code == 503 and "damaged" in r.json()["error"]["message"], r.text
    check_damaged(d, demo_gguf, path)
    assert ran(d, "model_loaded") == before == 1


def test_after_a_crash_a_sound_model_is_hashed_first(make_daemon, home):
    d = make_daemon(home=home)
    text = complete(d).json()["choices"][0]["text"]
    d.kill()
    d.start()
    assert complete(d).json()["choices"][0]["text"] == text
    log = d.log.read_text()
    second = log[log.rindex(" ready "):]
    assert second.index("model_verified") < second.index("model_loading")


def test_what_was_hashed_is_remembered_over_a_clean_end(make_daemon, home):
    d = make_daemon(home=home)
    assert complete(d).status_code == 200
    until(lambda: model(d)["verification"]["state"] == "verified")
    at = model(d)["verification"]["checked_ms"]
    hashed = ran(d, "model_verified")
    assert d.stop() == 0
    d.start()
    assert complete(d).status_code == 200
    until(lambda: model(d)["verification"]["state"] == "verified")
    assert model(d)["verification"]["checked_ms"] == at and ran(d, "model_verified") == hashed
    assert not (home / "verified.json").exists()  # a crash from here on is seen
    os.utime(biggest(home))  # somebody wrote, or may have
    with d.http() as c:
        assert c.post("/aned/v1/models/demo/unload").status_code == 200
    assert complete(d).status_code == 200
    until(lambda: ran(d, "model_verified") == hashed + 1)


def test_a_bundle_that_the_store_does_not_know(make_daemon, home, demo_gguf):
    """Sound in itself, but not what the job published."""
    d = make_daemon(home=home)
    assert d.convert(demo_gguf, "other", context=256)["state"] == "done"
    assert d.stop() == 0
    shutil.rmtree(home / "models" / "demo")
    os.rename(home / "models" / "other", home / "models" / "demo")
    d.start()
    complete(d)
    until(lambda: model(d)["verification"]["state"] == "damaged")
    assert "bundle.json" in model(d)["reason"]


def test_a_stream_ends_when_its_model_is_damaged(make_daemon, home):
    d = make_daemon(home=home)
    assert complete(d).status_code == 200
    until(lambda: model(d)["verification"]["state"] == "verified")
    zero_block(biggest(home))
    long = {"max_tokens": 480, "n": 4, "logprobs": 20}  # some MB: not over before it is read
    with d.http() as c, c.stream("POST", "/v1/completions", json={**PROMPT, "stream": True, "ignore_eos": True, **long}) as r:
        lines = r.iter_lines()
        assert next(lines).startswith("data: ")
        with d.http() as c2, stopped(child_of(d, "engine")):
            assert c2.post("/aned/v1/models/demo/verify").status_code == 202
            until(lambda: model(d)["verification"]["state"] == "damaged")
        rest = [x for x in lines if x.startswith("data: ")]
    assert any("damaged" in x for x in rest), rest[-3:]


def ctl(exe, d, *args):
    env = {k: v for k, v in os.environ.items() if k not in ("ANED_HOME", "XDG_RUNTIME_DIR")}
    return subprocess.run([exe, *args], capture_output=True, text=True, env=dict(env, ANED_SOCKET=str(d.sock)),
                          stdin=subprocess.DEVNULL, timeout=60 * SLOW_S)


def test_anectl_verify(anectl, make_daemon, home, demo_gguf):
    d = make_daemon(home=home)
    r = ctl(anectl, d, "verify", "demo")
    assert r.returncode == 0 and r.stdout.startswith("demo verified: "), r
    m = json.loads(ctl(anectl, d, "verify", "demo", "--json").stdout)
    assert m["verification"]["state"] == "verified" and m["state"] == "ready"
    zero_block(biggest(home))
    r = ctl(anectl, d, "verify", "demo")
    assert r.returncode == 65 and r.stderr.startswith("bundle.invalid: damaged: ") and "anectl convert" in r.stderr, r
    r = ctl(anectl, d, "verify", "demo", "--json")
    assert r.returncode == 65 and json.loads(r.stdout)["verification"]["state"] == "damaged"
    (home / "models" / "demo" / "bundle.json").unlink()
    assert d.stop() == 0
    d.start()
    r = ctl(anectl, d, "verify", "demo")
    assert r.returncode != 0 and "bundle" in r.stderr, r

