"""A session as an audit follows it: from its start or a checkpoint, in both directions.

What a record claims is compared with what was found, and a difference is a finding. The audit
then goes on from the claim, which the next seal proves or not.
"""

from dataclasses import replace
from typing import Final

from parley._crypto.errors import CryptoError
from parley._crypto.hashing import SHA256
from parley._crypto.identity import PublicIdentity
from parley._lbm.codec import decode
from parley._lbm.errors import LbmDecodeError
from parley._lbm.keys import IDENTITY_KEYS
from parley._node.journal.audit.claims import (
    Generations,
    KnownSession,
    beside_checkpoint,
    beside_end,
    constant_of,
    contradiction,
    suite_of,
)
from parley._node.journal.audit.keyring import Keyring
from parley._node.journal.audit.labels import labels_of
from parley._node.journal.audit.output import LONGEST_TEXT, AuditOutput, SessionOutput
from parley._node.journal.audit.rows import DIRECTIONS, Span
from parley._node.journal.audit.search import Search, report_copy
from parley._node.journal.audit.track import Track, TrackContext
from parley._node.journal.bodies import KeyUpdate, Secret, SessionEnd, SessionParted, SessionResumed
from parley._node.journal.errors import JournalFormatError
from parley._node.journal.keys import RECEIVED, SENT
from parley._node.journal.sessions import Checkpoint, Generation

WAITING_BOXES: Final = 4


