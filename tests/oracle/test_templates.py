"""Chat templates against jinja2: the same text byte for byte, and an error where jinja2 has one.

Public templates and vectors are in the shared data; what stands here always runs: templates for each part of the
language, and expressions drawn at random."""
import json
import os
import random
import subprocess

import pytest

jinja2 = pytest.importorskip("jinja2", reason="the jinja2 package is not installed")

from jinja_reference import CONVERSATIONS, NOW, render, variables  # noqa: E402
import jinja_snippets  # noqa: E402


def ask(aned, folder, template, inputs, code=0):
    """What `aned template` makes of each of these: a list of (text, None) and (None, message)."""
    path = folder / "template.jinja"
    path.write_bytes(template.encode())
    lines = "".join(json.dumps(v, ensure_ascii=False) + "\n" for v in inputs)
    r = subprocess.run([aned, "template", path, "--lines", "--now", str(NOW)], input=lines.encode(), capture_output=True, timeout=300,
                       env=dict(os.environ, TZ="UTC"))
    if r.returncode != 0:
        why = r.stderr.decode()
        assert why.startswith("template."), why
        return [(None, why)] * len(inputs)
    answers = [json.loads(line) for line in r.stdout.decode().split("\n")[:-1]]
    assert len(answers) == len(inputs)
    return [(a, None) if isinstance(a, str) else (None, f"{a['error']}: {a['message']}") for a in answers]


def plain(text):
    """As messages of errors are: ASCII, and short."""
    return "".join(c if " " <= c < "\x7f" else "?" * len(c.encode()) for c in text)[:300]


def differs(got, want):
    """Why these two are not the same, or None."""
    if want[1] is not None:
        if got[1] is None:
            return f"jinja2 refuses ({want[1]!r}), aned writes {got[0]!r}"
        return None if plain(want[1]) in got[1] else f"jinja2 says {want[1]!r}, aned {got[1]!r}"
    if got[0] == want[0]:
        return None
    return f"\n  jinja2 {want[0]!r}\n  aned   {got[0] if got[1] is None else got[1]!r}"


def check(aned, folder, template, inputs):
    """inputs: {name: variables}"""
    got = ask(aned, folder, template, list(inputs.values()))
    try:
        compiled = jinja_reference_template(template)
    except jinja2.exceptions.TemplateError:
        compiled = template
    wrong = {}
    for (name, v), g in zip(inputs.items(), got):
        why = differs(g, render(compiled, v))
        if why:
            wrong[name] = why
    assert not wrong, "".join(f"\n{name}: {why}" for name, why in list(wrong.items())[:5]) + f"\n{len(wrong)} of {len(inputs)}"


def jinja_reference_template(template):
    from jinja_reference import ENV
    return ENV.from_string(template)


def all_inputs():
    return {f"{name}, {'with' if g else 'without'} a generation prompt": variables(c, g)
            for name, c in CONVERSATIONS.items() for g in (True, False)}


def public(shared):
    folder = shared / "data" / "templates"
    return sorted([*folder.glob("jinja/*/*.jinja"), *folder.glob("llamacpp-goldens/templates/*.jinja")])


def test_public_templates(aned, shared, tmp_path):
    inputs = all_inputs()
    assert len(CONVERSATIONS) >= 40 and len(public(shared)) >= 79
    wrong = []
    for path in public(shared):
        try:
            check(aned, tmp_path, path.read_text(), inputs)
        except AssertionError as e:
            wrong.append(f"{path.parent.name}/{path.name}: {e}")
    assert not wrong, "\n\n".join(wrong)


def continued(compiled, v):
    """transformers' continue_final_message: a mark behind the last message's text says where the prompt is cut."""
    tag = "CONTINUE_FINAL_MESSAGE_TAG "
    messages = [*v["messages"][:-1], {**v["messages"][-1], "content": v["messages"][-1]["content"] + tag}]
    text, why = render(compiled, {**v, "messages": messages})
    if why is not None:
        return None, why
    if v["messages"][-1]["content"].strip() not in text or tag.strip() not in text:
        return None, "cannot be continued"
    at = text.rindex(tag.strip())
    return (text[:at] if text[at:at + len(tag)] == tag else text[:at].rstrip()), None


LAST = {"one word": "So", "white space around": " \n So \n ", "a letter of what comes behind": "e", "lines": "One.\n\n* two\n",
        "what was said before": "Hi", "a thought": "<think>\nHm.\n</think>\n\nSo", "a thought that goes on": "<think>\nHm", "not ASCII": "Süß \u2003"}


