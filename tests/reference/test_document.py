"""The lists in the document and in the vectors' README match their subjects."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from parley._node.trust.words import EVEN, ODD
from tests.reference.wire import CELLS, TYPES
from tests.vectors.build import FILES, HERE

DOCS: Final = Path(__file__).parents[2] / "docs"
PROTOCOL: Final = (DOCS / "protocol.md").read_text("utf-8")
PARTS: Final = {path.stem: path.read_text("utf-8") for path in (DOCS / "protocol").glob("*.md")}
README: Final = (HERE / "README.md").read_text("utf-8")
_STANDARD: Final = re.compile(r"RFC \d+|FIPS \d+|draft-[a-z0-9-]+")


def test_every_standard_is_in_the_table() -> None:
    head, rest = PROTOCOL.split("\n### Sections\n", 1)
    named = set(_STANDARD.findall("".join([rest, *PARTS.values()])))
    assert len(named) > 8
    assert named <= set(_STANDARD.findall(head))


def test_the_words_of_short_codes_are_in_the_document() -> None:
    appendix = PARTS["short-codes"].split("## Appendix E.")[1]
    first, second = re.findall(r"^```text\n([a-z\s]+)```", appendix, re.MULTILINE)
    assert (first.split(), second.split()) == (list(ODD), list(EVEN))
    assert len(first.split()) == len(second.split()) == 256


def _words_of(vectors: list[dict[str, Any]]) -> Iterator[str]:
    """The names of fields, kinds and failures in vectors, and of fields in their expectations."""
    for vector in vectors:
        yield from vector
        yield from (vector[key] for key in ("kind", "state") if key in vector)
        for key in ("fails", "also"):
            if key in vector and not vector[key].isdigit():
                yield vector[key]


def test_the_readme_lists_every_name() -> None:
    """Fields, kinds and failures of the vectors, and the names of events and cells in them."""
    listed = set(re.findall(r"`([^`]+)`", README))
    for name in FILES:
        if name != "recorded.json":
            vectors = json.loads((HERE / name).read_text("utf-8"))["vectors"]
            missing = sorted(set(_words_of(vectors)) - listed)
            assert not missing, (name, missing)
    numbered = {f"{number} {name}" for name, number in CELLS.items()}
    numbered |= {f"{a}/{b} {name}" for name, (a, b) in TYPES.items()}
    assert sorted(numbered - listed) == []
