"""A report in a real browser: nothing runs, nothing is fetched, everything is seen."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.browser import BROWSER, OVERFLOWING, WIDTHS, Browser
from helpers.reports import a_sweep, an_audit, hostile_sources, write_sources

from evenspan.report import write_report

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason="there is no chromium, chromium-browser or google-chrome on the PATH"),
]


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
    browser.open(reports[name].resolve().as_uri(), WIDTHS[width], scheme)
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
    browser.open(reports["real"].resolve().as_uri(), WIDTHS["phone"])
    smallest = browser.value(
        "Math.min(...[...document.querySelectorAll('figure svg')].map(one => one.getBoundingClientRect().width /"
        "one.viewBox.baseVal.width * Math.min(...[...one.querySelectorAll('text')].map("
        "text => parseFloat(getComputedStyle(text).fontSize)))))"
    )
    assert smallest >= 8


def test_printed_with_everything_open(browser, reports, tmp_path) -> None:
    browser.open(reports["real"].resolve().as_uri(), WIDTHS["desktop"], "dark")
    printed = base64.b64decode(browser.call("Page.printToPDF", printBackground=True)["data"])
    (tmp_path / "report.pdf").write_bytes(printed)
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.value("document.querySelector('details table').getBoundingClientRect().height") > 20
