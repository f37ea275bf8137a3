"""Each case runs once, for a moment, for both sides; no time is asserted."""

import json
from dataclasses import replace
from typing import Any

import psutil
import pytest

from benchmarks.child import IDLE_BEFORE, idle
from benchmarks.ours import Ours
from benchmarks.process import Child, ChildError
from benchmarks.rounds import Round, line, measure, row
from benchmarks.task import CASES, Backend, Order, SideName, Task

pytestmark = pytest.mark.process

SHORT = 0.05
FEW = 4
# Fewer would fit into memory that the server has already.
SOME = 200


def short(name: str) -> Task:
    """The case's task, for a moment, and with small numbers."""
    task = CASES[name].lasting(SHORT)
    return replace(task, count=min(task.count, SOME if task.work == "idle" else FEW))


@pytest.mark.parametrize("name", CASES)
def test_a_case_runs_for_both_sides(name: str) -> None:
    ours = measure(CASES[name].side, short(name), quiet=0)
    baseline = measure(CASES[name].reference, short(name), quiet=0)
    for found in (ours, baseline):
        assert found.operations > 0
        assert found.value > 0
        assert found.client_us > 0
        assert found.server_us > 0
        assert found.lost == 0
    found = json.loads(json.dumps(row(name, CASES[name], [Round(ours, baseline)])))
    assert found["ratio"] == [found["ratio"][0]] * 3
    assert found["cpu_ratio"][0] > 0
    assert line(found).startswith(name)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_idle_connections_are_open_before_the_measurement(anyio_backend: str) -> None:
    task = replace(short("idle-memory"), count=FEW)
    ours = Ours()

    async def line() -> dict[str, Any]:
        return {}

    async with ours.serve(task) as (info, _), ours.client(task, info) as client:
        measured = await idle(client, task, line)
        assert len(client.node.peers) == IDLE_BEFORE
        assert await measured() == {"operations": FEW}
        assert len(client.node.peers) == IDLE_BEFORE + FEW


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_our_side_runs_on_other_loops(backend: Backend) -> None:
    assert measure("ours", short("notes-100-batches"), backend, quiet=0).value > 0


def test_many_streams_on_one_connection() -> None:
    task = Task(work="streams", seconds=SHORT, count=8, connections=3)
    assert measure("ours", task, quiet=0).operations > 0


def test_settings_reach_our_side() -> None:
    settings = {"PARLEY_NODE_LIMITS_MAX_PAYLOAD": "1024"}
    task = Task(work="calls", seconds=SHORT, size=2000, settings=settings)
    with pytest.raises(ChildError):
        measure("ours", task, quiet=0)


@pytest.mark.parametrize("side", ["ours", "baseline"])
def test_children_end(side: SideName) -> None:
    task = short("calls")
    with Child(Order(side, "uvloop", task)) as server:
        info = server.hear()
        with Child(Order(side, "uvloop", task, info)) as client:
            assert client.hear() == {"ready": True}
            assert client.memory > 0
        assert not psutil.pid_exists(client.pid)
    assert not psutil.pid_exists(server.pid)
