"""Structured output through real SDKs: a row each for what a package can ask for (`./dev test clients structured`)."""
import dataclasses
import os
import pathlib
import subprocess
import tempfile
import time

from envs import Failed, env_name, environment, install, last_words, source, version_of
from results import write_structured
from table import ANTHROPIC, CHAT, INSTRUCTOR, LANGCHAIN, MESSAGES, OLLAMA, OLLAMA_SDK, OPENAI, PYDANTIC, RESPONSES

HERE = pathlib.Path(__file__).parent
FEATURE_S = 300
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
ALIASES = "gpt-* = held\nclaude-* = held\nllama3.1* = held\n"  # the names that examples have


@dataclasses.dataclass
class Feature:
    client: str
    feature: str
    packages: tuple
    route: str
    run: tuple  # what Python is given: a file of py/ and its case; or a file, or pytest's arguments, of the sdist
    kind: str = ""
    sdist: bool = False  # of the first package
    says: str = "ANSWER "  # what a run has to print, besides ending well
    model: str = "held"
    package: str = ""  # whose version the row shows, if not the first one
    known: str = ""  # why it cannot work
    note: str = ""
    npm: bool = False
    program: str = ""

    @property
    def env(self):
        return env_name(self.packages)


def ours(client, packages, route, script, cases, **more):
    """Rows of a script of ours: {case: feature}, or {case: (feature, fields)}."""
    out = []
    for case, what in cases.items():
        feature, fields = what if isinstance(what, tuple) else (what, {})
        out.append(Feature(client, feature, packages, route, (script, case), **{**more, **fields}))
    return out


def examples(client, packages, files):
    return [Feature(client, f"example {f}", packages, route, ("examples/" + f,), sdist=True, says=says)
            for f, (route, says) in files.items()]


def instructor(mode, route=CHAT, cases=("models", "simple", "partial", "iterable"), client="instructor", **more):
    words = {"models": "models", "simple": "simple types", "partial": "create_partial", "iterable": "create_iterable", "place": "a model"}
    return ours(client, INSTRUCTOR, route, "structured_instructor.py", {c: f"{mode}: {words[c]}" for c in cases}, kind=mode, **more)


def pydantic(kind, client, route, **more):
    return ours(client, PYDANTIC, route, "structured_pydantic_ai.py", {
        "tool": "output_type by a tool", "native": "NativeOutput", "prompted": "PromptedOutput", "stream": "run_stream, tool and native"},
        kind=kind, **more)


def langchain(kind, client, route, **fields):
    methods = {"json_schema": "with_structured_output, json_schema", "function_calling": "with_structured_output, function_calling",
               "json_mode": "with_structured_output, json_mode", "tool_choice": "bind_tools, tool_choice"}
    more = {"kind": kind, "package": client.split(",")[0]}
    rows = ours(client, LANGCHAIN, route, "structured_langchain.py", {c: (w, fields.get(c, {})) for c, w in methods.items()}, **more)
    tests = (*PYTEST, "-o", "asyncio_mode=auto", "-o", "asyncio_default_test_loop_scope=session", "langchain_standard.py", "-k",
             "structured_output or json_mode or tool_choice")
    return [*rows, Feature(client, "tests of langchain-tests: structured_output, json_mode, tool_choice", LANGCHAIN, route, tests,
                           says=" passed", **more)]


