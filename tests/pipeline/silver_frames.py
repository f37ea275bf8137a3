"""Silver frames made by hand: a conversation is written once and kept by both ends.

Rows have exactly the columns of silver. Knows no journals' bytes.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from pyspark.sql import DataFrame, SparkSession

START = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
SEGMENT = "{}-20260102T120000000000Z-00000000"

EVENTS = (
    "journal string, segment string, session string, direction string, sender string, "
    "receiver string, offset long, place long, time timestamp, stream long, wire_size int, "
    "blob_size int, digest binary, async_id int, category int, subcategory int, type string, "
    "topic string, namespace string, label string, code int, opens long, request int, "
    "payload_size int, payload binary, "
    "item int, items int, status string, seal_delay_us long, date date"
)
SESSIONS = (
    "journal string, segment string, session string, offset long, time timestamp, what string, "
    "initiator boolean, local_node string, remote_node string, local_role string, "
    "remote_role string, address string, suite string, direction string, epoch int, "
    "generation int, code int, text string, remote boolean, received_place long, "
    "sent_place long, resumption long, started timestamp"
)
FINDINGS = (
    "kind string, journal string, segment string, session string, direction string, place long, "
    "time timestamp, offset long, count long, evidence string"
)
TUNNELS = (
    "journal string, segment string, offset long, time timestamp, trace string, hop long, "
    "length long, before string, after string, began timestamp, ended timestamp, forward long, "
    "back long"
)

Row = dict[str, Any]


class Talk:
    """What two nodes say in one session: `say` adds an event to both ends' journals."""

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
        place = self._places[sender] = self._places[sender] + 1
        notes = columns.pop("notes", 1)
        digest = sha256(f"{self.session} {sender} {place}".encode()).digest()[:16]
        receiver = self.nodes[sender == self.nodes[0]]
        for journal in self.nodes:
            offset = self._offset(journal)
            for item in range(notes):
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
                    "type": type,
                    "payload_size": None if type is None else 50,
                    "item": item,
                    "items": notes,
                    "status": "ok",
                    "date": START.date(),
                }
                self.events.append(row | columns)

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
        """A row of what one journal says of the session."""
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
        """`by` sends Close, and both journals say so."""
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
    """What the servers between the ends of a path say of a tunnel, by server; of an `account`
    also its home, which is first. As many bytes went each way at all of them."""
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


def frame(spark: SparkSession, schema: str, rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    """A frame of these rows; columns that a row does not name are null."""
    names = [column.split()[0] for column in schema.split(", ")]
    return spark.createDataFrame([tuple(row.get(name) for name in names) for row in rows], schema)


def frames(spark: SparkSession, *talks: Talk) -> tuple[DataFrame, DataFrame]:
    """The events and session rows of these conversations."""
    return (
        frame(spark, EVENTS, [row for talk in talks for row in talk.events]),
        frame(spark, SESSIONS, [row for talk in talks for row in talk.sessions]),
    )
