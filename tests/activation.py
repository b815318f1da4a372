"""A service manager's part of starting aned: it owns the listening sockets, passes them as systemd does (descriptors 3 and
up, LISTEN_PID, LISTEN_FDS), and starts a daemon when the first client connects."""
import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import httpx

from conftest import SLOW_S

# Run in the child: the sockets go to 3 and up, whatever numbers they have now, and nothing else above 2 stays open.
HAND_OVER = """
import fcntl, os, sys
fds = [fcntl.fcntl(int(f), fcntl.F_DUPFD, 200) for f in sys.argv[1].split(",")]
for i, f in enumerate(fds):
    os.dup2(f, 3 + i)
os.closerange(3 + len(fds), 400)
os.environ["LISTEN_PID"] = str(os.getpid() + int(sys.argv[2]))
os.environ["LISTEN_FDS"] = str(len(fds))
os.execv(sys.argv[3], sys.argv[3:])
"""


def listen(path):
    s = socket.socket(socket.AF_UNIX)
    s.bind(str(path))
    os.chmod(path, 0o600)
    s.listen(64)
    return s


def spawn(argv, listeners, log, env=None, wrong_pid=False):
    """Start argv with these listening sockets; wrong_pid: they are meant for another process."""
    fds = [s.fileno() for s in listeners]
    with open(log, "ab") as out:
        return subprocess.Popen(
            [sys.executable, "-c", HAND_OVER, ",".join(map(str, fds)), str(int(wrong_pid)), *map(str, argv)],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, pass_fds=fds, env=dict(os.environ, **(env or {})))


def client(path, timeout=120):
    return httpx.Client(transport=httpx.HTTPTransport(uds=str(path), verify=False), base_url="http://aned",
                        timeout=timeout * SLOW_S)


class Manager:
    """Starts `aned serve` on a home when a client connects to `sock`, and again after it has ended."""

    def __init__(self, aned, home, args=(), env=None):
        self.dir = Path(tempfile.mkdtemp(prefix="aned-manager-"))
        self.sock = self.dir / "s"
        self.log = self.dir / "log"
        self.argv = [aned, "serve", "--home", home, *args]
        self.notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)  # what sd_notify sends
        self.notices.bind(str(self.dir / "notify"))
        self.notices.setblocking(False)
        self.env = dict(env or {}, NOTIFY_SOCKET=str(self.dir / "notify"))
        self.listener = listen(self.sock)
        self.starts, self.codes, self.proc = 0, [], None
        self.end, self.ended = os.pipe()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while True:
            ready, _, _ = select.select([self.listener, self.end], [], [])
            if self.end in ready:
                return
            self.proc = spawn(self.argv, [self.listener], self.log, self.env)
            self.starts += 1
            self.codes.append(self.proc.wait())

    def http(self, timeout=120):
        return client(self.sock, timeout)

    def notice(self):
        """The lines of all notices so far."""
        out = []
        with contextlib.suppress(BlockingIOError):
            while True:
                out += self.notices.recv(4096).decode().splitlines()
        return out

    def running(self):
        return len(self.codes) < self.starts

    def close(self):
        os.write(self.ended, b"x")
        if self.running():
            self.proc.send_signal(signal.SIGTERM)
        self.thread.join(60 * SLOW_S)
        if self.thread.is_alive():
            self.proc.kill()
            self.thread.join()
        self.listener.close()
        self.notices.close()
        os.close(self.end)
        os.close(self.ended)
        shutil.rmtree(self.dir, ignore_errors=True)
