"""Long runs may take longer than other tests: `--soak-seconds`, and two minutes more."""

import pytest

AROUND = 120


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seconds: float = config.getoption("--soak-seconds")
    for item in items:
        if "soak_seconds" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(seconds + AROUND))


@pytest.fixture
def soak_seconds(request: pytest.FixtureRequest) -> float:
    """How long full load lasts."""
    seconds: float = request.config.getoption("--soak-seconds")
    return seconds
