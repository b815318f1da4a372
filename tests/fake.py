"""Homes for a daemon with the fake engine (tests/unit/serve/fake_engine.c, fake_bundle.c)."""
import subprocess

from conftest import BIN

TOOLS = BIN / "tests" / "unit" / "serve"


def make_home(path, models=("fake",), fake="", conf="", context=512):
    """A home with fake bundles; `fake` are lines for the engine, `conf` sections of aned.conf."""
    (path / "models").mkdir(parents=True, mode=0o700)
    path.chmod(0o700)
    for name in models:
        bundle = path / "models" / name
        subprocess.run([TOOLS / "fake_bundle", bundle, str(context)], check=True)
        (bundle / "fake").write_text("lo 100\nhi 126\n" + fake)  # bytes a to z
    (path / "aned.conf").write_text(f"[engine]\nprogram = {TOOLS / 'fake_engine'}\n" + conf)
    return path
