"""What the demo model gives on this machine: the bundles, the ids of a text and their logits."""
import numpy as np
import pytest

import machine

N = 64  # positions


def pytest_collection_modifyitems(items):
    if not machine.BUILD.is_dir():
        for item in items:
            item.add_marker(pytest.mark.skip(reason="no arm64 build: ./dev test arm64"))


class Demo:
    def __init__(self, aned, gguf, folder):
        self.aned, self.gguf, self.folder = aned, gguf, folder
        self.ids_text = machine.here(aned, "tokenize", gguf, "--bos", stdin=machine.TEXT)
        self.tokens = folder / "tokens.npy"
        np.save(self.tokens, np.array(self.ids_text.split()[:N], dtype=np.int32))
        assert np.load(self.tokens).shape == (N,)
        self.truth = {}

    def bundle(self, quant):
        """Converted here."""
        out = self.folder / quant
        if not out.exists():
            machine.here(self.aned, "convert", self.gguf, "--out", out, "--name", "demo", *machine.form(quant))
        return out

    def logits(self, quant, backend="cpu"):
        """Computed here: bytes of the .npy file."""
        if (quant, backend) not in self.truth:
            out = self.folder / "here.npy"
            machine.here(self.aned, "logits", self.bundle(quant), self.tokens, out, "--backend", backend)
            self.truth[quant, backend] = out.read_bytes()
        return self.truth[quant, backend]

    def arm_logits(self, quant, *options, exe=None, **how):
        """Computed on arm64: the same; None where the program did not end well."""
        out = self.folder / "there.npy"
        out.unlink(missing_ok=True)
        r = machine.start(exe or machine.BUILD / "daemon/aned", "logits", self.bundle(quant), self.tokens, out, *options, **how)
        return out.read_bytes() if r.returncode == 0 else None


@pytest.fixture(scope="session")
def demo(aned, demo_gguf, tmp_path_factory):
    return Demo(aned, demo_gguf, tmp_path_factory.mktemp("arm64"))
