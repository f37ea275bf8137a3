"""Simulated journals for tests, made once, and the results of auditing a directory."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from parley._crypto.auditor import AuditorPrivateKey
from parley._node.apps.simulate.plan import Plan
from parley._node.apps.simulate.tally import Tally
from parley._node.apps.simulate.world import Keeping, simulate
from parley._node.journal.audit.audit import Audit
from parley._node.journal.audit.rows import EVENT_COLUMNS, Finding, SessionRow
from parley._node.journal.segments import list_segments, read_footer, read_range

# Small, but with several sessions, suites, rekeys and segments.
PLAN = Plan(nodes=4, minutes=0.3, seed=7)
SEGMENT_SIZE = 60_000


@dataclass(frozen=True)
class Simulated:
    """Unaltered journals, their auditor, and the counts of the simulation."""

    directory: Path
    key: AuditorPrivateKey
    tally: Tally


@dataclass(frozen=True)
class Audited:
    """The results of an audit of all journals in a directory."""

    events: list[dict[str, Any]]
    findings: list[Finding]
    sessions: list[SessionRow]


def run(plan: Plan, keeping: Keeping | None = None, backend: str = "asyncio") -> Tally:
    """Run a simulation on a new event loop."""

    async def running() -> Tally:
        return await simulate(plan, lambda _: None, keeping)

    return anyio.run(running, backend=backend)


def make(directory: Path) -> Simulated:
    """Create the journals of `PLAN`."""
    key = AuditorPrivateKey.create()
    keeping = Keeping(directory, key.public, SEGMENT_SIZE)
    return Simulated(directory, key, run(PLAN, keeping))


def audit(directory: Path, key: AuditorPrivateKey, node: str | None = None) -> Audited:
    """Audit all journals in a directory, or the journal of one node."""
    audits: dict[str, Audit] = {}
    for file in list_segments(directory, node):
        found = audits.setdefault(file.name.node, Audit([key], payloads=False))
        footer = read_footer(file.path)
        blocks = footer.blocks if footer else ()
        for record in read_range(file.path, 0, file.size, blocks):
            found.record(file.name.stem, record)
    result = Audited([], [], [])
    for found in audits.values():
        found.finish_pending()
        for row in found.take_events():
            result.events.append(dict(zip(EVENT_COLUMNS, row, strict=True)))
        result.findings.extend(found.take_findings())
        result.sessions.extend(found.take_sessions())
    return result
