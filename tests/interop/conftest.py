"""Fixtures for tests with other implementations: the program of the crate bromine, and services of
Lightbus.

Tests are skipped if cargo, Python 3.9, redis-server or packages are missing, with that reason. An
available implementation that doesn't work is a failure.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from parley._node.bus.redis.format import Layout
from tests.interop import lightbus_environment
from tests.interop.bromine_peer import NotAvailableError, build
from tests.interop.lightbus_peer import LightbusBeside, LightbusService
from tests.redis_server import PROGRAM, RedisServer, redis_program

# Cargo's directories hold no tests, and are many; the service is a program of Python 3.9.
collect_ignore = ["bromine", "lightbus_service"]


@pytest.fixture(scope="session")
def bromine_program() -> Path:
    """The program of tests/interop/bromine, built at the first use of a run."""
    try:
        return build()
    except NotAvailableError as error:
        pytest.skip(f"no bromine to talk to: {error}")


@pytest.fixture(scope="session")
def lightbus_is_there() -> None:
    """Skips where there is no redis-server, or no environment for Lightbus."""
    if redis_program() is None:
        pytest.skip(f"there is no {PROGRAM} on this machine")
    try:
        lightbus_environment.lightbus_command()
    except lightbus_environment.NotAvailableError as error:
        pytest.skip(f"no Lightbus to talk to: {error}")


@pytest.fixture(scope="module", params=get_args(Layout))
def layout(request: pytest.FixtureRequest) -> Layout:
    """How the streams are laid out, for all tests of a module."""
    found: Layout = request.param
    return found


@pytest.fixture(scope="module")
def beside(layout: Layout, lightbus_is_there: None) -> Iterator[LightbusBeside]:
    """Start a service of Lightbus with its own Redis, shared by all tests of a module with this
    layout.
    """
    with RedisServer() as server, LightbusService(server, layout) as service:
        yield LightbusBeside(server, service, layout)
