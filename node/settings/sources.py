"""All settings of a node and of the commands `serve` and `relay`, read from code, a TOML file and
the environment.

The environment overrides the file, the file overrides the values given in code, and those override
the defaults. docs/reference/settings.md lists every setting with its unit, range and default.
"""

import os
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Final, get_type_hints

from parley._crypto.registry import PARAMETERS
from parley._node.config import NodeConfig
from parley._node.errors import ConfigError, ParleyError, os_reason
from parley._node.settings.bus import BusSettings
from parley._node.settings.dialects import NamedSettings, RelaySettings, SimProtoSettings
from parley._node.settings.federation import FederationSettings
from parley._node.settings.journal import JournalSettings
from parley._node.settings.serve import ServeSettings
from parley._node.settings.values import TABLES, read_value

PREFIX: Final = "PARLEY_"
LIKENESS: Final = 0.75  # from which on a name is suggested in place of an unknown one, 0 to 1

_Given = dict[str, Any]  # settings such as "node.role", and their values


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a node, of the other dialects, of journal and bus, of its part in a
    federation, and of `parley serve`."""

    node: NodeConfig = field(default_factory=NodeConfig)
    serve: ServeSettings = field(default_factory=ServeSettings)
    simproto: SimProtoSettings = field(default_factory=SimProtoSettings)
    named: NamedSettings = field(default_factory=NamedSettings)
    relay: RelaySettings = field(default_factory=RelaySettings)
    journal: JournalSettings = field(default_factory=JournalSettings)
    bus: BusSettings = field(default_factory=BusSettings)
    federation: FederationSettings = field(default_factory=FederationSettings)


def load_settings(
    path: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    code: Settings | None = None,
) -> Settings:
    """Read the settings in the TOML file at `path` and in `environ`, over those of `code`.

    `environ` is the process's environment by default; `{}` reads none. The file's tables
    are `[node]` with `[node.limits]`, `[node.algorithms]`, `[node.require]` and
    `[node.info]`, `[serve]`, `[journal]`, `[bus]`, `[federation]`, and `[simproto]`, `[named]` and
    `[relay]`, each with its `limits`; the variable of `node.limits.max_payload` is
    PARLEY_NODE_LIMITS_MAX_PAYLOAD. Tables of names and limits are merged key by key. Relative
    paths start from the file's directory, in variables from the current one.

    Raises:
        ConfigError: the file cannot be read, a setting is unknown, or a value has another
            type or is out of range; the text names the file and key, or the variable.
    """
    code = code or Settings()
    given: _Given = {} if path is None else _from_file(Path(path))
    given |= _from_environment(os.environ if environ is None else environ)
    tables: defaultdict[str, _Given] = defaultdict(dict)
    for option, value in given.items():
        table, _, name = option.rpartition(".")
        tables[table][name] = value
    for dialect in ("simproto", "named", "relay"):
        limits = getattr(code, dialect).limits
        tables[dialect]["limits"] = replace(limits, **tables[f"{dialect}.limits"])
    return Settings(
        node=_node(code.node, tables),
        serve=replace(code.serve, **tables["serve"]),
        simproto=replace(code.simproto, **tables["simproto"]),
        named=replace(code.named, **tables["named"]),
        relay=replace(code.relay, **tables["relay"]),
        journal=replace(code.journal, **tables["journal"]),
        bus=replace(code.bus, **tables["bus"]),
        federation=replace(code.federation, **tables["federation"]),
    )


def variables() -> dict[str, str]:
    """Every setting as TOML names it, and its environment variable."""
    return {option: PREFIX + option.upper().replace(".", "_") for option in _options()}


@cache
def _options() -> Mapping[str, Any]:
    """Every setting, such as "node.limits.max_payload", and its type."""
    tables = {name: get_type_hints(settings) for name, settings in TABLES.items()}
    # Files of settings and environments are passed around: secrets stand in files of their own.
    own = {"network_key_file": Path, "padding": str, "info": dict}  # TOML has no types for them
    tables["node"] = get_type_hints(NodeConfig) | own
    del tables["node"]["network_key"]
    tables["node.algorithms"] = tables["node.require"] = dict.fromkeys(PARAMETERS, tuple[str, ...])
    options = {f"{table}.{name}": hint for table in tables for name, hint in tables[table].items()}
    return {option: hint for option, hint in options.items() if option not in tables}


def _node(code: NodeConfig, tables: Mapping[str, _Given]) -> NodeConfig:
    key = tables["node"].pop("network_key_file", code.network_key)
    floors = {name: frozenset(floor) for name, floor in tables["node.require"].items()}
    return replace(
        code,
        algorithms={**code.algorithms, **tables["node.algorithms"]},
        require={**code.require, **floors},
        limits=replace(code.limits, **tables["node.limits"]),
        network_key=key,
        **tables["node"],
    )


def _from_file(path: Path) -> _Given:
    try:
        with path.open("rb") as file:
            found = dict(_entries(tomllib.load(file)))
    except FileNotFoundError as error:
        raise ConfigError(f"the settings file {path} does not exist") from error
    except OSError as error:
        raise ConfigError(f"cannot read the settings in {path}: {os_reason(error)}") from error
    except ValueError as error:  # neither UTF-8 nor TOML
        raise ConfigError(f"cannot read the settings in {path}: {error}") from error
    unknown = [option for option in found if option not in _options()]
    for option in unknown:
        if any(known.startswith(f"{option}.") for known in _options()):
            raise ConfigError(f"{path}: {option} must be a table")
    if unknown:
        names = ", ".join(option + _meant(option, _options()) for option in unknown)
        raise ConfigError(f"{path}: there is no setting {names}")
    directory = path.absolute().parent
    return {
        option: _read(f"{path}, {option}", option, value, directory, text=False)
        for option, value in found.items()
    }


def _entries(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """What the tables of a file hold, each under its whole name."""
    for key, value in table.items():
        option = above + key.replace("-", "_")
        if isinstance(value, dict) and option not in _options():
            yield from _entries(value, f"{option}.")
        else:
            yield option, value


def _from_environment(environ: Mapping[str, str]) -> _Given:
    known = {variable: option for option, variable in variables().items()}
    # Other names that begin with PARLEY_, such as PARLEY_HOME, are not settings.
    ours = tuple(f"{PREFIX}{table.upper()}_" for table in ("node", *TABLES) if "." not in table)
    given: _Given = {}
    for name, value in environ.items():
        if name in known:
            given[known[name]] = _read(name, known[name], value, Path.cwd(), text=True)
        elif name.startswith(ours):
            raise ConfigError(f"there is no setting {name}{_meant(name, known)}")
    return given


def _read(where: str, option: str, value: object, directory: Path, *, text: bool) -> object:
    try:
        return read_value(option, _options()[option], value, directory, text=text)
    except ParleyError as error:
        raise ConfigError(f"{where}: {error}") from error


def _meant(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), n=1, cutoff=LIKENESS)
    return f" (did you mean {close[0]}?)" if close else ""
