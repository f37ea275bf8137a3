"""One direction of an encrypted connection: stream keys, hash chain, seals (section 6).

What goes into the chain is the bytes on the wire, never a re-encoding.
`RecordWriter` turns an event into a frame, `RecordReader` a frame's event back. Which stream
may be used and what an event means is not known here.
"""

from collections.abc import Callable
from hmac import compare_digest
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from parley._crypto.errors import DecryptError, SignatureError
from parley._crypto.record_protection import LARGE_BLOB, HashChain, StreamKey, check_seal, make_seal
from parley._crypto.registry import Suite
from parley._crypto.signing import SigningKey, Verifier
from parley._node.protocol.codes import ALWAYS_SEALED, CONNECTION, CloseCode
from parley._node.protocol.errors import RemoteProtocolError, violation
from parley._node.protocol.event import INNER_HEAD, Event

UNSEALED: Final = b"\x00"
SEALED: Final = b"\x01"
_CHAIN_PREFIX: Final = 16  # bytes of the chain value that travel with each event
_CHAIN_HEAD: Final = 5 + _CHAIN_PREFIX  # stream, form, and those
_LEAST_BLOB: Final = 21  # async id, type, one byte of payload, tag
# A named tuple in half the time of calling its class.
_tuple: Final = tuple.__new__
_pack_length: Final = Struct(">I").pack
_unpack_stream: Final = Struct(">I").unpack_from
_pack_head: Final = INNER_HEAD.pack
_unpack_head: Final = INNER_HEAD.unpack_from


class _Lane:
    """A stream's key, and the byte strings that every event of it needs."""

    __slots__ = ("key", "sealed_aad", "stream", "unsealed_aad")

    def __init__(self, suite: Suite, secret: bytes, stream: int) -> None:
        self.key = StreamKey(suite, secret, stream)
        self.stream = stream.to_bytes(4, "big")
        self.unsealed_aad = self.stream + UNSEALED
        self.sealed_aad = self.stream + SEALED


class Direction:
    """What both directions have: the epoch's secret, a lane for each stream, the chain.

    `unsealed` counts events in form 0 since the last seal. Of a stream that rests only the
    counter is there: its lane, of some 3 KB, is made anew for its next event.
    """

    __slots__ = (
        "_resting",
        "_secret",
        "chain",
        "commit",
        "each",
        "epoch",
        "lanes",
        "suite",
        "unsealed",
    )

    def __init__(self, suite: Suite, secret: bytes, chain: bytes, commit: bytes) -> None:
        self.suite = suite
        self.each = suite.sealing == "each"
        self.chain = HashChain(suite.hash_algorithm, chain)
        self.commit = commit
        self.unsealed = 0
        self.epoch = -1
        self.switch(secret)

    def switch(self, secret: bytes) -> None:
        """Go on under `secret`: all streams restart their counters, a new epoch begins."""
        self._secret = secret
        self.lanes: dict[int, _Lane] = {}
        self._resting: dict[int, int] = {}
        self.epoch += 1

    @property
    def secret(self) -> bytes:
        """The epoch's secret, from which the next one is derived."""
        return self._secret

    def counters(self) -> dict[int, int]:
        """The next counter of each stream that was used in this epoch."""
        awake = {stream: lane.key.counter for stream, lane in self.lanes.items()}
        return self._resting | awake

    def rest(self) -> None:
        """Free the keys of all streams until their next event."""
        self._resting, self.lanes = self.counters(), {}

    def forget(self, stream: int) -> None:
        """Free the key of a direction that ended."""
        self.lanes.pop(stream, None)
        self._resting.pop(stream, None)

    def _lane(self, stream: int) -> _Lane:
        """The lane of a stream that is new or rested."""
        lane = self.lanes[stream] = _Lane(self.suite, self._secret, stream)
        lane.key.counter = self._resting.pop(stream, 0)
        return lane


class RecordWriter(Direction):
    """Our direction. `events_sent` and `bytes_sent` (of blobs) count within the epoch."""

    __slots__ = ("_signing_key", "bytes_sent", "events_sent")

    def __init__(
        self, suite: Suite, secret: bytes, chain: bytes, commit: bytes, signing_key: SigningKey
    ) -> None:
        self._signing_key = signing_key
        super().__init__(suite, secret, chain, commit)

    def switch(self, secret: bytes) -> None:
        """Go on under `secret`; the epoch's counts begin anew."""
        super().switch(secret)
        self.events_sent = 0
        self.bytes_sent = 0

    def protect(
        self,
        stream: int,
        async_id: int,
        category: int,
        subcategory: int,
        payload: bytes | memoryview | bytearray,
        sealed: bool,
    ) -> bytes:
        """Encrypt, chain and frame one event; `payload` is at least one byte."""
        lane = self.lanes.get(stream)
        if lane is None:
            lane = self._lane(stream)
        sealed = sealed or self.each
        aad = lane.sealed_aad if sealed else lane.unsealed_aad
        blob = lane.key.encrypt(_pack_head(async_id, category, subcategory) + payload, aad)
        size, chain = len(blob), self.chain
        if size < LARGE_BLOB:  # in one step, as it is done for every event
            value = chain.value = chain.hash(chain.value + lane.stream + blob).digest()
        else:
            value = chain.advance(lane.stream, blob)
        self.events_sent += 1
        self.bytes_sent += size
        if not sealed:
            self.unsealed += 1
            return b"".join((_pack_length(_CHAIN_HEAD + size), aad, value[:_CHAIN_PREFIX], blob))
        self.unsealed = 0
        seal = make_seal(self._signing_key, self.suite.hash_algorithm, self.commit, value)
        prefix = lane.stream if self.each else aad + value[:_CHAIN_PREFIX]
        length = _pack_length(len(prefix) + len(seal) + size)
        return b"".join((length, prefix, seal, blob))


