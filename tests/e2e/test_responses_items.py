"""/v1/responses/ID/input_items, and items that are named instead of sent again (item_reference), by OpenAI's own client and its types."""
import httpx
import openai
import pydantic
import pytest
from openai.types.responses import ResponseItemList

import scripted
from conftest import SLOW_S, Daemon
from test_responses import answer, post, refused, text_of, user
from test_responses_tools import ANSWER, EARLIER, NAME, SCRIPTS, TEXT, THOUGHT, TOOL

LIST = pydantic.TypeAdapter(ResponseItemList)
SHORT = {"max_output_tokens": None}


@pytest.fixture(scope="module")
def d(aned, tmp_path_factory):
    d = Daemon(aned)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scripted, "TEMPLATE", scripted.TEMPLATE.replace("{{ shown(m.content) }}", EARLIER))
        path = scripted.write(tmp_path_factory.mktemp("scripted") / "s.gguf", SCRIPTS)
    assert d.convert(path, "demo", context=2048)["state"] == "done"
    yield d
    assert d.close() == 0


def sdk(d):
    return openai.OpenAI(base_url="http://aned/v1", api_key="none", max_retries=0, timeout=120 * SLOW_S,
                         http_client=httpx.Client(transport=httpx.HTTPTransport(uds=str(d.sock))))


def page(d, ident, **query):
    with d.http() as c:
        r = c.get(f"/v1/responses/{ident}/input_items", params=query)
    assert r.status_code == 200, r.text
    x = r.json()
    if x["data"]:
        LIST.validate_json(r.text, strict=True)
        assert (x["first_id"], x["last_id"]) == (x["data"][0]["id"], x["data"][-1]["id"])
    return x


def items(d, ident):
    return page(d, ident, order="asc", limit=100)["data"]


def plain(item):
    """Without its id and status."""
    return {k: v for k, v in item.items() if k not in ("id", "status")}


def said(role, text):
    part = {"type": "output_text", "annotations": [], "logprobs": []} if role == "assistant" else {"type": "input_text"}
    return {"type": "message", "role": role, "content": [{**part, "text": text}]}


def called(d):
    """An answer with a call, and the call's result."""
    x = answer(d, **SHORT, tools=[TOOL], input="Weather?", instructions="Be brief.")
    return x, {"type": "function_call_output", "call_id": x["output"][1]["call_id"], "output": "sunny"}


def test_what_was_asked(d):
    x = answer(d, **SHORT, input="Hi")
    got = items(d, x["id"])
    assert [plain(i) for i in got] == [said("user", "Hi")] and got[0]["status"] == "completed"
    parts = [{"type": "input_text", "text": "Hi "}, {"type": "input_text", "text": "there"}]
    x = answer(d, **SHORT, input=[{"role": "developer", "content": "Kind."}, {"role": "user", "content": parts}])
    assert [plain(i)["role"] for i in items(d, x["id"])] == ["developer", "user"]
    assert items(d, x["id"])[1]["content"][0]["text"].replace("\n", "") == "Hi there"


def test_the_whole_conversation(d):
    """That of previous_response_id, too, with calls, their results and thoughts; instructions are of one request."""
    first, result = called(d)
    second = answer(d, **SHORT, tools=[TOOL], input=[result], previous_response_id=first["id"])
    assert text_of(second) == ANSWER
    third = answer(d, **SHORT, input="And think?", previous_response_id=second["id"])
    got = items(d, third["id"])
    assert [i["type"] for i in got] == ["message", "message", "function_call", "function_call_output", "message", "message"]
    assert plain(got[0]) == said("user", "Weather?") and plain(got[1]) == plain(first["output"][0])
    assert plain(got[2]) == plain(first["output"][1]) and got[2]["name"] == NAME
    assert plain(got[3]) == result and plain(got[4]) == plain(second["output"][0])
    assert len({i["id"] for i in got}) == 6
    assert [plain(i) for i in items(d, second["id"])] == [plain(i) for i in got[:4]]
    assert [i["type"] for i in third["output"]] == ["reasoning", "message"]
    fourth = answer(d, **SHORT, input="Hm", previous_response_id=third["id"])
    thought = items(d, fourth["id"])[6]
    assert plain(thought) == plain(third["output"][0]) and thought["content"][0]["text"].strip() == THOUGHT
    with d.http() as c:
        assert c.delete(f"/v1/responses/{first['id']}").status_code == 200
    assert [plain(i) for i in items(d, third["id"])] == [plain(i) for i in got]


