"""Timeouts for tests that check many federations: they depend on `--federations`."""

import pytest

AROUND = 60
A_FEDERATION = 60.0  # seconds on a busy machine: 20 orders of up to 200 servers


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    count: int = config.getoption("--federations")
    for item in items:
        if "federations" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(count * A_FEDERATION + AROUND))


@pytest.fixture
def federations(request: pytest.FixtureRequest) -> int:
    """The number of random federations per test; from 100 on, all orders of small federations."""
    count: int = request.config.getoption("--federations")
    return count
