"""The model that says what a script has (tests/scripted.py): it converts without an accepted gate, and says it to the letter."""
import json
import subprocess

import pytest

import scripted
from conftest import Daemon

TEXT = "Hello from a script: the the the script, ä, 漢字 and so on; the the end.\n"
ANSWER = "It is sunny in Paris, and the end."
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
TALK = [{"role": "user", "content": "What is the weather?"}]
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}]
RESULT = [*TALK, {"role": "assistant", "content": None, "tool_calls": [
    {"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Paris"}}}]},
    {"role": "tool", "tool_call_id": "a", "content": "sunny"}]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    scripts = scripted.tool_scripts("get_weather", {"city": "Paris"}, answer=ANSWER, text=TEXT)
    endless = scripted.Script("On and on and on. ", "'on and on' in last.content")
    endless.endless = True
    return scripted.write(tmp_path_factory.mktemp("scripted") / "s.gguf", [scripts[0], endless, *scripts[1:]])


@pytest.fixture(scope="module")
def d(aned, source):
    d = Daemon(aned)
    job = d.convert(source, "s", context=512)
    assert job["state"] == "done", job
    yield d
    assert d.close() == 0


def post(d, path, **body):
    with d.http() as c:
        r = c.post(path, json={"model": "s", **body})
    assert r.status_code == 200, r.text
    return r


@pytest.mark.parametrize("draw", [{"temperature": 0}, {"temperature": 1}, {"temperature": 1.5, "frequency_penalty": 1}])
def test_chat(d, draw):
    x = post(d, "/v1/chat/completions", messages=TALK, **draw).json()
    assert x["choices"][0]["message"]["content"] == TEXT
    assert x["choices"][0]["finish_reason"] == "stop"
    assert x["usage"]["completion_tokens"] > 10


def test_streamed(d):
    r = post(d, "/v1/chat/completions", messages=TALK, stream=True)
    chunks = [json.loads(line[6:]) for line in r.text.splitlines() if line.startswith("data: {")]
    said = [c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"]]
    assert "".join(said) == TEXT
    assert len([s for s in said if s]) > 10


def test_completion(d):
    assert post(d, "/v1/completions", prompt="anything").json()["choices"][0]["text"] == TEXT


def test_endless(d):
    x = post(d, "/v1/chat/completions", messages=[{"role": "user", "content": "on and on"}], max_tokens=100).json()
    assert x["choices"][0]["finish_reason"] == "length"
    assert x["choices"][0]["message"]["content"].startswith("On and on and on. On and on and on. ")


@pytest.mark.parametrize("talk,tools,i", [(TALK, None, 3), (TALK, TOOLS, 2), (RESULT, TOOLS, 0)])
def test_the_situation_decides(aned, source, talk, tools, i):
    vars = {"messages": talk, "tools": tools, "add_generation_prompt": True}
    r = subprocess.run([aned, "template", source], input=json.dumps(vars).encode(), capture_output=True, timeout=60)
    assert r.returncode == 0, r.stderr.decode()
    assert r.stdout.decode().endswith("assistant\n" + scripted.mark(i))


def test_pieces():
    taken = set("abcdefgh ")
    texts = [TEXT, ANSWER, CALL, "the the the the the", "a b c d", '{"a": {"a": {"a": 1}}}']
    cut = [scripted.pieces_of(t, taken) for t in texts]
    assert ["".join(c) for c in cut] == texts
    every = [p for c in cut for p in c]
    assert len(every) == len(set(every)) > 40
    with pytest.raises(ValueError, match="the same"):
        scripted.pieces_of("same", {"same"})


@pytest.mark.parametrize("form", scripted.FORMS)
def test_forms(form, tmp_path, aned):
    """The template shows an earlier call as the model writes it."""
    path = scripted.write(tmp_path / "s.gguf", scripted.tool_scripts("f", {"a": 1}, form), form)
    talk = [*TALK, {"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]}]
    r = subprocess.run([aned, "template", path], input=json.dumps({"messages": talk}).encode(), capture_output=True, timeout=60)
    assert r.returncode == 0, r.stderr.decode()
    assert scripted.calls_text([("f", {"a": 1})], form) in r.stdout.decode()
