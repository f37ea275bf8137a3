"""Silver made by hand: a conversation is written once and kept by both ends.

Rows have the columns of silver. Knows no journals' bytes, and no Spark.
"""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import pyarrow as pa

from parley._pipeline.gold.store import EVENT_ROWS
from parley._pipeline.summary.facts import summary_of
from parley._pipeline.summary.kinds import merge_summaries

START = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
SEGMENT = "{}-20260102T120000000000Z-00000000"

CHECK_KEY = bytes(range(16))

Row = dict[str, Any]


class Talk:
    """The events of two nodes in one session: `say` adds an event to both ends' journals."""

    def __init__(self, session: str, one: str = "a", other: str = "b") -> None:
        self.session = session
        self.nodes = (one, other)
        self.events: list[Row] = []
        self.sessions: list[Row] = []
        self._places = {one: -1, other: -1}
        self._offsets = {one: 0, other: 0}
        for node in self.nodes:
            self.about(node, "start")
            self.say(node, "proof", stream=0)

    def say(self, sender: str, type: str | None, ms: float = 0, **columns: Any) -> None:
        """An event at `ms` by both clocks; `notes` of them are coalesced in it."""
        notes = columns.pop("notes", 1)
        rows = [{"item": item, "items": notes} for item in range(notes)]
        self._say(sender, ms, [{"type": type} | row | columns for row in rows])

    def batch(self, sender: str, ms: float, *events: Row) -> None:
        """One event that is a run of these."""
        self._say(sender, ms, [row | {"inside": at} for at, row in enumerate(events)])

    def _say(self, sender: str, ms: float, rows: list[Row]) -> None:
        """An event of which there are several rows, by their own columns."""
        place = self._places[sender] = self._places[sender] + 1
        digest = sha256(f"{self.session} {sender} {place}".encode()).digest()[:16]
        receiver = self.nodes[sender == self.nodes[0]]
        for journal in self.nodes:
            offset = self._offset(journal)
            for own in rows:
                row: Row = {
                    "journal": journal,
                    "segment": SEGMENT.format(journal),
                    "session": self.session,
                    "direction": "sent" if journal == sender else "received",
                    "sender": sender,
                    "receiver": receiver,
                    "offset": offset,
                    "place": place,
                    "time": START + timedelta(milliseconds=ms),
                    "stream": 1,
                    "wire_size": 100,
                    "blob_size": 79,
                    "digest": digest,
                    "payload_size": None if own["type"] is None else 50,
                    "item": 0,
                    "items": 1,
                    "status": "ok",
                    "date": START.date(),
                }
                self.events.append(row | own)

    def call(self, caller: str, topic: str, ms: float, took: float, **more: Any) -> None:
        """A call and its answer; `code`, `async_id` and `chunks` of it, if not 0, 1 and 0."""
        async_id = more.get("async_id", 1)
        other = self.nodes[caller == self.nodes[0]]
        self.say(caller, "call", ms, topic=topic, async_id=async_id, category=3)
        for _ in range(more.get("chunks", 0)):
            self.say(other, "chunk", ms + took / 2, async_id=async_id, category=3)
        code = more.get("code", 0)
        self.say(other, "result", ms + took, async_id=async_id, category=3, code=code)

    def about(self, journal: str, what: str, ms: float = 0, **columns: Any) -> None:
        """Return a row of one journal about the session."""
        one, other = self.nodes
        dialled = journal == one
        row: Row = {
            "journal": journal,
            "segment": SEGMENT.format(journal),
            "session": self.session,
            "offset": self._offset(journal),
            "time": START + timedelta(milliseconds=ms),
            "what": what,
            "initiator": dialled,
            "local_node": journal,
            "remote_node": other if dialled else one,
            "local_role": "peer",
            "remote_role": "peer",
            "address": "memory",
            "started": START,
            "suite": "x25519 ed25519 sha256 aes-256-gcm chain",
        }
        self.sessions.append(row | columns)

    def close(self, by: str, ms: float, code: int = 0) -> None:
        """`by` sends Close, and both journals record it."""
        self.say(by, "close", ms, stream=0, code=code, category=1)
        for node in self.nodes:
            other = self.nodes[node == self.nodes[0]]
            self.about(
                node,
                "end",
                ms,
                code=code,
                remote=node != by,
                sent_place=self._places[node],
                received_place=self._places[other],
            )

    def drop(self, journal: str, sender: str, *places: int) -> None:
        """Take events out of one journal."""
        self.events = [
            row
            for row in self.events
            if (row["journal"], row["sender"]) != (journal, sender) or row["place"] not in places
        ]

    def lose(self, journal: str) -> None:
        """Take the whole session out of one journal."""
        self.events = [row for row in self.events if row["journal"] != journal]
        self.sessions = [row for row in self.sessions if row["journal"] != journal]

    def row(self, journal: str, sender: str, place: int) -> Row:
        """One event's row, to be changed."""
        wanted = (journal, sender, place)
        [row] = [
            row
            for row in self.events
            if (row["journal"], row["sender"], row["place"]) == wanted and row["item"] == 0
        ]
        return row

    def _offset(self, journal: str) -> int:
        self._offsets[journal] += 100
        return self._offsets[journal]


