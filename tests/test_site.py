"""The documentation site: navigation and links."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.build_site import fetched_elements, page_texts, site_pages, with_links

ROOT = Path(__file__).parent.parent
PAGES = {
    "README.md": "index.md",
    "SECURITY.md": "security.md",
    "docs/calls.md": "calls.md",
    "docs/guides/bus.md": "guides/bus.md",
}


def navigated(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            for place in entry.values():
                yield from [place] if isinstance(place, str) else navigated(place)


def test_the_navigation_has_each_page_once() -> None:
    settings = tomllib.loads((ROOT / "zensical.toml").read_text())
    places = sorted(navigated(settings["project"]["nav"]))
    assert places == sorted(page for page in site_pages().values() if page.endswith(".md"))


def test_each_page_has_a_title() -> None:
    untitled = [page for page, text in page_texts() if page.endswith(".md") and text[:2] != "# "]
    assert untitled == []


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("README.md", "[a](docs/calls.md#x)", "[a](calls.md#x)"),
        ("docs/guides/bus.md", "[a](../calls.md)", "[a](../calls.md)"),
        ("docs/guides/bus.md", "[a](../../README.md#try-it)", "[a](../index.md#try-it)"),
        ("docs/guides/bus.md", "[a](#here)", "[a](#here)"),
        ("SECURITY.md", "[a](https://example.org/x.md)", "[a](https://example.org/x.md)"),
        ("SECURITY.md", "[SECURITY.md](SECURITY.md)", "[Security](security.md)"),
        ("README.md", "[the licence](LICENSE)", "the licence"),
        ("README.md", "[a](absent.md)", "[a](absent.md)"),
        ("README.md", "```\n[a](LICENSE)\n```\n[a](LICENSE)", "```\n[a](LICENSE)\n```\na"),
    ],
)
def test_links_are_adapted_to_the_site(source: str, text: str, expected: str) -> None:
    assert with_links(text, source, PAGES) == expected


@pytest.mark.parametrize(
    ("html", "count"),
    [
        ('<script src="https://cdn.example.org/a.js"></script>', 1),
        ('<link rel="stylesheet" href="//fonts.example.org/css">', 1),
        ('<script src="assets/a.js"></script><a href="https://example.org">x</a>', 0),
    ],
)
def test_elements_from_other_hosts_are_found(html: str, count: int) -> None:
    assert len(fetched_elements(html)) == count