class AuditedSession:
    """One session. Raises JournalFormatError if a session cannot have a record's values."""

    def __init__(self, output: AuditOutput, known: KnownSession) -> None:
        self.facts = facts = known.facts
        suite = suite_of(facts)
        try:
            local = PublicIdentity.parse(facts.local_keys)
            remote = PublicIdentity.parse(facts.remote_keys)
            verifiers = remote.verifier(suite.signing), local.verifier(suite.signing)
        except CryptoError as error:
            raise JournalFormatError(f"a session cannot have these values: {error}") from error
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
        context = TrackContext(suite, facts.commit, self.keyring, labels_of(labels), out)
        self.tracks = tuple(
            Track(
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
        # The encrypted parts of both Proofs, until a key opens them.
        self.proofs: tuple[bytes, ...] = ()
        self._searches: list[Search | None] = [None, None]
        self._constant = constant_of(facts, known.th1, known.th2, known.started)
        self._boxes: dict[int, Generation] = {}  # of rekeys whose key update has yet to come
        self._secrets = Generations(out, known.generations)
        self.begin_spans()

    # Records.

    def event(
        self, direction: int, offset: int, time: int, wire: bytes, *, damaged: bool = False
    ) -> None:
        """An event's record; `damaged` if its CRC is wrong."""
        track = self.tracks[direction]
        search = self._searches[direction]
        self._secrets.require(0, time, offset)
        try:
            parsed = track.parse(offset, time, wire)
            parsed.damaged = damaged
        except ValueError:
            parsed = None
        if search is not None:
            if search.take(parsed):
                self._searches[direction] = None
            return
        if parsed is None:
            self._searches[direction] = Search(track, None, damaged=damaged)
            return
        value = track.fits(parsed)
        if value is not None:
            track.accept(parsed, value)
        elif parsed.mark in track.recent:
            report_copy(track, parsed)
        else:
            self._searches[direction] = Search(track, parsed, damaged=damaged)

    def is_usual(self, direction: int) -> bool:
        """Whether the next event may be of the usual kind: the chain is not broken, and the
        session's secret came before."""
        return self._searches[direction] is None and 0 in self._secrets

    def secret(self, secret: Secret, offset: int) -> None:
        """The boxes of a generation's secret, which come before everything that needs it.

        Raises:
            JournalFormatError: they came before.
        """
        generation = Generation(secret.generation, secret.boxes)
        self._secrets.add(generation)
        if self.keyring is None:
            return
        if generation.number:
            # Its commitment comes with the key update.
            self._boxes[generation.number] = generation
            if len(self._boxes) > WAITING_BOXES:
                del self._boxes[next(iter(self._boxes))]
            return
        self._add((generation,), offset)
        self._check_proofs(offset)
        for track in self.tracks:
            track.find_secret()

    def key_update(self, update: KeyUpdate, time: int, offset: int) -> None:
        """A direction goes on under new keys."""
        track = self.tracks[update.direction]
        if update.epoch != track.epoch + 1:
            self.out.finding(
                "epoch-mismatch",
                update.direction,
                track.place,
                time,
                offset,
                f"epoch {update.epoch} is said to follow epoch {track.epoch}",
            )
        generation = update.generation
        if generation is None:
            track.switch(None, update.epoch, None)
        else:
            self._secrets.require(generation.number, time, offset)
            if not self._secrets.agrees(generation):
                what = f"rekey {generation.number} has other values in another record"
                self.out.finding("epoch-mismatch", update.direction, None, time, offset, what)
            boxes = self._boxes.pop(generation.number, None)
            if boxes is not None:
                self._add((replace(generation, boxes=boxes.boxes),), offset)
            track.switch(generation.number, update.epoch, generation.commit)
        self.out.tell(
            self.out.row("key-update", time, offset)._replace(
                direction=DIRECTIONS[update.direction],
                epoch=update.epoch,
                generation=generation.number if generation else None,
            )
        )

    def checkpoint(self, checkpoint: Checkpoint, offset: int, time: int) -> None:
        """The journal's claim about the session between two events."""
        if self._constant != constant_of(
            checkpoint.facts, checkpoint.th1, checkpoint.th2, checkpoint.started
        ):
            self.out.finding(
                "checkpoint-mismatch",
                None,
                None,
                time,
                offset,
                "the session's constant values are not those that it began with",
            )
        states = checkpoint.received, checkpoint.sent
        self._learn_secrets(checkpoint, time, offset)
        for one in checkpoint.generations:
            if not self._secrets.agrees(one):
                what = f"the secret of generation {one.number} differs from its own record"
                self.out.finding("checkpoint-mismatch", None, None, time, offset, what)
        self._labels(checkpoint.labels, offset)
        commits = {one.number: one.commit or b"" for one in checkpoint.generations}
        for track, state in zip(self.tracks, states, strict=True):
            broken = self._end_search(track.direction, state.place, state.chain)
            commit = commits.get(state.generation, b"")
            if not broken and track.is_at(state) and track.rekey_commit == commit:
                track.forget_ended(state)
                continue
            if not broken:
                beside_checkpoint(track, state, time, offset)
            track.give_up_pending()
            if self.keyring is not None:
                self._add(checkpoint.generations, offset)
            track.adopt(state, commit)

    def change(self, change: SessionParted | SessionResumed, time: int, offset: int) -> None:
        """Its transport went, or another came: the node's bare word, which proves nothing."""
        if isinstance(change, SessionParted):
            row = self.out.row("parted", time, offset)
            row = row._replace(text=change.text[:LONGEST_TEXT])
        else:
            row = self.out.row("resumed", time, offset)._replace(resumption=change.resumption)
        self.out.tell(row)

    def end(self, end: SessionEnd, time: int, offset: int) -> None:
        """The session's last record."""
        self._secrets.require(0, time, offset)
        for track, chain, place in zip(self.tracks, end.chains, end.places, strict=True):
            if not self._end_search(track.direction, place, chain):
                beside_end(track, place, chain, time, offset)
        if self.keyring is not None and self.keyring.has(0):
            evidence = contradiction(end, self.tracks)
            if evidence is not None:
                self.out.finding("end-mismatch", None, None, time, offset, evidence)
        self.give_up_pending()
        self.out.tell(
            self.out.row("end", time, offset)._replace(
                code=end.code,
                text=end.text,
                remote=end.remote,
                received_place=end.places[RECEIVED],
                sent_place=end.places[SENT],
            )
        )
        self.close_spans(offset, ended=True)

    # Spans: records that are read in one go.

    def begin_loud(self, offset: int) -> None:
        """Records from here on are read for the first time."""
        self._offset = offset
        for track in self.tracks:
            track.now_loud()
        for search in self._searches:
            if search is not None:
                search.is_told()
        self.begin_spans()

    def give_up_pending(self) -> None:
        """No seal will come any more."""
        for track in self.tracks:
            track.give_up_pending()

    def silence(self) -> None:
        """The events that come next have rows already."""
        for track in self.tracks:
            track.silent = True

    def next_segment(self) -> None:
        """The events that come next are in another segment."""
        for track in self.tracks:
            track.head = self.out.head(track.direction)

    def begin_spans(self, *, started: bool = False) -> None:
        """Spans begin here; `started`: the session does too."""
        segment = self.out.output.segment
        self._spans = [
            (track.chain.value, track.place, segment, started, self._state_of(track))
            for track in self.tracks
        ]

    def close_spans(self, offset: int, *, ended: bool, lost: bool = False) -> None:
        """Give out what each direction began and ended with, and what is still pending.

        `lost`: records at the end could not be read.
        """
        output = self.out.output
        for track, (chain, place, segment, started, state) in zip(
            self.tracks, self._spans, strict=True
        ):
            unplaced = self._leave_search(track)
            track.bad_seals.tell()
            track.unread.tell()
            pending = track.take_pending()
            end_state = self._state_of(track)
            span = Span(
                output.journal,
                segment,
                self._offset,
                self.out.id,
                DIRECTIONS[track.direction],
                chain,
                place,
                output.segment,
                offset,
                track.chain.value,
                track.place,
                len(pending),
                unplaced,
                track.sealed_ns,
                state,
                end_state,
                started,
                ended,
                lost,
            )
            output.end_span(span, pending)

    # Inside.

    def _state_of(self, track: Track) -> bytes:
        """What must not change from one span to the next, besides chain and place."""
        generation = (track.epoch, track.generation, track.updates)
        secrets = self._secrets.since(min(track.generation for track in self.tracks))
        text = f"{self._constant.hex()} {generation} {track.rekey_commit.hex()} {secrets}"
        return SHA256.digest(text.encode())

    def _leave_search(self, track: Track) -> int:
        """Nothing more is read; returns how many events of a broken chain have no place."""
        search = self._searches[track.direction]
        if search is None:
            return 0
        unplaced = search.unplaced
        if self.out.output.stitched:
            search.leave()
            self._searches[track.direction] = None
        else:
            self._end_search(track.direction, None, None)
        track.give_up_pending()
        return unplaced

    def _add(self, generations: tuple[Generation, ...], offset: int) -> None:
        if self.keyring is None:
            return
        for generation in generations:
            if not self.keyring.add(generation):
                kind = "wrong-secret" if self.keyring.wrong else "no-secret"
                self.out.finding(kind, None, None, None, offset, self.keyring.problem)

    def _labels(self, encrypted: bytes | None, offset: int) -> dict[int, str]:
        """The labels of a checkpoint, if there is a key for them."""
        if self.keyring is None:
            return {}
        labels = self.keyring.labels(encrypted)
        if labels is None:
            what = "the labels in the checkpoint do not open with the session's key"
            self.out.finding("checkpoint-mismatch", None, None, None, offset, what)
        return labels or {}

    def _learn_secrets(self, checkpoint: Checkpoint, time: int, offset: int) -> None:
        """Take secrets from a checkpoint that should have had records of their own."""
        absent = tuple(
            one
            for one in checkpoint.generations
            if not self._secrets.require(one.number, time, offset)
        )
        if not absent:
            return
        self._add(absent, offset)
        self._check_proofs(offset)
        for track, state in zip(self.tracks, (checkpoint.received, checkpoint.sent), strict=True):
            track.lanes.begin(state.counters)
            track.find_secret()

    def _end_search(self, direction: int, place: int | None, chain: bytes | None) -> bool:
        """End the search after a broken chain, if any; returns whether it stays broken."""
        search = self._searches[direction]
        if search is None:
            return False
        self._searches[direction] = None
        return not search.end(place, chain)

    def _check_proofs(self, offset: int) -> None:
        """Compare the identities in the session's start with those that the Proofs show."""
        proofs, self.proofs = self.proofs, ()
        if self.keyring is None or not self.keyring.has(0):
            return
        shown = self.facts.remote_keys, self.facts.local_keys
        for track, blob, keys_ in zip(self.tracks, proofs, shown, strict=False):
            payload = self.keyring.open_proof(blob, initiator=track.initiator)
            try:
                same = payload is not None and decode(payload).get(IDENTITY_KEYS) == keys_
            except LbmDecodeError:
                same = False
            if not same:
                what = "the identity in the session's start is not the one that the Proof shows"
                self.out.finding("bad-proof", track.direction, 0, None, offset, what)
