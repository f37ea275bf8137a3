"""The bodies of records: segment, block, secret, key update, the ends, changes, tunnels.

What is parsed has the types and sizes that docs/journal.md gives, or else raises
JournalFormatError; whether it is true is for the audit to find out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

from parley._crypto.identity import NodeId
from parley._lbm.cells import read_array, read_bool, read_bytes, read_text, read_uint
from parley._lbm.codec import encode
from parley._node.federation.tunnel_record import TunnelRecord
from parley._node.journal import keys
from parley._node.journal.errors import JournalFormatError
from parley._node.journal.fields import (
    EVENT,
    EVENT_HEAD,
    LARGEST,
    LARGEST_COUNT,
    SESSION,
    BodyReader,
    Box,
    a_uint,
    box_list,
    byte_string,
    hash_value,
    parse_event_head,
)
from parley._node.journal.sessions import Generation
from parley._node.protocol.federation_types import LONGEST_PATH, SHORTEST_PATH

_BLOCK: Final = Struct(">II")
_OFFSET: Final = Struct(">Q")
_SECOND_NS: Final = 1_000_000_000
# A key update has all of them or none.
_OF_REKEY: Final = (keys.GENERATION, keys.AFTER_OFFER, keys.AFTER_ANSWER, keys.REKEY_COMMIT)


@dataclass(frozen=True, slots=True)
class SegmentHead:
    """The first record of a segment."""

    node_id: NodeId
    start: int
    number: int
    auditors: tuple[bytes, ...]
    software: str

    def encode(self) -> bytes:
        """The body."""
        return encode(
            {
                keys.FORMAT: keys.FORMAT_NAME,
                keys.VERSION: keys.FORMAT_VERSION,
                keys.NODE_ID: bytes(self.node_id),
                keys.START: self.start,
                keys.NUMBER: self.number,
                keys.AUDITORS: list(self.auditors),
                keys.SOFTWARE: self.software,
            }
        )

    @classmethod
    def parse(cls, body: bytes) -> "SegmentHead":
        """Read a body; raises JournalFormatError, also for another format or version."""
        with BodyReader("segment") as parsing:
            cells = parsing.cells(body)
            name = read_text(cells, keys.FORMAT)
            if name != keys.FORMAT_NAME:
                raise JournalFormatError(f"not a journal: its format is {ascii(name)[:80]}")
            version = read_uint(cells, keys.VERSION)
            if version != keys.FORMAT_VERSION:
                raise JournalFormatError(f"a journal of unknown version {version}")
            return cls(
                NodeId(read_bytes(cells, keys.NODE_ID, size=32)),
                read_uint(cells, keys.START),
                read_uint(cells, keys.NUMBER),
                tuple(byte_string(key, 32) for key in read_array(cells, keys.AUDITORS)),
                read_text(cells, keys.SOFTWARE),
            )


@dataclass(frozen=True, slots=True)
class Secret:
    """The boxes of a generation's secret, one for each auditor."""

    session: int
    generation: int
    boxes: tuple[Box, ...]

    def encode(self) -> bytes:
        """The body."""
        boxes = [list(box) for box in self.boxes]
        cells: dict[int, Any] = {keys.GENERATION: self.generation, keys.BOXES: boxes}
        return SESSION.pack(self.session) + encode(cells)

    @classmethod
    def parse(cls, body: bytes) -> "Secret":
        """Read a body; raises JournalFormatError."""
        with BodyReader("secret") as parsing:
            session, cells = parsing.session(body)
            boxes = box_list(read_array(cells, keys.BOXES))
            return cls(session, read_uint(cells, keys.GENERATION), boxes)


