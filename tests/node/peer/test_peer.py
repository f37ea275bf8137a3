"""Tests of node/peer/peer.py: pings, keys, closing, and what its handlers and streams share."""

import logging
from collections.abc import AsyncIterator

import anyio
import pytest
from anyio import create_task_group, fail_after

from parley import Call, NodeConfig, Stream
from parley._lbm.codec import encode
from parley._lbm.padding import parse_padding
from parley._node.errors import PeerClosedError, StreamResetError
from parley._node.protocol.codes import CALL, EMIT, NAMED, NOTIFY, SIM, SUBSCRIBE, CloseCode
from parley._node.protocol.errors import LimitReachedError, LocalProtocolError
from parley._node.protocol.limits import IDLE_BEFORE_PING, PING_TIMEOUT
from parley._node.testing import ConnectedNodes, FakeClock, connect_nodes
from tests.node.network import config, eventually, meeting, new_node, settled, started

pytestmark = pytest.mark.anyio


@pytest.fixture
async def met(anyio_backend: str) -> AsyncIterator[ConnectedNodes]:
    async with meeting() as met:
        met.server.on_call("echo")(lambda call: call.data)
        met.client.on_call("echo")(lambda call: call.data)
        yield met


# Who it is.


async def test_what_each_side_knows_of_the_other() -> None:
    ours = config(role="client", info={"name": "alice"})
    async with meeting(client=ours, server=config(role="server")) as met:
        assert (met.peer.role, met.back.role) == ("server", "client")
        assert met.back.info == {"name": "alice"}
        assert met.peer.info == {}
        assert met.peer.node_id == met.server.node_id
        assert met.back.node_id == met.client.node_id
        assert met.peer.suite == met.back.suite
        assert met.peer.limits == met.back.limits
        assert met.peer.encrypted
        assert met.peer.is_open
        assert not met.peer.is_gone
        assert met.client.node_id.short in repr(met.back)


async def test_opened_and_closed_tell_at_once_what_is_so(met: ConnectedNodes) -> None:
    with fail_after(1):
        await met.peer.live.opened()
    async with create_task_group() as tasks:
        ended = await started(tasks, met.peer.closed)
        assert not ended
        await met.back.close(70, "a reason")
    assert ended == [await met.peer.closed()]
    end = await met.peer.closed()
    assert (end.code, end.text, end.remote) == (70, "a reason", True)
    end = await met.back.closed()
    assert (end.code, end.text, end.remote) == (70, "a reason", False)
    with fail_after(1):
        await met.peer.live.opened()


# Pings.


async def test_ping_measures_the_round_trip(met: ConnectedNodes) -> None:
    for peer in (met.peer, met.back):
        assert 0 < await peer.ping() < 1
    times: list[float] = []

    async def ping() -> None:
        times.append(await met.peer.ping())

    async with create_task_group() as tasks:
        for _ in range(64):
            tasks.start_soon(ping)
    assert len(times) == 64


async def test_more_than_64_pings_at_once_are_not_sent(met: ConnectedNodes) -> None:
    async with create_task_group() as tasks:
        met.peer.driver.writable = False
        outcomes = [await started(tasks, met.peer.ping) for _ in range(65)]
        assert isinstance(outcomes[64][0], LimitReachedError)
        met.peer.driver.resume_writing()
        await eventually(lambda: all(outcomes))
    assert all(isinstance(outcome[0], float) for outcome in outcomes[:64])


async def test_a_cancelled_ping_leaves_nothing(met: ConnectedNodes) -> None:
    async with create_task_group() as tasks:
        await started(tasks, lambda: silent_ping(met))
        tasks.cancel_scope.cancel()
    assert not met.peer.live.pings
    met.peer.driver.resume_writing()
    assert await met.peer.ping() > 0


async def silent_ping(met: ConnectedNodes) -> None:
    met.peer.driver.writable = False
    await met.peer.ping()


