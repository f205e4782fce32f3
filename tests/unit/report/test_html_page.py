"""The page as text: whole, nothing from outside, nothing obeyed, small. How a browser takes it: see tests/browser."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from factories import matrices, matrix_examples
from stallprobes.latency.histogram import Histogram
from stallprobes.matrix import check_file, findings
from stallprobes.matrix.comparing import compare
from stallscope.report import html_page, svg

LOADING = {"src", "srcset", "href", "data", "action", "formaction", "poster", "background", "ping", "style"}
RECORDED = Path(__file__).parents[2] / "gpu" / "recorded"
VOID = {"meta", "link", "br", "wbr", "use", "path"}
IMPLIED = {"li", "td", "th", "tr", "thead", "tbody", "p"}


class Reader(HTMLParser):
    """The page's elements with their attributes, ids and the text by element."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open[-1] != tag and self.open[-1] in IMPLIED:
            self.open.pop()
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        self.text.setdefault(self.open[-1] if self.open else "", []).append(data)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def kinds() -> str:
    return html_page.page(matrix_examples.every_kind())


def test_every_element_that_is_opened_is_closed(kinds: str) -> None:
    reader = Reader(kinds)
    assert reader.wrong == []
    assert reader.open == []
    ids = [attributes["id"] for _, attributes in reader.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_each_cell_leads_to_a_section_of_its_own(kinds: str) -> None:
    reader = Reader(kinds)
    targets = {f"#{attributes.get('id')}" for _, attributes in reader.elements}
    links = [str(a["href"]) for a in reader.named("a")]
    assert set(links) <= targets
    cells = len(matrix_examples.every_kind().cells)
    assert len({link for link in links if link.startswith("#c")}) == cells
    assert len(reader.named("section")) == cells


@pytest.mark.parametrize("made", [matrix_examples.every_kind, matrix_examples.largest, matrix_examples.hostile])
def test_nothing_is_loaded_from_anywhere(made: object) -> None:
    text = html_page.page(made())  # type: ignore[operator]
    for tag, attributes in Reader(text).elements:
        for name in LOADING & set(attributes):
            assert str(attributes[name]).startswith("#") or (tag, attributes[name]) == ("link", "data:,"), (tag, name)
    style = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert len(style) == 1
    assert "url(" not in style[0]
    assert "@import" not in style[0]


def test_its_policy_allows_its_own_two_blocks_and_nothing_else(kinds: str) -> None:
    policy = next(str(m["content"]) for m in Reader(kinds).named("meta") if m.get("http-equiv"))
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        (block,) = re.findall(rf"<{tag}>(.*?)</{tag}>", kinds, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(block.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_a_name_is_a_name_whatever_is_in_it() -> None:
    text = html_page.page(matrix_examples.hostile(), None, [matrix_examples.EVIL])
    calm = Reader(html_page.page(matrices.made_up(1, times={("launch", "spin"): 30})))
    evil = Reader(text)
    assert evil.wrong == []
    for tag in ("script", "img", "style"):
        assert len(evil.named(tag)) == len(calm.named(tag))
    assert not [a for _, a in evil.elements if any(name.startswith("on") for name in a)]
    assert "alert(1)" in "".join(evil.text["td"])
    assert not any(letter in text for letter in "\x1b\x07‮\ud800")


def cells(text: str) -> dict[str, tuple[str, str]]:
    """Classes and visible text of each cell of the matrix by its accessible name."""
    found = re.findall(r'<td class="([^"]*)"><a href="#[^"]*" title="([^"]*)" aria-label="\2">(.*?)</a>', text)
    return {name: (classes, re.sub("<.*?>", " ", inner).strip()) for classes, name, inner in found}


def test_every_cell_has_its_kind_and_both_ratios_as_its_name(kinds: str) -> None:
    found = cells(kinds)
    assert len(found) == len(matrix_examples.every_kind().cells)
    for kind in ("STALLED", "STARVED", "slower", "drift", "host noise", "invalid", "unsupported", "not reached"):
        assert any(f": {kind}" in name for name in found)
    assert found["launch beside late: STALLED, call from due time p99 ×14000, wait p50 ×1.0"] == ("stalled most", "14k")
    assert found["launch beside starved: STARVED, 0 calls in 0.1 s"] == ("starved", "STARVED")


def test_a_cell_shows_the_larger_ratio_and_a_quiet_one_a_dot(kinds: str) -> None:
    shown = {name.partition(":")[0]: (classes, text) for name, (classes, text) in cells(kinds).items()}
    assert shown["launch beside stalled"] == ("stalled", "10")
    assert shown["d2d beside stalled"] == ("stalled most", "427")
    assert shown["launch beside slower"] == ("slower", "2.0")
    assert shown["launch beside drift"] == ("drift", "2.0 drift")
    assert shown["launch beside calm"] == ("quiet", "·")
    assert shown["d2d beside unsupported"] == ("unsupported", "n/a")


def test_the_legend_has_the_kinds_that_cells_have(kinds: str) -> None:
    legend = kinds[kinds.index('<p id="legend">') :].partition("</p>")[0]
    for kind in ("STALLED", "STARVED", "slower", "drift", "host noise", "invalid", "n/a unsupported", "– not reached"):
        assert f">{kind}</" in legend
    assert "unsteady" not in legend


def test_the_causes_come_before_the_matrix_and_most_of_many_are_folded(kinds: str) -> None:
    assert kinds.index("Worst case and remedy") < kinds.index('<table class="matrix"')
    assert "more cause" not in kinds
    many = check_file.load(RECORDED / "check-h200x2-1.json.gz")
    shown, more, rest = html_page.page(many).partition(f"<summary>{len(findings.groups(many)) - 8} more causes")
    assert more
    assert shown.count('<details class="finding"><summary><span') == 8
    assert rest.count('<details class="finding"><summary><span') == len(findings.groups(many)) - 8


def test_the_table_has_headers_for_rows_and_columns(kinds: str) -> None:
    matrix = matrix_examples.every_kind()
    table = kinds[kinds.index('<table class="matrix"') :].partition("</table>")[0]
    assert table.count("<th scope=col") == len(matrix.rows) + 1
    assert table.count("<th scope=row") == len(matrix.columns)


def test_a_section_has_figures_pictures_cause_and_remedy(kinds: str) -> None:
    section = next(s for s in re.findall(r"<section.*?</section>", kinds) if "launch: stalled" in s and "×10" not in s)
    assert "A remedy for stalled." in section
    assert section.count("<svg ") >= 2
    assert "call, baseline<td>1000<td>" in section
    assert "wait, beside<td>1000<td>" in section


def test_a_call_that_never_came_back_is_in_its_section(kinds: str) -> None:
    section = next(s for s in re.findall(r"<section.*?</section>", kinds) if "launch: starved" in s)
    assert "call, beside<td>0<td>–<td>–<td>–" in section


def test_reasons_fingerprint_and_what_is_unknown_are_told(kinds: str) -> None:
    for words in (
        "all beside unsupported: it needs two GPUs",
        "the clocks were throttled",
        "580.159.04",
        "unknown: the kernel shows no cpufreq governor",
        "CUDA_MODULE_LOADING LAZY",
    ):
        assert words in kinds
    assert "SIMULATED" not in kinds


def test_a_simulated_one_says_so_at_the_top_and_at_the_matrix() -> None:
    text = html_page.page(matrix_examples.largest())
    assert '<p class="simulated">SIMULATED: no GPU was measured. Profile h200, seed 7.</p>' in text
    assert '<p id="legend">SIMULATED h200. ' in text


def test_the_largest_check_stays_below_two_megabytes() -> None:
    assert len(html_page.page(matrix_examples.largest()).encode()) < 2_000_000


def test_a_comparison_is_told_and_marked_in_words() -> None:
    old = matrices.made_up(1, drift=0.02)
    new = matrices.made_up(
        2, drift=0.02, times={("launch", "spin"): 2.0}, fingerprint={**matrices.FINGERPRINT, "driver": "590.2"}
    )
    text = html_page.page(new, compare.compare(old, new))
    assert "<title>stallscope comparison · Made-up GPU · 2026-11-21T10:00:00+00:00 → 2026-11-21" in text
    assert "<h2>What changed</h2>" in text
    changed = [name for name, (classes, _) in cells(text).items() if "changed" in classes]
    assert [name.partition(" (")[0] for name in changed] == [
        "launch beside spin: quiet, call p50 ×2.0, wait p50 ×2.0, WORSE: call p50 2.70 µs → 5.41 µs"
    ]
    assert 'class="changes"' in text
    assert "<td>580.1</td><td>590.2</td>" in text
    assert text.count(">WORSE</em>") == 1
    assert "at most 1 such comparison in 100" in text
    section = next(s for s in re.findall(r"<section.*?</section>", text) if "WORSE" in s)
    assert section.count('class="h-old"') == 2
    assert "call p50 2.7" in section


def test_without_a_change_there_is_no_button_for_changes(kinds: str) -> None:
    made = matrices.made_up(1)
    assert '<button class="changes' not in kinds + html_page.page(made, compare.compare(made, made))


def test_an_empty_check_is_a_page_too() -> None:
    made = matrices.made_up(1, rows=(), columns=())
    assert Reader(html_page.page(made)).wrong == []


def values(*ns: int) -> Histogram:
    return Histogram.of(ns)


def test_all_pictures_share_an_axis_with_room_for_all() -> None:
    axis = svg.Axis.over([values(150), values(40_000_000)])
    assert (axis.low, axis.decades) == (2, 6)
    assert ">100 ns<" in axis.ticks()
    assert ">10 ms<" in axis.ticks()
    assert svg.Axis.over([]).decades >= 1
    assert svg.Axis.over([values(0)]).low == 1


@pytest.mark.parametrize(("ns", "place"), [(1_000, 0), (10_000, 80), (99_000, 156)])
def test_a_value_stands_where_the_axis_says(ns: int, place: int) -> None:
    axis = svg.Axis(3, 5)
    (path,) = re.findall(r'class="x" d="([^"]*)"', axis.svg([("x", values(ns))], "l"))
    assert path == f"M{place} 60v-56h4v56"


def test_one_slow_call_in_a_thousand_can_be_seen() -> None:
    axis = svg.Axis(3, 5)
    (path,) = re.findall(r'class="x" d="([^"]*)"', axis.svg([("x", values(*[2000] * 999, 50_000_000))], "l"))
    assert path.endswith("v-2h4v2")


def test_quiet_stands_behind_what_was_measured(kinds: str) -> None:
    pictures = re.findall(r"<svg viewBox.*?</svg>", kinds)
    layers = {tuple(re.findall(r'<path class="(h-[a-z]+)" d="M\d+ 60', picture)) for picture in pictures}
    assert ("h-quiet", "h-now") in layers
    assert ("h-now", "h-quiet") not in layers
