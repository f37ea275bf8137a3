"""The relay over sockets: which clients get messages, are rejected, or are dropped."""

from contextlib import suppress
from pathlib import Path
from uuid import UUID

import anyio
import pytest

from parley._node.dialects.relay.connection import MessageSorter
from parley._node.errors import (
    AddressError,
    ConfigError,
    InsecureAddressError,
    ParleyError,
    PeerClosedError,
    RelayRefusedError,
)
from parley._node.gateways.relay.client import RelayClient
from parley._node.gateways.relay.relay import Relay
from parley._node.logs import RateLimitedLogger
from tests.node.dialects.relay.hall import A, B, faults, message, messages
from tests.node.gateways.relays import PLACE, clients_of, raw, read, relaying, to_the_end
from tests.node.network import PATIENCE, eventually

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("scheme", ["tcp", "unix"])
async def test_messages_go_where_they_are_for(scheme: str, tmp_path: Path) -> None:
    place = PLACE if scheme == "tcp" else f"unix://{tmp_path}/relay"
    async with relaying(place=place) as (relay, address), clients_of(relay, address, 3) as clients:
        one, two, three = clients
        assert relay.addresses == [address]
        await one.send(two.uuid, b"to two")
        await one.broadcast(b"to all")
        await one.send(one.uuid, b"to myself")
        assert await read(two, 2) == [(one.uuid, b"to two", False), (one.uuid, b"to all", True)]
        assert await read(three) == [(one.uuid, b"to all", True)]
        assert await read(one) == [(one.uuid, b"to myself", False)]
        assert sorted(relay.clients) == sorted(client.uuid for client in clients)
        assert one.uuid in relay
        assert repr(relay) == "<Relay, 3 clients>"


async def test_feedback_can_be_turned_off() -> None:
    nowhere = UUID(int=5)
    for feedback in (True, False):
        async with (
            relaying(feedback=feedback) as (relay, address),
            clients_of(relay, address, 1) as (client,),
        ):
            await client.send(nowhere, b"x")
            await client.send(client.uuid, b"after it")
            await read(client)
            assert client.faults == int(feedback)
            assert relay.undeliverable == 1


async def test_it_does_not_listen_where_others_could_reach_it() -> None:
    async with relaying() as (relay, _):
        with pytest.raises(InsecureAddressError):
            await relay.listen("tcp://0.0.0.0:0")
        await relay.listen("tcp://0.0.0.0:0", allow_insecure=True)
        with pytest.raises(AddressError):
            await relay.listen("udp://127.0.0.1:0")
        assert len(relay.addresses) == 2


async def test_outside_of_its_block_it_is_not_running() -> None:
    relay = Relay()
    with pytest.raises(ParleyError, match="not running"):
        await relay.listen(PLACE)
    assert (relay.addresses, relay.clients, relay.turned_away) == ([], [], 0)
    async with relay:
        with pytest.raises(ParleyError, match="already"):
            await relay.__aenter__()
        await relay.listen(PLACE)
    assert relay.addresses == []
    async with relay:  # and again
        await relay.listen(PLACE)


async def test_connections_above_the_limit_are_rejected() -> None:
    async with relaying(clients=1) as (relay, address):
        async with clients_of(relay, address, 1), await raw(address) as other:
            assert await to_the_end(other) == b""
            assert relay.turned_away == 1
        async with clients_of(relay, address, 1):  # there is capacity again
            assert relay.turned_away == 1


async def test_the_uuid_has_its_time() -> None:
    async with relaying(uuid_timeout=0.05) as (_, address), await raw(address) as half_open:
        await half_open.send(A[:15])
        told = await to_the_end(half_open)
        assert faults(told) == [1]


async def test_a_cut_at_every_byte_leaves_no_state() -> None:
    data = A + message(B, A, b"payload")
    async with relaying() as (relay, address), clients_of(relay, address, 1) as (other,):
        for size in range(len(data)):
            async with await raw(address) as stream:
                await stream.send(data[:size] or b"")
        await other.send(other.uuid, b"first to come")
        assert await read(other) == [(other.uuid, b"first to come", False)]
        await relay.until(lambda: relay.clients == [other.uuid])
        assert relay.undeliverable == 0


async def test_a_client_that_does_not_read_is_dropped_without_delaying_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        relaying(write_buffer=100_000) as (relay, address),
        clients_of(relay, address, 2) as (one, two),
        await raw(address) as slow,
    ):
        await slow.send(A)
        await relay.until(lambda: UUID(bytes=A) in relay)
        sent = 0
        while not relay.dropped:
            await one.send(UUID(bytes=A), bytes(50_000))
            await one.send(two.uuid, sent.to_bytes(4))
            assert await read(two) == [(one.uuid, sent.to_bytes(4), False)]
            sent += 1
        assert UUID(bytes=A) not in relay
        assert "does not read" in caplog.text
        await one.send(UUID(bytes=A), b"gone")
        await eventually(lambda: one.faults == 1)