async def test_a_silent_peer_is_given_up() -> None:
    clock = FakeClock()
    async with meeting(clock=clock) as met:
        await clock.tick(1)  # The seals of the events so far.
        met.back.driver.writable = False
        async with create_task_group() as tasks:
            waiting = await started(tasks, lambda: met.peer.call("never", timeout=None))
            await clock.tick(IDLE_BEFORE_PING + PING_TIMEOUT)
            with fail_after(2):
                assert (await met.peer.closed()).code == CloseCode.TIMEOUT
        assert isinstance(waiting[0], PeerClosedError)
        assert waiting[0].code == CloseCode.TIMEOUT


async def test_an_idle_connection_is_kept() -> None:
    clock = FakeClock()
    async with meeting(clock=clock) as met:
        await clock.tick(10 * IDLE_BEFORE_PING)
        assert met.peer.is_open
        assert met.back.is_open


# Keys.


async def test_keys_are_updated_under_load(met: ConnectedNodes) -> None:
    @met.server.on_stream("sink")
    async def sink(stream: Stream) -> None:
        async for _ in stream:
            continue

    async with met.peer.open_stream("sink") as stream:
        for number in range(20):
            await stream.send(bytes(50_000))
            met.peer.update_keys()
            met.back.update_keys()
            assert await met.peer.call("echo", number) == number
    assert met.peer.is_open


async def test_a_rekey_changes_both_directions(met: ConnectedNodes) -> None:
    assert await met.peer.rekey() == 1
    assert await met.peer.call("echo", 1) == 1
    with pytest.raises(LimitReachedError):
        await met.peer.rekey()
    # Each side has its own allowance.
    assert await met.back.rekey() == 2
    assert await met.back.call("echo", 2) == 2


async def test_offers_that_cross_on_the_wire_make_one_rekey(met: ConnectedNodes) -> None:
    for peer in (met.peer, met.back):
        peer.core.rekey(peer.backend.now())
    async with create_task_group() as tasks:
        for peer in (met.peer, met.back):
            tasks.start_soon(peer.call, "echo")
    await eventually(lambda: met.peer.live.rekeys == met.back.live.rekeys == [1, 1])


async def test_two_tasks_rekey_at_once() -> None:
    async with meeting(rekey_allowance=4) as met, create_task_group() as tasks:
        met.server.on_call("echo")(lambda call: call.data)
        outcomes = [await started(tasks, met.peer.rekey) for _ in range(3)]
        with fail_after(2):
            await eventually(lambda: all(outcomes))
        assert await met.peer.call("echo", 1) == 1


async def test_an_unencrypted_connection_has_no_keys() -> None:
    async with meeting(plaintext="only") as met:
        with pytest.raises(LocalProtocolError):
            met.peer.update_keys()
        with pytest.raises(LocalProtocolError):
            await met.peer.rekey()
        assert await met.peer.ping() > 0


@pytest.mark.parametrize("how", ["close", "lost"])
async def test_a_ping_and_a_rekey_that_wait_fail_with_the_connection(
    met: ConnectedNodes, how: str
) -> None:
    peer, back = met.peer, met.back
    back.driver.writable = False
    async with create_task_group() as tasks:
        outcomes = [await started(tasks, peer.ping), await started(tasks, peer.rekey)]
        assert not any(outcomes)
        if how == "lost":
            back.driver.ended()
            code = CloseCode.CONNECTION_LOST
        else:
            tasks.start_soon(peer.close, CloseCode.GOING_AWAY)
            code = CloseCode.GOING_AWAY
        await eventually(lambda: all(outcomes))
        assert all(getattr(outcome[0], "code", None) == code for outcome in outcomes)
        back.driver.ended()


# Closing.


