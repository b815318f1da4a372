"""Whether an answer is what a dialect's own SDK says it is: its types, and the facts of the wire around them.

The SDKs themselves take almost anything (`construct`). Here their types are asked strictly: each required field is there, each field has
its type, without conversions. A field that a type does not know must stand in MORE, with who reads it."""
import functools
import json

import anthropic.types as anthropic
import anthropic.types.beta as anthropic_beta
import ollama._types as ollama
import openai.types as openai
import openai.types.chat as openai_chat
import openai.types.responses as openai_responses
import openai.types.shared as openai_shared
import pydantic
from anthropic.types.shared import ErrorResponse as AnthropicError

WHOLE, EVENTS, LINES = "application/json", "text/event-stream", "application/x-ndjson"


class Models(pydantic.BaseModel):
    """The list that OpenAI's SDK reads as a page; its own class does not have `object`."""
    object: str
    data: list[openai.Model]


class AnthropicModels(pydantic.BaseModel):
    """The same of Anthropic's SDK."""
    data: list[anthropic.ModelInfo]
    has_more: bool
    first_id: str | None = None
    last_id: str | None = None


class OpenAIError(pydantic.BaseModel):
    error: openai_shared.ErrorObject


class OllamaError(pydantic.BaseModel):
    error: str


# Fields that the SDK's type does not have: who reads them.
MORE = {
    **{(t, "timings"): "llama.cpp's" for t in ("ChatCompletion", "ChatCompletionChunk", "Completion")},
    **{(t, "id"): "llama.cpp's: the token's id" for t in ("ChatCompletionTokenLogprob", "TopLogprob")},
    **{("Model", f): "llama.cpp's" for f in ("architecture", "meta", "status")},
    **{("Model", f): "vLLM's" for f in ("root", "max_model_len")},
    ("Model", "context_length"): "OpenRouter's",
    ("Response", "store"): "OpenAI's API has it",
    ("ResponseFunctionCallArgumentsDoneEvent", "name"): "OpenAI's API has it; required by older SDKs",
    ("ToolCall", "id"): "Ollama has it",
    ("Function", "index"): "Ollama has it",
    ("Model", "name"): "Ollama has it: what older clients read instead of model",
}
# Values that a service sends against its own type, and one that the type takes in their place.
BUT = {
    ("Completion", "choices.finish_reason"): (None, "stop"),  # null until the end of a stream, as OpenAI sends it
    # With echo: nothing says how likely a prompt's first token is; OpenAI sends null, too.
    ("Completion", "choices.logprobs.token_logprobs"): (None, 0.0),
    ("Completion", "choices.logprobs.top_logprobs"): (None, {}),
}

# path: (type of a whole answer, type of an event or line)
class Embedding(openai.Embedding):
    """As it comes: the SDK unpacks base64 before it makes its own."""
    embedding: list[float] | str


class Embeddings(openai.CreateEmbeddingResponse):
    data: list[Embedding]


CHAT = openai_chat.ChatCompletion, openai_chat.ChatCompletionChunk
TYPES = {
    "/v1/chat/completions": CHAT,
    "/chat/completions": CHAT,
    "/v1/completions": (openai.Completion, openai.Completion),
    "/v1/responses": (openai_responses.Response, openai_responses.ResponseStreamEvent),
    "/v1/models": (Models, None),
    "/v1/models/aned-demo": (openai.Model, None),
    "/v1/messages": (anthropic.Message, anthropic.RawMessageStreamEvent),
    "/v1/messages?beta=true": (anthropic_beta.BetaMessage, anthropic_beta.BetaRawMessageStreamEvent),
    "/v1/messages/count_tokens": (anthropic.MessageTokensCount, None),
    "/api/chat": (ollama.ChatResponse, ollama.ChatResponse),
    "/api/generate": (ollama.GenerateResponse, ollama.GenerateResponse),
    "/v1/embeddings": (Embeddings, None),
    "/api/embed": (ollama.EmbedResponse, None),
    "/api/embeddings": (ollama.EmbeddingsResponse, None),
    "/api/tags": (ollama.ListResponse, None),
    "/api/ps": (ollama.ProcessResponse, None),
    "/api/show": (ollama.ShowResponse, None),
    "/api/pull": (ollama.ProgressResponse, ollama.ProgressResponse),
}
ANTHROPIC = {"/v1/models": (AnthropicModels, None), "/v1/models/aned-demo": (anthropic.ModelInfo, None)}  # with its header
# No SDK has types for these.
UNTYPED = {"/", "/health", "/props", "/completion", "/infill", "/tokenize", "/apply-template", "/api/version", "/api/delete"}

