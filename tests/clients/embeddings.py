"""Embeddings through real SDKs: a row each (`./dev test clients embeddings`). The model is a tiny encoder of random weights; what its
vectors are, its forward pass in float64 says (tests/bert_tiny.py)."""
import json
import os

import bert_tiny
import structured
from results import write_embeddings
from structured import Feature, row_of
from table import LANGCHAIN, OLLAMA_SDK, OPENAI

EMBEDDINGS, EMBED = "/v1/embeddings", "/api/embed"
TEXTS = ["The daemon keeps what it computed.", "far red", "blue texts, vectors near"]
SHORTER = 16  # of `dimensions`


def row(client, feature, packages, route, case, **more):
    return Feature(client, feature, packages, route, ("embed_sdks.py", case), model="embedder", **more)


FEATURES = [
    row("openai-python", "embeddings.create: a text, a list, base64 and floats", OPENAI, EMBEDDINGS, "openai_create"),
    row("openai-python", "embeddings.create(dimensions=...)", OPENAI, EMBEDDINGS, "openai_dimensions"),
    row("ollama-python", "embed: a text, a list; embeddings", OLLAMA_SDK, EMBED, "ollama_embed"),
    row("ollama-python", "embed(dimensions=...)", OLLAMA_SDK, EMBED, "ollama_dimensions"),
    row("langchain-openai", "OpenAIEmbeddings: embed_documents, embed_query", LANGCHAIN, EMBEDDINGS, "langchain_openai",
        note="check_embedding_ctx_length=False: else it sends token ids of OpenAI's vocabulary"),
    row("langchain-ollama", "OllamaEmbeddings: embed_documents, embed_query", LANGCHAIN, EMBED, "langchain_ollama",
        package="langchain-ollama"),
    row("litellm", "embedding, openai/", ("litellm==1.106.0", "mcp==2.3.0"), EMBEDDINGS, "litellm_openai"),
    row("llama-index", "OpenAILikeEmbedding", ("llama-index-embeddings-openai-like==0.4.0",), EMBEDDINGS, "llama_index"),
    row("haystack", "OpenAITextEmbedder, OpenAIDocumentEmbedder", ("haystack-ai==3.4.1",), EMBEDDINGS, "haystack"),
]


def wanted(world):
    """The texts and their vectors, for the scripts, in a file; its path is in EMBEDS_WANT."""
    tiny = bert_tiny.Tiny("bert")
    world.convert(tiny.write(world.dir / "embedder.gguf", pooling="mean"), "embedder", quant="fp16", context=None, profile=None)
    with world.d.http() as c:
        ids = [c.post("/tokenize", json={"model": "embedder", "content": t, "add_special": True}).json()["tokens"] for t in TEXTS]
    path = world.dir / "wanted.json"
    path.write_text(json.dumps({"texts": TEXTS, "vectors": [tiny.vector(i).tolist() for i in ids], "shorter": SHORTER}))
    return path


def run(chosen, world, build):
    """Did something fail?"""
    os.environ["EMBEDS_WANT"] = str(wanted(world))
    rows, bad = [], False
    for f in chosen:
        row, failed = row_of(f, world, build)
        rows.append(row)
        bad = bad or failed
        write_embeddings(rows, [(x.client, x.feature) for x in FEATURES])
    return bad


assert not {(f.client, f.feature) for f in FEATURES} & {(f.client, f.feature) for f in structured.FEATURES}
