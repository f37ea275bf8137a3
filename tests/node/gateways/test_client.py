"""Behaviour of all dialects' clients: they dial once, or repeatedly."""

import logging
from typing import Any

import anyio
import pytest

from parley._node.errors import (
    CallTimeout,
    ConfigError,
    ParleyError,
    PeerClosedError,
    UnreachableError,
)
from parley._node.gateways.simproto.client import SimProtoClient
from parley._node.peer import reconnecting
from parley._node.protocol.errors import LimitReachedError
from parley._node.transport.memory import memory_pair
from tests.node.gateways.restarts import DIALECTS, QUICK, Dialect, serving
from tests.node.network import PATIENCE, eventually, nothing_left, started

pytestmark = pytest.mark.anyio

each = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
NOBODY = "tcp://127.0.0.1:1"


@each
async def test_it_is_connected_again_after_each_restart(
    dialect: Dialect, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)  # a log record would keep a reference to its guest
    seen: list[object] = []

    async def restarts() -> None:
        async with serving(dialect.server) as served:
            async with dialect.client(served.address, pauses=QUICK) as client:

                @client.on_up
                async def up(other: Any) -> None:
                    seen.append("up")

                @client.on_down
                def down(why: Exception) -> None:
                    seen.append(type(why))

                for count, end in enumerate((served.stop, served.kill, served.stop), 1):
                    other = await client.ready()
                    assert client.is_open
                    assert other.is_open
                    assert client.sessions == count
                    assert await dialect.echo(client, count) == count
                    await end()
                    await eventually(lambda: not client.is_open)
                    await served.start()
                await client.ready()
            assert client.is_over
            assert not client.is_open
            await served.empty()
        assert seen == ["up", PeerClosedError] * 3 + ["up"]

    with nothing_left():
        await restarts()


@each
async def test_it_begins_without_anybody_and_tells_why(
    dialect: Dialect, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(dialect.server) as served:
        await served.stop()
        client = dialect.client(served.address, pauses=QUICK)
        with pytest.raises(ParleyError, match="async with"):
            await client.ready()
        async with client:
            assert not client.is_open
            with pytest.raises(UnreachableError):
                await client.ready(0.05)
            with pytest.raises(UnreachableError):
                await client.ready(attempts=1)
            assert isinstance(client.error, UnreachableError)
            assert client.sessions == 0
            async with anyio.create_task_group() as tasks:
                answers = await started(tasks, lambda: dialect.echo(client, 5))
                assert not answers
                await served.start()
            assert answers == [5]
    said = [record.message for record in caplog.records if "retrying in" in record.message]
    assert said
    assert "client of tcp://127.0.0.1:" in said[0]


@each
async def test_waiting_requests_end_when_it_is_left(dialect: Dialect) -> None:
    with nothing_left():
        async with anyio.create_task_group() as tasks:
            client = dialect.client(NOBODY, pauses=QUICK)
            async with client:
                waiting = await started(tasks, lambda: dialect.echo(client, 1, timeout=None))
                ready = await started(tasks, client.ready)
        assert [type(one[0]) for one in (waiting, ready)] == [PeerClosedError] * 2
        with pytest.raises(PeerClosedError, match="was closed"):
            await client.ready()


@each
async def test_it_is_left_at_any_moment(dialect: Dialect) -> None:
    async def leave(address: str, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            async with dialect.client(address, pauses=QUICK) as client:
                await dialect.echo(client, 1)
                await anyio.sleep_forever()

    async with serving(dialect.server) as served:
        with nothing_left():
            for seconds in (0.0, 0.0005, 0.001, 0.002, 0.01):
                await leave(served.address, seconds)
                await leave(NOBODY, seconds)
            await served.empty()


@each
async def test_waiting_requests_are_limited(
    dialect: Dialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconnecting, "MOST_WAITING", 2)
    with anyio.fail_after(PATIENCE):
        async with (
            anyio.create_task_group() as tasks,
            dialect.client(NOBODY, pauses=QUICK) as client,
        ):
            for _ in range(2):
                assert not await started(tasks, lambda: dialect.echo(client, 1, timeout=None))
            with pytest.raises(LimitReachedError, match="2 requests are already waiting"):
                await dialect.echo(client, 1)


@pytest.mark.parametrize("name", ["named", "simproto"])
async def test_requests_have_timeouts(name: str) -> None:
    dialect = DIALECTS[name]
    async with dialect.client(NOBODY, pauses=QUICK) as client:
        with pytest.raises(CallTimeout) as late:
            await dialect.echo(client, 1, timeout=0.05)
        assert isinstance(late.value.__cause__, UnreachableError)


@each
async def test_without_pauses_it_has_one_connection(dialect: Dialect) -> None:
    async with serving(dialect.server) as served:
        client = dialect.client(served.address)
        with pytest.raises(ParleyError, match="not connected"):
            await client.ready()
        for count in (1, 2):  # it may be entered again
            async with client:
                client.on_down(pytest.fail)
                other = await client.ready()
                assert other.is_open
                assert client.sessions == count
                assert await dialect.echo(client, 1) == 1
                assert not client.is_over
                await served.stop()
                await served.start()
                await eventually(lambda: client.is_over)
                with pytest.raises(PeerClosedError):
                    await dialect.echo(client, 2)
                with pytest.raises(PeerClosedError):
                    await client.ready()
        await served.stop()
        with pytest.raises(UnreachableError):
            await client.__aenter__()
        await served.start()


async def test_a_byte_stream_cannot_be_dialled_again() -> None:
    with pytest.raises(ConfigError, match="byte stream"):
        SimProtoClient(memory_pair()[0], pauses=QUICK)
