"""Timeouts for tests that kill processes or cut transports: they depend on `--rounds`."""

from collections.abc import AsyncIterator

import pytest

from parley._node.testing import ConnectedNodes
from tests.node.network import meeting

AROUND = 60
A_ROUND = 2.0  # seconds, on a busy machine


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    rounds: int = config.getoption("--rounds")
    for item in items:
        if "rounds" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(rounds * A_ROUND + AROUND))


@pytest.fixture
def every_cut(request: pytest.FixtureRequest) -> bool:
    """Whether to cut resumed sessions at every possible position."""
    return bool(request.config.getoption("--every-cut"))


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    """The number of processes to kill in all tests of a file, or of transports to cut in each
    test.
    """
    rounds: int = request.config.getoption("--rounds")
    return rounds


@pytest.fixture
async def met(anyio_backend: str) -> AsyncIterator[ConnectedNodes]:
    """Two connected nodes with default settings, over memory."""
    async with meeting() as met:
        yield met
