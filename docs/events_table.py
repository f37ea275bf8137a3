"""Generate the tables of events and cells in the protocol's documents from protocol/events.toml.

`python -m docs.events_table` writes them into the documents, between the markers
`<!-- events: NAME -->` and `<!-- end of events -->`. A test checks that they are up to date.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
DOCUMENTS: Final = (HERE / "protocol.md", *sorted((HERE / "protocol").glob("*.md")))
LARGEST: Final = 2**64 - 1
CATEGORIES: Final = {
    1: ("Connection", "sections 5, 6, 9, 11 and 17"),
    2: ("Stream", "section 8"),
    3: ("Sim", "sections 9 and 18"),
    4: ("Named", "section 10"),
    5: ("Account", "section 20"),
    6: ("Bus", "section 16"),
    7: ("Tunnel", "section 19"),
    8: ("Federation", "section 19"),
}
# The events of section 5; the others of category 1 are those of sections 6, 9, 11 and 17.
_HANDSHAKE: Final = 5
_POWERS: Final = {2**bits - 1: f"2^{bits}-1" for bits in (31, 32, 40, 63, 64)}
_STREAMS: Final = {"0": "0", "1..": "1 and above", "2..": "2 and above"}
_MARKED: Final = re.compile(
    r"(<!-- events: ([a-z0-9 ]+) -->\n).*?(<!-- end of events -->\n)", re.DOTALL
)
Event = Mapping[str, Any]


@cache
def table() -> Mapping[str, Any]:
    """Return the contents of events.toml."""
    return tomllib.loads((HERE / "protocol" / "events.toml").read_text("utf-8"))


def number_of(event: Event) -> tuple[int, int]:
    category, _, subcategory = event["type"].partition("/")
    return int(category), int(subcategory)


def rows(titles: str, lines: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield a Markdown table; `titles` are separated by bars."""
    count = titles.count("|") + 1
    yield f"| {titles} |"
    yield f"|{' --- |' * count}"
    for cells in lines:
        yield f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |")


def _events(*categories: int) -> list[Event]:
    return [event for event in table()["event"] if number_of(event)[0] in categories]


def _title(event: Event) -> str:
    variant = f", {event['variant']}" if "variant" in event else ""
    return f"{event['type']} {event['name']}{variant}"


def _key_name(key: int) -> str:
    name: str = table()["keys"][str(key)]["name"]
    return f"{key} {name}"


def _brief(event: Event) -> str:
    """Return the cells of an event in one line; those in brackets may be absent."""
    payload = event.get("payload")
    if payload is not None:
        return {"none": "no payload", "bytes": "the payload is the bytes"}.get(
            payload, "the payload is the events"
        )
    cells = event.get("cells", ())
    names = (_key_name(cell["key"]) for cell in cells)
    return (
        ", ".join(
            f"[{name}]" if cell.get("optional") else name
            for name, cell in zip(names, cells, strict=True)
        )
        or "no cells"
    )


def _number(value: int) -> str:
    return _POWERS.get(value, f"{value:,}")


def _range(cell: Mapping[str, Any]) -> str:
    """Return the type and range of a cell, and what is to be noted."""
    kind: str = table()["types"][cell["type"]]["text"]
    if cell["type"] == "unsigned":
        least, most = cell.get("min", 0), cell.get("max", LARGEST)
        kind = str(least) if least == most else f"{kind} {_number(least)}..{_number(most)}"
    if "size" in cell:
        kind = f"{cell['size']} bytes"
    if "longest" in cell:
        kind += f" of at most {cell['longest']} characters"
    if "most" in cell:
        kind += f" of at most {_number(cell['most'])} elements"
    clamped = "above it: counts as the greatest" if cell.get("clamped") else ""
    return "; ".join(filter(None, [kind, clamped, cell.get("wrong", ""), cell.get("note", "")]))


def _types() -> Iterator[str]:
    for category, (name, sections) in CATEGORIES.items():
        yield f"**{category} {name}** ({sections})"
        yield ""
        yield from rows(
            "event | sent by | on stream | async id | final answer | a malformed payload",
            _merged(
                (
                    _title(event),
                    _direction(event),
                    event.get("place", _STREAMS[event["stream"]]),
                    event.get("async_id", "0"),
                    event.get("answer", "-"),
                    event["malformed"],
                )
                for event in _events(category)
                if "variant" not in event
            ),
        )
        yield ""