def test_an_answer_that_went_on(daemon):
    x = answer(daemon, input=[user("Say it."), {"role": "assistant", "content": "Well, "}])
    assert [plain(i) for i in items(daemon, x["id"])] == [said("user", "Say it."), said("assistant", "Well, ")]


def test_pages(d):
    x = answer(d, **SHORT, input=[user(f"{i}") for i in range(25)])
    every = items(d, x["id"])
    texts = [i["content"][0]["text"] for i in every]
    assert texts == [f"{i}" for i in range(25)]
    first = page(d, x["id"])
    assert [i["id"] for i in first["data"]] == [i["id"] for i in every[::-1][:20]] and first["has_more"] is True
    rest = page(d, x["id"], after=first["last_id"])
    assert [i["id"] for i in rest["data"]] == [i["id"] for i in every[::-1][20:]] and rest["has_more"] is False
    assert page(d, x["id"], after=rest["last_id"])["data"] == []
    up = page(d, x["id"], order="asc", limit=3, after=every[3]["id"])
    assert up["data"] == every[4:7] and up["has_more"] is True
    with sdk(d) as c:
        assert [i.content[0].text for i in c.responses.input_items.list(x["id"], order="asc", limit=7)] == texts
        assert [i.content[0].text for i in c.responses.input_items.list(x["id"])] == texts[::-1]


@pytest.mark.parametrize("query, field", [({"limit": 0}, "limit"), ({"limit": 101}, "limit"), ({"limit": "x"}, "limit"), ({"limit": ""}, "limit"),
                                          ({"order": "up"}, "order"), ({"after": "msg_x"}, "after")])
def test_pages_that_are_none(d, query, field):
    x = answer(d, **SHORT, input="Hi")
    with d.http() as c:
        r = c.get(f"/v1/responses/{x['id']}/input_items", params=query)
    e = r.json()["error"]
    assert r.status_code == 400 and e["param"] == field and e["message"].startswith(field + ":"), r.text


def test_what_is_not_kept(d):
    x = answer(d, **SHORT, input="Hi", store=False)
    with sdk(d) as c, pytest.raises(openai.NotFoundError, match="not found"):
        c.responses.input_items.list(x["id"])
    refused(d, f"Item with id '{x['output'][0]['id']}' not found.", 404, input=[user("Hi"), {"type": "item_reference", "id": x["output"][0]["id"]}])


def test_references(d):
    """An item by its id is the item itself: the same prompt, the same answer."""
    first, result = called(d)
    whole = [user("Weather?"), *first["output"], result]
    named = [user("Weather?"), *({"type": "item_reference", "id": i["id"]} for i in first["output"]), result]
    more = {**SHORT, "tools": [TOOL], "instructions": "Be brief."}
    want, got = answer(d, **more, input=whole), answer(d, **more, input=named)
    assert text_of(got) == text_of(want) == ANSWER and got["usage"]["input_tokens"] == want["usage"]["input_tokens"]
    assert [plain(i) for i in items(d, got["id"])] == [plain(i) for i in items(d, want["id"])]
    assert got["output"][0]["id"] != want["output"][0]["id"]
    last = [*named, {"type": "item_reference", "id": got["output"][0]["id"]}, user("And think?")]
    both = [*whole, got["output"][0], user("And think?")]
    assert answer(d, **more, input=last)["usage"]["input_tokens"] == answer(d, **more, input=both)["usage"]["input_tokens"]
    thought = answer(d, **SHORT, input="think")
    assert text_of(thought).strip() == TEXT
    again = [user("think"), *({"type": "item_reference", "id": i["id"]} for i in thought["output"]), user("Hm")]
    kinds = [i["type"] for i in items(d, answer(d, **SHORT, input=again)["id"])]
    assert kinds == ["message", "reasoning", "message", "message"]


def test_references_to_nothing(d):
    first, result = called(d)
    for ident in ("x", "msg_x_0", "", "msg_" + first["id"][5:] + "_9", "fc" + first["id"][4:] + "_0", "_", "__", "msg_" + "x" * 5000 + "_0"):
        e = refused(d, "not found", 404, input=[user("Hi"), {"type": "item_reference", "id": ident}])
        assert e["param"] == "input"
    refused(d, "not found", 404, input=[{"type": "item_reference"}])
    name = {"type": "item_reference", "id": first["output"][0]["id"]}
    refused(d, "Duplicate item found", input=[name, result], previous_response_id=first["id"])
    refused(d, "with item_reference at most", 413, input=[name, user("x" * 300_000)])
    assert post(d, **SHORT, input=[name]).status_code == 200
    with d.http() as c:
        c.delete(f"/v1/responses/{first['id']}")
    refused(d, "not found", 404, input=[name, user("Hi")])
