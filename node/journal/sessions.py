"""What records say of sessions: facts, the states of directions, generations of secrets.

What is parsed has the types and sizes that docs/journal.md gives, or else raises
JournalFormatError; whether it is true is for the audit to find out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

from parley._lbm.cells import read_array, read_bool, read_bytes, read_text, read_uint
from parley._lbm.codec import Value, encode
from parley._node.journal import keys
from parley._node.journal.errors import JournalFormatError
from parley._node.journal.fields import (
    SESSION,
    BodyReader,
    Box,
    a_uint,
    box_list,
    byte_string,
    hash_value,
)

_COUNTER: Final = Struct(">IQ")


def _shape(value: object) -> str:
    """Describe the type of a value, and the length of an array, for an error."""
    kind = type(value).__name__
    return f"a {kind} of {len(value)}" if isinstance(value, list) else f"a {kind}"


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """What never changes in a session; session starts and checkpoints both have it.

    `local_keys` and `remote_keys` are arrays as cell 14 has them; `suite` names kex, signing,
    hash, cipher and sealing. Sizes in bytes: `session_id` 32, `commit` the hash's.
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
        """The cells of a map."""
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
        """Read the cells of a map; raises LbmDecodeError, JournalFormatError."""
        suite = read_array(cells, keys.SUITE)
        if len(suite) != 5 or not all(isinstance(name, str) for name in suite):
            raise JournalFormatError(f"a suite is five names, not {ascii(suite)[:80]}")
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
    """A session's first record, from which both chains and all keys can be followed."""

    session: int
    facts: SessionFacts
    t1: bytes
    responder_proof: bytes
    initiator_proof: bytes

    def encode(self) -> bytes:
        """The body."""
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
        """Read a body; raises JournalFormatError."""
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
    """A direction between two events. `chain` has the hash's size; `place` is that of the last
    event; `updates` counts plain key updates since the generation began in this direction."""

    chain: bytes
    place: int
    epoch: int
    generation: int
    updates: int
    unsealed: int
    counters: dict[int, int]

    def array(self) -> list[Any]:
        """An entry of `directions`."""
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
        """Read an entry; raises JournalFormatError."""
        if not isinstance(value, list) or len(value) < 7:
            raise JournalFormatError(f"a direction is an array of seven, not {_shape(value)}")
        packed = byte_string(value[6])
        if len(packed) % _COUNTER.size:
            raise JournalFormatError(
                f"counters have {_COUNTER.size} bytes each; all have {len(packed):,} bytes"
            )
        counters = dict(_COUNTER.iter_unpack(packed))
        if len(counters) * _COUNTER.size != len(packed):
            more = len(packed) // _COUNTER.size - len(counters)
            raise JournalFormatError(f"a stream has one counter: {more:,} of them are repeated")
        place, epoch, generation, updates, unsealed = map(a_uint, value[1:6])
        return cls(
            hash_value(value[0]),
            place,
            epoch,
            generation,
            updates,
            unsealed,
            counters,
        )


@dataclass(frozen=True, slots=True)
class Generation:
    """The sealed secret of a key exchange; the three values are None for the handshake's."""

    number: int
    boxes: tuple[Box, ...]
    after_offer: bytes | None = None
    after_answer: bytes | None = None
    commit: bytes | None = None

    def array(self) -> list[Any]:
        """An entry of `secrets`."""
        boxes = [list(box) for box in self.boxes]
        return [self.number, self.after_offer, self.after_answer, self.commit, boxes]

    @classmethod
    def read(cls, value: Any) -> "Generation":
        """Read an entry; raises JournalFormatError."""
        if not isinstance(value, list) or len(value) < 5:
            raise JournalFormatError(f"a generation is an array of five, not {_shape(value)}")
        number, boxes = a_uint(value[0]), box_list(value[4])
        if not number:
            if value[1:4] != [None] * 3:
                kinds = ", ".join(type(one).__name__ for one in value[1:4])
                raise JournalFormatError(f"the handshake's generation has three nulls, not {kinds}")
            return cls(0, boxes)
        return cls(number, boxes, *map(hash_value, value[1:4]))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A session between two events: everything that is needed to go on from there."""

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
        """The body."""
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
        """Read a body; raises JournalFormatError."""
        with BodyReader("checkpoint") as parsing:
            session, cells = parsing.session(body)
            directions = read_array(cells, keys.DIRECTIONS)
            if len(directions) != 2:
                raise JournalFormatError(f"a session has two directions, not {len(directions)}")
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
