"""Row 24, a peer that floods and doesn't read, against the core and against a whole node.

The node uses a real socket, and its memory is measured. Each limit is tested with its component:
docs/reference/limits.md lists them.
"""

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any, Final

import pytest

from parley._lbm import keys
from parley._lbm.codec import encode
from parley._node.protocol.codes import CALL, FINISH, OPEN, RESET, SIM, STREAM, CloseCode
from parley._node.protocol.event import serialise_batch
from parley._node.protocol.limits import BATCH_COUNT, CONTROL_BUFFER, Limits
from tests.interop.meeting import our_config, their_config, with_bystander
from tests.node.protocol.pair import Pair, open_pair
from tests.reference.channel import ConnectionLost
from tests.reference.peer import ReferencePeer
from tests.reference.wire import TYPES

# Floods that no other test sends: through the core, whose answers are not read.


def opens(pair: Pair, between: Callable[[int], object]) -> None:
    """Open streams endlessly, each after the last one has ended.

    Limits on streams don't apply here, but unread answers are limited.
    """
    payload, stream = encode({keys.LABEL: "x"}), 1
    while pair.b.state == "OPEN":
        pair.b.reports.clear()
        stream += 2
        # Sealed from time to time, as required.
        pair.inject(pair.a, stream, STREAM, OPEN, payload, sealed=stream % 10_000 == 1)
        between(stream)
        # Each answer has more than 32 bytes.
        assert stream < CONTROL_BUFFER // 16 + 2_000
    assert pair.b.code == CloseCode.OVERLOADED
    assert not pair.b.wire


def test_opens_that_the_core_refuses() -> None:
    """Memory is short, so the core resets every stream immediately."""
    pair = open_pair(peer_memory=1, seal_events=65_536, max_streams=1)

    def reset(stream: int) -> None:
        cells = {keys.STREAM: stream, keys.CODE: CloseCode.NORMAL}
        pair.inject(pair.a, 0, STREAM, RESET, encode(cells))

    opens(pair, reset)
    assert CONTROL_BUFFER < pair.b.core.queued_bytes < CONTROL_BUFFER + 4_096


def test_opens_that_the_application_refuses() -> None:
    """No handler exists, so the application rejects each stream after looking at it."""
    pair = open_pair(seal_events=65_536, max_streams=1)

    def refuse(stream: int) -> None:
        if pair.b.state == "OPEN":
            pair.b.core.reset_stream(stream, CloseCode.NO_HANDLER)
            pair.inject(pair.a, stream, STREAM, FINISH)

    opens(pair, refuse)


# Floods of a peer that doesn't read, over a socket.

MEBIBYTE: Final = 1 << 20
MOST: Final = 16 * MEBIBYTE
LARGE: Final = 50_000
TIMES: Final = 400
BATCHES: Final = 80  # of 256 calls each
Flood = Callable[[ReferencePeer, int], object]

FLOODS: Final[dict[str, Flood]] = {
    "calls with large answers": lambda p, n: p.send(
        "Call", 1, n % 65_535 + 1, topic="parley.echo", data=bytes(LARGE)
    ),
    "calls that are never answered": lambda p, n: p.send(
        "Call", 1, n % 65_535 + 1, topic="hold", data=bytes(LARGE)
    ),
    "calls that want no answer": lambda p, n: p.send("Call", 1, 0, topic="hold", data=bytes(LARGE)),
    "calls without a handler": lambda p, n: p.send("Call", 1, n % 65_535 + 1, topic="x" * LARGE),
    "streams and their data": lambda p, n: (
        p.send("Open", 2 * n + 3, label="hold"),
        p.send_event(2 * n + 3, 0, *TYPES["Data"], bytes(LARGE)),
    ),
    "streams without a handler": lambda p, n: (
        p.send("Open", 2 * n + 3, label="x" * LARGE),
        p.send("Reset", 0, stream=2 * n + 3, code=0),
    ),
    "streams that are echoed": lambda p, n: (
        p.send("Open", 2 * n + 3, label="echo"),
        p.send_event(2 * n + 3, 0, *TYPES["Data"], bytes(LARGE)),
    ),
    "Pings": lambda p, n: [p.send("Ping", 0, id) for id in range(1, 100)],
    "notes without a subscription": lambda p, n: p.send("Notes", 1, 0, notes=[bytes(LARGE)]),
    "answers without a request": lambda p, n: p.send("Result", 1, 9, code=0, data=bytes(LARGE)),
    "events of an application": lambda p, n: p.send_event(1, 0, 64, 1, bytes(LARGE)),
    "subscriptions": lambda p, n: p.send("Subscribe", 1, n % 65_535 + 1, topic="news"),
    "short calls, in Batches": lambda p, n: p.send_event(1, 0, *TYPES["Batch"], short_calls(n)),
}


def short_calls(number: int) -> bytes:
    """Return the payload of a Batch with as many calls as permitted, each with its own id."""
    call = encode({keys.TOPIC: "hold", keys.DATA: bytes(60)})
    first = number * BATCH_COUNT
    ids = [(first + count) % 65_535 + 1 for count in range(BATCH_COUNT)]
    return serialise_batch((id, SIM, CALL, call) for id in ids)


class Forgetful(list[Any]):
    """Discards sent data, so that the test's own memory isn't measured."""

    def append(self, item: object) -> None:
        return


def flooding(name: str) -> Callable[[ReferencePeer], int]:
    """Send without reading until the node closes the connection or doesn't read for half a
    second.
    """

    flood, times = FLOODS[name], BATCHES if "Batches" in name else TIMES

    def act(peer: ReferencePeer) -> int:
        peer.handshake()
        peer.channel.sent = Forgetful()
        peer.channel.sock.settimeout(0.5)
        for count in range(times):
            try:
                flood(peer, count)
            except (ConnectionLost, TimeoutError):
                return count
        return times

    return act


@pytest.mark.anyio
@pytest.mark.parametrize("name", FLOODS)
async def test_a_flood_is_bounded_and_hurts_nobody_else(name: str) -> None:
    """The peer sends at least 20 MB; the node stores a fraction of it and serves others.

    An echo that waits to be written stores one chunk per stream, so the number of streams is small.
    """
    limits = Limits(max_streams=64)
    config = our_config(peer_memory=4 * MEBIBYTE, write_buffer=MEBIBYTE, limits=limits)
    async with with_bystander(config) as ours:
        ours.node.topic("news")
        ours.called = Forgetful()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            await ours.meet(flooding(name), config=their_config())
            gc.collect()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak - before < MOST
        await ours.until(lambda: len(ours.node.peers) == 1)
