"""tests/lint/isa.py knows which instructions are not every arm64 machine's, and takes no others for such."""
import subprocess
import sys

import machine
from plant import TOP

MARCH = "armv8.6-a+sve2+crypto+sha3+sm4+fp16fml+dotprod+i8mm+bf16+crc+lse+rcpc+flagm"

BETTER = """
sdot v0.4s, v1.16b, v2.16b|udot v0.4s, v1.16b, v2.4b[1]|usdot v0.4s, v1.16b, v2.16b|smmla v0.4s, v1.16b, v2.16b
ummla v0.4s, v1.16b, v2.16b|bfdot v0.4s, v1.8h, v2.8h|bfmmla v0.4s, v1.8h, v2.8h|bfmlalb v0.4s, v1.8h, v2.8h|bfcvt h0, s1
fadd v0.8h, v1.8h, v2.8h|fmla v0.4h, v1.4h, v2.4h|fmul h0, h1, h2|scvtf v0.8h, v1.8h|fcvtzs v0.8h, v1.8h|fcvtns v0.4h, v1.4h
fmlal v0.4s, v1.4h, v2.4h|fmlsl2 v0.4s, v1.4h, v2.4h|sqrdmlah v0.4s, v1.4s, v2.4s|fcmla v0.4s, v1.4s, v2.4s, #90
fcadd v0.4s, v1.4s, v2.4s, #90|fjcvtzs w0, d1|frint32x s0, s1|ldadd w0, w1, [x2]|ldaddal x0, x1, [x2]|stset w0, [x1]
ldumaxalb w0, w1, [x2]|swpa x0, x1, [x2]|cas w0, w1, [x2]|caspal x0, x1, x2, x3, [x4]|ldapr w0, [x1]|ldapur w0, [x1]|stlur w0, [x1]
cfinv|rmif x0, #1, #2|crc32cx w0, w1, x2|aese v0.16b, v1.16b|sha256h q0, q1, v2.4s|sha512su0 v0.2d, v1.2d|sm4e v0.4s, v1.4s
eor3 v0.16b, v1.16b, v2.16b, v3.16b|rax1 v0.2d, v1.2d, v2.2d|pmull v0.1q, v1.1d, v2.1d|add z0.s, z1.s, z2.s|ptrue p0.b|retaa
"""
PLAIN = """
smlal v0.4s, v1.4h, v2.4h|sdiv w0, w1, w2|fmla v0.4s, v1.4s, v2.4s|fmadd s0, s1, s2, s3|fcvtl v0.4s, v1.4h|fcvtn v0.4h, v1.4s
fcvt s0, h1|fcvt h0, s1|ldr h0, [x1]|add v0.8h, v1.8h, v2.8h|scvtf v0.4s, v1.4s|scvtf s0, w1|ldaxr w0, [x1]
stlxr w0, w1, [x2]|ldar w0, [x1]|sqrdmulh v0.4s, v1.4s, v2.4s|pmull v0.8h, v1.8b, v2.8b|csel w0, w1, w2, eq
umov w0, v1.h[1]|tbl v0.16b, {v1.16b}, v2.16b|prfm pldl1keep, [x0]|paciasp|fmov s0, w1|frinta s0, s1|sxtl v0.8h, v1.8b|ret
"""


def instructions(text):
    return [i for line in text.split("\n") for i in line.split("|") if i]


def found(tmp_path, text):
    """The instructions of text that the lint objects to."""
    source, target = tmp_path / "x.s", tmp_path / "x.o"
    lines = instructions(text)
    source.write_text("".join(f"f{i}_:\n\t{line}\n" for i, line in enumerate(lines)))
    subprocess.run(["clang", "--target=aarch64-linux-gnu", f"-march={MARCH}", "-c", source, "-o", target], check=True)
    r = subprocess.run([sys.executable, TOP / "tests/lint/isa.py", "--objdump", "aarch64-linux-gnu-objdump", "--better", "--plain",
                        target], capture_output=True, text=True)
    named = {line.split(": ")[1] for line in r.stdout.splitlines() if ": f" in line}
    return {line for i, line in enumerate(lines) if f"f{i}_" in named}


def test_what_is_better(tmp_path):
    assert found(tmp_path, BETTER) == set(instructions(BETTER))


def test_what_every_machine_has(tmp_path):
    assert found(tmp_path, PLAIN) == set()


def test_the_sets_are_what_they_are(tmp_path):
    """The new sets are better, the others are not; the build's own test `isa` looks at everything."""
    engine = machine.BUILD / "daemon/engine"
    args = ["--better", engine / "libkernel_neon_dot.a", engine / "libkernel_neon_i8mm.a", "--plain", engine / "libkernel_neon.a"]
    command = [sys.executable, TOP / "tests/lint/isa.py", "--objdump", "aarch64-linux-gnu-objdump"]
    assert subprocess.run([*command, *args], capture_output=True).returncode == 0
    assert subprocess.run([*command, "--better", args[3], "--plain"], capture_output=True).returncode == 1
