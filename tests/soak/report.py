"""The figures of a run, and all broken promises.

It contains no names or paths of the machine.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from tests.soak.plan import Plan

UNITS = {"pipe": "bytes there", "back": "bytes back"}


@dataclass
class Report:
    """The results of a run.

    `came` counts received data by kind: calls, items, bytes. `notes` counts published notes by
    topic, and `missed` those that slow readers lost. `ended` counts interrupted requests by close
    code, and `resumes` counts resumed sessions.
    """

    plan: Plan
    seconds: float = 0.0
    cuts: int = 0
    connections: int = 0
    graceful: int = 0
    at_rest: int = 0
    streams_at_rest: int = 0
    missed: int = 0
    resumes: int = 0
    came: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    epochs: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    usage: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def take_connection(self, line: Mapping[str, Any]) -> None:
        """Add one side of a connection."""
        for flow, count in line["received"].items():
            kind = flow.partition("/")[0]
            if kind != "notes":
                self.came[UNITS.get(kind, kind)] += count
        self.came.update(line.get("took", {}))
        self.ended.update(line.get("ended", {}))
        self.missed += line.get("missed", 0)
        self.graceful += line["graceful"]
        self.resumes += line["resumes"]

    def add_writers(self, *published: Mapping[str, int]) -> None:
        """Add the numbers of published notes."""
        self.notes = Counter()
        for topics in published:
            self.notes.update(topics)

    def data(self) -> dict[str, Any]:
        """Return the results for JSON."""
        counts = {name: dict(getattr(self, name)) for name in ("came", "notes", "ended")}
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        seconds = round(self.seconds, 1)
        kept = not self.violations
        return {**found, **counts, "plan": asdict(self.plan), "seconds": seconds, "kept": kept}
