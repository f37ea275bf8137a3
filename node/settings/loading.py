"""All settings of a node, of what else it speaks, of its journal and its bus, and of `parley serve`
and `parley relay`, from code, a TOML file and the environment.

One rule: what is more at hand holds: the environment over the file, the file over the
code's values, those over the defaults. Each is in docs/reference/settings.md with its
unit, range and default. Knows no command line.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from node.config import NodeConfig
from node.settings.bus import BusSettings
from node.settings.dialects import NamedSettings, RelaySettings, SimProtoSettings
from node.settings.journal import JournalSettings
from node.settings.serve import ServeSettings

_Dialect = TypeVar("_Dialect", SimProtoSettings, NamedSettings, RelaySettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a node, of the other dialects, of journal and bus, and of `parley serve`."""

    node: NodeConfig = field(default_factory=NodeConfig)
    serve: ServeSettings = field(default_factory=ServeSettings)
    simproto: SimProtoSettings = field(default_factory=SimProtoSettings)
    named: NamedSettings = field(default_factory=NamedSettings)
    relay: RelaySettings = field(default_factory=RelaySettings)
    journal: JournalSettings = field(default_factory=JournalSettings)
    bus: BusSettings = field(default_factory=BusSettings)


def load_settings(
    path: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    code: Settings | None = None,
) -> Settings:
    """Read the settings in the TOML file at `path` and in `environ`, over those of `code`.

    `environ` is the process's environment by default; `{}` reads none. The file's tables
    are `[node]` with `[node.limits]`, `[node.algorithms]`, `[node.require]` and
    `[node.info]`, `[serve]`, `[journal]`, `[bus]`, and `[simproto]`, `[named]` and `[relay]`, each
    with its `limits`; the variable of `node.limits.max_payload` is PARLEY_NODE_LIMITS_MAX_PAYLOAD.
    Tables of names and limits are merged key by key. Relative paths start from the file's
    directory, in variables from the current one.

    Raises:
        ConfigError: the file cannot be read, or there is no such setting, or its value is
            of another type or out of range; it names the file and key, or the variable.
    """
    # Who reads no settings shall not wait for the library that reads them.
    from node.settings.sources import load

    code = code or Settings()
    given = load(None if path is None else Path(path), os.environ if environ is None else environ)
    return Settings(
        node=_node(code.node, given["node"]),
        serve=replace(code.serve, **_named(given["serve"])),
        simproto=_dialect(code.simproto, given["simproto"]),
        named=_dialect(code.named, given["named"]),
        relay=_dialect(code.relay, given["relay"]),
        journal=replace(code.journal, **_named(given["journal"])),
        bus=replace(code.bus, **_named(given["bus"])),
    )


def _node(code: NodeConfig, given: dict[str, Any]) -> NodeConfig:
    algorithms, require = _named(given.pop("algorithms")), _named(given.pop("require"))
    limits, key = _named(given.pop("limits")), given.pop("network_key_file")
    return replace(
        code,
        algorithms={**code.algorithms, **algorithms},
        require={**code.require, **{name: frozenset(floor) for name, floor in require.items()}},
        limits=replace(code.limits, **limits),
        network_key=code.network_key if key is None else key,
        **_named(given),
    )


def _dialect(code: _Dialect, given: dict[str, Any]) -> _Dialect:
    limits = replace(code.limits, **_named(given.pop("limits")))
    return replace(code, limits=limits, **_named(given))


def _named(table: dict[str, Any]) -> dict[str, Any]:
    """What somebody named, of a table."""
    return {name: value for name, value in table.items() if value is not None}
