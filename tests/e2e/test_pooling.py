"""What embeddings are: hidden states behind the final norm, pooled, against decoder.py's pass over the same file; with each
pooling that a source may ask for, in every form of bundle, in steps of any size."""
import json
import pathlib
import shutil
import subprocess
import sys

import gguf
import numpy as np
import pytest

import anebook
import gguf_copy
from conftest import Daemon

sys.path.append(str(pathlib.Path(__file__).parents[1] / "oracle"))

from decoder import Decoder, cosine, spec_of_bundle  # noqa: E402
from oracle_tools import coreml_python  # noqa: E402
from sources import Source  # noqa: E402

IDS = [(7 * i * i + 3 * i + 11) % 500 for i in range(300)]
TEXTS = [IDS[:1], IDS[:2], IDS[:65], IDS[1:200], IDS]
KINDS = {"mean": 1, "cls": 2, "last": 3}
CLOSE = 0.99995  # fp16 weights, fp16 keys and values


def pooled(h, how):
    return {"mean": h.mean(axis=0), "cls": h[0], "last": h[-1]}[how]


def with_pooling(source, out, kind):
    def keys(found):
        arch = str(gguf.GGUFReader(str(source)).fields["general.architecture"].contents())
        return {**found, f"{arch}.pooling_type": (kind, gguf.GGUFValueType.UINT32, None)}
    return gguf_copy.copy(source, out, keys)


def ask(d, model, texts=None, **more):
    with d.http() as c:
        r = c.post("/embedding", json={"model": model, "content": texts or TEXTS, "embd_normalize": -1, **more})
    assert r.status_code == 200, r.text
    return np.array([x["embedding"][0] for x in r.json()])


@pytest.fixture(scope="module")
def home(aned, demo_gguf, tmp_path_factory):
    """The demo model with each pooling, and with none said, in fp16."""
    tmp = tmp_path_factory.mktemp("pooled")
    d = Daemon(aned, home=tmp / "home")
    try:
        for how, kind in KINDS.items():
            source = with_pooling(demo_gguf, tmp / f"{how}.gguf", kind)
            assert d.convert(source, how, context=512, quant="fp16")["state"] == "done"
        for name, more in {"unsaid": {}, "fixed": {"shape": "functions"}, "host": {"kv": "host"}}.items():
            assert d.convert(demo_gguf, name, context=512, quant="fp16", **more)["state"] == "done", name
    finally:
        assert d.close() == 0
    return tmp / "home"


@pytest.fixture(scope="module")
def serving(aned, home):
    d = Daemon(aned, home=home)
    yield d
    assert d.close() == 0


@pytest.fixture(scope="module")
def hidden(home, demo_gguf):
    """Each text's hidden states behind the final norm, by numpy in float64."""
    spec = spec_of_bundle(json.loads((home / "models" / "unsaid" / "bundle.json").read_text()))
    d = Decoder(spec, Source(demo_gguf, spec["layers"]))
    return [d.norm(spec["layers"][0], "output_norm", d.hidden(t)) for t in TEXTS]


@pytest.mark.parametrize("how", KINDS)
def test_pooled_as_the_source_says(serving, hidden, home, how):
    assert json.loads((home / "models" / how / "bundle.json").read_text())["pooling"] == how
    with serving.http() as c:
        assert "embedding" in c.post("/api/show", json={"model": how}).json()["capabilities"]
        assert "embedding" not in c.post("/api/show", json={"model": "unsaid"}).json()["capabilities"]
    got = ask(serving, how)
    want = np.array([pooled(h, how) for h in hidden])
    assert cosine(got, want).min() > CLOSE
    assert np.abs(np.linalg.norm(got, axis=1) / np.linalg.norm(want, axis=1) - 1).max() < 0.005, "the norm's factors are taken out"
    for other in set(KINDS) - {how}:
        assert cosine(got[2:], np.array([pooled(h, other) for h in hidden])[2:]).max() < 0.999


@pytest.mark.parametrize("name", ["unsaid", "fixed", "host"])
def test_the_last_one_where_nothing_is_said(serving, hidden, home, name):
    """In every form that a bundle's states and widths may have."""
    assert "pooling" not in json.loads((home / "models" / name / "bundle.json").read_text())
    assert cosine(ask(serving, name), np.array([h[-1] for h in hidden])).min() > CLOSE


@pytest.fixture
def other(aned, home, tmp_path):
    """other(conf): another daemon with the same bundles."""
    made = []

    def make(conf):
        shutil.copytree(home / "models", tmp_path / "home" / "models")
        (tmp_path / "home").chmod(0o700)
        (tmp_path / "home" / "aned.conf").write_text(conf)
        made.append(Daemon(aned, home=tmp_path / "home"))
        return made[0]
    yield make
    for d in made:
        assert d.close() == 0


@pytest.mark.parametrize("conf", ["[engine]\nthreads = 1\nprefill_chunk = 7\n",
                                  "[engine]\nthreads = 2\n[limits]\nstreams = 1\n[speculation]\nmax_draft = 0\n"])
def test_the_same_bits_in_steps_of_any_size(serving, other, conf):
    d = other(conf)
    for how in KINDS:
        assert np.array_equal(ask(d, how), ask(serving, how))


def test_by_the_interpreter(other, hidden):
    """The other way to run a bundle: a sequence at a time, columns and not rows."""
    d = other("[engine]\nbackend = interpreter\n")
    got = ask(d, "mean", TEXTS[:3])
    assert cosine(got, np.array([h.mean(axis=0) for h in hidden[:3]])).min() > CLOSE
    assert np.array_equal(got, ask(d, "mean", TEXTS[:3]))


def test_a_head_without_a_norm(serving, shared, tmp_path):
    """Imported packages may have any: what would be pooled is not known, and is refused by name."""
    package, d = shared / "data" / "coreml" / "anebook" / "phi_ranged_fp16.mlpackage", 128
    if not package.exists():
        pytest.skip(f"{package} is not there")
    shutil.copytree(package, tmp_path / "layers.mlpackage")
    subprocess.run([coreml_python(), pathlib.Path(__file__).parents[1] / "oracle" / "head_build.py", tmp_path, str(d), "2"], check=True)
    np.random.default_rng(1).standard_normal((d, d)).astype(np.float16).tofile(tmp_path / "embd.bin")
    m = anebook.manifest("Bare", "embd.bin", [(0, 2, "layers.mlmodelc")], [(0, 64, "head_0.mlmodelc"), (64, 128, "head_1.mlmodelc")],
                         vocab_size=d, n_layers=2, rms_norm_eps=1e-6, d_model=d, n_heads=4, n_kv_heads=2, d_head=32, rope_dim=24, d_ff=320,
                         max_seq_len=64, rope_freq_base=10000.0)
    meta = anebook.write(tmp_path / "x_runtime_meta.json", m)
    job = serving.convert(meta, "bare", kind="import", tokenizer=str(anebook.vocabulary(tmp_path / "v.gguf", d)))
    assert job["state"] == "done", job
    with serving.http() as c:
        r = c.post("/v1/embeddings", json={"model": "bare", "input": [5, 6, 7]})
        assert r.status_code == 400 and r.json()["error"]["param"] == "model" and "no final norm" in r.text, r.text
        assert c.post("/v1/completions", json={"model": "bare", "prompt": [5, 6, 7], "max_tokens": 2}).status_code == 200
