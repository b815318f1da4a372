"""anectl eval and bench: figures against those of `aned logits` (scoring.py), forms of files, errors, the screen."""
import json
import os
import pty
import signal
import time

import pytest

from conftest import SLOW_S, converted
from scoring import DATA, Reference, lines, perplexities, picks
from test_anectl import Ctl, end_of

CLOSE = 1e-6  # relative; of float32 log-probabilities
TEXTS = [x["text"] for x in lines("text.jsonl")]


@pytest.fixture(scope="module")
def ctl(anectl, daemon):
    return Ctl(anectl, daemon.sock)


@pytest.fixture(scope="module")
def ref(aned, daemon, tmp_path_factory):
    return Reference(aned, daemon.home / "models" / "demo", tmp_path_factory.mktemp("ref"))


@pytest.fixture(scope="module")
def prefix(daemon):
    with daemon.http() as c:
        info = c.get("/tokenizer_info", params={"model": "demo"}).json()
    return info["bos_token_id"] if info["bos_token_id"] is not None else info["eos_token_id"]


@pytest.mark.parametrize("window, stride", [(512, None), (64, None), (64, 10), (4, None), (9, 1), (300, 298)])
def test_perplexity(ctl, ref, prefix, window, stride):
    more = ["--stride", stride] if stride else []
    got = ctl.json("eval", "demo", "--perplexity", DATA / "text.jsonl", "--window", window, "--samples", *more)
    want = [ref.rolling(t, prefix, window, stride) for t in TEXTS]
    assert [s["loglikelihood"] for s in got["samples"]] == pytest.approx([s for s, _ in want], rel=CLOSE)
    assert [s["tokens"] for s in got["samples"]] == [n for _, n in want]
    figures = perplexities([s for s, _ in want], TEXTS, [n for _, n in want])
    for k, v in figures.items():
        assert got[k] == pytest.approx(v, rel=1e-4), k
    assert got["texts"] == len(TEXTS) and got["window"] == window and got["stride"] == (stride or window - 2)


def test_perplexity_of_a_file(ctl, ref, prefix, tmp_path):
    (tmp_path / "a.txt").write_text(TEXTS[1] + "\n\n" + TEXTS[3])
    got = ctl.json("eval", "demo", "-p", tmp_path / "a.txt")
    assert got["loglikelihood"] == pytest.approx(ref.rolling(TEXTS[1] + "\n\n" + TEXTS[3], prefix, 512)[0], rel=CLOSE)
    text = ctl("eval", "demo", "--perplexity", tmp_path / "a.txt").stdout
    assert f"1 texts, {got['tokens']} tokens, windows of 512, stride 510" in text and f"{got['perplexity']:.4f}" in text
    (tmp_path / "b.jsonl").write_text("\n" + json.dumps(TEXTS[0]) + "\r\n \n" + json.dumps({"text": TEXTS[1], "id": 1}))
    both = ctl.json("eval", "demo", "-p", tmp_path / "b.jsonl", "--samples")
    assert both["texts"] == 2
    assert ctl.json("eval", "demo", "-p", tmp_path / "b.jsonl", "--limit", 1)["loglikelihood"] == both["samples"][0]["loglikelihood"]


def test_choice(ctl, ref):
    got = ctl.json("eval", "demo", "--arc", DATA / "choice.jsonl", "--samples")
    docs = lines("choice.jsonl")
    n = {"acc": 0, "acc_norm": 0, "acc_bytes": 0}
    for doc, s in zip(docs, got["samples"], strict=True):
        choices = doc["choices"]["text"]
        scores = ref.choices(f"Question: {doc['question']}\nAnswer:", choices, bos=True)
        assert s["loglikelihoods"] == pytest.approx([x for x, _ in scores], rel=CLOSE)
        assert s["right"] == doc["choices"]["label"].index(doc["answerKey"])
        for k, v in picks(scores, choices).items():
            assert s[k] == v
            n[k] += v == s["right"]
    for k, v in n.items():
        assert got[k] == pytest.approx(v / len(docs)) and got["questions"] == len(docs) == 12 and got["choices"] == 48
    text = ctl("eval", "demo", "-a", DATA / "choice.jsonl").stdout
    assert "12 questions, 48 choices" in text and f"{100 * got['acc_norm']:.2f} %" in text
    assert ctl.json("eval", "demo", "-a", DATA / "choice.jsonl", "--no-bos")["acc"] == got["acc"]  # it has none


