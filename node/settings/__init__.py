"""Settings from code, a TOML file and the environment: `load_settings`."""

from node.settings.bus import BusSettings
from node.settings.dialects import NamedSettings, RelaySettings, SimProtoSettings
from node.settings.journal import JournalSettings
from node.settings.loading import Settings, load_settings
from node.settings.serve import ServeSettings

__all__ = [
    "BusSettings",
    "JournalSettings",
    "NamedSettings",
    "RelaySettings",
    "ServeSettings",
    "Settings",
    "SimProtoSettings",
    "load_settings",
]
