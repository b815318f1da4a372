import os

from case import BASE, FOREVER, KEY, MODEL, QUESTION, get_weather, leave, main, say, say_all


def model():
    kind = os.environ["ANED_KIND"]
    if kind == "openai":
        from langchain_openai import ChatOpenAI
        return ChatOpenAI(model=MODEL, base_url=BASE + "/v1", api_key=KEY, max_retries=0)
    if kind == "responses":
        from langchain_openai import ChatOpenAI
        return ChatOpenAI(model=MODEL, base_url=BASE + "/v1", api_key=KEY, max_retries=0, use_responses_api=True)
    if kind == "anthropic":
        from langchain_anthropic import ChatAnthropic
        return ChatAnthropic(model=MODEL, base_url=BASE, api_key=KEY, max_retries=0, max_tokens=4096)
    from langchain_ollama import ChatOllama
    return ChatOllama(model=MODEL, base_url=BASE, client_kwargs={"headers": {"Authorization": "Bearer " + KEY}})


def text(m):
    return m.content if isinstance(m.content, str) else "".join(b.get("text", "") for b in m.content if isinstance(b, dict))


def chat():
    say(text(model().invoke(QUESTION)))


def stream():
    say_all(text(c) for c in model().stream(QUESTION))


def tools():
    from langchain_core.messages import HumanMessage
    from langchain_core.tools import tool
    bound = model().bind_tools([tool(get_weather)])
    talk = [HumanMessage(QUESTION)]
    talk.append(bound.invoke(talk))
    talk += [tool(get_weather).invoke(c) for c in talk[-1].tool_calls]
    say(text(bound.invoke(talk)))


def cancel():
    s = model().stream(FOREVER)
    leave((text(c) for c in s), s.close)


if __name__ == "__main__":
    main(chat, stream, tools, cancel)
