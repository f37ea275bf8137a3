"""Computing a summary from rows of events in one pass over their columns.

Strings are replaced by numbers while they are counted, because few are distinct.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from parley._node.protocol.codes import CloseCode
from parley._pipeline.summary.kinds import KINDS, merge_kind
from parley._pipeline.summary.pairing import FINAL, FINALS, PART, PARTS, REQUEST, REQUESTS, pair

KEY_SIZE: Final = 16

Words = npt.NDArray[np.uint64]

_INITIAL: Final = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
# Number of rows whose intermediate arrays fit in the processor's caches.
_CHUNK: Final = 8_192


def siphash(key: bytes, words: Sequence[Words]) -> Words:
    """Return the hash of each row's message, whose 64-bit words are these columns.

    `key` is 16 bytes. Source: Aumasson and Bernstein, SipHash, with one round for each word and
    three at the end.
    """
    count = len(words[0])
    out = np.empty(count, np.uint64)
    for first in range(0, count, _CHUNK):
        piece = slice(first, first + _CHUNK)
        out[piece] = _hashed(key, [word[piece] for word in words])
    return out


def _hashed(key: bytes, words: Sequence[Words]) -> Words:
    low, high = (int.from_bytes(key[at : at + 8], "little") for at in (0, 8))
    keys = (low, high, low, high)
    state: list[Words] = [
        np.full(len(words[0]), start ^ one, np.uint64)
        for start, one in zip(_INITIAL, keys, strict=True)
    ]
    length = np.array([(8 * len(words) % 256) << 56], np.uint64)
    for word in (*words, length):
        state[3] ^= word
        _round(state)
        state[0] ^= word
    state[2] ^= np.uint64(0xFF)
    for _ in range(3):
        _round(state)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def _round(state: list[Words]) -> None:
    a, b, c, d = state
    a += b
    b = _rotated(b, 13) ^ a
    a = _rotated(a, 32)
    c += d
    d = _rotated(d, 16) ^ c
    a += d
    d = _rotated(d, 21) ^ a
    c += b
    b = _rotated(b, 17) ^ c
    c = _rotated(c, 32)
    state[:] = a, b, c, d


def _rotated(value: Words, bits: int) -> Words:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


NEEDED: Final = (
    "journal",
    "segment",
    "session",
    "direction",
    "sender",
    "receiver",
    "offset",
    "place",
    "time",
    "stream",
    "wire_size",
    "digest",
    "async_id",
    "type",
    "topic",
    "namespace",
    "label",
    "code",
    "opens",
    "payload_size",
    "inside",
    "item",
    "items",
    "status",
)
BLOCK_BITS: Final = 12  # checksums compare 4,096 places at a time
_MINUTE_US: Final = 60_000_000
_DIGEST_SIZE: Final = 16
_NOWHERE: Final = np.uint64(2**64 - 1)

_Flags = npt.NDArray[np.bool_]
_Numbers = npt.NDArray[np.int64]


class EventFacts:
    """Columns of events and the computation of their summary.

    `counted` marks the events that are new; `final` marks those that have their final status. `key`
    is the secret key of the checksums, 16 bytes.
    """

    def __init__(self, rows: pa.Table, counted: _Flags, final: _Flags, key: bytes) -> None:
        self._rows = rows
        self._counted = counted
        self._final = final
        self._key = key
        self._texts: dict[str, pa.DictionaryArray] = {}
        self._time = self.numbers("time")
        known = ~self.equals("status", "duplicate")
        self._known = known
        self._first = known & (self.numbers("item") == 0)
        self._events = self._first & counted
        # The first event of a batch carries the batch's size on the wire.
        self._on_wire = self._first & (self.numbers("inside") == 0)
        self._is_note = self.equals("type", "notify", "notes") & (self.numbers("items") > 0)

    @classmethod
    def of(cls, rows: pa.Table, key: bytes) -> "EventFacts":
        """Return the facts of rows that are all final."""
        nothing, everything = (np.full(rows.num_rows, one, np.bool_) for one in (False, True))
        return cls(rows, nothing, everything, key)

    def summary(self) -> dict[str, pa.Table]:
        """Return all kinds of the summary that are not empty."""
        found = {"statuses": self._statuses(), "traffic": self._traffic()}
        if self._counted.any():
            paired = pair(self._unpaired())
            found |= {
                "directions": self._directions(),
                "notes": self._notes(),
                "streams": self._streams(),
                "blocks": self._blocks(),
                "calls": paired.calls,
                "unpaired": paired.left,
            }
        return {name: table for name, table in found.items() if table.num_rows}

    # Columns.

    def numbers(self, name: str) -> _Numbers:
        """Return a column as numbers, with 0 for null."""
        column = self._rows.column(name)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        return np.asarray(column.fill_null(0).to_numpy(), np.int64)

    def text(self, name: str) -> pa.DictionaryArray:
        """Return a column of strings as indices of its distinct values."""
        if name not in self._texts:
            column = self._rows.column(name).combine_chunks()
            if not pa.types.is_dictionary(column.type):
                column = column.dictionary_encode("encode")
            self._texts[name] = column
        return self._texts[name]

    def equals(self, name: str, *values: str) -> _Flags:
        """Return which rows have one of these strings."""
        text = self.text(name)
        query = np.array([one in values for one in text.dictionary.to_pylist()], np.bool_)
        if not len(query):
            return np.zeros(len(text), np.bool_)
        return np.asarray(query[text.indices.to_numpy(zero_copy_only=False)])

    def there(self, name: str) -> _Flags:
        """Return which rows have a value."""
        return np.asarray(self._rows.column(name).is_valid().to_numpy())

    # Kinds.

    def _of(self, name: str, where: _Flags, **columns: _Numbers | pa.Array | str) -> pa.Table:
        """Return some rows as a table of a kind; a column is an array of all rows, or a column
        name.
        """
        return merge_kind(KINDS[name], self._rows_of(name, where, **columns))

    def _rows_of(self, name: str, where: _Flags, **columns: _Numbers | pa.Array | str) -> pa.Table:
        """Return the same before rows with equal keys are merged; strings are numbered."""
        schema = KINDS[name].schema
        arrays = [self._column(columns.get(field.name, field.name), field.type) for field in schema]
        if not where.all():
            chosen = pa.array(np.flatnonzero(where))
            arrays = [array.take(chosen) for array in arrays]
        return pa.table(arrays, names=schema.names)

    def _column(self, given: _Numbers | pa.Array | str, type_: pa.DataType) -> pa.Array:
        if isinstance(given, np.ndarray):
            return pa.array(given)
        if not isinstance(given, str):
            return given
        if pa.types.is_string(type_):
            return self.text(given)
        return self._rows.column(given).combine_chunks()

    def _traffic(self) -> pa.Table:
        wire = np.where(self._on_wire & self._counted, self.numbers("wire_size"), 0)
        payload = np.where(self._counted, self.numbers("payload_size"), 0)
        ok = self._first & self._final & self.equals("status", "ok")
        return self._of(
            "traffic",
            self._known,
            minute=pa.array(self._time // _MINUTE_US * _MINUTE_US).cast(
                KINDS["traffic"].keys["minute"]
            ),
            node="journal",
            peer=self._peers(),
            events=self._events.astype(np.int64),
            notes=(self._counted & self._is_note).astype(np.int64),
            ok=ok.astype(np.int64),
            wire_bytes=wire,
            payload_bytes=payload,
        )

    def _directions(self) -> pa.Table:
        return self._of(
            "directions",
            self._events & self.there("session"),
            events=self._events.astype(np.int64),
            wire_bytes=np.where(self._on_wire, self.numbers("wire_size"), 0),
            first="time",
            last="time",
        )

    def _statuses(self) -> pa.Table:
        return self._of(
            "statuses",
            self._final,
            rows=np.ones(len(self._time), np.int64),
            count=self._first.astype(np.int64),
            places=self._places().astype(np.int64),
            began="time",
            ended="time",
            last="place",
        )

    def _places(self) -> _Flags:
        """Return the first row of each status and place; events of a batch share a place."""
        first = self._first & self.there("inside")
        found: _Flags = self._first & ~first
        rows = np.flatnonzero(first)
        names = ("segment", "status")
        codes = [self.text(name).indices.to_numpy(zero_copy_only=False)[rows] for name in names]
        keys = np.stack([*codes, self.numbers("offset")[rows]])
        found[rows[np.unique(keys, axis=1, return_index=True)[1]]] = True
        return found

    def _notes(self) -> pa.Table:
        return self._of(
            "notes",
            self._known & self._counted & self._is_note,
            publisher="sender",
            notes=np.ones(len(self._time), np.int64),
            payload_bytes=self.numbers("payload_size"),
            first="time",
            last="time",
        )

    def _streams(self) -> pa.Table:
        granted = self.equals("type", "result") & self.there("opens") & self._is_code(0)
        slow = self.equals("type", "reset") & self._is_code(int(CloseCode.SLOW_CONSUMER))
        opened = self.equals("type", "open")
        what = np.select([granted, slow, opened], [0, 1, 2], 0)
        of_other = granted | slow
        return self._of(
            "streams",
            self._events & (of_other | opened),
            stream=np.where(of_other, self.numbers("opens"), self.numbers("stream")),
            publisher="sender",
            what=_named(what, "granted", "slow", "open"),
            topic="topic",
            subscriber="receiver",
            first="time",
        )

    def _blocks(self) -> pa.Table:
        where = self._on_wire & self._counted & self.there("place")
        where &= self.there("wire_size") & self.there("session")
        place = self.numbers("place")
        none = np.zeros(len(place), np.int64)
        return self._of(
            "blocks",
            where,
            block=block_of(place),
            is_sent=self.equals("direction", "sent"),
            count=where.astype(np.int64),
            check=self.identities(),
            first="place",
            last="place",
            since=none,
            until=none,
        )

    def identities(self) -> npt.NDArray[np.uint64]:
        """Return a value that identifies each event: a keyed hash of its digest, stream and size.

        With sealing `each`, unverified events have no digest; the place identifies them instead.
        """
        digests = self._rows.column("digest").combine_chunks()
        has_digest = self.has_digest()
        words = np.empty((len(digests), 2), np.uint64)
        words[:, 0] = self.numbers("place").astype(np.uint64)
        words[:, 1] = _NOWHERE
        whole = digests.filter(pa.array(has_digest)).cast(pa.binary(_DIGEST_SIZE))
        if len(whole):
            data = np.frombuffer(whole.buffers()[1], np.uint64, 2 * len(whole), 16 * whole.offset)
            words[has_digest] = data.reshape(-1, 2)
        stream, size = (self.numbers(name).astype(np.uint64) for name in ("stream", "wire_size"))
        return siphash(self._key, [words[:, 0], words[:, 1], stream, size])

    def has_digest(self) -> _Flags:
        """Return which rows have a digest."""
        sizes = pc.binary_length(self._rows.column("digest")).fill_null(0).to_numpy()
        return np.asarray(sizes == _DIGEST_SIZE)

    def _unpaired(self) -> pa.Table:
        own = self.equals("type", *REQUESTS)
        final = self.equals("type", *FINALS)
        query = self._events & (self.numbers("async_id") > 0)
        query &= own | final | self.equals("type", *PARTS)
        sent = self.equals("direction", "sent")
        role = np.select([own, final], [REQUEST, FINAL], PART).astype(np.int8)
        return self._rows_of(
            "unpaired",
            query,
            asked=_named(sent == own, "received", "sent"),
            role=role,
            parts=(role == PART).astype(np.int64),
            time=self._time,
            code=self.numbers("code"),
            asker="sender",
            answerer="receiver",
        )

    def _is_code(self, code: int) -> _Flags:
        return np.asarray(self.there("code") & (self.numbers("code") == code))

    def _peers(self) -> pa.DictionaryArray:
        """Return the node ID of the other end for each row."""
        sent = self.equals("direction", "sent")
        sender, receiver = self.text("sender"), self.text("receiver")
        other = pc.add(receiver.indices, pa.scalar(len(sender.dictionary), pa.int32()))
        return pa.DictionaryArray.from_arrays(
            pc.if_else(pa.array(sent), other, sender.indices),
            pa.concat_arrays([sender.dictionary, receiver.dictionary]),
        )


def block_of(places: _Numbers) -> _Numbers:
    """Return the number of the block that contains each place."""
    return places >> BLOCK_BITS


def first_of_block(block: int) -> int:
    """Return the first place of a block."""
    return block << BLOCK_BITS


def _named(numbers: npt.NDArray[Any], *names: str) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(numbers.astype(np.int32)), pa.array(names))


def summary_of(
    batches: Sequence[tuple[pa.RecordBatch, bool, bool]], key: bytes
) -> dict[str, pa.Table]:
    """Return the summary of batches of events, each with whether its rows are counted and final."""
    rows = pa.Table.from_batches([batch.select(NEEDED) for batch, _, _ in batches])
    sizes = [batch.num_rows for batch, _, _ in batches]
    counted, final = (
        np.repeat(np.array([one[at] for one in batches], np.bool_), sizes) for at in (1, 2)
    )
    return EventFacts(rows, counted, final, key).summary()
