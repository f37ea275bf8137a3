"""Times, tables and counts, as people and JSON read them.

One rule: times are UTC, and what no calendar has is shown as it is: another node wrote it.
"""

from datetime import UTC, datetime

from rich import box
from rich.table import Table


def show_time(nanoseconds: int | None) -> str | None:
    """ISO 8601 to the millisecond, for JSON; None for None."""
    if nanoseconds is None:
        return None
    when = _when(nanoseconds)
    if when is None:
        return f"{nanoseconds} ns"
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def brief_time(nanoseconds: int | None) -> str:
    """To the second, for a table; empty for None."""
    if nanoseconds is None:
        return ""
    when = _when(nanoseconds)
    return f"{nanoseconds} ns" if when is None else f"{when:%Y-%m-%d %H:%M:%S}"


def counted(number: int, word: str) -> str:
    """As in "1 file" and "2 files"."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def table_of(title: str, *head: str) -> Table:
    """A table in which nothing is cut off: what is too long goes on in the next line."""
    table = Table(title=f"{title} (times are UTC)", title_justify="left", box=box.SIMPLE_HEAD)
    for name in head:
        table.add_column(name, overflow="fold")
    return table


def _when(nanoseconds: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(nanoseconds / 1e9, UTC)
    except (ValueError, OverflowError, OSError):
        return None