# Almost all fields of Ollama's types are optional; these its service always sends.
OLLAMA_EVERY = ["model", "created_at", "done"]
OLLAMA_LAST = ["done_reason", "total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration", "eval_count", "eval_duration"]


def bare(path):
    return path.split("?")[0]


@functools.cache
def adapter(kind):
    return pydantic.TypeAdapter(kind)


def unknown(raw, x):
    """(type, field) of each member of raw that the type of x, which is its value, does not have."""
    if isinstance(x, pydantic.BaseModel) and isinstance(raw, dict):
        names = {f.alias or name: name for name, f in type(x).model_fields.items()}
        for key, value in raw.items():
            if key in names:
                yield from unknown(value, getattr(x, names[key]))
            else:
                yield type(x).__name__, key
    elif isinstance(x, (list, tuple)) and isinstance(raw, list):
        for a, b in zip(raw, x):
            yield from unknown(a, b)


def excused(kind, raw, errors):
    """Put what the type takes in place of values in BUT; whether these are all errors."""
    for e in errors:
        before, after = BUT.get((getattr(kind, "__name__", ""), ".".join(p for p in e["loc"] if isinstance(p, str))), (e, None))
        if e["input"] is not before:
            return False
        *way, key = e["loc"]
        functools.reduce(lambda x, p: x[p], way, raw)[key] = after
    return True


def nameless(raw):
    """Members that no type holds to be filled, and each client shows or keeps."""
    inner = [raw, *(raw[k] for k in ("message", "response") if isinstance(raw.get(k), dict))]
    return [f"{key}: empty" for x in inner for key in ("id", "model") if x.get(key) == ""]


def check(kind, text):
    """What is wrong with JSON text as a value of a type, as words."""
    raw = json.loads(text)
    for _ in range(2):
        try:
            x = adapter(kind).validate_json(json.dumps(raw), strict=True)
            return nameless(raw) + [f"{a}.{b}: no such field" for a, b in sorted(set(unknown(raw, x)) - set(MORE))]
        except pydantic.ValidationError as e:
            errors = e.errors()
        if not excused(kind, raw, errors):
            break
    return [f"{'.'.join(map(str, i['loc']))}: {i['msg']}" for i in errors[:8]]


# --- the wire ---

def framed(text):
    """[(event's name or None, data)] and what is wrong with the form of a stream of events."""
    out, bad = [], []
    if not text.endswith("\n\n"):
        bad.append("the last event has no empty line behind it")
    for block in text.split("\n\n")[:-1]:
        fields = {}
        for line in block.split("\n"):
            key, colon, value = line.partition(": ")
            if line.startswith(":"):
                continue
            if not colon or key not in ("event", "data", "id") or key in fields:
                bad.append(f"a line that no client reads: {line[:80]!r}")
            fields[key] = value
        if "data" in fields:
            out.append((fields.get("event"), fields["data"]))
    return out, bad


def openai_stream(events):
    """Of chat and completions: no names, one id, [DONE] once and last; each choice begins with the role and ends once."""
    bad = [f"event: {name}" for name, _ in events if name]
    if [d for _, d in events].count("[DONE]") != 1 or events[-1][1] != "[DONE]":
        bad.append("[DONE] is not once at the end")
    chunks = [json.loads(d) for _, d in events if d != "[DONE]"]
    if len({c["id"] for c in chunks}) != 1:
        bad.append("more than one id")
    ended, begun = set(), set()
    for choice in (x for c in chunks for x in c["choices"]):
        i = choice["index"]
        if "delta" in choice and (i not in begun) != ("role" in choice["delta"]):
            bad.append("the role is not once at the beginning")
        if i in ended:
            bad.append(f"choice {i} goes on behind its end")
        begun.add(i)
        if choice["finish_reason"]:
            ended.add(i)
    return bad + ([] if begun and begun == ended else ["a choice without end"])


