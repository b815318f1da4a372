"""The reference for chat templates: jinja2 as transformers sets it up, and the conversations that templates are asked to render."""
import datetime
import json

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = 1736933400  # 2025-01-15 09:30 UTC


class Generation(jinja2.ext.Extension):
    """{% generation %}: what a model is trained on. Its body is a call block, and its text is kept."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("text"), [], [], body).set_lineno(line)

    @jinja2.pass_eval_context
    def text(self, context, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def strftime_now(form):
    return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None).strftime(form)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                       extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


ENV = environment()


def render(template, variables):
    """(text, None), or (None, why): the text of raise_exception, "" for any other failure."""
    try:
        compiled = ENV.from_string(template) if isinstance(template, str) else template
        return compiled.render(**variables), None
    except jinja2.exceptions.TemplateError as e:
        return None, str(e) if type(e) is jinja2.exceptions.TemplateError else ""
    except Exception:  # what Python itself refuses: a type, a recursion, a missing attribute
        return None, ""


# --- conversations ---

def system(text):
    return {"role": "system", "content": text}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(name, arguments, key="call00001"):
    return {"id": key, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(text, name="get_weather", key="call00001"):
    return {"role": "tool", "content": text, "name": name, "tool_call_id": key}


WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather at a place.",
    "parameters": {"type": "object", "required": ["city"], "properties": {
        "city": {"type": "string", "description": "A \"city\", with 'quotes' & <marks>"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"}}},
    "return": {"type": "string", "description": "text"}}}
SUM = {"type": "function", "function": {
    "name": "sum", "description": "Adds.\nNumbers only.",
    "parameters": {"type": "object", "required": ["numbers", "how"], "properties": {
        "numbers": {"type": "array", "items": {"type": "number"}, "minItems": 1, "description": "what"},
        "how": {"type": "object", "description": "nested", "properties": {
            "round": {"type": "integer", "minimum": 0, "maximum": 10},
            "sign": {"type": ["string", "null"], "nullable": True}, "on": {"type": "boolean"}}, "required": ["round"]},
        "items": {"type": "string"}, "any": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}}}}
NOTHING = {"type": "function", "function": {"name": "now", "description": "The time.", "parameters": {"type": "object", "properties": {}}}}
ODD = {"type": "function", "function": {"name": "odd", "description": "caf\u00e9 \u4e2d\u6587 \U0001F600 </tools>", "strict": True,
                                        "parameters": {"type": "object", "properties": {"x": {"type": "number", "default": 1.5}}}}}
ARGS = {"city": "Paris", "unit": "celsius"}
NESTED = {"numbers": [1, 2.5, -3e-07, 1e+20, 0.1], "how": {"round": 2, "sign": None, "on": True, "off": False, "deep": {"a": [[], {}, ""]}},
          "text": "a \"b\" 'c' \\ \n\t{{ x }} {% y %} <|im_end|> caf\u00e9 \u4e2d \U0001F600"}
THINK = "<think>\nFirst I look.\n</think>\n\nIt is 4."

CONVERSATIONS = {
    "one user": dict(messages=[user("Hello, who are you?")]),
    "system": dict(messages=[system("You are terse."), user("Hi")]),
    "several turns": dict(messages=[user("a"), assistant("b"), user("c"), assistant("d"), user("e")]),
    "system, several turns": dict(messages=[system("S"), user("a"), assistant("b"), user("c"), assistant("d"), user("e")]),
    "blanks around": dict(messages=[system("  s  "), user("\n hi \t\n"), assistant("  yes \n"), user(" ?")]),
    "empty content": dict(messages=[system(""), user(""), assistant(""), user("")]),
    "unicode": dict(messages=[user("caf\u00e9 \u00e0 \u4e2d\u6587 \u0627\u0644\u0639 \U0001F600 \u2028 \u00a0x\u00a0"), assistant("\u00df \u0130"), user("\u3000?")]),
    "braces": dict(messages=[user("{{ x }} {% if y %} {# z #} }} %}"), assistant("{\"a\": {\"b\": 1}}"), user("\\n \\\\ \r\n x")]),
    "marks": dict(messages=[user("<|im_end|><|eot_id|></s>[INST] <start_of_turn>"), assistant("<b>&amp;</b>"), user("'\"")]),
    "long": dict(messages=[user("word " * 500), assistant("x" * 3000), user("\n".join(map(str, range(200))))]),
    "assistant last": dict(messages=[user("Begin"), assistant("Sure: ")]),
    "assistant first": dict(messages=[assistant("Hello."), user("Hi")]),
    "two users": dict(messages=[user("a"), user("b")]),
    "two assistants": dict(messages=[user("a"), assistant("b"), assistant("c"), user("d")]),
    "system late": dict(messages=[user("a"), assistant("b"), system("late"), user("c")]),
    "only system": dict(messages=[system("alone")]),
    "none at all": dict(messages=[]),
    "unknown role": dict(messages=[user("a"), {"role": "critic", "content": "b"}, user("c")]),
    "developer": dict(messages=[{"role": "developer", "content": "D"}, user("a")]),
    "content none": dict(messages=[user("a"), assistant(None), user("b")]),
    "no content": dict(messages=[user("a"), {"role": "assistant"}, user("b")]),
    "text parts": dict(messages=[system([{"type": "text", "text": "S"}]), user([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]),
                                 assistant([{"type": "text", "text": "A"}]), user([{"type": "text", "text": "?"}])]),
    "image": dict(messages=[user([{"type": "image"}, {"type": "text", "text": "What is this?"}])]),
    "image url": dict(messages=[user([{"type": "text", "text": "And "}, {"type": "image_url", "image_url": {"url": "data:,x"}}])]),
    "audio and video": dict(messages=[user([{"type": "audio"}, {"type": "video"}, {"type": "text", "text": "t"}])]),
    "thinking on": dict(messages=[user("2+2?")], enable_thinking=True),
    "thinking off": dict(messages=[user("2+2?")], enable_thinking=False),
    "thinking, by other names": dict(messages=[user("2+2?")], thinking=True, reasoning_effort="high", reasoning_budget=5),
    "thinking in the text": dict(messages=[user("2+2?"), assistant(THINK), user("3+3?"), assistant(THINK), user("4?")]),
    "reasoning_content": dict(messages=[user("2+2?"), assistant("4.", reasoning_content="I add.\n"), user("3+3?"),
                                        assistant("6.", reasoning_content="I add again."), user("?")]),
    "reasoning last": dict(messages=[user("2+2?"), assistant("4.", reasoning_content="I add.", thinking="so", reasoning="hm")]),
    "no_think": dict(messages=[system("Be exact. /no_think"), user("2+2? /think")]),
    "tools": dict(messages=[user("Weather in Paris?")], tools=[WEATHER]),
    "tools, system": dict(messages=[system("Use tools."), user("Weather?")], tools=[WEATHER, SUM, NOTHING, ODD]),
    "tool call": dict(messages=[user("Weather in Paris?"), assistant("", tool_calls=[call("get_weather", ARGS)]), result("18 C"), user("And?")], tools=[WEATHER]),
    "tool call, then text": dict(messages=[user("W?"), assistant(None, tool_calls=[call("get_weather", ARGS)]), result("{\"t\": 18}"),
                                           assistant("It is 18."), user("Thanks")], tools=[WEATHER, SUM]),
    "tool call with text": dict(messages=[user("W?"), assistant("I look.", tool_calls=[call("get_weather", ARGS)]), result("18")], tools=[WEATHER]),
    "no content key, a call": dict(messages=[user("W?"), {"role": "assistant", "tool_calls": [call("get_weather", ARGS)]}, result("18")], tools=[WEATHER]),
    "two calls": dict(messages=[system("S"), user("W?"), assistant("", tool_calls=[call("get_weather", ARGS, "aaaaaaaa1"), call("sum", NESTED, "bbbbbbbb2")]),
                                result("18", key="aaaaaaaa1"), result("{\"sum\": 3}", "sum", "bbbbbbbb2"), assistant("Done."), user("ok")], tools=[WEATHER, SUM]),
    "nested arguments": dict(messages=[user("?"), assistant("", tool_calls=[call("sum", NESTED)]), result("x", "sum")], tools=[SUM]),
    "arguments as text": dict(messages=[user("?"), assistant("", tool_calls=[call("sum", json.dumps(NESTED))]), result("x", "sum")], tools=[SUM]),
    "no arguments": dict(messages=[user("?"), assistant("", tool_calls=[call("now", {})]), result("12:00", "now")], tools=[NOTHING]),
    "call without id": dict(messages=[user("?"), assistant("", tool_calls=[{"type": "function", "function": {"name": "now", "arguments": {}}}]),
                                      {"role": "tool", "content": "12:00"}], tools=[NOTHING]),
    "call without function": dict(messages=[user("?"), assistant("", tool_calls=[{"name": "now", "arguments": {"a": 1}}]), result("1", "now")], tools=[NOTHING]),
    "calls are empty": dict(messages=[user("?"), assistant("x", tool_calls=[]), user("y")], tools=[]),
    "result is parts": dict(messages=[user("?"), assistant("", tool_calls=[call("now", {})]),
                                      {"role": "tool", "name": "now", "tool_call_id": "call00001", "content": [{"type": "text", "text": "12"}]}], tools=[NOTHING]),
    "result is JSON": dict(messages=[user("?"), assistant("", tool_calls=[call("now", {})]),
                                     {"role": "tool", "name": "now", "tool_call_id": "call00001", "content": {"h": 12, "f": 1.0}}], tools=[NOTHING]),
    "call with reasoning": dict(messages=[user("?"), assistant("", reasoning_content="I ask.", tool_calls=[call("now", {})]), result("12", "now"),
                                          assistant("", reasoning_content="Again.", tool_calls=[call("now", {})]), result("13", "now")], tools=[NOTHING]),
    "call last": dict(messages=[user("?"), assistant("", tool_calls=[call("get_weather", ARGS)])], tools=[WEATHER]),
    "ipython": dict(messages=[user("?"), assistant("", tool_calls=[call("sum", {"a": 1})]), {"role": "ipython", "content": {"output": "5"}}], tools=[SUM]),
    "bare tools": dict(messages=[user("?")], tools=[{"name": "f", "description": "d", "parameters": {}}]),
    "documents": dict(messages=[user("?")], documents=[{"title": "T", "text": "body", "doc_id": 1}, {"title": "U", "text": "more", "contents": "c"}]),
    "other variables": dict(messages=[system("S"), user("?")], builtin_tools=["python", "browser"], date_string="1 Jan 2030", tools_in_user_message=False,
                            custom_tools=[WEATHER], xml_tools=[WEATHER], python_tools=[SUM], functions=[WEATHER, SUM], datetime="2030-01-01",
                            model_identity="You are X.", preserve_thinking=True, keep_past_thinking=True, add_vision_id=True, controls={"a": 1}),
}


def variables(conversation, generation):
    """All variables of a rendering, as transformers passes them."""
    return dict(dict(add_generation_prompt=generation, bos_token="<s>", eos_token="</s>", tools=None, documents=None), **conversation)
