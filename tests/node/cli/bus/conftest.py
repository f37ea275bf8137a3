"""What the tests of `parley bus` share: a bus in a file, and ways to look at what is printed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.node.cli.conftest import Parley
from tests.node.cli.processes import Finished

NAME = "shop.ordered"
Publish = Callable[..., list[str]]


@pytest.fixture
def bus(tmp_path: Path) -> str:
    """The address of a bus in a file that is not there yet."""
    return f"sqlite:///{tmp_path}/bus.db"


@pytest.fixture
def publish(parley: Parley, bus: str) -> Publish:
    """Publishes so many events, `{"n": 1}` and on, and returns their ids."""

    def many(count: int, name: str = NAME, address: str = bus) -> list[str]:
        data = "".join(f'{{"n": {number + 1}}}\n' for number in range(count)).encode()
        done = parley("bus", "publish", address, name, "--json-lines", data=data)
        assert (done.code, done.err) == (0, "")
        return done.out.split()

    return many


def said(done: Finished, kind: str) -> list[dict[str, Any]]:
    """The JSON lines of one kind."""
    return [line for line in done.lines if line["event"] == kind]
