"""The audit of a session from its start or a checkpoint, in both directions.

At the start both Proofs are verified, and the chains are derived from them. A difference between a
record and the events is a finding. The audit then continues from the record, which the next seal
proves or disproves.
"""

from dataclasses import replace
from typing import Final

from parley._crypto.errors import CryptoError
from parley._crypto.hashing import SHA256
from parley._crypto.identity import PublicIdentity
from parley._crypto.key_schedule import chain_bind, chain_start_initiator, chain_start_responder
from parley._lbm.codec import decode
from parley._lbm.errors import LbmDecodeError
from parley._lbm.keys import IDENTITY_KEYS
from parley._node.journal.audit.broken_chain import BrokenChain, report_copy
from parley._node.journal.audit.consistency import (
    Generations,
    KnownSession,
    close_contradiction,
    constants_digest,
    report_checkpoint_mismatch,
    report_end_mismatch,
    suite_of,
)
from parley._node.journal.audit.content import labels_of
from parley._node.journal.audit.direction import DirectionContext, DirectionTracker
from parley._node.journal.audit.keyring import Keyring
from parley._node.journal.audit.output import LONGEST_TEXT, AuditOutput, SessionOutput
from parley._node.journal.audit.presented import read_presented
from parley._node.journal.audit.rows import DIRECTIONS, Span
from parley._node.journal.errors import JournalFormatError
from parley._node.journal.keys import RECEIVED, SENT
from parley._node.journal.record_types import (
    Checkpoint,
    DirectionCheckpoint,
    Generation,
    KeyUpdate,
    Secret,
    SessionEnd,
    SessionParted,
    SessionResumed,
    SessionStart,
)

WAITING_BOXES: Final = 4


