"""anectl service, with service managers of ours in PATH: what is written, what the managers are told, in which order, what is
made of their answers; and that what was installed serves, when a manager does what the unit says."""
import json
import os
import pathlib
import plistlib
import shutil
import signal
import stat
import subprocess
import tempfile
import threading

import pytest

from activation import Manager, listen
from conftest import SLOW_S, TOP, Daemon
from fake import make_home
from managers import Managers, plist_of, unit_of

BOTH = pytest.mark.parametrize("kind", ["launchd", "systemd"])
UID = os.getuid()
LABEL = f"gui/{UID}/dev.aned.daemon"


class Box:
    """A user's folder, managers, and anectl told to use one of them."""

    def __init__(self, anectl, path, kind):
        self.anectl, self.kind = anectl, kind
        self.user = path / "a & b"  # what a plist has to escape
        self.user.mkdir()
        self.m = Managers(path / "bin", self.user)
        self.env = self.m.env()
        if kind == "systemd":
            self.env["XDG_RUNTIME_DIR"] = str(path / "run")
            (path / "run").mkdir(mode=0o700)
        self.units = self.user / ".config/systemd/user"
        self.plist = self.user / "Library/LaunchAgents/dev.aned.daemon.plist"
        self.home = self.user / ("Library/Application Support/dev.aned.daemon" if kind == "launchd" else ".local/share/aned")

    def __call__(self, *args, code=0, env=None):
        r = subprocess.run([self.anectl, "service", *map(str, args), "--manager", self.kind], stdin=subprocess.DEVNULL,
                           capture_output=True, text=True, timeout=200 * SLOW_S, env={**self.env, **(env or {})})
        assert r.returncode == code, (args, r.returncode, r.stdout, r.stderr)
        assert args[0] == "status" or (code == 0) == (r.stderr == ""), r
        return r

    def state(self, code=0):
        return json.loads(self("status", "--json", code=code).stdout)

    def installed(self):
        return self.plist.exists() if self.kind == "launchd" else (self.units / "aned.service").exists()


@pytest.fixture
def tmp_path():
    """A short one: pytest's is too long for a socket in a Mac's home."""
    with tempfile.TemporaryDirectory(prefix="an-", dir="/tmp") as d:
        yield pathlib.Path(d)


@pytest.fixture
def box(anectl, tmp_path, kind):
    return Box(anectl, tmp_path, kind)


@pytest.fixture
def launchd(anectl, tmp_path):
    return Box(anectl, tmp_path, "launchd")


@pytest.fixture
def systemd(anectl, tmp_path):
    return Box(anectl, tmp_path, "systemd")


# --- the files ---


def test_the_template_of_the_agent():
    """Its keys and values; the launchd suite of macOS knows which keys there are."""
    p = plistlib.loads((TOP / "launchd" / "dev.aned.daemon.plist").read_bytes())
    assert p["Label"] == "@LABEL@"
    assert p["ProgramArguments"] == ["@PROGRAM@", "serve", "--service", "--home", "@HOME@", "--socket", "@SOCKET@"]
    assert p["Sockets"] == {"aned": {"SockPathName": "@SOCKET@", "SockPathMode": 0o600}}
    assert p["KeepAlive"] == {"Crashed": True} and "RunAtLoad" not in p and "ThrottleInterval" not in p
    assert p["ProcessType"] == "Interactive" and p["ExitTimeOut"] == 30 and p["Umask"] == 0o077
    assert p["SoftResourceLimits"] == {"NumberOfFiles": 8192, "Core": 0}
    assert p["StandardErrorPath"] == "@LOG@" and p["LimitLoadToSessionType"] == ["Aqua", "Background"]


def test_the_exit_time_is_longer_than_the_drain():
    conf = (TOP / "conf" / "aned.conf").read_text()
    drain = int(conf.split("drain_ms = ")[1].split()[0]) / 1000
    plist = plistlib.loads((TOP / "launchd" / "dev.aned.daemon.plist").read_bytes())
    unit = (TOP / "launchd" / "aned.service").read_text()
    stop = int(unit.split("TimeoutStopSec=")[1].split()[0])
    assert plist["ExitTimeOut"] > drain + 15 and stop > drain + 15  # states are saved for 15 s at most: warm.h


