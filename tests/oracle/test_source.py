"""`aned tensor` against the `gguf` package, and `aned inspect` on files that must be refused."""
import json
import subprocess
import sys

import gguf
import numpy as np
import pytest

import ggufs
from oracle_tools import TOP, convert, random_model, run

# Types, and where a block has its scales as halves (MXFP4 has an exponent, IQ1_M four nibbles).
QUANTS = {"F32": (), "F16": (), "BF16": (), "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,),
          "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,),
          "IQ1_S": (0,), "IQ1_M": (54,), "IQ2_XXS": (0,), "IQ2_XS": (0,), "IQ2_S": (0,), "IQ3_XXS": (0,), "IQ3_S": (0,),
          "IQ4_NL": (0,), "IQ4_XS": (0,), "TQ1_0": (52,), "TQ2_0": (64,), "MXFP4": ()}


def wanted(tensor):
    w = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    return np.ascontiguousarray(w.reshape([int(d) for d in tensor.shape[::-1]]), np.float32)


def check_tensors(aned, source, out, names=None):
    for t in gguf.GGUFReader(str(source)).tensors:
        if names is not None and t.name not in names:
            continue
        run(aned, "tensor", source, t.name, out)
        got, want = np.load(out), wanted(t)
        assert got.dtype == np.float32 and got.shape == want.shape, t.name
        assert got.tobytes() == want.tobytes(), f"{t.name} ({t.tensor_type.name})"


