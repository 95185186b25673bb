"""A report in a real browser: nothing runs, nothing is fetched, everything is seen."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.reports import a_sweep, an_audit, hostile_sources, write_sources

from evenspan.report import write_report

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason="there is no chromium, chromium-browser or google-chrome on the PATH"),
]
WIDTHS = {"desktop": 1280, "phone": 390}
# The innermost elements that stand out of the page, but for those in a box that scrolls.
OVERFLOWING = """[...document.querySelectorAll('body *')].filter(one => !one.closest('.scroll') || one.matches('.scroll'))
    .filter(one => one.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
    .map(one => one.tagName + '.' + (one.className.baseVal ?? one.className)).slice(0, 5)"""


class Browser:
    """Headless Chromium by its DevTools protocol, over a pair of pipes: messages are JSON that ends with a zero byte."""

    def __init__(self, profile: Path) -> None:
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # Chromium reads from descriptor 3 and writes to 4; a shell puts them there without a hook in this process.
        script = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"]
        options += ["--disable-background-networking", "--hide-scrollbars", f"--user-data-dir={profile}"]
        self._process = subprocess.Popen(
            ["bash", "-c", script, str(BROWSER), *options, "about:blank"],
            pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._count = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self.events.append(answer)

    def wait(self, event: str) -> None:
        while not any(one.get("method") == event for one in self.events):
            self.events.append(self._next())

    def _next(self, patience: float = 60) -> dict[str, Any]:
        end = time.monotonic() + patience
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0, end - time.monotonic()))
            part = os.read(self._read, 1 << 20) if ready else b""
            assert part, "the browser does not answer"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def open(self, path: Path, width: int, scheme: str = "light") -> None:
        self.events.clear()
        phone = width < 600
        size = {"width": width, "height": 900, "deviceScaleFactor": 2 if phone else 1, "mobile": phone}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait("Page.loadEventFired")

    def value(self, expression: str) -> Any:
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def screenshot(self, path: Path) -> None:
        taken = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(taken["data"]))

    def complaints(self) -> list[Any]:
        bad = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [one["params"] for one in self.events if one.get("method") in bad]

    def requests(self) -> list[str]:
        sent = [
            one["params"]["request"]["url"] for one in self.events if one.get("method") == "Network.requestWillBeSent"
        ]
        return [url for url in sent if not url.startswith("data:")]

    def close(self) -> None:
        os.close(self._write)
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Browser]:
    started = Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    write_sources(folder / "real", [an_audit(), an_audit(model="another/model")], a_sweep())
    hostile_sources(folder / "hostile")
    return {name: write_report(folder / name, folder / f"{name}.html") for name in ("real", "hostile")}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["real", "hostile"])
def test_report_in_a_browser(browser, reports, tmp_path, name, width, scheme) -> None:
    browser.open(reports[name], WIDTHS[width], scheme)
    assert browser.value("getComputedStyle(document.body).backgroundColor") == (
        "rgb(243, 245, 248)" if scheme == "light" else "rgb(15, 20, 26)"
    )
    browser.value("document.querySelectorAll('details').forEach(one => one.open = true)")
    drawings = browser.value(
        "[...document.querySelectorAll('figure svg')].map(one => [one.getBoundingClientRect().width,"
        "one.getBoundingClientRect().height, one.querySelectorAll('path, image').length])"
    )
    assert len(drawings) == {"real": 12, "hostile": 5}[name]
    assert all(across > 200 and high > 100 and marks > 5 for across, high, marks in drawings)
    assert browser.value("document.documentElement.clientWidth") == WIDTHS[width]
    assert browser.value(OVERFLOWING) == []
    assert browser.value("document.documentElement.scrollWidth") <= WIDTHS[width]
    assert browser.value("typeof window.hacked") == "undefined"
    assert browser.value("document.scripts.length + document.images.length") == 0
    picture = tmp_path / f"{name}-{width}-{scheme}.png"
    browser.screenshot(picture)
    assert picture.stat().st_size > 20_000
    assert browser.complaints() == []
    assert browser.requests() == [reports[name].resolve().as_uri()]


def test_letters_of_figures_are_readable_on_a_phone(browser, reports) -> None:
    browser.open(reports["real"], WIDTHS["phone"])
    smallest = browser.value(
        "Math.min(...[...document.querySelectorAll('figure svg')].map(one => one.getBoundingClientRect().width /"
        "one.viewBox.baseVal.width * Math.min(...[...one.querySelectorAll('text')].map("
        "text => parseFloat(getComputedStyle(text).fontSize)))))"
    )
    assert smallest >= 8


def test_printed_with_everything_open(browser, reports, tmp_path) -> None:
    browser.open(reports["real"], WIDTHS["desktop"], "dark")
    printed = base64.b64decode(browser.call("Page.printToPDF", printBackground=True)["data"])
    (tmp_path / "report.pdf").write_bytes(printed)
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.value("document.querySelector('details table').getBoundingClientRect().height") > 20
