"""Fixtures of more than one file."""

from collections.abc import Iterator

import pytest

from tests.security.exchanges import Exchanges, watched_exchanges


@pytest.fixture
def exchanges() -> Iterator[Exchanges]:
    """All that key exchanges make while a test runs."""
    with watched_exchanges() as exchanges:
        yield exchanges
