"""`load_settings`: the settings from code, a TOML file, the environment and options.

All sources are merged and then checked once. Options override the environment, which overrides the
file, which overrides values given in code. docs/reference/settings.md lists every setting.
"""

import logging
import os
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, get_args
from urllib.parse import quote, unquote

from parley._crypto.identity import Identity
from parley._node.config import NodeConfig
from parley._node.errors import ConfigError, ParleyError, os_reason
from parley._node.protocol.config_types import quoted
from parley._node.settings.catalogue import (
    PREFIX,
    REMOVED,
    SETTINGS,
    TABLES,
    VARIABLES,
    Setting,
    value_of,
)
from parley._node.settings.secret_files import read_network_key
from parley._node.settings.tables import (
    BusSettings,
    DialectSettings,
    FederationSettings,
    JournalSettings,
    NamedSettings,
    RelaySettings,
    ServeSettings,
    SimProtoSettings,
    parse_accounts,
)

LIKENESS: Final = (
    0.75  # minimum similarity (0 to 1) for suggesting a name in place of an unknown one
)
_FILE_URL: Final = "sqlite:///"

logger = logging.getLogger("parley.settings")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a node and of the commands that run one, by table."""

    node: NodeConfig = field(default_factory=NodeConfig)
    serve: ServeSettings = field(default_factory=ServeSettings)
    dialects: DialectSettings = field(default_factory=DialectSettings)
    simproto: SimProtoSettings = field(default_factory=SimProtoSettings)
    named: NamedSettings = field(default_factory=NamedSettings)
    relay: RelaySettings = field(default_factory=RelaySettings)
    journal: JournalSettings = field(default_factory=JournalSettings)
    bus: BusSettings = field(default_factory=BusSettings)
    federation: FederationSettings = field(default_factory=FederationSettings)


@dataclass(frozen=True, slots=True)
class AtLeast:
    """The value of an option that raises a setting to a minimum but keeps a greater value."""

    minimum: int


@dataclass(frozen=True, slots=True)
class _Given:
    """A value and its source: a file, a variable or an option."""

    value: Any
    source: str


def load_settings(
    path: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    code: Settings | None = None,
    options: Mapping[str, tuple[str, object]] | None = None,
) -> Settings:
    """Read settings from the TOML file at `path`, the environment and `options`; they override
    `code`.

    `environ` is the process's environment by default; `{}` ignores it. The variable for
    `node.limits.max_payload` is PARLEY_NODE_LIMITS_MAX_PAYLOAD. `options` maps the name of a
    setting to the name of a command-line option and its value; None means not given. Relative paths
    in a file are relative to the file's directory, those in variables to the current directory.

    Example:

        from pathlib import Path
        from parley.settings import load_settings

        Path("parley.toml").write_text("node.limits.max_payload = 65536")
        settings = load_settings("parley.toml", {})
        assert settings.node.limits.max_payload == 65_536

    Raises:
        ConfigError: the file cannot be read, a setting is unknown, or a value has another type or
            is out of range; the text names the setting, its value and its source.
    """
    given = {} if path is None else _from_file(Path(path))
    given |= _from_environment(os.environ if environ is None else environ)
    code = code or Settings()
    for name, (option, value) in (options or {}).items():
        if isinstance(value, AtLeast):
            below = given[name].value if name in given else value_of(code, name)
            value = None if isinstance(below, int) and below >= value.minimum else value.minimum
        elif name == "federation.accounts" and isinstance(value, str):
            value = parse_accounts(value)
        if value is not None:
            given[name] = _Given(value, option)
    try:
        return _built(code, given)
    except (ParleyError, ValueError) as error:
        raise _explained(given, error) from error


def _built(code: Settings, given: Mapping[str, _Given]) -> Settings:
    tables: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for name, each in given.items():
        table, _, key = name.rpartition(".")
        tables[table][key] = each.value
    node = tables["node"]
    if "network_key_file" in node:
        path = node.pop("network_key_file")
        if not path or not isinstance(path, str | Path):
            raise ConfigError("network_key_file: expected the path of a file")
        node["network_key"] = read_network_key(Path(path), _warn)
    node["limits"] = replace(code.node.limits, **tables["node.limits"])
    node["algorithms"] = {**code.node.algorithms, **tables["node.algorithms"]}
    tables["dialects"]["limits"] = replace(code.dialects.limits, **tables["dialects.limits"])
    names = [each.name for each in fields(Settings)]
    made = {name: replace(getattr(code, name), **tables[name]) for name in names}
    if any(name.startswith("node.") for name in given):
        # The core checks the other values; any identity with one of the algorithms will do.
        signing = node["algorithms"].get("signing", ("ed25519",))
        made["node"].core(Identity.create(tuple(signing)))
    return Settings(**made)


def _explained(given: Mapping[str, _Given], error: Exception) -> ConfigError:
    """Return an error that names the setting that caused `error`, its value and its source."""
    for name, each in given.items():
        try:
            _built(Settings(), {name: each})
        except (ParleyError, ValueError) as reason:
            if str(reason) != str(error):
                continue  # an error that only occurs without the other settings
            table, _, key = name.rpartition(".")
            hidden = {f.name for f in fields(TABLES.get(table, Settings)) if not f.repr}
            value = "" if key in hidden else f" to {_shown(each.value)}"
            text = str(reason).removeprefix(f"{key} is {_shown(each.value)}: ")
            text = text.removeprefix(f"{key}: ")
            return ConfigError(f"cannot set {name}{value}: {text}; correct {each.source}")
    # Each setting is valid separately.
    named = [name for name in given if name.rpartition(".")[2] in str(error)] or list(given)
    sources = ", ".join(f"{name} in {given[name].source}" for name in named)
    return ConfigError(f"cannot use these settings together: {error}; correct {sources}")


def _shown(value: object) -> str:
    return quoted(str(value) if isinstance(value, Path) else value)


# Files.


def _from_file(path: Path) -> dict[str, _Given]:
    try:
        with path.open("rb") as file:
            found = dict(_entries(tomllib.load(file)))
    except FileNotFoundError as error:
        raise ConfigError(
            f"cannot read the settings in '{path}': the file does not exist"
        ) from error
    except OSError as error:
        raise ConfigError(f"cannot read the settings in '{path}': {os_reason(error)}") from error
    except (ValueError, RecursionError) as error:  # neither UTF-8 nor TOML, or nested too deeply
        raise ConfigError(f"cannot read the settings in '{path}': {error}") from error
    _require_known(found, f" in {path}")
    directory = path.absolute().parent
    return {
        name: _Given(_located(name, value, directory), str(path)) for name, value in found.items()
    }


def _entries(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values in the tables of a file with their whole names."""
    for key, value in table.items():
        name = above + key.replace("-", "_")
        if isinstance(value, dict) and name not in SETTINGS:
            yield from _entries(value, f"{name}.")
        else:
            yield name, value