@dataclass(frozen=True, slots=True)
class KeyUpdate:
    """A direction goes on under new keys; after a rekey with its generation's three values."""

    session: int
    direction: int
    epoch: int
    generation: Generation | None = None

    def encode(self) -> bytes:
        """The body; it does not have the generation's boxes."""
        cells: dict[int, Any] = {keys.EPOCH: self.epoch}
        if self.generation is not None:
            cells[keys.GENERATION] = self.generation.number
            cells[keys.AFTER_OFFER] = self.generation.after_offer
            cells[keys.AFTER_ANSWER] = self.generation.after_answer
            cells[keys.REKEY_COMMIT] = self.generation.commit
        return EVENT.pack(self.session, self.direction) + encode(cells)

    @classmethod
    def parse(cls, body: bytes) -> "KeyUpdate":
        """Read a body; raises JournalFormatError."""
        with BodyReader("key update") as parsing:
            session, direction = parse_event_head(body)
            cells = parsing.cells(body[EVENT_HEAD:])
            generation = None
            if any(key in cells for key in _OF_REKEY):
                generation = Generation(
                    read_uint(cells, keys.GENERATION, minimum=1, maximum=LARGEST_COUNT),
                    (),
                    hash_value(read_bytes(cells, keys.AFTER_OFFER)),
                    hash_value(read_bytes(cells, keys.AFTER_ANSWER)),
                    hash_value(read_bytes(cells, keys.REKEY_COMMIT)),
                )
            return cls(session, direction, read_uint(cells, keys.EPOCH), generation)


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """A session's last record. `chains` and `places` are those of received and sent."""

    session: int
    code: int
    remote: bool
    text: str
    chains: tuple[bytes, bytes]
    places: tuple[int, int]

    def encode(self) -> bytes:
        """The body."""
        cells: dict[int, Any] = {
            keys.CODE: self.code,
            keys.REMOTE: self.remote,
            keys.CHAINS: list(self.chains),
            keys.PLACES: list(self.places),
        }
        if self.text:
            cells[keys.TEXT] = self.text
        return SESSION.pack(self.session) + encode(cells)

    @classmethod
    def parse(cls, body: bytes) -> "SessionEnd":
        """Read a body; raises JournalFormatError."""
        with BodyReader("session end") as parsing:
            session, cells = parsing.session(body)
            code = cells.get(keys.CODE)
            chains, places = read_array(cells, keys.CHAINS), read_array(cells, keys.PLACES)
            if type(code) is not int or len(chains) != 2 or len(places) != 2:
                has = f"code {ascii(code)[:40]}, {len(chains)} chains, {len(places)} places"
                raise JournalFormatError(f"a session end has a code, 2 chains, 2 places, not {has}")
            if abs(code) > LARGEST_COUNT:
                raise JournalFormatError(f"a session end with the code {code}, out of range")
            return cls(
                session,
                code,
                read_bool(cells, keys.REMOTE),
                read_text(cells, keys.TEXT, default=""),
                (hash_value(chains[0]), hash_value(chains[1])),
                (a_uint(places[0]), a_uint(places[1])),
            )


@dataclass(frozen=True, slots=True)
class SessionParted:
    """The session has lost its transport, and waits for another; `text` says why."""

    session: int
    text: str = ""

    def encode(self) -> bytes:
        """The body."""
        cells: dict[int, Any] = {keys.TEXT: self.text} if self.text else {}
        return SESSION.pack(self.session) + encode(cells)

    @classmethod
    def parse(cls, body: bytes) -> "SessionParted":
        """Read a body; raises JournalFormatError."""
        with BodyReader("parted") as parsing:
            session, cells = parsing.session(body)
            return cls(session, read_text(cells, keys.TEXT, default=""))


@dataclass(frozen=True, slots=True)
class SessionResumed:
    """The session goes on over another transport; `resumption` counts from 1."""

    session: int
    resumption: int

    def encode(self) -> bytes:
        """The body."""
        return SESSION.pack(self.session) + encode({keys.RESUMPTION: self.resumption})

    @classmethod
    def parse(cls, body: bytes) -> "SessionResumed":
        """Read a body; raises JournalFormatError."""
        with BodyReader("resumed") as parsing:
            session, cells = parsing.session(body)
            number = a_uint(read_uint(cells, keys.RESUMPTION, minimum=1))
            return cls(session, number)


