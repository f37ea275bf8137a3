"""What a run has shown: figures for people and as JSON, and every promise that was broken.

No name or path of a machine is in it.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from tests.soak.plan import Plan

# Violations that are printed; all are counted.
SHOWN = 40
UNITS = {"pipe": "bytes there", "back": "bytes back"}


@dataclass
class Report:
    """`came` is what readers took, by kind: calls, items, bytes; `notes` how many were
    published for each topic, `missed` how many of them slow readers lost; `ended` what was
    cut off, by its close code; `resumes` how often a side's session went on."""

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

    def take_notes(self, *published: Mapping[str, int]) -> None:
        """What each side has published in all."""
        self.notes = Counter()
        for topics in published:
            self.notes.update(topics)

    def data(self) -> dict[str, Any]:
        """For JSON."""
        counts = {name: dict(getattr(self, name)) for name in ("came", "notes", "ended")}
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        seconds = round(self.seconds, 1)
        kept = not self.violations
        return {**found, **counts, "plan": asdict(self.plan), "seconds": seconds, "kept": kept}

    def lines(self) -> list[str]:
        """For people."""
        per_second = 1 / max(self.seconds, 0.001)
        plan = self.plan
        found = [
            f"seed {plan.seed}, {plan.backend}: {self.seconds:.0f} s at full load, "
            f"{self.cuts} cuts, {self.connections} connections, {self.resumes // 2} resumed, "
            f"{self.graceful // 2} ended cleanly",
            *(
                f"  {kind:12} {count:>15,}  {count * per_second:>13,.0f} a second"
                for kind, count in [*self.came.items(), *self._published()]
            ),
            f"  slow readers lost {self.missed:,} notes",
            "  cut off, by close code: "
            + ", ".join(f"{code}: {count:,}" for code, count in self.ended.items()),
            f"  at rest: {self.at_rest} connections, {self.streams_at_rest} streams",
        ]
        for side, one in self.epochs.items():
            found.append(
                f"  {side}: {one['sent']:,} epochs sent, {one['received']:,} received, "
                f"{one['rekeys']:,} rekeys, {one['events']:,} events in {one['seconds']:,} s of "
                f"{one['connections']} connections; none for more than {one['longest']} s"
            )
        for side, one in self.usage.items():
            found.append(f"  {side}: " + ", ".join(f"{key} {value}" for key, value in one.items()))
        found += [f"BROKEN: {what}" for what in self.violations[:SHOWN]]
        found.append(f"{len(self.violations)} promises broken" if self.violations else "all kept")
        return found

    def _published(self) -> list[tuple[str, int]]:
        return [(f"notes, {topic}", count) for topic, count in self.notes.items()]
