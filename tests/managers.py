"""launchctl, systemctl, journalctl and loginctl of our own, for anectl service and doctor: each call is written down, and
answered by a state that the test sets. What they answer is what the real ones do (facts of launchctl(1), systemctl(1))."""
import json
import os
import plistlib
import re
import shlex
import stat
import sys
from pathlib import Path

FAKE = r'''
import json, os, signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.SIG_DFL)
here = Path(__file__).parent
name, args = Path(sys.argv[0]).name, sys.argv[1:]
state = json.loads((here / "state.json").read_text())
with open(here / "calls", "a") as f:
    f.write(json.dumps([name, *args]) + "\n")

def leave(code, said=""):
    (here / "state.tmp").write_text(json.dumps(state))
    os.replace(here / "state.tmp", here / "state.json")
    if said:
        print(said, file=sys.stderr if code else sys.stdout)
    sys.exit(code)

def scripted(verb):
    """An exit status that the test wants next."""
    codes = state["codes"].get(verb, [])
    if codes:
        code = codes.pop(0)
        if code:
            leave(code, f"{verb}: scripted {code}")

def launchctl():
    verb, rest = args[0], args[1:]
    scripted(verb)
    target = rest[-1]
    label = "/dev.aned.daemon"
    here_now = state["loaded"] and target == state["loaded"] + label
    if verb == "print":
        if not target.endswith(label):
            kind = target.split("/")[0]
            leave(0 if kind == "user" or state["gui"] else 113, f"{target} = {{}}")
        if state["leaving"]:
            state["leaving"] -= 1
            if not state["leaving"]:
                state["loaded"] = None
        if not here_now:
            leave(113, "Could not find service")
        pid = state["pid"]
        leave(0, f"{target} = {{\n\tactive count = 1\n\tstate = {'running' if pid else 'not running'}\n\n"
                 + (f"\tpid = {pid}\n" if pid else "")
                 + f"\tlast exit code = {state['last_exit']}\n\tspawn type = interactive (4)\n}}")
    if verb == "bootout":
        if not here_now:
            leave(3, "Boot-out failed: 3: No such process")
        state["pid"] = 0
        state["leaving"] = state["slow"]
        if state["slow"]:
            leave(36, "Boot-out failed: 36: Operation now in progress")
        state["loaded"] = None
        leave(0)
    if verb == "bootstrap":
        if state["disabled"]:
            leave(119, "Bootstrap failed: 119: Service is disabled")
        if state["loaded"]:
            leave(37, "Bootstrap failed: 37: Operation already in progress")
        if not Path(rest[1]).is_file():
            leave(2, "Bootstrap failed: 2: No such file or directory")
        state["loaded"] = rest[0]
        leave(0)
    if verb == "enable":
        state["disabled"] = False
        leave(0)
    if verb == "print-disabled":
        leave(0, 'disabled services = {\n\t"dev.aned.daemon" => %s\n}' % ("disabled" if state["disabled"] else "enabled"))
    if not here_now:
        leave(3, "No process to signal." if verb == "kill" else "Could not find service")
    if verb == "kickstart":
        state["pid"] = state["pid"] or state["next_pid"]
        leave(0)
    if verb == "kill":
        if rest[0] == "SIGTERM":
            state["pid"] = 0
        elif state["real"]:
            os.kill(state["pid"], 1)
        leave(0)
    leave(64, "Unrecognized subcommand")

def unit_file(unit):
    for d in state["unit_dirs"]:
        if (Path(d) / unit).is_file():
            return str(Path(d) / unit)

def systemctl():
    assert args[:2] == ["--user", "--no-pager"], args
    verb, units = args[2], [a for a in args[3:] if a.startswith("aned.")]
    if not state["bus"]:
        leave(1, "Failed to connect to bus: No medium found")
    scripted(verb)
    active = state["active"]
    if verb == "show" and not units:
        leave(0, "UnitPath=/run/none " + " ".join(state["unit_dirs"]))
    if verb == "show":
        unit = units[0]
        file = unit_file(unit)
        on = active.get(unit, "inactive")
        pid = state["pid"] if unit == "aned.service" and on == "active" else 0
        sub = {"active": "running" if pid else "listening", "failed": "failed"}.get(on, "dead")
        leave(0, "\n".join(f"{k}={v}" for k, v in {
            "LoadState": "loaded" if file else "not-found", "ActiveState": on, "SubState": sub, "FragmentPath": file or "",
            "UnitFileState": "enabled" if unit in state["enabled"] else "disabled" if file else "", "MainPID": pid,
            "ExecMainStatus": state["last_exit"], "Result": state["result"]}.items()))
    if verb in ("start", "restart", "stop", "enable", "disable", "reload") and not all(map(unit_file, units)):
        leave(5, f"Failed to {verb}: Unit {units[0]} not found.")
    for u in units:
        if verb in ("start", "restart"):
            active[u] = "active"
        elif verb == "stop":
            active[u] = "inactive"
        elif verb == "enable":
            state["enabled"] = [*{*state["enabled"], u}]
        elif verb == "disable" and u in state["enabled"]:
            state["enabled"].remove(u)
        elif verb == "reset-failed" and active.get(u) == "failed":
            active[u] = "inactive"
        elif verb == "reload" and state["real"]:
            os.kill(state["pid"], 1)
    leave(0)

def journalctl():
    lines = state["journal"]
    n = int(args[args.index("--lines") + 1])
    print("\n".join(lines[-n:] if n else []), flush=True)
    if "--follow" in args:
        signal.pause()
    leave(0)

def loginctl():
    leave(0, "Linger=" + state["linger"])

globals()[name]()
'''