class AuditedSession:
    """The audit of one session. Raises JournalFormatError for impossible values of a record."""

    def __init__(self, output: AuditOutput, known: KnownSession) -> None:
        self.facts = facts = known.facts
        suite = suite_of(facts)
        try:
            local = PublicIdentity.parse(facts.local_keys)
            remote = PublicIdentity.parse(facts.remote_keys)
            verifiers = remote.verifier(suite.signing), local.verifier(suite.signing)
        except CryptoError as error:
            raise JournalFormatError(f"invalid values of a session: {error}") from error
        self.out = out = SessionOutput(output, facts, local, remote, known.started)
        self.keyring: Keyring | None = None
        labels: dict[int, str] = {}
        self._offset = known.offset
        if output.boxes:
            self.keyring = Keyring(
                output.boxes, suite, facts.commit, known.th1, known.th2, facts.session_id
            )
            self._add(known.generations, known.offset)
            labels = self._labels(known.labels, known.offset)
        commits = {one.number: one.commit or b"" for one in known.generations}
        context = DirectionContext(suite, facts.commit, self.keyring, labels_of(labels), out)
        self.trackers = tuple(
            DirectionTracker(
                context,
                direction,
                out.head(direction),
                verifiers[direction],
                facts.initiator is (direction == SENT),
                known.states[direction],
                commits.get(known.states[direction].generation, b""),
            )
            for direction in (RECEIVED, SENT)
        )
        if output.silent:
            self.silence()
        # The encrypted parts of both Proofs, and whether their seals are valid, until a key opens
        # them.
        self.proofs: tuple[tuple[bytes, bool], ...] = ()
        self._broken_chains: list[BrokenChain | None] = [None, None]
        self._constant = constants_digest(facts, known.th1, known.th2, known.started)
        self._boxes: dict[int, Generation] = {}  # Of rekeys whose key update has not been read yet.
        self._secrets = Generations(out, known.generations)
        self.begin_spans()

    def event(
        self, direction: int, offset: int, time: int, wire: bytes, *, damaged: bool = False
    ) -> None:
        """Process an event's record; `damaged` if its CRC is wrong."""
        tracker = self.trackers[direction]
        broken = self._broken_chains[direction]
        self._secrets.require(0, time, offset)
        try:
            parsed = tracker.parse(offset, time, wire)
            parsed.damaged = damaged
        except ValueError:
            parsed = None
        if broken is not None:
            if broken.take(parsed):
                self._broken_chains[direction] = None
            return
        if parsed is None:
            self._broken_chains[direction] = BrokenChain(tracker, None, damaged=damaged)
            return
        value = tracker.fits(parsed)
        if value is not None:
            tracker.accept(parsed, value)
        elif parsed.mark in tracker.recent:
            report_copy(tracker, parsed)
        else:
            self._broken_chains[direction] = BrokenChain(tracker, parsed, damaged=damaged)

    def is_in_sequence(self, direction: int) -> bool:
        """Whether the chain is unbroken and the session's secret came before."""
        return self._broken_chains[direction] is None and 0 in self._secrets

    def secret(self, secret: Secret, offset: int) -> None:
        """Process the boxes of a generation's secret. Raises JournalFormatError for a duplicate."""
        generation = Generation(secret.generation, secret.boxes)
        self._secrets.add(generation)
        if self.keyring is None:
            return
        if generation.number:
            # Its commitment is in the key update.
            self._boxes[generation.number] = generation
            if len(self._boxes) > WAITING_BOXES:
                del self._boxes[next(iter(self._boxes))]
            return
        self._add((generation,), offset)
        self._check_proofs(offset)
        for tracker in self.trackers:
            tracker.find_secret()

    def key_update(self, update: KeyUpdate, time: int, offset: int) -> None:
        tracker = self.trackers[update.direction]
        if update.epoch != tracker.epoch + 1:
            self.out.finding(
                "epoch-mismatch",
                update.direction,
                tracker.place,
                time,
                offset,
                f"epoch {update.epoch} cannot follow epoch {tracker.epoch}",
            )
        generation = update.generation
        if generation is None:
            tracker.switch(None, update.epoch, None)
        else:
            self._secrets.require(generation.number, time, offset)
            if not self._secrets.agrees(generation):
                what = f"rekey {generation.number} has different values in another record"
                self.out.finding("epoch-mismatch", update.direction, None, time, offset, what)
            boxes = self._boxes.pop(generation.number, None)
            if boxes is not None:
                self._add((replace(generation, boxes=boxes.boxes),), offset)
            tracker.switch(generation.number, update.epoch, generation.commit)
        self.out.report(
            self.out.row("key-update", time, offset)._replace(
                direction=DIRECTIONS[update.direction],
                epoch=update.epoch,
                generation=generation.number if generation else None,
            )
        )

    def checkpoint(self, checkpoint: Checkpoint, offset: int, time: int) -> None:
        """Compare a checkpoint with the events, and continue from it."""
        if self._constant != constants_digest(
            checkpoint.facts, checkpoint.th1, checkpoint.th2, checkpoint.started
        ):
            self.out.finding(
                "checkpoint-mismatch",
                None,
                None,
                time,
                offset,
                "the session's constant values differ from its start",
            )
        states = checkpoint.received, checkpoint.sent
        self._learn_secrets(checkpoint, time, offset)
        for one in checkpoint.generations:
            if not self._secrets.agrees(one):
                what = f"the secret of generation {one.number} differs from its own record"
                self.out.finding("checkpoint-mismatch", None, None, time, offset, what)
        self._labels(checkpoint.labels, offset)
        commits = {one.number: one.commit or b"" for one in checkpoint.generations}
        for tracker, state in zip(self.trackers, states, strict=True):
            broken = self._end_broken_chain(tracker.direction, state.place, state.chain)
            commit = commits.get(state.generation, b"")
            if not broken and tracker.is_at(state) and tracker.rekey_commit == commit:
                tracker.forget_ended(state)
                continue
            if not broken:
                report_checkpoint_mismatch(tracker, state, time, offset)
            tracker.give_up_pending()
            if self.keyring is not None:
                self._add(checkpoint.generations, offset)
            tracker.adopt(state, commit)

    def change(self, change: SessionParted | SessionResumed, time: int, offset: int) -> None:
        """Record that the transport was lost or replaced, which is unproven."""
        if isinstance(change, SessionParted):
            row = self.out.row("parted", time, offset)
            row = row._replace(text=change.text[:LONGEST_TEXT])
        else:
            row = self.out.row("resumed", time, offset)._replace(resumption=change.resumption)
        self.out.report(row)

    def end(self, end: SessionEnd, time: int, offset: int) -> None:
        """Compare the session's last record with the events."""
        self._secrets.require(0, time, offset)
        for tracker, chain, place in zip(self.trackers, end.chains, end.places, strict=True):
            if not self._end_broken_chain(tracker.direction, place, chain):
                report_end_mismatch(tracker, place, chain, time, offset)
        if self.keyring is not None and self.keyring.has(0):
            evidence = close_contradiction(end, self.trackers)
            if evidence is not None:
                self.out.finding("end-mismatch", None, None, time, offset, evidence)
        self.give_up_pending()
        self.out.report(
            self.out.row("end", time, offset)._replace(
                code=end.code,
                text=end.text,
                remote=end.remote,
                received_place=end.places[RECEIVED],
                sent_place=end.places[SENT],
            )
        )
        self.close_spans(offset, ended=True)

    # Spans: records that are read in one pass.

    def start_reporting(self, offset: int) -> None:
        """Report from here on, because later records are read for the first time."""
        self._offset = offset
        for tracker in self.trackers:
            tracker.start_reporting()
        for broken in self._broken_chains:
            if broken is not None:
                broken.mark_reported()
        self.begin_spans()

    def give_up_pending(self) -> None:
        for tracker in self.trackers:
            tracker.give_up_pending()

    def silence(self) -> None:
        """Add no rows for the next events, which already have rows."""
        for tracker in self.trackers:
            tracker.silent = True

    def next_segment(self) -> None:
        for tracker in self.trackers:
            tracker.head = self.out.head(tracker.direction)

    def begin_spans(self, *, started: bool = False) -> None:
        segment = self.out.output.segment
        self._spans = [
            (tracker.chain.value, tracker.place, segment, started, self._state_of(tracker))
            for tracker in self.trackers
        ]

    def close_spans(self, offset: int, *, ended: bool, lost: bool = False) -> None:
        """Add the spans of both directions with their pending rows.

        `lost`: records at the end could not be read.
        """
        output = self.out.output
        for tracker, (chain, place, segment, started, state) in zip(
            self.trackers, self._spans, strict=True
        ):
            unplaced = self._leave_broken_chain(tracker)
            tracker.bad_seals.report()
            tracker.unread.report()
            pending = tracker.take_pending()
            end_state = self._state_of(tracker)
            span = Span(
                output.journal,
                segment,
                self._offset,
                self.out.id,
                DIRECTIONS[tracker.direction],
                chain,
                place,
                output.segment,
                offset,
                tracker.chain.value,
                tracker.place,
                len(pending),
                unplaced,
                tracker.sealed_ns,
                state,
                end_state,
                started,
                ended,
                lost,
            )
            output.end_span(span, pending)

    def _state_of(self, tracker: DirectionTracker) -> bytes:
        """Digest the state that must match between spans, except for chain and place."""
        generation = (tracker.epoch, tracker.generation, tracker.updates)
        secrets = self._secrets.since(min(tracker.generation for tracker in self.trackers))
        text = f"{self._constant.hex()} {generation} {tracker.rekey_commit.hex()} {secrets}"
        return SHA256.digest(text.encode())

    def _leave_broken_chain(self, tracker: DirectionTracker) -> int:
        """Stop reading; return how many events of a broken chain have no place."""
        broken = self._broken_chains[tracker.direction]
        if broken is None:
            return 0
        unplaced = broken.unplaced
        if self.out.output.stitched:
            broken.leave()
            self._broken_chains[tracker.direction] = None
        else:
            self._end_broken_chain(tracker.direction, None, None)
        tracker.give_up_pending()
        return unplaced

    def _add(self, generations: tuple[Generation, ...], offset: int) -> None:
        if self.keyring is None:
            return
        for generation in generations:
            if not self.keyring.add(generation):
                kind = "wrong-secret" if self.keyring.wrong else "no-secret"
                self.out.finding(kind, None, None, None, offset, self.keyring.problem)

    def _labels(self, encrypted: bytes | None, offset: int) -> dict[int, str]:
        if self.keyring is None:
            return {}
        labels = self.keyring.labels(encrypted)
        if labels is None:
            what = "the labels in the checkpoint do not open with the session's key"
            self.out.finding("checkpoint-mismatch", None, None, None, offset, what)
        return labels or {}

    def _learn_secrets(self, checkpoint: Checkpoint, time: int, offset: int) -> None:
        """Use the secrets in a checkpoint that should have had separate records."""
        absent = tuple(
            one
            for one in checkpoint.generations
            if not self._secrets.require(one.number, time, offset)
        )
        if not absent:
            return
        self._add(absent, offset)
        self._check_proofs(offset)
        for tracker, state in zip(
            self.trackers, (checkpoint.received, checkpoint.sent), strict=True
        ):
            tracker.epoch_keys.begin(state.counters)
            tracker.find_secret()

    def _end_broken_chain(self, direction: int, place: int | None, chain: bytes | None) -> bool:
        """Decide on the events after a broken chain; return whether it stays broken."""
        broken = self._broken_chains[direction]
        if broken is None:
            return False
        self._broken_chains[direction] = None
        return not broken.end(place, chain)

    def _check_proofs(self, offset: int) -> None:
        """Compare the identities in the session's start with the identities in the Proofs.

        Then report the statements that the Proofs present.
        """
        proofs, self.proofs = self.proofs, ()
        if self.keyring is None or not self.keyring.has(0):
            return
        shown = self.facts.remote_keys, self.facts.local_keys
        for tracker, (blob, is_sealed), keys_ in zip(self.trackers, proofs, shown, strict=False):
            payload = self.keyring.open_proof(blob, initiator=tracker.initiator)
            try:
                cells = {} if payload is None else decode(payload)
            except LbmDecodeError:
                cells = {}
            if cells.get(IDENTITY_KEYS) == keys_:
                if is_sealed:  # Otherwise the peer may not have presented them.
                    self.out.statements(tracker.direction, offset, read_presented(cells))
            else:
                what = "the identity in the session's start differs from the identity in the Proof"
                self.out.finding("bad-proof", tracker.direction, 0, None, offset, what)