def test_what_is_written_for_launchd(launchd, aned):
    launchd("install", "--no-wait")
    p, argv, sock = plist_of(launchd.user)
    home = str(launchd.home)
    assert p["Label"] == "dev.aned.daemon" and sock == home + "/run/aned.sock"
    assert argv == [aned, "serve", "--service", "--home", home, "--socket", sock]
    assert p["StandardErrorPath"] == str(launchd.user / "Library/Logs/dev.aned.daemon.log")
    assert stat.S_IMODE(launchd.plist.stat().st_mode) == 0o644
    assert stat.S_IMODE(os.stat(os.path.dirname(sock)).st_mode) == 0o700 and stat.S_IMODE(os.stat(home).st_mode) == 0o700
    assert os.path.isdir(os.path.dirname(p["StandardErrorPath"]))  # launchd makes neither


def test_what_is_written_for_systemd(systemd, aned):
    systemd("install", "--no-wait")
    service, argv, sock = unit_of(systemd.units)
    assert argv == [aned, "serve", "--service"] and sock == "%t/aned/aned.sock"
    assert service["Type"] == "notify" and service["KillMode"] == "mixed"
    names = sorted(x.name for x in systemd.units.iterdir())
    assert names == ["aned.service", "aned.socket"]


def test_systemd_does_not_try_for_ever(systemd):
    """Five starts that fail after seconds are not five in 10 s, which is the default."""
    systemd("install", "--no-wait")
    head = (systemd.units / "aned.service").read_text().split("[Service]")[0]
    limits = dict(x.split("=") for x in head.splitlines() if x.startswith("StartLimit"))
    assert limits == {"StartLimitIntervalSec": "600", "StartLimitBurst": "5"}
    readme = (TOP / "launchd/README.md").read_text()
    assert "systemd tries five times within ten minutes" in readme


ODD = 'a b & <c> "d" 100%h $e \\f é'
PLAIN = "a b 100%h é"  # systemd starts no program with quotes in its path


@BOTH
def test_paths_of_any_kind(box, aned, tmp_path):
    """What the unit says after unescaping is what was asked for."""
    odd = tmp_path / ODD
    odd.mkdir(mode=0o700)
    program = (odd if box.kind == "launchd" else tmp_path / PLAIN) / "aned"
    program.parent.mkdir(exist_ok=True)
    program.symlink_to(aned)
    home, sock = odd / "home", odd / "s"
    box("install", "--no-wait", "--program", program, "--home", home, "--socket", sock)
    argv, where = plist_of(box.user)[1:] if box.kind == "launchd" else unit_of(box.units)[1:]
    assert argv == [str(program), "serve", "--service", "--home", str(home), "--socket", str(sock)]
    assert where == str(sock)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_units(systemd, aned, tmp_path):
    odd, program = tmp_path / ODD, tmp_path / PLAIN / "aned"
    odd.mkdir(mode=0o700)
    program.parent.mkdir()
    program.symlink_to(aned)
    for more in ([], ["--program", program, "--home", odd / "h", "--socket", odd / "s"]):
        systemd("install", "--no-wait", *more)
        r = subprocess.run(["systemd-analyze", "--user", "--man=no", "verify", systemd.units / "aned.service",
                            systemd.units / "aned.socket"], capture_output=True, text=True, timeout=120 * SLOW_S,
                           env={**systemd.env, "XDG_RUNTIME_DIR": str(tmp_path / "run")})
        mine = [x for x in r.stderr.splitlines() if "aned" in x]
        assert mine == [], r.stderr


def arguments_of(box):
    return (plist_of(box.user) if box.kind == "launchd" else unit_of(box.units))[1]


@BOTH
def test_what_was_installed_stays(box, tmp_path):
    """Without options of its own each verb is about the home and the socket that the unit has."""
    home, sock = tmp_path / ODD / "home", tmp_path / ODD / "s"
    (tmp_path / ODD).mkdir(mode=0o700)
    box("install", "--no-wait", "--home", home, "--socket", sock)
    was = arguments_of(box)
    assert box("install", "--no-wait").stdout.startswith("was installed") and arguments_of(box) == was
    for args in ([], ["--home", tmp_path / "other"]):  # which is not the installed one
        s = json.loads(box("status", "--json", *args).stdout)
        assert s["home"] == str(home) and s["socket"] == str(sock)
    box("install", "--no-wait", "--home", tmp_path / "h")
    assert arguments_of(box)[3:] == ["--home", str(tmp_path / "h"), "--socket", str(sock)]
    box("install", "--no-wait", env={"ANED_HOME": str(tmp_path / "e")})
    assert arguments_of(box)[4] == str(tmp_path / "e")
    assert f"stay in {tmp_path / 'e'}\n" in box("uninstall", "--home", tmp_path / "other").stdout
    assert json.loads(box("status", "--json", code=66).stdout)["home"] == str(box.home)


