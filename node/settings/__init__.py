"""Settings from code, a TOML file and the environment: `load_settings`."""

from parley._node.settings.sources import Settings, load_settings
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

__all__ = [
    "BusSettings",
    "DialectSettings",
    "FederationSettings",
    "JournalSettings",
    "NamedSettings",
    "RelaySettings",
    "ServeSettings",
    "Settings",
    "SimProtoSettings",
    "load_settings",
]
