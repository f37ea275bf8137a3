"""Measured figures as files: docs/performance/NAME.json, with the machine they belong to.

What a document shows is made from these files alone.
"""

import json
from pathlib import Path
from typing import Any

from benchmarks.machine import machine

DOCS = Path(__file__).parent.parent / "docs"
DIRECTORY = DOCS / "performance"


def save(name: str, rows: list[dict[str, Any]], directory: Path = DIRECTORY) -> None:
    """Write rows, one a line, so that a change of one shows as one."""
    directory.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    head = json.dumps(machine())
    text = f'{{\n"machine": {head},\n"rows": [\n{lines}\n]\n}}\n'
    (directory / f"{name}.json").write_text(text)


def load(name: str, directory: Path = DIRECTORY) -> list[dict[str, Any]]:
    """The rows of a file; none if it was never written."""
    return list(_read(name, directory).get("rows", []))


def machine_of(name: str, directory: Path = DIRECTORY) -> dict[str, str]:
    """Where the rows were measured."""
    return dict(_read(name, directory).get("machine", {}))


def _read(name: str, directory: Path) -> dict[str, Any]:
    path = directory / f"{name}.json"
    if not path.exists():
        return {}
    found: dict[str, Any] = json.loads(path.read_text())
    return found