NO_CHOICE = {"known": "it sends no tool_choice, which Ollama's dialect does not have: whether the model calls is for the model to say"}
FEATURES = [
    *examples("openai-python", OPENAI, {
        "parsing.py": (CHAT, "answer: "), "parsing_stream.py": (CHAT, "answer: "), "parsing_tools.py": (CHAT, "Table."),
        "parsing_tools_stream.py": (CHAT, "parsed_arguments=GetWeather("),
        "responses/structured_outputs.py": (RESPONSES, "answer: "), "responses/structured_outputs_tools.py": (RESPONSES, "table name: ")}),
    *ours("openai-python", OPENAI, CHAT, "structured_openai.py", {
        "chat_parse": "chat.completions.parse", "chat_stream": "chat.completions.stream(response_format=...)",
        "chat_json_object": "response_format json_object", "chat_tool": "pydantic_function_tool: auto, required, named, streamed"}),
    *ours("openai-python", OPENAI, RESPONSES, "structured_openai.py", {
        "responses_parse": "responses.parse", "responses_stream": "responses.stream(text_format=...)",
        "responses_tool": "responses, strict functions: auto, required, named"}),
    *examples("anthropic-python", ANTHROPIC, {
        "structured_outputs.py": (MESSAGES, "product_name="), "structured_outputs_streaming.py": (MESSAGES, "Final parsed order: product_name=")}),
    *ours("anthropic-python", ANTHROPIC, MESSAGES, "structured_anthropic.py", {
        "parse": ("messages.parse", {"note": "it moves bounds and patterns into the description, so they are not kept"}),
        "stream": "messages.stream(output_format=...)", "output_config": "output_config.format, with bounds and patterns",
        "beta_parse": "beta.messages.parse", "tool": "tools: any, named, strict"}),
    *examples("ollama-python", OLLAMA_SDK, {
        "structured-outputs.py": (OLLAMA, "friends=[FriendInfo("), "async-structured-outputs.py": (OLLAMA, "friends=[FriendInfo(")}),
    *ours("ollama-python", OLLAMA_SDK, OLLAMA, "structured_ollama.py", {
        "chat": "chat, format of a schema", "stream": "chat, format, streamed", "generate": "generate, format", "json_word": "format \"json\""}),
    *instructor("TOOLS"), *instructor("TOOLS_STRICT"), *instructor("JSON_SCHEMA"), *instructor("FUNCTIONS", cases=("models",)),
    *instructor("JSON", cases=("place",)), *instructor("MD_JSON", cases=("place",)),
    *instructor("RESPONSES_TOOLS", RESPONSES, ("models", "simple")),
    *instructor("openai", client="instructor, from_provider"),
    *instructor("ollama", cases=("place",), client="instructor, from_provider",
                known="it sends the key 'ollama', whatever api_key says: [http] allow_unauthenticated, or its provider openai"),
    *instructor("anthropic", MESSAGES, ("models", "simple"), "instructor, from_provider"),
    Feature("instructor, from_provider", "tests test_core_providers/test_simple_types.py", INSTRUCTOR, CHAT,
            (*PYTEST, "tests/llm/test_core_providers/test_simple_types.py"), sdist=True, says=" passed",
            note="its openai and anthropic; its other tests want the names and numbers of their questions"),
    *pydantic("chat", "pydantic-ai, chat", CHAT), *pydantic("responses", "pydantic-ai, responses", RESPONSES),
    *pydantic("anthropic", "pydantic-ai, anthropic", MESSAGES, model="claude-sonnet-4-5", note="it knows by the model's name what it may ask for"),
    *langchain("openai", "langchain-openai", CHAT), *langchain("responses", "langchain-openai, responses", RESPONSES),
    *langchain("anthropic", "langchain-anthropic", MESSAGES),
    *langchain("ollama", "langchain-ollama", OLLAMA, function_calling=NO_CHOICE, tool_choice=NO_CHOICE),
]


def run_feature(f, world, build, folder):
    """A remark. Raises Failed."""
    place = source(f.packages[0], build) if f.sdist else HERE / "py"
    with tempfile.TemporaryDirectory(prefix="aned-client-") as home:
        base = f"http://127.0.0.1:{world.port}"
        env = {**environment(f, world, folder, pathlib.Path(home)), "ANED_MODEL": f.model, "OPENAI_BASE_URL": base + "/v1",
               "OPENAI_API_KEY": world.key, "ANTHROPIC_BASE_URL": base, "ANTHROPIC_API_KEY": world.key, "OLLAMA_HOST": base,
               "OLLAMA_API_KEY": world.key}
        try:
            r = subprocess.run([str(folder / "bin" / "python"), *f.run], cwd=place, env=env, capture_output=True, text=True,
                               stdin=subprocess.DEVNULL, timeout=FEATURE_S)
        except subprocess.TimeoutExpired:
            raise Failed(f"no answer in {FEATURE_S} s") from None
    if os.environ.get("ANED_SHOW"):
        print(r.stdout + r.stderr)
    if r.returncode != 0 or f.says not in r.stdout:
        raise Failed(last_words(r.stdout if "pytest" in f.run else r.stderr or r.stdout))
    return r.stdout.splitlines()[-1] if "pytest" in f.run else ""


def row_of(f, world, build):
    """(row of the table, did something fail)"""
    version, works, remark, bad = "?", "✗", f.known, False
    begin = time.monotonic()
    try:
        folder = install(f, build)
        package = next(p for p in f.packages if p.startswith(f.package))
        version = version_of(package, folder)
        if not f.known:
            remark = run_feature(f, world, build, folder)
            remark, works = "; ".join(x for x in (f.note, remark.split(" in ")[0]) if x), "✓"
    except Failed as e:
        remark, bad = str(e), True
    print(f"  {f.client:28} {f.feature:52} {works} {time.monotonic() - begin:5.1f} s {remark}", flush=True)
    return [f.client, version, f.route, f.feature, works, remark], bad


def run(chosen, world, build):
    """Did something fail?"""
    rows, bad = [], False
    names = [(f.client, f.feature) for f in FEATURES]
    for f in chosen:
        row, failed = row_of(f, world, build)
        rows.append(row)
        bad = bad or failed
        write_structured(rows, names)
    return bad
