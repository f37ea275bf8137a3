"""Function calls of each path: what is counted, and that a call takes few of them."""

from typing import Any

import pytest

from benchmarks.paths import PACKAGES, PATHS, count_paths, line

# Function calls of both sides together: of one call, alone and of 64 in flight, of one note, of one
# event of the bus, and of a connection with one call. A new layer on the path of a call adds two to
# four.
MOST = {"call": 119, "call-64": 70, "note": 86, "bus-publish": 252, "handshake": 1_490}
# How many of them resuming may add: a Received follows 256 KiB, and each flush is stored.
RESUMING = {"call-64": 3, "bulk": 14}


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, Any]]:
    found = count_paths(3, beside={"PARLEY_NODE_RESUME": "0"})
    return {row["path"]: row for row in found}


def test_every_path_is_counted_by_package(rows: dict[str, dict[str, Any]]) -> None:
    assert list(rows) == list(PATHS)
    for path, row in rows.items():
        assert set(row["packages"]) == PACKAGES
        assert row["calls"] == pytest.approx(sum(row["packages"].values()), abs=0.3)
        assert row["packages"]["crypto"] > 0
        assert row["packages"]["node"] > 10
        assert path in line(row)


def test_a_call_takes_no_more_steps_than_it_did(rows: dict[str, dict[str, Any]]) -> None:
    assert {
        path: rows[path]["calls"] for path, most in MOST.items() if rows[path]["calls"] > most
    } == {}
    assert rows["call-64"]["calls"] < rows["call"]["calls"]


def test_resuming_adds_few_steps(rows: dict[str, dict[str, Any]]) -> None:
    added = {path: rows[path]["calls"] - rows[path]["beside"] for path in RESUMING}
    assert all(added[path] <= most for path, most in RESUMING.items()), added
