"""The bodies of records, and reading their fields.

A parsed body has the types and sizes that docs/journal.md specifies. Other bodies raise
JournalFormatError. The audit checks whether the values are true.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Any, Final

from parley._crypto.errors import CryptoError
from parley._crypto.identity import NodeId
from parley._lbm.codec import Value, decode, encode
from parley._lbm.errors import LbmDecodeError
from parley._lbm.fields import read_array, read_bool, read_bytes, read_text, read_uint
from parley._lbm.limits import LbmLimits
from parley._node.federation.dials import TunnelRecord
from parley._node.journal import keys
from parley._node.journal.errors import JournalFormatError
from parley._node.protocol.event_types import LONGEST_PATH, SHORTEST_PATH

# A checkpoint may have 2,048 streams and as many labels, a segment end all its blocks.
LIMITS: Final = LbmLimits(max_bytes=2**24, max_items=2**17)

# The largest integer that tables can store; real counts stay far below it.
LARGEST: Final = 2**63 - 1
# Real sessions stay far below this count. It leaves space to increment and add up places in 64
# bits.
LARGEST_COUNT: Final = 2**48 - 1
LONGEST_HASH: Final = 64  # Bytes.

SESSION: Final = Struct(">I")
EVENT: Final = Struct(">IB")
EVENT_HEAD: Final = EVENT.size

Box = tuple[bytes, bytes]  # The auditor's public key, and the encrypted box.


def parse_event_head(body: bytes) -> tuple[int, int]:
    """Parse the session and direction of an event or key update; raises JournalFormatError."""
    with BodyReader("event"):
        session, direction = EVENT.unpack_from(body)
        if direction > keys.SENT:
            raise JournalFormatError(f"invalid direction {direction}: expected 0 or 1")
        return session, direction


class BodyReader:
    """A context manager that turns errors of decoding into JournalFormatError about `what`."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> "BodyReader":
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if isinstance(error, (LbmDecodeError, StructError, CryptoError)):
            raise JournalFormatError(f"malformed {self._what}: {error}") from error

    def cells(self, body: bytes) -> Mapping[int, Value]:
        return decode(body, LIMITS)

    def session(self, body: bytes) -> tuple[int, Mapping[int, Value]]:
        """Return the session's number and the map that follows it."""
        (session,) = SESSION.unpack_from(body)
        return session, decode(body[SESSION.size :], LIMITS)


def bytes_value(value: Any, size: int | None = None) -> bytes:
    if not isinstance(value, bytes) or (size is not None and len(value) != size):
        found = f"{len(value):,} bytes" if isinstance(value, bytes) else type(value).__name__
        wanted = "a byte string" if size is None else f"a byte string of {size} bytes"
        raise JournalFormatError(f"expected {wanted}, not {found}")
    return value


def hash_value(value: Any) -> bytes:
    """Return a byte string if it may be a hash, whose size depends on the suite."""
    found = bytes_value(value)
    if len(found) > LONGEST_HASH:
        raise JournalFormatError(
            f"expected a hash of at most {LONGEST_HASH} bytes, not {len(value):,}"
        )
    return found


