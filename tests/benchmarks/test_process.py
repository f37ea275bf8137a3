"""Tests of benchmarks/process.py: processor time is charged to the process that used it."""

import os
import time
from time import process_time

import psutil
import pytest

from benchmarks import process
from benchmarks.process import Meter, busy_seconds, process_seconds, wait_until_quiet


def burn(seconds: float) -> None:
    end = process_time() + seconds
    while process_time() < end:
        pass


def test_a_process_is_charged_for_what_it_used() -> None:
    before = process_seconds(os.getpid())
    burn(0.03)
    used = process_seconds(os.getpid()) - before
    assert 0.03 <= used < 1
    times = psutil.Process().cpu_times()
    assert abs(process_seconds(os.getpid()) - times.user - times.system) < 0.1


def test_a_meter_tells_ours_from_others() -> None:
    meter = Meter(os.getpid())
    burn(0.02)
    (used,), others = meter.read()
    assert used >= 0.02
    assert others >= 0


def test_the_machine_is_busy_at_times() -> None:
    assert busy_seconds() > 0


def test_waiting_for_quiet_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    monkeypatch.setattr(process, "NOISE", -1.0)  # never quiet
    wait_until_quiet(limit=0.0)
    assert waits == []
    wait_until_quiet(limit=0.01)
    assert waits


def test_a_quiet_machine_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    monkeypatch.setattr(process, "NOISE", 1e9)
    wait_until_quiet(limit=60.0)
    assert waits == [process.LOOK]
