"""Tests of tests/alone.py: what a process of its own says of each test."""

import subprocess

import pytest

from tests.alone import is_well

PASSED = "PASSED t.py::a\nPASSED t.py::b\n"


@pytest.mark.parametrize(
    ("code", "said", "well"),
    [
        (0, PASSED, {"a", "b"}),
        (1, "PASSED t.py::a\nFAILED t.py::b - AssertionError\n", {"a"}),
        (1, PASSED + "ERROR t.py::b - a fixture found something\n", {"a"}),
        (1, PASSED, set()),  # as it ended: a socket that nobody had closed
        (0, "PASSED t.py::a\n", {"a"}),
    ],
    ids=["all pass", "one fails", "something left by one", "something left", "one skipped"],
)
def test_a_test_is_well_if_it_passed_and_nothing_is_left(
    code: int, said: str, well: set[str]
) -> None:
    done = subprocess.CompletedProcess([], code, said, "")
    assert {name for name in "ab" if is_well(f"t.py::{name}", done)} == well