def uint_value(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= LARGEST_COUNT:
        raise JournalFormatError(
            f"expected an unsigned integer up to {LARGEST_COUNT:,}, not {ascii(value)[:40]}"
        )
    return value


def box_list(value: Any) -> tuple[Box, ...]:
    if not isinstance(value, list):
        raise JournalFormatError(f"expected an array of boxes, not {type(value).__name__}")
    boxes: list[Box] = []
    for box in value:
        if not isinstance(box, list) or len(box) != 2:
            raise JournalFormatError(f"expected a box as an array of two, not {ascii(box)[:40]}")
        boxes.append((bytes_value(box[0], 32), bytes_value(box[1])))
    return tuple(boxes)


_COUNTER: Final = Struct(">IQ")


def _shape(value: object) -> str:
    """Describe a value's type, and an array's length, for an error."""
    kind = type(value).__name__
    return f"a {kind} of {len(value)}" if isinstance(value, list) else f"a {kind}"


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """The constants of a session, recorded at its start and in checkpoints.

    `local_keys` and `remote_keys` are arrays as in cell 14. `suite` names kex, signing, hash,
    cipher and sealing. `session_id` has 32 bytes, `commit` the hash's size.
    """

    session_id: bytes
    initiator: bool
    local_keys: list[Any]
    remote_keys: list[Any]
    local_role: str
    remote_role: str
    address: str
    suite: tuple[str, str, str, str, str]
    commit: bytes
    seal_events: int
    seal_delay_ms: int

    def cells(self) -> dict[int, Any]:
        return {
            keys.SESSION_ID: self.session_id,
            keys.INITIATOR: self.initiator,
            keys.LOCAL_KEYS: self.local_keys,
            keys.REMOTE_KEYS: self.remote_keys,
            keys.LOCAL_ROLE: self.local_role,
            keys.REMOTE_ROLE: self.remote_role,
            keys.ADDRESS: self.address,
            keys.SUITE: list(self.suite),
            keys.COMMIT: self.commit,
            keys.SEAL_EVENTS: self.seal_events,
            keys.SEAL_DELAY_MS: self.seal_delay_ms,
        }

    @classmethod
    def read(cls, cells: Mapping[int, Value]) -> "SessionFacts":
        suite = read_array(cells, keys.SUITE)
        if len(suite) != 5 or not all(isinstance(name, str) for name in suite):
            raise JournalFormatError(f"expected a suite of five names, not {ascii(suite)[:80]}")
        return cls(
            read_bytes(cells, keys.SESSION_ID, size=32),
            read_bool(cells, keys.INITIATOR),
            read_array(cells, keys.LOCAL_KEYS),
            read_array(cells, keys.REMOTE_KEYS),
            read_text(cells, keys.LOCAL_ROLE),
            read_text(cells, keys.REMOTE_ROLE),
            read_text(cells, keys.ADDRESS),
            (suite[0], suite[1], suite[2], suite[3], suite[4]),
            hash_value(read_bytes(cells, keys.COMMIT)),
            read_uint(cells, keys.SEAL_EVENTS),
            read_uint(cells, keys.SEAL_DELAY_MS),
        )


@dataclass(frozen=True, slots=True)
class SessionStart:
    """A session's first record, from which both chains and all keys are derived."""

    session: int
    facts: SessionFacts
    t1: bytes
    responder_proof: bytes
    initiator_proof: bytes

    def encode(self) -> bytes:
        return SESSION.pack(self.session) + encode(
            {
                **self.facts.cells(),
                keys.T1: self.t1,
                keys.RESPONDER_PROOF: self.responder_proof,
                keys.INITIATOR_PROOF: self.initiator_proof,
            }
        )

    @classmethod
    def parse(cls, body: bytes) -> "SessionStart":
        with BodyReader("session start") as parsing:
            session, cells = parsing.session(body)
            return cls(
                session,
                SessionFacts.read(cells),
                read_bytes(cells, keys.T1),
                read_bytes(cells, keys.RESPONDER_PROOF),
                read_bytes(cells, keys.INITIATOR_PROOF),
            )


@dataclass(frozen=True, slots=True)
class DirectionCheckpoint:
    """The state of a direction between two events.

    `chain` has the hash's size. `place` is the place of the last event. `updates` counts plain key
    updates since the generation began in this direction.
    """

    chain: bytes
    place: int
    epoch: int
    generation: int
    updates: int
    unsealed: int
    counters: dict[int, int]

    def array(self) -> list[Any]:
        pack = _COUNTER.pack
        counters = b"".join(pack(stream, count) for stream, count in self.counters.items())
        return [
            self.chain,
            self.place,
            self.epoch,
            self.generation,
            self.updates,
            self.unsealed,
            counters,
        ]

    @classmethod
    def read(cls, value: Any) -> "DirectionCheckpoint":
        if not isinstance(value, list) or len(value) < 7:
            raise JournalFormatError(
                f"expected a direction as an array of seven, not {_shape(value)}"
            )
        packed = bytes_value(value[6])
        if len(packed) % _COUNTER.size:
            raise JournalFormatError(
                f"expected counters of {_COUNTER.size} bytes each, not {len(packed):,} bytes in all"
            )
        counters = dict(_COUNTER.iter_unpack(packed))
        if len(counters) * _COUNTER.size != len(packed):
            more = len(packed) // _COUNTER.size - len(counters)
            raise JournalFormatError(
                f"expected one counter for each stream: {more:,} are duplicates"
            )
        place, epoch, generation, updates, unsealed = [uint_value(one) for one in value[1:6]]
        return cls(hash_value(value[0]), place, epoch, generation, updates, unsealed, counters)


@dataclass(frozen=True, slots=True)
class Generation:
    """The encrypted secret of a key exchange. The other three values are None for the handshake."""

    number: int
    boxes: tuple[Box, ...]
    after_offer: bytes | None = None
    after_answer: bytes | None = None
    commit: bytes | None = None

    def array(self) -> list[Any]:
        boxes = [list(box) for box in self.boxes]
        return [self.number, self.after_offer, self.after_answer, self.commit, boxes]

    @classmethod
    def read(cls, value: Any) -> "Generation":
        if not isinstance(value, list) or len(value) < 5:
            raise JournalFormatError(
                f"expected a generation as an array of five, not {_shape(value)}"
            )
        number, boxes = uint_value(value[0]), box_list(value[4])
        if not number:
            if value[1:4] != [None] * 3:
                kinds = ", ".join(type(one).__name__ for one in value[1:4])
                raise JournalFormatError(
                    f"expected three nulls in the handshake's generation, not {kinds}"
                )
            return cls(0, boxes)
        return cls(number, boxes, *map(hash_value, value[1:4]))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state of a session between two events, complete enough to continue from."""

    session: int
    facts: SessionFacts
    th1: bytes
    th2: bytes
    started: int
    received: DirectionCheckpoint
    sent: DirectionCheckpoint
    generations: tuple[Generation, ...]
    labels: bytes | None = None

    def encode(self) -> bytes:
        cells = {
            **self.facts.cells(),
            keys.TH1: self.th1,
            keys.TH2: self.th2,
            keys.STARTED: self.started,
            keys.DIRECTIONS: [self.received.array(), self.sent.array()],
            keys.SECRETS: [generation.array() for generation in self.generations],
        }
        if self.labels is not None:
            cells[keys.LABELS] = self.labels
        return SESSION.pack(self.session) + encode(cells)

    @classmethod
    def parse(cls, body: bytes) -> "Checkpoint":
        with BodyReader("checkpoint") as parsing:
            session, cells = parsing.session(body)
            directions = read_array(cells, keys.DIRECTIONS)
            if len(directions) != 2:
                raise JournalFormatError(f"expected two directions, not {len(directions)}")
            generations = tuple(map(Generation.read, read_array(cells, keys.SECRETS)))
            if all(generation.number for generation in generations):
                numbers = ascii([generation.number for generation in generations])[:80]
                raise JournalFormatError(f"session {session} has no generation 0: {numbers}")
            return cls(
                session,
                SessionFacts.read(cells),
                hash_value(read_bytes(cells, keys.TH1)),
                hash_value(read_bytes(cells, keys.TH2)),
                read_uint(cells, keys.STARTED),
                DirectionCheckpoint.read(directions[0]),
                DirectionCheckpoint.read(directions[1]),
                generations,
                read_bytes(cells, keys.LABELS, default=None),
            )


_BLOCK: Final = Struct(">II")
_OFFSET: Final = Struct(">Q")
_SECOND_NS: Final = 1_000_000_000
# A key update has all of these values or none.
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
        with BodyReader("segment") as parsing:
            cells = parsing.cells(body)
            name = read_text(cells, keys.FORMAT)
            if name != keys.FORMAT_NAME:
                raise JournalFormatError(f"not a journal: the format is {ascii(name)[:80]}")
            version = read_uint(cells, keys.VERSION)
            if version != keys.FORMAT_VERSION:
                raise JournalFormatError(f"unknown journal version {version}")
            return cls(
                NodeId(read_bytes(cells, keys.NODE_ID, size=32)),
                read_uint(cells, keys.START),
                read_uint(cells, keys.NUMBER),
                tuple(bytes_value(key, 32) for key in read_array(cells, keys.AUDITORS)),
                read_text(cells, keys.SOFTWARE),
            )


@dataclass(frozen=True, slots=True)
class Secret:
    """The boxes of a generation's secret, one for each auditor."""

    session: int
    generation: int
    boxes: tuple[Box, ...]

    def encode(self) -> bytes:
        boxes = [list(box) for box in self.boxes]
        cells: dict[int, Any] = {keys.GENERATION: self.generation, keys.BOXES: boxes}
        return SESSION.pack(self.session) + encode(cells)

    @classmethod
    def parse(cls, body: bytes) -> "Secret":
        with BodyReader("secret") as parsing:
            session, cells = parsing.session(body)
            boxes = box_list(read_array(cells, keys.BOXES))
            return cls(session, read_uint(cells, keys.GENERATION), boxes)


@dataclass(frozen=True, slots=True)
class KeyUpdate:
    """A key update of a direction. After a rekey, it includes the generation's three values."""

    session: int
    direction: int
    epoch: int
    generation: Generation | None = None

    def encode(self) -> bytes:
        """Encode the body, without the generation's boxes."""
        cells: dict[int, Any] = {keys.EPOCH: self.epoch}
        if self.generation is not None:
            cells[keys.GENERATION] = self.generation.number
            cells[keys.AFTER_OFFER] = self.generation.after_offer
            cells[keys.AFTER_ANSWER] = self.generation.after_answer
            cells[keys.REKEY_COMMIT] = self.generation.commit
        return EVENT.pack(self.session, self.direction) + encode(cells)

    @classmethod
    def parse(cls, body: bytes) -> "KeyUpdate":
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
    """A session's last record. `chains` and `places` are for received and sent, in this order."""

    session: int
    code: int
    remote: bool
    text: str
    chains: tuple[bytes, bytes]
    places: tuple[int, int]

    def encode(self) -> bytes:
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
        with BodyReader("session end") as parsing:
            session, cells = parsing.session(body)
            code = cells.get(keys.CODE)
            chains, places = read_array(cells, keys.CHAINS), read_array(cells, keys.PLACES)
            if type(code) is not int or len(chains) != 2 or len(places) != 2:
                has = f"code {ascii(code)[:40]}, {len(chains)} chains, {len(places)} places"
                raise JournalFormatError(
                    f"expected a session end with a code, 2 chains and 2 places, not {has}"
                )
            if abs(code) > LARGEST_COUNT:
                raise JournalFormatError(f"invalid code {code} in a session end: out of range")
            return cls(
                session,
                code,
                read_bool(cells, keys.REMOTE),
                read_text(cells, keys.TEXT, default=""),
                (hash_value(chains[0]), hash_value(chains[1])),
                (uint_value(places[0]), uint_value(places[1])),
            )


@dataclass(frozen=True, slots=True)
class SessionParted:
    """A session lost its transport and waits for another; `text` is the reason."""

    session: int
    text: str = ""

    def encode(self) -> bytes:
        cells: dict[int, Any] = {keys.TEXT: self.text} if self.text else {}
        return SESSION.pack(self.session) + encode(cells)

    @classmethod
    def parse(cls, body: bytes) -> "SessionParted":
        with BodyReader("parted") as parsing:
            session, cells = parsing.session(body)
            return cls(session, read_text(cells, keys.TEXT, default=""))


@dataclass(frozen=True, slots=True)
class SessionResumed:
    """A session continues over another transport; `resumption` counts from 1."""

    session: int
    resumption: int

    def encode(self) -> bytes:
        return SESSION.pack(self.session) + encode({keys.RESUMPTION: self.resumption})

    @classmethod
    def parse(cls, body: bytes) -> "SessionResumed":
        with BodyReader("resumed") as parsing:
            session, cells = parsing.session(body)
            number = uint_value(read_uint(cells, keys.RESUMPTION, minimum=1))
            return cls(session, number)


# The parser of each kind of transport change.
CHANGES: Final[dict[int, Callable[[bytes], SessionParted | SessionResumed]]] = {
    keys.PARTED: SessionParted.parse,
    keys.RESUMED: SessionResumed.parse,
}


@dataclass(frozen=True, slots=True)
class JoinedTunnel:
    """A tunnel through this node that has ended: the fields of `TunnelRecord`, with times in ns."""

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
    def of(cls, reported: TunnelRecord) -> "JoinedTunnel":
        began, ended = (round(time * _SECOND_NS) for time in (reported.began, reported.ended))
        return cls(
            reported.trace,
            reported.hop,
            reported.length,
            reported.before,
            reported.after,
            began,
            ended,
            reported.forward,
            reported.back,
        )

    def encode(self) -> bytes:
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
        """Encode the body; its last four bytes are the record's `length`."""
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
        with BodyReader("segment end") as parsing:
            cells = parsing.cells(body[:-4])
            blocks = read_bytes(cells, keys.BLOCKS)
            if len(blocks) % 8 or SESSION.unpack(body[-4:])[0] != 9 + len(body):
                raise JournalFormatError(
                    f"malformed segment end of {len(body):,} bytes: wrong blocks or length"
                )
            return cls(
                read_uint(cells, keys.RECORDS),
                tuple(offset for (offset,) in _OFFSET.iter_unpack(blocks)),
                read_uint(cells, keys.CUT, default=0),
            )


def encode_block(number: int, live: int) -> bytes:
    return _BLOCK.pack(number, live)


def parse_block(body: bytes) -> tuple[int, int]:
    with BodyReader("block"):
        number, live = _BLOCK.unpack(body)
        return number, live
