"""Matching requests with their responses, separately for each end's journal.

An async ID is reused after its final response. A response therefore belongs to the last earlier
request with the same stream and async ID in the same journal. Requests and responses that are cut
off at the limits of a range are left over, and matched later with those of other ranges. The same
function does both, so the result doesn't depend on where the journal was divided.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from parley._pipeline.summary.kinds import KINDS, merge_kind

REQUESTS: Final = ("call", "subscribe", "unsubscribe", "notify", "emit")
PARTS: Final = ("chunk", "reply")
FINALS: Final = ("result", "error", "end")
REQUEST, PART, FINAL = range(3)  # the column `role`
# Peers choose their codes, so all codes from this one on are counted together.
LAST_CODE: Final = 65_536
# Binary digits of latencies: exact below 4,096 us, above that to 1 in 2,048.
LATENCY_BITS: Final = 12

_KEY: Final = ("journal", "session", "stream", "async_id", "asked")
_COUNTED: Final = pa.array(["call", "emit"])

_Numbers = npt.NDArray[np.int64]


class Paired(NamedTuple):
    """Completed calls of the kind `calls`, and the remaining rows of the kind `unpaired`."""

    calls: pa.Table
    left: pa.Table


def pair(rows: pa.Table) -> Paired:
    """Pair rows with the columns of `unpaired`, including those left over from earlier ranges."""
    if not rows.num_rows:
        return Paired(KINDS["calls"].schema.empty_table(), rows.cast(KINDS["unpaired"].schema))
    rows, starts = _in_order(rows)
    count = rows.num_rows
    role = rows.column("role").to_numpy()
    at = np.arange(count)
    request = role == REQUEST
    # A piece is a request and all rows before the next request of its key, or the rows before the
    # first.
    pieces = np.flatnonzero(request | starts)
    ends = np.append(pieces[1:], count)
    finals = np.minimum.reduceat(np.where(role == FINAL, at, count), pieces)
    is_final = finals < ends
    parts = rows.column("parts").to_numpy().cumsum()
    before = parts[np.minimum(finals, ends - 1)]  # a final response has no parts
    parts = before - parts[pieces] + rows.column("parts").to_numpy()[pieces]
    opens = request[pieces]
    goes_on = np.append(~starts[pieces[1:]], False)  # another request with the key follows
    done = opens & (is_final | goes_on)
    calls = _calls(rows, pieces[done], np.where(is_final, finals, -1)[done], parts[done])
    left = [_take_rows(rows, pieces[opens & ~done], parts[opens & ~done])]
    # Rows before the first request: their parts together, and the first final response.
    lost = ~opens
    some = lost & (parts > 0)
    left.append(_take_rows(rows, pieces[some], parts[some], PART))
    left.append(_take_rows(rows, finals[lost & is_final], None))
    schema = KINDS["unpaired"].schema
    return Paired(calls, pa.concat_tables([some.cast(schema) for some in left]))


def unanswered(left: pa.Table) -> pa.Table:
    """Return the remaining requests as calls without a response."""
    asked = left.filter(pc.equal(left.column("role"), REQUEST))
    at = np.arange(asked.num_rows)
    return _calls(asked, at, np.full(len(at), -1), asked.column("parts").to_numpy())


def without_strays(left: pa.Table) -> pa.Table:
    """Keep only requests: responses before a journal's first request can no longer be matched."""
    return left.filter(pc.equal(left.column("role"), REQUEST))


def _in_order(rows: pa.Table) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
    """Sort rows by key and position, and return which rows are the first of a key."""
    columns: list[_Numbers] = [_codes(rows.column(name)) for name in _KEY]
    segments = _numbered(rows.column("segment"))
    rank = np.argsort(np.argsort(np.array(segments.dictionary.to_pylist(), dtype=object)))
    place = rank[segments.indices.to_numpy(zero_copy_only=False)]
    # A stable sort preserves the order of the events of one record.
    order = np.lexsort((rows.column("offset").to_numpy(), place, *columns[::-1]))
    starts = np.ones(rows.num_rows, np.bool_)
    starts[1:] = False
    for column in columns:
        ordered = column[order]
        starts[1:] |= ordered[1:] != ordered[:-1]
    return rows.take(pa.array(order)), starts


def _codes(column: pa.ChunkedArray) -> _Numbers:
    """Return a number for each value; equal values get equal numbers."""
    if pa.types.is_integer(column.type):
        return np.asarray(column.to_numpy(), np.int64)
    indices = _numbered(column).indices.fill_null(-1)
    return np.asarray(indices.to_numpy(zero_copy_only=False), np.int64)


def _numbered(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """Return a number for each string; equal strings get equal numbers."""
    whole = column.combine_chunks()
    return whole if pa.types.is_dictionary(whole.type) else whole.dictionary_encode()


def _take_rows(
    rows: pa.Table, at: _Numbers, parts: _Numbers | None, role: int | None = None
) -> Any:
    taken = rows.take(pa.array(at))
    if parts is not None:
        index = taken.schema.get_field_index("parts")
        taken = taken.set_column(index, "parts", pa.array(parts, pa.int64()))
    if role is not None:
        index = taken.schema.get_field_index("role")
        taken = taken.set_column(index, "role", pa.repeat(pa.scalar(role, pa.int8()), len(at)))
    return taken


def _calls(rows: pa.Table, at: _Numbers, finals: _Numbers, parts: _Numbers) -> pa.Table:
    """Return requests that are calls as rows of `calls`; -1 means no response."""
    asked = rows.take(pa.array(at))
    counted = pc.is_in(asked.column("type").cast(pa.string()), _COUNTED)
    keep = counted.to_numpy()
    asked, finals, parts = asked.filter(counted), finals[keep], parts[keep]
    none = finals < 0
    times, codes = (rows.column(name).to_numpy(zero_copy_only=False) for name in ("time", "code"))
    began = asked.column("time").to_numpy()
    took = times[finals] - began if len(finals) else began
    # If the clock was set back between the two, the duration is unknown.
    unknown = none | (took < 0)
    code = np.minimum(codes[finals], LAST_CODE) if len(finals) else began
    when = asked.column("time").cast(pa.timestamp("us")).cast(pa.timestamp("us", tz="UTC"))
    by_caller = pc.equal(asked.column("asked").cast(pa.string()), "sent")
    columns = {
        "kind": asked.column("type"),
        "topic": asked.column("topic"),
        "namespace": asked.column("namespace"),
        "caller": asked.column("asker"),
        "callee": asked.column("answerer"),
        "seen_by": pc.if_else(by_caller, "caller", "callee"),
        "code": pa.array(code, pa.int64(), mask=none),
        "latency_us": pa.array(_rounded(took), pa.int64(), mask=unknown),
        "calls": pa.array(np.ones(len(finals), np.int64)),
        "parts": pa.array(parts, pa.int64()),
        "first": when,
        "max_us": pa.array(took, pa.int64(), mask=unknown),
        "last": when,
    }
    return merge_kind(KINDS["calls"], pa.table(columns))


def _rounded(times: _Numbers) -> _Numbers:
    """Round down to `LATENCY_BITS` binary digits."""
    _, digits = np.frexp(np.maximum(times, 0).astype(np.float64))
    shift = np.maximum(digits.astype(np.int64) - LATENCY_BITS, 0)
    return (times >> shift) << shift
