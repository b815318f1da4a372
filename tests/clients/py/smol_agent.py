from case import ASK, BASE, FOREVER, KEY, MODEL, QUESTION, get_weather, leave, main, say, say_all
from smolagents import OpenAIServerModel, ToolCallingAgent, tool

model = OpenAIServerModel(model_id=MODEL, api_base=BASE + "/v1", api_key=KEY)


def chat():
    say(model.generate(ASK).content)


def stream():
    say_all(d.content for d in model.generate_stream(ASK))


def tools():
    say(ToolCallingAgent(tools=[tool(get_weather)], model=model, max_steps=3).run(QUESTION))


def cancel():
    s = model.generate_stream([{"role": "user", "content": FOREVER}])
    leave((d.content for d in s), s.close)


main(chat, stream, tools, cancel)
