"""What the models of the editors' tests say."""
import scripted

TEXT = "Hello from aned, ä and 漢字.\n\nA second line."
SECOND = "That was the second answer."
CONTEXT = 16384  # so that an answer without an end lasts until it is stopped
CODE = " + b\n\ndef sub(a, b):\n    return a - b"


def make(path):
    """A model that chats; its text completion is CODE."""
    S = scripted.Script
    return scripted.write(path, context=CONTEXT, scripts=[S("On and on and on. ", "'endless' in last.content", endless=True),
                                 S(SECOND, "messages|length > 2"), S("You are terse.", "messages[0].role == 'system'"),
                                 S(TEXT, "messages"), S(CODE)])


def without_template(source, out):
    from gguf_copy import copy
    return copy(source, out, lambda found: {k: v for k, v in found.items() if k != "tokenizer.chat_template"})