def _require_known(names: Iterable[str], place: str) -> None:
    for name in names:
        if name in SETTINGS:
            continue
        if name in REMOVED:
            raise ConfigError(f"cannot set {name}{place}: {REMOVED[name]}")
        if any(known.startswith(f"{name}.") for known in SETTINGS):
            raise ConfigError(f"cannot set {name}{place}: it is a table; write [{name}]")
        raise ConfigError(f"unknown setting {name!r}{place}{_meant(name, SETTINGS)}")


# The environment.


def _from_environment(environ: Mapping[str, str]) -> dict[str, _Given]:
    # Other variables that begin with PARLEY_, such as PARLEY_HOME, are not settings.
    ours = tuple(f"{PREFIX}{table.upper()}_" for table in TABLES if "." not in table)
    removed = {PREFIX + name.upper().replace(".", "_"): hint for name, hint in REMOVED.items()}
    given = {}
    for variable, text in environ.items():
        name = VARIABLES.get(variable)
        if name is not None:
            if not text.strip():
                raise ConfigError(f"cannot set {name}: {variable} is empty; unset it")
            value = _located(name, _parsed(SETTINGS[name], text.strip()), Path.cwd())
            given[name] = _Given(value, variable)
        elif variable in removed:
            raise ConfigError(f"cannot use the variable {variable}: {removed[variable]}")
        elif variable.startswith(ours):
            raise ConfigError(f"unknown setting {variable!r}{_meant(variable, VARIABLES)}")
    return given


def _parsed(setting: Setting, text: str) -> object:
    """Parse a variable to the value that a file would have. Invalid text is returned unchanged."""
    if setting.name == "federation.accounts":
        return parse_accounts(text)
    if setting.is_list:
        return [name.strip() for name in text.split(",") if name.strip()]
    kinds = {setting.hint, *get_args(setting.hint)}
    if kinds & {int, float, bool} or setting.name == "node.info":
        try:
            found = tomllib.loads(f"value = {text}")
        except ValueError:
            return text
        return found["value"] if found.keys() == {"value"} else text
    return text


# Paths.


def _located(name: str, value: Any, directory: Path) -> Any:
    """Return the value with a relative path in it made absolute."""
    setting = SETTINGS[name]
    if not isinstance(value, str) or not value:
        return value
    if name == "bus.url" and value.startswith(_FILE_URL):
        path, mark, query = value.removeprefix(_FILE_URL).partition("?")
        return _FILE_URL + quote(str(_path(unquote(path), directory))) + mark + query
    if Path in (setting.hint, *get_args(setting.hint)):
        return _path(value, directory)
    if name == "serve.trust" and ("/" in value or "." in value):  # a file, as for `parse_trust`
        return str(_path(value, directory))
    return value


def _path(value: str, directory: Path) -> Path:
    try:
        return directory / Path(value).expanduser()
    except RuntimeError:  # no user of this name, so the ~ is a part of the file name, as in a shell
        return directory / value


def _warn(sentence: str) -> None:
    logger.warning("%s", sentence, extra={"event": "secret.exposed"})


def _meant(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), n=1, cutoff=LIKENESS)
    return f" (did you mean {close[0]}?)" if close else ""


def changed(old: Settings, new: Settings) -> tuple[list[str], list[str]]:
    """Return the names of the settings that differ: those that are reloaded and those that need a
    restart, each sorted.
    """
    names = sorted(name for name in SETTINGS if value_of(old, name) != value_of(new, name))
    reloaded = [name for name in names if SETTINGS[name].reload]
    return reloaded, [name for name in names if not SETTINGS[name].reload]


def merge_reloadable(old: Settings, new: Settings) -> Settings:
    """Return the settings of a server that runs with `old` and has read `new`.

    Raises:
        ConfigError: the reloaded settings don't fit those that stay.
    """
    tables: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for name, setting in SETTINGS.items():
        table, _, key = name.rpartition(".")
        if setting.reload and "." not in table:
            tables[table][key] = value_of(new, name)
    tables["node"]["limits"] = new.node.limits
    return replace(old, **{name: replace(getattr(old, name), **tables[name]) for name in tables})
