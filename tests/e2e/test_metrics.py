"""/metrics as Prometheus reads it: the form of every line, and that conf/grafana.json asks for nothing that is not there."""
import json
import math
import re
import shutil
import subprocess
from pathlib import Path

import pytest

DASHBOARD = Path(__file__).parents[2] / "conf" / "grafana.json"
SAMPLE = re.compile(r'([a-z0-9_:]+)(?:\{([^}]*)\})? (\S+)')


@pytest.fixture(scope="module")
def text(daemon):
    with daemon.http() as c:
        assert c.post("/v1/completions", json={"model": "demo", "prompt": "aned is", "max_tokens": 4}).status_code == 200
        r = c.get("/metrics")
    assert r.headers["content-type"].startswith("text/plain; version=0.0.4")
    return r.text


def families(text):
    """name: (type, [(sample name, labels, value)]); HELP, TYPE, then the samples, each family once."""
    found, name = {}, None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name = line.split()[2]
            assert name not in found and len(line.split(maxsplit=3)) == 4, line
            found[name] = [None, []]
        elif line.startswith("# TYPE "):
            _, _, its, kind = line.split()
            assert its == name and kind in ("counter", "gauge", "histogram") and found[name][0] is None, line
            found[name][0] = kind
        else:
            m = SAMPLE.fullmatch(line)
            assert m, line
            bare = re.sub("_(bucket|sum|count)$", "", m[1]) if found[name][0] == "histogram" else m[1]
            assert bare == name, line
            found[name][1].append((m[1], m[2] or "", float(m[3])))
    return found


def test_form(text):
    for name, (kind, samples) in families(text).items():
        assert name.startswith("aned_") and samples, name
        assert name.endswith("_total") == (kind == "counter"), name
        assert all(math.isfinite(v) and v >= 0 for _, _, v in samples), name
        if kind == "histogram":
            buckets = [(float(re.search('le="([^"]+)"', labels)[1]), v) for n, labels, v in samples if n.endswith("_bucket")]
            count = next(v for n, _, v in samples if n.endswith("_count"))
            assert buckets == sorted(buckets) and buckets[-1] == (math.inf, count), name
            assert [v for _, v in buckets] == sorted(v for _, v in buckets), name


def test_what_is_measured(text):
    found = families(text)
    for name in ("time_to_first_token_seconds", "time_between_tokens_seconds", "step_seconds", "queue_wait_seconds", "loop_lag_seconds"):
        kind, samples = found[f"aned_{name}"]
        assert kind == "histogram" and next(v for n, _, v in samples if n.endswith("_count")) > 0, name


def promtool(*args, **kw):
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("no promtool here (Debian: prometheus)")
    r = subprocess.run([tool, "check", *args], capture_output=True, text=True, **kw)
    assert r.returncode == 0 and not r.stderr.strip(), r.stdout + r.stderr


def test_promtool(text):
    promtool("metrics", input=text)


def test_expressions(tmp_path):
    """What the dashboard asks is PromQL."""
    board = json.loads(DASHBOARD.read_text())
    exprs = [t["expr"].replace("$__rate_interval", "5m").replace("$instance", ".*") for p in board["panels"] for t in p["targets"]]
    rules = [{"record": f"aned:r{i}", "expr": e} for i, e in enumerate(exprs)]
    (tmp_path / "rules.yaml").write_text(json.dumps({"groups": [{"name": "aned", "rules": rules}]}))  # JSON is YAML
    promtool("rules", tmp_path / "rules.yaml")


def test_dashboard(text):
    there = {n for _, samples in families(text).values() for n, _, _ in samples}
    board = json.loads(DASHBOARD.read_text())
    asked = {n for p in board["panels"] for t in p["targets"] for n in re.findall(r"aned_[a-z0-9_]+", t["expr"])}
    asked |= {n for v in board["templating"]["list"] for n in re.findall(r"aned_[a-z0-9_]+", str(v["query"]))}
    assert len(asked) > 30 and not asked - there, asked - there
    places = {(p["gridPos"]["x"], p["gridPos"]["y"]) for p in board["panels"]}
    assert len(places) == len(board["panels"]) == len({p["id"] for p in board["panels"]})
