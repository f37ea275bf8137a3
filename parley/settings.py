"""Settings from TOML files and the environment, and the settings class of each part of a node."""

from parley._lbm.padding import Padding, parse_padding
from parley._node.settings import (
    BusSettings,
    DialectSettings,
    FederationSettings,
    JournalSettings,
    NamedSettings,
    RelaySettings,
    ServeSettings,
    Settings,
    SimProtoSettings,
    load_settings,
)
from parley._node.settings.tables import BusRight

__all__ = [
    "BusRight",
    "BusSettings",
    "DialectSettings",
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
