#!/usr/bin/env python3
"""An `aned` that is the real one, but for what ANED_LIE says: for the steps of the acceptance, each of which has to find it.

`serve` runs the real daemon on a socket of its own and passes requests on; every other command is the real one's. The
environment: ANED_REAL (the real aned), ANED_LIE (words of LIES)."""
import http.client
import http.server
import json
import os
import re
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import threading

REAL, LIES = os.environ["ANED_REAL"], set(os.environ.get("ANED_LIE", "").split())
SEEN = {"grown": 0, "forks": set(), "guessed": set(), "streamed": set(), "restarted": False}


class Upstream(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("aned", timeout=600)
        self.unix = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.unix)


def changed_tokens(o):
    o["tokens"][-1] = max(0, o["tokens"][-1] - 1)
    return o


def lie(path, method, sent, answer):
    """What is said in place of a JSON answer."""
    session = (re.match(r"/aned/v1/sessions/([^/]+)", path) or [None, None])[1]
    if path.endswith("/generate"):
        if "prediction" in sent:
            SEEN["guessed"].add(session)
        if "no_drafts" in LIES:
            answer["timings"].pop("draft_n_accepted", None)
        if "not_shared" in LIES:
            answer["timings"]["cache_n"] = 0
    elif path.endswith("/fork"):
        SEEN["forks"].add(answer.get("id"))
    elif method == "GET" and session and "tokens" in answer:
        if ("drafts" in LIES and session in SEEN["guessed"]) or ("forks" in LIES and session in SEEN["forks"]) or \
                ("kills" in LIES and session in SEEN["streamed"]) or ("coreml" in LIES and SEEN["coreml"]):
            changed_tokens(answer)
    elif "grows" in LIES and isinstance(answer.get("engine"), dict):
        SEEN["grown"] += 9 << 20
        answer["engine"]["resident_bytes"] += SEEN["grown"]
    elif path == "/aned/v1/status" and LIES & {"background", "few_files"}:
        answer |= {"pid": os.getpid(), "activated": True}  # all else is as launchd wants it
        answer["process"] |= {"background": "background" in LIES, "files": 512 if "few_files" in LIES else 8192}
    return answer


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def go(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        up = Upstream(self.server.real)
        up.request(self.command, self.path, body or None, {"Content-Type": "application/json"} if body else {})
        r = up.getresponse()
        kind = r.headers.get("Content-Type", "")
        self.send_response(r.status)
        self.send_header("Content-Type", kind)
        self.send_header("Connection", "close")
        if kind.startswith("text/event-stream"):
            SEEN["streamed"].add(self.path.split("/")[-2])
            self.end_headers()
            while piece := r.read1(65536):
                if "cut" in LIES and b"[DONE]" in piece:
                    break
                self.wfile.write(piece)
        else:
            text = r.read()
            if "application/json" in kind and r.status < 300:
                text = json.dumps(lie(self.path, self.command, json.loads(body or b"{}"), json.loads(text))).encode()
            if self.path == "/metrics" and "metrics" in LIES:
                text = re.sub(rb"(?m)^(aned_(?:states_loads|engine_restarts)_total) .*$", rb"\1 0", text)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
        self.close_connection = True

    do_GET = do_POST = do_DELETE = go

    def address_string(self):
        return ""

    def log_message(self, *args):
        pass


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    def server_bind(self):
        if os.path.exists(self.server_address):  # of one that was ended
            os.unlink(self.server_address)
        super().server_bind()

    daemon_threads = True
    request_queue_size = 64


def serve(argv):
    path = argv[argv.index("--socket") + 1]
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    home = argv[argv.index("--home") + 1]
    if "no_cache" in LIES:
        shutil.rmtree(os.path.join(home, "cache", "coreml"), ignore_errors=True)
    with open(os.path.join(home, "aned.conf")) as f:
        SEEN["coreml"] = "backend = coreml" in f.read()
    real = path + "r"
    argv[argv.index("--socket") + 1] = real
    p = subprocess.Popen([REAL, *argv])
    given = os.environ.get("LISTEN_PID") == str(os.getpid())  # a socket of a service manager, which the real one does not get
    server = Server(path, Handler, bind_and_activate=not given)
    if given:
        server.socket.close()
        server.socket = socket.socket(fileno=3)
    server.real = real
    signal.signal(signal.SIGTERM, lambda *_: p.send_signal(signal.SIGTERM))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os._exit(p.wait())


if len(sys.argv) > 1 and sys.argv[1] == "serve":
    serve(sys.argv[1:])
if len(sys.argv) > 1 and f"{sys.argv[1]}:" in " ".join(LIES):  # "sandbox:TEXT", in place of what the command prints
    text = next(x for x in LIES if x.startswith(sys.argv[1] + ":")).partition(":")[2]
    print(json.dumps(json.loads(text)))
    sys.exit(0)
os.execv(REAL, [REAL, *sys.argv[1:]])
