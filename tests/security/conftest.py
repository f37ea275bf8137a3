"""Fixtures used by more than one file."""

from collections.abc import Iterator

import pytest

from tests.security.exchanges import Exchanges, watched_exchanges


@pytest.fixture
def exchanges() -> Iterator[Exchanges]:
    """Record everything that key exchanges create during a test."""
    with watched_exchanges() as exchanges:
        yield exchanges
