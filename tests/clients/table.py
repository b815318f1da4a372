"""The clients: a row each. Versions are pinned, so that a run says the same tomorrow."""
import dataclasses

from envs import env_name
from scripted import calls_text
from world import ANSWER, CALL, TEXT, scripts_of

FULL = ("chat", "stream", "tools", "cancel")


@dataclasses.dataclass
class Client:
    name: str
    script: str  # of py/ or js/
    packages: tuple
    cases: tuple = FULL
    kind: str = ""  # for a script that several rows share
    program: str = ""  # of cli.py and programs.py
    route: str = ""  # what it needs of aned; a daemon without it is said to have none
    scripts: list = dataclasses.field(default_factory=scripts_of)
    answers: dict = dataclasses.field(default_factory=dict)  # where a case ends otherwise than in TEXT or ANSWER
    whole: bool = True  # the answer is all that is said, not part of a program's output
    called: list = dataclasses.field(default_factory=lambda: [CALL[1]])
    known: dict = dataclasses.field(default_factory=dict)  # cases that cannot work, and why
    note: str = ""
    always_tools: bool = False  # it asks for nothing without tools

    @property
    def npm(self):
        return self.script.endswith(".mjs") or self.script == "programs.py"

    @property
    def env(self):
        return env_name(self.packages)


CHAT, RESPONSES, MESSAGES, OLLAMA = "/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat"
STREAMED = (*FULL, "tools_stream")
OPENAI = ("openai==3.51.0", "rich==15.0.0")  # which its examples print with
ANTHROPIC = ("anthropic==2.10.0",)
OLLAMA_SDK = ("ollama==0.6.3",)
INSTRUCTOR = ("instructor==1.17.0", "anthropic==2.10.0", "ollama==0.6.3", "pytest==9.2.0", "pytest-asyncio==1.5.0", "python-dotenv==1.2.4")
LANGCHAIN = ("langchain-openai==1.7.4", "langchain-anthropic==1.7.10", "langchain-ollama==1.1.0", "langchain-tests==1.1.9")
PYDANTIC = ("pydantic-ai-slim[openai,anthropic]==2.68.0",)
AI = ("ai@7.0.173", "@ai-sdk/openai-compatible@3.0.92", "@ai-sdk/openai@4.0.118", "@ai-sdk/anthropic@4.0.105")
JSON_TEXT = '```json\n{"city": "Paris"}\n```'
FINAL = ("final_answer", {"answer": ANSWER})


def agent(name, program, packages, call, route=CHAT, kind="", note="", then=None, known=None):
    return Client(name, "programs.py", packages, ("chat", "tools", "cancel"), kind, program, route, scripts_of(call, then=then),
                  whole=False, called=[], known=known or {}, note=note, always_tools=True)


def framework(name, program, packages, cases=("chat", "stream", "tools")):
    return Client(name, "frameworks.py", packages, cases, program=program, route=CHAT)


