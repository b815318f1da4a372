"""A device whose last bits depend on the width of a prediction: tokens and their log-probabilities still depend on nothing but
the request. The probe finds which widths agree, and the engine uses only those."""
import os
import signal
import threading

import pytest

from conftest import until
from device import PROMPTS, Place, ask, bundle, engine, load, residency, stream  # noqa: F401  (bundle: a fixture)

LONG = "What is aned? The daemon converts a model. " * 12
BODIES = [
    {"prompt": PROMPTS[0]},
    {"prompt": LONG},  # repeats itself: drafts are accepted
    {"prompt": PROMPTS[2], "temperature": 0.8, "seed": 7, "top_k": 40},
    {"prompt": LONG, "temperature": 1.2, "seed": 8, "repeat_penalty": 1.1},
]
CONF = "[cache]\ndisk_tokens = 64\n"


def answers(d):
    """Each by itself, with all digits of the log-probabilities: they show a bit that no token shows."""
    return [ask(d, logprobs=3, **b)["choices"] for b in BODIES]


@pytest.fixture(scope="module", params=[pytest.param(4, marks=pytest.mark.smoke), 1, 3])
def width(request):
    return request.param


@pytest.fixture(scope="module")
def noisy_place(aned, bundle, tmp_path_factory, width):
    """A place whose device has noise; the interpreter's bits are those of one width. Its answers without drafts."""
    p = Place(aned, tmp_path_factory.mktemp("noisy"), bundle)
    p.device.set(f"width_bits = {width}")
    try:
        d = p.serve(CONF + "[speculation]\nmax_draft = 0\n")
        load(d)
        p.want = answers(d)
        p.widths = residency(d)["measured"]["widths"]
        assert d.close() == 0
        yield p
    finally:
        p.close()


@pytest.fixture
def noisy(noisy_place):
    yield noisy_place
    noisy_place.stop()


def run(p, pre="", spec="max_draft = 8"):
    d = p.serve(f"{pre}{CONF}[speculation]\n{spec}\n")
    load(d)
    return d


def test_the_probe_finds_that_widths_differ(noisy):
    """One width alone for layers, of all that the packages have: else the noise would not be there."""
    assert len(noisy.widths["layers"]) == 1, noisy.widths


def test_drafts(noisy):
    d = run(noisy)
    got = [ask(d, logprobs=3, **b) for b in BODIES]
    assert [g["choices"] for g in got] == noisy.want
    if noisy.widths["layers"] != [1]:  # one row at a time has no place for drafts
        assert sum(g["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] for g in got) > 0


@pytest.mark.parametrize("chunk", [1, 3, 64])
def test_chunks(noisy, chunk):
    d = run(noisy, pre=f"prefill_chunk = {chunk}\n")
    assert answers(d) == noisy.want


def test_company(noisy):
    d = run(noisy)
    got = {}

    def one(i):
        got[i] = ask(d, logprobs=3, **BODIES[i % len(BODIES)])["choices"]
    threads = [threading.Thread(target=one, args=(i,)) for i in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [got.get(i) for i in range(12)] == [noisy.want[i % len(BODIES)] for i in range(12)]


def test_restart(noisy):
    """What the first daemon said is the second one's prompt: it takes the saved state, and says what would have followed."""
    body = {"prompt": LONG, "logprobs": 3}
    d = run(noisy)
    whole = ask(d, max_tokens=60, **body)["choices"][0]
    half = ask(d, max_tokens=30, **body)["choices"][0]
    assert d.stop() == 0
    d = run(noisy)
    r = ask(d, max_tokens=60, **body)
    assert r["timings"]["cache_n"] >= 64, "no state was saved"
    assert r["choices"][0] == whole
    assert whole["logprobs"]["token_logprobs"][:30] == half["logprobs"]["token_logprobs"]


def test_the_engine_is_killed(noisy):
    d = run(noisy)
    body = {**BODIES[3], "max_tokens": 200}
    want = stream(d, lambda n: None, **body)
    pid = engine(d)["pid"]

    def kill(n):
        if n == 10:
            os.kill(pid, signal.SIGKILL)
    assert stream(d, kill, **body) == want
    until(lambda: engine(d).get("pid", pid) != pid)


def test_without_the_rule_bits_would_differ(noisy):
    """What the others show would show nothing on a device without noise. Exactness given up ([engine] margin), all widths are
    used, and answers depend on the chunk."""
    got = []
    for chunk in (1, 4):
        d = run(noisy, pre=f"margin = 1\nprefill_chunk = {chunk}\n", spec="max_draft = 0")
        assert engine(d)["exact"] is False
        got.append(answers(d))
        noisy.stop()
    assert got[0] != got[1]
