"""Tampers with journals, based on docs/journal.md and docs/protocol.md, without the project's code.

It uses only the standard library and cbor2, so that a mistake in the project's reader can't hide a
mistake in its verification. It corrects everything that can be corrected without a key. Whole
journals are in memory, because it is for tests.
"""

import hashlib
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random  # noqa: TID251  # a test is to be repeatable
from typing import Any

import cbor2
from blake3 import blake3

BLOCK, CHECKPOINT, START, EVENT, KEY_UPDATE, END, SEGMENT_END = 2, 3, 4, 6, 7, 8, 9
SEAL_SIZES = {"ed25519": 64, "ecdsa-p256": 64, "ml-dsa-65": 3_309}
HASHES: dict[str, Callable[[bytes], bytes]] = {
    "blake3": lambda data: blake3(data).digest(),
    "sha256": lambda data: hashlib.sha256(data).digest(),
    "sha512": lambda data: hashlib.sha512(data).digest(),
    "blake2b-256": lambda data: hashlib.blake2b(data, digest_size=32).digest(),
}
DIRECTIONS = ("received", "sent")


@dataclass(frozen=True)
class Fault:
    """A fault: `place` is the original place of the first event concerned."""

    kind: str
    file: str
    session: str | None = None
    direction: str | None = None
    place: int | None = None
    count: int = 1


@dataclass(eq=False)
class Record:
    """One record of a segment."""

    kind: int
    time: int
    body: bytes

    @property
    def session(self) -> int | None:
        """The number of the session that it is of."""
        return int.from_bytes(self.body[:4], "big") if 3 <= self.kind <= 8 else None

    @property
    def wire(self) -> bytes:
        """An event's bytes."""
        return self.body[5:]

    @wire.setter
    def wire(self, wire: bytes) -> None:
        self.body = self.body[:5] + wire

    @property
    def cells(self) -> Any:
        """The map of a checkpoint, a session start or a session end."""
        return cbor2.loads(self.body[4:])

    @cells.setter
    def cells(self, cells: Any) -> None:
        self.body = self.body[:4] + cbor2.dumps(cells, canonical=True)

    def encode(self) -> bytes:
        """Return the encoded form in a file."""
        data = struct.pack(">BQ", self.kind, self.time) + self.body
        return struct.pack(">II", len(data), zlib.crc32(data)) + data


class Segment:
    """A closed segment: `records` are all but the segment end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        data = path.read_bytes()
        records = []
        at = 0
        while at < len(data):
            length, _, kind, time = struct.unpack_from(">IIBQ", data, at)
            records.append(Record(kind, time, data[at + 17 : at + 8 + length]))
            at += 8 + length
        *self.records, self._end = records
        assert self._end.kind == SEGMENT_END

    def offset(self, wanted: Record) -> int:
        """Where a record is in the file."""
        at = 0
        for record in self.records:
            if record is wanted:
                return at
            at += len(record.encode())
        raise ValueError("it is in another segment")

    def save(self) -> None:
        """Write it with counts, offsets and CRCs that fit."""
        out, blocks = b"", b""
        for index, record in enumerate(self.records):
            if record.kind == BLOCK:
                blocks += struct.pack(">Q", len(out))
                live = 0
                while self.records[index + 1 + live : index + 2 + live] and (
                    self.records[index + 1 + live].kind == CHECKPOINT
                ):
                    live += 1
                record.body = record.body[:4] + struct.pack(">I", live)
            out += record.encode()
        cells = cbor2.loads(self._end.body[:-4])
        cells |= {294: len(self.records), 295: blocks}
        body = cbor2.dumps(cells, canonical=True)
        end = Record(SEGMENT_END, self._end.time, body + struct.pack(">I", 9 + len(body) + 4))
        self.path.write_bytes(out + end.encode())


class Session:
    """A session in one node's journal, with all that a forger can compute of it."""

    def __init__(self, number: int, segments: list[Segment]) -> None:
        self.number = number
        self.segments = [s for s in segments if any(r.session == number for r in s.records)]
        self.cells = next(r for s, r in self.records() if r.kind == START).cells
        self.id: str = self.cells[263].hex()
        _, signing, hash_name, _, sealing = self.cells[270]
        self.each = sealing == "each"
        self.seal_size = SEAL_SIZES[signing]
        self._hash = HASHES[hash_name]

    def records(self) -> Iterator[tuple[Segment, Record]]:
        """Its records in their order, each with its segment."""
        for segment in self.segments:
            for record in segment.records:
                if record.session == self.number:
                    yield segment, record

    def events(self, direction: int) -> list[tuple[Segment, Record]]:
        """Its events; the first has place 1."""
        return [(s, r) for s, r in self.records() if r.kind == EVENT and r.body[4] == direction]

    def before_updates(self) -> set[int]:
        """The ids of the events after which keys change: a forger had better leave them."""
        last: dict[int, int] = {}
        found = set()
        for _, record in self.records():
            if record.kind == EVENT:
                last[record.body[4]] = id(record)
            elif record.kind == KEY_UPDATE:
                found.add(last[record.body[4]])
        return found

    def seal(self, wire: bytes) -> slice | None:
        """Where an event has its seal."""
        start = 4 if self.each else 21
        return slice(start, start + self.seal_size) if self.each or wire[4] == 1 else None

    def blob(self, wire: bytes) -> int:
        """Where an event's blob begins."""
        seal = self.seal(wire)
        return int(seal.stop) if seal else 21

    def chain(self, value: bytes, wire: bytes) -> bytes:
        """The value after an event."""
        return self._hash(value + wire[:4] + wire[self.blob(wire) :])

    def first_chains(self) -> list[bytes]:
        """The values of received and sent after both Proofs."""
        cells, digest = self.cells, self._hash
        commit, t1, responder, initiator = (cells[key] for key in (271, 272, 273, 274))
        chain_r = digest(b"parley1 chain\x01" + digest(t1) + commit)
        chain_i = digest(b"parley1 chain\x00" + digest(t1 + responder) + commit)
        th2 = digest(t1 + responder + initiator)
        r = digest(b"parley1 chain\x02" + self.chain(chain_r, responder) + th2)
        i = digest(b"parley1 chain\x02" + self.chain(chain_i, initiator) + th2)
        return [r, i] if cells[264] else [i, r]

    def rekeyed(self, value: bytes, update: Record) -> bytes:
        """The value after a `key update` record."""
        cells = cbor2.loads(update.body[5:])
        return self._hash(b"parley1 chain\x03" + value + cells[288]) if 288 in cells else value


