"""Settings from code, a TOML file and the environment: `load_settings`."""

from parley._node.settings.bus import BusSettings
from parley._node.settings.dialects import (
    DialectSettings,
    NamedSettings,
    RelaySettings,
    SimProtoSettings,
)
from parley._node.settings.federation import FederationSettings
from parley._node.settings.journal import JournalSettings
from parley._node.settings.serve import ServeSettings
from parley._node.settings.sources import Settings, load_settings

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
