"""Generate the page of settings from the annotations of the settings' dataclasses."""

from collections.abc import Iterator
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from parley._node.settings import Settings
from parley._node.settings.catalogue import REMOVED, SETTINGS, TABLES, Setting, value_of

PAGE: Final = "docs/reference/settings.md"
# The purpose of each table.
INTROS: Final = {
    "node": "Settings of all connections of a node: `NodeConfig` in code, without the table "
    "`[node.algorithms]`. By default, the lists in `[node.algorithms]` follow the order of the "
    "registry. The responder's order decides.",
    "node.limits": "Limits that a node announces in Hello and Reply: `Limits` in code. The minimum "
    "of both sides applies; `peer.limits` contains it. [The limits](limits.md) lists the codes for "
    "exceeding them.",
    "serve": "For `parley serve` and `parley run`: `ServeSettings`.",
    "journal": "For [the journal](../guides/journal.md) of `parley serve` and `parley run`: "
    "`JournalSettings`. `Journal.open` in code has more parameters.",
    "bus": "The [durable bus](../guides/bus.md) that `parley serve` offers to other nodes: "
    "`BusSettings`. The settings of the bus itself (`BusConfig`) are in the query of `url`.",
    "federation": "The role of a server in a [federation](../guides/federation.md): "
    "`FederationSettings`. Without this table, a node is not part of a federation.",
    "dialects": "For all [other dialects](../dialects.md): `DialectSettings`.",
    "dialects.limits": "Limits for the clients of all gateways and relays: `DialectLimits`, which "
    "has more fields in code.",
    "simproto": "`SimProtoSettings`.",
    "named": "`NamedSettings`.",
    "relay": "`RelaySettings`.",
}
_HEAD: Final = """# Settings

`parley serve` and `parley run` read settings from a TOML file (`--config`), from environment
variables and from options; a program reads them with `parley.settings.load_settings`. Options
override variables, variables override the file, and the file overrides values given in code. All
sources are merged and then checked once.

    settings = load_settings("parley.toml")
    node = Node(identity, config=settings.node)

The variable of a setting is its whole name in capitals after `PARLEY_`, with `_` for each dot:
`node.limits.max_payload` is `PARLEY_NODE_LIMITS_MAX_PAYLOAD`. In a variable a list is separated
by commas, a flag is `true` or `false`, and `info` is an inline table (`{name = "a"}`). Types are
strict: `"5"` isn't a number in TOML, and `5.0` isn't a whole number. Relative paths start from
the file's directory, in variables from the current one; `~` is the home directory. An unknown
name or a wrong value is a `ConfigError` that names the setting, its value and its source.

Files and variables never contain secrets: the network key and the passphrase are in separate
files.

A server applies changes of the settings marked *reload* at
[SIGHUP](../guides/run-a-server.md#reload), without a restart.

[Limits](limits.md) lists limits that aren't settings.
"""


def build() -> str:
    """Return the text of the page."""
    return "\n".join([_HEAD, *_tables(), *_example(), *_removed()])


def _tables() -> Iterator[str]:
    defaults = Settings()
    for table in TABLES:
        yield f"## {table}\n\n{INTROS[table]}\n"
        yield "| setting | type | default | reload | description |"
        yield "| --- | --- | --- | --- | --- |"
        for setting in _of(table):
            name = setting.name.removeprefix(f"{table}.")
            default = _default(setting, value_of(defaults, setting.name))
            reload = "yes" if setting.reload else "no"
            text = setting.meta.description
            yield f"| `{name}` | {_type(setting)} | {default} | {reload} | {text} |"
        yield ""


def _of(table: str) -> Iterator[Setting]:
    """Yield the settings of a table and of its subtables that have no section."""
    for name, setting in SETTINGS.items():
        above = name.rpartition(".")[0]
        if above == table or (above not in TABLES and above.startswith(f"{table}.")):
            yield setting


def _type(setting: Setting) -> str:
    unit = (setting.meta.extra or {})["unit"]
    range_text = _range(setting.meta)
    return ", ".join(filter(None, (_kind(setting.hint), unit, range_text)))


def _kind(hint: Any) -> str:
    if get_origin(hint) in (Union, UnionType):
        kinds = [_kind(each) for each in get_args(hint) if each is not type(None)]
        return " or ".join(dict.fromkeys(kinds))
    if get_origin(hint) is Literal:
        return ", ".join(f"`{each}`" for each in get_args(hint))
    if get_origin(hint) is tuple:
        return "list"
    if get_origin(hint) is not None:
        return "table"
    names = {"int": "whole number", "float": "number", "bool": "flag", "Path": "path"}
    return names.get(hint.__name__, "text")


def _range(meta: Any) -> str:
    if meta.gt is not None:
        return f"above {meta.gt:,}"
    if meta.le is not None:
        return f"{meta.ge:,} to {meta.le:,.0f}"
    return "" if meta.ge is None else f"{meta.ge:,} or more"


def _default(setting: Setting, value: Any) -> str:
    if setting.name.startswith("node.algorithms."):
        return "all"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{value:,.10g}"
    shown = value[0] if isinstance(value, tuple) and value else value
    return f"`{shown}`" if shown else ""


def _example() -> Iterator[str]:
    yield "## Example\n\nThis file sets every setting that has a default to it:\n\n```toml"
    defaults = Settings()
    for table in TABLES:
        lines = [_line(each.name, value_of(defaults, each.name)) for each in _of(table)]
        lines = [line for line in lines if line]
        if lines:
            yield "\n".join([f"[{table}]", *lines]) + "\n"
    yield "```\n"


def _line(name: str, value: Any) -> str:
    key = name.rpartition(".")[2]
    if isinstance(value, bool):
        return f"{key} = {str(value).lower()}"
    if isinstance(value, int | float):
        return f"{key} = {value:_.10g}".replace("e+", "e")
    if isinstance(value, tuple) and value:
        return f"{key} = {list(value)}".replace("'", '"')
    return f'{key} = "{value}"' if value and not isinstance(value, tuple | dict) else ""


def _removed() -> Iterator[str]:
    yield "## Settings of earlier versions\n"
    yield "A file or variable that uses one of these causes an error that explains what to do.\n"
    yield "| setting | now |"
    yield "| --- | --- |"
    for name, text in REMOVED.items():
        yield f"| `{name}` | {text} |"
    yield ""
