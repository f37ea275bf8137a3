"""Measures the peers: every side of every case in each round, ours among them.

Sides of one case follow each other within a round, in one order and then in the other, each with
fresh processes, and with keys and a server of its own if it needs them. A disturbed measurement is
taken again, once.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.certificates import write_certificates
from benchmarks.cpu import NOISE
from benchmarks.peers import nats_server
from benchmarks.peers.cases import OURS, PEER_CASES, PEERS, Peer
from benchmarks.rounds import Measurement, measure
from benchmarks.task import Task

# Seconds until an idle connection of ours has given back what it can.
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
    """Measure ours and these peers; `seen` is told of each before it begins.

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
    """A directory with a peer's keys, and what stands between its two processes."""
    with TemporaryDirectory(prefix="parley-peers-") as name:
        where = Path(name)
        if peer.keys == "certificates":
            write_certificates(where)
        elif peer.keys == "curve":
            from benchmarks.peers.zeromq_keys import write_keys  # pyzmq is there by now

            write_keys(where)
        if peer.through_server:
            with nats_server.running_server(where, one_core=task.one_core) as pid:
                yield name, [pid]
        else:
            yield name, []
