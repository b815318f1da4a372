"""A launchd of our own, which does what a plist says: it owns the sockets, starts the job when a client connects, starts it
again after a crash, ends it with SIGTERM and after ExitTimeOut with SIGKILL. `launchctl` in a folder for the front of PATH
talks to it. managers.py is for what anectl asks; this is for what comes of it."""
import json
import os
import plistlib
import select
import signal
import socket
import stat
import sys
import threading
import time
from pathlib import Path

from activation import spawn
from conftest import SLOW_S

LAUNCHCTL = """#!{python}
import json, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect({path!r})
s.sendall(json.dumps(sys.argv[1:]).encode() + b"\\n")
code, said = json.loads(s.makefile().read())
print(said, file=sys.stderr if code else sys.stdout)
sys.exit(code)
"""
LIMITED = 'ulimit -Sn "$0"; exec "$@"'
CRASHES = {signal.SIGABRT, signal.SIGSEGV, signal.SIGILL, signal.SIGBUS, signal.SIGFPE, signal.SIGTRAP}


class Job:
    """What was bootstrapped. `faults` are names of what launchd gets wrong on purpose."""

    def __init__(self, plist, faults, pids):
        self.plist, self.faults, self.log, self.pids = plist, faults, plist["StandardErrorPath"], pids
        self.proc, self.last_exit, self.leaving = None, 0, False
        sock = plist["Sockets"]["aned"]
        self.path = sock["SockPathName"]
        self.listener = socket.socket(socket.AF_UNIX)
        Path(self.path).unlink(missing_ok=True)
        self.listener.bind(self.path)
        os.chmod(self.path, 0o666 if "mode" in faults else sock["SockPathMode"])
        self.listener.listen(64)
        self.end, self.ended = os.pipe()
        self.lock = threading.Lock()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def start(self):
        with self.lock:
            if not self.leaving:
                self.proc = spawn(["/bin/sh", "-c", LIMITED, self.files(), *self.plist["ProgramArguments"]], [self.listener], self.log,
                                  {"XPC_SERVICE_NAME": self.plist["Label"]})
                if "no_lines" not in self.faults:
                    with open(self.pids, "a") as f:
                        f.write(f"{self.proc.pid}\n")
        return self.proc

    def files(self):
        return 256 if "no_limits" in self.faults else self.plist["SoftResourceLimits"]["NumberOfFiles"]

    def run(self):
        again = "early" in self.faults
        while not self.leaving:
            if not again:
                ready, _, _ = select.select([self.listener, self.end], [], [])
                if self.end in ready:
                    return
            self.start()
            code = self.proc.wait()
            self.last_exit = code
            again = -code in CRASHES and self.plist["KeepAlive"]["Crashed"] and "no_restart" not in self.faults
            time.sleep(0.2)  # ThrottleInterval, 10 s on a Mac

    def pid(self):
        return self.proc.pid if self.proc is not None and self.proc.poll() is None else 0

    def leave(self):
        with self.lock:
            self.leaving = True
        os.write(self.ended, b"x")
        if self.pid():
            self.proc.send_signal(signal.SIGKILL if "no_time" in self.faults else signal.SIGTERM)
        self.thread.join(self.plist["ExitTimeOut"] * SLOW_S)
        if self.thread.is_alive():
            self.proc.kill()
            self.thread.join()
        self.listener.close()
        os.close(self.end)
        os.close(self.ended)


class Launchd:
    def __init__(self, folder, faults=()):
        self.dir, self.faults, self.jobs, self.enabled, self.asked = Path(folder), set(faults), {}, set(), ""
        self.dir.mkdir(exist_ok=True)
        self.pids = self.dir / "pids"  # of all that were started, for a `log` of ours
        self.door = socket.socket(socket.AF_UNIX)
        self.door.bind(str(self.dir / "s"))
        self.door.listen(16)
        script = self.dir / "launchctl"
        script.write_text(LAUNCHCTL.format(python=sys.executable, path=str(self.dir / "s")))
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                c, _ = self.door.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self.one, args=(c,), daemon=True).start()

    def one(self, c):
        with c:
            answer = self.answer(json.loads(c.makefile().readline()))
            c.sendall(json.dumps(answer).encode())

    def answer(self, argv):
        verb, rest = argv[0], argv[1:]
        self.asked += " ".join(argv) + "\n"
        target = rest[-1]
        domain, _, label = target.rpartition("/")
        job = self.jobs.get(label)
        if verb == "bootstrap":
            plist = plistlib.loads(Path(rest[1]).read_bytes())
            if plist["Label"] in self.jobs:
                return 37, "Bootstrap failed: 37: Operation already in progress"
            self.jobs[plist["Label"]] = Job(plist, self.faults, self.pids)
            return 0, ""
        if verb == "enable":
            self.enabled.add(label)
            return 0, ""
        if verb == "print-disabled":
            return 0, "disabled services = {\n" + "".join(f'\t"{x}" => enabled\n' for x in sorted(self.enabled)) + "}"
        if verb == "print" and target in (f"gui/{os.getuid()}", f"user/{os.getuid()}"):
            return 0, f"{target} = {{}}"
        if job is None or not domain.startswith("gui/"):
            return 113 if verb == "print" else 3, "Could not find service"
        if verb == "print":
            pid = job.pid()
            kind = job.plist["ProcessType"].lower() if "slow_type" not in self.faults else "background"
            return 0, (f"{target} = {{\n\tstate = {'running' if pid else 'not running'}\n" + (f"\tpid = {pid}\n" if pid else "")
                       + f"\tlast exit code = {job.last_exit}\n\tspawn type = {kind} (4)\n"
                       + f"\texit timeout = {20 if 'default_exit' in self.faults else job.plist['ExitTimeOut']}\n}}")
        if verb == "bootout":
            if "late" in self.faults:
                time.sleep(15 * SLOW_S)
            if not job.leaving:
                job.leave()
            if "stays" not in self.faults:
                del self.jobs[label]
            return 0, ""
        if verb == "kill":
            os.kill(job.pid(), getattr(signal, rest[0]))
            return 0, ""
        return 64, "Unrecognized subcommand"

    def close(self):
        self.door.close()
        for job in self.jobs.values():
            if not job.leaving:
                job.leave()
