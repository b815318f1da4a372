"""EleutherAI's lm_eval against the daemon, over loopback TCP and as it comes from PyPI: tasks of our own (the two .yaml here)
whose every figure is that of `aned logits`, and of `anectl eval`."""
import glob
import json
import os
import socket
import subprocess

import pytest

from conftest import SLOW_S, TOP, Daemon
from scoring import DATA, Reference, lines, perplexities, picks

LM_EVAL = TOP / ".build" / "venv-lmeval" / "bin" / "lm_eval"
CLOSE = 1e-4
pytestmark = pytest.mark.skipif(not LM_EVAL.exists(), reason="lm_eval is not installed: ./dev test lmeval")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Home(Daemon):
    """A daemon with one model, a port and a key."""

    def __init__(self, aned, folder, source, name):
        self.port, self.name = free_port(), name
        (folder / "home").mkdir(mode=0o700)
        (folder / "home" / "aned.conf").write_text(f"[http]\nlisten = 127.0.0.1:{self.port}\n")
        super().__init__(aned, home=folder / "home")
        assert self.convert(source, name, context=512)["state"] == "done"
        self.key = (self.home / "http.key").read_text().strip()


@pytest.fixture(scope="module", params=["demo", "gemma"])
def home(request, aned, tmp_path_factory):
    source = request.getfixturevalue("demo_gguf" if request.param == "demo" else "gemma")
    d = Home(aned, tmp_path_factory.mktemp(request.param), source, request.param)
    yield d
    assert d.close() == 0


@pytest.fixture(scope="module")
def ref(aned, home, tmp_path_factory):
    return Reference(aned, home.home / "models" / home.name, tmp_path_factory.mktemp("ref"))


@pytest.fixture(scope="module")
def prefix(home):
    with home.http() as c:
        info = c.get("/tokenizer_info").json()
    return info["bos_token_id"] if info["bos_token_id"] is not None else info["eos_token_id"]


def run(home, out, window, tasks="aned_choice,aned_text", batch_size=1, **more):
    """The results of lm_eval, and its samples by task. Its tokenizer is the daemon's."""
    args = {"model": home.name, "base_url": f"http://127.0.0.1:{home.port}/v1/completions", "tokenizer_backend": "remote",
            "auth_token": home.key, "max_length": window, **more}
    env = dict(os.environ, HF_HOME=str(out / "hf"), HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", OPENAI_API_KEY=home.key)
    r = subprocess.run([LM_EVAL, "run", "--model", "local-completions", "--model_args", ",".join(f"{k}={v}" for k, v in args.items()),
                        "--tasks", tasks, "--include_path", DATA, "--output_path", out, "--log_samples",
                        "--batch_size", str(batch_size)],
                       cwd=DATA, env=env, capture_output=True, text=True, timeout=600 * SLOW_S)
    assert r.returncode == 0, r.stderr[-4000:]
    with open(glob.glob(f"{out}/**/results_*.json", recursive=True)[0]) as f:
        results = json.load(f)["results"]
    samples = {}
    for task in tasks.split(","):
        with open(glob.glob(f"{out}/**/samples_{task}_*.jsonl", recursive=True)[0]) as f:
            samples[task] = sorted(map(json.loads, f), key=lambda x: x["doc_id"])
    return results, samples


def anectl_eval(anectl, home, *args):
    r = subprocess.run([anectl, "eval", home.name, "--json", "--samples", *map(str, args)], capture_output=True, text=True,
                       env=dict(os.environ, ANED_SOCKET=str(home.sock)), timeout=600 * SLOW_S)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


@pytest.mark.parametrize("window, more", [(512, {}), (512, {"num_concurrent": 4}), (64, {}), (512, {"batch_size": 8})])
def test_same_as_aned_logits(anectl, home, ref, prefix, tmp_path, window, more):
    results, samples = run(home, tmp_path, window, **more)
    texts = [x["text"] for x in lines("text.jsonl")]
    want = [ref.rolling(t, prefix, window) for t in texts]
    assert [float(s["resps"][0][0]) for s in samples["aned_text"]] == pytest.approx([x for x, _ in want], abs=CLOSE * 100, rel=CLOSE / 100)
    figures = perplexities([x for x, _ in want], texts, [n for _, n in want])
    ours = anectl_eval(anectl, home, "--perplexity", DATA / "text.jsonl", "--window", window)
    for k in ("word_perplexity", "byte_perplexity", "bits_per_byte"):
        assert results["aned_text"][f"{k},none"] == pytest.approx(figures[k], rel=CLOSE)
        assert results["aned_text"][f"{k},none"] == pytest.approx(ours[k], rel=CLOSE)
    right = dict.fromkeys(("acc", "acc_norm", "acc_bytes"), 0)
    for doc, s in zip(lines("choice.jsonl"), samples["aned_choice"], strict=True):
        scores = ref.choices(f"Question: {doc['question']}\nAnswer:", doc["choices"]["text"])
        assert [float(r[0][0]) for r in s["resps"]] == pytest.approx([x for x, _ in scores], abs=CLOSE)
        assert [r[0][1] == "True" for r in s["resps"]] == [greedy for _, greedy in scores]
        for k, v in picks(scores, doc["choices"]["text"]).items():
            right[k] += v == doc["choices"]["label"].index(doc["answerKey"])
    ours = anectl_eval(anectl, home, "--arc", DATA / "choice.jsonl", "--no-bos")
    for k, n in right.items():
        assert results["aned_choice"][f"{k},none"] == pytest.approx(n / 12) == pytest.approx(ours[k])
    for k in ("acc", "acc_norm"):
        assert ours[f"{k}_stderr"] == pytest.approx(results["aned_choice"][f"{k}_stderr,none"])
    for s, o in zip(samples["aned_choice"], ours["samples"], strict=True):
        assert [float(r[0][0]) for r in s["resps"]] == pytest.approx(o["loglikelihoods"], abs=CLOSE)


def test_which_setting_asks_the_daemon(home, tmp_path):
    """`auto`, which is the default, finds the daemon's tokenizer by itself."""
    results, _ = run(home, tmp_path, 512, tasks="aned_choice", tokenizer_backend="auto")
    assert results["aned_choice"]["sample_len"] == 12
