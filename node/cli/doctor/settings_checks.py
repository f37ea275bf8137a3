"""Checks of `parley doctor` on the settings: dialects, journal and bus.

They only read settings and files. No connection is made and nothing is changed.
"""

import os
import shutil
import sqlite3
import stat
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from time import perf_counter
from typing import Final
from urllib.parse import SplitResult, urlsplit

from parley._crypto.identity import NodeId
from parley._crypto.keyfile import AUDITOR_MAGIC
from parley._node.bus.address import without_password
from parley._node.bus.errors import BusDamagedError, BusError
from parley._node.bus.sqlite.backup import require_sound
from parley._node.bus.sqlite.database import require_bus
from parley._node.bus.sqlite.errors import bus_error
from parley._node.cli.bus.connection import require_offerable, sqlite_path
from parley._node.cli.doctor.diagnosis import Diagnosis, Level
from parley._node.cli.doctor.identity_checks import check_ended_ids, check_own_id
from parley._node.cli.doctor.machine import check_machine
from parley._node.errors import AddressError, ConfigError, ParleyError
from parley._node.gateways.server import is_local
from parley._node.settings import JournalSettings, Settings, load_settings
from parley._node.settings.tables import BusRight
from parley._node.transport.address import Address
from parley._node.trust.key_statements import KeyStatements
from parley._node.trust.known_peers import default_known_peers

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_ENTER: Final = stat.S_IXGRP | stat.S_IXOTH
_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_MEND: Final = (
    "listen on 127.0.0.1, [::1] or a Unix socket; for remote access use --forward between two nodes"
)


def check_settings(path: Path | None) -> Iterator[Diagnosis]:
    """Check the dialects in the settings of the file at `path` and the environment."""
    try:
        settings = load_settings(path)
    except ParleyError as error:
        yield Diagnosis(
            Level.PROBLEM, "settings", str(error), "correct it: parley serve will not start"
        )
        return
    found = list(check_dialects(settings))
    yield from found
    if not found:
        yield Diagnosis(Level.OK, "dialects", "the settings have no address of another dialect")


def check_dialects(settings: Settings) -> Iterator[Diagnosis]:
    for name, dialect in (
        ("SimProto", settings.simproto),
        ("named events", settings.named),
        ("event relay", settings.relay),
    ):
        for address in dialect.listen:
            yield check_address(name, address, allowed=settings.dialects.allow_insecure)


def check_address(dialect: str, text: str, *, allowed: bool = True) -> Diagnosis:
    """Check who can reach an address; `allowed` is whether a server would listen on it.

    Raises:
        AddressError: the text is not an address.
    """
    address = Address.parse(text).without_node_id()
    subject = f"{dialect} {address}"
    if address.scheme == "unix":
        return _of_socket(subject, Path(address.path))
    if is_local(address):
        text = "unencrypted: every program on this machine can connect"
        mend = "if other people use this machine, use a Unix socket in a private directory"
        return Diagnosis(Level.NOTE, subject, text, mend)
    text = (
        f"unencrypted: {_who(address.host)} can send anything, and an attacker on the path can "
        "read and change all traffic"
    )
    if not allowed:
        text += "; without allow_insecure the server does not listen there"
    return Diagnosis(Level.PROBLEM, subject, text, _MEND)


def _of_socket(subject: str, path: Path) -> Diagnosis:
    if _is_own(path):
        text = "unencrypted; only you (and root) can connect"
        return Diagnosis(Level.OK, subject, text)
    text = f"unencrypted; other users who can enter {path.parent} may connect"
    return Diagnosis(Level.NOTE, subject, text, "use a private directory: chmod 700")


def _is_own(path: Path) -> bool:
    """Whether the socket, or a directory above it, excludes all other users."""
    return any(keeps_out(each, _ENTER) for each in path.parents) or keeps_out(path, _WRITE)


def keeps_out(path: Path, needed: int) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False  # missing or not readable, so nothing is known about it
    return status.st_uid == os.geteuid() and not status.st_mode & _OTHERS & needed


def _who(host: str) -> str:
    try:
        place: IPv4Address | IPv6Address = ip_address(host.partition("%")[0])
    except ValueError:
        return f"every host that can reach {host}"
    if place.is_unspecified:
        return "every host that can reach any address of this machine"
    if place.is_private or place.is_link_local:
        return f"every host in the network of {host}"
    return f"every host that can reach {host}, possibly from anywhere,"


# Files that SQLite creates next to an open database; they also contain events.
_BESIDE: Final = ("", "-wal", "-shm")
_REDIS_PORT: Final = 6379
# Maximum seconds for checking the contents of a file.
PATIENCE: Final = 10.0


def check_bus(path: Path | None) -> Iterator[Diagnosis]:
    """Check the bus in the settings of the file at `path` and the environment."""
    try:
        settings = load_settings(path)
    except ParleyError:
        return  # check_settings reports it
    yield from check_offered(settings)
    if settings.bus.url is not None:
        yield from check_contents(settings.bus.url)