_BEFORE_PROOF: Final = -1  # The place before the Proof.


def start_session(
    output: AuditOutput, start: SessionStart, time: int, offset: int
) -> AuditedSession:
    """Begin a session at its first record. Raises JournalFormatError for impossible values."""
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
    for tracker, proof in zip(session.trackers, proofs, strict=True):
        blob = _verify_proof(session, tracker, proof, time, offset)
        session.proofs += ((blob, tracker.sealed_ns is not None),)
        tracker.chain.value = chain_bind(hash, tracker.chain.value, th2)
    session.begin_spans(started=True)
    session.out.report(session.out.row("start", time, offset))
    return session


def resume_session(
    output: AuditOutput, checkpoint: Checkpoint, time: int, offset: int
) -> AuditedSession:
    """Begin a session at a checkpoint. Raises the errors of `start_session`."""
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
    session.out.report(session.out.row("live", time, offset))
    return session


def _verify_proof(
    session: AuditedSession, tracker: DirectionTracker, proof: bytes, time: int, offset: int
) -> bytes:
    """Verify a Proof; return its encrypted part, which is empty if it has none."""
    value = None
    try:
        parsed = tracker.parse(offset, time, proof)
        value = tracker.fits(parsed)
    except ValueError:
        parsed = None
    if parsed is not None and value is not None:
        keyring, tracker.keyring = tracker.keyring, None  # Proofs are encrypted with separate keys.
        tracker.accept(parsed, value)
        tracker.keyring = keyring
        return parsed.blob
    tracker.place = 0
    what = "the Proof's signed hash does not match the handshake"
    session.out.finding("bad-proof", tracker.direction, 0, time, offset, what)
    return parsed.blob if parsed is not None else b""
