"""What kills or cuts takes as long as `--rounds` of that take, and a minute for the rest."""

from collections.abc import AsyncIterator

import pytest

from parley._node.testing import ConnectedNodes
from tests.node.network import meeting

AROUND = 60
A_ROUND = 2.0  # seconds, of a busy machine


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    rounds: int = config.getoption("--rounds")
    for item in items:
        if "rounds" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(rounds * A_ROUND + AROUND))


@pytest.fixture
def every_cut(request: pytest.FixtureRequest) -> bool:
    """Whether resumed sessions are cut wherever they can be."""
    return bool(request.config.getoption("--every-cut"))


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    """How many processes are killed, over all tests of a file that kill; or transports cut, in
    each test that cuts."""
    rounds: int = request.config.getoption("--rounds")
    return rounds


@pytest.fixture
async def met(anyio_backend: str) -> AsyncIterator[ConnectedNodes]:
    """Two nodes with default settings that are connected over memory."""
    async with meeting() as met:
        yield met
