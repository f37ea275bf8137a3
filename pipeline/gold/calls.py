"""Calls and named events with an answer: how many, how they ended, how long they took.

A call is counted as one journal has it: the caller's latency includes the way there and back, the
callee's does not, and no two clocks are compared.
"""

from collections import defaultdict
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from parley._pipeline.gold.arrow import LONG, TEXT, TIME, grouped, numbered, repeated, shaped
from parley._pipeline.summary.kinds import Summary
from parley._pipeline.summary.pairing import unanswered

QUANTILES: Final = {"p50_us": 0.5, "p95_us": 0.95, "p99_us": 0.99}

_KEY: Final = ("scope", "kind", "topic", "namespace", "caller", "callee", "seen_by")
CALLS: Final = pa.schema(
    [
        *((name, TEXT) for name in _KEY),
        *((name, LONG) for name in ("calls", "answered", "unanswered", "errors", "parts")),
        *((name, LONG) for name in (*QUANTILES, "max_us")),
        ("first", TIME),
        ("last", TIME),
        ("error_codes", pa.map_(LONG, LONG)),
    ]
)


def calls(summary: Summary) -> pa.Table:
    """Columns: scope, kind, topic, namespace, caller, callee, seen_by, calls, answered,
    unanswered, errors, parts, p50_us, p95_us, p99_us, max_us, first, last, error_codes.

    `scope` is `pair`, or `topic` for the sum over all pairs (caller and callee null). Empty
    without an auditor's key.
    """
    rows = pa.concat_tables([summary["calls"], unanswered(summary["unpaired"])])
    return pa.concat_tables([_of_scope(rows, "pair"), _of_scope(rows, "topic")])


def _of_scope(rows: pa.Table, scope: str) -> pa.Table:
    count = rows.num_rows
    if scope == "topic":
        for name in ("caller", "callee"):
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, name, repeated(None, TEXT, count))
    rows = rows.append_column("scope", repeated(scope, TEXT, count))
    answered = pc.if_else(rows.column("code").is_valid(), rows.column("calls"), 0)
    errors = pc.if_else(pc.fill_null(pc.not_equal(rows.column("code"), 0), False), answered, 0)
    rows = rows.append_column("answered", answered).append_column("errors", errors)
    which = numbered(rows, _KEY)
    sums = grouped(
        rows.append_column("number", pa.array(which)),
        ["number", *_KEY],
        total=["calls", "answered", "errors", "parts"],
        least=["first"],
        most=["last", "max_us"],
    ).sort_by("number")
    waiting = pc.subtract(sums.column("calls"), sums.column("answered"))
    sums = sums.append_column("unanswered", waiting)
    for name, values in _quantiles(rows, which, sums.num_rows).items():
        sums = sums.append_column(name, values)
    return shaped(sums.append_column("error_codes", _codes(rows, which, sums.num_rows)), CALLS)


def _quantiles(rows: pa.Table, which: npt.NDArray[np.int64], count: int) -> dict[str, pa.Array]:
    """For each of so many groups the latencies at these ranks; null where nothing was answered."""
    known = rows.column("latency_us").is_valid().to_numpy()
    latency = rows.column("latency_us").fill_null(0).to_numpy()[known]
    weight, which = rows.column("calls").to_numpy()[known], which[known]
    order = np.lexsort((latency, which))
    latency, which, reached = latency[order], which[order], weight[order].cumsum()
    totals = np.bincount(which, weight[order], count).astype(np.int64)
    before = np.append(0, totals.cumsum()[:-1])
    none = totals == 0
    found = {}
    for name, share in QUANTILES.items():
        rank = before + np.maximum(np.ceil(totals * share).astype(np.int64), 1)
        at = np.minimum(np.searchsorted(reached, rank), max(len(latency) - 1, 0))
        values = latency[at] if len(latency) else np.zeros(count, np.int64)
        found[name] = pa.array(values, LONG, mask=none)
    return found


def _codes(rows: pa.Table, which: npt.NDArray[np.int64], count: int) -> pa.Array:
    """For each group how often each code came that is an error; null without any."""
    failed = pc.fill_null(pc.not_equal(rows.column("code"), 0), False).to_numpy()
    codes, calls = (rows.column(name).filter(pa.array(failed)) for name in ("code", "calls"))
    found: defaultdict[int, dict[Any, int]] = defaultdict(dict)
    told = zip(which[failed].tolist(), codes.to_pylist(), calls.to_pylist(), strict=True)
    for number, code, some in told:
        found[number][code] = found[number].get(code, 0) + some
    maps = [sorted(found[number].items()) if number in found else None for number in range(count)]
    return pa.array(maps, CALLS.field("error_codes").type)
