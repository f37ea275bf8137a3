"""A longer time limit for long runs: `--soak-seconds` and two minutes for setup and shutdown."""

import pytest

AROUND = 120


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seconds: float = config.getoption("--soak-seconds")
    for item in items:
        if "soak_seconds" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(seconds + AROUND))


@pytest.fixture
def soak_seconds(request: pytest.FixtureRequest) -> float:
    """Return the duration of the full load."""
    seconds: float = request.config.getoption("--soak-seconds")
    return seconds
