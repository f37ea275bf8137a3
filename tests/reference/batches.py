"""2/6 Batch: consecutive events of one stream in one event (section 8).

Encodes and decodes batches. The caller processes each event as if it had arrived outside of a
batch.
"""

from collections.abc import Sequence
from typing import Final

from tests.reference.wire import TYPES, Event, Violation, parse_inner

COUNTS: Final = range(2, 257)
MOST_BYTES: Final = 32_768
_NOT_INSIDE: Final = (1, 2)  # Categories; 0 means no event.


def batch_of(events: Sequence[Event]) -> Event:
    """These events of one stream as one, right or wrong."""
    payload = b"".join(inside(event) for event in events)
    return Event(events[0].stream, 0, *TYPES["Batch"], payload)


def inside(event: Event, length: int | None = None) -> bytes:
    """An event as encoded in a Batch, or with a different `length`."""
    head, payload = event.inner[:4], event.inner[4:]
    return head + (len(payload) if length is None else length).to_bytes(4) + payload


def batched(batch: Event) -> list[Event]:
    """Return the events of a Batch in order. Raises Violation for an invalid Batch, whose events
    are then all ignored.
    """
    if not batch.stream or batch.async_id:
        raise Violation("protocol-error", "a Batch on stream 0, or with an async id")
    if len(batch.payload) > MOST_BYTES:
        raise Violation("protocol-error", "a Batch of more than 32,768 bytes")
    events, rest = list[Event](), batch.payload
    while rest:
        head, length, rest = rest[:4], int.from_bytes(rest[4:8]), rest[8:]
        if not 0 < length <= len(rest):
            raise Violation("protocol-error", "an event of a Batch is cut short, or has no byte")
        event = parse_inner(batch.stream, head + rest[:length])
        if event.category in _NOT_INSIDE:
            raise Violation("protocol-error", f"category {event.category} in a Batch")
        events.append(event)
        rest = rest[length:]
    if len(events) not in COUNTS:
        raise Violation("protocol-error", f"a Batch of {len(events)} events")
    return events


def meant(event: Event) -> list[Event]:
    """What an event that this side sends counts as: the events of a Batch, if it is a right one."""
    if event.type != TYPES["Batch"]:
        return [event]
    try:
        return batched(event)
    except Violation:
        return [event]
