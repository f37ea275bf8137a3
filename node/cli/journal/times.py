"""Times of journals as people and JSON read them.

One rule: UTC, and what no calendar has is shown as it is: another node wrote it.
"""

from datetime import UTC, datetime


def show_time(nanoseconds: int | None) -> str | None:
    """ISO 8601 to the millisecond; None for None."""
    if nanoseconds is None:
        return None
    try:
        when = datetime.fromtimestamp(nanoseconds / 1e9, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{nanoseconds} ns"
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
