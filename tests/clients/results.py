"""RESULTS.md: a table of clients, one of structured output and one of embeddings. Rows that were not run stay as they are."""
import pathlib

RESULTS = pathlib.Path(__file__).parent / "RESULTS.md"
COLUMNS = ("chat", "stream", "tools", "cancel")
HEAD = "| client | versions | dialect | chat | stream | tools | cancel | remarks |"
STRUCTURED = "\n## Structured output\n"
STRUCTURED_HEAD = "| client | version | dialect | feature | works | remarks |"
EMBEDDINGS = "\n## Embeddings\n"


def cell(text):
    return " ".join(str(text).replace("|", "\\|").split())


def table(head, rows):
    return "\n".join([head, "|" + "---|" * (head.count("|") - 1), *("| " + " | ".join(cell(x) for x in r) + " |" for r in rows)]) + "\n"


def merged(text, rows, names, key):
    """rows, and those of a text's table that are not among them, in the order of names. key(row): its name."""
    kept = {}
    for line in text.splitlines():
        cells = [x.strip() for x in line.replace("\\|", "\0").strip("|").split("|")]
        if rows and len(cells) == len(rows[0]) and key(cells) in names:
            kept[key(cells)] = [c.replace("\0", "|") for c in cells]
    kept.update({key(r): r for r in rows})
    return [kept[n] for n in names if n in kept]


def parts():
    """The table of clients, that of structured output, that of embeddings, each with its heading."""
    old = RESULTS.read_text() if RESULTS.exists() else ""
    rest, mark, embeddings = old.partition(EMBEDDINGS)
    clients, head, structured = rest.partition(STRUCTURED)
    return clients, head + structured, mark + embeddings


def write_clients(rows, names, world):
    clients, *others = parts()
    ordered = merged(clients, rows, names, lambda r: r[0])
    well = sum("✗" not in r and "?" not in r[3:7] for r in ordered)
    port = "its own port, with its key" if world.own_port else "a byte relay, because this aned listens on no port"
    text = f"""# Real clients against aned

Made by `./dev test clients` (tests/clients/run.py); each client unmodified, in an environment of its own, through {port}.
{well} of {len(ordered)} work in all that they can. ✓ works · ✗ does not · – the client has no such thing.

The models are scripted (tests/scripted.py): real bundles on the CPU backend whose weights make them say a text, call a tool when there are
tools, and answer after its result. *tools*: the call reaches the client, its function or command runs, and the answer behind its result
arrives. *cancel*: in the middle of an answer without an end the client leaves, or is interrupted, and aned computes no longer.

"""
    RESULTS.write_text(text + table(HEAD, ordered) + "".join(others))


def write_structured(rows, names):
    clients, structured, embeddings = parts()
    ordered = merged(structured, rows, names, lambda r: (r[0], r[3]))
    well = sum(r[4] == "✓" for r in ordered)
    text = f"""{STRUCTURED}
{well} of {len(ordered)} work. The model (tests/clients/held.py) says nonsense and is held to the schema, so that no test looks at what an answer means:
each has to come as the pydantic model, dictionary or type that was asked for. *example*, *tests*: files of the package's own sdist (of
langchain-tests: its class of tests), run as they are, with the base URL and the key in the environment and the model's name as an alias of
the daemon. Other rows are scripts of ours (`py/structured_*.py`) with one larger model: references, enums, null, lists, unions, bounds, patterns.
Where only `json_object` reaches the daemon, the model says the JSON that is asked for in words.

"""
    RESULTS.write_text(clients + text + table(STRUCTURED_HEAD, ordered) + embeddings)


def write_embeddings(rows, names):
    clients, structured, embeddings = parts()
    ordered = merged(embeddings, rows, names, lambda r: (r[0], r[3]))
    well = sum(r[4] == "✓" for r in ordered)
    text = f"""{EMBEDDINGS}
{well} of {len(ordered)} work. The model is a tiny encoder (tests/bert_tiny.py); each vector is held to its forward pass in float64
(`py/embed_sdks.py`).

"""
    RESULTS.write_text(clients + structured + text + table(STRUCTURED_HEAD, ordered))
