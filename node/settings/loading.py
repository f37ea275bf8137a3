"""All settings of a node and of `parley serve`, from code, a TOML file and the environment.

One rule: what is more at hand holds: the environment over the file, the file over the
code's values, those over the defaults. Each is in docs/reference/settings.md with its
unit, range and default. Knows no command line.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from node.config import NodeConfig
from node.settings.serve import ServeSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a node, and those of `parley serve`."""

    node: NodeConfig = field(default_factory=NodeConfig)
    serve: ServeSettings = field(default_factory=ServeSettings)


def load_settings(
    path: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    code: Settings | None = None,
) -> Settings:
    """Read the settings in the TOML file at `path` and in `environ`, over those of `code`.

    `environ` is the process's environment by default; `{}` reads none. The file's tables
    are `[node]` with `[node.limits]`, `[node.algorithms]`, `[node.require]` and
    `[node.info]`, and `[serve]`; the variable of `node.limits.max_payload` is
    PARLEY_NODE_LIMITS_MAX_PAYLOAD. Tables of names and limits are merged key by key.
    Relative paths start from the file's directory, in variables from the current one.

    Raises:
        ConfigError: the file cannot be read, or there is no such setting, or its value is
            of another type or out of range; it names the file and key, or the variable.
    """
    # Who reads no settings shall not wait for the library that reads them.
    from node.settings.sources import load

    code = code or Settings()
    given = load(None if path is None else Path(path), os.environ if environ is None else environ)
    return Settings(
        node=_node(code.node, given["node"]),
        serve=replace(code.serve, **_named(given["serve"])),
    )


def _node(code: NodeConfig, given: dict[str, Any]) -> NodeConfig:
    algorithms, require = _named(given.pop("algorithms")), _named(given.pop("require"))
    limits, key = _named(given.pop("limits")), given.pop("network_key_file")
    return replace(
        code,
        algorithms={**code.algorithms, **algorithms},
        require={**code.require, **{name: frozenset(floor) for name, floor in require.items()}},
        limits=replace(code.limits, **limits),
        network_key=code.network_key if key is None else key,
        **_named(given),
    )


def _named(table: dict[str, Any]) -> dict[str, Any]:
    """What somebody named, of a table."""
    return {name: value for name, value in table.items() if value is not None}
