"""One direction of a session, followed event by event: chain, seals, keys, rows.

An event is `ok` only if the chain leads to it and a valid seal at or after it vouches
for that chain. What happens when the chain breaks is in `search`.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from struct import Struct
from typing import Final

from crypto.chain import HashChain, check_seal
from crypto.errors import SignatureError
from crypto.registry import Suite
from crypto.schedule import chain_rekey
from crypto.signing import Verifier
from lbm.cells import read_text
from lbm.codec import decode
from lbm.keys import TEXT
from node.journal.audit.compact import PROOF, UNREAD, CompactRow
from node.journal.audit.content import Label, read_content, read_label
from node.journal.audit.keyring import Keyring, Lanes
from node.journal.audit.output import SessionOutput
from node.journal.audit.rows import BAD_SEAL, OK, UNDECRYPTABLE, UNSEALED
from node.journal.audit.tallies import BadSeals, Unread
from node.journal.audit.wire import HEAD, LEAST_BLOB, PREFIX, WireEvent
from node.journal.fields import EVENT_HEAD
from node.journal.sessions import DirectionCheckpoint
from node.protocol import codes

# Offsets in the body of an event's record.
_FORM_AT: Final = EVENT_HEAD + 4
_PREFIX_AT: Final = _FORM_AT + 1
_BLOB_AT: Final = EVENT_HEAD + HEAD
_unpack_inner: Final = Struct(">HH").unpack_from
_CLOSE: Final = codes.CONNECTION << 8 | codes.CLOSE
_PROOF: Final = codes.CONNECTION << 8 | codes.PROOF
# Takes half the time of calling the class.
_row: Final = tuple.__new__
_REMEMBERED: Final = 1_024  # prefixes of the last events, by which copies are recognised
MAX_LABELS: Final = 2**14  # of streams, in one session
# The most rows that wait for a seal, and about how many bytes of memory their events take: more
# than most receivers would have waited for.
MAX_PENDING: Final = 2**20
MAX_PENDING_SIZE: Final = 2**30
_NOTE_SIZE: Final = 64  # of memory, beside its bytes


def labels_of(labels: Mapping[int, str]) -> dict[int, Label]:
    """The labels of a checkpoint, by stream; no more than a session may have."""
    return {stream: read_label(text) for stream, text in islice(labels.items(), MAX_LABELS)}


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
        row = self._row(self.head, offset, time, size, stream4, blob, b"\0", place, digest, OK)
        if row is not None:
            self._hold(row)
        return True

    def value_after(self, wire: WireEvent) -> bytes:
        """The chain value if `wire` came next, whatever value it shows itself."""
        return self._new_hash(b"".join((self.chain.value, wire.stream4, wire.blob))).digest()

    def accept(self, wire: WireEvent, value: bytes, status: str = OK) -> None:
        """Take `wire` as the next event; `value` is the chain value after it."""
        self.chain.value = value
        self.place += 1
        self.recent.append(wire.mark)
        row = self._row_of(wire, self.place, value[:PREFIX], status)
        if wire.seal is None:
            if row is not None:
                self._hold(row)
        elif self.each or self._seal_is_valid(wire, value):
            self._sealed(wire, row)
        else:
            self.bad_seals.add(self.place, wire)
            self._give(row, BAD_SEAL)

    def accept_marked_wrongly(self, wire: WireEvent, value: bytes, status: str) -> None:
        """Take `wire`, whose blob fits the chain, but not its prefix (or, in `each`, its seal)."""
        self.chain.value = value
        self.place += 1
        self.recent.append(wire.mark)
        self._give(self._row_of(wire, self.place, value[:PREFIX], status), status)

    def refuse(self, wire: WireEvent, place: int | None, status: str) -> None:
        """Give out the row of an event to which the chain does not lead."""
        if not self.silent:
            self._give(self._row_of(wire, place, wire.prefix, status), status)

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

    def _hold(self, row: CompactRow) -> None:
        self.pending.append(row)
        notes = row.content.notes
        self._pending_size += row.wire_size + (0 if notes is None else _NOTE_SIZE * len(notes))
        if len(self.pending) > MAX_PENDING or self._pending_size > MAX_PENDING_SIZE:
            self.give_up_pending()

    def _give(self, row: CompactRow | None, status: str) -> None:
        """Give out a row that is final without a seal."""
        if row is not None:
            self.out.rows([row._replace(status=status)])

    def _sealed(self, wire: WireEvent, row: CompactRow | None) -> None:
        self.bad_seals.tell(mended=True)
        if self.sealed_ns is None:
            self.sealed_ns = wire.time
        rows = self.take_pending()
        if row is not None:
            rows.append(row)
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

    def _row_of(
        self, wire: WireEvent, place: int | None, digest: bytes, status: str
    ) -> CompactRow | None:
        return self._row(
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

    def _row(
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
    ) -> CompactRow | None:
        """The row of an event; None while it is silent."""
        stream = int.from_bytes(stream4, "big")
        plain = self.lanes.decrypt(stream4, blob, form)
        async_id: int | None
        number: int | None
        payload: bytes | None
        if plain is None:
            content, topic, label, payload = UNREAD, None, None, None
            async_id = number = None
            if place == 0:
                content, async_id, number = PROOF, 0, _PROOF
            elif place and self.keyring is not None:
                status = self._unread(place, time, offset, status)
        else:
            async_id, number = _unpack_inner(plain)
            payload = plain[4:]
            content = read_content(stream, number, payload)
            topic, label = content.topic, None
            if content.label is not None:
                self._add_label(stream, content.label)
            elif number == _CLOSE and content.status == OK and content.code is not None:
                self.closed = content.code, read_text(decode(payload), TEXT, default="")
            known = self.labels.get(stream)
            if known is not None:
                label, topic = known.text, known.topic_of(number, topic)
            if status == OK:
                status = content.status
            if content.notes:
                payload = None
        if self.silent:
            return None
        return _row(
            CompactRow,
            (
                head,
                offset,
                place,
                time,
                stream,
                size,
                len(blob),
                digest,
                async_id,
                number,
                content,
                topic,
                label,
                payload,
                status,
            ),
        )

    def _unread(self, place: int, time: int, offset: int, status: str) -> str:
        """An event does not open although there are keys; returns its status."""
        self.unread.last = place
        if status != OK:
            return status
        self.unread.add(place, time, offset, self.lanes, self.generation, told=self.silent)
        return UNDECRYPTABLE

    def _add_label(self, stream: int, text: str) -> None:
        if len(self.labels) >= MAX_LABELS:
            del self.labels[next(iter(self.labels))]
        self.labels[stream] = read_label(text)