START = {"codes": {}, "gui": True, "loaded": None, "leaving": 0, "slow": 0, "pid": 0, "next_pid": 4711, "last_exit": 0,
         "disabled": False, "bus": True, "active": {}, "enabled": [], "result": "success", "journal": [], "linger": "yes",
         "real": False}


class Managers:
    """The four programs in a folder for the front of PATH; `state` is read and changed by them and by the test."""

    def __init__(self, folder, user):
        self.dir, self.user = Path(folder), Path(user)
        self.dir.mkdir()
        for name in ("launchctl", "systemctl", "journalctl", "loginctl"):
            p = self.dir / name
            p.write_text(f"#!{sys.executable}\n{FAKE}")
            p.chmod(p.stat().st_mode | stat.S_IXUSR)
        self.set(**START, unit_dirs=[str(self.user / ".config/systemd/user")])

    def set(self, **kw):
        p = self.dir / "state.json"
        old = json.loads(p.read_text()) if p.exists() else {}
        p.write_text(json.dumps({**old, **kw}))

    def get(self, key):
        return json.loads((self.dir / "state.json").read_text())[key]

    def calls(self, but=("print", "show", "print-disabled")):
        """What was called since the last look, as lines, without mere questions."""
        p = self.dir / "calls"
        lines = [json.loads(x) for x in p.read_text().splitlines()] if p.exists() else []
        p.unlink(missing_ok=True)
        drop = {"--user", "--no-pager"}
        return [" ".join(w for w in x if w not in drop) for x in lines if not set(but) & set(x)]

    def env(self):
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("ANED_", "XDG_"))}
        return dict(keep, PATH=f"{self.dir}:{os.environ['PATH']}", HOME=str(self.user))


def plist_of(user):
    """The installed agent: (whole plist, argv, path of its socket)."""
    p = plistlib.loads((Path(user) / "Library/LaunchAgents/dev.aned.daemon.plist").read_bytes())
    return p, p["ProgramArguments"], p["Sockets"]["aned"]["SockPathName"]


def unit_of(folder):
    """The installed units: (settings of the service, argv, path of the socket), read as systemd.unit(5) says."""
    def read(name):
        lines = [x for x in (Path(folder) / name).read_text().splitlines() if x and x[0] not in "#["]
        return dict(x.split("=", 1) for x in lines)
    def plain(text):
        """Without the specifiers' escape; a specifier itself is an error, but for the one that aned uses."""
        assert re.sub("%%", "", text).replace("%t/aned/", "").count("%") == 0, text
        return text.replace("%%", "%")
    service, sock = read("aned.service"), read("aned.socket")
    argv = [plain(w) for w in shlex.split(service["ExecStart"])]
    return service, [argv[0], *(w.replace("$$", "$") for w in argv[1:])], plain(sock["ListenStream"])
