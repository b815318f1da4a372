"""anectl against a running daemon, found through ANED_SOCKET: every command, --json, exit codes, Ctrl-C, completion; and
`aned serve --check`."""
import json
import os
import pty
import signal
import subprocess
import time

import pytest

from conftest import SLOW_S, TOP, Daemon, status, stopped, until, wait_idle, worker_stopped
from fake import make_home

COMMANDS = ["status", "ps", "top", "convert", "reshard", "plan", "jobs", "job", "cancel", "models", "show", "load", "unload", "verify", "rm", "run",
            "complete", "tokenize", "detokenize", "completion", "api", "key", "page", "eval", "bench", "redact"]
QUESTION = "How do I list the models?"
LONG = ["-t", "0", "--repeat-penalty", "0.1", "-n", "480"]  # goes on saying the same


class Ctl:
    """The real anectl, told by ANED_SOCKET where the daemon is."""

    def __init__(self, exe, sock):
        self.exe = exe
        self.env = {k: v for k, v in os.environ.items() if k not in ("ANED_HOME", "XDG_RUNTIME_DIR")}
        self.env["ANED_SOCKET"] = str(sock)

    def __call__(self, *args, stdin="", code=0):
        r = subprocess.run([self.exe, *map(str, args)], input=stdin, capture_output=True, text=True, env=self.env,
                           timeout=120 * SLOW_S)
        assert r.returncode == code, (args, r.returncode, r.stdout, r.stderr)
        if code:
            assert r.stderr, args
        return r

    def json(self, *args, **kw):
        return json.loads(self(*args, "--json", **kw).stdout)

    def start(self, *args):
        return subprocess.Popen([self.exe, *map(str, args)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env=self.env)


@pytest.fixture(scope="module")
def ctl(anectl, daemon):
    return Ctl(anectl, daemon.sock)


@pytest.fixture(scope="module")
def d(aned, tmp_path_factory):
    """A daemon whose models and jobs are this file's, and a slow one."""
    conf = tmp_path_factory.mktemp("conf") / "slow.conf"
    conf.write_text("[engine]\nbackend = interpreter\nthreads = 1\n")
    x = Daemon(aned, args=["--config", str(conf)])
    yield x
    assert x.close() == 0


@pytest.fixture(scope="module")
def own(anectl, d):
    return Ctl(anectl, d.sock)


def fill_queue(d, source, tag, n=10):
    """Conversions that keep the daemon busy for a while; their ids."""
    with d.http() as c:
        made = [c.post("/aned/v1/jobs", json={"source": str(source), "name": f"{tag}{i}"}) for i in range(n)]
    return [r.json()["id"] for r in made]


def end_of(p):
    out, err = p.communicate(timeout=120 * SLOW_S)
    return p.returncode, out.decode(), err.decode()


# --- looking ---------------------------------------------------------------

def test_status(ctl, daemon):
    text = ctl("status").stdout
    assert text.startswith("aned ") and f"pid {daemon.proc.pid}," in text
    assert str(daemon.sock) in text and str(daemon.home) in text and "demo" in text
    s = ctl.json("status")
    assert s["status"] == "ok" and s["pid"] == daemon.proc.pid


def test_models_and_show(ctl):
    lines = ctl("models").stdout.splitlines()
    assert lines[0].split()[:2] == ["MODEL", "STATE"]
    assert any(x.split()[0] == "demo" and x.split()[1] in ("ready", "loaded") for x in lines[1:])
    assert "demo" in ctl("models", "-q").stdout.split()
    assert "demo" in [m["name"] for m in ctl.json("models")["models"]]
    rows = dict(x.split(None, 1) for x in ctl("show", "demo").stdout.splitlines() if len(x.split()) > 1)
    m = ctl.json("show", "demo")
    assert rows["context"] == "512" == str(m["context"]) and rows["architecture"] == m["architecture"]
    assert rows["fingerprint"] == m["fingerprint"] and rows["structure"].startswith("passed")


def test_load_and_unload(ctl):
    assert ctl("load", "demo").stdout.startswith("demo loaded after ")
    assert ctl.json("show", "demo")["engine"]["pid"] > 0
    assert ctl.json("load", "demo")["state"] == "loaded"  # again: no matter
    assert ctl("unload", "demo").stdout == "demo ready\n"
    assert ctl.json("show", "demo")["state"] == "ready"
    assert ctl.json("unload", "demo")["state"] == "ready"


def test_load_with_a_wish(ctl):
    assert ctl.json("load", "demo", "--keep-alive", "1h30m")["keep_alive_ms"] == 5400_000
    assert "in 1h" in ctl("ps").stdout
    assert ctl.json("load", "demo", "--pin")["pinned"] is True
    assert "pinned" in ctl("ps").stdout
    m = ctl.json("load", "demo", "--unpin", "-k", "-1")
    assert m["pinned"] is False and m["keep_alive_ms"] is None
    assert "when needed" in ctl("ps").stdout
    assert "keep_alive" in ctl("load", "demo", "-k", "soon", code=65).stderr
    assert ctl.json("load", "demo", "-k", "1h")["keep_alive_ms"] == 3600_000


def test_ps(ctl):
    ctl("load", "demo")
    head, row, memory = ctl("ps").stdout.splitlines()
    assert head.split() == ["MODEL", "STATE", "PID", "MEMORY", "RESIDENT", "RUN", "WARM", "QUEUE", "LEAVES"]
    assert row.split()[:3] == ["demo", "loaded", str(ctl.json("show", "demo")["engine"]["pid"])]
    assert head.index("LEAVES") == row.index("in ") and memory.startswith("memory ")
    ctl("unload", "demo")
    assert ctl("ps").stdout.splitlines()[0] == "no model is loaded"
    assert ctl.json("ps")["memory"]["used_bytes"] == 0


def test_top_once(ctl):
    for interval in (3, 6, 12, 24):  # until one holds a completion from its beginning to its end
        p = ctl.start("top", "--once", "--interval", str(interval), "--json")
        time.sleep(interval / 6)
        ctl("complete", "demo", "What is aned?", "-n", "50", "-t", "0", "--repeat-penalty", "0.1")
        out, err = p.communicate(timeout=(60 + interval) * SLOW_S)
        assert p.returncode == 0 and err == b"" and out.count(b"\n") == 1
        j = json.loads(out)
        r = j["rates"]
        assert j["status"] == "ok" and r["seconds"] > 0.9 * interval
        if round(r["output_tokens_per_second"] * r["seconds"]) == 50:
            break
    assert round(r["output_tokens_per_second"] * r["seconds"]) == 50
    assert r["prompt_tokens_per_second"] > 0 and r["steps_per_second"] > 0 and 0 <= r["cached_share"] <= 1
    text = ctl("top", "--once", "-i", "0.1").stdout
    assert "0.0/s drawn" in text and "demo" in text and "\033" not in text and "memory" in text
    assert ctl("ps").stdout.splitlines()[1] in text or "in " in text


def test_top_live(ctl):
    """On a terminal it draws a page of its own until Ctrl-C, and leaves the terminal as it was."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(ctl.exe, [ctl.exe, "top", "-i", "0.1"], dict(ctl.env, TERM="xterm"))
    seen = b""
    end = time.monotonic() + 120 * SLOW_S
    while seen.count(b"\033[H\033[J") < 3:
        assert time.monotonic() < end
        seen += os.read(fd, 65536)
    os.kill(pid, signal.SIGINT)
    while True:
        try:
            more = os.read(fd, 65536)
        except OSError:
            break
        if not more:
            break
        seen += more
    assert os.waitpid(pid, 0)[1] == 0
    os.close(fd)
    assert seen.startswith(b"\033[?1049h") and seen.rstrip().endswith(b"\033[?1049l") and b"sessions" in seen


# --- converting ------------------------------------------------------------

def test_convert(own, d, demo_gguf):
    """Its job waits at first, so that all of it is told."""
    with worker_stopped(d, demo_gguf, (f"before{i}" for i in range(20))):
        p = own.start("convert", demo_gguf, "--name", "small", "--context", "256")
        first = p.stderr.readline().decode()
    code, out, err = end_of(p)
    told = [x.split() for x in (first + err).splitlines()]
    at = [int(p.rstrip("%")) for _, p in told]
    assert code == 0 and first.startswith("queued")
    assert len(told) > 2 and at == sorted(at) and at[-1] <= 100
    assert out.startswith("small is there after ") and "structure  passed" in out
    assert out.endswith("next: anectl run small\n")
    m = own.json("show", "small")
    assert m["context"] == 256 and m["state"] == "ready"
    assert m["job"] in own("jobs").stdout and m["job"] in own("jobs", "--quiet").stdout.split()
    assert m["job"] in [j["id"] for j in own.json("jobs")["jobs"]]
    text = own("job", m["job"]).stdout
    assert "done" in text and "100%" in text and str(demo_gguf) in text
    assert own.json("job", m["job"])["state"] == "done"
    own("convert", demo_gguf, "--name", "small", code=73)  # the name is taken
    own("cancel", m["job"], code=75)  # it is over


def test_convert_names_the_model_after_the_file(own, demo_gguf, tmp_path):
    """A link's own name counts: a hub's cache has links with names to files without."""
    os.symlink(demo_gguf, tmp_path / "x.gguf")
    j = own.json("convert", tmp_path / "x.gguf", "--context", "256")
    assert j["state"] == "done" and j["name"] == "x"
    assert own("rm", "x").stdout == "x removed\n"
    own("show", "x", code=66)


def test_convert_of_a_folder_without_a_model(own, tmp_path):
    r = own("convert", tmp_path, code=65)
    assert r.stderr.startswith("invalid: ") and "no model" in r.stderr and str(tmp_path) in r.stderr


def test_convert_no_wait_and_follow(own, demo_gguf):
    job = own("convert", demo_gguf, "--name", "later", "--no-wait").stdout.strip()
    r = own("job", job, "--follow")
    assert r.stdout.startswith("later is there after ")
    changes = own("job", job, "--follow", "--json").stdout.splitlines()
    assert json.loads(changes[-1])["state"] == "done"
    assert own.json("convert", demo_gguf, "--name", "later2", "--no-wait")["id"].startswith("job_")


def test_a_bad_file_fails_by_name(own, demo_gguf, tmp_path):
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(demo_gguf.read_bytes()[:5000])
    r = own("convert", bad, code=65)
    assert "gguf." in r.stderr.splitlines()[-1]
    r = subprocess.run([own.exe, "convert", bad, "--json"], env=own.env, capture_output=True, text=True)
    assert r.returncode == 65 and json.loads(r.stdout)["error"]["code"].startswith("gguf.")


def test_cancel_and_interrupted_convert(own, d, demo_gguf):
    with worker_stopped(d, demo_gguf, (f"qq{i}" for i in range(20))):
        ids = fill_queue(d, demo_gguf, "q")
        p = own.start("convert", demo_gguf, "--name", "waits")
        assert p.stderr.readline().startswith(b"queued")
        assert own("cancel", ids[-1]).stdout == f"{ids[-1]} cancelled\n"
        assert own.json("cancel", ids[-2])["state"] == "cancelled"
        p.send_signal(signal.SIGINT)
        code, out, err = end_of(p)
    assert code == 130 and out == "" and "the job goes on" in err
    job = own.json("jobs")["jobs"][0]
    assert job["name"] == "waits" and job["id"] in err
    assert own("job", job["id"], "--follow").stdout.startswith("waits is there")  # Ctrl-C left it running
    r = own("job", ids[-1], "--follow", code=75)
    assert "cancelled" in r.stderr
    assert not {"q9", "q8"} & set(own("models", "-q").stdout.split())


def test_rm(own, demo_gguf):
    for name in ("r1", "r2", "r3"):
        own("convert", demo_gguf, "-n", name, "-c", "256")
    assert own("rm", "r1", "r2").stdout == "r1 removed\nr2 removed\n"
    assert own.json("rm", "r3")["deleted"] is True
    assert not {"r1", "r2", "r3"} & set(own("models", "-q").stdout.split())


# --- asking ----------------------------------------------------------------

def test_run_gives_what_the_api_gives(ctl, daemon):
    body = {"model": "demo", "temperature": 0, "messages": [{"role": "user", "content": QUESTION}]}
    with daemon.http() as c:
        want = c.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
    assert want
    assert ctl("run", "demo", QUESTION, "--temperature", "0").stdout == want + "\n"
    assert ctl("run", "demo", *QUESTION.split(), "-t", "0").stdout == want + "\n"
    assert ctl("run", "demo", "-t", "0", stdin=QUESTION).stdout == want + "\n"
    assert ctl("run", "demo", "-", "-t", "0", stdin=QUESTION).stdout == want + "\n"
    assert ctl.json("run", "demo", QUESTION, "-t", "0")["choices"][0]["message"]["content"] == want
    r = ctl("run", "demo", QUESTION, "-t", "0", "--stats")
    assert r.stdout == want + "\n" and "tokens" in r.stderr and "stop" in r.stderr
    body["messages"].insert(0, {"role": "system", "content": "Be brief."})
    with daemon.http() as c:
        want = c.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
    assert ctl("run", "demo", "--system", "Be brief.", QUESTION, "-t", "0").stdout == want + "\n"


def test_complete(ctl, daemon):
    body = {"model": "demo", "prompt": "aned is", "temperature": 0, "max_tokens": 9}
    with daemon.http() as c:
        want = c.post("/v1/completions", json=body).json()["choices"][0]["text"]
    args = ["complete", "demo", "-t", "0", "-n", "9"]
    assert ctl(*args, "aned is").stdout == want + "\n"
    assert ctl(*args, stdin="aned is").stdout == want + "\n"
    assert ctl(*args, "--echo", "aned is").stdout == "aned is" + want + "\n"
    assert ctl.json(*args, "aned is")["choices"][0]["text"] == want
    assert ctl.json(*args, "--echo", "aned is")["choices"][0]["text"] == "aned is" + want


def test_seeds_and_stops(ctl):
    hot = ["run", "demo", QUESTION, "-t", "1.5", "-n", "24"]
    assert ctl(*hot, "--seed", "5").stdout == ctl(*hot, "-s", "5").stdout
    assert len({ctl(*hot, "-s", i).stdout for i in range(6)}) > 1
    full = ctl("run", "demo", QUESTION, "-t", "0").stdout
    assert ctl("run", "demo", QUESTION, "-t", "0", "--stop", "anectl").stdout == full.split("anectl")[0] + "\n"


@pytest.mark.parametrize("text", ["Hello, what is aned?", "  two  spaces\nand a line\t", "Grüße, 世界 🌍 é", ""])
def test_tokens_there_and_back(ctl, text):
    ids = ctl("tokenize", "demo", stdin=text).stdout
    assert [int(x) for x in ids.split()] == ctl.json("tokenize", "demo", stdin=text)["tokens"]
    assert ctl("detokenize", "demo", stdin=ids).stdout == text + "\n"
    assert ctl.json("detokenize", "demo", stdin=json.dumps([int(x) for x in ids.split()]))["content"] == text
    if text:
        assert ctl("tokenize", "demo", text).stdout == ids
        assert ctl("detokenize", "demo", *ids.split()).stdout == text + "\n"


def test_a_prompt_beyond_the_context(ctl):
    r = ctl("run", "demo", stdin="word " * 2000, code=65)
    assert r.stderr.startswith("context_length_exceeded: ") and "--context" in r.stderr


def test_a_conversation_on_a_terminal(ctl, tmp_path):
    """Without a prompt on a terminal: a chat that Ctrl-D, here /bye, ends."""
    try:
        pid, fd = pty.fork()
    except OSError as e:
        pytest.skip(f"no pseudo-terminal here: {e}")
    if pid == 0:
        os.execve(ctl.exe, [ctl.exe, "run", "demo", "-t", "0"],
                  dict(ctl.env, TERM="dumb", HOME=str(tmp_path), XDG_STATE_HOME=str(tmp_path / "state")))
    seen = b""

    def read_to(what):
        nonlocal seen
        end = time.monotonic() + 120 * SLOW_S
        while what not in seen:
            assert time.monotonic() < end, seen
            try:
                got = os.read(fd, 4096)
            except OSError:
                got = b""
            assert got, seen
            seen += got
        seen = seen.split(what, 1)[1]
    read_to(b"/help")
    read_to(b"> ")
    os.write(fd, b"How do I list the models?\n")
    read_to(b"Run anectl models")
    read_to(b"> ")
    os.write(fd, b"/bye\n")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(fd)


# --- Ctrl-C ----------------------------------------------------------------

def test_interrupt_in_an_answer(anectl, make_daemon, tmp_path):
    """Of an engine that would take most of a minute."""
    d = make_daemon(home=make_home(tmp_path / "home", fake="delay_us 100000\n"))
    p = Ctl(anectl, d.sock).start("complete", "fake", "aned", "-t", "0", "-n", "480")
    assert len(p.stdout.read(4)) == 4
    p.send_signal(signal.SIGINT)
    code, out, err = end_of(p)
    assert (code, err) == (130, "") and len(out) < 470 and out.endswith("\n")
    wait_idle(d)


@pytest.mark.parametrize("args", [["run", "demo", QUESTION], ["complete", "demo", "aned"],
                                  ["run", "demo", QUESTION, "--json"], ["complete", "demo", "aned", "--json"]])
def test_interrupt_before_an_answer(ctl, daemon, args):
    """The engine stands still, so that nothing of the answer has come."""
    engine = ctl.json("load", "demo")["engine"]["pid"]
    with stopped(engine):
        p = ctl.start(*args, *LONG)
        until(lambda: status(daemon)["running"])
        p.send_signal(signal.SIGINT)
        code, out, err = end_of(p)
    assert (code, out, err) == (130, "", "")
    wait_idle(daemon)
    assert ctl.json("show", "demo")["engine"]["pid"] == engine  # nothing had to be ended for that


# --- errors ----------------------------------------------------------------

@pytest.mark.parametrize("args", [[], ["nonsense"], ["--nonsense"], ["status", "extra"], ["convert"], ["show"],
                                  ["run"], ["job"], ["models", "--nonsense"], ["run", "demo", "x", "--seed", "one"],
                                  ["run", "demo", "x", "--max-tokens"], ["convert", "x", "--context", "0"],
                                  ["completion", "tcsh"], ["run", "demo", "x", "-t", "1", "-t", "2"]])
def test_wrong_usage_is_64(ctl, args):
    assert ctl(*args, code=64).stdout == ""


@pytest.mark.parametrize("args, name", [
    (["convert", "/nonexistent/x.gguf"], "not_found"),
    (["show", "nope"], "model_not_found"), (["load", "nope"], "model_not_found"), (["unload", "nope"], "model_not_found"),
    (["verify", "nope"], "model_not_found"),
    (["rm", "nope"], "model_not_found"), (["run", "nope", "x"], "model_not_found"), (["complete", "nope", "x"], "model_not_found"),
    (["tokenize", "nope", "x"], "model_not_found"), (["detokenize", "nope", "1"], "model_not_found"),
    (["job", "nope"], "not_found"), (["job", "nope", "--follow"], "not_found"), (["cancel", "nope"], "not_found"),
    (["show", "../x"], "not_found"), (["rm", "a/b"], "not_found")])
def test_what_is_not_there_is_66(ctl, args, name):
    r = ctl(*args, code=66)
    assert r.stderr.startswith(name + ": ") and r.stdout == ""


def test_a_model_that_is_not_there_is_told_once(ctl):
    assert ctl("tokenize", "nope", "x", code=66).stderr == (
        "model_not_found: there is no model 'nope'\n  `anectl models` lists what is there\n")


@pytest.mark.parametrize("cmd", [["status"], ["convert", "SOURCE"], ["jobs"], ["job", "x"], ["cancel", "x"], ["models"],
                                 ["show", "x"], ["load", "x"], ["unload", "x"], ["verify", "x"], ["rm", "x"], ["run", "x", "y"],
                                 ["complete", "x", "y"], ["tokenize", "x", "y"], ["detokenize", "x", "1"]])
def test_no_daemon_is_69(anectl, demo_gguf, tmp_path, cmd):
    r = Ctl(anectl, tmp_path / "none.sock")(*[demo_gguf if x == "SOURCE" else x for x in cmd], code=69)
    assert r.stderr.startswith("unavailable: ") and "aned serve" in r.stderr


def test_socket_option_wins(anectl, daemon, tmp_path):
    lost = Ctl(anectl, tmp_path / "none.sock")
    assert "pid" in lost("--socket", daemon.sock, "status").stdout
    assert "pid" in lost("status", "--socket", daemon.sock).stdout
    assert json.loads(lost("--json", "--socket", daemon.sock, "status").stdout)["status"] == "ok"


def test_bad_token_ids(ctl):
    assert ctl("detokenize", "demo", "seven", code=65).stderr.startswith("invalid: ")
    ctl("detokenize", "demo", "2027000", code=65)


# --- help, completion, configuration ----------------------------------------

def test_help_of_every_command(ctl):
    overview = ctl("--help").stdout
    assert ctl("help").stdout == overview
    for cmd in COMMANDS:
        assert f"\n  {cmd} " in overview
        text = ctl(cmd, "--help").stdout
        assert text.startswith(f"usage: anectl {cmd}") and "examples:\n  " in text
        assert ctl("help", cmd).stdout == text == ctl(cmd, "-h").stdout
    assert ctl("--version").stdout.startswith("anectl ")


def test_completion(ctl):
    for shell in ("bash", "zsh", "fish"):
        text = ctl("completion", shell).stdout
        for cmd in COMMANDS:
            assert cmd in text, (shell, cmd)
        assert "max-tokens" in text and text.endswith("\n")
    # What bash would offer, with the models of the running daemon
    script = ctl("completion", "bash").stdout
    ask = 'COMP_WORDS=({}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _anectl; echo "${{COMPREPLY[@]}}"'
    env = dict(ctl.env, PATH=os.path.dirname(ctl.exe) + ":" + os.environ["PATH"])
    for words, want in (("anectl comp", "complete completion"), ("anectl show dem", "demo"),
                        ("anectl run --max", "--max-tokens"), ("anectl --socket x sta", "status"),
                        ("anectl completion z", "zsh")):
        text = script + ask.format(words)
        assert subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True).stderr == ""
        r = subprocess.run(["bash", "--norc", "-s"], input=text, text=True, capture_output=True, env=env)
        assert (r.stdout.strip(), r.stderr) == (want, ""), words


def check(aned, tmp_path, conf):
    return subprocess.run([aned, "serve", "--check", "--home", tmp_path / "home", "--config", conf], text=True,
                          capture_output=True, timeout=30 * SLOW_S)


def test_the_configuration_file_is_right(aned, tmp_path):
    conf = TOP / "conf" / "aned.conf"
    r = check(aned, tmp_path, conf)
    assert r.returncode == 0, r.stderr
    printed = subprocess.run([aned, "serve", "--print-config"], text=True, capture_output=True)
    assert printed.returncode == 0 and printed.stdout == conf.read_text()


@pytest.mark.parametrize("text, line", [("[server]\nlog = info\nlogg = info\n", 3), ("[nonsense]\nx = 1\n", 2),
                                        ("\n[limits]\nqueue = 0\n", 3), ("[engine]\nbackend = gpu\n", 2),
                                        ("[limits]\nqueue = many\n", 2)])
def test_a_wrong_configuration_is_78(aned, tmp_path, text, line):
    conf = tmp_path / "wrong.conf"
    conf.write_text(text)
    r = check(aned, tmp_path, conf)
    assert r.returncode == 78
    assert r.stderr.startswith("config: ") and f"{conf}:{line}:" in r.stderr
