"""docs/pipeline.md: its tables are the code's."""

import re
from pathlib import Path

from parley._node.journal.audit import rows as audit
from parley._pipeline.gold.build import SCHEMAS
from parley._pipeline.gold.finding_texts import KINDS, WEIGHTS
from parley._pipeline.schema import (
    BRONZE,
    EVENTS,
    FINDING_FIELDS,
    SESSION_FIELDS,
    STATEMENT_FIELDS,
    TUNNEL_FIELDS,
)

PAGE = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text(encoding="utf-8")


def section(*headings: str) -> str:
    """Return the content under a heading, under others."""
    text = PAGE
    for level, heading in enumerate(headings, 2):
        mark = "#" * level
        text = text.split(f"\n{mark} {heading}\n", 1)[1]
        text = re.split(rf"\n#{{2,{level}}} ", text)[0]
    return text


def first_cells(text: str) -> set[str]:
    """Return the code in the first cells of tables."""
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return {name for line in lines for name in re.findall(r"`([^`]+)`", line.split("|")[1])}


def in_code(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", text))


def test_kinds_of_findings() -> None:
    for kind, known in KINDS.items():
        row = f"| `{kind}` | {' | '.join(known)} |"
        assert row in section("What a finding proves")
    assert first_cells(section("What a finding proves")) == set(KINDS)
    assert {known.weight for known in KINDS.values()} == set(WEIGHTS)


def test_columns_of_bronze() -> None:
    assert first_cells(section("Bronze")) == set(BRONZE.fieldNames())


def test_columns_of_silver() -> None:
    statuses = {audit.OK, audit.BAD_CHAIN, audit.BAD_SEAL, audit.UNSEALED, audit.UNDECRYPTABLE}
    statuses |= {audit.MALFORMED, audit.GAP, audit.DUPLICATE}
    assert first_cells(section("Silver", "events")) == set(EVENTS.fieldNames()) | statuses
    times = {"time_ns": "time", "started_ns": "started", "began_ns": "began", "ended_ns": "ended"}
    assert {times.get(name, name) for name in SESSION_FIELDS} <= in_code(
        section("Silver", "sessions")
    )
    assert {times.get(name, name) for name in TUNNEL_FIELDS} <= in_code(
        section("Silver", "tunnels")
    )
    assert {times.get(name, name) for name in STATEMENT_FIELDS} <= in_code(
        section("Silver", "statements")
    )
    assert {times.get(name, name) for name in FINDING_FIELDS} <= in_code(
        section("Silver", "findings")
    )


def test_columns_of_gold() -> None:
    for name, schema in SCHEMAS.items():
        told = section("Gold", name)
        if name == "graph":
            assert set(schema.names) <= in_code(told)
        else:
            assert first_cells(told) == set(schema.names), name
