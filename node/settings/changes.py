"""Compare two `Settings` at a reload, and select the changes that need no restart."""

from collections import defaultdict
from dataclasses import replace
from typing import Any

from parley._node.settings.catalogue import SETTINGS, value_of
from parley._node.settings.sources import Settings


def changed(old: Settings, new: Settings) -> tuple[list[str], list[str]]:
    """Return the names of settings that differ: those that are reloaded, and those that need a
    restart; each sorted."""
    names = sorted(name for name in SETTINGS if value_of(old, name) != value_of(new, name))
    reloaded = [name for name in names if SETTINGS[name].reload]
    return reloaded, [name for name in names if not SETTINGS[name].reload]


def taken_up(old: Settings, new: Settings) -> Settings:
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