def responses_stream(events):
    """Each name is the type; numbers count from 0; created first; one of three ends."""
    data = [json.loads(d) for _, d in events]
    bad = [f"event {name} with type {d['type']}" for (name, _), d in zip(events, data) if name != d["type"]]
    if [d["sequence_number"] for d in data] != list(range(len(data))):
        bad.append("sequence numbers do not count from 0")
    if not data or data[0]["type"] != "response.created":
        bad.append("it does not begin with response.created")
    ends = [d["type"] in ("response.completed", "response.incomplete", "response.failed") for d in data]
    if ends.count(True) != 1 or not ends[-1]:
        bad.append("it does not end once")
    return bad


def anthropic_stream(events):
    """Each name is the type; message_start, whole blocks one after the other, message_delta, message_stop."""
    data = [json.loads(d) for _, d in events]
    bad = [f"event {name} with type {d['type']}" for (name, _), d in zip(events, data) if name != d["type"]]
    data = [d for d in data if d["type"] != "ping"]
    types = [d["type"] for d in data]
    if types[:1] != ["message_start"] or types[-2:] != ["message_delta", "message_stop"]:
        bad.append("its first and last events are others")
    n, open_ = 0, False
    for d in data[1:-2]:
        kind = d["type"].removeprefix("content_block_")
        if kind not in ("start", "delta", "stop") or d["index"] != n or open_ != (kind != "start"):
            bad.append(f"{d['type']} out of its turn")
        open_ = kind != "stop"
        n += kind == "stop"
    return bad + (["an open block"] if open_ else [])


STREAMS = {openai_chat.ChatCompletionChunk: openai_stream, openai.Completion: openai_stream,
           openai_responses.ResponseStreamEvent: responses_stream, anthropic.RawMessageStreamEvent: anthropic_stream,
           anthropic_beta.BetaRawMessageStreamEvent: anthropic_stream}


def ollama_missing(lines):
    """What Ollama's lines always have and these have not."""
    want = [(d, OLLAMA_EVERY) for d in lines] + [(lines[-1], OLLAMA_LAST)] if lines else []
    if lines and lines[-1].get("done_reason") in ("load", "unload"):  # an empty prompt: nothing was made
        want = want[:-1]
    bad = [f"{key}: not there" for d, keys in want for key in keys if key not in d]
    return bad + ([] if [d.get("done") for d in lines] == [False] * (len(lines) - 1) + [True] else ["done is not once at the end"])


def problems(path, content_type, text, headers=()):
    """What is wrong with an answer of 2xx to a request with those headers: a list of words."""
    if bare(path) in UNTYPED:
        return framed(text)[1] if content_type == EVENTS else []
    with_header = ANTHROPIC.get(bare(path)) if any(h.lower() == "anthropic-version" for h in headers) else None
    whole, piece = with_header or TYPES.get(path) or TYPES[bare(path)]
    if content_type == EVENTS:
        events, bad = framed(text)
        texts = [d for name, d in events if d != "[DONE]" and (name, d) != ("ping", '{"type":"ping"}')]
    elif content_type in (WHOLE, LINES):
        texts, bad = text.splitlines() if content_type == LINES else [text], []
    else:
        return [f"content type {content_type}"]
    kind = whole if content_type == WHOLE else piece
    bad += [x for t in texts for x in check(kind, t)]
    if bad:
        return bad
    if kind in (ollama.ChatResponse, ollama.GenerateResponse):
        return ollama_missing([json.loads(t) for t in texts])
    return STREAMS[kind](events) if content_type == EVENTS else []


def error_problems(path, content_type, text):
    """The same of a refusal."""
    if content_type != WHOLE:
        return [f"content type {content_type}"]
    kind = OllamaError if path.startswith("/api/") else AnthropicError if path.startswith("/v1/messages") else OpenAIError
    return check(kind, text)
