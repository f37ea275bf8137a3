"""Tests of benchmarks/task.py: tasks and orders round-trip through JSON."""

from benchmarks.task import CASES, Order, Task


def test_a_task_comes_back_as_it_was() -> None:
    for case in CASES.values():
        assert Task.from_json(case.task.to_json()) == case.task


def test_an_order_comes_back_as_it_was() -> None:
    order = Order("ours", "trio", CASES["calls"].lasting(1.0), {"address": "tcp://127.0.0.1:1"})
    assert Order.from_text(order.to_text()) == order


def test_a_payload_has_its_size() -> None:
    for size in (1, 128, 256, 1000):
        assert len(Task(work="calls", seconds=1, size=size).payload) == size
