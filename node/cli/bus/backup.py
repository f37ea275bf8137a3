"""`parley bus backup` and `restore`: copy a SQLite bus while it is in use, and restore a copy."""

from pathlib import Path

from parley._node.bus.address import without_password
from parley._node.bus.sqlite import backup as backups
from parley._node.cli.bus.connection import sqlite_path
from parley._node.cli.output import Output, pluralise
from parley._node.cli.terminal import show_stage
from parley._node.errors import ConfigError


def backup(
    bus: str,
    file: Path,
    as_json: bool,
) -> None:
    path = _file(bus, "back up")
    out = Output(as_json)

    with show_stage(out, "copying"):
        backups.back_up(str(path), str(file))
    size = file.stat().st_size
    out.effect = f"the copy is in {file}"
    out.print(f"{file}  {pluralise(size, 'byte')}")
    out.done(file=str(file), size=size)


def restore(
    file: Path,
    bus: str,
    as_json: bool,
) -> None:
    path = _file(bus, "restore")
    out = Output(as_json)

    with show_stage(out, "copying"):
        kept = backups.restore(str(file), str(path))
    out.effect = f"{path} restored from {file}"
    out.print(out.effect)
    if kept is not None:
        out.print(f"the former bus was renamed to {kept}")
    out.done(file=str(path), kept=kept)


def _file(bus: str, verb: str) -> Path:
    path = sqlite_path(bus)
    if path is None:
        raise ConfigError(
            f"cannot {verb} {without_password(bus)!r}: it is not a SQLite bus; give "
            "sqlite:///FILE, or use the tools of Redis"
        )
    return path