# What reads a session's change of transport, by kind.
CHANGES: Final[dict[int, Callable[[bytes], SessionParted | SessionResumed]]] = {
    keys.PARTED: SessionParted.parse,
    keys.RESUMED: SessionResumed.parse,
}


@dataclass(frozen=True, slots=True)
class JoinedTunnel:
    """A tunnel that the node joined, once it is over; what `TunnelRecord` has, times in ns."""

    trace: bytes
    hop: int
    length: int
    before: NodeId
    after: NodeId
    began: int
    ended: int
    forward: int
    back: int

    @classmethod
    def of(cls, told: TunnelRecord) -> "JoinedTunnel":
        """As the shell told of it."""
        began, ended = (round(time * _SECOND_NS) for time in (told.began, told.ended))
        return cls(
            told.trace,
            told.hop,
            told.length,
            told.before,
            told.after,
            began,
            ended,
            told.forward,
            told.back,
        )

    def encode(self) -> bytes:
        """The body."""
        return encode(
            {
                keys.TRACE: self.trace,
                keys.HOP: self.hop,
                keys.LENGTH: self.length,
                keys.BEFORE: bytes(self.before),
                keys.AFTER: bytes(self.after),
                keys.BEGAN: self.began,
                keys.ENDED: self.ended,
                keys.FORWARD: self.forward,
                keys.BACK: self.back,
            }
        )

    @classmethod
    def parse(cls, body: bytes) -> "JoinedTunnel":
        """Read a body; raises JournalFormatError."""
        with BodyReader("tunnel") as parsing:
            cells = parsing.cells(body)
            length = read_uint(cells, keys.LENGTH, minimum=SHORTEST_PATH, maximum=LONGEST_PATH)
            return cls(
                read_bytes(cells, keys.TRACE, size=16),
                read_uint(cells, keys.HOP, maximum=length - 2),
                length,
                NodeId(read_bytes(cells, keys.BEFORE, size=32)),
                NodeId(read_bytes(cells, keys.AFTER, size=32)),
                read_uint(cells, keys.BEGAN, maximum=LARGEST),
                read_uint(cells, keys.ENDED, maximum=LARGEST),
                read_uint(cells, keys.FORWARD, maximum=LARGEST_COUNT),
                read_uint(cells, keys.BACK, maximum=LARGEST_COUNT),
            )


@dataclass(frozen=True, slots=True)
class SegmentEnd:
    """The last record of a closed segment; `blocks` are the offsets of its block records."""

    records: int
    blocks: tuple[int, ...]
    cut: int = 0

    def encode(self) -> bytes:
        """The body; its last four bytes are the record's `length`."""
        cells: dict[int, Any] = {
            keys.RECORDS: self.records,
            keys.BLOCKS: b"".join(map(_OFFSET.pack, self.blocks)),
        }
        if self.cut:
            cells[keys.CUT] = self.cut
        encoded = encode(cells)
        return encoded + SESSION.pack(9 + len(encoded) + 4)

    @classmethod
    def parse(cls, body: bytes) -> "SegmentEnd":
        """Read a body; raises JournalFormatError."""
        with BodyReader("segment end") as parsing:
            cells = parsing.cells(body[:-4])
            blocks = read_bytes(cells, keys.BLOCKS)
            if len(blocks) % 8 or SESSION.unpack(body[-4:])[0] != 9 + len(body):
                raise JournalFormatError(
                    f"a segment end of {len(body):,} bytes that does not end as one"
                )
            return cls(
                read_uint(cells, keys.RECORDS),
                tuple(offset for (offset,) in _OFFSET.iter_unpack(blocks)),
                read_uint(cells, keys.CUT, default=0),
            )


def encode_block(number: int, live: int) -> bytes:
    """The body of a block record: its number in the segment, and how many checkpoints follow."""
    return _BLOCK.pack(number, live)


def parse_block(body: bytes) -> tuple[int, int]:
    """The number of a block and its count of checkpoints; raises JournalFormatError."""
    with BodyReader("block"):
        number, live = _BLOCK.unpack(body)
        return number, live
