"""A daemon that says what a test wants, over a Unix socket: for what a real one does seldom, or not yet."""
import json
import pathlib
import socketserver
import tempfile
import threading
import time


def head(status, kind, more):
    return f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\n{more}\r\n".encode()


def answer(status, body):
    """An answer that is no stream."""
    text = json.dumps(body).encode()
    return [head(status, "application/json", f"Content-Length: {len(text)}\r\n") + text]


def error(status, message, code, param=None):
    return answer(status, {"error": {"message": message, "type": "x", "code": code, "param": param}})


def events(*data):
    """A whole stream of these events, one byte a chunk and a write: a reader has to put it together again."""
    text = b": a comment\n\n" + b"".join(b"data: " + (d if isinstance(d, str) else json.dumps(d)).encode() + b"\n\n" for d in data)
    chunks = b"".join(b"1\r\n" + bytes([b]) + b"\r\n" for b in text) + b"0\r\n\r\n"
    whole = head(200, "text/event-stream", "Transfer-Encoding: chunked\r\n") + chunks
    return [whole[i : i + 1] for i in range(len(whole))]


def texts(*said):
    """The events of a completion."""
    return events(*({"choices": [{"index": 0, "text": t, "finish_reason": None}]} for t in said), "[DONE]")


def endless(text):
    """A chat answer that ends when its client leaves, and not before."""
    yield head(200, "text/event-stream", "Connection: close\r\n")
    while True:
        yield b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": text}}]}).encode() + b"\n\n"
        time.sleep(0.01)


class StandIn:
    """answers(body) gives what is written, piece by piece; bodies has what was asked, left how many went before the end."""

    def __init__(self, answers):
        self.bodies, self.left = [], 0
        self.dir = tempfile.TemporaryDirectory(prefix="aned-standin-")
        self.sock = pathlib.Path(self.dir.name) / "s"
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                self.rfile.readline()
                n = 0
                while (line := self.rfile.readline().strip()):
                    name, _, value = line.decode().partition(":")
                    n = int(value) if name.lower() == "content-length" else n
                body = json.loads(self.rfile.read(n)) if n else None
                outer.bodies.append(body)
                try:
                    for piece in answers(body):
                        self.wfile.write(piece)
                        self.wfile.flush()
                except OSError:
                    outer.left += 1

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True

        self.server = Server(str(self.sock), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.dir.cleanup()
