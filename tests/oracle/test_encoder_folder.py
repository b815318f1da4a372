"""Tiny encoders as folders of the transformers and sentence-transformers libraries: the same bundles as their GGUFs, in each form that
the files have had."""
import json

import numpy as np
import pytest

from bert_tiny import Tiny
from oracle_tools import convert, manifest, run
from test_safetensors import keys, same_bundle

FORMS = {"bert": ("bert", "", ""), "bert with a head": ("bert", "", "bert."), "bert of old": ("bert", "old", "bert."),
         "nomic-bert": ("nomic-bert", "", ""), "nomic-bert with a head": ("nomic-bert", "", "nomic_bert."),
         "nomic-bert, first release": ("nomic-bert", "first", "")}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("quant", ["fp16", "int8"])
def test_folder_and_gguf_are_one_bundle(aned, tmp_path, name, quant):
    arch, form, prefix = FORMS[name]
    m = Tiny(arch)
    same_bundle(aned, m.folder(tmp_path / "hf", form, prefix, "cls"), m.write(tmp_path / "m.gguf", "cls"), tmp_path, quant)


@pytest.mark.parametrize("name", FORMS)
def test_keys(aned, tmp_path, name):
    """Numbers and tokens, as llama.cpp's converter has them."""
    arch, form, prefix = FORMS[name]
    m = Tiny(arch)
    got, found = keys(aned, m.folder(tmp_path / "hf", form, prefix))
    want, _ = keys(aned, m.write(tmp_path / "m.gguf"))
    assert found["kind"] == "safetensors" and got["general.architecture"] == arch
    numbers = {k for k in want if k.startswith(arch + ".")}
    assert {k: got.get(k) for k in numbers} == {k: want[k] for k in numbers}
    for k in ("tokens", "token_type", "model", "unknown_token_id", "seperator_token_id"):
        assert got[f"tokenizer.ggml.{k}"] == want[f"tokenizer.ggml.{k}"], k
    assert got["tokenizer.ggml.cls_token_id"] == want["tokenizer.ggml.bos_token_id"]


def test_one_file_is_the_folder(aned, tmp_path):
    m = Tiny("bert")
    m.folder(tmp_path / "hf", pooling="cls")
    same_bundle(aned, tmp_path / "hf", tmp_path / "hf" / "model.safetensors", tmp_path)


def test_pooling_is_read_below_the_folder(aned, tmp_path):
    m = Tiny("bert")
    for pooling in ("mean", "cls"):
        place = m.folder(tmp_path / pooling, pooling=pooling)
        convert(aned, place, tmp_path / ("b" + pooling))
        assert manifest(tmp_path / ("b" + pooling))["pooling"] == pooling
    (place / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_max_tokens": True}))
    said = run(aned, "convert", place, "--out", tmp_path / "c", code=65)
    assert "'max'" in said and "1_Pooling" in said


@pytest.mark.parametrize("most, want", [(100, 100), (300, 300), (1000, 300)])
def test_the_longest_text(aned, tmp_path, most, want):
    """Its default; --context gives another one."""
    m = Tiny("bert")
    place = m.folder(tmp_path / "hf")
    (place / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": most, "do_lower_case": False}))
    convert(aned, place, tmp_path / "b")
    convert(aned, place, tmp_path / "c", "fp16", "--context", 250)
    assert [manifest(tmp_path / x)["context"] for x in "bc"] == [want, 250]
    tokens = np.arange(250) % m.vocab
    np.save(tmp_path / "t.npy", tokens.astype(np.int32))
    run(aned, "logits", tmp_path / "c", tmp_path / "t.npy", tmp_path / "o.npy")
    got = np.load(tmp_path / "o.npy")
    assert np.abs(got - m.hidden(tokens)).max() < 2e-4
    assert "300" in run(aned, "convert", place, "--out", tmp_path / "d", "--context", 301, code=65)
