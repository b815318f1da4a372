"""llama-server's dialect: /completion, /infill and what its clients ask beside them; LM Studio's list; what no model gives."""
import json

import pytest

import ggufs
from conftest import Daemon

PROMPT = "Question: What is aned?\nAnswer:"
GREEDY = {"temperature": 0, "n_predict": 12}
ANSWER = {"index", "content", "tokens", "id_slot", "stop", "model", "tokens_predicted", "tokens_evaluated",
          "generation_settings", "truncated", "stop_type", "stopping_word", "tokens_cached", "timings"}
# Ids of the demo's vocabulary that serve as FIM tokens in a copy of it.
FIM = {"pre": 500, "suf": 501, "mid": 502, "rep": 503, "sep": 504}


def post(d, path, body, code=200):
    with d.http() as c:
        r = c.post(path, json=body)
    assert r.status_code == code, r.text
    return r.json()


def get(d, path, code=200):
    with d.http() as c:
        r = c.get(path)
    assert r.status_code == code, r.text
    return r.json()


def complete(d, path="/completion", model="demo", **more):
    return post(d, path, {"model": model, "prompt": PROMPT, **GREEDY, **more})


def events(d, path, body):
    with d.http() as c, c.stream("POST", path, json={**body, "stream": True}) as r:
        assert r.status_code == 200 and r.headers["content-type"] == "text/event-stream"
        return [json.loads(x[6:]) for x in r.iter_lines() if x.startswith("data: ")]


def openai(d, prompt=PROMPT, **more):
    return post(d, "/v1/completions", {"model": "demo", "prompt": prompt, "max_tokens": 12, "temperature": 0, **more})


def tokens(d, text, model="demo", **more):
    return post(d, "/tokenize", {"model": model, "content": text, **more})["tokens"]


def refused(d, path, words, body, param=None):
    e = post(d, path, body, 400)["error"]
    assert words in e["message"] and e["param"] == param, e


# --- /completion ---

@pytest.mark.parametrize("path", ["/completion", "/completions"])
def test_completion(daemon, path):
    want = openai(daemon)
    x = complete(daemon, path)
    assert set(x) == ANSWER
    assert x["content"] == want["choices"][0]["text"] != "" and x["stop"] is True and x["model"] == "demo"
    assert x["tokens_evaluated"] == want["usage"]["prompt_tokens"]
    assert x["tokens_predicted"] == want["usage"]["completion_tokens"]
    assert x["tokens_cached"] == x["tokens_evaluated"] + x["tokens_predicted"]
    assert x["stop_type"] == {"length": "limit", "stop": "eos"}[want["choices"][0]["finish_reason"]]
    assert x["truncated"] is False and x["stopping_word"] == ""
    assert x["timings"]["predicted_n"] == x["tokens_predicted"]
    s = x["generation_settings"]
    assert s["temperature"] == 0 and s["n_predict"] == 12 and s["top_k"] == 40 and s["top_p"] == 0.95 and s["min_p"] == 0.05


def test_stream(daemon):
    whole = complete(daemon)
    got = events(daemon, "/completion", {"model": "demo", "prompt": PROMPT, **GREEDY, "timings_per_token": True})
    assert len(got) > 3 and all(x["stop"] is False and x["content"] and "timings" in x for x in got[:-1])
    assert "".join(x["content"] for x in got) == whole["content"] and got[-1]["content"] == ""
    assert set(got[-1]) == ANSWER and got[-1]["stop"] is True
    plain = events(daemon, "/completion", {"model": "demo", "prompt": PROMPT, **GREEDY})
    assert "timings" not in plain[0] and "timings" in plain[-1]


def test_prompt_of_tokens(daemon):
    ids = tokens(daemon, PROMPT, add_special=True)
    assert complete(daemon, prompt=ids)["content"] == complete(daemon)["content"]


def test_stop_word(daemon):
    text = complete(daemon)["content"]
    word = text[4:7]
    x = complete(daemon, stop=[word, "never said"])
    assert x["content"] == text[:text.index(word)] and x["stop_type"] == "word" and x["stopping_word"] == word
    assert x["generation_settings"]["stop"] == [word, "never said"]


def test_only_the_prompt(daemon):
    x = complete(daemon, n_predict=0, response_fields=[""])
    assert x == {}
    assert complete(daemon)["timings"]["cache_n"] > 0


