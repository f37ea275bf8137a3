"""One direction of a session, followed event by event: chain, seals, keys and rows.

An event is `ok` only if the chain leads to it, and a valid seal at or after it covers that chain.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from parley._crypto.errors import SignatureError
from parley._crypto.key_schedule import chain_rekey
from parley._crypto.record_protection import HashChain, check_seal
from parley._crypto.registry import Suite
from parley._crypto.signing import Verifier
from parley._lbm.codec import decode
from parley._lbm.fields import read_text
from parley._lbm.keys import TEXT
from parley._node.journal.audit.content import (
    PROOF,
    UNREAD,
    CompactRow,
    Label,
    add_label,
    read_content,
    single_events,
)
from parley._node.journal.audit.keyring import MOST_UPDATES, EpochKeys, Keyring
from parley._node.journal.audit.output import SessionOutput
from parley._node.journal.audit.rows import BAD_SEAL, OK, UNDECRYPTABLE, UNSEALED
from parley._node.journal.record_types import EVENT_HEAD, DirectionCheckpoint
from parley._node.protocol import codes

HEAD: Final = 21  # Stream, form and prefix, with sealing `chain`.
PREFIX: Final = 16
LEAST_BLOB: Final = 21  # Async ID, type, one byte of payload, tag.


class WireEvent:
    """One recorded event, split into its parts (protocol.md, section 6). Only sizes are checked.

    With sealing `each` it has no `prefix`.
    """

    __slots__ = (
        "blob",
        "damaged",
        "form",
        "head",
        "offset",
        "prefix",
        "seal",
        "size",
        "stream4",
        "time",
    )

    def __init__(
        self, head: tuple[str, ...], offset: int, time: int, wire: bytes, each: bool, seal_size: int
    ) -> None:
        """Split an event. Raises ValueError if it is too short for its form."""
        self.head = head  # The first columns of its row.
        self.damaged = False  # Whether its record's CRC is wrong.
        self.offset = offset
        self.time = time
        self.size = size = len(wire)
        self.stream4 = wire[:4]
        self.prefix = b""
        self.seal: bytes | None = None
        self.form = 1
        start = 4
        if not each:
            self.form = wire[4] if size > 4 else 2
            self.prefix = wire[5:HEAD]
            start = HEAD
        if self.form == 1:
            self.seal = wire[start : start + seal_size]
            start += seal_size
        if self.form > 1 or size < start + LEAST_BLOB:
            raise ValueError(f"invalid event: {size:,} bytes with form {self.form}")
        self.blob = wire[start:]

    @property
    def segment(self) -> str:
        return self.head[1]

    @property
    def mark(self) -> bytes:
        """Return 16 bytes that are unique among the events of the direction."""
        return self.prefix or (self.seal or b"")[:PREFIX]


class BadSeals:
    """The wrong seals since the last right one, reported as one finding."""

    def __init__(self, out: SessionOutput, direction: int) -> None:
        self._out = out
        self._direction = direction
        self._first: tuple[int, int, int, str] | None = None  # Place, time, offset, segment.
        self._count = 0

    def add(self, place: int, wire: WireEvent) -> None:
        """Add the wrong seal of an event, unless a wrong CRC of its record was reported."""
        if self._first is None and wire.damaged:
            return
        if self._first is None:
            self._first = place, wire.time, wire.offset, wire.segment
        self._count += 1

    def report(self, *, mended: bool = False) -> None:
        """Report the finding, if there is one; `mended` by a right seal."""
        if self._first is None:
            return
        place, time, offset, segment = self._first
        what = "the signature over the chain at this place is not the sender's"
        if self._count > 1:
            what += f", and the {self._count - 1} seals after it are wrong as well"
        if not mended:
            what += "; no valid seal follows in these records: the chain may have been rebuilt"
        self._out.finding(
            "bad-seal", self._direction, place, time, offset, what, self._count, segment
        )
        self.forget()

    def forget(self) -> None:
        self._first = None
        self._count = 0


_UPDATES: Final = f"after more than {MOST_UPDATES:,} key updates of a generation"


class UndecryptableEvents:
    """Events that don't open with the auditor's key of their session, reported as one finding.

    A session without a key has another finding. `last` is the place of the last event that did not
    open, for any reason.
    """

    def __init__(self, out: SessionOutput, direction: int, keyring: Keyring | None) -> None:
        self._out = out
        self._direction = direction
        self._keyring = keyring
        self._first: tuple[int, int, int] | None = None  # Place, time, offset.
        self._why = ""
        self._count = 0
        self.last: int | None = None

    def add(
        self,
        place: int,
        time: int,
        offset: int,
        epoch_keys: EpochKeys,
        generation: int,
        *,
        reported: bool,
    ) -> None:
        """Add an event; `reported` by an earlier reading."""
        keyring = self._keyring
        if reported or keyring is None or not keyring.is_open:
            return
        if self._first is None:
            self._first = place, time, offset
            if epoch_keys.secret is not None:
                self._why = "where events are missing before"
            elif keyring.has(generation):
                self._why = _UPDATES
            else:
                self._why = f"without the secret of generation {generation}"
        self._count += 1

    def report(self) -> None:
        if self._first is None or self.last is None:
            return
        place, time, offset = self._first
        self._out.finding(
            "undecryptable",
            self._direction,
            place,
            time,
            offset,
            f"{self._count} events from place {place} to {self.last} do not open, {self._why}, "
            "although the auditor's key opens the session",
            self._count,
        )
        self._first, self._count = None, 0


# Offsets in the body of an event's record.
_FORM_AT: Final = EVENT_HEAD + 4
_PREFIX_AT: Final = _FORM_AT + 1
_BLOB_AT: Final = EVENT_HEAD + HEAD
_CLOSE: Final = codes.CONNECTION << 8 | codes.CLOSE
# Async id, type and content of an event that was not decrypted, and of a Proof.
_UNREAD: Final = (None, None, UNREAD)
_PROOF: Final = (0, codes.CONNECTION << 8 | codes.PROOF, PROOF)
_REMEMBERED: Final = 1_024  # The prefixes of the last events, by which copies are recognised.
# The limits for rows that wait for a seal: their number, and about how many bytes of memory their
# events need. Most receivers would not have waited for more.
MAX_PENDING: Final = 2**20
MAX_PENDING_SIZE: Final = 2**30
_NOTE_SIZE: Final = 64  # The memory in addition to its bytes.


@dataclass(frozen=True, slots=True)
class DirectionContext:
    """The state that both directions of a session share.

    `commit` is the commitment to the session's secret, `labels` the labels of its streams, and
    `out` receives the findings.
    """

    suite: Suite
    commit: bytes
    keyring: Keyring | None
    labels: dict[int, Label]
    out: SessionOutput


class DirectionTracker:
    """The audit of one direction.

    `chain`, `place`, `generation` and `updates` are as in a checkpoint. `pending` are the rows of
    events that no seal covers yet.
    """

    def __init__(
        self,
        context: DirectionContext,
        direction: int,
        head: tuple[str, ...],
        verifier: Verifier,
        initiator: bool,
        state: DirectionCheckpoint,
        rekey_commit: bytes,
    ) -> None:
        suite, out = context.suite, context.out
        self.direction = direction
        self.head = head  # Journal, segment, session, direction, sender, receiver.
        self._suite = suite
        self.each = suite.sealing == "each"
        self._seal_size = verifier.signature_size
        self._new_hash = suite.hash_algorithm.new
        self.commit = context.commit
        self.verifier = verifier
        self.keyring = context.keyring
        self.labels = context.labels
        self.initiator = initiator  # Whether the connection's initiator sends in this direction.
        self.out = out
        self.pending: list[CompactRow] = []
        self._pending_size = 0  # The bytes of their events.
        self.recent: deque[bytes] = deque(maxlen=_REMEMBERED)
        self.silent = False  # Whether these events already have rows.
        self.epoch_keys = EpochKeys(suite)
        self.closed: tuple[int, str] | None = None  # The code and text of a Close event.
        self.unread = UndecryptableEvents(out, direction, context.keyring)
        self.bad_seals = BadSeals(out, direction)
        self.sealed_ns: int | None = None  # The time of the first valid seal.
        self.adopt(state, rekey_commit)

    def adopt(self, state: DirectionCheckpoint, rekey_commit: bytes) -> None:
        """Continue from a checkpoint; `rekey_commit` is empty for the handshake's generation."""
        self.rekey_commit = rekey_commit
        self.chain = HashChain(self._suite.hash_algorithm, state.chain)
        self.place = state.place
        self.epoch = state.epoch
        self.generation = state.generation
        self.updates = state.updates
        self.epoch_keys.begin(state.counters)
        self.epoch_keys.guess = False
        self.find_secret()

    def is_at(self, state: DirectionCheckpoint) -> bool:
        return (
            self.chain.value == state.chain
            and self.place == state.place
            and self.epoch == state.epoch
            and self.generation == state.generation
            and self.updates == state.updates
        )

    def forget_ended(self, state: DirectionCheckpoint) -> None:
        """Free the keys of streams that ended, because the checkpoint doesn't have them."""
        self.epoch_keys.keep(state.counters)

    def parse(self, offset: int, time: int, wire: bytes) -> WireEvent:
        """Parse an event. Raises ValueError if it is too short for its form."""
        return WireEvent(self.head, offset, time, wire, self.each, self._seal_size)

    def fits(self, wire: WireEvent) -> bytes | None:
        """Return the chain value after `wire`, or None if it isn't the next event."""
        value = self.value_after(wire)
        if self.each:
            return value if self._seal_is_valid(wire.seal, value) else None
        return value if value[:PREFIX] == wire.prefix else None

    def take_in_sequence(self, offset: int, time: int, body: bytes) -> bool:
        """Process the next event if it is in sequence and its seal is valid, like `accept` but
        faster.

        `body` is the body of its record. Returns False for other events, without a change.
        """
        size = len(body)
        if size < _BLOB_AT + LEAST_BLOB or self.each:
            return False
        form = body[_FORM_AT]
        start = _BLOB_AT + self._seal_size if form else _BLOB_AT
        if form > 1 or size < start + LEAST_BLOB:
            return False
        stream4, blob, chain = body[EVENT_HEAD:_FORM_AT], body[start:], self.chain
        value = self._new_hash(b"".join((chain.value, stream4, blob))).digest()
        digest = value[:PREFIX]
        if digest != body[_PREFIX_AT:_BLOB_AT]:
            return False
        if form and not self._seal_is_valid(body[_BLOB_AT:start], value):
            return False
        chain.value = value
        self.place = place = self.place + 1
        self.recent.append(digest)
        form1 = body[_FORM_AT:_PREFIX_AT]
        wire_size = size - EVENT_HEAD
        rows = self._rows(
            self.head, offset, time, wire_size, stream4, blob, form1, place, digest, OK
        )
        if form:
            self._sealed(time, rows)
        elif rows:
            self._hold(rows)
        return True

    def value_after(self, wire: WireEvent) -> bytes:
        """Return the chain value if `wire` came next, regardless of the value in `wire` itself."""
        return self._new_hash(b"".join((self.chain.value, wire.stream4, wire.blob))).digest()

    def accept(self, wire: WireEvent, value: bytes, status: str = OK) -> None:
        """Process `wire` as the next event; `value` is the chain value after it."""
        self.chain.value = value
        self.place += 1
        self.recent.append(wire.mark)
        rows = self._rows_of(wire, self.place, value[:PREFIX], status)
        if wire.seal is None:
            if rows:
                self._hold(rows)
        elif self.each or self._seal_is_valid(wire.seal, value):
            self._sealed(wire.time, rows)
        else:
            self.bad_seals.add(self.place, wire)
            self._give(rows, BAD_SEAL)

    def accept_marked_wrongly(self, wire: WireEvent, value: bytes, status: str) -> None:
        """Process `wire`, whose blob fits the chain, but not its prefix (in `each`: its seal)."""
        self.chain.value = value
        self.place += 1
        self.recent.append(wire.mark)
        self._give(self._rows_of(wire, self.place, value[:PREFIX], status), status)

    def refuse(self, wire: WireEvent, place: int | None, status: str) -> None:
        """Add the rows of an event to which the chain doesn't lead."""
        if not self.silent:
            self._give(self._rows_of(wire, place, wire.prefix, status), status)

    def switch(self, generation: int | None, epoch: int, commit: bytes | None) -> None:
        """Apply a key update, or a rekey with its `generation` and `commit`."""
        if generation is None:
            self.updates += 1
        else:
            self.generation, self.updates = generation, 0
            self.rekey_commit = commit or b""
            if commit is not None:
                hash = self._suite.hash_algorithm
                self.chain.value = chain_rekey(hash, self.chain.value, commit)
        self.epoch = epoch
        self.epoch_keys.begin({})
        self.find_secret()

    def give_up_pending(self) -> None:
        """Add pending rows as unsealed."""
        rows = self.take_pending()
        if rows:
            self.out.rows([row._replace(status=UNSEALED) for row in rows])

    def take_pending(self) -> list[CompactRow]:
        rows, self.pending = self.pending, []
        self._pending_size = 0
        return rows

    def start_reporting(self) -> None:
        """Add rows from here on."""
        self.silent = False
        self.take_pending()
        self.sealed_ns = None
        self.bad_seals.forget()  # Reported by an earlier reading.

    def find_secret(self) -> None:
        """Look up the key of the current epoch."""
        keyring = self.keyring
        self.epoch_keys.secret = (
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
        if rows:
            self.out.rows([row._replace(status=status) for row in rows])

    def _sealed(self, time: int, own: list[CompactRow]) -> None:
        self.bad_seals.report(mended=True)
        if self.sealed_ns is None:
            self.sealed_ns = time
        rows = self.take_pending()
        if own:
            rows += own
            self.out.rows(rows, time)

    def _seal_is_valid(self, seal: bytes | None, value: bytes) -> bool:
        if seal is None:
            return False
        hash = self._suite.hash_algorithm
        try:
            check_seal(self.verifier, hash, self.commit, value, seal)
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
        """Return the row of an event, or of each in a batch; none while silent."""
        stream, blob_size = int.from_bytes(stream4, "big"), len(blob)
        plain = self.epoch_keys.decrypt(stream4, blob, form)
        if plain is None:
            if place and self.keyring is not None:
                status = self._unread(place, time, offset, status)
            if self.silent:
                return []
            known = (head, offset, place, time, stream, size, blob_size, digest)
            number, event_type, content = _PROOF if place == 0 else _UNREAD
            return [CompactRow(*known, number, event_type, content, None, None, None, status)]
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
            rows.append(
                CompactRow(
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
            )
        return rows

    def _unread(self, place: int, time: int, offset: int, status: str) -> str:
        """Count an event that doesn't open although there are keys; return its status."""
        self.unread.last = place
        if status != OK:
            return status
        self.unread.add(place, time, offset, self.epoch_keys, self.generation, reported=self.silent)
        return UNDECRYPTABLE
