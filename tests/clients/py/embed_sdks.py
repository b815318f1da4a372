"""Vectors of the same texts by each package; they are held to those of the file EMBEDS_WANT."""
import json
import math
import os

from case import BASE, KEY, MODEL, main

want = json.load(open(os.environ["EMBEDS_WANT"]))
TEXTS, SHORTER = want["texts"], want["shorter"]


def unit(v):
    size = math.sqrt(sum(x * x for x in v))
    return [x / size for x in v]


def check(got, n=None, which=TEXTS):
    """got: a vector for each of the texts, of length 1, cut to n numbers."""
    assert len(got) == len(which), (len(got), len(which))
    for v, text in zip(got, which):
        full = want["vectors"][TEXTS.index(text)]
        of = unit(full[:n])
        assert len(v) == len(of) and abs(math.sqrt(sum(x * x for x in v)) - 1) < 1e-4, (text, len(v))
        assert sum(a * b for a, b in zip(of, v)) > 0.9999, text


def ok():
    print("ANSWER ok")


def openai_client():
    import openai
    return openai.OpenAI(base_url=BASE + "/v1", api_key=KEY, max_retries=0).embeddings


def openai_create():
    c = openai_client()
    for more in ({}, {"encoding_format": "float"}, {"encoding_format": "base64"}):
        r = c.create(model=MODEL, input=TEXTS, **more)
        if more.get("encoding_format") != "base64":
            check([x.embedding for x in r.data])
        assert r.usage.prompt_tokens == r.usage.total_tokens > len(TEXTS) * 2
    check([c.create(model=MODEL, input=TEXTS[1]).data[0].embedding], which=TEXTS[1:2])
    ok()


def openai_dimensions():
    r = openai_client().create(model=MODEL, input=TEXTS, dimensions=SHORTER)
    check([x.embedding for x in r.data], SHORTER)
    ok()


def ollama_client():
    import ollama
    return ollama.Client(host=BASE, headers={"Authorization": "Bearer " + KEY})


def ollama_embed():
    c = ollama_client()
    check(c.embed(model=MODEL, input=TEXTS).embeddings)
    check(c.embed(model=MODEL, input=TEXTS[0]).embeddings, which=TEXTS[:1])
    check([c.embeddings(model=MODEL, prompt=TEXTS[2]).embedding], which=TEXTS[2:])
    ok()


def ollama_dimensions():
    check(ollama_client().embed(model=MODEL, input=TEXTS, dimensions=SHORTER).embeddings, SHORTER)
    ok()


def langchain(e):
    check(e.embed_documents(TEXTS))
    check([e.embed_query(TEXTS[0])], which=TEXTS[:1])
    ok()


def langchain_openai():
    from langchain_openai import OpenAIEmbeddings
    langchain(OpenAIEmbeddings(model=MODEL, base_url=BASE + "/v1", api_key=KEY, check_embedding_ctx_length=False))


def langchain_ollama():
    from langchain_ollama import OllamaEmbeddings
    langchain(OllamaEmbeddings(model=MODEL, base_url=BASE, client_kwargs={"headers": {"Authorization": "Bearer " + KEY}}))


def litellm_openai():
    import litellm
    r = litellm.embedding(model="openai/" + MODEL, input=TEXTS, api_base=BASE + "/v1", api_key=KEY)
    check([x["embedding"] for x in r.data])
    ok()


def llama_index():
    from llama_index.embeddings.openai_like import OpenAILikeEmbedding
    e = OpenAILikeEmbedding(model_name=MODEL, api_base=BASE + "/v1", api_key=KEY, embed_batch_size=2)
    check(e.get_text_embedding_batch(TEXTS))
    check([e.get_query_embedding(TEXTS[0])], which=TEXTS[:1])
    ok()


def haystack():
    from haystack import Document
    from haystack.components.embedders import OpenAIDocumentEmbedder, OpenAITextEmbedder
    from haystack.utils import Secret
    more = {"model": MODEL, "api_base_url": BASE + "/v1", "api_key": Secret.from_token(KEY)}
    r = OpenAIDocumentEmbedder(**more, progress_bar=False).run([Document(content=t) for t in TEXTS])
    check([d.embedding for d in r["documents"]])
    check([OpenAITextEmbedder(**more).run(TEXTS[0])["embedding"]], which=TEXTS[:1])
    ok()


main(openai_create, openai_dimensions, ollama_embed, ollama_dimensions, langchain_openai, langchain_ollama, litellm_openai, llama_index,
     haystack)