def blocks(kind, rows, cols):
    """Random bytes as the blocks of a tensor."""
    items, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    return np.random.default_rng(sum(kind.encode())).integers(0, 256, (rows, cols // items, size), dtype=np.uint8)


def write_blocks(path, kind, raw):
    w = gguf.GGUFWriter(str(path), "t")
    w.add_tensor("q", raw.reshape(raw.shape[0], -1), raw_dtype=gguf.GGMLQuantizationType[kind])
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


@pytest.mark.parametrize("kind", QUANTS)
def test_every_type(aned, tmp_path, kind):
    """Random bytes as blocks: every bit pattern of scales and values that is no NaN or infinity."""
    raw = blocks(kind, 33, 512)
    for at in QUANTS[kind]:
        raw[..., at + 1] &= 0xBB  # clears an exponent bit: finite halves
    if kind in ("F32", "F16", "BF16"):
        raw[..., -1] &= 0xBB
    write_blocks(tmp_path / "q.gguf", kind, raw)
    check_tensors(aned, tmp_path / "q.gguf", tmp_path / "q.npy")


@pytest.mark.parametrize("kind", QUANTS)
def test_every_bit_pattern(aned, tmp_path, kind):
    """The same with scales that are NaN or infinite. Which NaN it is, processors do not agree on."""
    write_blocks(tmp_path / "q.gguf", kind, blocks(kind, 65, 1024))
    run(aned, "tensor", tmp_path / "q.gguf", "q", tmp_path / "q.npy")
    tensor, = gguf.GGUFReader(str(tmp_path / "q.gguf")).tensors
    with np.errstate(all="ignore"):
        got, want = np.load(tmp_path / "q.npy"), wanted(tensor)
    odd = np.isnan(want)
    assert odd.any() or kind == "MXFP4", "the blocks must try what they are for"
    assert np.array_equal(np.isnan(got), odd)
    assert got[~odd].tobytes() == want[~odd].tobytes()


def small_blocks(kind, rows, cols):
    """Random blocks whose values are those of weights."""
    raw = blocks(kind, rows, cols)
    scale = np.frombuffer(np.float16(0.0005).tobytes(), np.uint8)
    if kind == "MXFP4":
        raw[..., 0] = 118
    elif kind == "IQ1_M":
        words = raw[..., 48:].copy().view(np.uint16) & 0x0FFF
        words |= (int(scale.view(np.uint16)[0]) >> np.arange(0, 16, 4) & 15).astype(np.uint16) << 12
        raw[..., 48:] = words.view(np.uint8)
    else:
        raw[..., QUANTS[kind][0]:QUANTS[kind][0] + 2] = scale
    return raw.reshape(rows, -1)


def as_type(source, out, kind, plain):
    """The model at `source` with random matrices of that type; plain: with their values, as the package has them."""
    qtype = gguf.GGMLQuantizationType[kind]

    def tensor(t):
        if len(t.shape) != 2:
            return (t.data,)
        raw = small_blocks(kind, int(t.shape[1]), int(t.shape[0]))
        return (gguf.quants.dequantize(raw, qtype),) if plain else (raw, None, qtype)

    return ggufs.copy(source, out, tensor)


@pytest.mark.parametrize("kind", [k for k in QUANTS if k[0] in "IMT"])
def test_a_model_of_a_type_converts_as_its_values_do(aned, tmp_path, kind):
    source = random_model(tmp_path, "tiny-qwen2", d=256, heads=8, ff=256)
    made = []
    for plain in (False, True):
        out = tmp_path / f"bundle-{plain}"
        convert(aned, as_type(source, tmp_path / "typed.gguf", kind, plain), out, "int8", "--context", 64)
        made.append({p.relative_to(out): p.read_bytes() for p in out.rglob("*") if p.is_file() and p.name != "bundle.json"})
    assert made[0] == made[1] and len(made[0]) > 3


def test_the_grids_are_those_of_the_package():
    subprocess.run([sys.executable, TOP / "daemon/source/mkgrids.py", "--check"], check=True)


def test_random_model(aned, tmp_path):
    check_tensors(aned, random_model(tmp_path, "tiny-qwen2", "q8_0"), tmp_path / "t.npy")


def test_gemma(aned, gemma, tmp_path):
    some = {"blk.0.attn_v.weight", "blk.0.attn_q.weight", "blk.1.ffn_down.weight", "blk.2.attn_output.weight"}
    check_tensors(aned, gemma, tmp_path / "t.npy", some)


def test_malformed_files(aned, shared):
    """Each is bad data with a stable name; none is a crash or a bug."""
    folder = shared / "data" / "gguf"
    files = [*sorted((folder / "malformed").iterdir()), *sorted((folder / "malformed-modelled").iterdir()),
             folder / "legacy" / "example.gguf", folder / "legacy" / "ggml-vocab-llama.v1.gguf"]
    assert len(files) >= 29
    for f in files:
        for args in ([], ["--json"]):
            text = run(aned, "inspect", f, *args, code=65)
            assert text.startswith("gguf."), f"{f.name}: {text}"


def test_convert_refuses_malformed_files(aned, shared, tmp_path):
    for f in sorted((shared / "data" / "gguf" / "malformed-modelled").iterdir()):
        text = run(aned, "convert", f, "--out", tmp_path / "bundle", code=65)
        assert text.startswith("gguf."), f"{f.name}: {text}"
        assert not (tmp_path / "bundle").exists()


def test_inspect_as_json(aned, tmp_path):
    source = random_model(tmp_path, "tiny-gemma")
    j = json.loads(run(aned, "inspect", source, "--json"))
    assert (j["kind"], j["architecture"], j["vocabulary"], j["sound"]) == ("gguf", "gemma3", 512, True)
    embd = next(t for t in j["tensors"] if t["name"] == "token_embd.weight")
    assert embd["shape"] == [512, 96] and embd["type"] == "F16"
    keys = {k["key"]: k for k in j["keys"]}
    assert keys["gemma3.attention.sliding_window"]["value"] == 32


def test_wrong_paths(aned, tmp_path):
    assert run(aned, "inspect", tmp_path / "absent", code=66).startswith("not_found: ")
    assert run(aned, "inspect", tmp_path, code=65).startswith("invalid: ")
    (tmp_path / "model.onnx").write_bytes(b"\x08\x08\x12\x00")
    assert run(aned, "inspect", tmp_path / "model.onnx", code=65).startswith("onnx.invalid: ")
    run(aned, "inspect", code=64)
    assert "usage" in run(aned, "inspect", "--help")
    source = sorted((TOP / "conf" / "demo").glob("*.gguf"))
    if source:
        assert run(aned, "tensor", source[0], "none", tmp_path / "t.npy", code=66).startswith("not_found: ")
        assert not (tmp_path / "t.npy").exists()
