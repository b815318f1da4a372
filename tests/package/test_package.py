"""The Debian package: built in a bare Debian 13, used in another, by hand and under systemd, and removed. Wants root,
debootstrap and namespaces, some 2 GB below .build and about ten minutes on two cores; run it with `./dev test package`.
The formula: its syntax and its tarball."""
import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile

import pytest

from conftest import SLOW_S, TOP

WORK = TOP / ".build" / "package-test"
HERE = TOP / "tests" / "package"
SUITE = "trixie"
ROOT_ONLY = pytest.mark.skipif(os.getuid() != 0 or not shutil.which("debootstrap"), reason="wants root and debootstrap")


def sh(*cmd, code=0, timeout=1800, **kw):
    r = subprocess.run([str(c) for c in cmd], capture_output=True, text=True, timeout=timeout * SLOW_S,
                       stdin=subprocess.DEVNULL, **kw)
    assert r.returncode == code, (cmd, r.returncode, r.stdout[-3000:], r.stderr[-3000:])
    return r.stdout


def inside(root, *cmd, **kw):
    return sh(HERE / "ns.sh", root, *cmd, **kw)


def mirror():
    """Where this machine gets its Debian from."""
    out = sh("apt-get", "indextargets", "--format", "$(REPO_URI)|$(CREATED_BY)")
    found = [x.split("|")[0] for x in out.splitlines() if x.endswith("|Packages")]
    return found[0] if found else pytest.skip("apt has no source")


def tree(root):
    """Every file of a system but those that any package leaves: logs, caches, dpkg's and apt's own lists."""
    own = re.compile(r"/(proc|sys|dev|run|tmp|root|home|var/(log|cache|lib/(dpkg|apt|systemd/deb-)|tmp))(/|$)"
                     r"|/etc/(ld\.so\.cache|passwd-|group-|shadow-|gshadow-|resolv\.conf)$")
    out = set()
    for folder, folders, files in os.walk(root):
        rel = folder[len(str(root)):]
        folders[:] = [f for f in folders if not own.match(f"{rel}/{f}")]
        out |= {f"{rel}/{f}" for f in files if not own.match(f"{rel}/{f}")} | {f"{rel}/{f}/" for f in folders}
    return out