def test_a_socket_moves_with_its_home(launchd, tmp_path):
    launchd("install", "--no-wait", "--home", tmp_path / "1")
    launchd("install", "--no-wait", "--home", tmp_path / "2")
    assert plist_of(launchd.user)[2] == str(tmp_path / "2/run/aned.sock")
    assert launchd.state()["socket"] == str(tmp_path / "2/run/aned.sock")


@pytest.mark.parametrize("words, home", [("--home /x/y", "/x/y"), ("--home '/x y' --socket /z/s", "/x y"), ("--home %h/x", None),
                                         ('--home "/x', None), ("--home", None)])
def test_a_unit_by_hand(systemd, words, home):
    """What only systemd can tell is not told."""
    systemd("install", "--no-wait")
    unit = systemd.units / "aned.service"
    unit.write_text(unit.read_text().replace("serve --service", f"serve --service {words}"))
    assert systemd.state()["home"] == (home or str(systemd.home))


def test_a_build_folder_far_away(systemd, aned, tmp_path):
    """A link to a path that is longer than any that is kept."""
    build, far = tmp_path / "b", tmp_path.joinpath(*["x" * 200] * 7)
    (build / "client").mkdir(parents=True)
    far.mkdir(parents=True)
    (build / "daemon").symlink_to(far)
    shutil.copy(aned, far / "aned")
    shutil.copy(systemd.anectl, build / "client/anectl")
    systemd.anectl = str(build / "client/anectl")
    systemd("install", "--no-wait")
    assert arguments_of(systemd)[0] == f"{build}/client/../daemon/aned"