def load(directory: Path) -> list[Session]:
    """All sessions of the closed segments in a directory, the first run's first."""
    runs: dict[str, list[Segment]] = {}
    for path in sorted(directory.glob("*.pjl"), key=lambda path: path.name[52:]):
        runs.setdefault(path.name.rpartition("-")[0], []).append(Segment(path))
    return [
        Session(record.session or 0, segments)
        for segments in runs.values()
        for segment in segments
        for record in segment.records
        if record.kind == START
    ]


# Kinds of faults. Each function gets an untouched session, a direction and a random source, changes
# the files, and returns the fault, or None if it is impossible there.


def bit_flip(session: Session, direction: int, chance: Random) -> Fault | None:
    """One bit of an event's blob."""
    for segment, record, place in _some(session, direction, chance):
        record.wire = _flipped(record.wire, chance, session.blob(record.wire))
        segment.save()
        return _fault("bit-flip", segment, session, direction, place)
    return None


def drop(session: Session, direction: int, chance: Random) -> Fault | None:
    """An event taken out."""
    for segment, record, place in _some(session, direction, chance):
        segment.records.remove(record)
        segment.save()
        return _fault("drop", segment, session, direction, place)
    return None


def duplicate(session: Session, direction: int, chance: Random) -> Fault | None:
    """An event that comes twice."""
    for segment, record, place in _some(session, direction, chance):
        again = Record(record.kind, record.time, record.body)
        segment.records.insert(segment.records.index(record) + 1, again)
        segment.save()
        return _fault("duplicate", segment, session, direction, place)
    return None


def reorder(session: Session, direction: int, chance: Random) -> Fault | None:
    """Two neighbours that change places."""
    events = session.events(direction)
    updates = session.before_updates()
    for segment, record, place in _some(session, direction, chance):
        other_segment, other = events[place]
        if other_segment is segment and id(other) not in updates and place + 1 < len(events):
            between = segment.records[segment.records.index(record) : segment.records.index(other)]
            if all(r.kind != BLOCK for r in between):
                record.body, other.body = other.body, record.body
                segment.save()
                return _fault("reorder", segment, session, direction, place, 2)
    return None


def foreign_seal(session: Session, direction: int, chance: Random) -> Fault | None:
    """The seal of another event, of the other direction if it has one."""
    others = session.events(1 - direction) + session.events(direction)
    for segment, record, place in _some(session, direction, chance):
        where = session.seal(record.wire)
        for _, other in others if where else ():
            there = session.seal(other.wire)
            if where and there and other is not record:
                wire = record.wire
                record.wire = wire[: where.start] + other.wire[there] + wire[where.stop :]
                segment.save()
                return _fault("foreign-seal", segment, session, direction, place)
    return None


def rechain(session: Session, direction: int, chance: Random) -> Fault | None:
    """One bit of a blob, and the chain made right from there to the end."""
    chosen = next(_some(session, direction, chance), None)
    if chosen is None or session.each:
        return None
    value, changed = session.first_chains()[direction], False
    for _, record in session.records():
        mine = record.kind in (EVENT, KEY_UPDATE) and record.body[4] == direction
        if mine and record.kind == KEY_UPDATE:
            value = session.rekeyed(value, record)
        elif mine:
            if record is chosen[1]:
                record.wire = _flipped(record.wire, chance, session.blob(record.wire))
                changed = True
            value = session.chain(value, record.wire)
            record.wire = record.wire[:5] + value[:16] + record.wire[21:]
        elif record.kind in (CHECKPOINT, END) and changed:
            cells = record.cells
            if record.kind == CHECKPOINT:
                cells[280][direction][0] = value
            else:
                cells[292][direction] = value
            record.cells = cells
    for segment in session.segments:
        segment.save()
    segment, _, place = chosen
    count = len(session.events(direction)) + 1 - place
    return _fault("rechain", segment, session, direction, place, count)


