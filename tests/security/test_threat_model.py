"""docs/threat-model.md names a test for each mistake, and for each promise of the dialects, of
journals, of the bus, of federation, of discovery, of short codes, of the console and of metrics:
every one it names is there, and every file of this folder's rows is named in its row.
"""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DOCUMENT = ROOT / "docs" / "threat-model.md"
ROWS = 25

# Tests are linked, modules of the product written as code.
_TEST = re.compile(r"\(\.\./(tests/[\w/]+\.py)\)")
_MODULE = re.compile(r"`([\w/]+\.py)`")


def table() -> dict[int, list[str]]:
    """The table of mistakes: number to the other cells."""
    found = {}
    for line in DOCUMENT.read_text().splitlines():
        number, *cells = [cell.strip() for cell in line.split("|")[1:-1]] or [""]
        if number.isdigit():
            assert int(number) not in found
            found[int(number)] = cells
    return found


def promises(heading: str = "The other dialects") -> dict[str, list[str]]:
    """The table of what a part promises: its letter with 1, 2 and so on to the other cells."""
    section = DOCUMENT.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if re.match(r"\| [A-Z]\d", line)]
    rows = [re.split(r" *\| *", line)[1:-1] for line in lines]
    return {number: cells for number, *cells in rows}


def row_of(file: Path) -> int:
    """The row that a file is about, by its name."""
    found = re.match(r"test_row_(\d\d)_\w+$", file.stem)
    assert found, file.name
    return int(found[1])


def test_every_row_is_there_in_its_order() -> None:
    assert list(table()) == list(range(1, ROWS + 1))


def test_every_row_names_tests_and_what_prevents_the_mistake() -> None:
    for number, (mistake, prevented, tests) in table().items():
        assert mistake
        assert _MODULE.search(prevented), number
        assert _TEST.search(tests), number


@pytest.mark.pure
def test_every_file_it_names_is_there() -> None:
    text = DOCUMENT.read_text()
    named = {*_TEST.findall(text), *_MODULE.findall(text)}
    assert len(named) > ROWS
    assert sorted(path for path in named if not (ROOT / path).is_file()) == []


def test_every_file_of_a_row_is_named_in_its_row() -> None:
    rows = table()
    files = sorted(HERE.glob("test_row_*.py"))
    assert [f.name for f in files if f"/{f.name})" not in rows[row_of(f)][-1]] == []
    assert files


@pytest.mark.parametrize(
    ("heading", "letter", "least"),
    [
        ("The other dialects", "D", 11),
        ("Journals", "J", 9),
        ("The bus", "B", 9),
        ("Federation", "F", 9),
        ("Discovery", "N", 4),
        ("Short codes", "S", 7),
        ("The console and metrics", "W", 9),
    ],
)
def test_every_promise_names_what_keeps_it_and_tests(heading: str, letter: str, least: int) -> None:
    found = promises(heading)
    assert list(found) == [f"{letter}{number}" for number in range(1, len(found) + 1)]
    for number, (promise, kept, tests) in found.items():
        assert promise
        assert _MODULE.search(kept), number
        assert _TEST.search(tests), number
    assert len(found) >= least


@pytest.mark.parametrize(
    ("heading", "about"), [("The other dialects", "dialects"), ("Federation", "federation")]
)
def test_every_file_about_it_is_named(heading: str, about: str) -> None:
    named = {name for _, _, tests in promises(heading).values() for name in _TEST.findall(tests)}
    files = {f"tests/security/{path.name}" for path in HERE.glob(f"test_{about}_*.py")}
    assert files
    assert files <= named


def test_the_first_page_says_that_seals_are_evidence() -> None:
    first_page = DOCUMENT.read_text().split("\n## ")[1]
    assert "can prove to others what you sent" in first_page
    for said in ('deliver="sealed"', "forward secrecy", "rekey", "network key", "audited"):
        assert said in DOCUMENT.read_text().split("\n## What is promised")[0], said