def _merged(lines: Iterable[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Join lines that follow each other and differ only in the first column."""
    for columns, group in groupby(lines, itemgetter(slice(1, None))):
        yield ", ".join(line[0] for line in group), *columns


def _direction(event: Event) -> str:
    return f"{event['from']}, to {event['to']}" if "from" in event else "both sides"


def _places() -> Iterator[str]:
    return rows(
        "event | stream | sent encrypted | on unencrypted connections | always sealed",
        _merged(
            (
                _title(event),
                _STREAMS[event["stream"]],
                "never" if event.get("unencrypted") else "as the connection",
                "yes" if event.get("plaintext", True) else "no",
                "yes" if event.get("sealed") else "no",
            )
            for event in _events(1, 2)
            if "variant" not in event
        ),
    )


def _keys() -> Iterator[str]:
    users: dict[int, list[str]] = {}
    for event in sorted(table()["event"], key=number_of):
        for cell in event.get("cells", ()):
            named = users.setdefault(cell["key"], [])
            if event["type"] not in named:
                named.append(event["type"])
    records: dict[int, list[str]] = {}
    for record in table()["record"]:
        for cell in record["cells"]:
            records.setdefault(cell["key"], []).append(record["name"])
    return rows(
        "key | name | type | in",
        (
            (
                number,
                key["name"],
                f"{key['type']} ({key['size']})" if "size" in key else key["type"],
                ", ".join(
                    [
                        *_listed(users.get(int(number), [])),
                        *records.get(int(number), []),
                        *filter(None, [key.get("use")]),
                    ]
                ),
            )
            for number, key in table()["keys"].items()
        ),
    )


def _listed(types: list[str]) -> list[str]:
    """Write runs of the types of one category as `6/3..6/8`."""
    runs: list[list[str]] = []
    for each in types:
        category, _, subcategory = each.partition("/")
        if runs and runs[-1][-1] == f"{category}/{int(subcategory) - 1}":
            runs[-1].append(each)
        else:
            runs.append([each])
    return [run[0] if len(run) == 1 else f"{run[0]}..{run[-1]}" for run in runs]


def _cells(*categories: int) -> Iterator[str]:
    return rows("event | cell | type and range | if absent", _cell_rows(_events(*categories)))


def _cell_rows(events: Iterable[Event]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of events; those of a variant only if they differ."""
    seen: set[tuple[str, ...]] = set()
    for event in events:
        for cell in event.get("cells", ()):
            absent = cell["absent"] if cell.get("optional") else "malformed"
            columns = _key_name(cell["key"]), _range(cell), absent
            line = event["type"], *columns
            if "variant" not in event or line not in seen:
                yield _title(event), *columns
            seen.add(line)


def _cells_by_key(category: int) -> Iterator[str]:
    """Yield the cells of a category by key, each with the events that have it."""
    found: dict[tuple[str, ...], list[str]] = {}
    events = _events(category)
    for event in events:
        for title, *columns in _cell_rows([event]):
            found.setdefault(tuple(columns), []).append(title.split()[1])
    lines = sorted(found.items(), key=lambda line: int(line[0][0].split()[0]))
    return rows(
        "cell | in | type and range | if absent",
        ((key, ", ".join(names), *rest) for (key, *rest), names in lines),
    )


def _records() -> Iterator[str]:
    return rows(
        "content of | cell | type and range | if absent",
        (
            (record["name"], *columns)
            for record in table()["record"]
            for _, *columns in _cell_rows([{"type": "", "name": "", **record}])
        ),
    )


def _handshake() -> Iterator[str]:
    events = [event for event in _events(1) if number_of(event)[1] <= _HANDSHAKE]
    return rows("event | cells | note", ((_title(e), _brief(e), e.get("note", "")) for e in events))


def _resume() -> Iterator[str]:
    events = [event for event in _events(1) if event["name"] in ("Resume", "Resumed", "Received")]
    return rows("event | cells | note", ((_title(e), _brief(e), e.get("note", "")) for e in events))


def _with_notes(titles: str, *categories: int) -> Callable[[], Iterator[str]]:
    return lambda: rows(
        titles,
        ((_title(e), _brief(e), e.get("note", "-")) for e in _events(*categories)),
    )


def _streams() -> Iterator[str]:
    return rows(
        "event | on stream | cells | meaning",
        (
            (_title(e), e.get("place", _STREAMS[e["stream"]]), _brief(e), e["note"])
            for e in _events(2)
        ),
    )


_TABLES: Final[Mapping[str, Callable[[], Iterator[str]]]] = {
    "types": _types,
    "places": _places,
    "keys": _keys,
    "cells of the base protocol": lambda: _cells(1, 2, 3, 4),
    "cells of accounts": lambda: _cells(5),
    "cells of the bus": lambda: _cells_by_key(6),
    "cells of envelopes": _records,
    "cells of federation": lambda: _cells(7, 8),
    "handshake": _handshake,
    "resume": _resume,
    "streams": _streams,
    "sim": _with_notes("event | cells | answered by", 3),
    "named": _with_notes("event | cells | note", 4),
    "accounts": _with_notes("event | cells | note", 5),
    "bus": _with_notes("event | cells | in the Answer, if its code is 0", 6),
    "federation": _with_notes("event | cells | note", 7, 8),
}


def with_tables(text: str) -> str:
    """Return the text of a document with its tables generated."""

    def generate(match: re.Match[str]) -> str:
        lines = "\n".join(_TABLES[match[2]]()).strip()
        return f"{match[1]}\n{lines}\n\n{match[3]}"

    return _MARKED.sub(generate, text)


def main() -> None:
    for document in DOCUMENTS:
        text = document.read_text("utf-8")
        document.write_text(with_tables(text), "utf-8")


if __name__ == "__main__":
    main()
