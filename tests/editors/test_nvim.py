"""The plugin of client/editors/nvim in the real Neovim, headless, driven by keys and expressions as from outside."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

import models
from conftest import SLOW_S, TOP, Daemon, until
from standin import StandIn, answer, endless, error, events, texts

PLUGIN = TOP / "client" / "editors" / "nvim"
NVIM = shutil.which("nvim")

pytestmark = pytest.mark.skipif(NVIM is None, reason="nvim is not installed: ./dev test editors does it where Debian has it")


class Nvim:
    def __init__(self, sock, setup="", clean=()):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="aned-nvim-"))
        self.at = str(self.dir / "socket")
        env = {k: v for k, v in os.environ.items() if k not in ("ANED_HOME", "XDG_RUNTIME_DIR")}
        env.update(HOME=str(self.dir), ANED_SOCKET=str(sock), XDG_CONFIG_HOME=str(self.dir), XDG_STATE_HOME=str(self.dir),
                   XDG_DATA_HOME=str(self.dir))
        env.update(clean)
        self.log = open(self.dir / "log", "wb")
        self.proc = subprocess.Popen(
            [NVIM, "--headless", "-u", "NONE", "-i", "NONE", "-n", "--listen", self.at, "--cmd", f"set rtp^={PLUGIN}",
             "-c", "runtime plugin/aned.lua", "-c", "lua _G.told = {}; vim.notify = function(t) table.insert(_G.told, t) end",
             "-c", f"lua require('aned').setup({{{setup}}})"],
            env=env, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        until(lambda: self.proc.poll() is not None or os.path.exists(self.at))
        until(lambda: self.ask("1")[0] == 0)

    def ask(self, expr):
        r = subprocess.run([NVIM, "--headless", "-u", "NONE", "-i", "NONE", "--server", self.at, "--remote-expr", expr],
                           capture_output=True, text=True, timeout=60 * SLOW_S)
        return r.returncode, r.stdout or r.stderr

    def lua(self, expr):
        """The value of a Lua expression."""
        code, out = self.ask("json_encode(luaeval('{}'))".format(expr.replace("'", "''")))
        assert code == 0, out + (self.dir / "log").read_text()
        return json.loads(out)

    def run(self, command):
        self.lua(f"vim.cmd([==[{command}]==]) or 0")

    def keys(self, text):
        subprocess.run([NVIM, "--headless", "-u", "NONE", "-i", "NONE", "--server", self.at, "--remote-send", text], check=True,
                       capture_output=True, timeout=60 * SLOW_S)

    def text(self):
        return "\n".join(self.lua("vim.api.nvim_buf_get_lines(0, 0, -1, false)"))

    def ghost(self):
        return self.lua("require('aned.complete').text() or vim.NIL")

    def told(self):
        return self.lua("table.concat(_G.told, '|')")

    def write(self, *lines):
        self.lua(f"vim.api.nvim_buf_set_lines(0, 0, -1, false, vim.json.decode([==[{json.dumps(lines)}]==])) or 0")

    def close(self):
        self.proc.terminate()
        self.proc.wait(timeout=30)
        self.log.close()
        shutil.rmtree(self.dir, ignore_errors=True)


@pytest.fixture(scope="module")
def d(aned, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    d = Daemon(aned)
    source = models.make(folder / "s.gguf")
    for path, name in ((source, "s"), (models.without_template(source, folder / "bare.gguf"), "bare")):
        job = d.convert(path, name, context=models.CONTEXT)
        assert job["state"] == "done", job
    yield d
    assert d.close() == 0


@pytest.fixture
def nvim():
    made = []

    def start(sock, setup="model = 's'", **more):
        made.append(Nvim(sock, setup, **more))
        return made[-1]
    yield start
    for n in made:
        n.close()


def chat_over(n):
    return lambda: not n.lua("require('aned.chat').is_running()")


def test_a_chat(d, nvim):
    """Two turns; what is sent is what the buffer says."""
    n = nvim(d.sock)
    n.run("AnedChat Who are you?")
    until(chat_over(n))
    assert n.text() == f"## You\n\nWho are you?\n\n## Model\n\n{models.TEXT}\n\n## You\n\n"
    n.keys("GiAnd again?<Esc><CR>")
    until(lambda: n.text().count("## You") == 3)
    assert n.text().endswith(f"And again?\n\n## Model\n\n{models.SECOND}\n\n## You\n\n")
    assert n.told() == ""
    assert n.lua("vim.api.nvim_win_get_cursor(0)[1]") == len(n.text().split("\n"))


def test_a_selection(d, nvim):
    n = nvim(d.sock)
    n.write("one", "two", "three")
    n.run("set filetype=lua")
    n.run("2,3AnedChat What is it?")
    until(chat_over(n))
    assert n.text().startswith("## You\n\n```lua\ntwo\nthree\n```\n\nWhat is it?\n\n## Model\n\nHello")


def test_instructions(d, nvim):
    n = nvim(d.sock, "model = 's', chat = { system = 'Be terse.' }")
    n.run("AnedChat Hello")
    until(chat_over(n))
    assert "\n\nYou are terse.\n" in n.text()


def test_stop(nvim):
    """What came stays, the connection ends, and with it what the model computes; the chat goes on."""
    with StandIn(lambda body: endless("on and on ")) as s:
        n = nvim(s.sock, "")
        n.run("AnedChat Tell a story")
        until(lambda: n.text().count("on and on") > 5)
        n.keys("<C-c>")
        until(chat_over(n))
        until(lambda: s.left == 1)
        assert n.text().count("on and on") > 5 and n.text().endswith("\n\n## You\n\n")
        assert n.told() == ""


def test_a_chat_that_is_closed(nvim):
    """Nobody reads the answer: it ends."""
    with StandIn(lambda body: endless("on and on ")) as s:
        n = nvim(s.sock, "")
        n.run("AnedChat Tell a story")
        until(lambda: n.text().count("on and on") > 5)
        n.run("bwipeout!")
        until(lambda: s.left == 1)
        assert n.told() == ""


def test_completion(d, nvim):
    """Grey text, taken over by the key, which then means again what it did."""
    n = nvim(d.sock)
    n.keys("idef add(a, b):<CR>    return a<M-Bslash>")
    until(lambda: n.ghost() == models.CODE)
    assert n.text() == "def add(a, b):\n    return a"
    marks = n.lua("vim.api.nvim_buf_get_extmarks(0, vim.api.nvim_create_namespace('aned-complete'), 0, -1, {details = true})")
    assert marks[0][1:3] == [1, len("    return a")]
    assert marks[0][3]["virt_text"][0][0] == models.CODE.split("\n")[0] and len(marks[0][3]["virt_lines"]) == 3
    n.keys("<Tab>")
    assert n.text() == "def add(a, b):\n    return a" + models.CODE
    assert n.ghost() is None
    assert n.lua("vim.api.nvim_win_get_cursor(0)") == [5, len("    return a - b")]
    n.keys("<Tab>x")
    assert n.text().endswith("return a - b\tx")


def test_typed_as_shown(d, nvim):
    n = nvim(d.sock)
    n.keys("ireturn a<M-Bslash>")
    until(lambda: n.ghost() == models.CODE)
    n.keys(" +")
    until(lambda: n.ghost() == models.CODE[2:])
    n.keys("?")
    until(lambda: n.ghost() is None)
    assert n.text() == "return a +?"


def test_dismissed(d, nvim):
    n = nvim(d.sock)
    n.lua("vim.keymap.set('i', '<Tab>', 'mine', {buffer = true}) or 0")
    for key in ("<C-]>", "<Esc>a", "<Left>"):
        n.keys("<Esc>Sreturn a<M-Bslash>")
        until(lambda: n.ghost() == models.CODE)
        n.keys(key)
        until(lambda: n.ghost() is None)
    n.keys("<End><Tab>")
    assert n.text() == "return amine", "the key's own meaning in this buffer is back"


def test_from_normal_mode(d, nvim):
    n = nvim(d.sock)
    n.write("return a")
    n.run("AnedComplete")
    until(lambda: n.ghost() == models.CODE)


def test_by_itself(d, nvim):
    n = nvim(d.sock, "model = 's', completion = { auto = true, delay_ms = 10 }")
    n.keys("ireturn a")
    until(lambda: n.ghost() == models.CODE)


def test_within_a_line(d, nvim):
    """A suffix is offered; a daemon that has none is asked again without, and not offered one again."""
    n = nvim(d.sock)
    n.write("return a # the end")
    n.keys("0fa")
    for _ in range(2):
        n.keys("a<M-Bslash>")
        until(lambda: n.ghost() == models.CODE)
        n.keys("<Esc>")
        until(lambda: n.ghost() is None)
    n.keys("a<M-Bslash>")
    until(lambda: n.ghost() == models.CODE)
    n.keys("<Tab>")
    assert n.text() == "return a" + models.CODE + " # the end"


def test_suffix_and_limits(nvim):
    """What is asked: both sides of the cursor, cut at lines; bytes that come one by one are one text."""
    with StandIn(lambda body: texts("ä", "漢\nx")) as s:
        n = nvim(s.sock, "completion = { prefix_bytes = 20, suffix_bytes = 12, stop = {'END'} }")
        n.write("a line that is far too long", "before", "here", "behind", "a line that is too long")
        n.keys("3G0la<M-Bslash>")
        until(lambda: n.ghost() == "ä漢\nx")
        assert s.bodies == [{"prompt": "before\nhe", "suffix": "re\nbehind", "max_tokens": 64, "temperature": 0, "stop": ["END"],
                             "stream": True}]


def test_a_suffix_is_refused_once(nvim):
    def answers(body):
        return error(400, "suffix: only an empty one", "invalid", "suffix") if "suffix" in body else texts("x")
    with StandIn(answers) as s:
        n = nvim(s.sock, "")
        n.write("ab")
        for _ in range(2):
            n.keys("0a<M-Bslash>")
            until(lambda: n.ghost() == "x")
            n.keys("<Esc>")
            until(lambda: n.ghost() is None)
        assert ["suffix" in b for b in s.bodies] == [True, False, False]


def test_models(d, nvim):
    n = nvim(d.sock, "")
    n.lua("(function() vim.ui.select = function(names, _, f) _G.names = names; f(names[1]) end end)() or 0")
    n.run("AnedModel")
    until(lambda: n.lua("_G.names or vim.NIL"))
    assert sorted(n.lua("_G.names")) == ["bare", "s"]
    assert n.lua("require('aned').config.model") == n.lua("_G.names[1]")
    n.run("AnedModel other")
    assert n.lua("require('aned').config.model") == "other"


CHAT = "AnedChat Hello"
BEGUN = {"choices": [{"delta": {"content": "Well"}}]}


@pytest.mark.parametrize("said,words", [
    (error(503, "the queue is full", "busy"), "try again in a moment"),
    (error(400, "too long", "context_length_exceeded"), "send less"),
    (error(500, "a bug in aned", "internal"), "a bug in aned"),
    ([b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\nx"], "ended early"),
    ([b"SSH-2.0-x\r\n\r\n"], "no HTTP answer"),
    ([b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"], "a bad chunk"),
    ([b"HTTP/1.1 502 X\r\nContent-Length: 3\r\n\r\nbad"], "anectl doctor"),
    ([b""], "ended early"),
    (events("[DONE]"), "said nothing"),
    (events({"error": {"message": "the engine process ended", "code": "engine.lost"}}), "try again"),
    (answer(200, {}), "said nothing"),
])
def test_errors(nvim, said, words):
    """Each says what to do; the question stays, to be sent again."""
    with StandIn(lambda body: said) as s:
        n = nvim(s.sock, "")
        n.run(CHAT)
        until(chat_over(n))
        assert words in n.told()
        assert n.text() == "## You\n\nHello"


def test_an_error_amid_an_answer(nvim):
    with StandIn(lambda body: events(BEGUN, {"error": {"message": "gone", "code": "engine.lost"}})) as s:
        n = nvim(s.sock, "")
        n.run(CHAT)
        until(chat_over(n))
        assert "try again" in n.told() and n.text().endswith("## Model\n\nWell\n\n## You\n\n")


def test_cut_off(nvim):
    with StandIn(lambda body: events(BEGUN, {"choices": [{"delta": {}, "finish_reason": "length"}]})) as s:
        n = nvim(s.sock, "chat = { max_tokens = 1 }")
        n.run(CHAT)
        until(chat_over(n))
        assert "cut off" in n.told() and s.bodies[0]["max_tokens"] == 1


def test_no_daemon(nvim, tmp_path):
    n = nvim(tmp_path / "none")
    n.run(CHAT)
    until(chat_over(n))
    assert "aned serve" in n.told() and str(tmp_path / "none") in n.told()


def test_errors_of_the_daemon(d, nvim):
    n = nvim(d.sock, "model = 'nobody'")
    n.run(CHAT)
    until(chat_over(n))
    assert "anectl models" in n.told() and "anectl convert" in n.told()
    n.run("AnedModel bare")
    n.run("AnedSend")
    until(chat_over(n))
    assert ":AnedComplete" in n.told()
    n.run("AnedModel s")
    n.run("AnedSend")
    until(chat_over(n))
    assert n.text().endswith(models.TEXT + "\n\n## You\n\n")


def test_what_cannot_be_asked(d, nvim):
    n = nvim(d.sock)
    n.run("AnedSend")
    assert ":AnedChat" in n.told()
    n.keys("i<M-Bslash>")
    until(lambda: "write a line first" in n.told())
    n.run("AnedChat")
    n.run("AnedSend")
    assert "write your question" in n.told()


@pytest.mark.parametrize("env,where", [
    ({"ANED_SOCKET": "", "XDG_RUNTIME_DIR": "/r"}, "/r/aned/aned.sock"),
    ({"ANED_SOCKET": "", "ANED_HOME": "/h"}, "/h/run/aned.sock"),
    ({"ANED_SOCKET": ""}, "/.local/share/aned/run/aned.sock"),
])
def test_where_aned_is(nvim, env, where):
    assert nvim("/unused", "", clean=env).lua("require('aned').socket()").endswith(where)


def test_help(nvim):
    """Each command and option has its tag."""
    n = nvim("/unused", "")
    text = (PLUGIN / "doc" / "aned.txt").read_text()
    shutil.copytree(PLUGIN / "doc", n.dir / "help" / "doc")
    n.run(f"set rtp+={n.dir / 'help'} | helptags {n.dir / 'help' / 'doc'}")
    for tag in (":AnedChat", ":AnedComplete", ":AnedModel", ":AnedSend", ":AnedStop", "aned.txt"):
        n.run(f"help {tag}")
    for group in ("completion", "chat", "keys"):
        for option in n.lua(f"vim.tbl_keys(require('aned').config.{group})"):
            assert f"{option} =" in text
