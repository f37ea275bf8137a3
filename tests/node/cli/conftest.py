"""What the tests of the command line share: processes, one server, and `parley` in here."""

import io
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest

from parley._node.cli.main import main
from tests.node.cli.processes import Finished, Processes

NAME = "shop.ordered"
Publish = Callable[..., list[str]]

Parley = Callable[..., Finished]


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """Commands set up the root logger of their process, which here is everybody's."""
    root = logging.getLogger()
    handlers = list(root.handlers)
    loggers = [root, *map(logging.getLogger, ("parley.access", "coredis"))]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
    root.handlers[:] = handlers


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test a separate home directory."""
    monkeypatch.setenv("PARLEY_HOME", str(tmp_path / "home"))


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Processes that end with the test."""
    made = Processes(tmp_path)
    yield made
    made.end()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address, with its node id, of a server that all tests may ask."""
    made = Processes(tmp_path_factory.mktemp("server"))
    try:
        _, addresses = made.serve(topics=True)
        yield addresses[0]
    finally:
        made.end()


@pytest.fixture
def parley(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Parley:
    """Runs a command in this process, which is ten times faster than in its own."""
    monkeypatch.setenv("COLUMNS", "100")

    def run(*args: str, data: bytes = b"") -> Finished:
        monkeypatch.setattr(sys, "argv", ["parley", *args])
        # Some commands read from a file descriptor, which a StringIO doesn't have.
        with TemporaryFile() if data else io.BytesIO() as file:
            file.write(data)
            file.seek(0)
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(file))
            with pytest.raises(SystemExit) as ended:
                main()
        assert isinstance(ended.value.code, int)
        return Finished(int(ended.value.code), *capsys.readouterr())

    return run


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
