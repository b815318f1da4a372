"""Requests as real clients sent them (shared/data/clients), answered by a model that says what a script has (tests/scripted.py).

Each is served (2xx), or stands in the table below with its reason and is refused in its dialect's form, in words that name
the reason. Strings of the recordings are cut, so only what a request asks for is looked at, not what is said. Of every answer the shape
is: by the types of the dialect's own SDK (tests/shapes.py)."""
import json
import re

import pytest

import ggufs
import scripted
import shapes
from conftest import Daemon

# Routes that are not there yet, or never, and why.
NO_ROUTE = {
    "/v1beta/models/gemma-chat:streamGenerateContent": "Gemini's dialect", "/": "Hugging Face's text_generation",
}
# What is refused: (words of the error, reason). The first row that fits a request that was not served explains it.
REFUSED = [
    (".type: only custom", "the service's own tools"),
    ("exceeds the available context size", "longer than the demo model's context"),
    ("no block of type 'image' here", "models read text"),
    ("content: only parts of type text", "models read text"),
    ("name: no such field here", "no template shows a participant's name"),
    ("best_of: only 1", "choices are not ranked"),
    ("system: not with raw", "Ollama refuses it, too"),
    ("there is no model", "the client asked for a model that is not there"),
    ("Conversation roles must alternate", "the template wants roles that alternate"),
    ("functions: only empty", "the older form of tools"),
]


@pytest.fixture(scope="module")
def clients(aned, shared, tmp_path_factory):
    """A daemon with the models that the recordings name. Some ids of the vocabulary serve as tokens for filling in."""
    conf = tmp_path_factory.mktemp("conf") / "aned.conf"
    conf.write_text("[http]\ndefault_model = aned-demo\n")
    d = Daemon(aned, args=["--config", str(conf)])
    gguf = scripted.write(conf.parent / "s.gguf", scripted.tool_scripts("get_weather", {"city": "Paris"}))
    fim = {f"tokenizer.ggml.fim_{k}_token_id": 100 + i for i, k in enumerate(("pre", "suf", "mid", "rep", "sep"))}
    gguf = ggufs.copy(gguf, conf.parent / "fim.gguf", lambda t: (t.data, None, t.tensor_type), more=fim)
    for name in ("aned-demo", "gemma-chat"):
        job = d.convert(gguf, name, context=8192)
        assert job["state"] == "done", job
    yield d
    assert d.close() == 0


def shorter(body):
    """No answer needs to be long."""
    if not isinstance(body, dict):
        return body
    for key in ("max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict"):
        if isinstance(body.get(key), int):
            body[key] = min(body[key], 8)
    if isinstance(body.get("options"), dict):
        body["options"] = {**body["options"], "num_predict": min(body["options"].get("num_predict", 8), 8)}
    return body


def complete(path, r):
    """A stream has its last event."""
    kind = r.headers.get("content-type", "")
    if kind == "application/x-ndjson":
        x = json.loads(r.text.splitlines()[-1])
        return x.get("done") is True or x == {"status": "success"}
    if kind == "text/event-stream":
        last = r.text.strip().splitlines()[-1].removeprefix("data: ")
        return last == "[DONE]" or any(f"event: {x}" in r.text for x in ("message_stop", "response.completed", "response.incomplete")) \
            or json.loads(last).get("stop") is True
    return True


def reason_of(method, path, r):
    bare = path.split("?")[0]
    if r.status_code in (404, 405) and bare in NO_ROUTE and not (bare == "/" and method != "POST"):
        return NO_ROUTE[bare]
    e = r.json()["error"]
    text = e if isinstance(e, str) else e["message"]
    return next((why for words, why in REFUSED if words in text), None)


def test_replay(clients, shared):
    served, refused, bad, shape = 0, {}, [], []
    samples = {}  # (path, content type): an answer
    files = sorted((shared / "data" / "clients").glob("*.json"))
    assert len(files) > 300
    deletes = [f for f in files if json.loads(f.read_text())["method"] == "DELETE"]
    with clients.http() as c:
        for f in [f for f in files if f not in deletes] + deletes:
            x = json.loads(f.read_text())
            headers = {k: v for k, v in x["headers"].items()
                       if k.lower() in ("content-type", "accept", "anthropic-version", "anthropic-beta", "user-agent")}
            body = x.get("body")
            if x["path"] == "/models/sse":  # it has no end
                with c.stream("GET", x["path"]) as r:
                    assert r.status_code == 200 and json.loads(next(r.iter_lines())[6:])["event"] == "model_status"
                served += 1
                continue
            r = c.request(x["method"], x["path"], headers=headers,
                          content=None if body is None else body if isinstance(body, str) else json.dumps(shorter(body)))
            assert r.status_code < 500, (f.name, r.text)
            kind = r.headers.get("content-type", "")
            if r.status_code < 300:
                served += 1
                assert complete(x["path"], r), (f.name, r.text[-200:])
                shape += [(f.name, w) for w in shapes.problems(x["path"], kind, r.text, headers)]
                samples.setdefault((x["path"], kind), r.text)
                continue
            shape += [(f.name, w) for w in shapes.error_problems(x["path"], kind, r.text)]
            why = reason_of(x["method"], x["path"], r)
            if why is None:
                bad.append((f.name, x["method"], x["path"], r.status_code, r.text[:300]))
            else:
                refused.setdefault(why, []).append(f.stem)
    print(f"\n{served} of {len(files)} requests of real clients are served; the others:")
    for why, names in sorted(refused.items(), key=lambda x: -len(x[1])):
        print(f"{len(names):4} {why}: {' '.join(re.sub('-[0-9]+$', '', n) for n in names[:4])}{' ...' if len(names) > 4 else ''}")
    assert not bad, "\n".join(str(b) for b in bad)
    assert served >= 318
    assert not shape, "\n".join(str(b) for b in shape)
    planted(samples)


def without(text, key):
    return json.dumps({k: v for k, v in json.loads(text).items() if k != key})


def planted(samples):
    """The check is one: what is taken out of an answer, or put into it, is found."""
    def found(path, kind, text):
        return shapes.problems(path, kind, text)

    n = 0
    for (path, kind), text in samples.items():
        if shapes.bare(path) in shapes.UNTYPED or not text:
            continue
        n += 1
        assert found(path, kind + "; charset=latin1", text), path
        if kind == shapes.WHOLE:
            faults = [json.dumps({**json.loads(text), "extra_of_ours": 1})]
            faults += [without(text, key) for key in ("choices", "output", "content", "data", "input_tokens", "message", "models", "model_info")
                       if key in json.loads(text)]
        elif kind == shapes.LINES:
            lines = text.splitlines()
            faults = ["\n".join(lines[:-1] + ['{"status": 5}'])] + (["\n".join(lines[:-1])] if len(lines) > 1 else [])
        else:
            events = text.split("\n\n")[:-1]
            faults = ["\n\n".join(x) + "\n\n" for x in (events[:-1], [events[-1], *events[:-1]], [*events, events[0]])]
            faults += [text[:-1], text.replace('"index":0', '"index":"0"') if '"index":0' in text else text.replace('"sequence_number":1,', ""),
                       text.replace("data: ", "daten: ", 1), text.replace("data: {", 'data: {"extra_of_ours":1,', 1)]
        for fault in faults:
            assert fault != text and found(path, kind, fault), (path, kind, fault[:300])
    assert n >= 15