def test_forms_of_questions(ctl, tmp_path):
    """The same question in each of them; a query is asked as it stands."""
    forms = [{"question": "Q?", "choices": {"text": ["yes", "no"], "label": ["A", "B"]}, "answerKey": "B"},
             {"question": {"stem": "Q?", "choices": [{"text": "yes", "label": "1"}, {"text": "no", "label": "2"}]}, "answerKey": "2"},
             {"question": "Q?", "choices": ["yes", "no"], "answer": "no"}, {"question": "Q?", "choices": ["yes", "no"], "gold": 1},
             {"query": "Question: Q?\nAnswer:", "choices": ["yes", "no"], "label": "B"}]
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, forms)))
    got = ctl.json("eval", "demo", "--arc", tmp_path / "q.jsonl", "--samples")["samples"]
    assert len(got) == 5 and all(s == got[0] for s in got) and got[0]["right"] == 1


@pytest.mark.parametrize("query", ["A text with a space behind it ", "lines\n\n", "x"])
def test_space_belongs_to_the_choice(ctl, ref, tmp_path, query):
    (tmp_path / "q.jsonl").write_text(json.dumps({"query": query, "choices": ["one", "two three"], "gold": 0}))
    got = ctl.json("eval", "demo", "--arc", tmp_path / "q.jsonl", "--samples")["samples"][0]
    assert got["loglikelihoods"] == pytest.approx([s for s, _ in ref.choices(query, ["one", "two three"])], rel=CLOSE)


def test_long_questions_lose_their_beginning(ctl, ref, tmp_path):
    query = " ".join(f"word{i}" for i in range(300))
    (tmp_path / "q.jsonl").write_text(json.dumps({"query": query, "choices": ["a", "bb cc"], "gold": 0}))
    got = ctl.json("eval", "demo", "--arc", tmp_path / "q.jsonl", "--samples", "--window", 100)["samples"][0]
    want = []
    for c in ("a", "bb cc"):
        whole, n = ref.encode(f"{query} {c}"), len(ref.encode(query))
        want.append(ref.score(whole[-99:], n - (len(whole) - 99))[0])
    assert got["loglikelihoods"] == pytest.approx(want, rel=CLOSE)


def test_refused(ctl, daemon, demo_gguf, tmp_path):
    good = DATA / "choice.jsonl"
    for args in ([], ["-p", good, "-a", good], ["-a", good, "--stride", 4], ["-p", good, "--no-bos"], ["-p", good, "--window", 3]):
        assert ctl("eval", "demo", *args, code=64).stdout == ""
    assert "context of 512" in ctl("eval", "demo", "-p", good, "--window", 513, code=65).stderr
    assert "predicts 98" in ctl("eval", "demo", "-p", good, "--window", 100, "--stride", 99, code=65).stderr
    ctl("eval", "demo", "-p", tmp_path / "none", code=66)
    ctl("eval", "none", "-p", good, code=66)
    for i, (line, words) in enumerate([("{", "line 2"), ('{"question": "q", "choices": ["a"], "answer": 0}', "fewer than two"),
                                       ('{"question": "q", "choices": ["a", "b"], "answer": 2}', "one of the choices"),
                                       ('{"choices": ["a", "b"], "answer": 1}', "no question"),
                                       ('{"question": "q", "choices": ["a", ""], "answer": 1}', "choice 1")]):
        (tmp_path / f"{i}.jsonl").write_text("\n" + line)
        assert words in ctl("eval", "demo", "-a", tmp_path / f"{i}.jsonl", code=65).stderr
    for name, text in (("empty.txt", ""), ("nul.txt", "a\0b"), ("empty.jsonl", "\n"), ("wrong.jsonl", "[1]")):
        (tmp_path / name).write_text(text)
        ctl("eval", "demo", "-p", tmp_path / name, code=65)
    with converted(daemon, demo_gguf, "eval-tops", context=512, output="argmax"):
        assert "log-probabilities of a prompt" in ctl("eval", "eval-tops", "-a", good, code=65).stderr


