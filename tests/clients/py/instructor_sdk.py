import instructor
import openai
from case import ASK, BASE, KEY, MODEL, main, say
from pydantic import BaseModel


class Place(BaseModel):
    city: str


def chat():
    client = instructor.from_openai(openai.OpenAI(base_url=BASE + "/v1", api_key=KEY, max_retries=0), mode=instructor.Mode.MD_JSON)
    say(client.chat.completions.create(model=MODEL, messages=ASK, response_model=Place, max_retries=0).city)


def tools():
    client = instructor.from_openai(openai.OpenAI(base_url=BASE + "/v1", api_key=KEY, max_retries=0), mode=instructor.Mode.TOOLS)
    say(client.chat.completions.create(model=MODEL, messages=ASK, response_model=Place, max_retries=0).city)


main(chat, tools)
