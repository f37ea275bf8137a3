"""Target `key_statements`: the file in which a node stores statements and decisions (section 22).

The input is the content of the file. What a node reads survives writing it, the reference reads the
same from it, and every result of the table has an end.
"""

from pathlib import Path
from typing import Final

from parley._crypto.identity import NodeId
from parley._node.trust.ended_ids import inheritances, outcome_of
from parley._node.trust.key_statements import format_lines, read_lines
from parley._node.trust.statement_table import MAX_STEPS, StatementTable
from tests.fuzz.allowed import ALLOWED
from tests.reference import statements

MAX_SIZE: Final = 4096
_PATH: Final = Path("key_statements")
Stored = tuple[list[bytes], dict[bytes, bytes | None]]


def fuzz(data: bytes) -> None:
    """Read it by both."""
    table, wanted = _read(data), _wanted(data)
    if isinstance(table, str):
        assert table.startswith(f"{_PATH}, line "), "an error that names no line"
        assert table.isprintable(), "an error that cannot be logged"
        assert wanted is None, "only the second implementation reads it"
        return
    text = format_lines(table)
    again = _read(text)
    assert isinstance(again, StatementTable), "it does not read what it wrote"
    assert format_lines(again) == text, "it changes if written"
    # The node also reads other forms of base64 and of times, which it does not write.
    assert _wanted(text) == _held(table), "the second implementation reads something else"
    assert wanted in (None, _held(table)), "the second implementation reads something else"
    for origin in table.origins:
        _follow(table, origin)
    assert len(list(inheritances(table))) <= MAX_STEPS * len(table.origins)


def _read(data: bytes) -> StatementTable | str:
    """The table of the file, or the error."""
    try:
        return StatementTable(*read_lines(data, _PATH))
    except ALLOWED["key_statements"] as error:
        return str(error)


def _wanted(data: bytes) -> Stored | None:
    try:
        return statements.read_store(data)
    except statements.Invalid:
        return None


def _held(table: StatementTable) -> Stored:
    decisions: dict[bytes, bytes | None] = {}
    for origin, decision in table.decisions.items():
        decisions[origin] = decision.successor
    return [one.statement.encoded for one in table.stored.values()], decisions


def _follow(table: StatementTable, origin: NodeId) -> None:
    current, granted = table.current(origin), table.granted(origin)
    for end in (current, granted):
        assert end is None or not table.has_ended(end), "it leads to an ended ID"
    assert granted in (None, current), "rights go another way"
    assert current is None or origin in table.predecessors(current)
    assert outcome_of(table, origin)
    chain = table.chain_to(origin)
    assert all(one.successor is not None for one in chain)
    assert set(table.statements_of(origin)) <= set(table.statements_from([origin]))
    assert set(table.statements_of(origin)) <= set(table.of_members([origin]))
