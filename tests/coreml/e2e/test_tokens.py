"""The device draws the interpreter's tokens in every form of a package, and the CPU's where the two best logits are apart."""
import numpy
import pytest

from device import PROMPTS, Place, draw, load, logits, make_bundle

END = 2  # <|im_end|>, which is not drawn: what is drawn shall be long
APART = 0.02  # two best logits further apart are in one order, however the sums were rounded
FORMS = ["ranged state", "functions state", "ranged host", "functions host"]
CASES = [(f, a) for f in FORMS for a in ("fp16", "fp32")]  # how the stand-in computes


@pytest.mark.parametrize("form, arith", [pytest.param(*c, marks=pytest.mark.smoke if c == CASES[0] else []) for c in CASES])
def test_tokens(aned, demo_gguf, tmp_path, form, arith):
    shape, kv = form.split()
    bundle = make_bundle(aned, demo_gguf, tmp_path / "made", "--shape", shape, "--kv", kv)
    p = Place(aned, tmp_path, bundle)
    p.device.set(f"arith = {arith}")
    close = apart = 0
    try:
        d = p.serve()
        load(d)
        drawn = [draw(d, prompt) for prompt in PROMPTS]
    finally:
        p.close()
    for ids, n in drawn:
        got = numpy.array(ids[n:])
        if arith == "fp16":
            same = logits(aned, bundle, ids, tmp_path, "--backend", "interpreter", "--round", "fp16")[n - 1:-1]
            same[:, END] = -numpy.inf
            assert (same.argmax(1) == got).all(), "not the interpreter's tokens"
        cpu = logits(aned, bundle, ids, tmp_path)[n - 1:-1]
        cpu[:, END] = -numpy.inf
        best = numpy.sort(cpu, 1)
        clear = best[:, -1] - best[:, -2] > APART
        assert (cpu.argmax(1) == got)[clear].all(), "not the CPU's tokens"
        apart += clear.sum()
        close += (~clear).sum()
    assert apart > 10 * close, "too few tokens were compared with the CPU's"
