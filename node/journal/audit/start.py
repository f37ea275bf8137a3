"""Where an audit of a session can begin: at its start, or at a checkpoint.

At the start both Proofs are verified, and the chains follow from them; a checkpoint is believed
until a seal vouches for it.
"""

from typing import Final

from parley._crypto.schedule import chain_bind, chain_start_initiator, chain_start_responder
from parley._node.journal.audit.claims import KnownSession, suite_of
from parley._node.journal.audit.output import AuditOutput
from parley._node.journal.audit.session import AuditedSession
from parley._node.journal.audit.track import Track
from parley._node.journal.sessions import Checkpoint, DirectionCheckpoint, SessionStart

_BEFORE_PROOF: Final = -1  # the place before that of the Proof


def start_session(
    output: AuditOutput, start: SessionStart, time: int, offset: int
) -> AuditedSession:
    """A session from its first record.

    Raises:
        JournalFormatError: a session cannot have the record's values.
    """
    facts = start.facts
    hash = suite_of(facts).hash_algorithm
    th1 = hash.digest(start.t1)
    th2 = hash.digest(start.t1 + start.responder_proof + start.initiator_proof)
    with_proof = hash.digest(start.t1 + start.responder_proof)
    initiator = chain_start_initiator(hash, with_proof, facts.commit)
    responder = chain_start_responder(hash, th1, facts.commit)
    proofs = start.responder_proof, start.initiator_proof
    chains = responder, initiator
    if not facts.initiator:
        proofs, chains = proofs[::-1], chains[::-1]
    received, sent = (DirectionCheckpoint(chain, _BEFORE_PROOF, 0, 0, 0, 0, {}) for chain in chains)
    session = AuditedSession(output, KnownSession(facts, time, offset, th1, th2, (received, sent)))
    for track, proof in zip(session.tracks, proofs, strict=True):
        blob = _verify_proof(session, track, proof, time, offset)
        session.proofs += (blob,)
        track.chain.value = chain_bind(hash, track.chain.value, th2)
    session.begin_spans(started=True)
    session.out.tell(session.out.row("start", time, offset))
    return session


def resume_session(
    output: AuditOutput, checkpoint: Checkpoint, time: int, offset: int
) -> AuditedSession:
    """A session that began before what is read here; raises as `start_session`."""
    known = KnownSession(
        checkpoint.facts,
        checkpoint.started,
        offset,
        checkpoint.th1,
        checkpoint.th2,
        (checkpoint.received, checkpoint.sent),
        checkpoint.generations,
        checkpoint.labels,
    )
    session = AuditedSession(output, known)
    session.out.tell(session.out.row("live", time, offset))
    return session


def _verify_proof(
    session: AuditedSession, track: Track, proof: bytes, time: int, offset: int
) -> bytes:
    """Verify a Proof; returns its encrypted part, empty if it has none."""
    value = None
    try:
        parsed = track.parse(offset, time, proof)
        value = track.fits(parsed)
    except ValueError:
        parsed = None
    if parsed is not None and value is not None:
        keyring, track.keyring = track.keyring, None  # Proofs are under keys of their own
        track.accept(parsed, value)
        track.keyring = keyring
        return parsed.blob
    track.place = 0
    what = "the Proof's signed hash is not that of the handshake"
    session.out.finding("bad-proof", track.direction, 0, time, offset, what)
    return parsed.blob if parsed is not None else b""