async def test_close_sends_what_is_queued_and_waits_for_the_end(met: ConnectedNodes) -> None:
    received = bytearray()

    @met.server.on_stream("sink")
    async def sink(stream: Stream) -> None:
        async for data in stream:
            received.extend(data)

    stream = met.peer.open_stream("sink")
    await stream.send(bytes(200_000))
    await stream.send_eof()
    with fail_after(2):
        await met.peer.close()
    assert met.peer.is_gone
    assert not met.peer.is_open
    await eventually(lambda: len(received) == 200_000)
    assert (await met.back.closed()).code == CloseCode.NORMAL
    await met.peer.close()
    await met.peer.close(CloseCode.GOING_AWAY)
    assert (await met.peer.closed()).code == CloseCode.NORMAL


async def test_both_sides_close_at_once(met: ConnectedNodes) -> None:
    with fail_after(1.5):
        async with create_task_group() as tasks:
            tasks.start_soon(met.peer.close, 70)
            tasks.start_soon(met.back.close, 71)
    assert met.peer.is_gone
    assert met.back.is_gone


async def test_a_close_that_cannot_be_said_changes_nothing(met: ConnectedNodes) -> None:
    for code, text in [(32, ""), (-1, ""), (2**32, ""), (0, "x" * 5_000)]:
        with pytest.raises(ValueError, match=r"code|text"):
            await met.peer.close(code, text)
    assert await met.peer.call("echo", 1) == 1