@pytest.fixture(scope="module")
def bare():
    """A bare Debian 13."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    root = WORK / "bare"
    sh("debootstrap", "--variant=minbase", SUITE, root, mirror())
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    try:
        sh(HERE / "ns.sh", root, "true")
    except AssertionError as e:
        pytest.skip(f"no namespaces here: {e}")
    yield root
    shutil.rmtree(WORK, ignore_errors=True)


def copy_of(bare, name):
    root = WORK / name
    sh("cp", "-a", bare, root)
    return root


@pytest.fixture(scope="module")
def deb(bare):
    """The package, made as README says, where nothing was installed before; lintian has no objection."""
    root = copy_of(bare, "build")
    (root / "src").mkdir()
    for name in ("meson.build", "daemon", "client", "proto", "conf", "tests", "launchd", "README.md", "LICENSE",
                 "CONTRIBUTING.md", "SECURITY.md", "dev"):
        sh("cp", "-a", TOP / name, root / "src" / name)
    out = inside(root, "sh", "-c", "cd /src && DEB_BUILD_OPTIONS=parallel=2 nice -n 10 ./dev package deb", timeout=3600)
    found = [x for x in out.split() if x.endswith(".deb") and "dbgsym" not in x]
    assert len(found) == 1, out
    kept = WORK / os.path.basename(found[0])
    shutil.copy(root / found[0].lstrip("/"), kept)
    sh("rm", "-rf", root)
    return kept


@pytest.fixture(scope="module")
def installed(bare, deb):
    """Another bare Debian with the package and a user, and what was there before."""
    root = copy_of(bare, "use")
    inside(root, "useradd", "--create-home", "--uid", "1000", "u")
    inside(root, "sh", "-c", "apt-get -qq update")
    before = tree(root)
    shutil.copy(deb, root / "root" / deb.name)
    inside(root, "apt-get", "-qq", "-y", "install", "--no-install-recommends", f"/root/{deb.name}")
    return root, before


@ROOT_ONLY
def test_what_is_in_it(installed):
    root, before = installed
    version = re.search(r"version: '(.*)'", (TOP / "meson.build").read_text()).group(1)
    assert inside(root, "aned", "--version").split() == ["aned", version]
    assert inside(root, "anectl", "--version").split() == ["anectl", version]
    ours = set(inside(root, "dpkg", "-L", "aned").split())
    for path in ("/usr/bin/aned", "/usr/bin/anectl", "/usr/lib/systemd/user/aned.service", "/usr/lib/systemd/user/aned.socket",
                 "/usr/share/bash-completion/completions/anectl.bash", "/usr/share/zsh/vendor-completions/_anectl",
                 "/usr/share/fish/vendor_completions.d/anectl.fish", "/usr/share/man/man1/aned.1.gz",
                 "/usr/share/man/man1/anectl.1.gz", "/usr/share/man/man5/aned.conf.5.gz",
                 "/usr/share/doc/aned/examples/aned.conf", "/usr/share/doc/aned/copyright"):
        assert path in ours, path
    assert (root / "usr/share/doc/aned/examples/aned.conf").read_text() == (TOP / "conf/aned.conf").read_text()
    inside(root, "bash", "-n", "/usr/share/bash-completion/completions/anectl.bash")
    unit = (root / "usr/lib/systemd/user/aned.service").read_text()
    assert "\nExecStart=/usr/bin/aned serve --service\n" in unit and "@" not in unit
    assert not (root / "etc/systemd/user/sockets.target.wants").exists()  # each user's own decision
    assert os.path.lexists(root / "usr/lib/debug") is ("/usr/lib/debug/" in before)


@ROOT_ONLY
def test_it_works_without_a_service_manager(installed):
    """Nothing but the package: no systemd, no Python."""
    root, _ = installed
    assert not (root / "usr/bin/systemctl").exists()
    shutil.copy(TOP / "conf/demo/aned-demo.gguf", root / "home/u/aned-demo.gguf")
    (root / "home/u/go.sh").write_text('''
set -eu
cd
export ANED_SOCKET=$HOME/run/s
anectl service status && exit 1 || echo "service: $?"
aned serve --home "$HOME/h" 2>log &
pid=$!
i=0; until anectl status >/dev/null 2>&1; do i=$((i + 1)); [ $i -lt 300 ]; sleep 0.1; done
anectl convert aned-demo.gguf --name demo --context 256
anectl run demo "What is aned?" --temperature 0
anectl doctor || echo "doctor: $?"
kill $pid; wait $pid
rm -r h run log
''')
    out = inside(root, "setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups", "env", "HOME=/home/u", "sh",
                 "/home/u/go.sh")
    assert "service: 69" in out and "doctor:" not in out.replace("doctor: 1", ""), out
    assert "aned is" in out, out  # the demo's answer


@ROOT_ONLY
def test_it_leaves_nothing_behind(installed):
    """Removed, purged, and what it needed with it: the system is as before, and the user's folder is the user's."""
    root, before = installed
    (root / "home/u/.local/share/aned/models").mkdir(parents=True, exist_ok=True)
    inside(root, "apt-get", "-qq", "-y", "remove", "aned")
    assert not (root / "usr/bin/aned").exists()
    inside(root, "apt-get", "-qq", "-y", "purge", "--autoremove", "aned")
    assert tree(root) - before == set()
    assert before - tree(root) == set()
    assert (root / "home/u/.local/share/aned/models").is_dir()
    assert "aned" not in inside(root, "dpkg-query", "-f", "${Package}\\n", "-W").split()


# --- under systemd ---


@pytest.fixture(scope="module")
def booted(bare, deb):
    """name -> (exit status, output) of the steps of inside.sh, in a Debian that was booted."""
    root = copy_of(bare, "boot")
    inside(root, "useradd", "--create-home", "--uid", "1000", "u")
    shutil.copy(deb, root / "root" / deb.name)
    inside(root, "sh", "-c", "apt-get -qq update && apt-get -qq -y install --no-install-recommends systemd-sysv libpam-systemd "
           f"dbus dbus-user-session /root/{deb.name}")
    shutil.copy(TOP / "conf/demo/aned-demo.gguf", root / "home/u/aned-demo.gguf")
    inside(root, "chown", "u:u", "/home/u/aned-demo.gguf")
    shutil.copy(HERE / "inside.sh", root / "inside.sh")
    try:
        r = subprocess.run([HERE / "ns.sh", root, "boot"], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                           timeout=600 * SLOW_S)
    except subprocess.TimeoutExpired as e:
        log = root / "inside.log"
        pytest.fail(f"it did not end: {e.stderr}\n{log.read_text() if log.exists() else ''}")
    log = (root / "inside.log").read_text() if (root / "inside.log").exists() else ""
    steps = {m[0]: (int(m[2]), m[1]) for m in re.findall(r"^== ([\w-]+)\n(.*?)^-- (\d+)$", log, re.M | re.S)}
    if "boot" not in steps:
        pytest.skip(f"systemd does not boot here: {(r.stderr or log)[-500:]}")
    return steps


def of(steps, name, code=0):
    assert name in steps, f"{name}: did not happen; there are {list(steps)}"
    assert steps[name][0] == code, (name, steps[name])
    return steps[name][1]


@ROOT_ONLY
def test_a_user_installs_and_uses_it(booted):
    assert of(booted, "units") == ""
    assert json.loads(of(booted, "before", 69))["enabled"] is False
    assert of(booted, "install").startswith("installed")
    s = json.loads(of(booted, "listening"))
    assert (s["packaged"], s["enabled"], s["listening"], s["running"]) == (True, True, True, False)
    of(booted, "convert")
    assert "aned is" in of(booted, "run")
    s = json.loads(of(booted, "running"))
    assert s["running"] is True and s["daemon"]["pid"] == s["pid"] and s["socket"] == "/run/user/1000/aned/aned.sock"
    assert of(booted, "again").startswith("was installed")
    logs = of(booted, "logs")
    assert "listening sockets=1 handed over" in logs and "serve ready" in logs


@ROOT_ONLY
def test_the_doctor_finds_it_well(booted):
    o = json.loads(booted["doctor"][1])
    machine = {"large-pages", "disk"} | ({"priority"} if os.nice(0) > 0 else set())
    bad = [f for f in o["findings"] if f["finding"] in ("warning", "error") and f["check"] not in machine]
    assert bad == []
    assert any(f["check"] == "files" and "8192" in f["text"] for f in o["findings"])  # LimitNOFILE


@ROOT_ONLY
def test_its_configuration_goes_wrong_and_right(booted):
    assert json.loads(of(booted, "reload"))["error"] is None
    assert "'queue' takes a whole number" in of(booted, "wrong-reload", 78)
    assert "'queue' takes a whole number" in of(booted, "wrong-restart", 78)  # it stays, and says so
    s = json.loads(of(booted, "trouble", 75))
    assert s["running"] is True and s["failed"] is False and s["daemon"]["status"] == "config"
    assert any(f["finding"] == "error" and "queue" in f["text"] for f in json.loads(of(booted, "trouble-doctor", 69))["findings"])
    assert json.loads(of(booted, "mended"))["error"] is None


@ROOT_ONLY
def test_it_is_started_again_after_a_crash(booted):
    of(booted, "crash")
    assert json.loads(of(booted, "crashed"))["running"] is True
    assert of(booted, "run-again") == of(booted, "run")


@ROOT_ONLY
def test_it_is_stopped_started_and_uninstalled(booted):
    of(booted, "stop")
    s = json.loads(of(booted, "stopped", 69))
    assert s["listening"] is s["running"] is False and s["enabled"] is True
    assert "started" in of(booted, "start")
    assert "NoNewPrivileges" in of(booted, "security")
    assert "/home/u/.local/share/aned" in of(booted, "uninstall")
    s = json.loads(of(booted, "gone", 69))  # the package's units are still there
    assert s["enabled"] is False and s["running"] is False and s["packaged"] is True
    assert "/home/u/.local/share/aned/models/demo" in of(booted, "home")


# --- Homebrew ---


@pytest.fixture(scope="module")
def brew():
    """The tarball and the formula."""
    out = sh(TOP / "dev", "package", "brew").split()
    assert [os.path.basename(x) for x in out][-1] == "aned.rb"
    return out


def test_the_formula_is_ruby(brew):
    if not shutil.which("ruby"):
        pytest.skip("ruby is not installed")
    assert "Syntax OK" in sh("ruby", "-c", brew[1])


def test_the_formula_names_the_tarball(brew):
    text = open(brew[1]).read()
    assert f'url "file://{brew[0]}"' in text and "@URL@" not in text
    assert hashlib.sha256(open(brew[0], "rb").read()).hexdigest() in text
    with tarfile.open(brew[0]) as t:
        names = {m.name.split("/", 1)[1] for m in t.getmembers() if m.isfile()}
    tracked = subprocess.run(["git", "-C", TOP, "ls-files"], capture_output=True, text=True).stdout.split("\n")
    if tracked != [""]:  # all that is needed to build and test it, and nothing that was built
        want = {x for x in tracked if x and not x.startswith(".") and (TOP / x).exists()}
        assert want <= names and not any("/.build/" in f"/{x}" or "__pycache__" in x for x in names)


def test_the_formula_needs_what_the_build_needs():
    """Each library of meson.build is a dependency: brew builds with nothing else."""
    text = (TOP / "launchd/homebrew/aned.rb").read_text()
    dev = (TOP / "dev").read_text()
    for name in re.search(r"^brew_build='(.*)'$", dev, re.M).group(1).split():
        assert f'depends_on "{name.replace("pkg-config", "pkgconf")}"' in text, name
    control = (TOP / "launchd/debian/control").read_text()
    wants = set(re.findall(r"^ ([a-z0-9-]+)", control.split("Build-Depends:")[1].split("Standards")[0], re.M))
    builds = re.search(r"^deb_build='(.*?)'", dev, re.M | re.S).group(1).split()
    for name in set(builds) - {"gcc", "libc6-dev", "ninja-build", "python3", "curl", "ca-certificates"}:
        assert name.replace("pkg-config", "pkgconf") in wants, name
