"""Tests of tests/scheduling.py: each group is given out as a whole, and each module has a process
that imports it first."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.scheduling import PIECE, import_share, in_order, pieces


@pytest.mark.parametrize(
    ("worker", "args", "imported"),
    [
        ("gw0", ["shared"], {"shared.deep.test_b"}),
        ("gw1", ["shared"], {"shared.test_a", "shared.test_d"}),
        ("gw0", ["shared/test_a.py"], set()),
        (None, ["shared"], set()),
    ],
    ids=["first", "second", "of a part", "of all in one process"],
)
def test_each_process_imports_a_share_first(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    worker: str | None,
    args: list[str],
    imported: set[str],
) -> None:
    for name in ("deep/test_b", "test_a", "test_d"):
        path = tmp_path / f"shared/{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "shared/test_c.py").write_text("import of a broken module")  # the first's
    monkeypatch.syspath_prepend(tmp_path)
    config: Any = SimpleNamespace(args=args, rootpath=tmp_path, getini=lambda _: ["shared"])
    if worker is not None:
        config.workerinput = {"workerid": worker, "workercount": 2}
    before = set(sys.modules)
    try:
        import_share(config)
        found = {name for name in set(sys.modules) - before if "test_" in name}
    finally:
        for name in set(sys.modules) - before:
            del sys.modules[name]
    assert found == imported


def test_a_group_is_one_piece_and_a_file_is_several() -> None:
    spark = [f"tests/pipeline/test_{name}.py::test_it" for name in ("a", "b", "c/d")]
    one = [f"tests/node/test_a.py::test_it[{number}]" for number in range(2 * PIECE + 1)]
    other = ["tests/node/test_b.py::test_it"]
    found = pieces([*spark, *one, *other])
    assert {found[test] for test in spark} == {"spark"}
    assert len({found[test] for test in one}) == 3
    assert len({found[test] for test in one[:PIECE]}) == 1
    assert found[other[0]] not in {found[test] for test in (*spark, *one)}


def test_what_needs_spark_is_in_its_place_and_first(request: pytest.FixtureRequest) -> None:
    items = list(request.session.items)
    in_order(items)
    places = [item.nodeid.startswith("tests/pipeline/") for item in items]
    assert places == sorted(places, reverse=True)
    for item in items:
        if item.get_closest_marker("spark"):
            assert [mark.args for mark in item.iter_markers("xdist_group")] == [("spark",)]


@pytest.mark.xdist_group("lightbus")
def misplaced() -> None:
    """As a test would be that is not where the tests of its group are."""


def test_a_test_that_is_not_with_its_group_is_an_error(request: pytest.FixtureRequest) -> None:
    item = pytest.Function.from_parent(request.node.parent, name="misplaced", callobj=misplaced)
    with pytest.raises(pytest.UsageError, match="misplaced"):
        in_order([item])
