"""What one setting may be: its type, from TOML or from text, and its range.

A wrong value is a ConfigError that says what is allowed; values are never adjusted. No files are
read but those that a setting names.
"""

import logging
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin
from urllib.parse import quote, unquote

from parley._crypto.identity import Identity
from parley._crypto.registry import require_name
from parley._lbm.noise import parse_padding
from parley._node.config import RANGES, NodeConfig
from parley._node.dialects.limits import RANGES as DIALECT_RANGES
from parley._node.dialects.limits import NamedLimits, RelayLimits, SimProtoLimits
from parley._node.errors import ConfigError
from parley._node.protocol.limits import NEGOTIATED, Limits
from parley._node.settings.bus import BusSettings
from parley._node.settings.dialects import NamedSettings, RelaySettings, SimProtoSettings
from parley._node.settings.federation import FederationSettings, parse_accounts
from parley._node.settings.journal import JOURNAL_RANGES, JournalSettings
from parley._node.settings.secret_files import read_network_key
from parley._node.settings.serve import CLOCK_INTERVALS, ServeSettings

logger = logging.getLogger("parley.settings")

_RANGES: Final = {**RANGES, "clock_interval": CLOCK_INTERVALS, **JOURNAL_RANGES}
_FILE_URL: Final = "sqlite:///"
_LONGEST_QUOTE: Final = 40  # characters of a wrong value
# The tables but `node`, and the dataclass of each, which checks its values one by one.
TABLES: Final[dict[str, Any]] = {
    "node.limits": Limits,
    "serve": ServeSettings,
    "journal": JournalSettings,
    "bus": BusSettings,
    "federation": FederationSettings,
    "simproto": SimProtoSettings,
    "simproto.limits": SimProtoLimits,
    "named": NamedSettings,
    "named.limits": NamedLimits,
    "relay": RelaySettings,
    "relay.limits": RelayLimits,
}
# What no error quotes.
_UNSHOWN: Final = {
    f"{table}.{each.name}"
    for table, made in TABLES.items()
    for each in fields(made)
    if not each.repr
}


@dataclass(frozen=True, slots=True)
class ValueKind:
    """A type as files and variables write it: `fits` is for TOML's values."""

    name: str
    fits: Callable[[Any], bool]
    from_text: Callable[[str], Any]


def _table(text: str) -> object:
    found = tomllib.loads(f"table = {text}")
    if found.keys() != {"table"}:
        raise ValueError
    return found["table"]


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


_WHOLE: Final = ValueKind("a whole number", lambda value: type(value) is int, int)
_NUMBER: Final = ValueKind("a number", lambda value: type(value) in (int, float), float)
_FLAG: Final = ValueKind(
    "true or false", lambda value: type(value) is bool, {"true": True, "false": False}.__getitem__
)
_TEXT: Final = ValueKind("text", lambda value: type(value) is str and value != "", str)
_LIST: Final = ValueKind(
    "a list of texts",
    lambda value: type(value) is list and value != [] and all(map(_TEXT.fits, value)),
    _names,
)
_ACCOUNTS: Final = ValueKind(
    "off, known, any or a list of node ids",
    lambda value: _TEXT.fits(value) or _LIST.fits(value) or type(value) is tuple,
    parse_accounts,
)
_TABLE: Final = ValueKind("a table", lambda value: type(value) is dict, _table)


def kind_of(hint: Any) -> ValueKind:
    """The kind of a field with this type hint."""
    origin = get_origin(hint)
    if origin is Literal:
        return _TEXT
    if origin is tuple:
        return _LIST
    arguments = [a for a in get_args(hint) if a is not type(None)]
    if origin is not dict and arguments:  # X | None
        listed = len(arguments) > 1 and get_origin(arguments[1]) is tuple
        return _ACCOUNTS if listed else kind_of(arguments[0])
    kinds = {int: _WHOLE, float: _NUMBER, bool: _FLAG, str: _TEXT, Path: _TEXT, dict: _TABLE}
    return kinds[hint]


def read_value(path: str, hint: Any, value: object, directory: Path, *, text: bool) -> object:
    """The value of the setting `path` (such as "node.limits.max_payload").

    `text` says that it is an environment variable's; `directory` is what a relative path
    starts from.

    Raises:
        ConfigError: wrong type, or out of range. Its sentence says what is allowed.
    """
    kind = kind_of(hint)
    try:
        found = kind.from_text(str(value).strip()) if text else value
    except (ValueError, KeyError):
        raise _misfit(path, kind, value) from None
    if not kind.fits(found):
        raise _misfit(path, kind, value)
    try:
        return _checked(path, hint, found, directory)
    except ConfigError:
        raise
    except ValueError as error:  # of the core, of addresses and of algorithms
        raise ConfigError(str(error)) from error


def _misfit(path: str, kind: ValueKind, value: object) -> ConfigError:
    name = path.rpartition(".")[2]
    allowed = ""
    if path.startswith("node.limits."):
        limit = NEGOTIATED[name]
        allowed = f", {limit.minimum:,}..{limit.maximum:,}"
    elif path.count(".") > 1 and name in DIALECT_RANGES:
        least, greatest = DIALECT_RANGES[name]
        allowed = f", {least:,}..{greatest:,}"
    elif name in _RANGES:
        allowed = f", {_RANGES[name]}"
    quote = "it" if path in _UNSHOWN else repr(value)
    if len(quote) > _LONGEST_QUOTE:
        quote = quote[:_LONGEST_QUOTE] + "..."
    return ConfigError(f"{quote} is not {kind.name}{allowed}")


def _checked(path: str, hint: Any, value: Any, directory: Path) -> object:
    """The value as the dataclass has it, if the dataclass takes it."""
    table, _, name = path.rpartition(".")
    if name == "network_key_file":
        return read_network_key(_path(value, directory), _warn)
    if path == "bus.url" and value.startswith(_FILE_URL):
        return _file_url(value.removeprefix(_FILE_URL), directory)
    if Path in (hint, *get_args(hint)):
        return _path(value, directory)
    if table in ("node.algorithms", "node.require"):
        return tuple(require_name(name, each) for each in value)
    if name == "padding":
        return parse_padding(value)
    if table == "node":
        NodeConfig(**{name: value}).core(_anybody())
    elif table in TABLES:
        if name == "trust" and ("/" in value or "." in value):  # a file, as `parse_trust` has it
            value = str(_path(value, directory))
        value = tuple(value) if get_origin(hint) is tuple else value
        TABLES[table](**{name: value})
    return value


def _warn(sentence: str) -> None:
    logger.warning("%s", sentence, extra={"event": "secret.exposed"})


def _path(value: str, directory: Path) -> Path:
    return directory / Path(value).expanduser()


def _file_url(rest: str, directory: Path) -> str:
    """The address of a bus in a file, with the whole path; `rest` is what follows the scheme."""
    path, mark, query = rest.partition("?")
    return _FILE_URL + quote(str(_path(unquote(path), directory))) + mark + query


def _anybody() -> Identity:
    """An identity with which the core can be asked about a setting."""
    return Identity.create()
