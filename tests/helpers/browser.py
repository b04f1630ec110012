"""A headless Chromium, spoken to over pipes: how a page lies there, and what it asks for."""

import json
import shutil
import subprocess
from base64 import b64decode
from contextlib import contextmanager
from itertools import count

import pytest

from helpers.processes import PATIENCE

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
needed = pytest.mark.skipif(
    CHROMIUM is None, reason="no browser: install `chromium` (Debian) or `google-chrome`"
)
# A root user in a container has no user namespaces, hence no sandbox, and often a small /dev/shm.
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
# Descriptors 3 and 4 are where --remote-debugging-pipe listens and answers.
_PLUGGED_IN = 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null'

# Every piece of text that can be seen, with its box; what is scrolled out of sight is cut off.
_TEXTS = """
(() => {
  const seen = (box, node) => {
    let {left, right, top, bottom} = box;
    for (let at = node.parentElement; at && at !== document.body; at = at.parentElement) {
      const style = getComputedStyle(at);
      if (style.overflowX === "visible" || at instanceof SVGElement) continue;
      const frame = at.getBoundingClientRect();
      left = Math.max(left, frame.left); right = Math.min(right, frame.right);
      top = Math.max(top, frame.top); bottom = Math.min(bottom, frame.bottom);
    }
    return {left, right, top: top + scrollY, bottom: bottom + scrollY};
  };
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode, text = node.data.trim(), parent = node.parentElement;
    if (!text || !parent.checkVisibility()) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const picture = parent.closest("svg");
    const boxes = picture ? [parent.getBoundingClientRect()] : [...range.getClientRects()];
    for (const box of boxes) {
      const {left, right, top, bottom} = seen(box, node);
      if (right - left < 1 || bottom - top < 1) continue;
      const frame = picture && picture.getBoundingClientRect();
      const cut = frame ? Math.max(frame.left - box.left, box.right - frame.right,
                                   frame.top - box.top, box.bottom - frame.bottom) : 0;
      found.push({text, left, right, top, bottom, cut});
    }
  }
  return found;
})()
"""


_WAIT = f"""
new Promise((done, failed) => {{
  const look = () => {{ if (CONDITION) done(0); }};
  const all = {{subtree: true, childList: true, characterData: true, attributes: true}};
  new MutationObserver(look).observe(document, all);
  document.fonts.ready.then(look);
  setTimeout(() => failed("what was waited for did not come"), {PATIENCE * 1000});
  look();
}})
"""


class Page:
    """One page of a browser, and all that it asked for and complained about."""

    def __init__(self, pipes, target):
        self._ask, self._events = pipes
        self._target = target
        self.requests, self.complaints = [], []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def _call(self, method, **parameters):
        return self._ask(method, parameters, self._target)

    def look(self, address, width, scheme="light", media="screen"):
        """Open an address, in a window of so many pixels."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self._call("Emulation.setDeviceMetricsOverride", **size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._call("Emulation.setEmulatedMedia", media=media, features=features)
        self._events.clear()
        self.requests.clear()
        self.complaints.clear()
        self._call("Page.navigate", url=address)
        self._ask.until("Page.loadEventFired")
        self.wait_for("document.fonts.status === 'loaded'")

    def wait_for(self, condition):
        """Until a condition holds that the page's own changes, or its fonts, bring about."""
        self.evaluate(_WAIT.replace("CONDITION", condition))
        while self._events:
            event = self._events.pop(0)
            self._take(event["method"], event["params"])

    def _take(self, method, told):
        if method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif method == "Log.entryAdded":
            self.complaints.append(told["entry"]["text"])
        elif method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
            self.complaints.append(json.dumps(told))

    def evaluate(self, script):
        """The value of a piece of JavaScript."""
        answer = self._call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def texts(self):
        """Pieces of text with their boxes, and how far they stick out of their picture."""
        return self.evaluate(_TEXTS)

    def screenshot(self, path):
        """The whole page, however long."""
        shot = self._call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(b64decode(shot["data"]))


def overlapping(texts, allowed=2.0):
    """Pairs of pieces that lie on each other by more than so many pixels in both directions."""
    pairs, near = [], []
    for one in sorted(texts, key=lambda text: text["top"]):
        near = [other for other in near if other["bottom"] > one["top"] + allowed]
        for other in near:
            across = min(one["right"], other["right"]) - max(one["left"], other["left"])
            down = min(one["bottom"], other["bottom"]) - one["top"]
            if across > allowed and down > allowed:
                pairs.append((one["text"], other["text"]))
        near.append(one)
    return pairs


class _Wire:
    """Questions and answers, zero bytes between them; what comes unasked is kept."""

    def __init__(self, process):
        self._process, self._numbers = process, count(1)
        self.events = []

    def __call__(self, method, parameters, target=None):
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if target is not None:
            message["sessionId"] = target
        self._process.stdin.write(json.dumps(message).encode() + b"\0")
        self._process.stdin.flush()
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def until(self, method):
        while all(event["method"] != method for event in self.events):
            self.events.append(self._next())

    def _next(self):
        letters = bytearray()
        while (letter := self._process.stdout.read(1)) != b"\0":
            assert letter, "the browser has ended"
            letters += letter
        return json.loads(letters)


@contextmanager
def opened(profile):
    """A page of a browser of our own, whose files are in the folder `profile`."""
    command = ["sh", "-c", _PLUGGED_IN, "sh", CHROMIUM, *FLAGS, "--remote-debugging-pipe"]
    command.append(f"--user-data-dir={profile}")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            wire = _Wire(process)
            target = wire("Target.createTarget", {"url": "about:blank"})["targetId"]
            session = wire("Target.attachToTarget", {"targetId": target, "flatten": True})
            yield Page((wire, wire.events), session["sessionId"])
            wire("Browser.close", {})
        finally:
            process.kill()
