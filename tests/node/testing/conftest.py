"""Check that tests leave no resources open, after their variables are gone; this takes half a
second.
"""

import logging
from collections.abc import Iterator

import pytest
import uvloop

from tests.node.network import nothing_left


@pytest.fixture(scope="session")
def libuv() -> None:
    """Open the file that libuv keeps open permanently."""
    uvloop.new_event_loop().close()


@pytest.fixture
def leaves_nothing(libuv: None, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.CRITICAL)  # a record would hold the peer that it names
    with nothing_left():
        yield
