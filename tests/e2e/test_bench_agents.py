"""`./dev bench agents`: which requests it sends, how long they are, what it reads from the answers."""
import json
import subprocess
import sys

import pytest

from conftest import TOP, Daemon

sys.path.insert(0, str(TOP / "tests" / "bench"))
import bench_agents as bench  # noqa: E402

TEMPLATE = TOP / "tests" / "bench" / "gemma_tools.jinja"


def test_texts_get_their_length_back():
    cut = {"a": ["x \u2026[1000 characters left out]\u2026 y", 7], "b": "x \u2026[1000 characters left out]\u2026 y"}
    full = bench.Lengthener().all(cut)
    assert len(full["a"][0]) == len(full["b"]) == 1002 and full["a"][1] == 7
    assert full["a"][0][0] == "x" and full["a"][0][-1] == "y" and "left out" not in json.dumps(full)
    assert full["a"][0] != full["b"]  # another text for each gap
    assert bench.real_length(cut) >= 2000


def test_words_of_the_answer_and_its_usage():
    chat, claude, codex = (bench.AGENTS[n][1] for n in ("opencode", "claude", "codex"))
    assert chat.text({"choices": [{"delta": {"role": "assistant", "content": ""}}]}) is None
    assert chat.text({"choices": [{"delta": {"content": "a"}}]}) == "a"
    assert chat.usage({"usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}}}) == (9, 4)
    assert claude.text({"type": "ping"}) is None
    assert claude.text({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}}) == "a"
    assert claude.usage({"type": "message_start", "message": {"usage": {"input_tokens": 5, "cache_read_input_tokens": 4}}}) == (9, 4)
    assert codex.text({"type": "response.created", "response": {}}) is None
    assert codex.text({"type": "response.output_text.delta", "delta": "a"}) == "a"
    assert codex.usage({"response": {"usage": {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 4}}}}) == (9, 4)


def test_the_template_shows_tools_calls_and_results(aned):
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]
    talk = {"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}, {"role": "system", "content": "L"},
                         {"role": "assistant", "content": None, "tool_calls": calls}, {"role": "tool", "content": "R"}],
            "tools": [{"type": "function", "function": {"name": "f"}}], "add_generation_prompt": True, "bos_token": "<bos>"}
    r = subprocess.run([aned, "template", TEMPLATE], input=json.dumps(talk), capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    assert r.stdout.startswith("<bos><start_of_turn>user\nS\n\n# Tools\n")
    assert '\n{"type": "function", "function": {"name": "f"}}\n</tools>' in r.stdout
    assert r.stdout.endswith('\n\nU\n\nL<end_of_turn>\n<start_of_turn>model\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
                             "<end_of_turn>\n<start_of_turn>user\n<tool_response>\nR\n</tool_response><end_of_turn>\n<start_of_turn>model\n")


def test_every_first_turn_is_taken_and_has_its_length(aned, demo_gguf, shared):
    """All fields are taken: what is refused is the length alone, and it is what was wanted."""
    d = Daemon(aned)
    try:
        assert d.convert(demo_gguf, "count", context=bench.COUNTING, chat_template=str(TEMPLATE))["state"] == "done"
        for pattern, dialect, _ in bench.AGENTS.values():
            name, body = bench.first_turn(pattern, dialect)
            assert body["tools"] and not dialect.answered(body), name
            cut = dialect.request(body)
            full = dialect.request(bench.Lengthener().all(body))
            have = bench.count(d, dialect, full)
            assert have > bench.count(d, dialect, cut) > 1000, name
            _, before, after = bench.at_length(d, dialect, full, have + 2000)
            assert before == have and after == pytest.approx(have + 2000, abs=100), name
            assert bench.count(d, dialect, dialect.second(full, "Yes.")) > have, name
    finally:
        assert d.close() == 0


def test_without_the_recorded_requests_it_says_so(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(bench, "CLIENTS", tmp_path / "none")
    monkeypatch.setattr(sys, "argv", ["bench_agents.py"])
    with pytest.raises(SystemExit) as x:
        bench.main()
    assert x.value.code == 2 and "shared/data/clients" in capsys.readouterr().err
