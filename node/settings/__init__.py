"""Settings from code, a TOML file and the environment: `load_settings`."""

from node.settings.dialects import NamedSettings, RelaySettings, SimProtoSettings
from node.settings.loading import Settings, load_settings
from node.settings.serve import ServeSettings

__all__ = [
    "NamedSettings",
    "RelaySettings",
    "ServeSettings",
    "Settings",
    "SimProtoSettings",
    "load_settings",
]
