"""What `parley doctor` says of a bus: who may use it, and who else can reach its store.

The answer follows from the settings and from files, which are only read. Nothing is dialled or
changed.
"""

import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Final
from urllib.parse import SplitResult, urlsplit

from parley._node.bus.address import without_password
from parley._node.bus.errors import BusDamagedError, BusError
from parley._node.bus.sqlite.backup import require_sound
from parley._node.bus.sqlite.database import require_bus
from parley._node.bus.sqlite.errors import bus_error
from parley._node.cli.bus.connection import file_of
from parley._node.cli.doctor.findings import Diagnosis, Level
from parley._node.cli.serve.bus import require_own
from parley._node.errors import AddressError, ParleyError
from parley._node.gateways.server import is_local
from parley._node.settings import Settings, load_settings
from parley._node.settings.bus import BusRight
from parley._node.transport.address import Address

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
# What SQLite keeps beside a database while it is open; events stand there too.
_BESIDE: Final = ("", "-wal", "-shm")
_REDIS_PORT: Final = 6379
# Seconds for which the contents of a file are checked.
PATIENCE: Final = 10.0


def check_bus(path: Path | None) -> Iterator[Diagnosis]:
    """What the settings (those in the file at `path`, and the variables) say of a bus."""
    try:
        settings = load_settings(path)
    except ParleyError:
        return  # said of the settings as a whole
    yield from check_offered(settings)
    if settings.bus.url is not None:
        yield from check_contents(settings.bus.url)


def check_offered(settings: Settings) -> Iterator[Diagnosis]:
    """What settings say of a bus; nothing without one."""
    if settings.bus.url is not None:
        yield from check_store(settings.bus.url)
        yield from check_rights(settings)
    elif settings.bus.allow:
        text = "the settings have rights of a bus and name none: parley serve will not start"
        yield Diagnosis(Level.PROBLEM, "bus", text, "name bus.url")


def check_store(url: str) -> Iterator[Diagnosis]:
    """Who else can reach what the bus at an address keeps."""
    subject = f"bus {without_password(url)}"
    try:
        require_own(url)
    except ParleyError as error:
        text = f"{error}: parley serve will not start"
        yield Diagnosis(Level.PROBLEM, subject, text, "sqlite:///FILE or redis://HOST:PORT/DB")
        return
    file, parts = file_of(url), urlsplit(url)
    if file is not None:
        yield from _check_file(subject, file)
    elif parts.scheme == "redis+unix":
        text = f"whoever may open {parts.path} reads and changes all events"
        mend = "keep the socket in a directory of your own: chmod 700"
        yield Diagnosis(Level.NOTE, subject, text, mend)
    else:
        yield from _check_redis(subject, parts)


def check_contents(url: str) -> Iterator[Diagnosis]:
    """Whether the events of a bus in a file can be read; a damaged file may show it only later.
    Nothing for a bus that doesn't have a file, or whose file `check_store` reports."""
    file = file_of(url)
    if file is None or not file.is_file():
        return
    subject = f"bus {without_password(url)}"
    try:
        require_bus(str(file))
    except (BusError, sqlite3.Error, OSError):
        return
    try:
        end = perf_counter() + PATIENCE
        all_of_it = require_sound(str(file), lambda: perf_counter() > end)
    except BusDamagedError as error:
        text = f"{error}: events may be lost"
        mend = f"stop the node, then parley bus restore BACKUP {without_password(url)}"
        yield Diagnosis(Level.PROBLEM, subject, text, mend)
    except BusError as error:
        yield Diagnosis(Level.NOTE, subject, f"its contents were not checked: {error}", "try later")
    else:
        text = "its contents are sound"
        if not all_of_it:
            text = f"its contents were checked for {PATIENCE:g} s, and no damage was found"
        yield Diagnosis(Level.OK, subject, text)


