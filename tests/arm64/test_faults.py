"""Planted mistakes of the kinds that arm64 and Apple's machines invite: each must be found by a test of this suite. Its
neighbour without the mistake passes, so the build with planted files is not what fails."""
import signal
import subprocess
import sys

import pytest

import machine
import plant

pytestmark = pytest.mark.slow

SETS = "daemon/engine/cpu/kernels/sets/"


def kernel(folder, name, *flags):
    return plant.compile(folder, f"daemon/engine/libkernel_{name}.a", f"{SETS}kernel_{name}.c", *flags)


def products_agree(folder, *objects, **how):
    """The unit test `linear` with these objects."""
    r = machine.start(plant.link(folder, "tests/test_linear", *objects), **how)
    assert r.returncode == 0 or b"[  FAILED  ]" in r.stdout + r.stderr, r
    return r.returncode == 0


def instruction_is_missing(exe, *args, **how):
    return machine.start(exe, *args, **how).returncode in (-signal.SIGILL, 128 + signal.SIGILL)


def aned(folder, *objects):
    return plant.link(folder, "daemon/aned", *objects)


def test_an_object_without_a_mistake(demo, tmp_path):
    o = kernel(tmp_path, "neon_i8mm")
    assert products_agree(tmp_path, o)
    assert demo.arm_logits("int8", exe=aned(tmp_path, o)) == demo.logits("int8")


def test_the_high_bytes_are_shifted_by_less(demo, tmp_path):
    plant.edit(tmp_path, SETS + "kernel_neon_dot.c", ("vshlq_n_s32(high, BYTES_LOW)", "vshlq_n_s32(high, BYTES_LOW - 1)"))
    o = kernel(tmp_path, "neon_dot")
    assert not products_agree(tmp_path, o)
    assert demo.arm_logits("int8", exe=aned(tmp_path, o), cpu="neoverse-n1") not in (None, demo.logits("int8"))


def test_the_low_bytes_have_a_sign(tmp_path):
    plant.edit(tmp_path, SETS + "kernel_neon_bytes.h", ("vdupq_n_s8((1 << BYTES_LOW) - 1)", "vdupq_n_s8(-1)"))
    assert not products_agree(tmp_path, kernel(tmp_path, "neon_i8mm"))


def test_a_single_row_takes_sums_that_do_not_count(demo, tmp_path):
    plant.edit(tmp_path, SETS + "kernel_neon_i8mm.c", ("vget_high_s32(b)", "vget_low_s32(b)"))
    o = kernel(tmp_path, "neon_i8mm")
    assert not products_agree(tmp_path, o)
    assert demo.arm_logits("int8", "--chunk", 1, exe=aned(tmp_path, o)) not in (None, demo.logits("int8"))


def test_a_character_is_taken_for_signed(demo, tmp_path):
    plant.edit(tmp_path, SETS + "kernel_scalar.c", ("((const signed char *)row)[k]", "row[k]"))
    o = kernel(tmp_path, "scalar")
    assert not products_agree(tmp_path, o)
    assert demo.arm_logits("int8", "--isa", "scalar", exe=aned(tmp_path, o)) not in (None, demo.logits("int8"))
    o = kernel(tmp_path, "scalar", "-fsigned-char")  # which hides it
    assert demo.arm_logits("int8", "--isa", "scalar", exe=aned(tmp_path, o)) == demo.logits("int8")


def test_a_page_is_taken_for_4096_bytes(demo, tmp_path):
    plant.edit(tmp_path, "daemon/base/file.c", ("(size_t)sysconf(_SC_PAGESIZE)", "4096"))
    exe = aned(tmp_path, plant.compile(tmp_path, "proto/libbase.a", "daemon/base/file.c"))
    assert demo.arm_logits("fp16", exe=exe) == demo.logits("fp16")
    assert demo.arm_logits("fp16", exe=exe, preload="pages") is None


def test_a_row_is_read_beyond_its_end(tmp_path):
    plant.edit(tmp_path, "daemon/engine/cpu/kernels/products/linear_one.h", ("i + VB <= n; i", "i < n; i"))
    o = kernel(tmp_path, "neon_dot")
    assert products_agree(tmp_path, o, cpu="neoverse-n1")  # what is read is multiplied by zeros
    assert not products_agree(tmp_path, o, cpu="neoverse-n1", preload="fence")


@pytest.fixture
def logits_args(demo, tmp_path):
    return demo.bundle("int8"), demo.tokens, tmp_path / "x.npy"


def test_a_set_for_every_machine_has_a_better_instruction(demo, logits_args, tmp_path):
    plant.edit(tmp_path, SETS + "kernel_neon_dot.c", ("kernels_neon_dot", "kernels_neon"), ('"neon_dot"\n', '"neon"\n'))
    o = kernel(tmp_path, "neon_dot")
    r = subprocess.run([sys.executable, plant.TOP / "tests/lint/isa.py", "--objdump", "aarch64-linux-gnu-objdump", "--better",
                        "--plain", o], capture_output=True, text=True)
    assert r.returncode == 1 and "sdot" in r.stdout, r
    exe = aned(tmp_path, o)
    assert demo.arm_logits("int8", "--isa", "neon", exe=exe) == demo.logits("int8")  # nothing else sees it here
    assert instruction_is_missing(exe, "logits", *logits_args, "--isa", "neon", cpu="cortex-a57")


def test_an_instruction_is_found_where_it_is_not(demo, logits_args, tmp_path):
    plant.edit(tmp_path, "daemon/base/isa.c", ("all(caps, CAP_CRC32 | CAP_ATOMICS | CAP_ASIMDRDM | CAP_DCPOP)", "true"),
               ("#define CAP_ASIMDDP  (1u << 20)", "#define CAP_ASIMDDP (1u << 1)"))
    exe = aned(tmp_path, plant.compile(tmp_path, "proto/libbase.a", "daemon/base/isa.c"))
    assert demo.arm_logits("int8", exe=exe, cpu="neoverse-n1") == demo.logits("int8")
    assert instruction_is_missing(exe, "logits", *logits_args, cpu="cortex-a57")


def test_products_and_sums_are_fused(demo, tmp_path):
    o = plant.compile(tmp_path, "daemon/engine/libfloats_neon.a", SETS + "floats.c", "-ffp-contract=fast")
    assert demo.arm_logits("int8", exe=aned(tmp_path, o)) not in (None, demo.logits("int8"))
