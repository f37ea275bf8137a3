"""Events as an audit holds them until they are final: one short row each, notes and all.

One rule: what many rows have in common is one object in all of them (`head`, `content`), and
an event that carries many notes is one row until it is given out. Decides nothing.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from node.journal.audit.content import Content
from node.journal.audit.rows import EventRow


class CompactRow(NamedTuple):
    """One event. `head` are the values of `HEAD_COLUMNS`, `number` is category << 8 |
    subcategory; of what could not be decrypted `async_id`, `number` and `payload` are None.
    `topic` is the event's own or that of its stream, `label` the stream's. Where `content` has
    notes, they stand for `payload`, which is None."""

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


# What was not decrypted; and a Proof, of which nothing else is told.
UNREAD: Final = Content(None)
PROOF: Final = Content("proof")


def event_rows(
    rows: Sequence[CompactRow], sealed_ns: int | None, *, payloads: bool
) -> Iterator[EventRow]:
    """Rows with the columns of `EVENT_COLUMNS`: one for each event, and one for each note.

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
        # Between the times as rows have them, so that it is the same whoever reckons it.
        delay = None if sealed_ns is None else sealed_ns // 1000 - row.time_ns // 1000
        count = 1 if content.notes is None else len(content.notes)
        for item, piece in enumerate(content.notes or [row.payload]):
            size = None if piece is None else len(piece)
            kept = piece if payloads else None
            yield (*fixed, size, kept, item, count, row.status, delay)
