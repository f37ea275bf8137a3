"""Where settings come from: a TOML file and environment variables, read by typed-settings.

One rule: every wrong name and value is found where it stands, so that the error names the
file and key, or the variable. The library finds the keys, merges the sources and knows
which holds; what a value may be is `settings_values`'s.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field, is_dataclass, make_dataclass
from difflib import get_close_matches
from functools import cache
from inspect import isclass
from pathlib import Path
from typing import Any, Final, cast, get_type_hints

import typed_settings as ts
from typed_settings.cls_utils import deep_options
from typed_settings.dict_utils import get_path, set_path
from typed_settings.exceptions import (
    ConfigFileLoadError,
    ConfigFileNotFoundError,
    InvalidOptionsError,
)
from typed_settings.loaders import clean_settings
from typed_settings.types import LoadedSettings, LoaderMeta, OptionInfo, OptionList, SettingsDict

from crypto.registry import PARAMETERS
from node.config import NodeConfig
from node.dialects.limits import NamedLimits, RelayLimits, SimProtoLimits
from node.errors import ConfigError, ParleyError
from node.protocol.limits import Limits
from node.settings.bus import BusSettings
from node.settings.dialects import NamedSettings, RelaySettings, SimProtoSettings
from node.settings.journal import JournalSettings
from node.settings.serve import ServeSettings
from node.settings.values import read_value

PREFIX: Final = "PARLEY_"
# What else begins with PARLEY_ (such as PARLEY_HOME) is no setting of these.
TABLES: Final = ("node", "serve", "simproto", "named", "relay", "journal", "bus")
_DIALECTS: Final[Mapping[str, tuple[type, type]]] = {
    "simproto": (SimProtoSettings, SimProtoLimits),
    "named": (NamedSettings, NamedLimits),
    "relay": (RelaySettings, RelayLimits),
}
# From which on a name is suggested in place of an unknown one, 0 to 1.
LIKENESS: Final = 0.75


def load(path: Path | None, environ: Mapping[str, str]) -> dict[str, Any]:
    """The tables as nested maps; None stands for what nobody named.

    Raises:
        ConfigError: a wrong name or value; it says where it stands.
    """
    loaders: list[Any] = []
    if path is not None:
        loaders.append(_File(path))
    loaders.append(_Environment(environ))
    return cast("dict[str, Any]", ts.load_settings(_root(), loaders, converter=_AsItIs()))


def variables() -> dict[str, str]:
    """Every setting as TOML names it, and its environment variable."""
    return {option.path: _variable(option) for option in deep_options(_root())}


# The shape of a file: that of the dataclasses, but for what TOML has no type for.


def _shape(name: str, types: Mapping[str, Any]) -> type:
    """A table in which nothing has to be there."""
    shape = make_dataclass(name, [_entry(*item) for item in types.items()], frozen=True)
    # The library looks for docstrings in the source of a class. There is none, and it would
    # read that of all of the module `types` each time: 60 ms, were it not told so.
    shape.__module__ = "builtins"
    return shape


def _entry(key: str, kind: Any) -> tuple[str, Any, Any]:
    if isclass(kind) and is_dataclass(kind):
        return key, kind, field(default_factory=kind)
    return key, kind, field(default=None)


@cache
def _root() -> type:
    names = _shape("Names", dict.fromkeys(PARAMETERS, tuple[str, ...]))
    types = {
        key: {
            "algorithms": names,
            "require": names,
            "limits": _shape("Limits", get_type_hints(Limits)),
            "network_key": Path,
            "padding": str,
            "info": dict,
        }.get(key, hint)
        for key, hint in get_type_hints(NodeConfig).items()
    }
    # Secrets stand in files of their own: files of settings and environments get around.
    types = {("network_key_file" if k == "network_key" else k): t for k, t in types.items()}
    tables = {
        "node": types,
        "serve": get_type_hints(ServeSettings),
        "journal": get_type_hints(JournalSettings),
        "bus": get_type_hints(BusSettings),
    }
    for name, (settings, limits) in _DIALECTS.items():
        inner = _shape("Limits", get_type_hints(limits))
        tables[name] = {**get_type_hints(settings), "limits": inner}
    return _shape("File", {name: _shape(name, table) for name, table in tables.items()})


# The library's parts: two loaders, and a converter for values that are converted already.


class _File:
    """A TOML file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, settings_cls: type, options: OptionList) -> LoadedSettings:
        path = self._path
        try:
            # Not the library's FileLoader, which takes a `!` in a path for a mark of its own.
            found = ts.TomlFormat(None)(path, settings_cls, options)
            settings = clean_settings(found, options, path)
        except ConfigFileNotFoundError as error:
            raise ConfigError(f"the settings file {path} does not exist") from error
        except InvalidOptionsError as error:
            raise ConfigError(_unknown(str(path), str(error), options)) from error
        except OSError as error:
            raise ConfigError(f"cannot read the settings in {path}: {error.strerror}") from error
        except (ConfigFileLoadError, ValueError) as error:
            raise ConfigError(f"cannot read the settings in {path}: {error}") from error
        for option in options:
            where = f"{path}, {option.path}"
            _read_in(settings, option, where, path.absolute().parent, text=False)
        return LoadedSettings(settings, LoaderMeta(self))


class _Environment:
    """Environment variables."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def __call__(self, settings_cls: type, options: OptionList) -> LoadedSettings:
        known = {_variable(option): option for option in options}
        ours = tuple(f"{PREFIX}{table.upper()}_" for table in TABLES)
        settings: SettingsDict = {}
        for name, value in self._environ.items():
            if name in known:
                set_path(settings, known[name].path, value)
                _read_in(settings, known[name], name, Path.cwd(), text=True)
            elif name.startswith(ours):
                raise ConfigError(f"there is no setting {name}{_meant(name, known)}")
        return LoadedSettings(settings, LoaderMeta(self))


class _AsItIs:
    """Values that the loaders checked."""

    def structure(self, obj: Any, cl: type) -> Any:
        return obj

    def get_structure_hook(self, cl: type) -> Any:
        return self.structure


def _variable(option: OptionInfo) -> str:
    return ts.EnvLoader(PREFIX).get_envvar(option)


def _read_in(
    settings: SettingsDict, option: OptionInfo, where: str, directory: Path, *, text: bool
) -> None:
    """Replace a source's value by the setting's, if the source has one."""
    try:
        value = get_path(settings, option.path)
    except KeyError:
        return
    try:
        found = read_value(option.path, option.cls, value, directory, text=text)
    except ParleyError as error:
        raise ConfigError(f"{where}: {error}") from error
    set_path(settings, option.path, found)


def _unknown(where: str, message: str, options: OptionList) -> str:
    """What the library's list of unknown keys means."""
    paths = {option.path for option in options}
    keys = message.rpartition(": ")[2].split(", ")
    for key in keys:
        if any(path.startswith(f"{key}.") for path in paths):
            return f"{where}: {key} must be a table"
    return f"{where}: there is no setting {', '.join(k + _meant(k, paths) for k in keys)}"


def _meant(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), n=1, cutoff=LIKENESS)
    return f" (did you mean {close[0]}?)" if close else ""
