#!/usr/bin/env python3
"""A tiny model that says what a script has: `scripted.py OUT.gguf` makes one with a call of a tool, an answer and a text.

    write(OUT, tool_scripts("get_weather", {"city": "Paris"}, answer="It is sunny in Paris."))

Each piece of a script is a token of its own, and after token k comes the one behind it: every token has a code, a row of
signs, nearly at right angles to all others; the head has the codes, and the embedding has, for each token, the code of the
token that follows. Attention and the feed-forward part add a hundredth, so that they run without deciding anything. What
the model says depends on nothing but the last token of the prompt, and the chat template, which is ours, ends the prompt
with the mark of the first script whose condition holds (a Jinja expression; `last` is the last message). A prompt that
ends otherwise (/v1/completions) gets the last script. The likeliest token leads by 25 or more: a temperature changes
nothing.

The template shows at most SHOWN bytes of each message, so that agents with long prompts need no long context here.
"""
import argparse
import dataclasses
import json
import pathlib
import re
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent / "bench"))

import mkgguf  # noqa: E402
from mkgguf import gguf  # noqa: E402

SHOWN = 64
LEAD = 40  # the logit of the token that follows; others have a third at most
PLAIN_VOCAB = 512  # bytes, and a few merges: what prompts are made of
SHAPE = mkgguf.Shape("llama", 1, 256, 4, 2, 64, 256, 0, tied=False, eps=1e-5, context=8192)


@dataclasses.dataclass
class Script:
    text: str
    when: str = "true"
    endless: bool = False  # its first piece follows its last: it ends where max_tokens or the context does


# --- what models of several kinds write ---------------------------------------


def json_calls(key):
    return lambda calls: [{"name": n, key: a} for n, a in calls]


FORMS = {
    "hermes": (lambda calls: "\n".join(f"<tool_call>\n{json.dumps(c)}\n</tool_call>" for c in json_calls("arguments")(calls)),
               "<tool_call>\n{{ {'name': c.name, 'arguments': c.arguments}|tojson }}\n</tool_call>"),
    "llama3": (lambda calls: "; ".join(json.dumps(c) for c in json_calls("parameters")(calls)),
               "<|python_tag|>{{ {'name': c.name, 'parameters': c.arguments}|tojson }}"),
    "mistral": (lambda calls: "[TOOL_CALLS]" + json.dumps(json_calls("arguments")(calls)),
                "[TOOL_CALLS][{{ {'name': c.name, 'arguments': c.arguments}|tojson }}]"),
}

TEMPLATE = """\
{%- macro shown(content) -%}
{%- if content is string -%}{{ content[:SHOWN] }}
{%- else -%}{%- for part in content or [] -%}{{ (part.text or '')[:SHOWN] }}{%- endfor -%}{%- endif -%}
{%- endmacro -%}
{%- if tools -%}
<|im_start|>system
Tools:{% for t in tools %} {{ (t.function or t).name }}{% endfor %}<|im_end|>
{% endif -%}
{%- for m in messages -%}
<|im_start|>{{ m.role }}
{{ shown(m.content) }}
{%- for call in m.tool_calls or [] -%}{%- set c = call.function or call -%}CALL{%- endfor -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% set last = messages[-1] -%}
CHOICE
{%- endif -%}
"""


def mark(i):
    return f"<|script_{i}|>"


def template_of(scripts, form):
    rows = [f"{{%- {'if' if i == 0 else 'elif'} {s.when} -%}}{mark(i)}" for i, s in enumerate(scripts)]
    text = TEMPLATE.replace("CALL", FORMS[form][1]).replace("CHOICE", "\n".join([*rows, "{%- endif -%}"]))
    return text.replace("SHOWN", str(SHOWN))


def calls_text(calls, form="hermes"):
    """Calls, (name, arguments as a dict) each, as a model of this form writes them."""
    return FORMS[form][0](calls)


def tool_scripts(name, arguments, form="hermes", before="", answer="The tool has answered.", text="Hello from a script."):
    """A call where there are tools, an answer after a tool's result, a text otherwise."""
    return [Script(answer, "last.role == 'tool'"), Script(before + calls_text([(name, arguments)], form), "tools"), Script(text)]


# --- pieces -------------------------------------------------------------------