CLIENTS = [
    Client("openai-python, chat", "openai_chat.py", OPENAI, STREAMED, route=CHAT),
    Client("openai-python, responses", "openai_responses.py", OPENAI, STREAMED, route=RESPONSES),
    Client("anthropic-python", "anthropic_sdk.py", ANTHROPIC, STREAMED, route=MESSAGES),
    Client("ollama-python", "ollama_sdk.py", OLLAMA_SDK, STREAMED, route=OLLAMA),
    Client("llm", "cli.py", ("llm==0.36",), program="llm", route=CHAT),
    Client("litellm, openai/", "litellm_sdk.py", ("litellm==1.106.0", "mcp==2.3.0"), kind="openai", route=CHAT),
    Client("litellm, hosted_vllm/", "litellm_sdk.py", ("litellm==1.106.0", "mcp==2.3.0"), kind="hosted_vllm", route=CHAT),
    Client("litellm, anthropic/", "litellm_sdk.py", ("litellm==1.106.0", "mcp==2.3.0"), kind="anthropic", route=MESSAGES,
           known={"cancel": "its stream has no close, and outlives who reads it"}),
    Client("litellm, ollama_chat/", "litellm_sdk.py", ("litellm==1.106.0", "mcp==2.3.0"), kind="ollama_chat", route=OLLAMA),
    Client("langchain-openai", "langchain_any.py", LANGCHAIN, kind="openai", route=CHAT),
    Client("langchain-openai, responses", "langchain_any.py", LANGCHAIN, kind="responses", route=RESPONSES),
    Client("langchain-anthropic", "langchain_any.py", LANGCHAIN, kind="anthropic", route=MESSAGES),
    Client("langchain-ollama", "langchain_any.py", LANGCHAIN, kind="ollama", route=OLLAMA),
    Client("instructor", "instructor_sdk.py", INSTRUCTOR, ("chat", "tools"), route=CHAT,
           scripts=scripts_of(("Place", {"city": "Paris"}), JSON_TEXT), answers={"chat": "Paris", "tools": "Paris"}, called=[],
           note="chat: its mode MD_JSON"),
    Client("pydantic-ai, chat", "pydantic_agent.py", PYDANTIC, kind="chat", route=CHAT),
    Client("pydantic-ai, responses", "pydantic_agent.py", PYDANTIC, kind="responses", route=RESPONSES),
    Client("pydantic-ai, anthropic", "pydantic_agent.py", PYDANTIC, kind="anthropic", route=MESSAGES),
    Client("openai-agents, chat", "agents_sdk.py", ("openai-agents==0.24.0",), kind="chat", route=CHAT),
    Client("openai-agents, responses", "agents_sdk.py", ("openai-agents==0.24.0",), kind="responses", route=RESPONSES),
    Client("smolagents", "smol_agent.py", ("smolagents[openai]==1.26.0",), route=CHAT,
           scripts=scripts_of(then=FINAL, result="'Observation' in messages[-1]|string"), note="it says results as a user"),
    Client("huggingface_hub", "hf_client.py", ("huggingface-hub==2.4.0",), route=CHAT),
    Client("aider, openai/", "cli.py", ("aider-chat==0.86.2",), ("chat", "stream", "cancel"), "openai", "aider", CHAT, whole=False),
    Client("aider, ollama_chat/", "cli.py", ("aider-chat==0.86.2",), ("chat", "stream", "cancel"), "ollama_chat", "aider", OLLAMA,
           whole=False),
    Client("sgpt", "cli.py", ("shell-gpt==1.5.1", "click==8.5.1"), ("chat", "stream", "cancel"), program="sgpt", route=CHAT),
    framework("strands-agents", "strands", ("strands-agents[openai]==1.62.0",)),
    framework("agno", "agno", ("agno==3.1.10", "openai==3.51.0")),
    framework("llama-index", "llama_index", ("llama-index-llms-openai-like==0.8.1",)),
    framework("haystack", "haystack", ("haystack-ai==3.4.1",)),
    framework("dspy", "dspy", ("dspy==3.4.1",), ("chat",)),
    framework("autogen", "autogen", ("autogen-agentchat==0.7.5", "autogen-ext[openai]==0.7.5")),
    Client("curl", "cli.py", (), ("chat", "stream", "cancel"), program="curl", route=CHAT),
    Client("httpie", "cli.py", ("httpie==3.2.4",), ("chat", "stream", "cancel"), program="httpie", route=CHAT),
    Client("openai-node, chat", "openai.mjs", ("openai@7.55.0",), kind="chat", route=CHAT),
    Client("openai-node, responses", "openai.mjs", ("openai@7.55.0",), kind="responses", route=RESPONSES),
    Client("anthropic-node", "anthropic.mjs", ("@anthropic-ai/sdk@1.10.0",), route=MESSAGES),
    Client("ollama-js", "ollama.mjs", ("ollama@0.6.4",), route=OLLAMA),
    Client("ai-sdk, openai-compatible", "ai_sdk.mjs", AI, kind="compatible", route=CHAT),
    Client("ai-sdk, openai", "ai_sdk.mjs", AI, kind="openai", route=RESPONSES),
    Client("ai-sdk, anthropic", "ai_sdk.mjs", AI, kind="anthropic", route=MESSAGES),
    Client("langchain-js", "langchain.mjs", ("@langchain/openai@1.6.0", "@langchain/core"), route=CHAT),
    agent("opencode", "opencode", ("opencode-ai@1.18.33",), ("bash", {"command": "ls", "description": "Lists files"})),
    agent("codex", "codex", ("@openai/codex@0.169.0",), ("exec_command", {"cmd": "ls"}), RESPONSES),
    agent("Claude Code", "claude", ("@anthropic-ai/claude-code@2.1.328",), ("Bash", {"command": "ls", "description": "Lists files"}),
          MESSAGES),
    agent("qwen-code", "qwen", ("@qwen-code/qwen-code@0.24.4",), ("glob", {"pattern": "*"})),
    agent("cline", "cline", ("cline@3.0.65",), ("run_commands", {"commands": ["ls"]}), then=("attempt_completion", {"result": ANSWER}),
          known={"chat": "a text without a call is no end for it: it asks on until the context is full"}),
    agent("pi, completions", "pi", ("@mariozechner/pi-coding-agent@0.73.1",), ("bash", {"command": "ls"}), kind="openai-completions"),
    agent("pi, responses", "pi", ("@mariozechner/pi-coding-agent@0.73.1",), ("bash", {"command": "ls"}), RESPONSES,
          "openai-responses"),
    agent("pi, messages", "pi", ("@mariozechner/pi-coding-agent@0.73.1",), ("bash", {"command": "ls"}), MESSAGES,
          "anthropic-messages"),
    agent("Continue cn, openai", "cn", ("@continuedev/cli@1.5.47",), ("List", {"dirpath": "."}), kind="openai"),
    agent("Continue cn, anthropic", "cn", ("@continuedev/cli@1.5.47",), ("List", {"dirpath": "."}), MESSAGES, "anthropic"),
]

EXPECTED = {"chat": TEXT, "stream": TEXT, "tools": ANSWER, "tools_stream": ""}
assert calls_text([CALL])  # the form is known