def tunnel(trace: str, *path: str, account: str | None = None, **columns: Any) -> dict[str, Row]:
    """Return the records of the servers between the ends of a path about a tunnel, by server; of an
    `account` also its home, which is first. The same number of bytes went each way at all of them.
    """
    whole = (account, *path)
    row: Row = {
        "offset": 50,
        "time": START + timedelta(seconds=2),
        "trace": trace,
        "length": len(path),
        "began": START + timedelta(seconds=1),
        "ended": START + timedelta(seconds=2),
        "forward": 1_000,
        "back": 100_000,
    }
    return {
        node: row
        | {"journal": node, "segment": SEGMENT.format(node), "hop": hop}
        | {"before": whole[hop], "after": path[hop + 1]}
        | columns
        for hop, node in enumerate(path[:-1])
        if whole[hop] is not None
    }


def events_of(*talks: Talk) -> pa.Table:
    """The events of these conversations, with the columns that are summed up."""
    return pa.Table.from_pylist([row for talk in talks for row in talk.events], EVENT_ROWS)


def statement(journal: str, session: str, seconds: int, **columns: Any) -> Row:
    """Return a valid revocation of `old`, presented to a journal's node by `new`."""
    row: Row = {
        "journal": journal,
        "segment": SEGMENT.format(journal),
        "session": session,
        "offset": 50,
        "time": START + timedelta(seconds=seconds),
        "direction": "received",
        "presenter": "new",
        "number": 0,
        "status": "ok",
        "kind": "revocation",
        "origin": "old",
        "successor": None,
        "by_recovery": False,
        "made_ms": 2**48 - 1,
    }
    return row | columns


def summary(
    *talks: Talk,
    found: Iterable[Row] = (),
    tunnels: Iterable[Row] = (),
    statements: Iterable[Row] = (),
) -> dict[str, pa.Table]:
    """The summary of these conversations, and of other rows of silver."""
    parts: list[dict[str, pa.Table]] = [
        summary_of([(batch, True, True)], CHECK_KEY)
        for batch in events_of(*talks).to_batches()
        if batch.num_rows
    ]
    others = {
        "sessions": [row for talk in talks for row in talk.sessions],
        "findings": list(found),
        "tunnels": list(tunnels),
        "statements": list(statements),
    }
    for name, rows in others.items():
        parts.append({name: pa.table({"other": pa.array(map(as_json, rows), pa.string())})})
    return merge_summaries(parts)


def as_json(row: Row) -> str:
    """A row that is no event, as silver has it: times in nanoseconds."""
    return json.dumps(in_ns(row))


def in_ns(row: Row) -> Row:
    """A row with its times in nanoseconds."""
    return {
        f"{name}_ns" if isinstance(value, datetime) else name: (
            int(value.timestamp() * 1_000_000) * 1_000 if isinstance(value, datetime) else value
        )
        for name, value in row.items()
    }


def micros(time: datetime) -> int:
    """Since the epoch."""
    return int(time.timestamp()) * 1_000_000


def chosen(table: pa.Table, **equal: Any) -> list[dict[str, Any]]:
    """The rows of a table that have these values."""
    rows: list[dict[str, Any]] = table.to_pylist(maps_as_pydicts="strict")
    return [row for row in rows if all(row[name] == value for name, value in equal.items())]


def values(rows: Sequence[Row], *columns: str) -> list[tuple[Any, ...]]:
    """Some columns of rows, in their order."""
    return sorted((tuple(row[name] for name in columns) for row in rows), key=str)