async def test_dropped_clients_are_logged_at_a_limited_rate(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with relaying(write_buffer=100_000) as (relay, address):
        relay._drops = RateLimitedLogger(burst=2, per_second=0.001)
        async with clients_of(relay, address, 1) as (one,):
            for number in range(4):
                async with await raw(address) as slow:
                    await slow.send(A)
                    await relay.until(lambda: UUID(bytes=A) in relay)
                    while relay.dropped == number:
                        await one.send(UUID(bytes=A), bytes(50_000))
                    await relay.until(lambda: UUID(bytes=A) not in relay)
        lines = [record for record in caplog.records if "does not read" in record.getMessage()]
        assert len(lines) == 2


async def test_after_the_end_no_data_is_sent_and_waiting_senders_resume() -> None:
    got: list[bytes] = []

    async def visit(address: str) -> None:
        async with RelayClient(address) as client:
            try:
                while True:
                    got.append((await anext(client)).payload)
            except PeerClosedError:
                got.append(b"closed")

    async with anyio.create_task_group() as tasks:
        async with relaying() as (relay, address):
            tasks.start_soon(visit, address)
            await relay.until(lambda: len(relay.clients) == 1)
            relay.broadcast(UUID(int=7), message(bytes(16), UUID(int=7).bytes, b"last"))
        await eventually(lambda: got == [b"last", b"closed"])


async def test_left_by_an_error_it_drops_its_clients() -> None:
    with anyio.fail_after(5):
        with suppress(ZeroDivisionError):
            async with Relay() as relay:
                stream = await raw(await relay.listen(PLACE))
                await stream.send(A)
                await relay.until(lambda: len(relay.clients) == 1)
                raise ZeroDivisionError
        assert await to_the_end(stream) == b""
        await stream.aclose()


async def test_an_internal_error_ends_one_client(monkeypatch: pytest.MonkeyPatch) -> None:
    async with relaying() as (relay, address), clients_of(relay, address, 2) as (one, two):
        right = MessageSorter.sort

        def wrong(self: MessageSorter, data: bytes, at: int, batch: object) -> str:
            if self._uuid == one.uuid.bytes:
                raise ZeroDivisionError
            return right(self, data, at, batch)  # type: ignore[arg-type]  # what it was given

        monkeypatch.setattr(MessageSorter, "sort", wrong)
        await one.broadcast(b"x")
        with pytest.raises(RelayRefusedError) as caught:
            await read(one)
        assert caught.value.code == 6
        await two.send(two.uuid, b"served on")
        assert await read(two) == [(two.uuid, b"served on", False)]


async def test_a_member_without_connection_takes_part() -> None:
    got: list[bytes] = []

    class Listener:
        def deliver(self, pieces: list[bytes], held: int, now: float) -> None:
            got.append(b"".join(pieces))

    own = UUID(int=7)
    async with relaying() as (relay, address):
        leave = relay.join(own, Listener())  # type: ignore[arg-type]  # a list is a sequence
        for taken in (own, UUID(int=0)):
            with pytest.raises(ConfigError, match="cannot join the relay"):
                relay.join(taken, Listener())  # type: ignore[arg-type]  # likewise
        async with clients_of(relay, address, 1) as (client,):
            await client.send(own, b"direct")
            relay.broadcast(own, message(bytes(16), own.bytes, b"news"))
            assert await read(client) == [(own, b"news", True)]
            await eventually(lambda: bool(got))
        assert messages(got[0]) == [(own.bytes, client.uuid.bytes, b"direct")]
        leave()
        assert relay.clients == []


@pytest.mark.parametrize("count", [1, 6])
async def test_a_reading_client_gets_all_messages(count: int) -> None:
    each = 36 // count
    async with (
        relaying(patience=PATIENCE) as (relay, address),
        clients_of(relay, address, 1 + count) as (reader, *senders),
        anyio.create_task_group() as tasks,
    ):

        async def send(sender: RelayClient) -> None:
            for n in range(each):
                await sender.send(reader.uuid, bytes([n]) * 900_000)

        for sender in senders:
            tasks.start_soon(send, sender)
        got: dict[UUID, list[int]] = {sender.uuid: [] for sender in senders}
        for _ in range(each * count):
            message = await anext(reader)
            assert len(message.payload) == 900_000
            got[message.sender].append(message.payload[0])
        assert list(got.values()) == [list(range(each))] * count
        assert relay.dropped == 0
