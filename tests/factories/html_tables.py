"""Tables of HTML that a notebook shows, read back: every element is closed, and has no attribute that acts."""

from __future__ import annotations

from html.parser import HTMLParser


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tables: list[tuple[str, list[list[str]]]] = []
        self._open: list[str] = []
        self._text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ("table", "caption", "thead", "tbody", "tr", "th", "td")
        assert {name for name, _ in attrs} <= {"style", "title"}
        self._open.append(tag)
        self._text = ""
        if tag == "table":
            self.tables.append(("", []))
        elif tag == "tr":
            self.tables[-1][1].append([])

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        if tag == "caption":
            self.tables[-1] = (self._text, self.tables[-1][1])
        elif tag in ("th", "td"):
            self.tables[-1][1][-1].append(self._text)

    def handle_data(self, data: str) -> None:
        self._text += data


def tables(text: str) -> list[tuple[str, list[list[str]]]]:
    """The tables of ``text``: the caption, and the cells of each row."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert not reader._open
    return reader.tables
