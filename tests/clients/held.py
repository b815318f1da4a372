"""A model that answers by any schema and soon ends: `write(OUT)`.

It is scripted (tests/scripted.py). It begins a call where there are tools, and says PLACE where there are none, as a text
that asks for JSON in words wants (JOKE: langchain-tests). Where a constraint forbids that, the next token depends on the
last one's last character: a string gets one word, a number one digit, a list few elements, and a bracket closes as soon as
it may. So schemas without bounds, which the examples of the SDKs have, are answered in few tokens at any temperature.
"""
import scripted
from scripted import Script

JOKE = '{"setup": "Why?", "punchline": "Because."}'
PLACE = '{"city": "Paris", "days": 3}'
CALLS = "tools and messages[-1].role != 'tool'"
BEGIN = "<tool_call>"
WORD = "nonsense"

AFTER = {'"': [WORD, "}", "]", ",", ":"], "{": ['"', "}"], "[": ['"', "{", "7", "[", "t", "]"], ",": ['"', "{", "7", "[", "t"],
         ":": ['"', "7", "n", "t", "[", "{"], " ": ['"', "7", "n", "t", "[", "{"], "}": ['"', "}", "]", ",", "\n", "<"],
         "]": ['"', "}", "]", ","]}
AFTER_DIGIT = [",", "}", "]", '"', "7"]
AFTER_LETTER = ['"', "a", ",", "}", "]", "7"]


def likely(tokens):
    at = {t: i for i, t in enumerate(tokens)}
    letters = {c: b for b, c in scripted.mkgguf.byte_alphabet().items()}
    out = {}
    for i, t in enumerate(tokens):
        last = chr(letters.get(t[-1], 0)) if t else ""
        after = AFTER.get(last, AFTER_DIGIT if last.isdigit() else AFTER_LETTER)
        out[i] = [at[scripted.spelled(x)] for x in after]
    return out


def write(path, context):
    scripts = [Script(BEGIN, CALLS), Script(WORD, "false"), Script(JOKE, "'punchline' in messages|string"), Script(PLACE)]
    return scripted.write(path, scripts, context=context, likely=likely)
