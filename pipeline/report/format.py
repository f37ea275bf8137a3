"""Numbers and times for people to read: three significant digits with a unit, and times in UTC."""

from datetime import UTC, datetime, timedelta
from typing import Final

NOTHING: Final = "–"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DURATIONS: Final = ((86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "min"))


def count(number: float | None) -> str:
    """Format a whole number with thousands separators."""
    return NOTHING if number is None else f"{number:,.0f}"


def counted(number: int, noun: str) -> str:
    """Format a number followed by `noun`, in the plural unless the number is 1."""
    return f"{count(number)} {noun}" if number == 1 else f"{count(number)} {noun}s"


def size(number: float | None) -> str:
    """Format a number of bytes."""
    if number is None:
        return NOTHING
    value, unit = float(number), _SIZES[0]
    for unit in _SIZES:
        if value < 1000 or unit == _SIZES[-1]:
            break
        value /= 1024
    return f"{value:,.0f} {unit}" if unit == "B" else f"{_three(value)} {unit}"


def duration(micros: float | None) -> str:
    """Format a duration in microseconds."""
    if micros is None:
        return NOTHING
    for length, unit in _DURATIONS:
        if micros >= 2 * length:
            return f"{_three(micros / length)} {unit}"
    if micros >= 1_000_000:
        return f"{_three(micros / 1_000_000)} s"
    if micros >= 1_000:
        return f"{_three(micros / 1_000)} ms"
    return f"{micros:,.0f} µs"


def share(part: float, whole: float) -> str:
    """Format a part of a whole in percent.

    Values are shown as 100 % or 0 % only if they are exact.
    """
    if not whole:
        return NOTHING
    percent = 100 * part / whole
    if part != whole and percent > 99.99:
        return "> 99.99 %"
    if part and percent < 0.01:
        return "< 0.01 %"
    return f"{percent:.4g} %"


def moment(micros: int) -> datetime:
    """Convert microseconds since the epoch to a datetime in UTC."""
    return _EPOCH + timedelta(microseconds=micros)


def time(micros: int | None) -> str:
    """Format microseconds since the epoch as a time with seconds."""
    return NOTHING if micros is None else f"{moment(micros):%Y-%m-%d %H:%M:%S}"


def _three(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
