"""Each line of the log tells of an event with a stable name; the table of them is the code's."""

import ast
import logging
import re
from collections import defaultdict
from collections.abc import Iterator

from tests.test_house import ROOT, modules

TABLE = ROOT / "docs/reference/log-events.md"
LEVELS = {name: name for name in ("debug", "info", "warning", "error", "critical")} | {
    "exception": "error"
}
LOGGER = re.compile(r"(access\.)?_?logger|_log|access|logging\.getLogger\(.*\)")
NAME = re.compile(r"[a-z]+(?:-[a-z]+)*\.[a-z]+(?:-[a-z]+)*")
# What a record has, and what a line of JSON has, of its own.
TAKEN = vars(logging.makeLogRecord({})).keys() | {
    "message",
    "asctime",
    "time",
    "level",
    "logger",
    "text",
    "traceback",
}


def calls(tree: ast.Module) -> Iterator[ast.Call]:
    """All that log a line, by a logger or by a ration, which is given one."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in {*LEVELS, "log"}
        ):
            of, first = ast.unparse(node.func.value), [ast.unparse(one) for one in node.args[:1]]
            if LOGGER.fullmatch(of) or (
                node.func.attr == "log" and first and LOGGER.fullmatch(first[0])
            ):
                yield node


def dicts(tree: ast.Module) -> Iterator[ast.Dict]:
    """All that name an event of the log."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict) and any(
            isinstance(key, ast.Constant) and key.value == "event" for key in node.keys
        ):
            yield node


def names(found: ast.Dict) -> list[str]:
    """The event, or the two of which it is one; none where another one's is passed on."""
    (value,) = (
        value
        for key, value in zip(found.keys, found.values, strict=True)
        if isinstance(key, ast.Constant) and key.value == "event"
    )
    parts = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
    return [str(part.value) for part in parts if isinstance(part, ast.Constant)]


def fields_of(found: ast.Dict) -> set[str]:
    """What stands beside the event; `party` is who it is about."""
    keys = {str(key.value) for key in found.keys if isinstance(key, ast.Constant)}
    parts = {ast.unparse(one) for key, one in zip(found.keys, found.values, strict=True) if not key}
    whole = {"peer", "address"} if any("party(" in part for part in parts) else set()
    return (keys | whole) - {"event"}


def logged() -> dict[str, set[str]]:
    """The events that the code names, and the fields of each."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for module, tree in modules().items():
        if not module.startswith("node.") or not any(True for _ in calls(tree)):
            continue
        for one in dicts(tree):
            for name in names(one):
                found[name] |= fields_of(one)
    return found


def told() -> dict[str, set[str]]:
    """The loggers and the levels that the code names where it names an event."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for module, tree in modules().items():
        if module.startswith("node."):
            for call in calls(tree):
                whole = ast.unparse(call)
                level = re.search(r"logging\.([A-Z]+)\b", whole)
                assert isinstance(call.func, ast.Attribute)
                word = LEVELS.get(call.func.attr, level and level[1].lower())
                for one in dicts(ast.Module([ast.Expr(call)], [])):
                    for name in names(one):
                        found[name] |= {word} if word else set()
                        if "access" in whole:
                            found[name].add("parley.access")
    return found


def documented() -> dict[str, set[str]]:
    """The same as the table has it."""
    found = {}
    for line in TABLE.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and cells[0].startswith("`"):
            assert cells[0] not in found, f"{cells[0]} stands twice"
            found[cells[0].strip("`")] = set(re.findall(r"`([a-z_]+)`", cells[3]))
    return found


def test_each_line_of_the_log_names_its_event() -> None:
    nameless = [
        f"{module}:{call.lineno}"
        for module, tree in modules().items()
        if module.startswith("node.")
        for call in calls(tree)
        if not any(keyword.arg == "extra" for keyword in call.keywords)
    ]
    assert not nameless


def test_names_and_fields_are_fit_for_a_line() -> None:
    for name, fields in logged().items():
        assert NAME.fullmatch(name), name
        assert not fields & TAKEN, (name, fields & TAKEN)


def test_the_table_of_events_is_that_of_the_code() -> None:
    code, table = logged(), documented()
    assert sorted(code.keys() - table.keys()) == []
    assert sorted(table.keys() - code.keys()) == []
    by_name = told()
    for line in TABLE.read_text("utf-8").splitlines():
        name, _, rest = line.removeprefix("| `").partition("` | ")
        for word in by_name.get(name, ()):
            assert word in rest, (name, word)
    different = {name: (code[name], table[name]) for name in code if code[name] != table[name]}
    assert not different
