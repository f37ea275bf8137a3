"""Settings of nodes with other internal limits than the default ones."""

from dataclasses import fields, replace
from typing import Any

from parley._node.config import NodeConfig, Tuning

_NAMES = frozenset(field.name for field in fields(Tuning))


def tuned(**settings: Any) -> NodeConfig:
    """Return a NodeConfig; arguments that are fields of `Tuning` are set there."""
    return changed(NodeConfig(), **settings)


def changed(config: NodeConfig, **settings: Any) -> NodeConfig:
    """Return `config` with other values, as `tuned` takes them."""
    limits = {name: value for name, value in settings.items() if name in _NAMES}
    others = {name: value for name, value in settings.items() if name not in _NAMES}
    return replace(config, tuning=replace(config.tuning, **limits), **others)