@BOTH
def test_relative_paths_become_absolute(box, tmp_path):
    r = subprocess.run([box.anectl, "service", "install", "--no-wait", "--manager", box.kind, "--home", "h", "--socket", "s"],
                       cwd=tmp_path, env=box.env, capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    argv = (plist_of(box.user) if box.kind == "launchd" else unit_of(box.units))[1]
    assert argv[3:] == ["--home", str(tmp_path / "h"), "--socket", str(tmp_path / "s")]


@BOTH
def test_what_no_unit_can_hold(box, tmp_path):
    r = box("install", "--no-wait", "--home", str(tmp_path / "a\nb"), code=65)
    assert "control characters" in r.stderr
    assert not box.installed() or box.kind == "systemd" and not (box.units / "aned.socket").exists()
    if box.kind == "systemd":
        (tmp_path / "a'b").mkdir()
        shutil.copy("/bin/true", tmp_path / "a'b")
        r = box("install", "--no-wait", "--program", tmp_path / "a'b/true", code=65)
        assert "quotes" in r.stderr and not box.installed()
    r = box("install", "--no-wait", "--program", tmp_path / "none", code=66)
    assert "is no program" in r.stderr
    r = box("install", "--no-wait", "--socket", "/" + "x" * 200, code=64)
    assert "socket path" in r.stderr


@BOTH
def test_no_socket_in_a_folder_for_many(box, tmp_path):
    """It could not be kept from others there, and no manager asks."""
    (tmp_path / "all").mkdir()
    (tmp_path / "all").chmod(0o1777)
    r = box("install", "--no-wait", "--socket", tmp_path / "all/s", code=78)
    assert f"{tmp_path}/all is shared with other users; choose a socket in a folder of yours" in r.stderr
    assert not box.installed() and box.m.calls() == []
    box("install", "--no-wait", "--socket", tmp_path / "all/mine/s")  # that folder is made, and is his


def test_the_environment_chooses_too(systemd, tmp_path):
    """A service has none of the shell's variables: what they say stands in the unit."""
    systemd.m.set(unit_dirs=[str(tmp_path / "conf/systemd/user")])
    systemd("install", "--no-wait", env={"ANED_HOME": str(tmp_path / "h"), "ANED_SOCKET": str(tmp_path / "s"),
                                         "XDG_CONFIG_HOME": str(tmp_path / "conf")})
    _, argv, sock = unit_of(tmp_path / "conf/systemd/user")
    assert argv[3:] == ["--home", str(tmp_path / "h"), "--socket", str(tmp_path / "s")] and sock == str(tmp_path / "s")


@pytest.mark.parametrize("system", ["macOS", "Linux"])
def test_installing_by_hand(system, tmp_path):
    """install.md's lines, as they stand there, for a user whose home is empty."""
    (tmp_path / "u").mkdir()
    (tmp_path / "bin").mkdir()
    for name in ("launchctl", "systemctl"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\nexit 0\n")
        (tmp_path / "bin" / name).chmod(0o755)
    text = (TOP / "launchd/install.md").read_text().split("## By hand")[1].split(f"    # {system}")[1]
    lines = text.split("\n\n")[0].splitlines()[1:]
    r = subprocess.run(["sh", "-e"], input="\n".join(lines), cwd=TOP, capture_output=True, text=True,
                       env={"HOME": str(tmp_path / "u"), "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"})
    assert r.returncode == 0, r.stderr
    if system == "macOS":
        _, argv, sock = plist_of(tmp_path / "u")
        assert argv[-1] == sock and os.path.isdir(os.path.dirname(sock)) and (tmp_path / "u/Library/Logs").is_dir()
    else:
        assert unit_of(tmp_path / "u/.config/systemd/user")[1][1:] == ["serve", "--service"]


# --- launchd: what it is told ---


def test_install_and_uninstall_under_launchd(launchd):
    r = launchd("install", "--no-wait")
    assert r.stdout.startswith("installed")
    assert launchd.m.calls() == [f"launchctl bootout {LABEL}", f"launchctl enable {LABEL}",
                                 f"launchctl bootstrap gui/{UID} {launchd.plist}"]
    s = launchd.state()
    assert (s["installed"], s["enabled"], s["listening"], s["running"], s["daemon"]) == (True, True, True, False, None)
    before = launchd.plist.stat()
    r = launchd("install", "--no-wait")  # nothing to do: nothing is interrupted
    assert r.stdout.startswith("was installed") and launchd.m.calls() == []
    assert launchd.plist.stat().st_ino == before.st_ino
    launchd.plist.write_text("old")
    launchd("install", "--no-wait")
    assert [x.split()[1] for x in launchd.m.calls()] == ["bootout", "enable", "bootstrap"]
    assert launchd.plist.read_text() != "old"
    r = launchd("uninstall")
    assert str(launchd.home) in r.stdout and not launchd.plist.exists() and launchd.home.is_dir()
    assert launchd.m.calls() == [f"launchctl bootout {LABEL}"]
    launchd("uninstall")  # again: fine
    assert launchd.state(code=66)["installed"] is False


def test_a_job_that_takes_its_time_to_leave(launchd):
    """bootout says 36 and the job is there for some more looks: bootstrap comes after it has gone."""
    launchd("install", "--no-wait")
    launchd.m.set(slow=4)
    launchd.plist.write_text("old")
    launchd("install", "--no-wait")
    assert launchd.m.get("loaded") == f"gui/{UID}" and launchd.m.get("leaving") == 0


@pytest.mark.parametrize("codes, tries", [([5, 5, 0], 3), ([36, 0], 2), ([17], 1), ([37], 1), ([119, 0], 2)])
def test_bootstrap_may_need_patience(launchd, codes, tries):
    launchd.m.set(codes={"bootstrap": codes})
    launchd("install", "--no-wait")
    assert sum("bootstrap" in x for x in launchd.m.calls()) == tries


def test_bootstrap_that_fails(launchd):
    launchd.m.set(codes={"bootstrap": [125]})
    r = launchd("install", "--no-wait", code=69)
    assert "ended with 125: bootstrap: scripted 125" in r.stderr and "aned serve" not in r.stderr
    assert sum("bootstrap" in x for x in launchd.m.calls()) == 1
    launchd.m.set(codes={"bootstrap": [5] * 40})
    launchd("install", "--no-wait", code=69)  # for ever is too long


def test_over_ssh_the_domain_is_the_users(launchd):
    launchd.m.set(gui=False)
    r = launchd("install", "--no-wait")
    assert f"launchctl bootstrap user/{UID} {launchd.plist}" in launchd.m.calls()
    assert "nobody is logged in at the screen" in r.stdout
    launchd.m.set(gui=True)  # now somebody is: it is found where it was put
    launchd("stop")
    assert launchd.m.calls() == [f"launchctl bootout user/{UID}/dev.aned.daemon"]


def test_the_verbs_under_launchd(launchd):
    r = launchd("start", "--no-wait", code=66)
    assert "anectl service install" in r.stderr
    launchd("restart", "--no-wait", code=66)
    launchd("install", "--no-wait")
    launchd.m.calls()
    launchd("start", "--no-wait")
    assert launchd.m.calls() == [f"launchctl kickstart {LABEL}"]
    s = launchd.state(code=75)  # it runs, and does not answer: this one is no process at all
    assert s["running"] is True and s["pid"] == 4711 and s["state"] == "running" and s["daemon"]["status"] == "unavailable"
    launchd.m.set(next_pid=4712)
    launchd("restart", "--no-wait")  # so that states are saved: not `kickstart -k`
    assert launchd.m.calls() == [f"launchctl kill SIGTERM {LABEL}", f"launchctl kickstart {LABEL}"]
    assert launchd.state(code=75)["pid"] == 4712
    launchd("stop")
    assert launchd.m.calls() == [f"launchctl bootout {LABEL}"]
    s = launchd.state(code=69)
    assert s["installed"] is True and s["listening"] is s["running"] is False and s["state"] == "not loaded"
    launchd("start", "--no-wait")
    assert [x.split()[1] for x in launchd.m.calls()] == ["enable", "bootstrap", "kickstart"]
    launchd("stop")
    launchd("stop")  # again: fine


def test_what_launchd_says_of_a_failure(launchd):
    launchd("install", "--no-wait")
    launchd.m.set(last_exit=78)
    s = launchd.state(code=69)
    assert s["failed"] is True and s["last_exit"] == 78
    assert "exit status 78" in launchd("status", code=69).stdout
    launchd.m.set(last_exit=0, disabled=True)
    assert launchd.state()["enabled"] is False


def test_a_manager_that_fails_in_between(launchd):
    launchd.m.set(codes={"bootout": [150]})
    r = launchd("install", "--no-wait", code=69)
    assert "bootout" in r.stderr and "150" in r.stderr
    assert not any("bootstrap" in x for x in launchd.m.calls())


# --- systemd: what it is told ---


def test_install_and_uninstall_under_systemd(systemd):
    systemd("install", "--no-wait")
    assert systemd.m.calls() == ["systemctl stop aned.service aned.socket", "systemctl daemon-reload",
                                 "systemctl reset-failed aned.service aned.socket", "systemctl enable aned.socket",
                                 "systemctl start aned.socket", f"loginctl show-user {UID} --property=Linger"]
    s = systemd.state()
    assert (s["installed"], s["enabled"], s["listening"], s["running"], s["packaged"]) == (True, True, True, False, False)
    assert s["unit"] == str(systemd.units / "aned.service")
    assert systemd("install", "--no-wait").stdout.startswith("was installed")
    assert not any(" stop " in x for x in systemd.m.calls())  # what runs goes on
    r = systemd("uninstall")
    assert systemd.m.calls() == ["systemctl stop aned.service aned.socket", "systemctl disable aned.service aned.socket",
                                 "systemctl reset-failed aned.service aned.socket", "systemctl daemon-reload"]
    assert str(systemd.home) in r.stdout and list(systemd.units.iterdir()) == []
    systemd("uninstall")
    assert systemd.state(code=66)["installed"] is False


def test_the_verbs_under_systemd(systemd):
    r = systemd("start", "--no-wait", code=66)
    assert "anectl service install" in r.stderr
    systemd("install", "--no-wait")
    systemd.m.calls()
    systemd("start", "--no-wait")
    assert systemd.m.calls() == ["systemctl reset-failed aned.service aned.socket", "systemctl start aned.socket aned.service"]
    systemd.m.set(pid=4711)
    s = systemd.state(code=75)
    assert s["running"] is True and s["pid"] == 4711 and s["state"] == "active (running)"
    systemd("restart", "--no-wait")
    assert systemd.m.calls()[-1] == "systemctl restart aned.service"
    systemd("stop")
    assert systemd.m.calls() == ["systemctl stop aned.socket aned.service"]
    assert systemd.state(code=69)["listening"] is False
    systemd.m.set(active={"aned.service": "failed", "aned.socket": "failed"}, result="start-limit-hit", last_exit=70)
    s = systemd.state(code=69)
    assert s["failed"] is True and s["last_exit"] == 70 and "start-limit-hit" in s["state"]
    systemd("start", "--no-wait")  # the count of failures is forgotten first
    assert systemd.state(code=75 if systemd.m.get("pid") else 0)["failed"] is False


def test_a_manager_that_has_just_started(systemd):
    """`systemctl show` may fail once, and say nothing the second time."""
    systemd("install", "--no-wait")
    systemd.m.set(codes={"show": [1]})
    assert systemd.state()["installed"] is True


def test_the_units_of_a_package_are_used(systemd, aned, tmp_path):
    prefix = tmp_path / "usr"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin/aned").symlink_to(aned)
    packaged = prefix / "lib/systemd/user"
    packaged.mkdir(parents=True)
    for name in ("aned.service", "aned.socket"):
        (packaged / name).write_text("[Unit]\n")
    systemd.m.set(unit_dirs=[str(systemd.units), str(packaged)])
    program = ["--program", prefix / "bin/aned"]
    systemd("install", "--no-wait", *program, "--home", tmp_path / "h")  # a home of one's own: files of one's own
    assert systemd.installed() and systemd.state()["packaged"] is False
    assert systemd("install", "--no-wait", *program).stdout.startswith("was installed")  # it keeps that home
    assert systemd("install", "--no-wait", *program, "--home", systemd.home).stdout.startswith("installed")
    assert not systemd.installed()
    assert systemd("install", "--no-wait", *program).stdout.startswith("was installed")
    systemd("stop")  # to have it again is a change too
    assert systemd("install", "--no-wait", *program).stdout.startswith("installed")
    s = systemd.state()
    assert s["packaged"] is True and s["unit"] == str(packaged / "aned.service") and s["installed"] is True
    systemd("uninstall")
    assert (packaged / "aned.service").exists() and systemd.m.get("enabled") == []


def test_units_where_systemd_does_not_look(systemd, aned, tmp_path):
    """Of `meson setup --prefix`: they are not found, so the user has his own."""
    packaged = tmp_path / "opt/lib/systemd/user"
    packaged.mkdir(parents=True)
    (tmp_path / "opt/bin").mkdir()
    (tmp_path / "opt/bin/aned").symlink_to(aned)
    for name in ("aned.service", "aned.socket"):
        (packaged / name).write_text("[Unit]\n")
    for dirs in ([], [f"{packaged}/sub"], [f"/x{packaged}"]):
        systemd.m.set(unit_dirs=[str(systemd.units), *dirs])
        systemd("install", "--no-wait", "--program", tmp_path / "opt/bin/aned")
        assert unit_of(systemd.units)[1][0] == str(tmp_path / "opt/bin/aned") and systemd.state()["packaged"] is False


def test_lingering_is_told(systemd):
    systemd.m.set(linger="no")
    assert "loginctl enable-linger" in systemd("install", "--no-wait").stdout
    systemd.m.set(linger="yes")
    assert "linger" not in systemd("install", "--no-wait").stdout


def test_no_user_manager(systemd):
    systemd.m.set(bus=False)
    for verb in (["install", "--no-wait"], ["status"], ["start"], ["stop"], ["uninstall"]):
        r = systemd(*verb, code=69)
        assert "no systemd of this user runs here" in r.stderr and "aned serve --service" in r.stderr, r.stderr
    assert not systemd.installed()


@BOTH
def test_no_manager_at_all(box, tmp_path):
    (tmp_path / "empty").mkdir()
    for verb in (["install", "--no-wait"], ["status"], ["start"], ["stop"], ["restart"], ["uninstall"]):
        r = box(*verb, code=66 if box.kind == "launchd" and verb[0] in ("start", "restart") else 69,
                env={"PATH": str(tmp_path / "empty")})
        assert r.stderr
    r = box("install", "--no-wait", code=69, env={"PATH": str(tmp_path / "empty")})
    assert f"there is no {'launchctl' if box.kind == 'launchd' else 'systemctl'} here" in r.stderr
    assert not box.installed()


def test_usage(anectl, tmp_path):
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    for args in (["service"], ["service", "nonsense"], ["service", "install", "--manager", "upstart"],
                 ["service", "logs", "-n", "-1"]):
        assert subprocess.run([anectl, *args], env=env, capture_output=True).returncode == 64
    r = subprocess.run([anectl, "service", "status", "--socket", "/x"], env={"PATH": env["PATH"]}, capture_output=True, text=True)
    assert r.returncode == 78 and "HOME" in r.stderr


# --- what was installed serves ---


class Agent(Manager):
    """Does what an installed unit says: its socket, its program, when a client connects."""

    def __init__(self, argv, sock):
        os.makedirs(os.path.dirname(sock), mode=0o700, exist_ok=True)
        super().__init__(argv[0], None)
        self.end_thread()
        self.listener.close()
        self.argv, self.sock = argv, sock
        self.listener = listen(sock)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def end_thread(self):
        os.write(self.ended, b"x")
        self.thread.join()
        os.read(self.end, 1)


@BOTH
def test_what_was_installed_starts_with_the_first_client(box, tmp_path):
    make_home(box.home)
    box("install", "--no-wait")
    if box.kind == "launchd":
        _, argv, sock = plist_of(box.user)
    else:
        _, argv, sock = unit_of(box.units)
        sock = sock.replace("%t", str(tmp_path / "run"))
    m = Agent([*argv, "--home", str(box.home)] if box.kind == "systemd" else argv, sock)
    try:
        r = box("install")  # waits until the daemon answers, and so starts it
        assert m.starts == 1 and f"pid {m.proc.pid}, answers on {sock}" in r.stdout
        box.m.set(pid=m.proc.pid, active={"aned.service": "active", "aned.socket": "active"})
        s = box.state()
        assert s["daemon"] == {"status": "ok", "version": s["daemon"]["version"], "pid": m.proc.pid, "message": None}
        assert s["socket"] == sock
        out = box("status").stdout
        assert "daemon     ok" in out and str(m.proc.pid) in out
        with m.http() as c:
            assert c.post("/v1/completions", json={"model": "fake", "prompt": "hello"}).status_code == 200
    finally:
        m.close()
    assert m.codes == [0]


@BOTH
def test_an_install_that_does_not_answer_says_so(box, tmp_path):
    """Its socket is there, and the daemon behind it is in trouble."""
    make_home(box.home, conf="[limits]\nqueue = 0\n")
    box("install", "--no-wait")
    argv, sock = (plist_of(box.user) if box.kind == "launchd" else unit_of(box.units))[1:]
    sock = sock.replace("%t", str(tmp_path / "run"))
    m = Agent([*argv, "--home", str(box.home)] if box.kind == "systemd" else argv, sock)
    try:
        r = box("install", code=78)
        assert "'queue' takes a whole number" in r.stderr
        box.m.set(pid=m.proc.pid, active={"aned.service": "active", "aned.socket": "active"})
        s = box.state(code=75)
        assert s["daemon"]["status"] == "config" and "queue" in s["daemon"]["message"]
    finally:
        m.close()


# --- reload ---


@pytest.fixture
def running(box, aned):
    """A daemon that the manager knows as its own."""
    make_home(box.home, conf="[limits]\njobs_queued = 5\n")
    box("install", "--no-wait")
    d = Daemon(aned, home=box.home)
    box.env["ANED_SOCKET"] = str(d.sock)
    box.m.set(pid=d.proc.pid, real=True, active={"aned.service": "active", "aned.socket": "active"})
    box.m.calls()
    yield d
    assert d.close() == 0


def jobs_limit(d):
    with d.http() as c:
        return c.get("/aned/v1/status").json()["jobs"]["limit"]


@BOTH
def test_reload(box, running):
    conf = box.home / "aned.conf"
    text = conf.read_text()
    conf.write_text(text.replace("= 5", "= 6"))
    r = box("reload")
    assert f"read {conf}" in r.stdout and jobs_limit(running) == 6
    assert box.m.calls() == [f"launchctl kill SIGHUP {LABEL}" if box.kind == "launchd" else "systemctl reload aned.service"]
    conf.write_text(text.replace("= 5", "= 0"))
    r = box("reload", code=78)
    assert "jobs_queued" in r.stderr and "old options" in r.stderr and jobs_limit(running) == 6
    conf.write_text(text.replace("= 5", "= 7") + "[engine]\nbackend = interpreter\n".replace("[engine]\n", ""))
    conf.write_text("[limits]\njobs_queued = 7\n[cache]\nmodels = 3\n[server]\nsocket = /x\n")
    r = box("reload")
    assert "server.socket counts after" in r.stdout and jobs_limit(running) == 7
    state = json.loads(box("reload", "--json").stdout)
    assert "server.socket" in state["restart_needed"] and state["error"] is None


@BOTH
def test_reload_of_a_daemon_that_nobody_manages(box, running):
    """By its own pid, which it tells itself."""
    box.m.set(pid=1, real=False)
    conf = box.home / "aned.conf"
    conf.write_text(conf.read_text().replace("= 5", "= 6"))
    box("reload")
    assert jobs_limit(running) == 6 and box.m.calls() == []


@BOTH
def test_reload_of_one_in_trouble_that_nobody_manages(box, aned, tmp_path):
    """It tells no pid; it looks by itself, and is waited for."""
    make_home(box.home, conf="[limits]\njobs_queued = 0\n")
    m = Manager(aned, box.home, ["--service"])
    try:
        box.env["ANED_SOCKET"] = str(m.sock)
        with m.http() as c:
            assert c.get("/health").status_code == 503
        conf = box.home / "aned.conf"
        conf.write_text(conf.read_text().replace("= 0", "= 9"))
        assert f"read {conf}" in box("reload").stdout
        with m.http() as c:
            assert c.get("/aned/v1/status").json()["jobs"]["limit"] == 9
    finally:
        m.close()


@BOTH
def test_reload_without_a_daemon(box):
    r = box("reload", code=69)
    assert "no aned listens" in r.stderr


@BOTH
def test_reload_ends_trouble(box, aned, tmp_path):
    make_home(box.home, conf="[limits]\njobs_queued = 0\n")
    box("install", "--no-wait")
    m = Manager(aned, box.home, ["--service"])
    try:
        box.env["ANED_SOCKET"] = str(m.sock)
        with m.http() as c:
            assert c.get("/health").status_code == 503
        box.m.set(pid=m.proc.pid, real=True, active={"aned.service": "active", "aned.socket": "active"})
        conf = box.home / "aned.conf"
        conf.write_text(conf.read_text().replace("= 0", "= 9"))
        box("reload")
        with m.http() as c:
            assert c.get("/aned/v1/status").json()["jobs"]["limit"] == 9
    finally:
        m.close()


# --- logs ---


LINES = [f"2026-01-01T00:00:00.{i:03}Z info serve event number={i}" for i in range(300)]


def put_log(box, lines):
    if box.kind == "systemd":
        box.m.set(journal=lines)
    else:
        p = box.user / "Library/Logs/dev.aned.daemon.log"
        p.parent.mkdir(parents=True, exist_ok=True)
        p.write_text("".join(x + "\n" for x in lines))


@BOTH
@pytest.mark.parametrize("n", [1, 7, 100, 299, 300, 301, 5000])
def test_the_last_lines(box, n):
    put_log(box, LINES)
    assert box("logs", "-n", n).stdout.splitlines() == LINES[-n:]
    assert [json.loads(x)["line"] for x in box("logs", "-n", n, "--json").stdout.splitlines()] == LINES[-n:]


def test_lines_of_a_file(launchd):
    log = launchd.user / "Library/Logs/dev.aned.daemon.log"
    r = launchd("logs", code=66)
    assert str(log) in r.stderr
    for lines, n in ((["a" * 9000, "b", "c" * 5000], 2), (["x"], 5), ([], 5), (["", "", "y", ""], 3), (["z" * 200000], 1)):
        put_log(launchd, lines)
        want = lines[-n:] if len("".join(lines)) < 100000 else ["z" * 65536] * 3 + ["z" * (200000 - 3 * 65536)]
        assert launchd("logs", "-n", n).stdout.split("\n")[:-1] == want
    log.write_text("one\ntwo\nno end")
    assert launchd("logs", "-n", 2).stdout.splitlines() == ["two", "no end"]
    assert launchd("logs", "-n", 0).stdout == ""


@BOTH
def test_following(box):
    put_log(box, LINES[:3])
    p = subprocess.Popen([box.anectl, "service", "logs", "-f", "-n", "2", "--manager", box.kind], env=box.env,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
                         start_new_session=True)
    try:
        assert [p.stdout.readline() for _ in range(2)] == [x + "\n" for x in LINES[1:3]]
        if box.kind == "launchd":
            log = box.user / "Library/Logs/dev.aned.daemon.log"
            with open(log, "a") as f:
                f.write("more\n")
            assert p.stdout.readline() == "more\n"
            log.write_text("new\n")  # somebody made room
            assert p.stdout.readline() == "new\n"
        os.killpg(p.pid, signal.SIGINT)  # Ctrl-C reaches both
        out, err = p.communicate(timeout=60 * SLOW_S)
        assert p.returncode == 0 and err == "", (p.returncode, err)
    finally:
        if p.poll() is None:
            os.killpg(p.pid, signal.SIGKILL)
            p.wait()