def check_offered(settings: Settings) -> Iterator[Diagnosis]:
    if settings.bus.url is not None:
        yield from check_store(settings.bus.url)
        yield from check_rights(settings)
    elif settings.bus.allow:
        text = "the settings grant rights on the bus but have no bus: parley serve will not start"
        yield Diagnosis(Level.PROBLEM, "bus", text, "set bus.url")


def check_store(url: str) -> Iterator[Diagnosis]:
    """Check who else can access the storage of the bus at an address."""
    subject = f"bus {without_password(url)}"
    try:
        require_offerable(url)
    except ParleyError as error:
        text = f"{error}: parley serve will not start"
        yield Diagnosis(Level.PROBLEM, subject, text, "give sqlite:///FILE or redis://HOST:PORT/DB")
        return
    file, parts = sqlite_path(url), urlsplit(url)
    if file is not None:
        yield from _check_file(subject, file)
    elif parts.scheme == "redis+unix":
        text = f"every user who can open {parts.path} can read and change all events"
        mend = "keep the socket in a private directory: chmod 700"
        yield Diagnosis(Level.NOTE, subject, text, mend)
    else:
        yield from _check_redis(subject, parts)


def check_contents(url: str) -> Iterator[Diagnosis]:
    """Check the events of a SQLite bus, since damage may show only later. Yields nothing for other
    buses, and for files that `check_store` reports."""
    file = sqlite_path(url)
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
        yield Diagnosis(
            Level.NOTE, subject, f"its contents were not checked: {error}", "try again later"
        )
    else:
        text = "its contents are intact"
        if not all_of_it:
            text = f"its contents were checked for {PATIENCE:g} s without finding damage"
        yield Diagnosis(Level.OK, subject, text)


def check_rights(settings: Settings) -> Iterator[Diagnosis]:
    """Check the rights that aren't limited to named nodes."""
    anybody = [right for right in settings.bus.rights if right.node_id is None]
    # Whether unknown nodes can connect, or only nodes that a policy or a network key accepts.
    strangers = settings.serve.trust == "any" and settings.node.network_key is None
    for right in anybody:
        yield _of_anybody(right, strangers=strangers)
    if not settings.bus.allow:
        text = "the bus is offered, but no node can use it"
        yield Diagnosis(Level.NOTE, "bus rights", text, "set bus.allow")
    elif not anybody:
        yield Diagnosis(Level.OK, "bus rights", "each right is granted to a named node or role")


def _of_anybody(right: BusRight, *, strangers: bool) -> Diagnosis:
    actions = "+".join(sorted(right.actions))
    subject = f"bus rights *={actions}:{right.events}:{right.groups}"
    who = "any unknown node" if strangers else "every node that can connect"
    if "manage" in right.actions:
        text = f"{who} can delete events, and make groups read them again"
        level = Level.PROBLEM if strangers else Level.WEAK
        return Diagnosis(level, subject, text, "name the node IDs that can manage the bus")
    if right.actions == {"inspect"}:
        text = f"{who} can see the events, their number and their readers"
        return Diagnosis(Level.WEAK if strangers else Level.NOTE, subject, text, "name node IDs")
    text = f"{who} can {' and '.join(sorted(right.actions))}"
    if "consume" in right.actions:
        text += ", which takes events from their intended readers"
    return Diagnosis(Level.WEAK if strangers else Level.NOTE, subject, text, "name node IDs")


def _check_file(subject: str, file: Path) -> Iterator[Diagnosis]:

    try:
        require_bus(str(file))
    except (BusError, sqlite3.Error, OSError) as error:
        text = f"{bus_error(error, str(file))}: parley serve will not start"
        yield Diagnosis(Level.PROBLEM, subject, text, "name another file, or repair this one")
        return
    found = False
    for beside in _BESIDE:
        path = Path(f"{file}{beside}")
        try:
            status = path.stat()
        except OSError:
            continue  # missing or not readable
        found = True
        if status.st_uid != os.geteuid() or status.st_mode & _WRITE:
            text = f"other users can change {path} and all events"
            yield Diagnosis(
                Level.PROBLEM, subject, text, f"chown {os.geteuid()}, chmod 600 '{path}'"
            )
        elif status.st_mode & _OTHERS:
            text = f"other users can read {path} and all events"
            yield Diagnosis(Level.WEAK, subject, text, f"chmod 600 '{path}'")
        else:
            yield Diagnosis(Level.OK, subject, f"{path} is accessible to you only")
    if not found:
        yield Diagnosis(Level.OK, subject, "it does not exist yet; it is created when needed")


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
        text = (
            "without TLS: an attacker on the path can read and change all events and the password"
        )
        yield Diagnosis(Level.WEAK, subject, text, "use rediss://, and set up TLS in redis.conf")
    if parts.password is None:
        fine = False
        who = "every program on this machine" if local else "every host that can reach the address"
        text = f"without a password: {who} can read and change all events"
        level = Level.NOTE if local else Level.PROBLEM
        yield Diagnosis(level, subject, text, "set requirepass or an ACL in redis.conf")
    if fine:
        yield Diagnosis(Level.OK, subject, "with a password" + ("" if local else ", and over TLS"))