def test_continued_messages(aned, shared, tmp_path):
    """The last message of the assistant goes on, in every public template as in transformers."""
    wrong, n = [], 0
    for path in public(shared):
        template = path.read_text()
        try:
            compiled = jinja_reference_template(template)
        except jinja2.exceptions.TemplateError:
            compiled = template
        inputs = {name: dict(variables({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": text}]}, False),
                             continue_final_message=True) for name, text in LAST.items()}
        for (name, v), got in zip(inputs.items(), ask(aned, tmp_path, template, list(inputs.values()))):
            want = continued(compiled, {k: x for k, x in v.items() if k != "continue_final_message"})
            why = differs(got, want)
            n += want[1] is None
            if why:
                wrong.append(f"{path.parent.name}/{path.name}, {name}: {why}")
    assert n > 400, n
    assert not wrong, "\n\n".join(wrong[:10]) + f"\n{len(wrong)} differ"


# --- vectors that others made ---

def vector_files(shared):
    return sorted((shared / "data" / "templates" / "vectors" / "generated").glob("*.json"))


def test_generated_vectors(aned, shared, tmp_path):
    """Texts that were made elsewhere with jinja2 3.1.6: they hold this file's environment, too."""
    n, wrong = 0, []
    for path in vector_files(shared):
        cases = json.loads(path.read_text())
        template = shared / "data" / "templates" / cases[0]["template_file"]
        if not template.exists():
            continue  # two templates are not in the data
        assert len({c["template_file"] for c in cases}) == 1
        got = ask(aned, tmp_path, template.read_text(), [c["input"] for c in cases])
        for c, g in zip(cases, got):
            error = c.get("error") or ""
            want = (c["expected"], None if c["expected"] is not None else error[len("TemplateError: "):] if error.startswith("TemplateError: ") else "")
            why = differs(g, want)
            n += 1
            if why:
                wrong.append(f"{path.name} {c['name']}: {why}")
    assert n > 900
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name, least", [("llamacpp_test_chat_template.json", 20), ("hfjs_e2e.dev.json", 20), ("hfjs_jinja_unit.json", 90)])
def test_published_vectors(aned, shared, tmp_path, name, least):
    """Vectors of other engines, those that jinja2 agrees with: it is what models are trained with. Each is rendered by the
    jinja2 here too, since some were made on another day, or without `tools` where there are none."""
    n, wrong = 0, []
    for c in json.loads((shared / "data" / "templates" / "vectors" / name).read_text()):
        v = dict(dict(tools=None, documents=None), **c["input"])
        if c["jinja2_3_1_6"] == "match" and "\\u0000" not in json.dumps(v):  # no string here has a NUL (proto/json.h)
            want = render(c["template"], v)
            why = differs(ask(aned, tmp_path, c["template"], [v])[0], want)
            n += want[0] == c["expected"]
            if why:
                wrong.append(f"{c['name']}: {c['template']!r}: {why}")
    assert n >= least
    assert not wrong, "\n".join(wrong)


def test_goldens(aned, shared, tmp_path):
    """llama.cpp's texts. It leaves `tools` undefined where there are none, transformers passes none: there some templates
    of tools refuse."""
    folder = shared / "data" / "templates"
    n, wrong = 0, []
    for c in json.loads((folder / "vectors" / "llamacpp_goldens_index.json").read_text()):
        template, expected = folder / c["template_file"], folder / c["expected_file"]
        if not template.exists() or not expected.exists():
            continue
        v = dict(dict(tools=None, documents=None), **json.loads((folder / c["context_file"]).read_text()))
        want = render(template.read_text(), v)
        why = differs(ask(aned, tmp_path, template.read_text(), [v])[0], want)
        n += want[0] == expected.read_text()
        if why:
            wrong.append(f"{c['name']}: {why}")
    assert n >= 40
    assert not wrong, "\n".join(wrong)


# --- our own ---

@pytest.mark.parametrize("topic", jinja_snippets.SNIPPETS)
def test_snippets(aned, tmp_path, topic):
    """Short templates, one thing each; all of a topic in one run of aned, for each its own template."""
    wrong = []
    for text in jinja_snippets.SNIPPETS[topic]:
        why = differs(ask(aned, tmp_path, text, [jinja_snippets.VARIABLES])[0], render(text, jinja_snippets.VARIABLES))
        if why:
            wrong.append(f"{text!r}: {why}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("seed", range(4))
def test_drawn_expressions(aned, tmp_path, seed):
    """Expressions of random operators, filters, methods and tests; each behind a mark, so that one run of aned has many."""
    draw = random.Random(seed)
    wrong = []
    for _ in range(25):
        parts = [jinja_snippets.expression(draw, 3) for _ in range(40)]
        template = "".join(f"{{%- if n == {i} %}}{{{{ {p} }}}}{{% endif %}}" for i, p in enumerate(parts))
        inputs = [dict(jinja_snippets.VARIABLES, n=i) for i in range(len(parts))]
        # What does not compile is asked one by one.
        want = [render("{{ " + p + " }}", v) for p, v in zip(parts, inputs)]
        got = ask(aned, tmp_path, template, inputs)
        for p, w, g in zip(parts, want, got):
            why = differs(g, w)
            if why and not jinja_snippets.excused(p, w, g):
                wrong.append(f"{p}: {why}")
    assert not wrong, "\n".join(wrong[:20]) + f"\n{len(wrong)} differ"
