"""What is different between two sets of settings, by name, and what of that a running server takes
up when it is told to read them again; all else needs a restart.
"""

from collections import defaultdict
from dataclasses import fields, replace
from typing import Any, Final

from parley._node.config import CHANGEABLE
from parley._node.protocol.limits import Limits
from parley._node.settings.sources import Settings
from parley._node.settings.values import TABLES

# Settings that `parley serve` takes up on SIGHUP.
RELOADED: Final = frozenset(
    {
        "serve.roles",
        "serve.trust",
        "serve.log_level",
        "serve.access_log",
        "serve.log_requests",
        "bus.allow",
        "federation.members",
        "federation.carry",
        *(f"node.{name}" for name in CHANGEABLE - {"limits"}),
        *(f"node.limits.{each.name}" for each in fields(Limits)),
    }
)

# Settings whose value is the content of a file that another name stands for.
_NAMED: Final = {"node.network_key": "node.network_key_file"}


def changed(old: Settings, new: Settings) -> tuple[list[str], list[str]]:
    """The names of what differs: what is taken up, and what needs a restart; each in order."""
    before, after = _flat(old), _flat(new)
    names = sorted(name for name in after if before[name] != after[name])
    taken = [name for name in names if name in RELOADED]
    return taken, [name for name in names if name not in RELOADED]


def taken_up(old: Settings, new: Settings) -> Settings:
    """What holds in a server that runs with `old` and has read `new`.

    Raises:
        ConfigError: what is new does not go with what stays.
    """
    tables: defaultdict[str, dict[str, object]] = defaultdict(dict)
    for name in RELOADED:
        table, field, *inner = name.split(".")
        if not inner:
            tables[table][field] = getattr(getattr(new, table), field)
    tables["node"]["limits"] = new.node.limits
    return replace(old, **{name: replace(getattr(old, name), **tables[name]) for name in tables})


def _flat(settings: Any, above: str = "") -> dict[str, object]:
    """The values by their whole names, such as `node.limits.max_payload`."""
    found: dict[str, object] = {}
    for each in fields(settings):
        value, name = getattr(settings, each.name), above + each.name
        if not above or name in TABLES:
            found |= _flat(value, f"{name}.")
        else:
            found[_NAMED.get(name, name)] = value
    return found
