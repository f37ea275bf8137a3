"""Measures the peers: every side of every case in each round, including Parley's.

Sides of one case follow each other within a round, in alternating order, each with fresh processes,
and with its own keys and server if necessary. A disturbed measurement is repeated once.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal

from benchmarks.certificates import write_certificates
from benchmarks.peers import nats_server
from benchmarks.process import NOISE
from benchmarks.rounds import Measurement, measure
from benchmarks.task import CASES, Case, SideName, Task

OURS: Final = "ours"
STREAMS: Final = "baseline"


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer to measure: its Python package, and the kinds of keys that its sides use."""

    side: SideName
    title: str
    package: str = ""
    keys: Literal["", "certificates", "curve"] = "certificates"
    through_server: bool = False

    def missing(self) -> str:
        """Why it cannot be measured here; empty if it can."""
        if self.package and not _version(self.package):
            return f"{self.package} is not installed (`--group peers`)"
        if self.through_server and not nats_server.is_installed():
            return f"there is no {nats_server.PROGRAM} on this machine"
        return ""

    def versions(self) -> str:
        """Return its components with versions; empty if all of them belong to Python."""
        if not self.package:
            return ""
        found = f"{self.package} {_version(self.package)}"
        if self.through_server:
            found += f", {nats_server.PROGRAM} {nats_server.version()}"
        return found


def _version(package: str) -> str:
    """Of an installed package; empty of another."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


PEERS: Final[dict[str, Peer]] = {
    peer.side: peer
    for peer in (
        Peer("baseline", "TLS streams", keys=""),
        Peer("zeromq", "ZeroMQ CURVE, blocking", "pyzmq", keys="curve"),
        Peer("zeromq-asyncio", "ZeroMQ CURVE, asyncio", "pyzmq", keys="curve"),
        Peer("zenoh", "Zenoh", "eclipse-zenoh"),
        Peer("nats", "NATS", "nats-py", through_server=True),
        Peer("grpc", "gRPC", "grpcio"),
        Peer("websockets", "WebSockets", "websockets"),
    )
}


PEER_CASES: Final[dict[str, Case]] = {
    name: CASES[name]
    for name in (
        "calls-64",
        "calls",
        "bulk-1m",
        "bulk-64k",
        "handshakes",
        "notes-1",
        "notes-100",
        "idle-memory",
    )
}


@dataclass(frozen=True, slots=True)
class Aim:
    """The target ratio of Parley's figure to the other side's; `compiled` is for the compiled core.
    Compared with Parley's other settings it is a maximum.
    """

    case: str
    beside: str
    least: float
    compiled: float


AIMS: Final = (
    Aim("calls-64", STREAMS, 0.8, 1.0),
    Aim("calls", STREAMS, 0.5, 0.65),
    Aim("bulk-1m", STREAMS, 1.0, 1.0),
    Aim("bulk-64k", STREAMS, 1.2, 1.2),
    Aim("handshakes", STREAMS, 1.5, 2.0),
    Aim("notes-1", "zenoh", 1.5, 1.5),
    Aim("notes-100", "zenoh", 2.0, 2.0),
    Aim("idle-memory", OURS, 16 * 1024, 16 * 1024),
)


# Seconds until an idle connection has released its memory.
RESTED: Final = 1.5


@dataclass(frozen=True, slots=True)
class Effort:
    """How long each measurement is in seconds, how often it is made, and for how many seconds to
    wait at most until the machine is idle."""

    seconds: float = 0.7
    rounds: int = 3
    quiet: float = 1.0


@dataclass
class Findings:
    """All rounds by case and side, and why a peer was left out."""

    rounds: dict[str, dict[str, list[Measurement]]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def run(
    cases: list[str], peers: list[str], effort: Effort, seen: Callable[[str], None]
) -> Findings:
    """Measure Parley and these peers; `seen` is called before each measurement.

    Raises:
        ChildError: a process failed.
    """
    findings = Findings()
    findings.left_out = {name: why for name in peers if (why := PEERS[name].missing())}
    sides = [OURS, *(name for name in peers if name not in findings.left_out)]
    for case in cases:
        findings.rounds[case] = {side: [] for side in sides}
        rest = RESTED if PEER_CASES[case].task.work == "idle" else 0.0
        task = PEER_CASES[case].lasting(max(effort.seconds, rest))
        for index in range(effort.rounds):
            for side in sides[:: -1 if index % 2 else 1]:
                seen(f"{case} {side}")
                findings.rounds[case][side].append(_calm(side, task, effort.quiet))
    return findings


def _calm(side: str, task: Task, quiet: float) -> Measurement:
    first = measure_side(side, task, quiet)
    if not quiet or first.others < NOISE:
        return first
    return min(first, measure_side(side, task, quiet), key=lambda found: found.others)


def measure_side(side: str, task: Task, quiet: float) -> Measurement:
    """Ours or a peer, once.

    Raises:
        ChildError: a process failed.
    """
    if side == OURS:
        return measure("ours", task, quiet=quiet)
    peer = PEERS[side]
    with _place(peer, task) as (where, between):
        return measure(peer.side, replace(task, how=where), quiet=quiet, between=between)


@contextmanager
def _place(peer: Peer, task: Task) -> Iterator[tuple[str, list[int]]]:
    """Create a directory with a peer's keys, and the program between its two processes."""
    with TemporaryDirectory(prefix="parley-peers-") as name:
        where = Path(name)
        if peer.keys == "certificates":
            write_certificates(where)
        elif peer.keys == "curve":
            from benchmarks.peers.zeromq_side import write_keys  # pyzmq is there by now

            write_keys(where)
        if peer.through_server:
            with nats_server.running_server(where, one_core=task.one_core) as pid:
                yield name, [pid]
        else:
            yield name, []
