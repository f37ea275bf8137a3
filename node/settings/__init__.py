"""Settings from code, a TOML file and the environment: `load_settings`."""

from node.settings.loading import Settings, load_settings
from node.settings.serve import ServeSettings

__all__ = ["ServeSettings", "Settings", "load_settings"]
