"""One direction of an encrypted connection: stream keys, hash chain and seals (docs/protocol.md
section 6).

`RecordWriter` encrypts events into frames; `RecordReader` decrypts them. The hash chain covers the
bytes on the wire, never a re-encoding.
"""

from collections.abc import Callable
from hmac import compare_digest
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from parley._crypto.errors import DecryptError, SignatureError
from parley._crypto.key_schedule import chain_bind
from parley._crypto.record_protection import StreamKey, check_seal, make_seal
from parley._crypto.registry import Suite
from parley._crypto.signing import SigningKey, Verifier
from parley._node.protocol.codes import ALWAYS_SEALED, CONNECTION, CloseCode
from parley._node.protocol.errors import RemoteProtocolError, violation
from parley._node.protocol.event import INNER_HEAD, Event

UNSEALED: Final = b"\x00"
SEALED: Final = b"\x01"
_CHAIN_PREFIX: Final = 16  # bytes of the chain value in each event
_CHAIN_HEAD: Final = 5 + _CHAIN_PREFIX  # stream, form and chain prefix
_LEAST_BLOB: Final = 21  # async id, type, one byte of payload, tag
_pack_length: Final = Struct(">I").pack
_unpack_stream: Final = Struct(">I").unpack_from
_pack_head: Final = INNER_HEAD.pack
_unpack_head: Final = INNER_HEAD.unpack_from


class _StreamCipher:
    """The key of a stream, and byte strings that each of its events needs."""

    __slots__ = ("key", "sealed_aad", "stream", "unsealed_aad")

    def __init__(self, suite: Suite, secret: bytes, stream: int) -> None:
        self.key = StreamKey(suite, secret, stream)
        self.stream = stream.to_bytes(4, "big")
        self.unsealed_aad = self.stream + UNSEALED
        self.sealed_aad = self.stream + SEALED


class CipherState:
    """The secret of the epoch, the stream keys, and the hash chain d[n] = H(d[n-1] || stream u32 ||
    blob).

    `unsealed` is the number of events in form 0 since the last seal. For an idle stream only the
    counter is stored. Its key, about 3 KB, is derived again for its next event.
    """

    __slots__ = (
        "_idle_counters",
        "_new_hash",
        "_secret",
        "chain",
        "ciphers",
        "commit",
        "each",
        "epoch",
        "suite",
        "unsealed",
    )

    def __init__(self, suite: Suite, secret: bytes, chain: bytes, commit: bytes) -> None:
        self.suite = suite
        self.each = suite.sealing == "each"
        self._new_hash = suite.hash_algorithm.new
        self.chain = chain
        self.commit = commit
        self.unsealed = 0
        self.epoch = -1
        self.switch(secret)

    def switch(self, secret: bytes) -> None:
        """Begin a new epoch under `secret`: all counters restart."""
        self._secret = secret
        self.ciphers: dict[int, _StreamCipher] = {}
        self._idle_counters: dict[int, int] = {}
        self.epoch += 1

    def bind(self, th2: bytes) -> None:
        """Bind the chain to the transcript after both Proofs; the next `switch` begins epoch 0."""
        self.chain = chain_bind(self.suite.hash_algorithm, self.chain, th2)
        self.epoch = -1

    @property
    def secret(self) -> bytes:
        """The secret of the epoch, from which the next secret is derived."""
        return self._secret

    def counters(self) -> dict[int, int]:
        """Return the next counter of each stream of this epoch."""
        awake = {stream: cipher.key.counter for stream, cipher in self.ciphers.items()}
        return self._idle_counters | awake

    def drop_idle_keys(self) -> None:
        """Free the keys of all streams until their next event."""
        self._idle_counters, self.ciphers = self.counters(), {}

    def forget(self, stream: int) -> None:
        """Free the key of a stream whose direction ended."""
        self.ciphers.pop(stream, None)
        self._idle_counters.pop(stream, None)

    def _cipher(self, stream: int) -> _StreamCipher:
        cipher = self.ciphers[stream] = _StreamCipher(self.suite, self._secret, stream)
        cipher.key.counter = self._idle_counters.pop(stream, 0)
        return cipher


class RecordWriter(CipherState):
    """The sending direction. `events_sent` and `bytes_sent` (of blobs) are counted within the
    epoch.
    """

    __slots__ = ("_signing_key", "bytes_sent", "events_sent")

    def __init__(
        self, suite: Suite, secret: bytes, chain: bytes, commit: bytes, signing_key: SigningKey
    ) -> None:
        self._signing_key = signing_key
        super().__init__(suite, secret, chain, commit)

    def switch(self, secret: bytes) -> None:
        super().switch(secret)
        self.events_sent = 0
        self.bytes_sent = 0

    def encrypt(
        self,
        stream: int,
        async_id: int,
        category: int,
        subcategory: int,
        payload: bytes | memoryview | bytearray,
        sealed: bool,
    ) -> bytes:
        """Encrypt, chain and frame one event; `payload` is at least one byte."""
        cipher = self.ciphers.get(stream)
        if cipher is None:
            cipher = self._cipher(stream)
        sealed = sealed or self.each
        aad = cipher.sealed_aad if sealed else cipher.unsealed_aad
        blob = cipher.key.encrypt(_pack_head(async_id, category, subcategory) + payload, aad)
        size = len(blob)
        hash = self._new_hash(self.chain + cipher.stream)
        hash.update(blob)
        self.chain = value = hash.digest()
        self.events_sent += 1
        self.bytes_sent += size
        if not sealed:
            self.unsealed += 1
            return b"".join((_pack_length(_CHAIN_HEAD + size), aad, value[:_CHAIN_PREFIX], blob))
        self.unsealed = 0
        seal = make_seal(self._signing_key, self.suite.hash_algorithm, self.commit, value)
        prefix = cipher.stream if self.each else aad + value[:_CHAIN_PREFIX]
        length = _pack_length(len(prefix) + len(seal) + size)
        return b"".join((length, prefix, seal, blob))


