"""The cases of the dialects: what is measured under which name, and beside what.

A case is a row of this table, and so is a flood; how either is done is said by its kind
of work.
"""

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from benchmarks.cases import FANOUT, IN_FLIGHT
from benchmarks.dialects.flood import FLOODS
from benchmarks.dialects.native_flood import NATIVE_FLOODS
from benchmarks.task import SideName, Task, Work

RELAY_CLIENTS = 16


@dataclass(frozen=True, slots=True)
class DialectCase:
    """A row: whose it is, what it says, its unit, and beside which case its ratio is."""

    side: SideName
    title: str
    unit: str
    task: Task
    beside: str = ""

    @property
    def less_is_better(self) -> bool:
        """Whether the value is a time."""
        return self.unit == "us"

    def lasting(self, seconds: float) -> Task:
        """The task, for so long."""
        return replace(self.task, seconds=seconds)


@dataclass(frozen=True, slots=True)
class Fault:
    """A well-behaved client takes turns while a hostile one does `how`, or nothing."""

    side: SideName
    how: str

    @property
    def name(self) -> str:
        """As the command line has it."""
        return f"{self.side}-{self.how or 'calm'}"

    @property
    def title(self) -> str:
        """What the hostile client does."""
        floods = NATIVE_FLOODS if self.side == "ours" else FLOODS
        return floods.get(self.how, "nobody floods")

    @property
    def work(self) -> Work:
        """What the well-behaved client does."""
        return "answers" if self.side == "ours" else "turns"


def _task(work: str, **how: Any) -> Task:
    return Task.from_json({"work": work, "seconds": 1.0, **how})


_IN_TURN = _task("calls", one_core=True)
_MANY = _task("calls", count=IN_FLIGHT)
_CALLS, _US = "calls/s", "us"


def _calls(side: SideName, title: str) -> dict[str, DialectCase]:
    """One after another on one core, and 64 in flight."""
    many = f"{title}, {IN_FLIGHT} in flight"
    return {
        side: DialectCase(side, f"{title}, one after another", _CALLS, _IN_TURN, "calls"),
        f"{side}-64": DialectCase(side, many, _CALLS, _MANY, "calls-64"),
    }


def _more(side: SideName, title: str) -> dict[str, DialectCase]:
    """Over a Unix socket; and the gateway's side alone: what asks is a load generator."""
    many = f"{title}, {IN_FLIGHT} in flight"
    unix, alone = replace(_MANY, unix=True), _task("pump", count=IN_FLIGHT)
    generated = f"{many}, from a load generator"
    return {
        f"{side}-64-unix": DialectCase(side, f"{many}, Unix socket", _CALLS, unix, "calls-64"),
        f"{side}-64-raw": DialectCase(side, generated, _CALLS, alone, "calls-64"),
    }


def _relay(unix: bool) -> dict[str, DialectCase]:
    """Throughput and latency through one relay, over one kind of socket."""
    kind, name = ("Unix socket", "unix") if unix else ("TCP", "tcp")

    def case(title: str, unit: str, work: str, how: str, count: int) -> DialectCase:
        task = _task(work, how=how, count=count, unix=unix)
        return DialectCase("relay", f"{title}, {kind}", unit, task)

    one = case("direct, one client to one", "messages/s", "pump", "one", 2)
    mixed = case(
        f"direct, {RELAY_CLIENTS} clients, each message to another than the last",
        "messages/s",
        "pump",
        "mixed",
        RELAY_CLIENTS,
    )
    broadcast = case(f"broadcast to {FANOUT}", "deliveries/s", "pump", "broadcast", FANOUT)
    turn = case("direct, one at a time", _US, "turns", "one", 1)
    last = case(f"broadcast, until the last of {FANOUT}", _US, "turns", "broadcast", FANOUT)
    return {
        f"relay-{name}": one,
        f"relay-mixed-{name}": mixed,
        f"relay-broadcast-{name}": broadcast,
        f"relay-latency-{name}": turn,
        f"relay-broadcast-latency-{name}": last,
    }


DIALECT_CASES: dict[str, DialectCase] = {
    "calls": DialectCase("ours", "native calls, one after another", _CALLS, _IN_TURN),
    "calls-64": DialectCase("ours", f"native calls, {IN_FLIGHT} in flight", _CALLS, _MANY),
    "notes": DialectCase("ours", "native notes to one subscriber", "notes/s", _task("notes")),
    "notes-100": DialectCase(
        "ours", f"native notes to {FANOUT} subscribers", "notes/s", _task("notes", count=FANOUT)
    ),
    "events": DialectCase(
        "events", "native named events with replies, one after another", _CALLS, _IN_TURN, "calls"
    ),
    "events-64": DialectCase(
        "events",
        f"native named events with replies, {IN_FLIGHT} in flight",
        _CALLS,
        _MANY,
        "calls-64",
    ),
    **_calls("simproto", "SimProto calls"),
    **_more("simproto", "SimProto calls"),
    **_calls("named", "named events with replies (plain)"),
    **_more("named", "named events with replies (plain)"),
    **_calls("named-typed", "named events with replies (typed)"),
    **_relay(unix=False),
    **_relay(unix=True),
}

_FLOODED: tuple[SideName, ...] = ("simproto", "named", "relay")
FAULTS: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        *(Fault("ours", how) for how in ("", *NATIVE_FLOODS)),
        *(Fault(*pair) for pair in product(_FLOODED, ("", *FLOODS))),
    )
}
