"""One direction of a session, followed event by event: chain, seals, keys, rows.

An event is `ok` only if the chain leads to it and a valid seal at or after it vouches
for that chain. What happens when the chain breaks is in `search`.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from parley._crypto.chain import HashChain, check_seal
from parley._crypto.errors import SignatureError
from parley._crypto.registry import Suite
from parley._crypto.schedule import chain_rekey
from parley._crypto.signing import Verifier
from parley._lbm.cells import read_text
from parley._lbm.codec import decode
from parley._lbm.keys import TEXT
from parley._node.journal.audit.compact import PROOF, UNREAD, CompactRow
from parley._node.journal.audit.content import read_content, single_events
from parley._node.journal.audit.keyring import Keyring, Lanes
from parley._node.journal.audit.labels import Label, add_label
from parley._node.journal.audit.output import SessionOutput
from parley._node.journal.audit.rows import BAD_SEAL, OK, UNDECRYPTABLE, UNSEALED
from parley._node.journal.audit.tallies import BadSeals, Unread
from parley._node.journal.audit.wire import HEAD, LEAST_BLOB, PREFIX, WireEvent
from parley._node.journal.fields import EVENT_HEAD
from parley._node.journal.sessions import DirectionCheckpoint
from parley._node.protocol import codes

# Offsets in the body of an event's record.
_FORM_AT: Final = EVENT_HEAD + 4
_PREFIX_AT: Final = _FORM_AT + 1
_BLOB_AT: Final = EVENT_HEAD + HEAD
_CLOSE: Final = codes.CONNECTION << 8 | codes.CLOSE
# The columns from the async id on of an event that was not decrypted, and of a Proof.
_UNREAD: Final = (None, None, UNREAD, None, None, None)
_PROOF: Final = (0, codes.CONNECTION << 8 | codes.PROOF, PROOF, None, None, None)
# Takes half the time of calling the class.
_row: Final = tuple.__new__
_REMEMBERED: Final = 1_024  # prefixes of the last events, by which copies are recognised
# The most rows that wait for a seal, and about how many bytes of memory their events take: more
# than most receivers would have waited for.
MAX_PENDING: Final = 2**20
MAX_PENDING_SIZE: Final = 2**30
_NOTE_SIZE: Final = 64  # of memory, beside its bytes


@dataclass(frozen=True, slots=True)
class TrackContext:
    """What both directions of a session share: its suite, the commitment to its secret, its
    secrets as far as they are known, the labels of its streams, and where findings go."""

    suite: Suite
    commit: bytes
    keyring: Keyring | None
    labels: dict[int, Label]
    out: SessionOutput


class Track:
    """A direction. `chain`, `place`, `generation` and `updates` are as in a checkpoint; `pending`
    are the rows of events for which no seal has vouched yet."""

    __slots__ = (
        "_new_hash",
        "_pending_size",
        "_seal_size",
        "_suite",
        "bad_seals",
        "chain",
        "closed",
        "commit",
        "direction",
        "each",
        "epoch",
        "generation",
        "head",
        "initiator",
        "keyring",
        "labels",
        "lanes",
        "out",
        "pending",
        "place",
        "recent",
        "rekey_commit",
        "sealed_ns",
        "silent",
        "unread",
        "updates",
        "verifier",
    )

    def __init__(
        self,
        context: TrackContext,
        direction: int,
        head: tuple[str, ...],
        verifier: Verifier,
        initiator: bool,
        state: DirectionCheckpoint,
        rekey_commit: bytes,
    ) -> None:
        suite, out = context.suite, context.out
        self.direction = direction
        self.head = head  # journal, segment, session, direction, sender, receiver
        self._suite = suite
        self.each = suite.sealing == "each"
        self._seal_size = verifier.signature_size
        self._new_hash = suite.hash_algorithm.new
        self.commit = context.commit
        self.verifier = verifier
        self.keyring = context.keyring
        self.labels = context.labels
        self.initiator = initiator  # whether the connection's initiator sends here
        self.out = out
        self.pending: list[CompactRow] = []
        self._pending_size = 0  # bytes of their events
        self.recent: deque[bytes] = deque(maxlen=_REMEMBERED)
        self.silent = False  # these events have their rows already
        self.lanes = Lanes(suite)
        self.closed: tuple[int, str] | None = None  # code and text of a Close that was seen
        self.unread = Unread(out, direction, context.keyring)
        self.bad_seals = BadSeals(out, direction)
        self.sealed_ns: int | None = None  # the time of the first valid seal
        self.adopt(state, rekey_commit)

    def adopt(self, state: DirectionCheckpoint, rekey_commit: bytes) -> None:
        """Go on from a checkpoint's claim. `rekey_commit` is that of the generation, empty for
        the handshake's."""
        self.rekey_commit = rekey_commit
        self.chain = HashChain(self._suite.hash_algorithm, state.chain)
        self.place = state.place
        self.epoch = state.epoch
        self.generation = state.generation
        self.updates = state.updates
        self.lanes.begin(state.counters)
        self.lanes.guess = False
        self.find_secret()

    def is_at(self, state: DirectionCheckpoint) -> bool:
        """Whether a checkpoint agrees with what was found of this direction."""
        return (
            self.chain.value == state.chain
            and self.place == state.place
            and self.epoch == state.epoch
            and self.generation == state.generation
            and self.updates == state.updates
        )

    def forget_ended(self, state: DirectionCheckpoint) -> None:
        """Free the keys of streams that are not in a checkpoint, since they have ended."""
        self.lanes.keep(state.counters)

    def parse(self, offset: int, time: int, wire: bytes) -> WireEvent:
        """Parse an event; raises ValueError if it is too short for its form."""
        return WireEvent(self.head, offset, time, wire, self.each, self._seal_size)

    # Events.

    def fits(self, wire: WireEvent) -> bytes | None:
        """The chain value after `wire` if that comes next, otherwise None."""
        value = self.value_after(wire)
        if self.each:
            return value if self._seal_is_valid(wire, value) else None
        return value if value[:PREFIX] == wire.prefix else None

    def take_usual(self, offset: int, time: int, body: bytes) -> bool:
        """Take the next event if it is of the usual kind, as most are: unsealed and in its
        place. `body` is that of its record. Does what `accept` does, in less time. Returns
        whether it took the event; otherwise nothing changed.
        """
        size = len(body) - EVENT_HEAD
        if size < HEAD + LEAST_BLOB or body[_FORM_AT] or self.each:
            return False
        stream4, blob, chain = body[EVENT_HEAD:_FORM_AT], body[_BLOB_AT:], self.chain
        value = self._new_hash(b"".join((chain.value, stream4, blob))).digest()
        digest = value[:PREFIX]
        if digest != body[_PREFIX_AT:_BLOB_AT]:
            return False
        chain.value = value
        self.place = place = self.place + 1
        self.recent.append(digest)
        rows = self._rows(self.head, offset, time, size, stream4, blob, b"\0", place, digest, OK)
        if rows:
            self._hold(rows)
        return True

    def value_after(self, wire: WireEvent) -> bytes:
        """The chain value if `wire` came next, whatever value it shows itself."""
        return self._new_hash(b"".join((self.chain.value, wire.stream4, wire.blob))).digest()

    def accept(self, wire: WireEvent, value: bytes, status: str = OK) -> None:
        """Take `wire` as the next event; `value` is the chain value after it."""
        self.chain.value = value
        self.place += 1
        self.recent.append(wire.mark)
        rows = self._rows_of(wire, self.place, value[:PREFIX], status)
        if wire.seal is None:
            if rows:
                self._hold(rows)
        elif self.each or self._seal_is_valid(wire, value):
            self._sealed(wire, rows)
        else:
            self.bad_seals.add(self.place, wire)
            self._give(rows, BAD_SEAL)

    def accept_marked_wrongly(self, wire: WireEvent, value: bytes, status: str) -> None:
        """Take `wire`, whose blob fits the chain, but not its prefix (or, in `each`, its seal)."""
        self.chain.value = value
        self.place += 1
        self.recent.append(wire.mark)
        self._give(self._rows_of(wire, self.place, value[:PREFIX], status), status)

    def refuse(self, wire: WireEvent, place: int | None, status: str) -> None:
        """Give out the rows of an event to which the chain does not lead."""
        if not self.silent:
            self._give(self._rows_of(wire, place, wire.prefix, status), status)

    def switch(self, generation: int | None, epoch: int, commit: bytes | None) -> None:
        """A key update: after a rekey with `generation` and its `commit`, otherwise a plain one."""
        if generation is None:
            self.updates += 1
        else:
            self.generation, self.updates = generation, 0
            self.rekey_commit = commit or b""
            if commit is not None:
                hash = self._suite.hash_algorithm
                self.chain.value = chain_rekey(hash, self.chain.value, commit)
        self.epoch = epoch
        self.lanes.begin({})
        self.find_secret()

    def give_up_pending(self) -> None:
        """No seal will vouch for what is pending."""
        rows = self.take_pending()
        if rows:
            self.out.rows([row._replace(status=UNSEALED) for row in rows])

    def take_pending(self) -> list[CompactRow]:
        """Take the rows that wait for a seal."""
        rows, self.pending = self.pending, []
        self._pending_size = 0
        return rows

    def now_loud(self) -> None:
        """Events get rows from here on."""
        self.silent = False
        self.take_pending()
        self.sealed_ns = None
        self.bad_seals.forget()  # an earlier reading told of them

    # Inside.

    def find_secret(self) -> None:
        """Look for the key of the present epoch."""
        keyring = self.keyring
        self.lanes.secret = (
            None
            if keyring is None
            else keyring.secret(self.generation, self.updates, self.initiator)
        )

    def _hold(self, rows: list[CompactRow]) -> None:
        self.pending += rows
        self._pending_size += rows[0].wire_size
        for row in rows:
            if row.content.notes is not None:
                self._pending_size += _NOTE_SIZE * len(row.content.notes)
        if len(self.pending) > MAX_PENDING or self._pending_size > MAX_PENDING_SIZE:
            self.give_up_pending()

    def _give(self, rows: list[CompactRow], status: str) -> None:
        """Give out an event's rows that are final without a seal."""
        if rows:
            self.out.rows([row._replace(status=status) for row in rows])

    def _sealed(self, wire: WireEvent, own: list[CompactRow]) -> None:
        self.bad_seals.tell(mended=True)
        if self.sealed_ns is None:
            self.sealed_ns = wire.time
        rows = self.take_pending()
        if own:
            rows += own
            self.out.rows(rows, wire.time)

    def _seal_is_valid(self, wire: WireEvent, value: bytes) -> bool:
        if wire.seal is None:
            return False
        hash = self._suite.hash_algorithm
        try:
            check_seal(self.verifier, hash, self.commit, value, wire.seal)
        except SignatureError:
            return False
        return True

    def _rows_of(
        self, wire: WireEvent, place: int | None, digest: bytes, status: str
    ) -> list[CompactRow]:
        return self._rows(
            wire.head,
            wire.offset,
            wire.time,
            wire.size,
            wire.stream4,
            wire.blob,
            b"\1" if wire.form else b"\0",
            place,
            digest,
            status,
        )

    def _rows(
        self,
        head: tuple[str, ...],
        offset: int,
        time: int,
        size: int,
        stream4: bytes,
        blob: bytes,
        form: bytes,
        place: int | None,
        digest: bytes,
        status: str,
    ) -> list[CompactRow]:
        """The row of an event, or of each in a batch; none while it is silent."""
        stream, blob_size = int.from_bytes(stream4, "big"), len(blob)
        plain = self.lanes.decrypt(stream4, blob, form)
        if plain is None:
            if place and self.keyring is not None:
                status = self._unread(place, time, offset, status)
            about = _PROOF if place == 0 else _UNREAD
            known = (head, offset, place, time, stream, size, blob_size, digest)
            return [] if self.silent else [_row(CompactRow, (*known, *about, status, None))]
        rows: list[CompactRow] = []
        for inside, async_id, number, payload in single_events(stream, plain):
            content = read_content(stream, number, payload)
            topic, label = content.topic, None
            if content.label is not None:
                add_label(self.labels, stream, content.label)
            elif number == _CLOSE and content.status == OK and content.code is not None:
                self.closed = content.code, read_text(decode(payload), TEXT, default="")
            stands = self.labels.get(stream)
            if stands is not None:
                label, topic = stands.text, stands.topic_of(number, topic)
            if self.silent:
                continue
            row = (
                head,
                offset,
                place,
                time,
                stream,
                size,
                blob_size,
                digest,
                async_id,
                number,
                content,
                topic,
                label,
                None if content.notes else payload,
                content.status if status == OK else status,
                inside,
            )
            rows.append(_row(CompactRow, row))
        return rows

    def _unread(self, place: int, time: int, offset: int, status: str) -> str:
        """An event does not open although there are keys; returns its status."""
        self.unread.last = place
        if status != OK:
            return status
        self.unread.add(place, time, offset, self.lanes, self.generation, told=self.silent)
        return UNDECRYPTABLE
