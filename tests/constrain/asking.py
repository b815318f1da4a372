"""A constrained answer, streamed, in each of the dialects that have them."""
import json

PROMPT = "Write a value that keeps to the schema."
MESSAGES = [{"role": "user", "content": PROMPT}]


class Refused(Exception):
    """A status that is not 200, with its error."""

    def __init__(self, status, error):
        super().__init__(f"{status} {error}")
        self.status, self.message = status, error.get("message", "") if isinstance(error, dict) else str(error)


def chat(schema, more):
    return "/v1/chat/completions", {"messages": MESSAGES, "stream": True, "response_format": {
        "type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}, **more}


def completions(schema, more):
    return "/v1/completions", {"prompt": PROMPT, "stream": True, "json_schema": schema, **more}


def llamacpp(schema, more):
    rest = {("n_predict" if k == "max_tokens" else k): v for k, v in more.items()}
    return "/completion", {"prompt": PROMPT, "stream": True, "json_schema": schema, **rest}


def ollama(schema, more):
    names = {"max_tokens": "num_predict", "temperature": "temperature", "seed": "seed"}
    rest = {k: v for k, v in more.items() if k not in names}
    return "/api/chat", {"messages": MESSAGES, "format": schema, "options": {
        names[k]: v for k, v in more.items() if k in names}, **rest}


def responses(schema, more):
    rest = {("max_output_tokens" if k == "max_tokens" else k): v for k, v in more.items()}
    return "/v1/responses", {"input": PROMPT, "stream": True, "text": {
        "format": {"type": "json_schema", "name": "answer", "schema": schema}}, **rest}


def messages(schema, more):
    return "/v1/messages", {"messages": MESSAGES, "stream": True, "output_config": {
        "format": {"type": "json_schema", "schema": schema}}, **more}


# What an event adds to the text, and whether the answer was whole where it is the last.

def of_chat(e):
    c = e["choices"][0] if e.get("choices") else {}
    return c.get("delta", {}).get("content") or "", c.get("finish_reason")


def of_completions(e):
    c = e["choices"][0] if e.get("choices") else {}
    return c.get("text") or "", c.get("finish_reason")


def of_llamacpp(e):
    return e.get("content", ""), {"eos": "stop", "limit": "length"}.get(e.get("stop_type"))


def of_ollama(e):
    return e["message"]["content"], e.get("done_reason")


def of_responses(e):
    end = {"response.completed": "stop", "response.incomplete": "length"}.get(e["type"])
    return e["delta"] if e["type"] == "response.output_text.delta" else "", end


def of_messages(e):
    delta = e.get("delta", {})
    return delta.get("text", ""), {"end_turn": "stop", "max_tokens": "length"}.get(delta.get("stop_reason"))


DIALECTS = {"chat": (chat, of_chat), "completions": (completions, of_completions), "llama.cpp": (llamacpp, of_llamacpp),
            "ollama": (ollama, of_ollama), "responses": (responses, of_responses), "messages": (messages, of_messages)}
SEEDED = ("chat", "completions", "llama.cpp", "ollama")  # the others have no field for a seed


def lines(r):
    """httpx's own iter_lines also splits at U+2028 and its like, which may stand in an answer."""
    rest = b""
    for part in r.iter_bytes():
        *whole, rest = (rest + part).split(b"\n")
        yield from whole
    yield rest


def ask(d, dialect, schema, model, on_event=None, **more):
    """(text, "stop" or "length"): what came of an answer. Raises Refused."""
    body_of, read = DIALECTS[dialect]
    path, body = body_of(schema, more)
    text, end = "", None
    with d.http(300) as c, c.stream("POST", path, json={"model": model, **body}) as r:
        if r.status_code != 200:
            e = json.loads(r.read())["error"]
            raise Refused(r.status_code, e)
        for line in lines(r):
            line = line.removeprefix(b"data: ")
            if not line.startswith(b"{"):
                continue
            e = json.loads(line)
            if e.get("error"):
                raise RuntimeError(line[:300].decode())
            more_text, over = read(e)
            text += more_text
            end = over or end
            if more_text and on_event:
                on_event()
    return text, end


def dialects(d, model):
    """Those that the model can be asked in: chats need its template."""
    try:
        ask(d, "chat", {"const": 1}, model, max_tokens=1)
    except Refused as e:
        if "template" not in e.message:
            raise
        return ["completions", "llama.cpp"]
    return list(DIALECTS)


def closers(d, model):
    """logit_bias that raises what ends strings and brackets: a tiny model writes for ever otherwise."""
    out = {}
    with d.http() as c:
        for s in ('"', '"}', '"]', '",', "}", "]", '"\n', "}\n"):
            tokens = c.post("/tokenize", json={"model": model, "content": s}).json()["tokens"]
            if len(tokens) == 1:
                out[str(tokens[0])] = 12 if '"' in s else 6
    return out
