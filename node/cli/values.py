"""Values as they are typed: text, JSON, bytes from standard input, sizes such as `500MB` and times
such as `90s`.

A value that cannot be read is a usage error of one sentence; nothing is guessed. Whether it can be
sent is up to the encoder.
"""

import json
import re
import sys
from collections.abc import Mapping
from typing import Final

from parley._lbm.codec import Encodable
from parley._node.codec_faults import codec_fault
from parley._node.errors import ConfigError, FileError
from parley._node.protocol.limits import NEGOTIATED


def given_value(text: str | None, as_json: str | None, *, name: str = "DATA") -> Encodable:
    """What `name` says (`-` is for standard input), or in its place `--data-json`.

    Raises:
        ConfigError: both are given, or it is not JSON. FileError: standard input is closed.
    """
    if as_json is not None:
        if text is not None:
            raise ConfigError(f"give {name} or --data-json, not both")
        try:
            return parse_json(as_json)
        except ValueError as error:
            raise ConfigError(f"--data-json is {error}") from error
    if text != "-":
        return text
    if sys.stdin is None:
        raise FileError(
            f"cannot read {name} '-' from standard input: it is closed; redirect a file to it"
        )
    # One byte more than can ever be sent is enough to be refused as too large.
    return sys.stdin.buffer.read(NEGOTIATED["max_payload"].maximum + 1)


def parse_json(text: str | bytes) -> Encodable:
    """A value that is written as JSON.

    Raises:
        ValueError: not JSON; the text says why.
    """
    try:
        value: Encodable = json.loads(text)
    except ValueError as error:
        raise ValueError(f"not JSON: {codec_fault(error)}") from error
    except RecursionError as error:
        raise ValueError(codec_fault(error)) from error
    return value


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