def test_response_fields(daemon):
    whole = complete(daemon)
    x = complete(daemon, response_fields=["content", "timings/predicted_n", "generation_settings/top_k", "truncated", "nothing",
                                          "timings/nothing", "content/x", "truncated"])
    assert x == {"content": whole["content"], "timings/predicted_n": 12, "generation_settings/top_k": 40, "truncated": False}
    assert complete(daemon, response_fields=["stop_type"]) == {"stop_type": whole["stop_type"]}
    last = events(daemon, "/completion", {"model": "demo", "prompt": PROMPT, **GREEDY, "response_fields": ["stop_type"]})[-1]
    assert last == {"stop_type": whole["stop_type"]}


def test_several(daemon):
    got = complete(daemon, n_cmpl=3, temperature=1, seed=7)
    assert [x["index"] for x in got] == [0, 1, 2] and all(set(x) == ANSWER for x in got)
    assert got[0]["generation_settings"]["seed"] == 7
    assert [x["content"] for x in complete(daemon, n=2, temperature=1, seed=7)] == [x["content"] for x in got[:2]]


def test_probabilities(daemon):
    x = complete(daemon, n_probs=2)
    probs = x["completion_probabilities"]
    assert len(probs) == x["tokens_predicted"] and "".join(p["token"] for p in probs) == x["content"]
    assert all(len(p["top_logprobs"]) == 2 and p["logprob"] <= 0 and p["id"] >= 0 for p in probs)
    got = events(daemon, "/completion", {"model": "demo", "prompt": PROMPT, **GREEDY, "n_probs": 1})
    assert sum(len(e.get("completion_probabilities", [])) for e in got) == x["tokens_predicted"]
    assert "completion_probabilities" not in complete(daemon, n_probs=0)
    only = complete(daemon, n_probs=1, response_fields=["completion_probabilities"])
    assert list(only) == ["completion_probabilities"] and len(only["completion_probabilities"]) == x["tokens_predicted"]


DRAWN = {"temperature": 1, "seed": 11, "n_predict": 24, "top_k": 0, "top_p": 1, "min_p": 0}
SAMPLERS = {"typ_p": {"typical_p": 0.5}, "top_n_sigma": {"top_n_sigma": 0.5}, "xtc": {"xtc_probability": 1, "xtc_threshold": 0.01},
            "temperature": {"dynatemp_range": 0.9}, "dry": {"dry_multiplier": 5, "dry_allowed_length": 1, "dry_penalty_last_n": -1, "dry_sequence_breakers": []}}
THREE = {"logit_bias": [[300, 100], [301, 100], [302, 100]]}  # nothing but these: it repeats itself


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers(daemon, name):
    """Each changes a text, says so, gives it again, and is off where the list has others."""
    drawn = {**DRAWN, **(THREE if name == "dry" else {})}
    plain, x = complete(daemon, **drawn), complete(daemon, **drawn, **SAMPLERS[name])
    assert x["content"] != plain["content"]
    assert x["content"] == complete(daemon, **drawn, **SAMPLERS[name])["content"]
    s = x["generation_settings"]
    assert name in s["samplers"] and all(s[k] == v for k, v in SAMPLERS[name].items())
    rest = complete(daemon, **drawn, **SAMPLERS[name], samplers=["penalties", "temperature"] if name != "temperature" else ["top_k"])
    assert rest["content"] == (plain["content"] if name != "temperature" else complete(daemon, **DRAWN)["content"])


def test_order_of_samplers(daemon):
    """top_k before xtc is not xtc before top_k; a list and its letters are one."""
    more = {**DRAWN, "top_k": 2, "xtc_probability": 1, "xtc_threshold": 0, "temperature": 1.5}
    a, b = complete(daemon, **more, samplers=["top_k", "xtc"]), complete(daemon, **more, samplers=["xtc", "top_k"])
    assert a["generation_settings"]["samplers"] == ["top_k", "xtc"] and b["generation_settings"]["samplers"] == ["xtc", "top_k"]
    assert a["content"] != b["content"]
    assert complete(daemon, **more, samplers="kx")["content"] == a["content"]


