"""The demo model on arm64: the same bundles, ids and logits as on x86-64, to the last bit, on every set of kernels, for
every processor and page size."""
import pytest

import machine
from machine import BUILD, CALIBRATED, QUANTS, SETS, SIGNED, TEXT

ANED = BUILD / "daemon/aned"


def slow(*values):
    return [pytest.param(v, marks=pytest.mark.slow) for v in values]


ON = [(cpu, isa) for cpu, sets in SETS.items() for isa in sets]


def convert(demo, out, quant="int8", exe=ANED, **how):
    machine.done(machine.start(exe, "convert", demo.gguf, "--out", out, "--name", "demo", *machine.form(quant), **how))
    return machine.files(out)


@pytest.mark.parametrize("quant", [*QUANTS, *slow(CALIBRATED)])
@pytest.mark.parametrize("cpu", ["max", "cortex-a57"])
def test_the_same_bundle(demo, tmp_path, quant, cpu):
    there = convert(demo, tmp_path / "b", quant, cpu=cpu)
    assert there == machine.files(demo.bundle(quant))


def test_the_same_bundle_with_large_pages(demo, tmp_path):
    assert convert(demo, tmp_path / "b", preload="pages") == machine.files(demo.bundle("int8"))


@pytest.mark.parametrize("cpu", SETS)
def test_which_kernels_a_machine_takes(cpu):
    r = machine.start(ANED, "logits", "--isa", "nonsense", "a", "b", "c", cpu=cpu)
    assert r.returncode == 64 and f"--isa takes {', '.join(SETS[cpu])} on this machine" in r.stderr.decode(), r.stderr
    for isa in set(SETS["max"]) - set(SETS[cpu]):
        r = machine.start(ANED, "logits", "--isa", isa, "a", "b", "c", cpu=cpu)
        assert r.returncode == 69 and r.stderr.startswith(b"unavailable: "), r.stderr


@pytest.mark.parametrize("quant", QUANTS)
@pytest.mark.parametrize("cpu, isa", ON)
def test_the_same_logits(demo, quant, cpu, isa):
    assert demo.arm_logits(quant, "--isa", isa, cpu=cpu) == demo.logits(quant)


@pytest.mark.parametrize("isa", SETS["max"])
@pytest.mark.parametrize("chunk", [1, 7, *slow(2, 3, 13)])
@pytest.mark.parametrize("quant", ["int8", "int4"])
def test_the_same_logits_in_chunks(demo, quant, chunk, isa):
    there = demo.arm_logits(quant, "--isa", isa, "--chunk", chunk, "--threads", 2)
    assert there == demo.logits(quant)


@pytest.mark.parametrize("quant", QUANTS)
@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_logits_with_large_pages(demo, quant, threads):
    assert demo.arm_logits(quant, "--threads", threads, preload="pages") == demo.logits(quant)


@pytest.mark.parametrize("cpu", ["max", *slow("cortex-a57")])
def test_the_same_logits_of_the_interpreter(demo, cpu):
    there = demo.arm_logits("int8", "--backend", "interpreter", cpu=cpu)
    assert there == demo.logits("int8", "interpreter")


def test_the_same_ids(demo):
    assert machine.done(machine.start(ANED, "tokenize", demo.gguf, "--bos", stdin=TEXT)) == demo.ids_text
    assert machine.done(machine.start(ANED, "detokenize", demo.gguf, stdin=demo.ids_text)) == machine.here(
        demo.aned, "detokenize", demo.gguf, stdin=demo.ids_text)


def test_the_other_program_starts():
    assert b"anectl" in machine.done(machine.start(BUILD / "client/anectl", "--version", cpu="cortex-a57"))


@pytest.mark.slow
class TestSignedCharacters:
    """arm64 Linux has an unsigned char, macOS a signed one: the build with -fsigned-char."""

    aned = SIGNED / "daemon/aned"

    @pytest.mark.parametrize("quant", QUANTS)
    def test_the_same_bundle_and_logits(self, demo, tmp_path, quant):
        assert convert(demo, tmp_path / "b", quant, exe=self.aned) == machine.files(demo.bundle(quant))
        for isa in SETS["max"]:
            assert demo.arm_logits(quant, "--isa", isa, exe=self.aned) == demo.logits(quant), isa

    def test_the_same_ids(self, demo):
        assert machine.done(machine.start(self.aned, "tokenize", demo.gguf, "--bos", stdin=TEXT)) == demo.ids_text

    def test_the_products(self):
        assert b"# set: neon_i8mm" in machine.done(machine.start(SIGNED / "tests/test_linear"))
