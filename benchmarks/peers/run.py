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
PURE: Final = "pure"
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
        Peer("pure", "Parley in pure Python", keys=""),
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


# Seconds until an idle connection has released its memory.
RESTED: Final = 1.5


@dataclass(frozen=True, slots=True)
class Effort:
    """How long each measurement is in seconds, how often it is made, and for how many seconds to
    wait at most until the machine is idle. `pure` is the interpreter of an environment in which
    Parley is not compiled."""

    seconds: float = 0.7
    rounds: int = 3
    quiet: float = 1.0
    pure: str = ""


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
    if PURE in peers and not effort.pure:
        findings.left_out[PURE] = "no interpreter is named (`--pure PYTHON`)"
    sides = [OURS, *(name for name in peers if name not in findings.left_out)]
    for case in cases:
        findings.rounds[case] = {side: [] for side in sides}
        rest = RESTED if PEER_CASES[case].task.work == "idle" else 0.0
        task = PEER_CASES[case].lasting(max(effort.seconds, rest))
        for index in range(effort.rounds):
            for side in sides[:: -1 if index % 2 else 1]:
                seen(f"{case} {side}")
                findings.rounds[case][side].append(_calm(side, task, effort))
    return findings


def _calm(side: str, task: Task, effort: Effort) -> Measurement:
    first = measure_side(side, task, effort)
    if not effort.quiet or first.others < NOISE:
        return first
    return min(first, measure_side(side, task, effort), key=lambda found: found.others)


def measure_side(side: str, task: Task, effort: Effort) -> Measurement:
    """Ours or a peer, once.

    Raises:
        ChildError: a process failed.
    """
    quiet = effort.quiet
    if side == OURS:
        return measure("ours", task, quiet=quiet)
    if side == PURE:
        return measure("ours", task, quiet=quiet, python=effort.pure)
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
