"""Clients that are programs: their command lines, and what of their output is the answer."""
import json
import os
import pathlib
import subprocess
import sys

from case import BASE, FOREVER, KEY, MODEL, QUESTION, called, say, say_all

HOME = pathlib.Path(os.environ["HOME"])  # of this run alone
HERE = pathlib.Path(sys.executable).parent


def run(*args, **more):
    r = subprocess.run([str(a) for a in args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=300, **more)
    if r.returncode != 0:
        sys.exit(f"{args[0]} ended with {r.returncode}: {r.stdout[-500:]}")
    return r.stdout


def forever(*args, **more):
    """A program that is in the middle of an answer; the runner ends this process, and with it that one."""
    p = subprocess.Popen([str(a) for a in args], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **more)
    print("RUNS", flush=True)
    sys.stdin.read()
    p.send_signal(2)
    try:
        p.wait(timeout=10)
    except subprocess.TimeoutExpired:
        p.kill()


def llm(case):
    path = HOME / "llm"
    path.mkdir(exist_ok=True)
    (path / "extra-openai-models.yaml").write_text(
        f"- model_id: aned\n  model_name: {MODEL}\n  api_base: {BASE}/v1\n  api_key_name: aned\n  supports_tools: true\n")
    env = {**os.environ, "LLM_USER_PATH": str(path), "LLM_LOAD_PLUGINS": ""}
    args = [HERE / "llm", "-m", "aned", "--key", KEY]
    if case == "chat":
        say(run(*args, "--no-stream", QUESTION, env=env).strip())
    elif case == "stream":
        say(run(*args, QUESTION, env=env).strip(), 2)
    elif case == "tools":
        f = f"def get_weather(city: str) -> str:\n    open({str(HOME / 'called')!r}, 'w').write(city)\n    return 'It is sunny.'\n"
        text = run(*args, "--functions", f, QUESTION, env=env).strip()
        called.append({"city": (HOME / "called").read_text()})
        say(text)
    else:
        forever(*args, FOREVER, env=env)


def aider(case):
    kind = os.environ["ANED_KIND"]
    env = {**os.environ, "OPENAI_API_BASE": BASE + "/v1", "OPENAI_API_KEY": KEY, "OLLAMA_API_BASE": BASE, "OLLAMA_API_KEY": KEY,
           "ANTHROPIC_API_KEY": KEY, "AIDER_ANALYTICS_DISABLE": "true"}
    args = [HERE / "aider", "--model", f"{kind}/{MODEL}", "--no-git", "--yes-always", "--no-check-update", "--no-show-model-warnings",
            "--no-analytics", "--no-pretty", "--no-fancy-input", "--no-suggest-shell-commands", "--map-tokens", "0"]
    if case in ("chat", "stream"):
        text = run(*args, "--no-stream" if case == "chat" else "--stream", "--message", QUESTION, env=env, cwd=HOME)
        say(text, 2)
    else:
        forever(*args, "--stream", "--message", FOREVER, env=env, cwd=HOME)


def sgpt(case):
    env = {**os.environ, "API_BASE_URL": BASE + "/v1", "OPENAI_API_KEY": KEY, "DEFAULT_MODEL": MODEL, "PRETTIFY_MARKDOWN": "false",
           "OPENAI_USE_FUNCTIONS": "false", "USE_LITELLM": "false", "XDG_CONFIG_HOME": str(HOME)}
    args = [HERE / "sgpt", "--no-cache"]
    if case == "chat":
        say(run(*args, "--no-interaction", QUESTION, env=env).strip())
    elif case == "stream":
        say(run(*args, QUESTION, env=env).strip(), 2)
    else:
        forever(*args, FOREVER, env=env)


def said_by_openai(case, out):
    """Of an answer as it came over the wire."""
    if case == "chat":
        return say(json.loads(out)["choices"][0]["message"]["content"])
    events = [json.loads(x[6:]) for x in out.splitlines() if x.startswith("data: {")]
    say_all(c["delta"].get("content") for e in events for c in e["choices"])


def curl(case):
    talk = [{"role": "user", "content": FOREVER if case == "cancel" else QUESTION}]
    body = json.dumps({"model": MODEL, "messages": talk, "stream": case != "chat"})
    args = ["curl", "-sSN", "--fail-with-body", "-H", "Authorization: Bearer " + KEY, "-H", "Content-Type: application/json", "-d", body,
            BASE + "/v1/chat/completions"]
    if case == "cancel":
        return forever(*args)
    said_by_openai(case, run(*args))


def httpie(case):
    args = [HERE / "http", "--ignore-stdin", "--check-status", "--body", *(["--stream"] if case != "chat" else []), "-A", "bearer", "-a", KEY,
            BASE + "/v1/chat/completions", f"model={MODEL}", "messages[0][role]=user",
            f"messages[0][content]={FOREVER if case == 'cancel' else QUESTION}", f"stream:={'false' if case == 'chat' else 'true'}"]
    if case == "cancel":
        return forever(*args)
    said_by_openai(case, run(*args))


if __name__ == "__main__":
    {"llm": llm, "aider": aider, "sgpt": sgpt, "curl": curl, "httpie": httpie}[os.environ["ANED_PROGRAM"]](sys.argv[1])
