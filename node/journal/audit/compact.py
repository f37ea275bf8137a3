"""Events as an audit holds them until they are final: one short row each, notes included.

What many rows have in common is one object in all of them (`head`, `content`), and an event that
carries many notes is one row until it is given out. Each event of a batch has a row of its own.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from parley._node.journal.audit.content import Content
from parley._node.journal.audit.rows import EventRow


class CompactRow(NamedTuple):
    """One event. `head` has the values of `HEAD_COLUMNS`, `number` is category << 8 |
    subcategory. If it could not be decrypted, `async_id`, `number` and `payload` are None.
    `topic` is the event's own or that of its stream, `label` the stream's. If `content` has
    notes, they replace `payload`, which is None. `inside` is its place in a batch, from 0, None
    outside of one; the events of a batch share its offset, place, sizes and digest."""

    head: tuple[str | None, ...]
    offset: int
    place: int | None
    time_ns: int
    stream: int
    wire_size: int
    blob_size: int | None
    digest: bytes | None
    async_id: int | None
    number: int | None
    content: Content
    topic: str | None
    label: str | None
    payload: bytes | None
    status: str
    inside: int | None = None


# The contents of an event that was not decrypted, and of a Proof.
UNREAD: Final = Content(None)
PROOF: Final = Content("proof")


def event_rows(
    rows: Sequence[CompactRow], sealed_ns: int | None, *, payloads: bool
) -> Iterator[EventRow]:
    """Rows with the columns of `EVENT_COLUMNS`: one for each event, or for each of its notes.

    `sealed_ns` is the time of the seal that vouches for them, if one does.
    """
    for row in rows:
        content, number = row.content, row.number
        fixed = (
            *row.head,
            *row[1:9],
            None if number is None else number >> 8,
            None if number is None else number & 255,
            content.type,
            row.topic,
            content.namespace,
            row.label,
            content.code,
            content.opens,
            content.request,
        )
        # From the times as rows have them, in microseconds, so that others compute the same.
        delay = None if sealed_ns is None else sealed_ns // 1000 - row.time_ns // 1000
        count = 1 if content.notes is None else len(content.notes)
        for item, piece in enumerate(content.notes or [row.payload]):
            size = None if piece is None else len(piece)
            kept = piece if payloads else None
            yield (*fixed, size, kept, row.inside, item, count, row.status, delay)
