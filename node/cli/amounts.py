"""Amounts as they are typed: sizes such as `500MB`, times such as `90s` or `30d`.

One rule: an amount without a unit that is known is refused; nothing is guessed.
"""

import re
from collections.abc import Mapping
from typing import Final

from node.errors import ConfigError

_AMOUNT: Final = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[A-Za-z]*)")
_SIZES: Final = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}
_TIMES: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def parse_size(text: str) -> int:
    """Bytes, of `10GB`, `512MiB` or the like; raises ConfigError."""
    return round(_parse(text, _SIZES, "a size, such as 500MB or 10GiB"))


def parse_duration(text: str) -> float:
    """Seconds, of `30d`, `12h` or the like; raises ConfigError."""
    return _parse(text, _TIMES, "a time, such as 30d, 12h or 90m")


def _parse(text: str, units: Mapping[str, int], what: str) -> float:
    match = _AMOUNT.fullmatch(text.strip())
    if match is None or match["unit"] not in units:
        raise ConfigError(f"{text!r} is not {what}; the units are {', '.join(units)}")
    return float(match["number"]) * units[match["unit"]]
