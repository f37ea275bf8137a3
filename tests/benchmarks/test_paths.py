"""Function calls of each path: what is counted, and that the way of a call stays short."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from benchmarks.paths import PACKAGES, PATHS, count_paths, line
from benchmarks.tables import paths_table

# Function calls, both sides together: of one call, alone and of 64 in flight, and of a connection
# with one call.
MOST: dict[str, float] = {"call": 130, "call-64": 73, "handshake": 1_450}
# How many of them resuming may add: a Received follows on 256 KiB.
RESUMING: dict[str, float] = {"call-64": 3, "bulk": 12}


def counted(names: Iterable[str] = PATHS) -> list[dict[str, Any]]:
    return count_paths(count=128, beside={"PARLEY_NODE_RESUME": "0"}, names=names)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return counted()


def test_every_path_is_counted_by_package(rows: list[dict[str, Any]]) -> None:
    assert [row["path"] for row in rows] == list(PATHS)
    for row in rows:
        assert set(row["packages"]) == PACKAGES
        assert row["calls"] == pytest.approx(sum(row["packages"].values()), abs=0.3)
        assert row["packages"]["crypto"] > 0
        assert row["packages"]["node"] > 10
        assert row["path"] in line(row)


def test_a_call_takes_no_more_steps_than_it_did(rows: list[dict[str, Any]]) -> None:
    """A layer that is added to the way of a call shows here: each costs two to four of these."""
    counts = least_of(rows, lambda row: row["calls"], MOST)
    for path, most in MOST.items():
        assert counts[path] <= most, path
    assert counts["call-64"] < counts["call"]


def test_resuming_adds_few_steps(rows: list[dict[str, Any]]) -> None:
    added = least_of(rows, lambda row: row["calls"] - row["beside"], RESUMING)
    assert all(added[path] <= most for path, most in RESUMING.items()), added


def least_of(
    rows: list[dict[str, Any]], figure: Callable[[dict[str, Any]], float], most: dict[str, float]
) -> dict[str, float]:
    """The figure of each path that `most` names, counted up to twelve times: what is due by the
    clock counts as well, and comes more often on a machine that is busy with something else."""
    least = {row["path"]: figure(row) for row in rows if row["path"] in most}
    for _ in range(11):
        for row in counted([path for path in most if least[path] > most[path]]):
            least[row["path"]] = min(least[row["path"]], figure(row))
    return least


def test_the_table_has_a_row_for_each_path(rows: list[dict[str, Any]]) -> None:
    _, _, *body = paths_table(rows).splitlines()
    assert [text.split(" | ")[0] for text in body] == [f"| {what}" for what, _ in PATHS.values()]