# Minimum number of segments that should fit on the disk.
FEW_SEGMENTS: Final = 4
MOST_FILES: Final = 1_000  # files of a directory to check

_WHAT_SHOWS: Final = "peers, times and sizes are not encrypted"


def check_journal(path: Path | None) -> Iterator[Diagnosis]:
    """Check the journal in the settings of the file at `path` and the environment."""
    try:
        settings = load_settings(path).journal
    except ParleyError:
        return  # check_settings reports it
    yield from check_kept(settings)


def check_kept(settings: JournalSettings) -> Iterator[Diagnosis]:
    if settings.directory is None and not settings.auditors:
        return
    if settings.directory is None or not settings.auditors:
        what = "a directory" if settings.directory is None else "an auditor's key"
        text = f"the settings of the journal lack {what}: parley serve will not start"
        yield Diagnosis(
            Level.PROBLEM, "journal", text, "set journal.directory and journal.auditors"
        )
        return
    yield from _check_directory(settings, settings.directory)
    yield from _check_auditors(settings)
    yield from _check_keys([settings.directory, *_home()])


def _check_directory(settings: JournalSettings, directory: Path) -> Iterator[Diagnosis]:
    subject = f"journal {directory}"
    if not directory.exists():
        yield Diagnosis(Level.OK, subject, "it does not exist yet; parley serve creates it")
        return
    if not directory.is_dir() or not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        text = "you cannot write to it, or it is not a directory: parley serve will not start"
        yield Diagnosis(Level.PROBLEM, subject, text, "choose another directory")
        return
    status = directory.stat()
    if status.st_uid != os.geteuid() or status.st_mode & _WRITE:
        text = (
            "other users can remove or replace segments, which only the journals of peers would "
            "reveal"
        )
        yield Diagnosis(Level.PROBLEM, subject, text, f"chown {os.geteuid()} it, and chmod 700 it")
    elif status.st_mode & _OTHERS:
        text = f"other users can look into it; {_WHAT_SHOWS}"
        yield Diagnosis(Level.WEAK, subject, text, f"chmod 700 '{directory}'")
    else:
        yield Diagnosis(Level.OK, subject, "it is accessible to you only")
    free = shutil.disk_usage(directory).free
    if free < FEW_SEGMENTS * settings.segment_size:
        text = f"{free:,} bytes are free, room for few segments of {settings.segment_size:,}"
        follows = "the node will stop" if settings.on_failure == "stop" else "the journal will end"
        yield Diagnosis(Level.WEAK, "journal's disk", f"{text}; once it is full, {follows}", _PRUNE)


_PRUNE: Final = "run parley journal prune --max-size from time to time"


def _check_auditors(settings: JournalSettings) -> Iterator[Diagnosis]:
    count = len(set(settings.auditors))
    if count == 1:
        text = "one auditor can read the journal: if that key is lost, the journal is unreadable"
        yield Diagnosis(
            Level.NOTE, "auditors", text, "add a second auditor, and store that key elsewhere"
        )
    else:
        yield Diagnosis(Level.OK, "auditors", f"{count} auditors can read the journal, each alone")


def _check_keys(directories: Iterable[Path]) -> Iterator[Diagnosis]:
    """Find auditors' private keys, which should not be on this machine."""
    for directory in directories:
        try:
            found = [path for path in sorted(directory.iterdir())[:MOST_FILES] if _is_key(path)]
        except OSError:
            continue
        for path in found:
            text = "an auditor's private key: anyone who copies it can read this machine's journals"
            yield Diagnosis(Level.WEAK, f"file {path}", text, "move it to another machine")


def _is_key(path: Path) -> bool:
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(AUDITOR_MAGIC)) == AUDITOR_MAGIC
    except OSError:
        return False  # a key that this user cannot read cannot decrypt anything


def _home() -> list[Path]:
    try:
        return [default_known_peers().parent]
    except ConfigError:
        return []


def findings(settings: Settings, own: NodeId, statements: KeyStatements) -> list[dict[str, str]]:
    """Return the findings about this machine and the settings of a running server, which has the
    node ID `own` and these key statements.
    """
    return [asdict(found) for found in _diagnoses(settings, own, statements)]


def _diagnoses(settings: Settings, own: NodeId, statements: KeyStatements) -> Iterator[Diagnosis]:
    yield from check_machine()
    yield from check_own_id(own, settings, statements)
    yield from check_dialects(settings)
    yield from check_kept(settings.journal)
    yield from check_offered(settings)
    yield from check_ended_ids(settings, statements)
