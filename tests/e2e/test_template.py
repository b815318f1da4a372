"""`aned template`: the prompt of a model's own template, or of a text file's."""
import json
import subprocess


def ask(aned, *args, data, code=0):
    r = subprocess.run([aned, "template", *map(str, args)], input=data.encode(), capture_output=True, timeout=60)
    assert r.returncode == code, r.stderr.decode()
    return (r.stderr if code else r.stdout).decode()


def test_of_a_model(aned, demo_gguf):
    talk = [{"role": "user", "content": "What is aned?"}]
    text = ask(aned, demo_gguf, data=json.dumps(talk))
    assert text == "<|im_start|>user\nWhat is aned?<|im_end|>\n<|im_start|>assistant\n"
    assert ask(aned, demo_gguf, data=json.dumps({"messages": talk})) == text[:-len("<|im_start|>assistant\n")]


def test_of_a_text(aned, tmp_path):
    path = tmp_path / "t.jinja"
    path.write_text("{{ bos_token }}{% for m in messages %}{{ m.role }}:{{ m.content|tojson }};{% endfor %}"
                    "{{ raise_exception('No x.') if x }}{{ strftime_now('%Y') }}\n")
    lines = ['{"messages": [], "bos_token": "B"}', '{"messages": [{"role": "a", "content": [1, 1.0]}]}', '{"x": 1}', "{", ""]
    got = [json.loads(x) for x in ask(aned, path, "--lines", "--now", "86400000", data="\n".join(lines)).splitlines()]
    assert got[:2] == ["B1972", "a:[1, 1.0];1972"]
    assert got[2] == {"error": "template.input", "message": "No x."}
    assert got[3]["error"] == "json.invalid"
    assert len(got) == 4
    assert ask(aned, path, data='{"x": 1}', code=65) == "template.input: No x.\n"


def test_what_is_wrong_is_said(aned, tmp_path):
    path = tmp_path / "t.jinja"
    path.write_text("{% if x %}")
    assert "endif" in ask(aned, path, data="[]", code=65)
    path.write_bytes(b"a\xff")
    assert "UTF-8" in ask(aned, path, data="[]", code=65)
    path.write_bytes(b"x" * (256 * 1024 + 1))
    assert ask(aned, path, data="[]", code=65)
    assert "not_found" in ask(aned, tmp_path / "none", data="[]", code=66)
    ask(aned, data="[]", code=64)
    ask(aned, path, "--now", "x", data="[]", code=64)
