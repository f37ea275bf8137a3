"""Settings from code, a TOML file and the environment: `load_settings`."""

from node.settings.bus import BusSettings
from node.settings.dialects import NamedSettings, RelaySettings, SimProtoSettings
from node.settings.federation import FederationSettings
from node.settings.journal import JournalSettings
from node.settings.serve import ServeSettings
from node.settings.sources import Settings, load_settings

__all__ = [
    "BusSettings",
    "FederationSettings",
    "JournalSettings",
    "NamedSettings",
    "RelaySettings",
    "ServeSettings",
    "Settings",
    "SimProtoSettings",
    "load_settings",
]
