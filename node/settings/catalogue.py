"""All settings of files and environment variables, found from the dataclasses' annotations.

Also the names of settings of earlier versions.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, get_origin, get_type_hints

from msgspec import Meta

from parley._crypto.registry import PARAMETERS
from parley._node.config import NodeConfig
from parley._node.dialects.limits import DialectLimits
from parley._node.protocol.config_types import setting, setting_of
from parley._node.protocol.limits import Limits
from parley._node.settings.tables import (
    BusSettings,
    DialectSettings,
    FederationSettings,
    JournalSettings,
    NamedSettings,
    RelaySettings,
    ServeSettings,
    SimProtoSettings,
)

PREFIX: Final = "PARLEY_"
# The tables of a file, in the order of the reference page.
TABLES: Final[Mapping[str, Any]] = {
    "node": NodeConfig,
    "node.limits": Limits,
    "serve": ServeSettings,
    "journal": JournalSettings,
    "bus": BusSettings,
    "federation": FederationSettings,
    "dialects": DialectSettings,
    "dialects.limits": DialectLimits,
    "simproto": SimProtoSettings,
    "named": NamedSettings,
    "relay": RelaySettings,
}


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting: its name, such as `node.limits.max_payload`, its type and its description."""

    name: str
    hint: Any
    meta: Meta

    @property
    def variable(self) -> str:
        """The environment variable."""
        return PREFIX + self.name.upper().replace(".", "_")

    @property
    def reload(self) -> bool:
        """Whether a server applies a new value without a restart."""
        return bool((self.meta.extra or {})["reload"])

    @property
    def is_list(self) -> bool:
        """Whether the value is a list of strings."""
        return get_origin(self.hint) is tuple


def _from_tables() -> dict[str, Setting]:
    found = {}
    for table, made in TABLES.items():
        hints = get_type_hints(made, include_extras=True)
        for field in fields(made):
            meta = setting_of(hints[field.name])
            if meta is not None:
                name = f"{table}.{field.name}"
                found[name] = Setting(name, hints[field.name].__origin__, meta)
    return found


def _own() -> dict[str, Setting]:
    """Return the settings whose form in a file differs from the dataclass."""
    key = setting("File with the key of a private network: 32 bytes, or 64 hex digits.")
    found = {"node.network_key_file": Setting("node.network_key_file", Path, key)}
    for parameter in PARAMETERS:
        name = f"node.algorithms.{parameter}"
        meta = setting("Algorithms to negotiate, best first; others are refused.")
        found[name] = Setting(name, tuple[str, ...], meta)
    return found


SETTINGS: Final[Mapping[str, Setting]] = _from_tables() | _own()
VARIABLES: Final[Mapping[str, str]] = {each.variable: name for name, each in SETTINGS.items()}

_FIXED: Final = "it has a fixed value now; remove it"
_SHARE: Final = "it is now part of {0}; set {0} instead"
# Former tables of limits of each dialect: some are now shared by all dialects, some are fixed.
_SHARED: Final = ("longest_frame", "client_memory", "memory", "clients", "idle_timeout")
_OF_DIALECTS: Final = {
    "simproto": (
        _SHARED[:-1],
        ("longest_name", "dialogs", "answer_timeout", "idle_before_ping", "ping_timeout"),
    ),
    "named": (_SHARED, ("longest_name", "events")),
    "relay": (_SHARED, ("patience", "uuid_timeout")),
}


def _of_dialects() -> Iterator[tuple[str, str]]:
    for dialect, (shared, fixed) in _OF_DIALECTS.items():
        for name in shared:
            yield f"{dialect}.limits.{name}", f"set dialects.limits.{name}, for all dialects"
        yield (
            f"{dialect}.limits.write_buffer",
            "it is now half of dialects.limits.client_memory; set that, for all dialects",
        )
        for name in fixed:
            yield f"{dialect}.limits.{name}", _FIXED
        yield f"{dialect}.allow_insecure", "set dialects.allow_insecure, for all dialects"
        if dialect != "named":
            yield f"{dialect}.values", "set dialects.values, for all dialects"


# Settings of earlier versions, with instructions.
REMOVED: Final[Mapping[str, str]] = {
    **{
        f"node.{name}": _FIXED
        for name in (
            *("handshake_timeout", "ping_timeout", "rekey_allowance", "half_open"),
            *("once_results", "accept_timeout", "parted_sessions", "parted_per_id"),
        )
    },
    **{
        f"node.{name}": _SHARE.format("node.peer_memory")
        for name in ("once_peer_memory", "write_buffer", "resume_buffer")
    },
    **{f"node.{name}": _SHARE.format("node.memory") for name in ("once_memory", "parted_memory")},
    **{
        f"node.require.{name}": f"list only these algorithms in node.algorithms.{name}"
        for name in PARAMETERS
    },
    "serve.clock_interval": _FIXED,
    "journal.segment_age": _FIXED,
    "journal.buffer_size": _SHARE.format("journal.segment_size"),
    "journal.fsync_interval": _FIXED,
    **dict(_of_dialects()),
}


def value_of(settings: Any, name: str) -> Any:
    """Return the value of the setting `name` in a `Settings` object."""
    found = settings
    for part in name.replace("network_key_file", "network_key").split("."):
        found = found.get(part, ()) if isinstance(found, Mapping) else getattr(found, part)
    return found
