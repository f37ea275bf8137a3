"""The benchmark of the bus runs for a moment, without Lightbus; no time is asserted."""

import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.bus import __main__ as bus
from tests.redis_server import RedisServer


def test_what_can_run_is_measured(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert redis_server.running  # skips on a machine without one
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "uv" else which(name))
    with ExitStack() as stack:
        sides, left_out = bus.open_sides(stack, "no")
        assert left_out == {"lightbus": "uv is not installed"}
        rows = [bus.measure(case, sides, 0.02, rounds=1, quiet=0) for case in bus.CASES]
    for row in rows:
        assert row["sqlite"] > 0
        assert row["tcp"] > 0
        assert row["redis"] > 0
    assert [list(row["ratios"]) for row in rows] == [
        ["tcp by sqlite"],
        ["tcp by sqlite"],
        ["tcp by sqlite", "redis by sqlite"],
    ]


def test_without_a_server_redis_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus, "redis_program", lambda: None)
    with ExitStack() as stack:
        sides, left_out = bus.open_sides(stack, "no")
    assert list(sides) == ["sqlite", "tcp"]
    assert left_out == dict.fromkeys(("redis", "lightbus"), "there is no redis-server")


def test_a_ratio_is_of_one_round() -> None:
    values = iter([1.0, 100.0, 400.0, 20.0, 200.0, 1.0])  # the second round is in reverse order

    def run(case: str, seconds: float) -> float:
        return next(values)

    row = bus.measure("publish-1", dict.fromkeys(("sqlite", "lightbus", "redis"), run), 1, 2, 0)
    assert row["ratios"] == {"redis by lightbus": [2.05, 0.1, 4.0]}
    assert "redis by lightbus" in bus.line(row)


def test_a_python_that_does_not_run_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim, python = tmp_path / "python3.9", tmp_path / "versions" / "3.9.1" / "bin" / "python"
    python.parent.mkdir(parents=True)
    for path, code in ((shim, 127), (python, 0)):
        path.write_text(f"#!/bin/sh\nexit {code}\n")
        path.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert bus.find_python() == str(python)
    python.unlink()
    assert bus.find_python() == "3.9"
