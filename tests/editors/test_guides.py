"""client/guides: every snippet is of its language, every route is there or is said not to be, and what a page says of how it was
tried is so."""
import json
import re
import shutil
import subprocess
import tomllib

import pytest

from conftest import TOP

GUIDES = sorted((TOP / "client" / "guides").glob("*.md"))
PAGES = [p for p in GUIDES if p.name != "README.md"]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
REPLAYED = "its recorded requests only"
PORT = "127.0.0.1:11435"


def snippets(language):
    return [pytest.param(text, id=f"{p.stem}-{i}") for p in GUIDES
            for i, (lang, text) in enumerate(FENCE.findall(p.read_text())) if lang == language]


def line_of(page, word):
    found = re.findall(rf"^{word}: (.*)$", page.read_text(), re.M)
    assert len(found) < 2, f"{page.name} has {word} twice"
    return found[0] if found else ""


def routes(text):
    return re.findall(r"`([A-Z]+) (/[^`]*)`", text)


def results():
    """{name: its dialects} of the clients that were run, as the tables say."""
    lines = (TOP / "tests" / "clients" / "RESULTS.md").read_text().splitlines()
    rows = [[c.strip() for c in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return {name: {r[2] for r in rows if r[0] == name} for name in {r[0] for r in rows}}


def run(*args, text):
    return subprocess.run([str(a) for a in args], input=text, capture_output=True, text=True, timeout=60)


def test_known_languages():
    for p in GUIDES:
        for lang, _ in FENCE.findall(p.read_text()):
            assert lang in ("ini", "json", "toml", "yaml", "python", "js", "sh", "lua", "vim", "elisp"), p.name


@pytest.mark.parametrize("text", snippets("json"))
def test_json(text):
    assert json.loads(text)


@pytest.mark.parametrize("text", snippets("toml"))
def test_toml(text):
    assert tomllib.loads(text)


@pytest.mark.parametrize("text", snippets("yaml"))
def test_yaml(text):
    assert pytest.importorskip("yaml").safe_load(text)


@pytest.mark.parametrize("text", snippets("python"))
def test_python(text):
    compile(text, "snippet", "exec")


@pytest.mark.parametrize("text", snippets("sh"))
def test_shell(text):
    r = run("sh", "-n", text=text)
    assert r.returncode == 0, r.stderr


@pytest.mark.parametrize("text", snippets("ini"))
def test_conf(text, aned, tmp_path):
    """Sections and keys that aned has; MODEL is a name that may be there."""
    known = subprocess.run([aned, "serve", "--print-config"], capture_output=True, text=True, check=True).stdout
    if "listen" in text and not re.search(r"^#? ?listen *=", known, re.M):
        pytest.skip("this aned listens on no port")
    (tmp_path / "aned.conf").write_text(text)
    r = run(aned, "serve", "--check", "--config", tmp_path / "aned.conf", "--home", tmp_path / "home", text="")
    assert r.returncode == 0, r.stderr


@pytest.mark.parametrize("text", snippets("js"))
def test_javascript(text, tmp_path):
    if not shutil.which("node"):
        pytest.skip("node is not installed")
    (tmp_path / "s.mjs").write_text(text)
    r = run("node", "--check", tmp_path / "s.mjs", text="")
    assert r.returncode == 0, r.stderr


@pytest.mark.parametrize("text", snippets("lua"))
def test_lua(text, tmp_path):
    if not shutil.which("nvim"):
        pytest.skip("nvim is not installed")
    (tmp_path / "s.lua").write_text(text)
    r = run("nvim", "--headless", "-u", "NONE", "-i", "NONE", "-c", f"lua assert(loadfile([[{tmp_path / 's.lua'}]]))", "-c", "qa",
            text="")
    assert r.returncode == 0 and r.stderr.strip() == "", r.stderr


@pytest.mark.parametrize("text", snippets("vim"))
def test_vim(text, tmp_path):
    if not shutil.which("nvim"):
        pytest.skip("nvim is not installed")
    (tmp_path / "s.vim").write_text(text)
    r = run("nvim", "--headless", "-u", "NONE", "-i", "NONE", "-S", tmp_path / "s.vim", "-c", "qa", text="")
    assert r.returncode == 0 and r.stderr.strip() == "", r.stderr


@pytest.mark.parametrize("text", snippets("elisp"))
def test_elisp(text, tmp_path):
    if not shutil.which("emacs"):
        pytest.skip("emacs is not installed")
    (tmp_path / "s.el").write_text(text)
    whole = f'(with-temp-buffer (insert-file-contents "{tmp_path / "s.el"}") (check-parens) (while (progn (skip-chars-forward " \\n") ' \
            "(not (eobp))) (read (current-buffer))))"
    r = run("emacs", "--batch", "-Q", "--eval", whole, text="")
    assert r.returncode == 0, r.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_routes(page):
    """What a client asks for is in proto/api.json; the page says so of what is not."""
    paths = json.loads((TOP / "proto" / "api.json").read_text())["paths"]
    there = {(m.upper(), p) for p, methods in paths.items() for m in methods}
    there |= {("HEAD", p) for m, p in there if m == "GET"}
    asked, missing = set(routes(line_of(page, "Asks for"))), set(routes(line_of(page, "Not here yet")))
    assert asked
    assert missing == asked - there, f"{page.name}: 'Not here yet' has to be {sorted(asked - there)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_tried(page):
    """A row of `./dev test clients` for each that it names, by a dialect that it names; or recordings that there are."""
    said = line_of(page, "Tried")
    rows = re.search(r"by `./dev test clients` \(([^)]*)\)", said)
    suite = re.fullmatch(r"by `./dev test (\w+)`", said)  # one of its own
    for name in re.findall(r"not run yet: ([^;]*)", said):
        assert name not in results(), f"{page.name}: {name} was run"
    if rows:
        table = results()
        asked = {p for _, p in routes(line_of(page, "Asks for"))}
        for name in rows[1].split("; "):
            assert name in table, f"{page.name}: tests/clients/RESULTS.md has no row {name!r}"
            assert table[name] <= asked, f"{page.name}: {name} asks for {sorted(table[name] - asked)}"
    elif suite:
        assert list((TOP / "tests" / suite[1]).glob("test_*.py")), f"{page.name}: there is no tests/{suite[1]}"
    else:
        assert said.startswith((REPLAYED, "not; written from its documents", "not run yet: ")), f"{page.name} does not say how it was tried"


def test_index():
    """The index leads to every page, and every page speaks of the port or of nothing."""
    index = (TOP / "client" / "guides" / "README.md").read_text()
    assert sorted(set(re.findall(r"\]\(([\w-]+\.md)\)", index))) == sorted(p.name for p in PAGES)
    for p in PAGES:
        assert set(re.findall(r"127\.0\.0\.1:\d+", p.read_text())) == {PORT}, p.name
