"""Timeouts for `test_whole_network`: they depend on the simulated hours, `--hours`."""

from math import ceil

import pytest

from tests.node.server.whole.world import Plan

# Simulated hours of one world, and seconds per world and in total on a busy machine.
A_WORLD, AN_HOUR, AROUND = 20.0, 150.0, 60.0


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "plan" not in metafunc.fixturenames:
        return
    hours: float = metafunc.config.getoption("--hours")
    count = ceil(hours / A_WORLD)
    each = hours / count
    worlds = [
        pytest.param(
            Plan(seed=seed, hours=each),
            id=f"seed {seed}",
            marks=pytest.mark.timeout(each * AN_HOUR + AROUND),
        )
        for seed in range(1, count + 1)
    ]
    metafunc.parametrize("plan", worlds)