def pieces_of(text, taken):
    """A text cut into pieces of about a word, each unlike all others and unlike those of `taken`, which gets them."""
    cuts = [m.end() for m in re.finditer(r"\s*\w{1,8}|\s*\W", text)]
    cuts = cuts if cuts and cuts[-1] == len(text) else [*cuts, len(text)]
    found, begin = [], 0
    for cut in cuts:
        if text[begin:cut] not in taken and begin < cut:
            found.append(text[begin:cut])
            taken.add(text[begin:cut])
            begin = cut
    rest = text[begin:]
    while rest:  # it is a piece already: it becomes one with what is before it
        if not found:
            raise ValueError(f"no piece of its own is left for {text!r}: two scripts are the same?")
        taken.remove(found[-1])
        rest = found.pop() + rest
        if rest not in taken:
            found.append(rest)
            taken.add(rest)
            rest = ""
    return found


def spelled(piece):
    """A piece as a byte-level vocabulary has it."""
    alphabet = mkgguf.byte_alphabet()
    return "".join(alphabet[b] for b in piece.encode())


# --- the file -----------------------------------------------------------------


def vocabulary_of(scripts):
    """(tokens, types, merges, the token that follows each)."""
    tokens, types, merges = mkgguf.vocabulary(PLAIN_VOCAB)
    letters = {c: b for b, c in mkgguf.byte_alphabet().items()}
    taken = {bytes(letters[c] for c in t).decode(errors="replace") for t in tokens[:-len(mkgguf.SPECIALS)]}
    end = tokens.index("<|im_end|>")
    follows, begins = {}, []
    for s in scripts:
        first = len(tokens)
        tokens += [spelled(p) for p in pieces_of(s.text, taken)]
        begins.append(first)
        follows.update((t, t + 1) for t in range(first, len(tokens) - 1))
        follows[len(tokens) - 1] = first if s.endless else end
    types += [gguf.TokenType.NORMAL] * (len(tokens) - len(types))
    for i, first in enumerate(begins):
        follows[len(tokens)] = first
        tokens.append(mark(i))
        types.append(gguf.TokenType.CONTROL)
    return tokens, types, merges, [follows.get(t, begins[-1]) for t in range(len(tokens))]


def embedding_of(codes, follows, likely):
    """The code of the token that follows. Those of likely[token] are weaker behind a piece of a script, and stand alone behind others."""
    rows = codes[follows]
    for token, others in likely.items():
        if token < PLAIN_VOCAB:
            rows[token] = 0
        for i, other in enumerate(others):
            rows[token] += codes[other] * 0.6 / (i + 1)
    return rows


def weights_of(shape, follows, likely):
    rng = np.random.default_rng(1)
    codes = rng.choice(np.array([-1, 1], np.float32), (shape.vocab, shape.d))
    for name, dims, what in mkgguf.tensor_list(shape):
        w = mkgguf.make_tensor(1, name, dims, what, gguf.GGMLQuantizationType.F32)
        if name == "token_embd.weight":
            w = embedding_of(codes, follows, likely)
        elif name == "output.weight":
            w = codes * (LEAD / shape.d)
        elif what == "norm":
            w = np.ones(dims, np.float32)
        elif name.split(".")[-2] in ("attn_output", "ffn_down"):
            w = w / 100
        yield name, w if what == "norm" else w.astype(np.float16)


def write(path, scripts, form="hermes", context=SHAPE.context, ff=SHAPE.ff, likely=lambda tokens: {}):
    """The GGUF of these scripts, by the order of their conditions; its path. A larger ff makes it slower, and nothing else.
    likely(tokens): {number of a token: at most ten that come next, likeliest first, where a constraint forbids the script}."""
    tokens, types, merges, follows = vocabulary_of(scripts)
    shape = dataclasses.replace(SHAPE, vocab=len(tokens), context=context, ff=ff)
    w = gguf.GGUFWriter(str(path), shape.arch)
    w.add_name("scripted")
    mkgguf.shape_keys(w, shape)
    mkgguf.vocabulary_keys(w, tokens, [int(t) for t in types], merges, template_of(scripts, form))
    for name, data in weights_of(shape, follows, likely(tokens)):
        w.add_tensor(name, data)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    p.add_argument("--form", default="hermes", choices=FORMS)
    p.add_argument("--tool", default="get_weather", help="the name of the tool that is called")
    p.add_argument("--arguments", default='{"city": "Paris"}', help="its arguments, a JSON object")
    a = p.parse_args()
    write(a.out, tool_scripts(a.tool, json.loads(a.arguments), a.form), a.form)


if __name__ == "__main__":
    main()
