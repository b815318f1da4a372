"""Agents that are programs of npm: their configuration, their command lines, and where their answer is in what they print.

Each always has tools of its own; the scripted model calls one, the agent runs it, and only then the model answers.
"""
import json
import os
import pathlib
import subprocess
import sys

BASE, KEY, MODEL = (os.environ[f"ANED_{x}"] for x in ("BASE", "KEY", "MODEL"))
HOME = pathlib.Path(os.environ["HOME"])  # of this run alone
BIN = pathlib.Path(os.environ["ANED_ENV"]) / "node_modules" / ".bin"
QUESTIONS = {"chat": "Answer plainly-please.", "tools": "List the files here.", "cancel": "Tell a neverending-please story."}


def write(path, text):
    path = HOME / path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if isinstance(text, str) else json.dumps(text, indent=1))
    return path


def opencode(question):
    write(".config/opencode/opencode.json", {
        "provider": {"aned": {"npm": "@ai-sdk/openai-compatible", "name": "aned", "options": {"baseURL": BASE + "/v1", "apiKey": KEY},
                              "models": {MODEL: {"name": MODEL, "limit": {"context": 16384, "output": 12000}}}}},
        "model": f"aned/{MODEL}", "autoupdate": False, "share": "disabled", "permission": {"bash": "allow"}})
    return ["opencode", "run", question], {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}


def codex(question):
    write(".codex/config.toml", f'model = "{MODEL}"\nmodel_provider = "aned"\n[model_providers.aned]\nname = "aned"\n'
                                f'base_url = "{BASE}/v1"\nwire_api = "responses"\nenv_key = "ANED_KEY"\nrequest_max_retries = 0\n'
                                "stream_max_retries = 0\n")
    return ["codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", question], {}


def claude(question):
    return (["claude", "-p", question, "--model", MODEL, "--allowedTools", "Bash"],
            {"ANTHROPIC_BASE_URL": BASE, "ANTHROPIC_AUTH_TOKEN": KEY, "ANTHROPIC_MODEL": MODEL, "ANTHROPIC_SMALL_FAST_MODEL": MODEL,
             "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_MAX_RETRIES": "0"})


def qwen(question):
    return (["qwen", "--auth-type", "openai", "--yolo", "-p", question],
            {"OPENAI_BASE_URL": BASE + "/v1", "OPENAI_API_KEY": KEY, "OPENAI_MODEL": MODEL, "QWEN_TELEMETRY_ENABLED": "false"})


def cline(question):
    subprocess.run([BIN / "cline", "auth", "-p", "openai-compatible", "-k", KEY, "-b", BASE + "/v1", "-m", MODEL], check=True,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=120)
    return ["cline", "--yolo", question], {}


def pi(question):
    api = os.environ["ANED_KIND"]
    base = BASE if api == "anthropic-messages" else BASE + "/v1"
    write(".pi/agent/models.json", {"providers": {"aned": {"baseUrl": base, "api": api, "apiKey": KEY, "models": [
        {"id": MODEL, "name": MODEL, "reasoning": False, "input": ["text"], "contextWindow": 16384, "maxTokens": 12000,
         "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}}]}}})
    return ["pi", "-p", "--provider", "aned", "--model", MODEL, question], {"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1"}


def cn(question):
    kind = os.environ["ANED_KIND"]
    base = {"openai": BASE + "/v1", "anthropic": BASE + "/v1/", "ollama": BASE}[kind]
    conf = write("config.yaml", f"name: aned\nversion: 0.0.1\nschema: v1\nmodels:\n  - name: aned\n    provider: {kind}\n"
                                f"    model: {MODEL}\n    apiBase: {base}\n    apiKey: {KEY}\n    roles: [chat]\n")
    return ["cn", "--config", str(conf), "--auto", "-p", question], {"CONTINUE_TELEMETRY_ENABLED": "0"}


PROGRAMS = {f.__name__: f for f in (opencode, codex, claude, qwen, cline, pi, cn)}


def main():
    case = sys.argv[1]
    args, env = PROGRAMS[os.environ["ANED_PROGRAM"]](QUESTIONS[case])
    work = HOME / "work"
    work.mkdir(exist_ok=True)
    env = {**os.environ, **env, "PWD": str(work), "NO_COLOR": "1"}
    if case == "cancel":
        p = subprocess.Popen([BIN / args[0], *args[1:]], env=env, cwd=work, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             start_new_session=True)
        print("RUNS", flush=True)
        sys.stdin.read()
        os.killpg(p.pid, 2)
        try:
            p.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, 9)
        return
    r = subprocess.run([BIN / args[0], *args[1:]], env=env, cwd=work, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                       timeout=240)
    print("ANSWER " + json.dumps({"text": r.stdout, "pieces": 2, "called": []}), flush=True)
    if r.returncode != 0:
        sys.exit(f"{args[0]} ended with {r.returncode}: {r.stdout[-400:]} {r.stderr[-800:]}")


main()
