"""Actions that a test requests from a ReferencePeer: calls, streams, pings, rekeys and closing.

Each action is a function of a peer, built on `send` and `recv_event` without private names. Events
that an action doesn't wait for are added to the peer's backlog.
"""

from collections.abc import Callable
from typing import Any

from tests.reference.batches import batch_of
from tests.reference.peer import Closed, ReferencePeer
from tests.reference.streams import cost
from tests.reference.wire import (
    CODES,
    NAMES,
    RESULT_CODES,
    TYPES,
    Event,
    Violation,
    cells_payload,
)


def wait_for(peer: ReferencePeer, wanted: Callable[[Event], bool]) -> Event:
    """The first event that is wanted, from the backlog or the wire."""
    for event in list(peer.backlog):
        if wanted(event):
            peer.backlog.remove(event)
            return event
    while True:
        arrived = peer.next_event()
        if arrived is not None and wanted(arrived):
            return arrived
        if arrived is not None:
            peer.backlog.append(arrived)


def call(
    peer: ReferencePeer, topic: str, data: Any = None, *, async_id: int = 1, stream: int = 1
) -> dict[int, Any]:
    """3/1 Call; the cells of its Result (Chunks stay in the backlog)."""
    peer.send("Call", stream, async_id, topic=topic, data=data)
    return result(peer, async_id, stream)


def result(peer: ReferencePeer, async_id: int, stream: int = 1) -> dict[int, Any]:
    """Waits for the Result of a request; its cells."""

    def wanted(event: Event) -> bool:
        return event.type == TYPES["Result"] and (event.stream, event.async_id) == (
            stream,
            async_id,
        )

    return wait_for(peer, wanted).cells()


def serve(peer: ReferencePeer) -> Closed:
    """Answers calls until Close, which is returned; a topic without a handler gets code 1."""
    while True:
        try:
            event = peer.recv_event()
        except Closed as closed:
            return closed
        if event.type == TYPES["Call"] and event.async_id:
            code = RESULT_CODES["topic not found"]
            peer.send("Result", event.stream, event.async_id, code=code)


def open_stream(peer: ReferencePeer, label: str, window: int | None = None) -> int:
    """2/1 Open on the next own id."""
    number = peer.streams.next_local
    cells: dict[str, Any] = {"label": label}
    if window is not None:
        cells["window"] = window
    peer.send("Open", number, **cells)
    return number


def send_data(peer: ReferencePeer, stream: int, data: bytes) -> None:
    """2/5 Data, once there is credit."""
    event = Event(stream, 0, *TYPES["Data"], data)
    while stream > 1 and peer.streams.streams[stream].send_credit <= 0 < cost(event):
        arrived = peer.next_event()
        if arrived is not None:
            peer.backlog.append(arrived)
    peer.send_event(stream, 0, *event.type, data)


def send_batch(peer: ReferencePeer, *events: Event) -> bytes:
    """2/6 Batch of these, all of one stream; the event as sent."""
    batch = batch_of(events)
    return peer.send_event(batch.stream, 0, *batch.type, batch.payload)


def finish(peer: ReferencePeer, stream: int) -> None:
    """2/3 Finish."""
    peer.send("Finish", stream)


def reset(peer: ReferencePeer, stream: int, code: int) -> None:
    """2/4 Reset."""
    peer.send("Reset", 0, stream=stream, code=code)


def grant(peer: ReferencePeer, stream: int, credit: int) -> None:
    """2/2 Window."""
    peer.send("Window", 0, stream=stream, credit=credit)


def ping(peer: ReferencePeer, async_id: int = 1) -> None:
    """1/6 Ping, and its Pong."""
    peer.send("Ping", 0, async_id)
    wait_for(peer, lambda event: event.type == TYPES["Pong"] and event.async_id == async_id)


def offer_rekey(peer: ReferencePeer) -> None:
    """1/10 RekeyOffer; the rest follows as events come in."""
    if peer.rekeying is None:
        raise Violation("protocol-error", "no rekey in plaintext")
    peer.send_event(0, 0, *TYPES["RekeyOffer"], peer.rekeying.make_offer())
    peer.rekeying.offered()


def rekey(peer: ReferencePeer) -> None:
    """Offers, and reads on until a rekey is through on both sides."""
    offer_rekey(peer)
    settle(peer)


def settle(peer: ReferencePeer) -> None:
    """Read until the current rekey is complete."""
    while peer.rekeying is not None and (peer.rekeying.offer or peer.rekeying.pending):
        arrived = peer.next_event()
        if arrived is not None:
            peer.backlog.append(arrived)


def close(peer: ReferencePeer, code: str = "normal", text: str = "") -> None:
    """1/12 Close; then reads on, discarding, until the end or two seconds."""
    cells = {"code": CODES[code], **({"text": text} if text else {})}
    peer.send_event(0, 0, *TYPES["Close"], cells_payload(**cells))
    peer.channel.finish()
    peer.channel.drain(timeout=2.0)
    peer.channel.close()


def closed_with(peer: ReferencePeer) -> str:
    """Reads until Close; the name of its code (section 11)."""
    code, _ = peer.recv_close()
    return NAMES.get(code, str(code))


def received(peer: ReferencePeer, name: str) -> list[dict[int, Any]]:
    """The cells of every event of a type that came in so far."""
    return [o.event.cells() for o in peer.events if o.event.type == TYPES[name]]
