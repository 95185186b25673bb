"""The page of a server in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from helpers.browser import BROWSER, OVERFLOWING, WIDTHS, Browser
from helpers.server import Server, serving

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason="there is no chromium, chromium-browser or google-chrome on the PATH"),
]
HOSTILE = (
    "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'> &amp; \u202eabc "
    + "שלום עולם זה מסמך מימין לשמאל. " * 30
    + "'\"><svg onload=window.hacked=1> " * 10
)
DONE = "document.getElementById('status').textContent.includes(' parts of ')"
COLOURS = "[...document.querySelectorAll('#calibrated .part')].map(one => getComputedStyle(one).backgroundColor).join()"


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Browser]:
    started = Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("miniature:cls") as started:
        yield started


def enter(browser: Browser, name: str, value: str) -> None:
    browser.value(
        f"(one => {{ one.value = {json.dumps(value)}; one.dispatchEvent(new Event('input', {{bubbles: true}})) }})"
        f"(document.getElementById('{name}'))"
    )


def finished(browser: Browser, change: str) -> None:
    """Do something, and wait for what comes of it."""
    browser.value("document.getElementById('status').textContent = ''")
    browser.value(change)
    browser.until(DONE)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_slider_changes_the_picture(browser, server, tmp_path, width, scheme) -> None:
    browser.open(server.url + "/", WIDTHS[width], scheme)
    browser.until("document.getElementById('model').textContent.includes('miniature:cls')")
    finished(browser, "document.getElementById('example').click()")
    assert "Most similar: part 6." in browser.value("document.getElementById('near').textContent")
    pictures = []
    for strength in ("0", "0.5", "1"):
        browser.value("document.getElementById('status').textContent = ''")
        enter(browser, "strength", strength)
        browser.until(DONE)
        pictures.append(browser.value(COLOURS))
    assert len(set(pictures)) == 3
    assert browser.value("document.querySelectorAll('#plain .part').length") == 6
    assert browser.value("document.querySelectorAll('#rows tr').length") == 6
    assert browser.value(OVERFLOWING) == []
    assert browser.value("document.documentElement.scrollWidth") <= WIDTHS[width]
    picture = tmp_path / f"page-{width}-{scheme}.png"
    browser.screenshot(picture)
    assert picture.stat().st_size > 20_000
    assert browser.complaints() == []
    assert all(url.startswith(server.url) for url in browser.requests())


def test_at_strength_0_both_sides_are_alike(browser, server) -> None:
    browser.open(server.url + "/", WIDTHS["desktop"])
    browser.until("document.getElementById('model').textContent.includes('miniature:cls')")
    finished(browser, "document.getElementById('strength').value = 0, document.getElementById('example').click()")
    assert browser.value("document.getElementById('plain').textContent") == browser.value(
        "document.getElementById('calibrated').textContent"
    )


def test_a_hostile_document_does_no_harm(browser, server) -> None:
    browser.open(server.url + "/", WIDTHS["phone"])
    browser.until("document.getElementById('model').textContent.includes('miniature:cls')")
    enter(browser, "document", HOSTILE)
    enter(browser, "question", "<script>window.hacked = 1</script>")
    browser.until(DONE)
    assert browser.value("typeof window.hacked") == "undefined"
    assert browser.value("document.querySelectorAll('main script, main img, main svg').length") == 0
    assert "<script>window.hacked" in browser.value("document.getElementById('plain').textContent")
    assert "rtl" in browser.value(
        "[...document.querySelectorAll('.part')].map(one => getComputedStyle(one).direction).join()"
    )
    shares = "[...document.querySelectorAll('.part b')].map(one => getComputedStyle(one).direction)"
    assert set(browser.value(shares)) == {"ltr"}, "else '17 %' is shown as '% 17'"
    assert browser.value(OVERFLOWING) == []
    assert browser.complaints() == []


def test_a_number_of_parts_that_cannot_be(browser, server) -> None:
    browser.open(server.url + "/", WIDTHS["desktop"])
    browser.until("document.getElementById('model').textContent.includes('miniature:cls')")
    finished(browser, "document.getElementById('example').click()")
    for number in ("1", "25", "2.5", ""):
        enter(browser, "segments", number)
        browser.until("document.getElementById('status').textContent === 'Parts must be a whole number from 2 to 24.'")
        finished(browser, "document.getElementById('segments').value = 6, document.getElementById('example').click()")


def test_every_control_has_a_name_and_is_reached_by_keyboard(browser, server) -> None:
    browser.open(server.url + "/", WIDTHS["desktop"])
    unnamed = (
        "[...document.querySelectorAll('input, select, textarea')].filter(one => !one.labels.length).map(one => one.id)"
    )
    assert browser.value(unnamed) == []
    assert browser.value("document.querySelectorAll('[tabindex]:not([tabindex=\"0\"])').length") == 0
    assert browser.value("document.getElementById('status').getAttribute('role')") == "status"


def test_the_page_asks_for_the_key(browser) -> None:
    with serving("miniature:cls", EVENSPAN_API_KEY="secret words") as server:
        browser.open(server.url + "/", WIDTHS["desktop"])
        browser.until("!document.getElementById('key-form').hidden")
        browser.value("document.getElementById('key').value = 'secret words'")
        browser.value("document.getElementById('key-form').requestSubmit()")
        browser.until("document.getElementById('key-form').hidden")
        finished(browser, "document.getElementById('example').click()")
        assert browser.value("localStorage.length + sessionStorage.length") == 0