def check_rights(settings: Settings) -> Iterator[Diagnosis]:
    """What anybody may do with the bus that is offered."""
    anybody = [right for right in settings.bus.rights if right.node_id is None]
    # Any stranger may come, or only nodes that a policy or a network key lets in.
    strangers = settings.serve.trust == "any" and settings.node.network_key is None
    for right in anybody:
        yield _of_anybody(right, strangers=strangers)
    if not settings.bus.allow:
        text = "it is offered, and no node may use it"
        yield Diagnosis(Level.NOTE, "bus rights", text, "name bus.allow")
    elif not anybody:
        yield Diagnosis(Level.OK, "bus rights", "each is a node's whose id is named")


def _of_anybody(right: BusRight, *, strangers: bool) -> Diagnosis:
    actions = "+".join(sorted(right.actions))
    subject = f"bus rights *={actions}:{right.events}:{right.groups}"
    who = "any stranger" if strangers else "every node that is let in"
    if "manage" in right.actions:
        text = f"{who} may throw events away, and have groups read them again"
        level = Level.PROBLEM if strangers else Level.WEAK
        return Diagnosis(level, subject, text, "name the node ids that may manage")
    if right.actions == {"inspect"}:
        text = f"{who} may see the events, how many there are, and who reads them"
        return Diagnosis(Level.WEAK if strangers else Level.NOTE, subject, text, "name node ids")
    text = f"{who} may {' and '.join(sorted(right.actions))}"
    if "consume" in right.actions:
        text += ", and so take events away from their readers"
    return Diagnosis(Level.WEAK if strangers else Level.NOTE, subject, text, "name node ids")


def _check_file(subject: str, file: Path) -> Iterator[Diagnosis]:

    try:
        require_bus(str(file))
    except (BusError, sqlite3.Error, OSError) as error:
        text = f"{bus_error(error, str(file))}: parley serve will not start"
        yield Diagnosis(Level.PROBLEM, subject, text, "name another file, or mend this one")
        return
    found = False
    for beside in _BESIDE:
        path = Path(f"{file}{beside}")
        try:
            status = path.stat()
        except OSError:
            continue  # not there yet, or not ours to look into
        found = True
        if status.st_uid != os.geteuid() or status.st_mode & _WRITE:
            text = f"others may change {path}, and so all events"
            yield Diagnosis(
                Level.PROBLEM, subject, text, f"chown {os.geteuid()}, chmod 600 '{path}'"
            )
        elif status.st_mode & _OTHERS:
            text = f"others can read {path}, and so all events"
            yield Diagnosis(Level.WEAK, subject, text, f"chmod 600 '{path}'")
        else:
            yield Diagnosis(Level.OK, subject, f"{path} is yours alone")
    if not found:
        yield Diagnosis(Level.OK, subject, "it is not there yet; it is made when it is needed")


def _check_redis(subject: str, parts: SplitResult) -> Iterator[Diagnosis]:
    try:
        host = parts.hostname or "127.0.0.1"
        place = f"[{host}]" if ":" in host else host
        local = is_local(Address.parse(f"tcp://{place}:{parts.port or _REDIS_PORT}"))
    except AddressError as error:
        yield Diagnosis(Level.PROBLEM, subject, str(error), "redis://HOST:PORT/DB")
        return
    fine = True
    if parts.scheme == "redis" and not local:
        fine = False
        text = "without TLS: whoever is on the way reads and changes all events, and the password"
        yield Diagnosis(Level.WEAK, subject, text, "rediss://, with TLS in redis.conf")
    if parts.password is None:
        fine = False
        who = "every program of this machine" if local else "whoever reaches that address"
        text = f"without a password: {who} reads and changes all events"
        level = Level.NOTE if local else Level.PROBLEM
        yield Diagnosis(level, subject, text, "requirepass or an ACL in redis.conf")
    if fine:
        yield Diagnosis(Level.OK, subject, "with a password" + ("" if local else ", and over TLS"))