class ReaderCheckpoint(NamedTuple):
    """The state of a reader between two events."""

    chain: bytes
    unsealed: int
    sealed: int
    counters: dict[int, int]


class RecordReader(CipherState):
    """The receiving direction.

    `admit` raises if a stream without a key isn't allowed. `seal_events` is the agreed limit;
    `sealed` is the number of events in form 0 that the last seal covered.
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

    def decrypt(
        self, event: bytes | memoryview, *, verify: bool = True
    ) -> tuple[Event, bytes | memoryview | None]:
        """Decrypt and chain one event, and verify its seal or that it doesn't need one. Return the
        event and its seal (None in form 0). Without `verify` the seal isn't verified.

        Raises:
            RemoteProtocolError: `bad-record`; `seal-violation`; or `protocol-error` if the stream
                isn't allowed, or category or subcategory is 0.
        """
        try:
            (stream,) = _unpack_stream(event)
        except StructError:
            raise _bad_record(f"{len(event)} bytes, shorter than a stream id") from None
        cipher = self.ciphers.get(stream)
        if cipher is None:
            if stream not in self._idle_counters:
                self.admit(stream)
            cipher = self._cipher(stream)
        aad, start, seal = cipher.unsealed_aad, _CHAIN_HEAD, None
        if self.each or event[:5] != aad:
            aad, start, seal = self._sealed_form(event, cipher.sealed_aad)
        if len(event) < start + _LEAST_BLOB:
            raise _bad_record(f"{len(event)} bytes on stream {stream}, too short for its form")
        blob = event[start:]
        hash = self._new_hash(self.chain + cipher.stream)
        hash.update(blob)
        self.chain = value = hash.digest()
        if not self.each and not compare_digest(value[:_CHAIN_PREFIX], event[5:_CHAIN_HEAD]):
            raise _bad_record(f"the chain value of an event on stream {stream} differs")
        try:
            inner = cipher.key.decrypt(blob, aad)
        except DecryptError as error:
            raise _bad_record(f"an event on stream {stream} does not decrypt") from error
        async_id, category, subcategory = _unpack_head(inner)
        if not category or not subcategory:
            raise violation(f"event {category}/{subcategory}: category or subcategory 0")
        if seal is None and verify:
            self.unsealed += 1
            if self.unsealed > self.seal_events:
                reason = f"{self.unsealed} events without a seal; at most {self.seal_events}"
                raise RemoteProtocolError(CloseCode.SEAL_VIOLATION, reason)
            if category == CONNECTION and subcategory in ALWAYS_SEALED:
                reason = f"event {category}/{subcategory} must have a seal"
                raise RemoteProtocolError(CloseCode.SEAL_VIOLATION, reason)
        elif seal is not None and verify:
            self.verify(seal)
        return Event(stream, async_id, category, subcategory, inner[4:]), seal

    def checkpoint(self) -> "ReaderCheckpoint":
        """Return all state that `decrypt` changes."""
        return ReaderCheckpoint(self.chain, self.unsealed, self.sealed, self.counters())

    def restore(self, checkpoint: "ReaderCheckpoint") -> None:
        """Undo all changes of `decrypt` in this epoch."""
        self.chain = checkpoint.chain
        self.unsealed, self.sealed = checkpoint.unsealed, checkpoint.sealed
        self._idle_counters, self.ciphers = dict(checkpoint.counters), {}

    def _sealed_form(
        self, event: bytes | memoryview, aad: bytes
    ) -> tuple[bytes, int, bytes | memoryview]:
        """Return associated data, start of the blob, and seal of a sealed event."""
        if self.each:
            start = 4 + self._signature_size
            return aad, start, event[4:start]
        if event[:5] != aad:
            raise _bad_record(f"invalid form byte {bytes(event[4:5])!r}: expected 0 or 1")
        start = _CHAIN_HEAD + self._signature_size
        return aad, start, event[_CHAIN_HEAD:start]

    def verify_first(self, seal: bytes | memoryview, verifier: Verifier) -> None:
        """Verify the seal of the Proof with the key in the Proof."""
        self.verifier = verifier
        self.verify(seal)

    def open_streams(self, admit: Callable[[int], None]) -> None:
        """Use `admit` for streams from now on. Before the Proofs only stream 0 is allowed."""
        self.admit = admit

    def verify(self, seal: bytes | memoryview) -> None:
        """Verify `seal` against the chain value after the last event."""
        if self.verifier is None:
            raise RemoteProtocolError(CloseCode.INTERNAL_ERROR, "no verifier yet")
        try:
            check_seal(self.verifier, self.suite.hash_algorithm, self.commit, self.chain, seal)
        except SignatureError as error:
            reason = f"a wrong seal in epoch {self.epoch}, over {self.unsealed} events"
            raise RemoteProtocolError(CloseCode.SEAL_VIOLATION, reason) from error
        self.sealed, self.unsealed = self.unsealed, 0


def _bad_record(reason: str) -> RemoteProtocolError:
    return RemoteProtocolError(CloseCode.BAD_RECORD, reason)
