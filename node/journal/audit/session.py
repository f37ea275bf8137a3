"""A session as an audit follows it: from its start or a checkpoint, through both directions.

One rule: what a record claims is checked against what was found, and where they differ
that is a finding; the audit goes on from the claim, which the next seal proves or not.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from crypto.errors import CryptoError
from crypto.identity import PublicIdentity
from crypto.registry import PARAMETERS, Suite
from crypto.schedule import chain_bind, chain_start_initiator, chain_start_responder
from node.journal.audit.content import topic_of_label
from node.journal.audit.keyring import Boxes, Keyring
from node.journal.audit.rows import DIRECTIONS, EventRow, Finding, SessionRow, Span
from node.journal.audit.search import Search, report_copy
from node.journal.audit.track import Track
from node.journal.bodies import KeyUpdate, Secret, SessionEnd
from node.journal.errors import JournalFormatError
from node.journal.keys import RECEIVED, SENT
from node.journal.sessions import Checkpoint, Direction, Generation, SessionFacts, SessionStart

_WAITING_BOXES: Final = 4
_PROOF_AT: Final = -1  # the place before that of the Proof


class Output:
    """Where all sessions of an audit put their rows; `segment` is the one being read."""

    __slots__ = ("events", "findings", "journal", "segment", "sessions", "spans")

    def __init__(self) -> None:
        self.journal = ""
        self.segment = ""
        self.events: list[EventRow] = []
        self.findings: list[Finding] = []
        self.sessions: list[SessionRow] = []
        self.spans: list[tuple[Span, list[EventRow]]] = []


class AuditedSession:
    """One session. Raises JournalFormatError if a record's values fit no session at all."""

    def __init__(
        self,
        output: Output,
        facts: SessionFacts,
        started: int,
        offset: int,
        th1: bytes,
        th2: bytes,
        generations: tuple[Generation, ...],
        boxes: Boxes,
        payloads: bool,
        states: tuple[Direction, Direction],
        labels: bytes | None,
    ) -> None:
        self._output = output
        self.facts = facts
        self.id = facts.session_id.hex()
        self.started = started
        self._offset = offset
        try:
            self._suite = Suite.of(dict(zip(PARAMETERS, facts.suite, strict=True)))
            local = PublicIdentity.parse(facts.local_keys)
            remote = PublicIdentity.parse(facts.remote_keys)
            verifiers = (
                remote.verifier(self._suite.signing),
                local.verifier(self._suite.signing),
            )
        except (CryptoError, KeyError) as error:
            raise JournalFormatError(f"no session can have these values: {error}") from error
        self.local, self.remote = local.node_id.text, remote.node_id.text
        self.keyring: Keyring | None = None
        if boxes:
            self.keyring = Keyring(boxes, self._suite, facts.commit, th1, th2, facts.session_id)
            self._add(generations, None)
        known = self.keyring.labels(labels) if self.keyring is not None else {}
        self.labels = {stream: topic_of_label(text) for stream, text in known.items()}
        nodes = (self.remote, self.local)
        sink = _Sink(self)
        self.tracks = tuple(
            Track(
                direction,
                self._head(direction, nodes),
                self._suite,
                facts.commit,
                verifiers[direction],
                self.keyring,
                self.labels,
                facts.initiator is (direction == SENT),
                states[direction],
                sink,
                payloads,
            )
            for direction in (RECEIVED, SENT)
        )
        self._searches: list[Search | None] = [None, None]
        self._boxes: dict[int, Generation] = {}  # of rekeys whose key update is yet to come
        self._begin_spans(started=False)

    # Ways to begin.

    @classmethod
    def from_start(
        cls,
        output: Output,
        start: SessionStart,
        time: int,
        offset: int,
        boxes: Boxes,
        payloads: bool,
        *,
        silent: bool,
    ) -> "AuditedSession":
        """A session from its first record: both Proofs are verified here, with rows unless
        `silent`."""
        facts = start.facts
        try:
            hash = Suite.of(dict(zip(PARAMETERS, facts.suite, strict=True))).hash_algorithm
        except (CryptoError, KeyError) as error:
            raise JournalFormatError(f"an unknown suite: {error}") from error
        th1 = hash.digest(start.t1)
        th2 = hash.digest(start.t1 + start.responder_proof + start.initiator_proof)
        with_proof = hash.digest(start.t1 + start.responder_proof)
        initiator = chain_start_initiator(hash, with_proof, facts.commit)
        responder = chain_start_responder(hash, th1, facts.commit)
        chains = (responder, initiator) if facts.initiator else (initiator, responder)
        states = tuple(Direction(chain, _PROOF_AT, 0, 0, 0, 0, {}) for chain in chains)
        session = cls(
            output,
            facts,
            time,
            offset,
            th1,
            th2,
            (),
            boxes,
            payloads,
            (states[0], states[1]),
            None,
        )
        if silent:
            session.silence()
        proofs = (start.responder_proof, start.initiator_proof)
        if not facts.initiator:
            proofs = proofs[1], proofs[0]
        for track, proof in zip(session.tracks, proofs, strict=True):
            session._proof(track, proof, time, offset)
            track.chain.value = chain_bind(hash, track.chain.value, th2)
        session._begin_spans(started=True)
        session._row("start", time, offset)
        return session

    @classmethod
    def from_checkpoint(
        cls,
        output: Output,
        checkpoint: Checkpoint,
        time: int,
        offset: int,
        boxes: Boxes,
        payloads: bool,
    ) -> "AuditedSession":
        """A session that began earlier, in records that were not read here."""
        session = cls(
            output,
            checkpoint.facts,
            checkpoint.started,
            offset,
            checkpoint.th1,
            checkpoint.th2,
            checkpoint.generations,
            boxes,
            payloads,
            (checkpoint.received, checkpoint.sent),
            checkpoint.labels,
        )
        session._row("live", time, offset)
        return session

    # Records.

    def event(self, direction: int, offset: int, time: int, wire: bytes, damaged: bool) -> None:
        """An event's record; `damaged` if its CRC is wrong."""
        track = self.tracks[direction]
        search = self._searches[direction]
        if search is None and track.take_usual(offset, time, wire):
            return
        try:
            parsed = track.parse(offset, time, wire)
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

    def secret(self, secret: Secret, offset: int) -> None:
        """The boxes of a generation's secret, before anything is under it."""
        if self.keyring is None:
            return
        generation = Generation(secret.generation, secret.boxes)
        if generation.number:
            # Its commitment comes with the key update.
            self._boxes[generation.number] = generation
            if len(self._boxes) > _WAITING_BOXES:
                del self._boxes[next(iter(self._boxes))]
            return
        self._add((generation,), offset)
        for track in self.tracks:
            track.find_secret()

    def key_update(self, update: KeyUpdate, time: int, offset: int) -> None:
        """A direction goes on under new keys."""
        track = self.tracks[update.direction]
        self._end_search(update.direction, None)
        if update.epoch != track.epoch + 1:
            self.finding(
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
            boxes = self._boxes.pop(generation.number, None)
            if boxes is not None:
                self._add((replace(generation, boxes=boxes.boxes),), offset)
            track.switch(generation.number, update.epoch, generation.commit)
        self._output.sessions.append(
            self.row("key-update", time, offset)._replace(
                direction=DIRECTIONS[update.direction],
                epoch=update.epoch,
                generation=generation.number if generation else None,
            )
        )

    def checkpoint(self, checkpoint: Checkpoint, offset: int, time: int) -> None:
        """What the journal says of the session between two events."""
        if checkpoint.facts != self.facts:
            self.finding(
                "checkpoint-mismatch",
                None,
                None,
                time,
                offset,
                "the session's own values are not those that it began with",
            )
        for track, state in zip(self.tracks, (checkpoint.received, checkpoint.sent), strict=True):
            broken = self._end_search(track.direction, state.place)
            if not broken and track.is_at(state):
                track.forget_ended(state)
                continue
            if not broken:
                self._mismatch(track, state, time, offset)
            track.give_up_pending()
            if self.keyring is not None:
                self._add(checkpoint.generations, offset)
            track.adopt(state)

    def end(self, end: SessionEnd, time: int, offset: int) -> None:
        """The session's last record."""
        for track, chain, place in zip(self.tracks, end.chains, end.places, strict=True):
            broken = self._end_search(track.direction, place)
            if broken:
                continue
            if place > track.place:
                self.finding(
                    "gap",
                    track.direction,
                    track.place + 1,
                    time,
                    offset,
                    f"{place - track.place} events are missing at the end of the session",
                    place - track.place,
                )
            elif place != track.place or chain != track.chain.value:
                self.finding(
                    "end-mismatch",
                    track.direction,
                    track.place,
                    time,
                    offset,
                    f"the end names place {place}; found was {track.place}, or another chain",
                )
        self._check_code(end, time, offset)
        for track in self.tracks:
            track.give_up_pending()
        self._output.sessions.append(
            self.row("end", time, offset)._replace(
                code=end.code,
                text=end.text,
                remote=end.remote,
                received_place=end.places[RECEIVED],
                sent_place=end.places[SENT],
            )
        )
        self.close_spans(offset, ended=True)

    # The records that are read in one go.

    def begin_loud(self, offset: int) -> None:
        """What comes from here on is read for the first time."""
        self._offset = offset
        for track in self.tracks:
            track.now_loud()
        for search in self._searches:
            if search is not None:
                search.is_told()
        self._begin_spans(started=False)

    def silence(self) -> None:
        """What comes next has its rows already."""
        for track in self.tracks:
            track.silent = True

    def close_spans(self, offset: int, *, ended: bool) -> None:
        """Give out what each direction began and ended with, and what is still pending."""
        output = self._output
        for track, (chain, place, segment, started) in zip(self.tracks, self._spans, strict=True):
            broken = self._end_search(track.direction, None)
            if broken:
                track.give_up_pending()
            pending = track.take_pending()
            sealed_place, sealed_ns = track.sealed_at or (None, None)
            span = Span(
                output.journal,
                segment,
                self._offset,
                self.id,
                DIRECTIONS[track.direction],
                chain,
                place,
                output.segment,
                offset,
                track.chain.value,
                track.place,
                len(pending),
                sealed_place,
                sealed_ns,
                started,
                ended,
            )
            output.spans.append((span, pending))

    # Inside.

    def finding(
        self,
        kind: str,
        direction: int | None,
        place: int | None,
        time: int | None,
        offset: int,
        evidence: str,
        count: int = 1,
    ) -> None:
        """Something is wrong with this session."""
        output = self._output
        output.findings.append(
            Finding(
                kind,
                output.journal,
                output.segment,
                self.id,
                None if direction is None else DIRECTIONS[direction],
                place,
                time,
                offset,
                count,
                evidence,
            )
        )

    def row(self, what: str, time: int, offset: int) -> SessionRow:
        """A row that says `what` of this session."""
        facts, output = self.facts, self._output
        return SessionRow(
            output.journal,
            output.segment,
            self.id,
            offset,
            time,
            what,
            facts.initiator,
            self.local,
            self.remote,
            facts.local_role,
            facts.remote_role,
            facts.address,
            " ".join(facts.suite),
            self.started,
        )

    def next_segment(self) -> None:
        """Rows name the segment that they are from."""
        nodes = (self.remote, self.local)
        for track in self.tracks:
            track.head = self._head(track.direction, nodes)

    def _row(self, what: str, time: int, offset: int) -> None:
        self._output.sessions.append(self.row(what, time, offset))

    def _head(self, direction: int, nodes: tuple[str, str]) -> tuple[str, ...]:
        output = self._output
        return (
            output.journal,
            output.segment,
            self.id,
            DIRECTIONS[direction],
            nodes[direction],
            nodes[1 - direction],
        )

    def _begin_spans(self, *, started: bool) -> None:
        segment = self._output.segment
        self._spans = [(track.chain.value, track.place, segment, started) for track in self.tracks]

    def _add(self, generations: tuple[Generation, ...], offset: int | None) -> None:
        if self.keyring is None:
            return
        for generation in generations:
            if not self.keyring.add(generation):
                self.finding(
                    "wrong-secret" if self.keyring.wrong else "no-secret",
                    None,
                    None,
                    None,
                    self._offset if offset is None else offset,
                    self.keyring.problem,
                )

    def _proof(self, track: Track, proof: bytes, time: int, offset: int) -> None:
        try:
            parsed = track.parse(offset, time, proof)
            value = track.fits(parsed)
        except ValueError:
            parsed, value = None, None
        if parsed is not None and value is not None:
            secret = self.keyring
            track.keyring = None  # Proofs are under keys of their own
            track.accept(parsed, value)
            track.keyring = secret
            return
        track.place = 0
        self.finding(
            "bad-proof",
            track.direction,
            0,
            time,
            offset,
            "the Proof's signed hash is not that of the handshake",
        )

    def _mismatch(self, track: Track, state: Direction, time: int, offset: int) -> None:
        missing = state.place - track.place
        if missing > 0:
            self.finding(
                "gap",
                track.direction,
                track.place + 1,
                time,
                offset,
                f"{missing} events are missing before this checkpoint",
                missing,
            )
        else:
            self.finding(
                "checkpoint-mismatch",
                track.direction,
                track.place,
                time,
                offset,
                f"the checkpoint names place {state.place}, epoch {state.epoch} and a chain value "
                f"that are not those found (place {track.place}, epoch {track.epoch})",
            )

    def _end_search(self, direction: int, place: int | None) -> bool:
        search = self._searches[direction]
        if search is None:
            return False
        self._searches[direction] = None
        search.end(place)
        return True

    def _check_code(self, end: SessionEnd, time: int, offset: int) -> None:
        """A Close is sealed, so what ended the session is proven where one was sent."""
        if self.keyring is None or not self.keyring.has(0):
            return
        closed_with = self.tracks[RECEIVED if end.remote else SENT].closed_with
        if closed_with is not None and closed_with != end.code:
            evidence = f"the end says code {end.code}, the sealed Close {closed_with}"
        elif end.remote and end.code >= 0 and closed_with is None:
            evidence = f"the end says that the other side closed with {end.code}; no Close came"
        else:
            return
        self.finding("end-mismatch", None, None, time, offset, evidence)


class _Sink:
    """A track's way out."""

    __slots__ = ("_session", "rows")

    def __init__(self, session: AuditedSession) -> None:
        self._session = session
        self.rows: Callable[[list[EventRow]], None] = session._output.events.extend

    def finding(
        self,
        kind: str,
        direction: int,
        place: int | None,
        time: int | None,
        offset: int,
        evidence: str,
        count: int = 1,
    ) -> None:
        """As that of the session."""
        self._session.finding(kind, direction, place, time, offset, evidence, count)