@pytest.mark.parametrize("version", [1, 2])
def test_mirostat(daemon, version):
    """Its number goes from token to token: the same text with and without others beside it."""
    more = {**DRAWN, "mirostat": version, "mirostat_tau": 2, "mirostat_eta": 0.5}
    x = complete(daemon, **more)
    assert x["content"] != complete(daemon, **DRAWN)["content"] and x["generation_settings"]["mirostat"] == version
    assert [y["content"] for y in complete(daemon, **more, n=3)][0] == x["content"]
    assert complete(daemon, **{**more, "mirostat_tau": 6})["content"] != x["content"]
    drawn = {"temperature": 1, "seed": 11, "max_tokens": 24, **{k: v for k, v in more.items() if k.startswith("mirostat")}}
    plain = openai(daemon, **drawn)
    drafted = openai(daemon, **drawn, prediction={"type": "content", "content": plain["choices"][0]["text"]})
    assert drafted["choices"][0]["text"] == plain["choices"][0]["text"] == x["content"]
    assert drafted["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] > 0


def test_breakers(daemon):
    """Across a breaker nothing is a repetition: with all three tokens as breakers dry does nothing."""
    three = [post(daemon, "/detokenize", {"model": "demo", "tokens": [t]})["content"] for t, _ in THREE["logit_bias"]]
    more = {**DRAWN, **THREE}
    dry = {**more, **SAMPLERS["dry"]}
    assert complete(daemon, **{**dry, "dry_sequence_breakers": three})["content"] == complete(daemon, **more)["content"]
    some = complete(daemon, **{**dry, "dry_sequence_breakers": three[:1]})
    assert some["content"] not in (complete(daemon, **dry)["content"], complete(daemon, **more)["content"])
    assert some["generation_settings"]["dry_sequence_breakers"] == three[:1]


def test_bias(daemon):
    first = complete(daemon, n_probs=1)["completion_probabilities"][0]["id"]
    for bias in ([[first, False]], {str(first): False}, [[first, -100]]):
        assert complete(daemon, n_probs=1, logit_bias=bias)["completion_probabilities"][0]["id"] != first
    refused(daemon, "/completion", "[token id, bias]", {"model": "demo", "prompt": "x", "logit_bias": [["a", 1]]}, "logit_bias")
    refused(daemon, "/completion", "must be a number", {"model": "demo", "prompt": "x", "logit_bias": [[1, True]]}, "logit_bias")


@pytest.mark.parametrize("field,value,words", [
    ("grammar", "root ::= x", "is not defined"), ("mirostat", 3, "from 0 to 2"), ("dry_multiplier", -1, "from 0 to 100"),
    ("xtc_probability", 1.1, "from 0 to 1"), ("samplers", ["tfs"], "only penalties"), ("samplers", ["infill"], "only penalties"),
    ("samplers", "kf", "only penalties"), ("samplers", {}, "an array of names"), ("dry_sequence_breakers", ["x" * 41], "1 to 40 bytes"),
    ("dry_sequence_breakers", "x", "array of strings"), ("typical_p", 2, "from 0 to 1"),
    ("n_probs", 99, "from 0 to"), ("response_fields", [1], "array of strings"), ("response_fields", ["x"] * 65, "at most 64"),
    ("return_tokens", True, "only false"), ("n_predict", "all", "whole number"), ("xyz", 1, "no such field"),
    ("lora", [{"id": 0, "scale": 1}], "only an empty one")])
def test_refused(daemon, field, value, words):
    refused(daemon, "/completion", words, {"model": "demo", "prompt": PROMPT, field: value}, field)


# --- /infill ---

@pytest.fixture(scope="module")
def filler(aned, demo_gguf, tmp_path_factory):
    """A daemon with the demo, and a copy of it whose vocabulary has FIM tokens: `code` by today's keys, `old` by the older."""
    tmp = tmp_path_factory.mktemp("fim")
    d = Daemon(aned)
    sets = {"code": {f"tokenizer.ggml.fim_{k}_token_id": v for k, v in FIM.items()},
            "old": {f"tokenizer.ggml.{k}_token_id": FIM[n] for k, n in (("prefix", "pre"), ("suffix", "suf"), ("middle", "mid"))}}
    for name, keys in sets.items():
        path = ggufs.copy(demo_gguf, tmp / f"{name}.gguf", lambda t: (t.data, None, t.tensor_type), more=keys)
        assert d.convert(path, name, context=512)["state"] == "done"
    assert d.convert(demo_gguf, "demo", context=512)["state"] == "done"
    yield d
    assert d.close() == 0


def gap(d, model, prefix, suffix, prompt="", files=()):
    """The tokens that a gap has to become, by the rules of llama-server."""
    def ids(text):
        return tokens(d, text, model=model, parse_special=False)
    rep = model == "code"
    out = [FIM["rep"], *ids("myproject\n")] if rep else []
    for f in files:
        out += [FIM["sep"], *ids(f.get("filename", "tmp") + "\n")] if rep else ids("\n\n--- snippet ---\n\n")
        out += ids(f["text"])
    out += [FIM["sep"], *ids("filename\n")] if rep else []
    first = tokens(d, "", model=model, add_special=True)
    return [*first, *out, FIM["pre"], *ids(prefix), *ids(prompt), FIM["suf"], *ids(suffix), FIM["mid"]]


FILES = [{"text": "def add(a, b):\n    return a + b\n", "filename": "add.py", "time": [1795360228, 392284]},
         {"text": "x = 1\n"}]
GAP = {"input_prefix": "def mul(a, b):\n", "prompt": "    ret", "input_suffix": "\n\nprint(mul(1, 2))\n"}


@pytest.mark.parametrize("model", ["code", "old"])
@pytest.mark.parametrize("files", [[], FILES], ids=["alone", "with files"])
def test_infill(filler, model, files):
    x = post(filler, "/infill", {"model": model, **GAP, "input_extra": files, **GREEDY})
    want = gap(filler, model, GAP["input_prefix"], GAP["input_suffix"], GAP["prompt"], files)
    same = complete(filler, model=model, prompt=want)
    assert x["tokens_evaluated"] == len(want) and x["content"] == same["content"] and x["truncated"] is False
    assert set(x) == ANSWER
    got = events(filler, "/infill", {"model": model, **GAP, "input_extra": files, **GREEDY})
    assert "".join(e["content"] for e in got) == x["content"]


def test_llama_vim(filler):
    """The request as llama.vim sends it, and the members that it reads."""
    fields = ["content", "timings/prompt_n", "timings/prompt_ms", "timings/predicted_n", "truncated", "tokens_cached"]
    body = {**GAP, "model": "code", "input_extra": [], "id_slot": 0, "samplers": ["top_k", "top_p", "infill"], "top_k": 40,
            "top_p": 0.9, "n_predict": 16, "n_indent": 4, "stop": [], "stream": False, "cache_prompt": True,
            "t_max_prompt_ms": 500, "t_max_predict_ms": 86400000}
    x = post(filler, "/infill", {**body, "response_fields": fields})
    assert set(x) == set(fields)
    plain = post(filler, "/infill", {"model": "code", **GAP, "temperature": 0, "n_predict": 16, "n_indent": 4})
    assert x["content"] == plain["content"]  # infill: the likeliest
    assert post(filler, "/infill", {**body, "input_prefix": "", "input_suffix": "", "prompt": "", "n_predict": 0, "samplers": [],
                                    "response_fields": [""], "input_extra": FILES[:1]}) == {}


def test_cut(filler):
    """The far ends go; the gap's neighbourhood stays."""
    prefix = "".join(f"line {i} of the text\n" for i in range(300))
    x = post(filler, "/infill", {"model": "old", "input_prefix": prefix, "input_suffix": prefix, **GREEDY})
    assert x["truncated"] is True and x["tokens_evaluated"] == 512 - 12
    again = post(filler, "/infill", {"model": "old", "input_prefix": "far away " + prefix, "input_suffix": prefix + "far", **GREEDY})
    assert again["content"] == x["content"]
    again = post(filler, "/infill", {"model": "old", "input_prefix": prefix, "input_suffix": "", **GREEDY})
    assert again["truncated"] is True and again["tokens_evaluated"] == 512 - 12


@pytest.mark.parametrize("body,words,param", [
    ({"input_suffix": ""}, "input_prefix", "input_prefix"), ({"input_prefix": ""}, "input_suffix", "input_suffix"),
    ({"input_prefix": 1, "input_suffix": ""}, "a string", "input_prefix"),
    ({**GAP, "prompt": [1]}, "a string", "prompt"), ({**GAP, "input_extra": {}}, "an array", "input_extra"),
    ({**GAP, "input_extra": [{"filename": "a"}]}, "input_extra[0]", "input_extra"),
    ({**GAP, "input_extra": [{"text": "a"}, {"text": "a", "filename": 1}]}, "input_extra[1]", "input_extra"),
    ({**GAP, "input_extra": [{"text": "a", "path": "b"}]}, "input_extra[0].path", "input_extra"),
    ({**GAP, "input_extra": [{"text": "a"}] * 257}, "at most 256", "input_extra")])
def test_infill_refused(filler, body, words, param):
    refused(filler, "/infill", words, {"model": "code", **body}, param)


def test_no_tokens_for_it(filler):
    words = "its vocabulary has no token fim_pre fim_suf fim_mid"
    refused(filler, "/infill", words, {"model": "demo", **GAP})
    refused(filler, "/v1/completions", words, {"model": "demo", "prompt": "x", "suffix": "y"}, "suffix")


def test_suffix(filler):
    """minuet's way: OpenAI's suffix."""
    x = post(filler, "/v1/completions", {"model": "code", "prompt": "def mul(a, b):\n    ret", "suffix": "\nprint(1)\n",
                                         "max_tokens": 12, "temperature": 0})
    want = gap(filler, "code", "def mul(a, b):\n    ret", "\nprint(1)\n")
    assert x["usage"]["prompt_tokens"] == len(want)
    assert x["choices"][0]["text"] == complete(filler, model="code", prompt=want)["content"]
    ollama = post(filler, "/api/generate", {"model": "code", "prompt": "def mul(a, b):\n    ret", "suffix": "\nprint(1)\n",
                                            "stream": False, "options": {"num_predict": 12, "temperature": 0, "repeat_penalty": 1}})
    assert ollama["prompt_eval_count"] == len(want) and ollama["response"] == x["choices"][0]["text"]
    for more in ({"echo": True}, {"prompt": [1, 2]}, {"prompt": ["x"]}):
        refused(filler, "/v1/completions", "suffix: only with a text prompt",
                {"model": "code", "prompt": "x", "suffix": "y", **more}, "suffix")


# --- the server ---

def test_props(filler):
    x = get(filler, "/props?model=code")
    d = x["default_generation_settings"]
    assert d["n_ctx"] == 512 and d["params"]["temperature"] == 0.8 and d["params"]["top_k"] == 40 and d["params"]["n_predict"] == -1
    assert x["total_slots"] >= 1 and x["model_alias"] == "code" and x["build_info"].startswith("aned ")
    assert x["modalities"] == {"vision": False, "audio": False} and x["infill"] is True
    assert "{" in x["chat_template"] and x["bos_token"] == "" and x["eos_token"] == "<|im_end|>"
    assert set(x["chat_template_caps"]) == {"supports_tools", "supports_tool_calls"}
    assert get(filler, "/props?model=demo")["infill"] is False
    assert "name one of" in get(filler, "/props", 400)["error"]["message"]
    assert get(filler, "/props?model=none", 404)["error"]["code"] == "model_not_found"
    assert "not set here" in post(filler, "/props", {"x": 1}, 400)["error"]["message"]


def test_slots(filler):
    complete(filler, model="code")
    slots = get(filler, "/slots?model=code")
    assert len(slots) == get(filler, "/props?model=code")["total_slots"]
    assert [s["id"] for s in slots] == list(range(len(slots))) and all(s["n_ctx"] == 512 for s in slots)
    assert not any(s["is_processing"] for s in slots) and any(s["n_tokens"] > 0 for s in slots)


def test_adapters(daemon):
    assert get(daemon, "/lora-adapters") == []
    assert "merge one" in post(daemon, "/lora-adapters", [], 400)["error"]["message"]


def test_apply_template(daemon):
    ask = [{"role": "user", "content": "What is aned?"}]
    prompt = post(daemon, "/apply-template", {"model": "demo", "messages": ask})["prompt"]
    assert "What is aned?" in prompt
    n = len(tokens(daemon, prompt, add_special=True))
    chat = post(daemon, "/v1/chat/completions", {"model": "demo", "messages": ask, "max_tokens": 1})
    assert chat["usage"]["prompt_tokens"] == n
    refused(daemon, "/apply-template", "messages", {"model": "demo", "messages": []}, "messages")
    refused(daemon, "/apply-template", "no such field", {"model": "demo", "messages": ask, "xyz": 1}, "xyz")


def test_other_names(daemon):
    ask = {"model": "demo", "messages": [{"role": "user", "content": "What is aned?"}], "max_tokens": 8, "temperature": 0}
    want = post(daemon, "/v1/chat/completions", ask)["choices"]
    for path in ("/chat/completions", "/api/v0/chat/completions"):
        assert post(daemon, path, ask)["choices"] == want
    text = post(daemon, "/api/v0/completions", {"model": "demo", "prompt": PROMPT, "max_tokens": 12, "temperature": 0})
    assert text["choices"] == openai(daemon)["choices"]
    assert [m["id"] for m in get(daemon, "/models")["data"]] == [m["id"] for m in get(daemon, "/v1/models")["data"]]


def test_models_sse(make_daemon, demo_home):
    d = make_daemon(home=demo_home)
    with d.http() as c, c.stream("GET", "/models/sse") as r:
        assert r.headers["content-type"] == "text/event-stream"
        lines = (json.loads(x[6:]) for x in r.iter_lines() if x.startswith("data: "))
        assert next(lines) == {"model": "demo", "event": "model_status", "data": {"status": "unloaded"}}
        complete(d)
        seen = []
        while "loaded" not in seen:
            x = next(lines)
            assert x["model"] == "demo" and x["event"] == "model_status"
            seen.append(x["data"]["status"])
        assert "loading" in seen
        with d.http() as c2:
            assert c2.delete("/aned/v1/models/demo").status_code == 200
        while next(lines)["event"] != "model_remove":
            pass


# --- LM Studio ---

def test_lm_studio(daemon):
    complete(daemon)
    (m,) = [m for m in get(daemon, "/api/v0/models")["data"] if m["id"] == "demo"]
    assert m == get(daemon, "/api/v0/models/demo")
    assert m["object"] == "model" and m["type"] == "llm" and m["state"] == "loaded" and m["compatibility_type"] == "mlpackage"
    assert m["max_context_length"] == 512 == m["loaded_context_length"] and m["arch"] and m["quantization"]
    assert get(daemon, "/api/v0/models/none", 404)["error"]["code"] == "model_not_found"
    assert post(daemon, "/api/v0/chat/completions", {"model": "demo"}, 400)["error"]["param"] == "messages"


# --- what no model gives ---

@pytest.mark.parametrize("path", ["/rerank", "/reranking", "/v1/rerank", "/v1/reranking"])
def test_no_ranking(daemon, path):
    e = post(daemon, path, {"model": "demo", "query": "x", "documents": []}, 400)["error"]
    assert "no model here ranks" in e["message"]


# --- ends of a text that editors ask for ---

LONG = {"ignore_eos": True, "n_predict": 150}


def test_indent(daemon):
    """The text ends before the first line that begins with fewer blanks."""
    whole = complete(daemon, **LONG)["content"]
    first, *lines = whole.split("\n")
    outside = next(i for i, x in enumerate(lines) if x and len(x) - len(x.lstrip(" \t")) < 2)
    blanks = lines[outside][:len(lines[outside]) - len(lines[outside].lstrip(" \t"))]
    want = "\n".join([first, *lines[:outside], blanks])
    x = complete(daemon, **LONG, n_indent=2)
    assert x["content"] == want and x["stop_type"] == "limit" and x["tokens_predicted"] < 150
    got = events(daemon, "/completion", {"model": "demo", "prompt": PROMPT, **GREEDY, **LONG, "n_indent": 2})
    assert "".join(e["content"] for e in got) == want
    assert complete(daemon, **LONG, n_indent=0)["content"] == whole


def test_time_of_lines(daemon):
    """After t_max_predict_ms a text that has ended a line ends, and not before it has."""
    whole = complete(daemon, **LONG)["content"]
    x = complete(daemon, **LONG, t_max_predict_ms=1)
    assert whole.startswith(x["content"]) and "\n" in x["content"] and x["content"] != whole
    assert x["stop_type"] == "limit" and x["tokens_predicted"] < 150
    assert complete(daemon, **LONG, t_max_predict_ms=86400000)["content"] == whole
