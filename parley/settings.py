"""Settings from a TOML file and the environment, and those of each part of a node."""

from lbm.noise import Padding, parse_padding
from node.settings import (
    BusSettings,
    FederationSettings,
    JournalSettings,
    NamedSettings,
    RelaySettings,
    ServeSettings,
    Settings,
    SimProtoSettings,
    load_settings,
)
from node.settings.bus import BusRight

__all__ = [
    "BusRight",
    "BusSettings",
    "FederationSettings",
    "JournalSettings",
    "NamedSettings",
    "Padding",
    "RelaySettings",
    "ServeSettings",
    "Settings",
    "SimProtoSettings",
    "load_settings",
    "parse_padding",
]
