"""Follows the chains in a journal's records, by the document: for tests of what writes them."""

from dataclasses import dataclass, field
from pathlib import Path

from parley._crypto.auditor import AuditorPrivateKey
from parley._crypto.hashing import HashAlgorithm
from parley._crypto.registry import HASHES, SIGNING
from parley._crypto.schedule import (
    chain_bind,
    chain_rekey,
    chain_start_initiator,
    chain_start_responder,
    commitment,
)
from parley._node.journal import keys
from parley._node.journal.bodies import (
    KeyUpdate,
    Secret,
    SegmentEnd,
    SegmentHead,
    SessionEnd,
    parse_block,
)
from parley._node.journal.fields import EVENT_HEAD, SESSION, parse_event_head
from parley._node.journal.records import OK, Record, read_records
from parley._node.journal.sessions import Checkpoint, SessionStart


def records_of(directory: Path, node: str = "") -> list[list[Record]]:
    """The records of each segment of a node, in order; all of them whole."""
    segments = []
    for path in sorted(directory.glob(f"{node}*.pjl*")):
        records = list(read_records(path.read_bytes()))
        assert {record.status for record in records} == {OK}
        assert [record.kind == keys.SEGMENT for record in records] == [True] + [False] * (
            len(records) - 1
        )
        segments.append(records)
    return segments


@dataclass
class Session:
    """What was followed of one session."""

    hash: HashAlgorithm
    blob: int  # where it begins in an unsealed event
    each: bool
    signature: int
    chains: list[bytes]
    places: list[int]
    ended: SessionEnd | None = None
    generations: set[int] = field(default_factory=set)
    updates: list[KeyUpdate] = field(default_factory=list)
    events: list[tuple[int, bytes]] = field(default_factory=list)
    secrets: list[Secret] = field(default_factory=list)
    labels: bytes | None = None


class Follower:
    """Takes records in order; a checkpoint is compared, or begun from with `fresh`."""

    def __init__(self, auditor: AuditorPrivateKey | None = None) -> None:
        self.sessions: dict[int, Session] = {}
        self.auditor = auditor
        self.checkpoints = 0

    def take(self, record: Record) -> None:
        """Follow one record."""
        body = record.body
        if record.kind == keys.SESSION_START:
            self.start(SessionStart.parse(body))
        elif record.kind == keys.EVENT:
            number, direction = parse_event_head(body)
            self.event(self.sessions[number], direction, body[EVENT_HEAD:])
        elif record.kind == keys.SECRET:
            secret = Secret.parse(body)
            self.sessions[secret.session].secrets.append(secret)
        elif record.kind == keys.KEY_UPDATE:
            self.update(KeyUpdate.parse(body))
        elif record.kind == keys.CHECKPOINT:
            self.checkpoint(Checkpoint.parse(body))
        elif record.kind == keys.SESSION_END:
            end = SessionEnd.parse(body)
            session = self.sessions[end.session]
            assert session.ended is None
            session.ended = end
            assert (list(end.chains), list(end.places)) == (session.chains, session.places)

    def start(self, start: SessionStart) -> None:
        """A session from its first record."""
        assert start.session not in self.sessions
        facts = start.facts
        hash = HASHES[facts.suite[2]]
        each, signature = facts.suite[4] == "each", SIGNING[facts.suite[1]].signature_size
        th1 = hash.digest(start.t1)
        th2 = hash.digest(start.t1 + start.responder_proof + start.initiator_proof)
        covered = hash.digest(start.t1 + start.responder_proof)
        session = Session(hash, 4 if each else 21, each, signature, [b"", b""], [-1, -1])
        ours = int(facts.initiator)
        session.chains[ours] = chain_start_initiator(hash, covered, facts.commit)
        session.chains[1 - ours] = chain_start_responder(hash, th1, facts.commit)
        for way, proof in ((ours, start.initiator_proof), (1 - ours, start.responder_proof)):
            self.event(session, way, proof)
            session.chains[way] = chain_bind(hash, session.chains[way], th2)
        session.events.clear()
        self.sessions[start.session] = session

    def event(self, session: Session, way: int, wire: bytes) -> None:
        """One event continues its chain."""
        assert session.ended is None
        sealed = session.each or wire[4] == 1
        blob = wire[session.blob + session.signature * sealed :]
        value = session.hash.digest(session.chains[way] + wire[:4] + blob)
        if not session.each:
            assert wire[5:21] == value[:16]
        session.chains[way] = value
        session.places[way] += 1
        session.events.append((way, wire))

    def update(self, update: KeyUpdate) -> None:
        """A direction's new keys; with a generation, its chain begins anew."""
        session = self.sessions[update.session]
        session.updates.append(update)
        # Directly after its event, of all records of its session.
        assert session.events[-1][0] == update.direction
        if update.generation is not None:
            assert update.generation.commit is not None
            way = update.direction
            session.chains[way] = chain_rekey(
                session.hash, session.chains[way], update.generation.commit
            )

    def checkpoint(self, told: Checkpoint) -> None:
        """Agrees with what was followed, or is where one begins."""
        self.checkpoints += 1
        ways = told.received, told.sent
        chains, places = [way.chain for way in ways], [way.place for way in ways]
        known = self.sessions.get(told.session)
        if known is None:
            hash = HASHES[told.facts.suite[2]]
            each = told.facts.suite[4] == "each"
            size = SIGNING[told.facts.suite[1]].signature_size
            known = Session(hash, 4 if each else 21, each, size, chains, places)
            self.sessions[told.session] = known
        assert (known.chains, known.places) == (chains, places)
        known.labels = told.labels
        assert {0, told.received.generation, told.sent.generation} <= {
            generation.number for generation in told.generations
        }
        if self.auditor is not None:
            self.open_boxes(told, known.hash, self.auditor)

    def open_boxes(self, told: Checkpoint, hash: HashAlgorithm, auditor: AuditorPrivateKey) -> None:
        """The secrets are those that were committed to."""
        for generation in told.generations:
            secret = auditor.open(dict(generation.boxes)[auditor.public])
            if not generation.number:
                assert commitment(hash, secret, told.th1) == told.facts.commit
            else:
                assert generation.after_offer is not None
                assert generation.after_answer is not None
                context = generation.after_offer + generation.after_answer
                assert commitment(hash, secret, context) == generation.commit


def follow(directory: Path, node: str, auditor: AuditorPrivateKey | None = None) -> Follower:
    """Follow a closed journal from its beginning, and again from each of its blocks."""
    segments = records_of(directory, node)
    follower = Follower(auditor)
    for number, records in enumerate(segments):
        head, end = SegmentHead.parse(records[0].body), SegmentEnd.parse(records[-1].body)
        assert head.number == number
        assert end.records == len(records) - 1
        blocks = [record for record in records if record.kind == keys.BLOCK]
        assert end.blocks == tuple(record.offset for record in blocks)
        assert [parse_block(record.body)[0] for record in blocks] == list(range(len(blocks)))
        fresh = Follower(auditor)
        for place, record in enumerate(records):
            follower.take(record)
            if record.kind == keys.BLOCK:
                _, live = parse_block(record.body)
                checkpoints = records[place + 1 : place + 1 + live]
                assert {one.kind for one in checkpoints} <= {keys.CHECKPOINT}
                assert len({SESSION.unpack_from(one.body) for one in checkpoints}) == live
                fresh = Follower(auditor)
            fresh.take(record)
    return follower
