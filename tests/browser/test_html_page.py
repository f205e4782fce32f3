"""The page in a real browser: no complaint, nothing asked of the network, and all of it to be had by mouse and key."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from factories import chromium, matrices, matrix_examples
from factories.chromium import Browser
from stallprobes.matrix import check_file
from stallprobes.matrix.comparing import compare
from stallscope.report import html_page

PATH = chromium.found()
pytestmark = pytest.mark.skipif(PATH is None, reason=f"no browser: none of {', '.join(chromium.NAMES)} is on the PATH")

SEEN = "[...document.querySelectorAll('.cells section')].filter(s => s.getClientRects().length).map(s => s.id)"


@pytest.fixture(scope="module")
def process() -> Iterator[Browser]:
    """The browser of all tests."""
    assert PATH is not None
    with Browser(PATH) as one:
        yield one


@pytest.fixture
def browser(process: Browser) -> Browser:
    """The browser with a new page."""
    process.new_page()
    return process


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "whole.html"
    file.write_text(html_page.page(matrix_examples.largest()), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "kinds.html"
    file.write_text(html_page.page(matrix_examples.every_kind()), encoding="utf-8")
    return file


def colours(png: bytes) -> int:
    """How many different rows of pixels a PNG has, before their filters are undone: 1 or 2 where it is blank."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    at, data, width = 8, b"", 0
    while at < len(png):
        (length,), kind = struct.unpack(">I", png[at : at + 4]), png[at + 4 : at + 8]
        body = png[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width = struct.unpack(">I", body[:4])[0] * {2: 3, 6: 4}[body[9]] + 1
        data += body if kind == b"IDAT" else b""
        at += length + 12
    raw = zlib.decompress(data)
    return len({raw[start : start + width] for start in range(0, len(raw), width)})


def test_it_loads_without_a_complaint_and_without_a_network(browser: Browser, whole: Path) -> None:
    browser.open(whole)
    assert browser.complaints == []
    assert set(browser.requests) == {whole.as_uri()}
    made = matrix_examples.largest()
    assert browser.value("document.querySelectorAll('.matrix td a').length") == len(made.cells)
    assert "SIMULATED" in browser.value("document.body.innerText.slice(0, 200)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
def test_it_is_not_blank_and_no_wider_than_its_window(browser: Browser, whole: Path, width: int, scheme: str) -> None:
    browser.scheme(scheme)
    browser.resize(width, 800)
    browser.open(whole)
    assert colours(browser.screenshot()) > 100
    assert browser.value("document.documentElement.scrollWidth <= innerWidth")
    light = browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert light == (scheme == "light")


def test_a_check_of_14_victims_fits_1280_pixels(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "check.html"
    recorded = Path(__file__).parents[1] / "gpu" / "recorded" / "check-h200x2-1.json.gz"
    file.write_text(html_page.page(check_file.load(recorded)), encoding="utf-8")
    browser.resize(1280, 800)
    browser.open(file)
    scroll = "document.querySelector('.scroll')"
    assert browser.value(f"{scroll}.scrollWidth <= {scroll}.clientWidth")


def test_a_click_opens_a_cell_and_escape_closes_it(browser: Browser, kinds: Path) -> None:
    browser.open(kinds)
    assert browser.value(SEEN) == []
    browser.click("td.starved a")
    (opened,) = browser.value(SEEN)
    assert browser.value(f"document.getElementById('{opened}').innerText.includes('launch: starved')")
    assert browser.value(f"document.querySelector('#{opened} svg').getBoundingClientRect().height > 20")
    assert browser.value("location.hash") == f"#{opened}"
    browser.key("Escape")
    assert browser.value(SEEN) == []
    assert browser.value("document.activeElement.hash") == f"#{opened}"
    assert browser.complaints == []


def test_the_open_cell_is_not_hidden_by_its_own_histograms(browser: Browser, whole: Path) -> None:
    browser.resize(420, 700)
    browser.open(whole)
    browser.click(".matrix tbody tr:last-child td:last-child a")
    hidden = (
        "document.querySelector('[aria-current]').getBoundingClientRect().bottom"
        " > document.querySelector('.cells').getBoundingClientRect().top"
    )
    assert browser.value(hidden) is False


def test_arrows_go_from_cell_to_cell_and_tab_stops_once(browser: Browser, kinds: Path) -> None:
    browser.open(kinds)
    browser.click("td.starved a")
    first = browser.value("location.hash")
    browser.key("ArrowRight")
    second = browser.value("location.hash")
    assert second != first
    assert browser.value("document.activeElement.hash") == second
    browser.key("ArrowDown")
    browser.key("ArrowLeft")
    browser.key("ArrowUp")
    assert browser.value("location.hash") == first
    for _ in range(30):
        browser.key("ArrowUp")
    assert browser.value(SEEN) == [browser.value("location.hash")[1:]]
    assert browser.value("document.querySelectorAll('.matrix a[tabindex=\"0\"]').length") == 1


def test_a_finding_leads_to_its_cell(browser: Browser, kinds: Path) -> None:
    browser.open(kinds)
    browser.click(".finding a")
    assert browser.value(SEEN) == [browser.value("document.querySelector('.finding a').hash.slice(1)")]


def test_a_link_to_a_cell_opens_it(browser: Browser, kinds: Path) -> None:
    browser.open(kinds, "#c0-1")
    assert browser.value(SEEN) == ["c0-1"]


def test_without_scripts_a_cell_is_a_link_to_its_section(browser: Browser, kinds: Path) -> None:
    browser.scripts(False)
    browser.open(kinds, "#c0-1")
    assert browser.value(SEEN) == ["c0-1"]
    assert browser.value("document.body.className") == ""
    assert browser.complaints == []


def test_what_is_in_a_name_is_never_run(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "hostile.html"
    file.write_text(html_page.page(matrix_examples.hostile(), None, [matrix_examples.EVIL]), encoding="utf-8")
    browser.open(file)
    browser.click("td.stalled a")
    assert browser.complaints == []
    assert set(browser.requests) == {file.as_uri()}
    assert browser.value("document.querySelectorAll('script').length") == 1
    assert "<img src=x" in browser.value("document.querySelector('h1').parentElement.innerText")


def test_a_comparison_marks_what_changed(browser: Browser, tmp_path: Path) -> None:
    old = matrices.made_up(1, drift=0.02)
    new = matrices.made_up(2, drift=0.02, times={("launch", "spin"): 2.0})
    file = tmp_path / "changed.html"
    file.write_text(html_page.page(new, compare.compare(old, new)), encoding="utf-8")
    browser.open(file)
    assert browser.value("[...document.querySelectorAll('.matrix em')].map(e => e.innerText)") == ["WORSE"]
    browser.click(".matrix td a:has(em)")
    assert browser.value("document.querySelectorAll('section.open .h-old').length") == 2
    assert browser.complaints == []


def test_a_button_leaves_the_rows_and_columns_that_changed(browser: Browser, tmp_path: Path) -> None:
    old = matrices.made_up(1, drift=0.02)
    new = matrices.made_up(2, drift=0.02, times={("launch", "spin"): 2.0, ("d2d", "alloc-async"): 2.0})
    file = tmp_path / "changed.html"
    file.write_text(html_page.page(new, compare.compare(old, new)), encoding="utf-8")
    browser.open(file)
    seen = "[...document.querySelectorAll('.matrix th, .matrix td a')].filter(e => e.getClientRects().length)"
    every = browser.value(f"{seen}.length")
    browser.click(".changes")
    assert browser.value(f"{seen}.map(e => e.innerText.trim().split(/\\s+/)[0])") == [
        "beside", "launch", "d2d", "spin", "·", "·", "alloc-async", "·", "·"
    ]  # fmt: skip
    browser.click("td.changed a")
    first = browser.value("location.hash")
    browser.key("ArrowRight")
    assert browser.value("location.hash") != first
    browser.key("ArrowLeft")
    assert browser.value("location.hash") == first
    browser.key("Escape")
    browser.click(".changes")
    assert browser.value(f"{seen}.length") == every
    assert browser.complaints == []


def test_it_can_be_printed(browser: Browser, whole: Path) -> None:
    browser.open(whole)
    browser.click("td.stalled a")
    assert browser.printed().startswith(b"%PDF")
