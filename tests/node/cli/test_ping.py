"""`parley ping` against a real server, also with --watch."""

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from signal import SIGINT, SIGTERM, Signals
from typing import Any

import anyio
import pytest

import parley._node.cli.ping as ping
from parley._node.cli.options import NodeOptions
from parley._node.cli.output import Output
from parley._node.cli.ping import ConnectionMonitor
from parley._node.testing import FaultyProxy
from tests.node.cli.conftest import Parley
from tests.node.cli.processes import Processes
from tests.node.network import eventually
from tests.node.peer.servers import serving

RESUME = 30.0


def test_ping(parley: Parley, server: str) -> None:
    done = parley("ping", server, "--count", "3", "--interval", "0")
    assert (done.code, done.err) == (0, "")
    *trips, last = done.out.splitlines()
    assert len(trips) == 3
    assert all(server.partition("#")[2] in trip and trip.endswith(" ms") for trip in trips)
    assert last.startswith("3 round trips: median ")


def test_json_of_ping(parley: Parley, server: str) -> None:
    _, first, second, last = parley(
        "ping", server, "--count", "2", "--interval", "0", "--json"
    ).lines
    assert (first["event"], first["number"], second["number"]) == ("pong", 1, 2)
    assert last["event"] == "done"
    assert 0 < last["minimum"] <= last["median"] <= last["maximum"] < 10


class Printed:
    """What a watch printed so far: lines for people, or events."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self._text = ""

    @property
    def lines(self) -> list[str]:
        self._text += self._capsys.readouterr().out
        return self._text.splitlines()

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]

    @property
    def news(self) -> list[dict[str, Any]]:
        """What became of the connection since it was there."""
        _, *events = self.events
        return [event for event in events if event["event"] not in ("pong", "waiting", "done")]

    async def has(self, *kinds: str) -> None:
        """Wait until there are as many news as this, and of these kinds."""
        await eventually(lambda: len(self.news) >= len(kinds))
        assert [event["event"] for event in self.news] == list(kinds)

    async def further_pongs(self, count: int) -> None:
        """Wait for so many round trips from now on."""
        before = len(self.events)
        await eventually(
            lambda: sum(event["event"] == "pong" for event in self.events[before:]) >= count
        )


@asynccontextmanager
async def watching(
    address: str, out: Output, count: int | None = None
) -> AsyncIterator[ConnectionMonitor]:
    """Watch what answers at an address, until the end of the block."""
    options = NodeOptions()
    watch = ConnectionMonitor(out, count, 0.02)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch.run, options, address)
        await eventually(lambda: watch.began)
        yield watch
        tasks.cancel_scope.cancel()
    watch.print_summary()
    watch.done(None)


def test_a_short_option_as_other_programs_have_it(parley: Parley, server: str) -> None:
    assert parley("ping", server, "-c", "2", "--interval", "0", "--json").last["count"] == 2


@pytest.mark.anyio
async def test_json_of_a_watch(anyio_backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    printed = Printed(capsys)
    async with (
        serving(resume=RESUME) as server,
        FaultyProxy(server.address) as proxy,
        watching(proxy.address, Output(True)),
    ):
        await printed.further_pongs(2)
        proxy.cut()
        await printed.has("suspended", "resumed")
        await printed.further_pongs(1)
        proxy.cut()
        await printed.has("suspended", "resumed", "suspended", "resumed")
        assert [event.get("number") for event in printed.news] == [None, 1, None, 2]
        await server.stop()
        await eventually(lambda: printed.news[-1]["event"] == "disconnected")
        await server.start()
        await eventually(lambda: printed.news[-1]["event"] == "connected")
        await printed.further_pongs(1)
    pongs = [event for event in printed.events if event["event"] == "pong"]
    done = printed.events[-1]
    seconds = [pong["seconds"] for pong in pongs]
    assert [pong["number"] for pong in pongs] == list(range(1, len(pongs) + 1))
    assert (done["count"], done["minimum"], done["maximum"]) == (
        *(len(pongs), min(seconds), max(seconds)),
    )
    assert min(seconds) <= done["median"] <= max(seconds)
    assert (done["suspended"], done["resumed"], done["sessions"]) == (2, 2, 1)
    away = sum(event.get("seconds", 0) for event in printed.news)
    assert done["away"] == pytest.approx(away)
    assert done["signal"] is None


@pytest.mark.anyio
async def test_lines_of_a_watch(
    anyio_backend: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ping, "WATCH_INTERVAL", 0.05)
    printed = Printed(capsys)
    async with (
        serving(resume=RESUME) as server,
        FaultyProxy(server.address) as proxy,
        watching(proxy.address, Output(False)),
    ):
        await eventually(lambda: bool(printed.lines))
        assert printed.lines[0].startswith(f"{server.identity.node_id}: ")
        proxy.stall()
        await eventually(lambda: printed.lines[-1] == "no answer for 0 s")
        proxy.resume()
        await eventually(lambda: printed.lines[-1].endswith(" ms"))
        proxy.cut()
        await eventually(lambda: any("(resumed 1 time)" in line for line in printed.lines))
        await server.stop()
        await eventually(lambda: printed.lines[-1] == "no connection for 0 s")
    *_, trips, summary = printed.lines
    assert " round trips: minimum " in trips
    assert summary.startswith("suspended 1 time, resumed 1 time, 0 new sessions; away for ")


@pytest.mark.anyio
async def test_a_watch_forgets_old_round_trips(
    anyio_backend: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ping, "REMEMBERED", 3)
    async with serving() as server, watching(server.address, Output(False), 5) as watch:
        await eventually(lambda: watch.count == 5)
    assert len(watch.trips) == 3


def test_a_watch_of_so_many(parley: Parley, server: str) -> None:
    done = parley("ping", server, "--watch", "--count", "3", "--interval", "0.01", "--json")
    assert [line["event"] for line in done.lines] == ["connected", *["pong"] * 3, "done"]
    assert (done.code, done.last["count"], done.last["away"]) == (0, 3, 0)
    assert (done.last["suspended"], done.last["resumed"], done.last["sessions"]) == (0, 0, 0)
    *trips, counts, summary = parley("ping", server, "--watch", "--count", "1").out.splitlines()
    assert len(trips) == 1
    assert counts.startswith("1 round trip: minimum ")
    assert summary == "suspended 0 times, resumed 0 times, 0 new sessions; away for 0.0 s"


def test_what_cannot_be_watched(parley: Parley, server: str) -> None:
    done = parley("ping", server, "--watch", "--interval", "0")
    assert done == (
        2,
        "",
        "parley: cannot use --interval 0 with --watch: it must be at least 0.01 seconds\n",
    )
    done = parley("ping", "tcp://127.0.0.1:1", "--watch", "--trust", "any")
    assert (done.code, done.out) == (3, "")


@pytest.mark.parametrize("number", [SIGINT, SIGTERM])
def test_a_signal_ends_a_watch_in_order(processes: Processes, server: str, number: Signals) -> None:
    running = processes.start("ping", server, "--watch", "--json")
    running.event("pong")
    done = running.stop(number)
    assert (done.code, done.err, done.last["event"]) == (0, "", "done")
    assert (done.last["count"] > 0, done.last["signal"]) == (True, number.name)


def test_a_signal_before_there_is_a_connection(processes: Processes, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "silent"))
        silent.listen()
        running = processes.start("ping", f"unix://{tmp_path}/silent", "--watch", "--json")
        with silent.accept()[0] as dialled:
            dialled.recv(1)
            done = running.stop(SIGINT)
    assert (done.code, done.out.count("\n"), done.last["name"]) == (130, 1, "interrupted")
