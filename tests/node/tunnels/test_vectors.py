"""Tests of federation.json: one event on a `tunnel` stream, at the server in between."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from parley._crypto.identity import NodeId
from parley._lbm import keys
from parley._lbm.codec import decode, encode
from parley._node.errors import TunnelRefusedError
from parley._node.federation.dials import encode_dial
from parley._node.handlers.registry import Entry
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import (
    CALL,
    DATA,
    DIAL,
    FINISH,
    SIM,
    STREAM,
    TUNNEL,
    TUNNEL_ANSWER,
    CloseCode,
)
from parley._node.protocol.event import NO_PAYLOAD, parse_raw
from parley._node.remote.stream import Stream
from parley._node.remote.tunnel_stream import TunnelStream
from parley._node.server.tunnel_dialer import forwarded
from parley._node.tunnels.dial import dial_tunnel
from parley._node.tunnels.policy import IncomingDial
from parley._node.tunnels.tunnel_transport import TunnelTransport
from tests.inspection import error_code_of
from tests.node.network import PATIENCE, eventually, settled
from tests.node.tunnels.tunnel_rows import RawEnd, Row, end_raw, row
from tests.vectors.load import Vector, codes, of_kind, unhex, vectors

TRACE = bytes(16)


class Waiting:
    """A policy that decides when the test permits it."""

    def __init__(self) -> None:
        self.asked = self.over = 0

    @asynccontextmanager
    async def decide(self, dial: IncomingDial) -> AsyncIterator[TunnelTransport | None]:
        self.asked += 1
        try:
            await anyio.sleep_forever()
            yield None
        finally:
            self.over += 1


class PassesOn:
    """A policy that forwards each Dial to the same peer, like a server."""

    def __init__(self, peer: Peer, path: tuple[NodeId, ...]) -> None:
        self._peer, self._path = peer, path

    @asynccontextmanager
    async def decide(self, dial: IncomingDial) -> AsyncIterator[TunnelTransport | None]:
        after = self._path.index(self._peer.node_id)
        try:
            yield await dial_tunnel(self._peer, path=self._path, trace=dial.trace, timeout=PATIENCE)
        except TunnelRefusedError as error:
            raise error if error.hop is None else forwarded(error, self._path, after) from error


def put(stream: TunnelStream, vector: Vector, made: Row) -> None:
    """Write the event of a vector on a stream, bypassing the checks of the sender."""
    event = parse_raw(unhex(vector["raw_event"]))
    _, async_id, category, subcategory = event.head
    payload = event.payload
    if (category, subcategory) == (TUNNEL, DIAL):
        payload = encode_dial(TRACE, 9, to=(made.target.node_id,))
    if (category, subcategory) == (STREAM, DATA):
        stream.live.core.send_data(stream.id, payload)
    elif (category, subcategory) == (STREAM, FINISH):
        stream.finish()
    else:
        body = b"" if payload == NO_PAYLOAD else payload
        stream.live.core.send(stream.id, async_id, category, subcategory, body, lbm=False)


async def arrived(end: RawEnd, size: int) -> None:
    """Wait until `size` bytes of data have arrived."""
    await eventually(lambda: len(end.data) == size)


def reset_code(stream: TunnelStream) -> int | None:
    return error_code_of(stream)


@vectors("federation", lambda v: v["kind"] == "tunnel" and v["state"] != "joined")
async def test_an_event_before_the_answer(vector: Vector, anyio_backend: str) -> None:
    async with row(3) as made:
        server, switch = made.nodes[1], Waiting()
        server.handlers.reserved.pop("tunnel")
        server.connections.serve_tunnels(switch)
        ran: list[object] = []
        server.on_call("parley.echo")(lambda call: ran.append(call))
        stream = made.links[0][0].streams.open_tunnel()
        if vector["state"] == "dialled":
            dial = encode_dial(TRACE, 9, to=(made.target.node_id,))
            stream.live.core.send(stream.id, 1, TUNNEL, DIAL, dial)
            await eventually(lambda: switch.asked == 1)
        put(stream, vector, made)
        if vector.get("expected") == "dial":
            await eventually(lambda: switch.asked == 1)
            assert error_code_of(stream) is None
            return
        await eventually(lambda: error_code_of(stream) is not None and switch.over == switch.asked)
        allowed = codes(vector) if "fails" in vector else {CloseCode.CANCELLED}
        assert reset_code(stream) in allowed
        assert not ran
        assert made.links[0][0].is_open


@vectors("federation", of_kind("tunnel-data"))
async def test_data_in_a_window(vector: Vector, anyio_backend: str) -> None:
    async with row(3) as made:
        ends = end_raw(made.target)
        here, there = RawEnd((await made.open()).stream), ends[0]
        one, other = (here, there) if vector["from"] == "opener" else (there, here)
        server = made.links[0][1] if one is here else made.links[1][0]
        sent, window = 0, server.core.flow().streams[one.stream.id].window
        while window < vector["window"]:
            one.writer.write(bytes(window // 2))
            sent += window // 2
            await arrived(other, sent)
            await settled()
            window = server.core.flow().streams[one.stream.id].window
        assert window == vector["window"]
        one.stream.live.core.send_data(one.stream.id, bytes(vector["size"]))
        if "expected" in vector:
            await arrived(other, sent + vector["size"])
        else:
            await eventually(lambda: one.code is not None and other.code is not None)
            assert {one.code, other.code} <= codes(vector)


@vectors("federation", lambda v: v["kind"] == "tunnel" and v["state"] == "joined")
async def test_an_event_on_a_joined_tunnel(vector: Vector, anyio_backend: str) -> None:
    async with row(3) as made:
        ran: list[object] = []
        made.nodes[1].on_call("parley.echo")(lambda call: ran.append(call))
        ends = end_raw(made.target)
        here, there = RawEnd((await made.open()).stream), ends[0]
        one, other = (here, there) if vector["from"] == "opener" else (there, here)
        put(one.stream, vector, made)
        if "expected" not in vector:
            await eventually(lambda: one.code is not None and other.code is not None)
            assert {one.code, other.code} <= codes(vector)
        else:
            event = parse_raw(unhex(vector["raw_event"]))
            if event.subcategory == DATA:
                await eventually(lambda: bytes(other.data) == event.payload)
            else:
                await eventually(lambda: other.eof)
            assert one.code is None
            assert other.code is None
        assert not ran
        assert made.links[0][0].is_open


@pytest.mark.parametrize("joined", [False, True])
async def test_calls_that_come_with_a_violation_do_not_run(
    anyio_backend: str, joined: bool
) -> None:
    """All are decrypted before the first one resets the stream."""
    async with row(3) as made:
        ran: list[object] = []
        made.nodes[1].on_call("parley.echo")(lambda call: ran.append(call))
        origin = made.links[0][0]
        if joined:
            end_raw(made.target)
            stream = (await made.open()).stream
        else:
            stream = origin.streams.open_tunnel()
        RawEnd(stream)
        call = encode({keys.TOPIC: "parley.echo"})
        for _ in range(3):
            stream.live.core.send(stream.id, 0, SIM, CALL, call, lbm=False)
        await eventually(lambda: reset_code(stream) == CloseCode.PROTOCOL_ERROR)
        await origin.ping()
        assert not ran


@vectors("federation", of_kind("answer"))
async def test_an_answer_that_is_forwarded(vector: Vector, anyio_backend: str) -> None:
    """The bytes that a node in between sends for the Answer of the next node."""
    path = [NodeId(unhex(one)) for one in vector["path"]]
    async with row(3) as made:
        _, between, last = made.nodes
        places = dict(zip((vector["at"], vector["at"] + 1), (between, last), strict=True))
        path = [places[n].node_id if n in places else one for n, one in enumerate(path)]
        if vector["at"] > 0:
            path[vector["at"] - 1] = made.origin.node_id
        switch = PassesOn(made.links[1][0], tuple(path))
        between.handlers.reserved.pop("tunnel")
        between.connections.serve_tunnels(switch)

        async def answer(stream: Stream) -> None:
            event = await stream.receive_event()
            payload = unhex(vector["input"])
            core = stream.live.core
            core.send(stream.id, event.async_id, TUNNEL, TUNNEL_ANSWER, payload, lbm=False)

        last.handlers.reserved["tunnel"] = Entry("tunnel", answer)
        stream = made.links[0][0].streams.open_tunnel()
        dial = encode_dial(TRACE, 9, path=tuple(path))
        event = await stream.request(TUNNEL, DIAL, payload=dial, timeout=PATIENCE)
        if "expected" in vector:
            assert event.payload.hex() == vector["expected"]
        else:
            assert decode(event.payload) == {
                keys.CODE: int(vector["fails"]),
                keys.HOP: vector["hop"],
            }
