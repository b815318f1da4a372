"""Calls of tools and thoughts, from the request to the answer, by the clients of three dialects.

The model says what a script has (tests/scripted.py): a call where there are tools, an answer behind a result."""
import json

import anthropic
import httpx
import httpx2
import ollama
import openai
import pytest

import scripted
from conftest import SLOW_S, Daemon

NAME, ARGS = "get_weather", {"city": "Paris", "days": 2}
BEFORE, ANSWER, TEXT, THOUGHT = "Let me look. ", "It is sunny.", "Hello there.", "The user greets me."
ASK = [{"role": "user", "content": "What is the weather in Paris?"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": NAME, "description": "The weather.", "parameters": SCHEMA, "strict": False}}]
A_TOOLS = [{"name": NAME, "description": "The weather.", "input_schema": SCHEMA, "cache_control": {"type": "ephemeral"}}]
# What a template of a model that thinks writes for an earlier turn.
EARLIER = "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content[:SHOWN] }}\n</think>\n{% endif %}{{ shown(m.content) }}"
THINKS = scripted.Script(f"<think>\n{THOUGHT}\n</think>\n\n{TEXT}", "enable_thinking is defined and enable_thinking")


@pytest.fixture(scope="module")
def d(aned, tmp_path_factory):
    """`one` calls once, `two` calls twice, `m` writes calls as Mistral does."""
    tmp = tmp_path_factory.mktemp("tools")
    one = [THINKS, *scripted.tool_scripts(NAME, ARGS, before=BEFORE, answer=ANSWER, text=TEXT)]
    two = [scripted.Script(ANSWER, "last.role == 'tool'"),
           scripted.Script(scripted.calls_text([(NAME, ARGS), ("get_time", {})]), "tools"), scripted.Script(TEXT)]
    d = Daemon(aned)
    patch = pytest.MonkeyPatch()
    patch.setattr(scripted, "TEMPLATE", scripted.TEMPLATE.replace("{{ shown(m.content) }}", EARLIER))
    for name, scripts, form in (("one", one, "hermes"), ("two", two, "hermes"),
                                ("m", scripted.tool_scripts(NAME, ARGS, "mistral", answer=ANSWER, text=TEXT), "mistral")):
        job = d.convert(scripted.write(tmp / f"{name}.gguf", scripts, form), name, context=1024)
        assert job["state"] == "done", job
    patch.undo()
    yield d
    assert d.close() == 0


def post(d, path, **body):
    with d.http() as c:
        return c.post(path, json=body)


def by_openai(d):
    return openai.OpenAI(base_url="http://aned/v1", api_key="none", max_retries=0,
                         http_client=httpx.Client(transport=httpx.HTTPTransport(uds=str(d.sock), verify=False), timeout=120 * SLOW_S))


def by_anthropic(d):
    return anthropic.Anthropic(base_url="http://aned", api_key="none", max_retries=0, timeout=120 * SLOW_S,
                               http_client=httpx2.Client(transport=httpx2.HTTPTransport(uds=str(d.sock), verify=False)))


def by_ollama(d):
    c = ollama.Client(host="http://aned")
    c._client = httpx.Client(transport=httpx.HTTPTransport(uds=str(d.sock), verify=False), base_url="http://aned",
                             timeout=120 * SLOW_S)
    return c


def test_what_a_model_can(d, daemon):
    """Clients ask before they send tools: the first request opens the vocabulary, whose template says it."""
    for model in ("one", "two", "one"):
        assert by_ollama(d).show(model).capabilities == ["completion", "tools", "thinking"]
    assert by_ollama(daemon).show("demo").capabilities == ["completion"]


# --- OpenAI ---


@pytest.mark.parametrize("model", ["one", "m"])
def test_openai(d, model):
    c = by_openai(d)
    r = c.chat.completions.create(model=model, messages=ASK, tools=TOOLS, tool_choice="auto")
    m, x = r.choices[0].message, r.choices[0]
    assert x.finish_reason == "tool_calls" and [t.type for t in m.tool_calls] == ["function"]
    assert m.content == (BEFORE.strip() if model == "one" else None)
    call = m.tool_calls[0]
    assert call.function.name == NAME and json.loads(call.function.arguments) == ARGS
    assert len(call.id) == 9 if model == "m" else call.id.startswith("call_")
    again = [*ASK, m.to_dict(), {"role": "tool", "tool_call_id": call.id, "content": [{"type": "text", "text": "sunny"}]}]
    r = c.chat.completions.create(model=model, messages=again, tools=TOOLS)
    assert r.choices[0].message.content == ANSWER and r.choices[0].finish_reason == "stop"
    assert r.choices[0].message.tool_calls is None
    for more in ({}, {"tools": []}, {"tools": TOOLS, "tool_choice": "none"}):
        r = c.chat.completions.create(model=model, messages=ASK, **more)
        assert r.choices[0].message.content == TEXT and r.choices[0].finish_reason == "stop", more


def test_openai_streamed(d):
    """Arguments arrive in pieces; the client's own accumulation gives the same as the whole answer."""
    c = by_openai(d)
    whole = c.chat.completions.create(model="two", messages=ASK, tools=TOOLS).choices[0].message
    assert whole.content is None and [t.function.name for t in whole.tool_calls] == [NAME, "get_time"]
    with c.chat.completions.stream(model="two", messages=ASK, tools=TOOLS) as s:
        events = list(s)
        final = s.get_final_completion().choices[0]
    assert final.finish_reason == "tool_calls"
    assert [(t.function.name, t.function.arguments) for t in final.message.tool_calls] == [
        (t.function.name, t.function.arguments) for t in whole.tool_calls]
    deltas = [t for e in events if e.type == "chunk" for x in e.chunk.choices for t in x.delta.tool_calls or []]
    assert {t.index for t in deltas} == {0, 1}
    assert [bool(t.id) for t in deltas].count(True) == 2
    assert len([t for t in deltas if t.index == 0]) > 3  # not all at once
    assert len({t.id for t in deltas if t.id}) == 2


def test_strict(d):
    """The script says Paris; a strict tool knows only Rome, one that is not strict takes what it gets. Without a call, text is free."""
    c = by_openai(d)
    rome = {"type": "object", "properties": {"city": {"enum": ["Rome"]}, "days": {"type": "integer"}}, "required": ["city", "days"], "additionalProperties": False}
    for strict, city in ((True, "Rome"), (False, "Paris")):
        tool = {"type": "function", "function": {"name": NAME, "parameters": rome, "strict": strict}}
        for model in ("one", "m"):
            m = c.chat.completions.create(model=model, messages=ASK, tools=[tool], temperature=0).choices[0].message
            assert [json.loads(t.function.arguments)["city"] for t in m.tool_calls] == [city] and m.tool_calls[0].function.name == NAME
        again = [*ASK, {"role": "assistant", "content": "x"}, {"role": "tool", "tool_call_id": "a", "content": "sunny"}]
        assert c.chat.completions.create(model="one", messages=again, tools=[tool]).choices[0].message.content == ANSWER
    tool["function"]["strict"] = True
    with by_anthropic(d).messages.stream(model="one", max_tokens=99, extra_body={"temperature": 0}, messages=ASK, tools=[{"name": NAME, "input_schema": rome, "strict": True}]) as s:
        assert [b.input["city"] for b in s.get_final_message().content if b.type == "tool_use"] == ["Rome"]


def test_log_probabilities(d):
    """Each token's is there once, also those of calls, however the answer is sent."""
    body = {"model": "two", "messages": ASK, "tools": TOOLS, "logprobs": True}
    whole = post(d, "/v1/chat/completions", **body).json()
    want = whole["choices"][0]["logprobs"]["content"]
    assert len(want) == whole["usage"]["completion_tokens"] - 1  # the last one ends the text
    r = post(d, "/v1/chat/completions", **body, stream=True)
    chunks = [json.loads(x[6:])["choices"][0] for x in r.text.splitlines() if x.startswith("data: {")]
    assert [x["token"] for c in chunks for x in (c["logprobs"] or {}).get("content", [])] == [x["token"] for x in want]
    assert chunks[-1]["finish_reason"] == "tool_calls"


def test_resumed(d):
    """A stream that is read again from its beginning has the same events."""
    body = {"model": "two", "messages": ASK, "tools": TOOLS, "stream": True, "resumable": True}
    first = post(d, "/v1/chat/completions", **body).text
    ident = next(json.loads(x[6:])["id"] for x in first.splitlines() if x.startswith("data: {"))
    with d.http() as c:
        again = c.get(f"/aned/v1/streams/{ident}").text
    def data(text):
        return [x for x in text.splitlines() if x.startswith("data: ")]
    assert data(again) == data(first) and "get_time" in again and data(again)[-1] == "data: [DONE]"


def test_choices(d):
    x = post(d, "/v1/chat/completions", model="two", messages=ASK, tools=TOOLS, n=3).json()["choices"]
    assert [[t["function"]["name"] for t in c["message"]["tool_calls"]] for c in x] == [[NAME, "get_time"]] * 3
    assert len({t["id"] for c in x for t in c["message"]["tool_calls"]}) == 6


def test_stop_string(d):
    """It ends the text before it, also inside of a call."""
    x = post(d, "/v1/chat/completions", model="one", messages=ASK, tools=TOOLS, stop="look").json()["choices"][0]
    assert x["message"]["content"].strip() == "Let me" and x["finish_reason"] == "stop" and "tool_calls" not in x["message"]
    x = post(d, "/v1/chat/completions", model="two", messages=ASK, tools=TOOLS, stop="days").json()["choices"][0]
    assert "days" not in json.dumps(x)


def test_one_call_only(d):
    for stream in (False, True):
        r = post(d, "/v1/chat/completions", model="two", messages=ASK, tools=TOOLS, parallel_tool_calls=False, stream=stream)
        assert r.status_code == 200 and "get_time" not in r.text, r.text
        assert r.text.count(NAME) == 1 and '"finish_reason":"tool_calls"' in r.text
    r = post(d, "/v1/messages", model="two", messages=ASK, tools=A_TOOLS, max_tokens=200,
             tool_choice={"type": "auto", "disable_parallel_tool_use": True}).json()
    assert [b["type"] for b in r["content"]] == ["tool_use"] and r["stop_reason"] == "tool_use"


def test_a_call_that_breaks_off(d):
    full = post(d, "/v1/chat/completions", model="two", messages=ASK, tools=TOOLS).json()
    for n in range(1, full["usage"]["completion_tokens"]):
        body = {"model": "two", "messages": ASK, "max_tokens": n}
        x = post(d, "/v1/chat/completions", **body, tools=TOOLS).json()["choices"][0]
        assert x["finish_reason"] == "length", (n, x)
        for t in x["message"].get("tool_calls", []):
            assert full["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"].startswith(
                t["function"]["arguments"]) or t["function"]["arguments"] == "{}"
        x = post(d, "/v1/messages", **body, tools=A_TOOLS).json()
        assert x["stop_reason"] == "max_tokens" and all(isinstance(b.get("input", {}), dict) for b in x["content"])
        x = post(d, "/api/chat", model="two", messages=ASK, tools=TOOLS, stream=False, options={"num_predict": n}).json()
        assert x["done_reason"] == "length" and all(c["function"]["arguments"] in (ARGS, {})
                                                    for c in x["message"].get("tool_calls", []))


def test_thoughts(d):
    """What the model thinks is told apart in each dialect, unless the client wants it in the text."""
    body = {"model": "one", "messages": ASK, "enable_thinking": True}
    m = post(d, "/v1/chat/completions", **body).json()["choices"][0]["message"]
    assert (m["reasoning_content"], m["content"]) == (THOUGHT, TEXT)
    m = post(d, "/v1/chat/completions", **body, reasoning_format="none").json()["choices"][0]["message"]
    assert "reasoning_content" not in m and THOUGHT in m["content"] and m["content"].endswith(TEXT)
    r = post(d, "/v1/chat/completions", **body, stream=True)
    deltas = [json.loads(x[6:])["choices"][0]["delta"] for x in r.text.splitlines() if x.startswith("data: {")]
    assert "".join(x.get("reasoning_content", "") for x in deltas) == THOUGHT
    assert "".join(x.get("content", "") for x in deltas) == TEXT
    for more in ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, {"chat_template_kwargs": {"enable_thinking": True}}):
        m = post(d, "/v1/chat/completions", model="one", messages=ASK, **more).json()["choices"][0]["message"]
        assert m.get("reasoning_content") == THOUGHT, more
    for more in ({"enable_thinking": False}, {"reasoning_effort": "none"}, {"reasoning_effort": "high"}, {"thinking": {"type": "adaptive"}}):
        m = post(d, "/v1/chat/completions", model="one", messages=ASK, **more).json()["choices"][0]["message"]
        assert "reasoning_content" not in m and m["content"] == TEXT, more


def test_earlier_thoughts(d):
    """They are for templates that show them; in each dialect the same prompt comes of them."""
    def tokens(path, body, key):
        r = post(d, path, model="one", messages=body, max_tokens=200)
        assert r.status_code == 200, r.text
        u = r.json()["usage"]
        return u[key] + u.get("cache_read_input_tokens", 0)
    said = {"role": "assistant", "content": TEXT}
    plain = tokens("/v1/chat/completions", [*ASK, said, *ASK], "prompt_tokens")
    more = {tokens("/v1/chat/completions", [*ASK, {**said, k: THOUGHT}, *ASK], "prompt_tokens") for k in ("reasoning_content", "reasoning")}
    more.add(tokens("/v1/messages", [*ASK, {"role": "assistant", "content": [
        {"type": "thinking", "thinking": THOUGHT, "signature": ""}, {"type": "text", "text": TEXT}]}, *ASK], "input_tokens"))
    r = post(d, "/api/chat", model="one", messages=[*ASK, {**said, "thinking": THOUGHT}, *ASK], stream=False).json()
    assert more == {r["prompt_eval_count"]} and more.pop() > plain


# --- Anthropic ---


def test_anthropic(d):
    c = by_anthropic(d)
    m = c.messages.create(model="one", max_tokens=200, messages=ASK, tools=A_TOOLS)
    assert m.stop_reason == "tool_use" and [b.type for b in m.content] == ["text", "tool_use"]
    use = m.content[1]
    assert use.name == NAME and use.input == ARGS and use.id.startswith("toolu_")
    again = [*ASK, {"role": "assistant", "content": [b.to_dict() for b in m.content]},
             {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": "sunny"}]}]}]
    r = c.messages.create(model="one", max_tokens=200, messages=again, tools=A_TOOLS)
    assert [b.text for b in r.content] == [ANSWER] and r.stop_reason == "end_turn"
    n = c.messages.count_tokens(model="one", messages=again, tools=A_TOOLS).input_tokens
    assert n == r.usage.input_tokens + r.usage.cache_read_input_tokens
    assert c.messages.count_tokens(model="one", messages=ASK).input_tokens < c.messages.count_tokens(
        model="one", messages=ASK, tools=A_TOOLS).input_tokens


def test_anthropic_streamed(d):
    with by_anthropic(d) as c, c.messages.stream(model="one", max_tokens=200, messages=ASK, tools=A_TOOLS) as s:
        events = list(s)
        m = s.get_final_message()
    assert [b.type for b in m.content] == ["text", "tool_use"] and m.content[1].input == ARGS
    assert m.content[0].text == BEFORE.strip() and m.stop_reason == "tool_use"
    starts = [e.index for e in events if e.type == "content_block_start"]
    assert starts == [0, 1] == [e.index for e in events if e.type == "content_block_stop"]
    with by_anthropic(d) as c, c.messages.stream(model="one", max_tokens=200, messages=ASK,
                                                 thinking={"type": "enabled", "budget_tokens": 1024}) as s:
        m = s.get_final_message()
    assert [b.type for b in m.content] == ["thinking", "text"]
    assert m.content[0].thinking == THOUGHT and m.content[0].signature == "" and m.content[1].text == TEXT
    whole = post(d, "/v1/messages", model="one", max_tokens=200, messages=ASK, thinking={"type": "enabled", "budget_tokens": 1024}).json()
    assert [b["type"] for b in whole["content"]] == ["thinking", "text"] and whole["content"][0]["thinking"] == THOUGHT


# --- Ollama ---


def test_ollama(d):
    c = by_ollama(d)
    r = c.chat(model="one", messages=ASK, tools=TOOLS)
    call = r.message.tool_calls[0]
    assert call.function.name == NAME and call.function.arguments == ARGS and r.done_reason == "stop"
    again = [*ASK, r.message, {"role": "tool", "tool_name": NAME, "content": "sunny"}]
    assert c.chat(model="one", messages=again, tools=TOOLS).message.content == ANSWER
    parts = list(c.chat(model="two", messages=ASK, tools=TOOLS, stream=True))
    calls = [t.function for p in parts for t in p.message.tool_calls or []]
    assert [(f.name, f.arguments) for f in calls] == [(NAME, ARGS), ("get_time", {})] and parts[-1].done
    m = c.chat(model="one", messages=ASK, think=True).message
    assert (m.thinking, m.content) == (THOUGHT, TEXT)
    parts = list(c.chat(model="one", messages=ASK, think=True, stream=True))
    assert "".join(p.message.thinking or "" for p in parts) == THOUGHT and "".join(p.message.content for p in parts) == TEXT
    r = c.generate(model="one", prompt="Hi", think=True)
    assert (r.thinking, r.response) == (THOUGHT, TEXT)


# --- what is refused ---

CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def test_what_is_refused(d, daemon):
    def refused(message, param=None, path="/v1/chat/completions", at=d, model="one", code=400, **more):
        r = post(at, path, **{"model": model, "messages": ASK, "max_tokens": 8, **more})
        assert r.status_code == code and message in r.json()["error"]["message"], r.text
        assert param is None or r.json()["error"]["param"] == param, r.text
    refused("tools: this model's chat template shows no tools", "tools", at=daemon, model="demo", tools=TOOLS)
    refused("tools: this model's chat template shows no tools", path="/v1/messages", at=daemon, model="demo", tools=A_TOOLS)
    refused("tools[0].type: only function, not 'web_search'", "tools", tools=[{"type": "web_search"}])
    refused("tools[0].type: only custom, not 'bash_20250124'", path="/v1/messages", tools=[{"type": "bash_20250124", "name": "bash"}])
    refused("tools[1].function.name: must be a string", "tools", tools=[*TOOLS, {"type": "function", "function": {}}])
    refused("tools[0].function.parameters: must be an object", "tools", tools=[{"function": {"name": "f", "parameters": []}}])
    refused("tools: at most 512", "tools", tools=TOOLS * 513)
    refused("tools[0]: more than 262144 bytes", "tools", code=413, tools=[{"function": {"name": "f", "description": "x" * 300000}}])
    for v in ("required", {"type": "function", "function": {"name": NAME}}):
        refused("tool_choice: there are no tools", "tool_choice", tool_choice=v)
    for v in ({"type": "function", "function": {"name": "other"}}, {"type": "function", "name": "other"}):
        refused("tool_choice: no tool 'other'", "tool_choice", tools=TOOLS, tool_choice=v)
    refused("tool_choice: no tool 'other'", path="/v1/messages", tools=A_TOOLS, tool_choice={"type": "tool", "name": "other"})
    refused("tool_choice: only none, auto, required", "tool_choice", tools=TOOLS, tool_choice={"type": "custom"})
    refused("tools: ", "tools", tools=[{"type": "function", "function": {"name": "f", "strict": True, "parameters": {"type": "object", "not": {}}}}])
    refused("ignore_eos: an answer that keeps to a grammar", ignore_eos=True, response_format={"type": "json_object"})
    refused("functions: only empty: tools has them", "functions", functions=[{"name": "f"}])
    refused("chat_template_kwargs: 'messages' is a field", "chat_template_kwargs", chat_template_kwargs={"messages": []})
    refused("messages[1].role: no function", messages=[*ASK, {"role": "function", "name": "f", "content": "x"}])
    for bad, words in (({**CALL, "type": "custom"}, ".type: only function"), ({**CALL, "function": {"name": "f", "arguments": 1}}, ".function.arguments"),
                       ({**CALL, "id": 1}, ".id: must be a string"), ({**CALL, "function": {}}, "the name must be a string")):
        refused(f"messages[1].tool_calls[0]{words}" if words[0] == "." else words, messages=[*ASK, {"role": "assistant", "tool_calls": [bad]}, *ASK])
    refused("at most 128", messages=[*ASK, {"role": "assistant", "tool_calls": [CALL] * 129}, *ASK])
    for block, words in (({"type": "tool_result", "content": "x"}, "tool_use_id: must be a string"),
                         ({"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image"}]}, "no block of type 'image'")):
        refused(words, path="/v1/messages", messages=[{"role": "user", "content": [block]}])
    refused("input: must be an object", path="/v1/messages",
            messages=[*ASK, {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": "x"}]}, *ASK])
