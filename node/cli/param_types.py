"""Parsers of option and argument values: JSON, sizes, durations, algorithms, secrets in files."""

import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from parley._crypto.registry import NAMES, PARAMETERS, require_name
from parley._lbm.codec import Encodable
from parley._node.errors import ConfigError, FileError, codec_fault
from parley._node.protocol.limits import NEGOTIATED
from parley._node.settings import secret_files


def read_value(text: str | None, as_json: str | None, *, name: str = "DATA") -> Encodable:
    """Return the value of argument `name` (`-` reads standard input) or of `--data-json`.

    Raises:
        ConfigError: both are given, or the JSON is invalid.
        FileError: standard input is closed.
    """
    if as_json is not None:
        if text is not None:
            raise ConfigError(
                f"cannot use {name} with --data-json: they are the same data; leave one out"
            )
        try:
            return parse_json(as_json)
        except ValueError as error:
            raise ConfigError(f"invalid --data-json: {error}") from error
    if text != "-":
        return text
    if sys.stdin is None:
        raise FileError(
            f"cannot read {name} '-' from standard input: it is closed; redirect a file to it"
        )
    # Read one byte more than the maximum payload, so that a longer input is refused.
    return sys.stdin.buffer.read(NEGOTIATED["max_payload"].maximum + 1)


def parse_json(text: str | bytes) -> Encodable:
    """Parse JSON; raises ValueError with the reason."""
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


def parse_size(text: str, option: str = "size") -> int:
    """Parse a size such as `10GB` or `512MiB` to bytes; raises ConfigError."""
    return round(_parse(text, option, _SIZES, "a size, such as 500MB or 10GiB"))


def parse_duration(text: str, option: str = "duration") -> float:
    """Parse a duration such as `30d` or `12h` to seconds; raises ConfigError."""
    return _parse(text, option, _TIMES, "a time, such as 30d, 12h or 90m")


def _parse(text: str, option: str, units: Mapping[str, int], what: str) -> float:
    match = _AMOUNT.fullmatch(text.strip())
    if match is None or match["unit"] not in units:
        raise ConfigError(
            f"invalid {option} {text!r}: expected {what}; the units are {', '.join(units)}"
        )
    return float(match["number"]) * units[match["unit"]]


def read_passphrase(path: Path | None) -> bytes | None:
    """Read the passphrase in a file, without the newline; FileError if unreadable or empty."""
    return None if path is None else _secret(secret_files.read_passphrase, path)


def read_network_key(path: Path | None) -> bytes | None:
    """Read a network key, 32 bytes raw or as 64 hex digits; FileError if it is unreadable or
    invalid."""
    return None if path is None else _secret(secret_files.read_network_key, path)


def _secret(read: Callable[[Path, Callable[[str], object]], bytes], path: Path) -> bytes:
    return read(path, warn)


def warn(sentence: str) -> None:
    """Print a warning on standard error."""
    print(f"parley: warning: {sentence}", file=sys.stderr)


def parse_names(parameter: str, text: str | None, *, option: str = "") -> tuple[str, ...]:
    """Parse the comma list of an option, by default that of the parameter; empty for None.

    Raises:
        ConfigError: an empty list.
        UnknownAlgorithmError: an unknown name.
    """
    return tuple(require_name(parameter, name) for name in _listed(option or parameter, text))


def _listed(option: str, text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        # An empty shell variable must not look like an option that is not given.
        raise ConfigError(
            f"invalid --{option} {text!r}: the list is empty; name at least one algorithm"
        )
    return names


def parse_required(text: str | None) -> dict[str, frozenset[str]]:
    """Parse `--require` to names by parameter; raises as `parse_names`."""
    required: dict[str, set[str]] = {}
    for name in _listed("require", text):
        parameter = next((p for p in PARAMETERS if name in NAMES[p]), None)
        if parameter is None:
            raise ConfigError(f"invalid --require {name!r}: unknown algorithm")
        required.setdefault(parameter, set()).add(name)
    return {parameter: frozenset(names) for parameter, names in required.items()}