async def test_a_peer_that_does_not_read_cannot_hold_up_a_close(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Queued data without credit gets its time, then Close goes out; no loop is spun."""
    async with meeting() as met:

        @met.server.on_stream("stuck")
        async def stuck(stream: Stream) -> None:
            await anyio.sleep_forever()

        object.__setattr__(met.peer.core.config, "close_drain", 0.05)
        stream = met.peer.open_stream("stuck")
        async with create_task_group() as tasks:
            writing = await started(tasks, lambda: stream.send(bytes(4 << 20)))
            with fail_after(2):
                await met.peer.close()
        assert isinstance(writing[0], PeerClosedError)
        assert (await met.back.closed()).code == CloseCode.NORMAL


async def test_a_handler_may_close_its_own_connection(met: ConnectedNodes) -> None:
    @met.server.on_call("goodbye")
    async def goodbye(call: Call) -> None:
        await call.peer.close(72)

    with fail_after(2), pytest.raises(PeerClosedError) as caught:
        await met.peer.call("goodbye")
    assert caught.value.code == 72


async def test_the_log_tells_why_it_ended(
    met: ConnectedNodes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await met.peer.close()
    assert "ended: normal (closed locally)" in caplog.text
    assert not [record for record in caplog.records if record.levelno > logging.INFO]
    peer, back = await connect_nodes(met.client, met.server)
    peer.driver.ended()
    await back.closed()
    assert "ended: connection-lost" in caplog.text
    assert [record for record in caplog.records if record.levelno == logging.WARNING]


# Requests without a handler.


async def test_events_that_nobody_takes_are_counted(met: ConnectedNodes) -> None:
    core = met.peer.core
    core.send(1, 0, 64, 1, b"not ours", lbm=False)
    core.send(1, 7, 200, 9, b"", lbm=False)
    core.send(1, 0, NAMED, EMIT, encode({26: "x"}))
    core.send(1, 0, SIM, SUBSCRIBE, encode({21: "x"}))
    core.send(1, 0, SIM, NOTIFY, encode({21: "x"}))
    core.send(1, 0, SIM, CALL, encode({21: "nobody"}))
    core.send(1, 0, SIM, CALL, b"junk", lbm=False)
    assert await met.peer.call("echo", 1) == 1
    assert met.back.dropped == 7
    assert met.peer.dropped == 0


async def test_a_request_twice_under_one_id_ends_the_connection(
    met: ConnectedNodes, caplog: pytest.LogCaptureFixture
) -> None:
    """And events after it in the same bytes are not processed."""
    done: list[object] = []
    met.server.on_call("hold")(lambda call: anyio.sleep(60))
    met.server.on_call("do")(lambda call: done.append(call.data))
    for async_id, topic in [(9, "hold"), (9, "hold"), (10, "do")]:
        met.peer.core.send(1, async_id, SIM, CALL, encode({21: topic}))
    assert (await met.peer.closed()).code == CloseCode.PROTOCOL_ERROR
    await settled()
    assert done == []
    assert met.back.running_calls == 0
    assert "used twice" in caplog.text


# Calls on streams, which our own nodes do not make but must answer.


async def test_a_call_on_a_stream_is_stopped_with_it(met: ConnectedNodes) -> None:
    ended = anyio.Event()

    @met.server.on_call("hold")
    async def hold(call: Call) -> None:
        try:
            await anyio.sleep(60)
        finally:
            ended.set()

    @met.server.on_stream("x")
    async def serve(stream: Stream) -> None:
        await anyio.sleep_forever()

    for async_id in (5, 0):
        stream = met.peer.open_stream("x")
        met.peer.core.send(stream.id, async_id, SIM, CALL, encode({21: "hold"}))
        await eventually(lambda: met.back.running_calls == 1)
        stream.reset()
        with fail_after(2):
            await ended.wait()
        await eventually(lambda: met.back.running_calls == 0)
    assert met.back.core.session is not None
    assert met.back.core.session.mux.unconsumed == 0


# Kinds of connection.


@pytest.mark.parametrize(
    "settings",
    [
        config(padding=parse_padding("padme")),
        config(padding=parse_padding("bucket:512")),
        config(deliver="sealed"),
        config(plaintext="only"),
        config(network_key=bytes(range(32))),
    ],
    ids=["padme", "bucket", "sealed", "plaintext", "network key"],
)
async def test_calls_and_streams_on_every_kind(settings: NodeConfig) -> None:
    async with meeting(client=settings, server=settings) as met:
        met.server.on_call("echo")(lambda call: call.data)

        @met.server.on_stream("echo")
        async def echo(stream: Stream) -> None:
            async for data in stream:
                await stream.send(data)

        assert await met.peer.call("echo", "x" * 1000) == "x" * 1000
        async with met.peer.open_stream("echo") as stream:
            await stream.send(b"abc" * 10_000)
            await stream.send_eof()
            assert b"".join([data async for data in stream]) == b"abc" * 10_000
        nobodys = met.peer.open_stream("nobody")
        with pytest.raises(StreamResetError):
            await nobodys.receive()
        assert await met.peer.ping() > 0
        await met.peer.close()
        assert (await met.back.closed()).code == CloseCode.NORMAL


async def test_padding_hides_the_size_of_calls() -> None:
    sizes: set[int] = set()
    async with meeting(padding=parse_padding("bucket:512")) as met:
        met.server.on_call("echo")(lambda call: sizes.add(call._call.weight))
        for size in (0, 1, 100, 300):
            await met.peer.call("echo", bytes(size))
    assert len(sizes) == 1  # Their weight, and thereby the received events.


async def test_one_node_has_many_peers() -> None:
    async with new_node() as server, new_node() as one, new_node() as other:
        server.on_call("who")(lambda call: call.peer.node_id.short)
        peers = [(await connect_nodes(node, server))[0] for node in (one, other)]
        answers = [await peer.call("who") for peer in peers]
        assert answers == [one.node_id.short, other.node_id.short]
        assert len(server.peers) == 2
        await peers[0].close()
        await eventually(lambda: len(server.peers) == 1)
        assert await peers[1].call("who") == other.node_id.short


async def test_a_peer_ends_with_its_async_with() -> None:
    async with new_node() as client, new_node() as server:
        address = await server.listen("tcp://127.0.0.1:0")
        async with await client.connect(address) as peer:
            assert peer.is_open
        assert peer.is_gone
        assert str(await peer.closed()) == "closed (normal)"
        with pytest.raises(LookupError):
            async with await client.connect(address) as peer:
                raise LookupError
        ended = await peer.closed()
        assert (ended.code, ended.remote) == (CloseCode.NORMAL, False)
        await eventually(lambda: not server.peers)
