"""A headless Chromium, driven over the pipe of its DevTools protocol (--remote-debugging-pipe: JSON on descriptors 3 and 4, each
message ends with a NUL). Only what the tests of pages need; one thread reads, so that an answer is found by its number."""
import base64
import contextlib
import itertools
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import pytest

from conftest import SLOW_S

ANSWER_S = 60 * SLOW_S
# Becomes a program that reads 3 and writes 4, whatever the numbers of these two are here.
AT_3_AND_4 = """import fcntl, os, sys
high = [fcntl.fcntl(int(x), fcntl.F_DUPFD_CLOEXEC, 10) for x in sys.argv[1:3]]
for fd, place in zip(high, (3, 4)):
    os.dup2(fd, place)
os.execv(sys.argv[3], sys.argv[3:])
"""


def executable():
    """The browser; the test is skipped where there is none."""
    exe = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if exe is None:
        pytest.skip("no Chromium: ./dev test e2e installs chromium-headless-shell")
    return exe


class Browser:
    def __init__(self, *args):
        self.dir = tempfile.TemporaryDirectory(prefix="aned-browser-")
        flags = ["--headless", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--remote-debugging-pipe",
                 f"--user-data-dir={self.dir.name}", *(["--no-sandbox"] if os.geteuid() == 0 else []), *args]
        to_read, self.to = os.pipe()
        self.back, to_write = os.pipe()
        self.proc = subprocess.Popen([sys.executable, "-c", AT_3_AND_4, str(to_read), str(to_write), executable(), *flags, "about:blank"],
                                     pass_fds=(to_read, to_write), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.numbers, self.answers, self.events = itertools.count(1), {}, queue.Queue()
        self.came = threading.Condition()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        rest = b""
        while chunk := os.read(self.back, 1 << 16):
            *whole, rest = (rest + chunk).split(b"\0")
            for text in whole:
                m = json.loads(text)
                with self.came:
                    if "id" in m:
                        self.answers[m["id"]] = m
                        self.came.notify_all()
                    else:
                        self.events.put(m)

    def call(self, method, session=None, **params):
        n = next(self.numbers)
        m = {"id": n, "method": method, "params": params, **({"sessionId": session} if session else {})}
        os.write(self.to, json.dumps(m).encode() + b"\0")
        with self.came:
            assert self.came.wait_for(lambda: n in self.answers, ANSWER_S), f"{method}: no answer"
            a = self.answers.pop(n)
        assert "error" not in a, (method, a["error"])
        return a["result"]

    def page(self, url="about:blank", **kw):
        return Page(self, url, **kw)

    def close(self):
        with contextlib.suppress(Exception):
            self.call("Browser.close")
        try:
            self.proc.wait(10)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()
        os.close(self.to)
        self.reader.join(10)
        os.close(self.back)
        self.dir.cleanup()


class Page:
    """A tab of a profile of its own: no storage of another page's."""

    def __init__(self, browser, url, width=1280, height=900, dark=False, still=False):
        self.b = browser
        self.context = browser.call("Target.createBrowserContext")["browserContextId"]
        self.target = browser.call("Target.createTarget", url="about:blank", browserContextId=self.context)["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        self.seen = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.do(f"{domain}.enable")
        self.look(width, height, dark, still)
        if url != "about:blank":
            self.go(url)

    def do(self, method, **params):
        return self.b.call(method, session=self.session, **params)

    def look(self, width, height=900, dark=False, still=False):
        self.do("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.do("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if still else "no-preference"}])

    def go(self, url):
        r = self.do("Page.navigate", url=url)
        assert "errorText" not in r, r
        self.until("document.readyState === 'complete'")

    def js(self, text):
        """The value of an expression; of a promise, what it becomes."""
        r = self.do("Runtime.evaluate", expression=text, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in r, r["exceptionDetails"].get("exception", r["exceptionDetails"])
        return r["result"].get("value")

    def until(self, text, seconds=60):
        end = time.monotonic() + seconds * SLOW_S
        while not self.js(f"Boolean({text})"):
            assert time.monotonic() < end, f"it does not come true: {text}\n{self.text()}\n{self.complaints()}"
            time.sleep(0.05)

    def text(self, selector="body"):
        return self.js(f"(document.querySelector({json.dumps(selector)}) || {{}}).innerText || ''")

    def shown(self, selector):
        return self.js(f"(e => Boolean(e && e.checkVisibility()))(document.querySelector({json.dumps(selector)}))")

    def type(self, selector, text):
        self.js(f"document.querySelector({json.dumps(selector)}).focus()")
        self.do("Input.insertText", text=text)

    def press(self, name, code=0, text="", shift=False):
        more = {"key": name, "code": name, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.do("Input.dispatchKeyEvent", type="keyDown", **more, **({"text": text} if text else {}))
        self.do("Input.dispatchKeyEvent", type="keyUp", **more)

    def enter(self):
        self.press("Enter", 13, "\r")

    def tab(self, shift=False):
        self.press("Tab", 9, shift=shift)

    def click(self, selector):
        self.js(f"document.querySelector({json.dumps(selector)}).click()")

    def events(self):
        with contextlib.suppress(queue.Empty):
            while True:
                self.seen.append(self.b.events.get_nowait())
        return [e for e in self.seen if e.get("sessionId") == self.session]

    def complaints(self):
        """Exceptions, what the policy kept from the page, and errors on the console, but for requests that failed."""
        found = []
        for e in self.events():
            p = e["params"]
            if e["method"] == "Runtime.exceptionThrown":
                found.append(p["exceptionDetails"].get("exception", {}).get("description") or p["exceptionDetails"]["text"])
            elif e["method"] == "Log.entryAdded" and p["entry"]["source"] != "network" and p["entry"]["level"] == "error":
                found.append(p["entry"]["text"])
            elif e["method"] == "Runtime.consoleAPICalled" and p["type"] == "error":
                found.append(str([a.get("value") or a.get("description") for a in p["args"]]))
        return found

    def addresses(self):
        """What was asked for over the network, without data: URLs."""
        return [e["params"]["request"]["url"] for e in self.events() if e["method"] == "Network.requestWillBeSent"]

    def shot(self, path, whole=True):
        data = self.do("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self):
        self.b.call("Target.disposeBrowserContext", browserContextId=self.context)