def test_progress_on_a_terminal(ctl, tmp_path):
    (tmp_path / "long.jsonl").write_text("\n".join(json.dumps(t) for t in TEXTS * 4))
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(ctl.exe, [ctl.exe, "eval", "demo", "-p", str(tmp_path / "long.jsonl"), "-w", "32"], dict(ctl.env, TERM="xterm"))
    seen = b""
    while True:
        try:
            more = os.read(fd, 65536)
        except OSError:
            break
        if not more:
            break
        seen += more
    assert os.waitpid(pid, 0)[1] == 0
    os.close(fd)
    assert b"scoring" in seen and b"100%" in seen and b"perplexity" in seen.split(b"\r")[-1] + seen


def test_ctrl_c(ctl, tmp_path):
    (tmp_path / "long.jsonl").write_text("\n".join(json.dumps(t) for t in TEXTS * 2000))
    p = ctl.start("eval", "demo", "-p", tmp_path / "long.jsonl", "-w", "16")
    time.sleep(0.5)
    p.send_signal(signal.SIGINT)
    code, out, err = end_of(p)
    assert code == 130 and out == "" and err == ""


# --- bench -----------------------------------------------------------------

FIGURES = ["prefill_tokens_per_second", "decode_tokens_per_second", "total_tokens_per_second", "first_token_cold_ms", "first_token_warm_ms"]


@pytest.mark.parametrize("streams", [1, 3])
def test_bench(ctl, streams):
    got = ctl.json("bench", "demo", "--rounds", 3, "--prompt", 40, "--tokens", 8, "--streams", streams)
    assert (got["rounds"], got["streams"], got["prompt_tokens"], got["tokens"]) == (3, streams, 40, 8)
    for k in FIGURES:
        assert 0 <= got[k]["min"] <= got[k]["median"] <= got[k]["max"] and got[k]["max"] > 0, k
    assert got["warm_share"] > 0.9


def test_bench_for_people(ctl):
    text = ctl("bench", "demo", "-r", 2, "-n", 4).stdout
    assert "2 rounds, prompts of 500 tokens, answers of 4, 1 at a time" in text
    assert [x.split("  ")[1] for x in text.splitlines()[2:]] == ["prefill", "decode, a stream", "decode, together", "first token, cold", "first token, warm"]


def test_bench_refused(ctl):
    assert "context of 512" in ctl("bench", "demo", "--prompt", 510, code=65).stderr
    ctl("bench", "none", code=66)
    for args in (["--streams", 33], ["--rounds", 0], ["--tokens", 1], []):
        ctl("bench", *(["demo"] if args else []), *args, code=64)
    p = ctl.start("bench", "demo", "--rounds", "1000")
    time.sleep(0.5)
    p.send_signal(signal.SIGINT)
    assert end_of(p)[0] == 130


def test_help_and_completion(ctl):
    for name, words in (("eval", ["--perplexity FILE", "acc_norm", "lm_eval", "anectl eval gemma --arc"]), ("bench", ["--streams N", "first token"])):
        text = ctl(name, "--help").stdout
        assert all(w in text for w in words) and all(len(x) <= 80 for x in text.splitlines())
    for shell in ("bash", "zsh", "fish"):
        script = ctl("completion", shell).stdout
        assert "perplexity" in script and "streams" in script
