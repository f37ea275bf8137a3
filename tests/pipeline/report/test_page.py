"""The page is complete, and peers can't inject executable content."""

from base64 import b64decode, b64encode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

import parley._pipeline.report
from parley._pipeline.gold.finding_texts import UNCHECKED
from parley._pipeline.report.cells import page_id
from parley._pipeline.report.page import render
from parley._pipeline.report.report_data import FindingKind
from tests.pipeline.report.page_data import (
    HOSTILE,
    ONE,
    OTHER,
    START,
    hostile_figures,
    no_figures,
)

_EMPTY = {"img", "meta"}
_TAGS = {
    "html", "head", "title", "style", "body", "header", "nav", "main", "section", "h1", "h2", "p",
    "a", "ul", "li", "dl", "dt", "dd", "div", "span", "strong", "em", "bdi", "code", "figure",
    "figcaption", "table", "caption", "thead", "tbody", "tr", "th", "td", "script", *_EMPTY,
}  # fmt: skip


class Page(HTMLParser):
    """What a page is made of; asserts that each element is closed where it must be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.scripts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in _EMPTY:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        (self.scripts if self._open[-1:] == ["script"] else self.text).append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of each such element."""
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def text() -> str:
    return render(hostile_figures())


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def test_nothing_in_it_runs_or_loads(page: Page) -> None:
    assert {tag for tag, _ in page.elements} <= _TAGS
    for tag, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on")]
        assert "style" not in attributes
        for name in ("href", "src"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:image/svg+xml;base64,")), tag
    policy = [one for one in page.all("meta") if one.get("http-equiv")]
    # One script, identified by its hash; a peer's text can't match it.
    [script] = page.scripts
    assert script == (Path(parley._pipeline.report.__file__).parent / "tables.js").read_text(
        "utf-8"
    )
    known = b64encode(sha256(script.encode()).digest()).decode()
    assert policy == [
        {
            "http-equiv": "Content-Security-Policy",
            "content": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
            f"script-src 'sha256-{known}'",
        }
    ]
    for loads in ("innerHTML", "fetch", "XMLHttpRequest", "import(", "eval"):
        assert loads not in script
    # It precedes everything that it refers to.
    assert page.elements[2][1].get("charset") == "utf-8"
    assert page.elements[3][1] == policy[0]


def test_strangers_names_are_text_and_visible(text: str, page: Page) -> None:
    shown = "".join(page.text)
    for name in HOSTILE[:5]:
        assert name in shown
    assert "a\\u{202e}gnp.exe\\u{0}\\u{2028}" in shown
    assert "\\u{d800} alone" in shown
    assert "x" * 81 not in shown.replace("x" * 600, "")  # evidence has more room
    for unseen in "\u202e\u2028\0":
        assert unseen not in text
    assert text.encode("utf-8")


def test_pictures_are_whole_and_inert(page: Page) -> None:
    images = page.all("img")
    assert len(images) == 5
    for image in images:
        assert len(image["alt"] or "") > 80
        svg = b64decode((image["src"] or "").partition(",")[2])
        root = ElementTree.fromstring(svg)  # noqa: S314  # made here
        tags = {element.tag.rpartition("}")[2] for element in root.iter()}
        assert not tags & {"script", "foreignObject", "image", "a", "animate", "set"}
        for element in root.iter():
            for name, value in element.attrib.items():
                assert not name.lower().startswith("on")
                assert not name.endswith("href") or value.startswith("#")
        assert b"http" not in svg.replace(b"http://www.w3.org/", b"")
        assert b"prefers-color-scheme" in svg
        assert b"currentColor" in svg


def test_it_can_be_read_without_seeing_it(page: Page) -> None:
    assert page.all("html") == [{"lang": "en"}]
    tags = [tag for tag, _ in page.elements]
    assert tags.count("table") == tags.count("caption") == tags.count("thead") == 18
    assert all(one["scope"] in {"row", "col"} for one in page.all("th"))
    ids = [one["id"] for _, one in page.elements if "id" in one]
    assert len(ids) == len(set(ids))
    assert {one["href"] for one in page.all("a")} <= {f"#{id}" for id in ids}
    assert f"node-{ONE}" in ids


def test_a_finding_leads_to_its_session_and_to_its_events(text: str, page: Page) -> None:
    links = [one["href"] for one in page.all("a")]
    ids = [one["id"] for _, one in page.elements if "id" in one]
    place = page_id("5e" * 32)
    # From its finding, twice, from the table of sessions, and three times from ended IDs.
    assert links.count(f"#{place}") == 6
    assert "kind-gap" in ids
    assert "#kind-gap" in links
    section = text.split(f'id="{place}"', 1)[1].split("</section>", 1)[0]
    assert "1 finding about this session." in section
    assert "Events near findings" in section
    assert section.count("<code>call</code>") == len(HOSTILE)


def test_cells_are_sorted_by_numbers_and_not_by_what_is_shown(page: Page) -> None:
    keys = [
        one["data-key"] for tag, one in page.elements if tag in {"td", "th"} and "data-key" in one
    ]
    assert str(10**6) in keys  # shown as 977 KiB
    assert str(START) in keys


def test_nodes_have_the_names_that_the_reader_knows() -> None:
    shown = "".join(Page(render(hostile_figures(), {ONE: "Alice", OTHER: HOSTILE[0]})).text)
    assert "Alice" in shown
    assert HOSTILE[0][:24] in shown


def test_what_is_cut_off_says_how_to_get_it() -> None:
    figures = replace(hostile_figures(), sessions=1_000)
    shown = "".join(Page(render(figures)).text)
    assert "The first 2 of 1,000; use --rows to show more." in shown


def test_it_is_the_same_each_time(text: str) -> None:
    assert render(hostile_figures()) == text


@pytest.mark.parametrize(
    ("kinds", "journaled", "verdict", "look"),
    [
        ([], 10, "No faults found.", "good"),
        ([FindingKind("notice", "torn", 2, 0, 1)], 10, "No faults found.", "good"),
        (
            [FindingKind(UNCHECKED, "missing-journal", 1, 3, 1)],
            10,
            "No faults found in the records that could be checked.",
            "unchecked",
        ),
        ([FindingKind("fault", "gap", 1, 3, 1)], 10, "1 fault found.", "fault"),
        ([FindingKind("unheard of", "gap", 2, 3, 1)], 10, "2 faults found.", "fault"),
        ([], 0, "The tables contain no events to check.", "unchecked"),
    ],
)
def test_the_verdict(kinds: list[FindingKind], journaled: int, verdict: str, look: str) -> None:
    figures = replace(
        no_figures(), finding_kinds=kinds, journaled=journaled, verified=journaled, journals=1
    )
    page = Page(render(figures))
    assert verdict in page.text
    assert f"verdict {look}" in [one.get("class") for one in page.all("p")]


def test_a_report_of_nothing() -> None:
    page = Page(render(no_figures()))
    assert not page.all("img")
    assert "The tables have no events." in page.text
