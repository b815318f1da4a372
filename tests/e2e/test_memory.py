"""What the engine holds goes back to the system: `./dev bench memory` in short, and what pressure really gives back."""
import sys

import pytest

from conftest import TOP, metric, until

sys.path.insert(0, str(TOP / "tests" / "bench"))
import memory  # noqa: E402

CONTEXT, TOKENS = 1024, 1000
SLACK_MIB = 6  # spare slabs, and what the allocator keeps of small things


@pytest.fixture
def demo(demo_gguf, make_daemon, tmp_path):
    """demo(conf text) -> a daemon with the demo model as `m`."""
    def go(conf=None, **spec):
        if conf is None:  # what the machine lacks is no matter here
            (tmp_path / "calm").write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
            conf = f"[limits]\npressure_file = {tmp_path / 'calm'}\n"
        (tmp_path / "aned.conf").write_text(conf)
        d = make_daemon(args=["--config", str(tmp_path / "aned.conf")])
        assert d.convert(demo_gguf, "m", context=CONTEXT, **spec)["state"] == "done"
        return d
    return go


def test_sessions_one_after_the_other(demo):
    r = memory.run(demo(), "m", TOKENS, 4, 0.5, SLACK_MIB)
    assert r["wrong"] == [], r


@pytest.mark.parametrize("kv", ["state", "host"])
def test_many_sessions_leave(demo, kv):
    """Of twenty sessions nothing is left when all are deleted; each cost what is promised at most."""
    d = demo(**({"kv": "host"} if kv == "host" else {}))
    memory.delete(d, memory.make(d, "m", TOKENS, 0))  # what a first one touches
    e = memory.engine(d, "m")
    until(lambda: memory.engine(d, "m")["warm"] == 0)
    base, promised = memory.anon_mib(e["pid"]), e["state_bytes"] / 2**20
    made = [memory.make(d, "m", TOKENS, i + 1) for i in range(20)]
    full = memory.anon_mib(e["pid"])
    assert memory.engine(d, "m")["warm"] == 20
    assert base + 0.6 * 20 * promised <= full <= base + 20 * promised + SLACK_MIB
    for s in made:
        memory.delete(d, s)
    until(lambda: memory.engine(d, "m")["warm"] == 0)
    assert memory.settles(e["pid"], base + SLACK_MIB) <= base + SLACK_MIB


def test_pressure_gives_back_what_states_held(demo, tmp_path):
    psi = tmp_path / "psi"

    def press(seconds):
        new = tmp_path / "psi.new"
        new.write_text(f"some avg10=0.00 avg60=0.00 avg300=0.00 total={1_000_000 * seconds}\n")
        new.rename(psi)
    press(1)
    d = demo(f"[cache]\ndisk_mib = 0\n[limits]\npressure_file = {psi}\n")
    memory.delete(d, memory.make(d, "m", TOKENS, 0))
    pid = memory.engine(d, "m")["pid"]
    until(lambda: memory.engine(d, "m")["warm"] == 0)
    base = memory.anon_mib(pid)
    for i in range(20):
        memory.make(d, "m", TOKENS, i + 1)
    assert memory.anon_mib(pid) > base + 15
    press(2)
    until(lambda: metric(d, "states_shed_total") == 20)
    assert memory.settles(pid, base + SLACK_MIB) <= base + SLACK_MIB
    assert memory.engine(d, "m")["pid"] == pid, "the model stays"
