"""An event's bytes taken apart, and the chain over them (docs/journal.md).

Everything here can be done without a key.
"""

from dataclasses import dataclass

from parley._crypto.chain import HashChain
from parley._crypto.registry import HASHES, SIGNING
from parley._crypto.schedule import (
    chain_bind,
    chain_rekey,
    chain_start_initiator,
    chain_start_responder,
)
from parley._node.journal import keys
from parley._node.journal.bodies import KeyUpdate
from parley._node.journal.fields import EVENT, parse_event_head
from parley._node.journal.records import Record
from parley._node.journal.sessions import Checkpoint, SessionFacts, SessionStart

_CHAIN = slice(5, 21)


@dataclass(frozen=True, slots=True)
class Shape:
    """Where the parts of a session's events are."""

    each: bool
    seal_size: int

    @classmethod
    def of(cls, facts: SessionFacts) -> "Shape":
        """That of a session's suite."""
        _, signing, _, _, sealing = facts.suite
        return cls(sealing == "each", SIGNING[signing].signature_size)

    def seal(self, wire: bytes) -> slice | None:
        """Where the seal is; None without one."""
        if self.each:
            return slice(4, 4 + self.seal_size)
        return slice(21, 21 + self.seal_size) if wire[4] == 1 else None

    def blob(self, wire: bytes) -> int:
        """Where the blob begins."""
        seal = self.seal(wire)
        return 21 if seal is None else seal.stop

    def part(self, wire: bytes, at: int) -> str:
        """What the byte at `at` belongs to."""
        seal = self.seal(wire)
        if at < 4:
            return "stream"
        if seal is not None and seal.start <= at < seal.stop:
            return "seal"
        if at < self.blob(wire):
            return "form" if at == 4 else "chain"
        return "blob"


class Chains:
    """Both chains of a session, followed from its start or a checkpoint on."""

    def __init__(self, facts: SessionFacts) -> None:
        self.shape = Shape.of(facts)
        self._hash = HASHES[facts.suite[2]]
        self._chains = [HashChain(self._hash, b""), HashChain(self._hash, b"")]
        self.places = [0, 0]

    @property
    def values(self) -> tuple[bytes, bytes]:
        """Of received and sent."""
        return self._chains[0].value, self._chains[1].value

    def follow(self, record: Record) -> None:
        """Take a record of the session, in its order."""
        if record.kind == keys.SESSION_START:
            self._start(SessionStart.parse(record.body))
        elif record.kind == keys.CHECKPOINT:
            checkpoint = Checkpoint.parse(record.body)
            for number, state in enumerate((checkpoint.received, checkpoint.sent)):
                self._chains[number].value = state.chain
                self.places[number] = state.place
        elif record.kind == keys.EVENT:
            _, direction = parse_event_head(record.body)
            self.advance(direction, record.body[EVENT.size :])
        elif record.kind == keys.KEY_UPDATE:
            update = KeyUpdate.parse(record.body)
            if update.generation is not None and update.generation.commit is not None:
                chain = self._chains[update.direction]
                chain.value = chain_rekey(self._hash, chain.value, update.generation.commit)

    def advance(self, direction: int, wire: bytes) -> bytes:
        """Take an event; the value after it."""
        self.places[direction] += 1
        return self._chains[direction].advance(wire[:4], wire[self.shape.blob(wire) :])

    def rechained(self, direction: int, wire: bytes) -> bytes:
        """Take an event, and return it with the 16 bytes that its place asks for."""
        value = self.advance(direction, wire)
        return wire[: _CHAIN.start] + value[:16] + wire[_CHAIN.stop :]

    def _start(self, start: SessionStart) -> None:
        facts, digest = start.facts, self._hash.digest
        responder = chain_start_responder(self._hash, digest(start.t1), facts.commit)
        with_proof = digest(start.t1 + start.responder_proof)
        initiator = chain_start_initiator(self._hash, with_proof, facts.commit)
        th2 = digest(start.t1 + start.responder_proof + start.initiator_proof)
        proofs = ((responder, start.responder_proof), (initiator, start.initiator_proof))
        for is_initiator, (value, proof) in enumerate(proofs):
            direction = keys.SENT if facts.initiator == bool(is_initiator) else keys.RECEIVED
            chain = self._chains[direction]
            chain.value = value
            chain.value = chain_bind(self._hash, self.advance(direction, proof), th2)
            self.places[direction] = 0
