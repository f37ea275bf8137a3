"""A machine without the blake3 package: which algorithms are offered, and how an audit reports
it.
"""

import os
from pathlib import Path

import pytest

from tests.node.cli.processes import Processes

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[4]

LACKS = "hash 'blake3' needs Parley's extra 'fast'"


@pytest.fixture
def without(tmp_path: Path) -> dict[str, str]:
    """An environment in which it cannot be imported."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "blake3.py").write_text("raise ImportError\n")
    return {"PYTHONPATH": f"{hidden}{os.pathsep}{ROOT}"}


def test_it_is_neither_offered_nor_taken(processes: Processes, without: dict[str, str]) -> None:
    doctor = processes.start("doctor", "--json", environment=without)
    call = ("call", "tcp://127.0.0.1:1", "x", "--hash", "blake3")
    assert processes.start(*call, environment=without).finish() == (2, "", f"parley: {LACKS}\n")
    said = doctor.finish().lines
    (works,) = (line["text"] for line in said if line.get("subject") == "algorithms")
    assert "sha256, blake2b-256, sha512" in works
    assert "blake3" not in works


def test_an_audit_says_what_is_missing_and_finds_no_fault(
    processes: Processes, journals: Path, without: dict[str, str]
) -> None:
    arguments = ("journal", "verify", str(journals), "--json")
    done = processes.start(*arguments, environment=without).finish()
    assert done.code == 2
    said = {"code": 2, "kind": "exit", "name": "usage", "exit": 2, "text": LACKS}
    assert done.last == {"event": "error", **said}