class ReaderCheckpoint(NamedTuple):
    """Where a receiver stands: its chain's value and counts, and the streams' counters."""

    chain: bytes
    unsealed: int
    sealed: int
    counters: dict[int, int]


class RecordReader(Direction):
    """The other side's direction.

    `admit` is asked before a key is made for a stream, and raises if the stream may not
    be used; `seal_events` is the agreed limit; `sealed` counts the events in form 0 that the
    last seal vouched for.
    """

    __slots__ = ("_signature_size", "admit", "seal_events", "sealed", "verifier")

    def __init__(
        self,
        suite: Suite,
        secret: bytes,
        chain: bytes,
        commit: bytes,
        seal_events: int,
        admit: Callable[[int], None],
    ) -> None:
        super().__init__(suite, secret, chain, commit)
        self.seal_events = seal_events
        self.admit = admit
        self.sealed = 0
        self.verifier: Verifier | None = None
        self._signature_size = suite.signing_algorithm.signature_size

    def open(
        self, event: bytes | memoryview, *, verify: bool = True
    ) -> tuple[Event, bytes | memoryview | None]:
        """Decrypt and chain one event, and check its seal, or that it may be without one.
        Returns it with its seal, None in form 0; without `verify` that is not checked yet.

        Raises:
            RemoteProtocolError: `bad-record`, `seal-violation`, or `protocol-error` for
                a stream that may not be used and for category or subcategory 0.
        """
        try:
            (stream,) = _unpack_stream(event)
        except StructError:
            raise _bad_record(f"{len(event)} bytes, shorter than a stream id") from None
        lane = self.lanes.get(stream)
        if lane is None:
            if stream not in self._resting:
                self.admit(stream)
            lane = self._lane(stream)
        aad, start, seal = lane.unsealed_aad, _CHAIN_HEAD, None
        if self.each or event[:5] != aad:
            aad, start, seal = self._sealed_form(event, lane.sealed_aad)
        if len(event) < start + _LEAST_BLOB:
            raise _bad_record(f"{len(event)} bytes on stream {stream}, too short for its form")
        blob, chain = event[start:], self.chain
        if len(event) < LARGE_BLOB:
            value = chain.value = chain.hash(chain.value + lane.stream + blob).digest()
        else:
            value = chain.advance(lane.stream, blob)
        if not self.each and not compare_digest(value[:_CHAIN_PREFIX], event[5:_CHAIN_HEAD]):
            raise _bad_record(f"the chain value of an event on stream {stream} differs")
        try:
            inner = lane.key.decrypt(blob, aad)
        except DecryptError as error:
            raise _bad_record(f"an event on stream {stream} does not decrypt") from error
        async_id, category, subcategory = _unpack_head(inner)
        if not category or not subcategory:
            raise violation(f"event {category}/{subcategory}: category or subcategory 0")
        if seal is None and verify:
            self.unsealed += 1
            if self.unsealed > self.seal_events:
                reason = f"{self.unsealed} events unsealed; at most {self.seal_events}"
                raise RemoteProtocolError(CloseCode.SEAL_VIOLATION, reason)
            if category == CONNECTION and subcategory in ALWAYS_SEALED:
                reason = f"event {category}/{subcategory} came without seal"
                raise RemoteProtocolError(CloseCode.SEAL_VIOLATION, reason)
        elif seal is not None and verify:
            self.verify(seal)
        return _tuple(Event, (stream, async_id, category, subcategory, inner[4:])), seal

    def checkpoint(self) -> "ReaderCheckpoint":
        """All that `open` changes, as it stands between two events."""
        return ReaderCheckpoint(self.chain.value, self.unsealed, self.sealed, self.counters())

    def restore(self, checkpoint: "ReaderCheckpoint") -> None:
        """Forget what was opened since, or tried to be, in this epoch."""
        self.chain.value = checkpoint.chain
        self.unsealed, self.sealed = checkpoint.unsealed, checkpoint.sealed
        self._resting, self.lanes = dict(checkpoint.counters), {}

    def _sealed_form(
        self, event: bytes | memoryview, aad: bytes
    ) -> tuple[bytes, int, bytes | memoryview]:
        """Associated data, start of the blob, and seal of an event in a form with one."""
        if self.each:
            start = 4 + self._signature_size
            return aad, start, event[4:start]
        if event[:5] != aad:
            raise _bad_record(f"form byte {bytes(event[4:5])!r}; it is 0 or 1")
        start = _CHAIN_HEAD + self._signature_size
        return aad, start, event[_CHAIN_HEAD:start]

    def verify(self, seal: bytes | memoryview) -> None:
        """Check `seal` against the chain as it stands after the last event."""
        if self.verifier is None:
            raise RemoteProtocolError(CloseCode.INTERNAL_ERROR, "no verifier yet")
        try:
            check_seal(
                self.verifier, self.suite.hash_algorithm, self.commit, self.chain.value, seal
            )
        except SignatureError as error:
            reason = f"a wrong seal in epoch {self.epoch}, over {self.unsealed} events"
            raise RemoteProtocolError(CloseCode.SEAL_VIOLATION, reason) from error
        self.sealed, self.unsealed = self.unsealed, 0


def _bad_record(reason: str) -> RemoteProtocolError:
    return RemoteProtocolError(CloseCode.BAD_RECORD, reason)