def forged_code(session: Session, direction: int, chance: Random) -> Fault | None:
    """A session end with another code."""
    for segment, record in session.records():
        if record.kind == END:
            cells = record.cells
            cells[289] = chance.choice([code for code in (0, 1, 10, 12) if code != cells[289]])
            record.cells = cells
            segment.save()
            return Fault("forged-code", segment.path.name, session.id)
    return None


def early_end(session: Session, direction: int, chance: Random) -> Fault | None:
    """Cut a session short, as if its connection had been lost, without further records."""
    events = session.events(direction)
    updates = session.before_updates()
    good = [pair for pair in events[len(events) // 3 : -4] if id(pair[1]) not in updates]
    if not good:
        return None
    segment, last = chance.choice(good)
    values, places, over, removed = session.first_chains(), [0, 0], False, 0
    for where, record in list(session.records()):
        if over:
            where.records.remove(record)
            removed += record.kind == EVENT
        elif record.kind == EVENT:
            way = record.body[4]
            values[way] = session.chain(values[way], record.wire)
            places[way] += 1
            over = record is last
        elif record.kind == KEY_UPDATE:
            way = record.body[4]
            values[way] = session.rekeyed(values[way], record)
    end = Record(END, last.time + 1_000, last.body[:4])
    end.cells = {289: -1, 290: False, 292: values, 293: places}
    segment.records.insert(segment.records.index(last) + 1, end)
    for touched in session.segments:
        touched.save()
    return Fault("early-end", segment.path.name, session.id, count=removed)


def bad_crc(session: Session, direction: int, chance: Random) -> Fault | None:
    """One bit of an event, with the CRC left as it was."""
    for segment, record, place in _some(session, direction, chance):
        data = segment.path.read_bytes()
        at = segment.offset(record) + 17 + 5
        segment.path.write_bytes(data[:at] + _flipped(data[at:], chance, 0, len(record.wire)))
        return _fault("bad-crc", segment, session, direction, place)
    return None


def torn_tail(session: Session, direction: int, chance: Random) -> Fault | None:
    """The last bytes of a segment, gone."""
    path = session.segments[-1].path
    data = path.read_bytes()
    path.write_bytes(data[: -chance.randint(1, 30)])
    return Fault("torn-tail", path.name, count=0)


def missing_segment(session: Session, direction: int, chance: Random) -> Fault | None:
    """A segment in the middle of a session, gone."""
    if len(session.segments) < 3:
        return None
    segment = session.segments[1]
    segment.path.unlink()
    count = sum(record.kind == EVENT for record in segment.records)
    return Fault("missing-segment", segment.path.name, count=count)


Kind = Callable[[Session, int, Random], Fault | None]
KINDS: dict[str, Kind] = {
    "bit-flip": bit_flip,
    "drop": drop,
    "duplicate": duplicate,
    "reorder": reorder,
    "foreign-seal": foreign_seal,
    "rechain": rechain,
    "forged-code": forged_code,
    "early-end": early_end,
    "bad-crc": bad_crc,
    "torn-tail": torn_tail,
    "missing-segment": missing_segment,
}


def forge(directory: Path, kind: str, seed: int = 0, avoid: frozenset[str] = frozenset()) -> Fault:
    """Plant one fault of a kind, in no session whose id (hex) is to be avoided.

    Raises:
        ValueError: it can be done nowhere in these journals.
    """
    chance = Random(seed)
    sessions = [session for session in load(directory) if session.id not in avoid]
    chance.shuffle(sessions)
    for session in sessions:
        fault = KINDS[kind](session, chance.randrange(2), chance)
        if fault is not None:
            return fault
    raise ValueError(f"no place for {kind}")


def _some(
    session: Session, direction: int, chance: Random
) -> Iterator[tuple[Segment, Record, int]]:
    """Events that are not the last and change no keys, each with its segment and place."""
    updates = session.before_updates()
    events = [
        (segment, record, place)
        for place, (segment, record) in enumerate(session.events(direction), 1)
        if id(record) not in updates
    ][:-2]
    chance.shuffle(events)
    yield from events


def _flipped(data: bytes, chance: Random, start: int, end: int | None = None) -> bytes:
    at = chance.randrange(start, len(data) if end is None else end)
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def _fault(
    kind: str, segment: Segment, session: Session, direction: int, place: int, count: int = 1
) -> Fault:
    return Fault(kind, segment.path.name, session.id, DIRECTIONS[direction], place, count)
