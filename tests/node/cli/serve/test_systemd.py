"""Tests of node/cli/serve/systemd.py with a real datagram socket."""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from parley._node.cli.serve.systemd import LONGEST_STATUS, Supervisor
from tests.node.cli.conftest import Parley
from tests.node.cli.processes import Processes


@contextmanager
def listening(address: str) -> Iterator[socket.socket]:
    """The supervisor's end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(address)
        end.settimeout(10)
        yield end


def said(end: socket.socket) -> list[str]:
    """The lines of the next datagram."""
    return end.recv(4_096).decode().split("\n")


def test_a_life(tmp_path: Path) -> None:
    with listening(str(tmp_path / "notify")) as end:
        supervisor = Supervisor({"NOTIFY_SOCKET": str(tmp_path / "notify")})
        supervisor.ready("listening\nREADY=0" + "x" * 500)
        ready, status = said(end)
        assert (ready, status[:26]) == ("READY=1", r"STATUS=listening\nREADY=0x")
        assert len(status) == len("STATUS=") + LONGEST_STATUS
        with supervisor.reloading():
            reloading, clock = said(end)
            assert reloading == "RELOADING=1"
            assert int(clock.removeprefix("MONOTONIC_USEC=")) > 0
        assert said(end) == ["READY=1"]
        supervisor.stopping()
        assert said(end)[0] == "STOPPING=1"


def test_an_abstract_socket() -> None:
    name = f"parley-test-{os.getpid()}"
    with listening(f"\0{name}") as end:
        Supervisor({"NOTIFY_SOCKET": f"@{name}"}).stopping()
        assert said(end)[0] == "STOPPING=1"


@pytest.mark.anyio
async def test_signs_of_life_come_in_time(anyio_backend: str, tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    watched = {"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "30000", "WATCHDOG_PID": str(os.getpid())}
    with listening(path) as end:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Supervisor(watched).keep_alive)
            for _ in range(3):
                assert await anyio.to_thread.run_sync(said, end) == ["WATCHDOG=1"]
            tasks.cancel_scope.cancel()


@pytest.mark.anyio
@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "9", "WATCHDOG_PID": "1"},
    ],
)
async def test_without_a_watchdog_there_are_none(
    anyio_backend: str, environ: dict[str, str]
) -> None:
    with anyio.fail_after(5):
        await Supervisor(environ).keep_alive()


def test_who_does_not_listen_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = Supervisor({"NOTIFY_SOCKET": str(tmp_path / "nobody")})
    with caplog.at_level(logging.WARNING):
        supervisor.ready("here")
        supervisor.stopping()
    assert caplog.messages == ["cannot notify the supervisor of READY=1: No such file or directory"]


def test_a_supervisor_that_reads_nothing_holds_nobody_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with listening(str(tmp_path / "notify")):
        supervisor = Supervisor({"NOTIFY_SOCKET": str(tmp_path / "notify")})
        while not caplog.records:  # until its queue is full
            supervisor.ready("here")
    assert "READY=1" in caplog.messages[0]


def test_a_served_node_is_a_service(processes: Processes, parley: Parley, tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    watched = {"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "60000000"}
    with listening(path) as end:
        running = processes.start("serve", "--json", environment=watched)
        ready, status = said(end)
        (address,) = running.event("ready")["addresses"]
        assert (ready, status) == ("READY=1", f"STATUS=listening on {address}")
        assert said(end) == ["WATCHDOG=1"]
        assert parley("call", address, "parley.echo", "hello").out == "hello\n"
        assert running.stop().code == 0
        assert said(end) == ["STOPPING=1", "STATUS=closing connections"]
