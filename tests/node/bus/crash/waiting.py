"""Waits for other processes."""

import time
from collections.abc import Callable
from typing import Final

PATIENCE: Final = 25.0


def until(condition: Callable[[], bool]) -> None:
    give_up = time.perf_counter() + PATIENCE
    while not condition():
        assert time.perf_counter() < give_up, "nothing happens"
        time.sleep(0.002)
