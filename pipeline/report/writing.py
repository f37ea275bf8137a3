"""The report of gold tables as a file. Nothing here starts Spark."""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa

from parley._node.errors import FileError, os_reason
from parley._pipeline.errors import NoTablesError
from parley._pipeline.gold.refresh import newest, read_all_gold
from parley._pipeline.gold.store import GoldStore
from parley._pipeline.report.figures import ROWS
from parley._pipeline.report.page import render
from parley._pipeline.report.queries import collect


def write_report(
    store: GoldStore,
    path: Path,
    *,
    names: Mapping[str, str] | None = None,
    rows: int = ROWS,
    without_events: bool = False,
    stage: Callable[[str], None] = lambda _: None,
) -> None:
    """Write the report of the gold tables as one HTML file, whole or not at all.

    `names` are those by which the reader knows nodes; a table gets at most `rows` rows; the events
    of sessions are read as well, unless it is `without_events`; `stage` hears what is done next.

    Raises NoTablesError without tables, or for one that is damaged; FileError: it cannot be
    written.
    """
    stage("reading the tables")
    gold = read_all_gold(store)
    _, mark = newest(store)
    if gold is None or mark is None:
        raise NoTablesError("there are no tables: `parley pipeline run` makes them")
    scan = None if without_events else partial(_scan, store, mark.batch)
    stage("choosing what is shown" if scan is None else "reading the events of sessions")
    figures = collect(gold, scan, rows)
    stage("writing the page")
    page = render(figures, names)
    _to_file(path, page)


def _to_file(path: Path, page: str) -> None:
    """Write a page, whole or not at all. Raises FileError."""
    try:
        _replace(path, page)
    except OSError as error:
        raise FileError(
            f"cannot write '{path}': {os_reason(error)}; choose another file with --html"
        ) from error


def _replace(path: Path, page: str) -> None:
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=f".{path.name}.", delete=False, encoding="utf-8"
    ) as file:
        try:
            file.write(page)
            file.flush()
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def _scan(
    store: GoldStore, last: int, columns: Sequence[str], sessions: Sequence[str] | None
) -> Iterator[pa.Table]:
    return store.scan(columns, last, sessions)
