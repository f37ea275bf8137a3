"""Crash tests take as long as `--rounds` kills take, and a minute for what is around them."""

import pytest

AROUND = 60
A_ROUND = 2.0  # seconds, of a busy machine


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    rounds: int = config.getoption("--rounds")
    for item in items:
        if "rounds" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(rounds * A_ROUND + AROUND))


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    """How many processes are killed, over all tests of a file that kill."""
    rounds: int = request.config.getoption("--rounds")
    return rounds
