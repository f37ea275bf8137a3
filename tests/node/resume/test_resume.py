"""A session that continues over new transports, from the application's view, on both backends."""

import logging
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from parley import Call, Identity, Node, PeerClosedError, Stream
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import LocalProtocolError
from parley._node.testing.proxy import FaultyProxy
from parley._node.transport.address import Address
from parley._node.transport.memory import MemoryStream, memory_pair
from parley._node.trust.policies import AnyPeer
from parley.errors import ConfigError, HandshakeError, UnreachableError
from tests.inspection import half_open_of, suspended_of
from tests.node.network import (
    PATIENCE,
    config,
    eventually,
    meeting,
    new_node,
    nothing_left,
    started,
)
from tests.node.resume.roads import road

pytestmark = pytest.mark.anyio


async def test_calls_survive_a_cut(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with road() as on:
        assert await on.peer.call("echo", 1) == 1
        on.proxy.cut()
        assert await on.peer.call("echo", 2) == 2
        assert (on.peer.resumes, on.peer.is_suspended, on.peer.is_open) == (1, False, True)
        await on.cut()
        assert await on.peer.call("echo", 3) == 3
        assert on.server.peers == [on.back]
        assert len(on.server.connections._admission) == 1
        assert len(half_open_of(on.server)) == 0
    assert f"{on.peer} suspended: the transport ended without Close" in caplog.text
    assert f"{on.peer} resumed after 0." in caplog.text


async def test_what_is_asked_while_parted_waits() -> None:
    async with road() as on:
        on.proxy.stall()
        on.proxy.cut()
        await eventually(lambda: on.peer.is_suspended)
        assert on.peer.is_open
        answers: list[object] = []

        async def ask(number: int) -> None:
            answers.append(await on.peer.call("echo", number))

        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(ask, number)
            await anyio.sleep(0.02)
            assert answers == []
            on.proxy.resume()
        assert set(answers) == set(range(10))


async def test_streams_and_subscriptions_go_on_over_many_cuts() -> None:
    """Every byte and every note comes once and in order, whatever the moment of the cut."""
    size, notes = 1 << 20, 300
    async with road() as on:
        topic = on.server.topic("numbers")
        got = bytearray()

        @on.server.on_stream("sink")
        async def sink(stream: Stream) -> None:
            async for piece in stream:
                got.extend(piece)
            await stream.send(b"done")

        data = bytes(range(251)) * (size // 251)
        seen: list[object] = []

        async def read() -> None:
            async with on.peer.subscribe("numbers") as sub:
                async for note in sub:
                    seen.append(note)
                    if len(seen) == notes:
                        return

        async def publish() -> None:
            await eventually(lambda: bool(topic.subscribers))
            for number in range(notes):
                await topic.publish(number)
                await anyio.lowlevel.checkpoint()

        async def send() -> None:
            async with on.peer.open_stream("sink") as stream:
                for at in range(0, len(data), 20_000):
                    await stream.send(data[at : at + 20_000])
                await stream.send_eof()
                assert b"".join([piece async for piece in stream]) == b"done"

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            tasks.start_soon(publish)
            tasks.start_soon(send)
            for _ in range(6):
                await on.cut()
                on.proxy.to_server.cut(after=70_000)
        assert bytes(got) == data
        assert seen == list(range(notes))
        assert on.peer.resumes >= 6


async def test_a_new_transport_is_made_while_the_old_one_is_silent_and_open(rounds: int) -> None:
    """The old transport is closed, and data in transit on it doesn't count, in either direction."""
    ran: list[object] = []
    async with road(patience=PATIENCE + rounds) as on:

        @on.server.on_call("count")
        async def count(call: Call) -> object:
            ran.append(call.data)
            return call.data

        ways = [on.proxy.to_client], [on.proxy.to_server], [on.proxy.to_client, on.proxy.to_server]
        for number in range(rounds):
            for way in ways[number % 3]:
                way.stall()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(on.peer.call, "count", number)
                await eventually(lambda: on.proxy.connections == 1)
                on.peer.redial()
                await eventually(lambda: on.proxy.connections == 2)
                on.proxy.resume()
            await eventually(lambda number=number: on.peer.resumes == number + 1)  # type: ignore[misc]  # bound now
            assert await on.peer.call("echo", [number]) == [number]
            await eventually(lambda: on.proxy.connections == 1)
        assert on.back.resumes == rounds
    assert ran == list(range(rounds))


async def test_redialling_does_not_wait_for_the_next_attempt() -> None:
    """The server is away for long; an explicit redial cuts the pause short."""
    async with road() as on:
        on.proxy.stall()
        on.proxy.cut()
        await eventually(lambda: on.peer.is_suspended)
        on.proxy.resume()
        on.peer.redial()
        assert await on.peer.call("echo", 1) == 1


async def test_only_the_side_that_dialled_dials_again() -> None:
    async with road() as on:
        with pytest.raises(LocalProtocolError, match="cannot redial"):
            on.back.redial()
    with pytest.raises(PeerClosedError):
        on.peer.redial()
    async with meeting(transport="tcp", resume=0.0) as met:
        with pytest.raises(LocalProtocolError):
            met.peer.redial()


async def test_without_resume_a_connection_ends_with_its_transport() -> None:
    for ours in (0.0, 5.0):
        async with (
            new_node(resume=5.0 - ours) as server,
            new_node(resume=ours) as client,
            FaultyProxy(await server.listen("tcp://127.0.0.1:0")) as proxy,
        ):
            peer = await client.connect(proxy.address)
            proxy.cut()
            assert (await peer.closed()).code == CloseCode.CONNECTION_LOST


async def test_any_address_of_the_node_will_do(tmp_path: Path) -> None:
    async with new_node(resume=20.0) as server, new_node(resume=20.0) as client:
        server.on_call("echo")(_echo)
        unix = await server.listen(f"unix://{tmp_path}/socket")
        async with FaultyProxy(await server.listen("tcp://127.0.0.1:0")) as proxy:
            gone = str(Address("tcp", "127.0.0.1", 1, node_id=server.node_id))
            peer = await client.connect(gone, also=[proxy.address, unix])
            assert await peer.call("echo", 1) == 1
            assert proxy.connections == 1
        assert await peer.call("echo", 2) == 2  # by the socket: the proxy is gone
        assert peer.resumes >= 1


async def _echo(call: object) -> object:
    return call.data  # type: ignore[attr-defined]  # a Call


async def test_a_node_that_is_closed_while_it_dials_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with new_node() as server, anyio.create_task_group() as tasks, new_node() as client:
        address = await server.listen("tcp://127.0.0.1:0")
        dialled, may_go_on = anyio.Event(), anyio.Event()
        backend = type(client.backend)
        dial = backend.connect

        async def slow(*arguments: Any) -> None:
            dialled.set()
            await may_go_on.wait()
            await dial(*arguments)

        monkeypatch.setattr(backend, "connect", slow)
        outcome = await started(tasks, partial(client.connect, address))
        await dialled.wait()
        await client.aclose()
        may_go_on.set()
        await eventually(lambda: bool(outcome))
    assert isinstance(outcome[0], HandshakeError)
    assert outcome[0].code == CloseCode.GOING_AWAY


async def test_other_addresses_are_of_the_same_node() -> None:
    async with new_node() as client, new_node() as server:
        address = await server.listen("tcp://127.0.0.1:0")
        with pytest.raises(ConfigError, match="it has another node ID than"):
            await client.connect(
                address, also=[str(Address("tcp", "127.0.0.1", 1, node_id=client.node_id))]
            )
        with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:2"):
            await client.connect("tcp://127.0.0.1:1", also=["tcp://127.0.0.1:2"], trust=AnyPeer())
        peer = await client.connect("tcp://127.0.0.1:1", also=[address], trust=AnyPeer())
        assert peer.node_id == server.node_id


async def test_a_session_over_a_stream_goes_on_over_another_stream() -> None:
    async with new_node(resume=20.0) as server, new_node(resume=20.0) as client:
        server.on_call("echo")(_echo)
        ends: list[MemoryStream] = []
        returned: list[object] = []

        async def redial() -> MemoryStream:
            ours, theirs = memory_pair()
            ends.append(theirs)
            tasks.start_soon(accept, theirs)
            return ours

        async def accept(stream: MemoryStream) -> None:
            returned.append(await server.accept_stream(stream))

        async with anyio.create_task_group() as tasks:
            peer = await client.connect_stream(await redial(), trust=AnyPeer(), redial=redial)
            for number in range(3):
                assert await peer.call("echo", number) == number
                await ends[-1].aclose()
            assert await peer.call("echo", 3) == 3
        assert peer.resumes == 3
        assert returned == [server.peers[0]] * 4
        await peer.close()


async def test_closing_while_parted_takes_no_longer_than_it_may() -> None:
    async with road(resume=0.2) as on:
        on.proxy.stall()
        on.proxy.cut()
        await eventually(lambda: on.peer.is_suspended)
        with anyio.fail_after(2):
            await on.peer.close()
        assert not on.client.peers


async def test_a_close_that_a_cut_swallowed_is_said_again() -> None:
    async with road() as on:
        on.proxy.to_client.stall()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(on.back.close, 70, "enough")
            await eventually(lambda: not on.server.peers)
            on.proxy.cut()
            on.proxy.resume()
            ended = await on.peer.closed()
        assert (ended.code, ended.text) == (70, "enough")
        await eventually(lambda: len(suspended_of(on.server)) <= 1)
    assert len(suspended_of(on.server)) == 0


async def test_a_session_that_nobody_comes_back_for_ends() -> None:
    async with road(resume=0.1) as on:
        on.proxy.stall()
        on.proxy.cut()
        await eventually(lambda: on.peer.is_suspended)
        assert (await on.peer.closed()).code == CloseCode.CONNECTION_LOST
        with pytest.raises(PeerClosedError):
            await on.peer.call("echo")


async def test_a_node_that_stops_ends_its_parted_sessions_at_once() -> None:
    with anyio.fail_after(5):
        async with new_node(resume=20.0) as server, new_node(resume=20.0) as client:
            async with FaultyProxy(await server.listen("tcp://127.0.0.1:0")) as proxy:
                peer = await client.connect(proxy.address)
                await peer.ping()  # something has come, so that it can part
                back = server.peers[0]
            await eventually(lambda: peer.is_suspended and back.is_suspended)
        assert (await peer.closed()).code == CloseCode.CONNECTION_LOST
        assert (await back.closed()).code == CloseCode.CONNECTION_LOST


@pytest.mark.parametrize("turns", range(0, 24, 3))
async def test_a_node_that_is_cancelled_while_it_dials_again_leaves_nothing(
    turns: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)  # a line that is kept keeps its peer

    async def cancelled_while_dialling() -> None:
        async with new_node(resume=20.0) as server:
            address = await server.listen("tcp://127.0.0.1:0")
            with anyio.CancelScope() as scope:
                async with new_node(resume=20.0) as client:
                    peer = await client.connect(address)
                    peer.redial()
                    for _ in range(turns):
                        await anyio.lowlevel.cancel_shielded_checkpoint()
                    scope.cancel()
                    await anyio.lowlevel.checkpoint()

    with nothing_left():
        await cancelled_while_dialling()


async def test_sessions_that_were_cut_leave_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)

    async def cut() -> None:
        async with road() as on:
            for _ in range(3):
                await on.cut()
            on.peer.redial()

    with nothing_left():
        await cut()


async def test_the_other_side_may_say_that_it_does_not_know_the_session() -> None:
    """A Reject and another node's answer aren't authenticated: the session continues to wait."""
    async with new_node(resume=20.0) as client:
        async with new_node(resume=20.0) as server:
            address = Address.parse(await server.listen("tcp://127.0.0.1:0"))
            peer = await client.connect(str(address))
            await peer.ping()  # something has come, so that it can part
            back = server.peers[0]
            back.live.lost("its process is gone")
        async with new_node(resume=20.0) as other:
            await other.listen(str(address.without_node_id()))
            with anyio.fail_after(PATIENCE):
                await peer.live.changes.until(lambda: peer.live.unknown)
            assert peer.is_suspended
        peer.live.lost("a new session is there")
        assert (await peer.closed()).code == CloseCode.CONNECTION_LOST


async def test_a_session_whose_node_was_started_anew_ends_without_delay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The node itself answers and doesn't know the session, which ends without waiting for the
    timeout.
    """
    caplog.set_level(logging.DEBUG)
    identity = Identity.create()
    async with new_node(resume=60.0) as client:
        async with Node(identity, config=config(resume=60.0)) as server:
            address = await server.listen("tcp://127.0.0.1:0")
            peer = await client.connect(address)
            await eventually(lambda: bool(server.peers) and peer.core.can_suspend)
            server.peers[0].live.lost("its process is gone")
        async with Node(identity, config=config(resume=60.0)) as server:
            await server.listen(address.partition("#")[0])
            with anyio.fail_after(PATIENCE):
                ended = await peer.closed()
            assert ended.code == CloseCode.CONNECTION_LOST
            assert "does not know the session" in ended.reason
            rejected = [one for one in caplog.records if "rejects it: no such" in one.getMessage()]
            assert [one.levelname for one in rejected] == ["INFO", "DEBUG"]  # said once
            assert {vars(one)["event"] for one in rejected} == {"resume.failed"}
            await eventually(lambda: not server.peers)
        assert not client.peers


def test_what_resume_may_be() -> None:
    with pytest.raises(ConfigError, match=r"resume is 601: expected float <= 600"):
        config(resume=601)
    with pytest.raises(ConfigError, match="resume_buffer"):
        config(resume_buffer=1 << 19)
