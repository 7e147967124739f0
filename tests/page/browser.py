# SPDX-License-Identifier: MIT
"""A headless Chromium that a test drives over a pair of pipes (--remote-debugging-pipe: JSON, each message ended by a 0 byte)."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

PATIENCE = 240  # seconds, on a machine with much else to do


def found():
    """The browser's program, or None."""
    for name in "chromium", "chromium-browser", "google-chrome":
        if shutil.which(name):
            return shutil.which(name)
    return None


class Browser:
    """One browser; page() opens a page and waits until it is loaded. What pages say, ask for and fail at: `said`, `asked`, `failed`."""

    def __init__(self):
        self.directory = tempfile.TemporaryDirectory(prefix="uroce-page.")
        to_it, self.write_end = os.pipe()
        self.read_end, from_it = os.pipe()
        command = [
            found(),
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-extensions",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            "--mute-audio",
            "--user-data-dir=" + self.directory.name,
            "--remote-debugging-pipe",
            "about:blank",
        ]
        # The browser has the pipes at 3 and 4.
        shell = 'exec 3<&%d 4>&%d; exec "$@"' % (to_it, from_it)
        self.log = open(os.path.join(self.directory.name, "log"), "wb")
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "browser"] + command,
            pass_fds=(to_it, from_it),
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            env=dict(os.environ, HOME=self.directory.name),
            start_new_session=True,
        )
        os.close(to_it)
        os.close(from_it)
        self.rest, self.number, self.session, self.loaded = b"", 0, None, set()
        self.said, self.asked, self.failed = [], [], []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close", session=False)
        except (OSError, RuntimeError):
            pass
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, 9)
            self.process.wait()
        self.log.close()
        for attempt in range(20):
            try:
                self.directory.cleanup()
                break
            except OSError:  # its children still write
                time.sleep(0.2)

    def receive(self, until):
        while b"\0" not in self.rest:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.read_end], [], [], left)[0]:
                raise RuntimeError("the browser does not answer")
            data = os.read(self.read_end, 1 << 20)
            if not data:
                raise RuntimeError("the browser has ended")
            self.rest += data
        message, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(message)
        self.note(message)
        return message

    def note(self, message):
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.failed.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled":
            self.said.append(" ".join(str(a.get("value", a.get("description"))) for a in params["args"]))
        elif method == "Log.entryAdded":
            self.said.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])
        elif method == "Page.lifecycleEvent" and params["name"] == "load":
            self.loaded.add(params["loaderId"])

    def call(self, method, session=True, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session and self.session:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + PATIENCE
        while True:
            answer = self.receive(until)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError("%s: %s" % (method, answer["error"]["message"]))
                return answer["result"]

    def page(self, path, width=1280, height=800, dark=False, language="en-US", fragment=""):
        if not self.session:
            target = [t for t in self.call("Target.getTargets", session=False)["targetInfos"] if t["type"] == "page"][0]
            self.session = self.call("Target.attachToTarget", session=False, targetId=target["targetId"], flatten=True)["sessionId"]
            for domain in "Page", "Runtime", "Network", "Log":
                self.call(domain + ".enable")
            self.call("Page.setLifecycleEventsEnabled", enabled=True)
            self.agent = self.call("Browser.getVersion", session=False)["userAgent"]
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setTouchEmulationEnabled", enabled=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Emulation.setUserAgentOverride", userAgent=self.agent, acceptLanguage=language)
        # Between two pages an empty one, or another fragment would be the same page.
        for url in "about:blank", "file://" + path + fragment:
            self.said, self.asked, self.failed = [], [], []
            loader = self.call("Page.navigate", url=url)["loaderId"]
            until = time.monotonic() + PATIENCE
            while loader not in self.loaded:
                self.receive(until)
        self.frames()

    def run(self, script):
        """The value of an expression in the page; a promise is waited for."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(
                result["exceptionDetails"].get("exception", {}).get("description", result["exceptionDetails"]["text"])
            )
        return result["result"].get("value")

    def frames(self):
        """Two frames: what was asked to be drawn is drawn."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)
        self.frames()

    def key(self, key, code=0, text=""):
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)
        self.frames()

    def screenshot(self, path, whole=False):
        more = {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            more = {
                "captureBeyondViewport": True,
                "clip": {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 8000), "scale": 1},
            }
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png", **more)["data"]))
