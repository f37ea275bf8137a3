"""What `parley doctor` says of addresses where another dialect is spoken: nothing is encrypted
there, so who can reach it?

The answer follows from the address, and for a Unix socket from the file system. Nothing is dialled
or listened on.
"""

import os
import stat
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final

from parley._node.cli.doctor.findings import Diagnosis, Level
from parley._node.errors import ParleyError
from parley._node.gateways.server import is_local
from parley._node.settings import Settings, load_settings
from parley._node.transport.address import Address

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_ENTER: Final = stat.S_IXGRP | stat.S_IXOTH
_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_MEND: Final = "listen on 127.0.0.1, [::1] or a Unix socket; from afar, --forward between two nodes"


def check_settings(path: Path | None) -> Iterator[Diagnosis]:
    """What the settings (those in the file at `path`, and the variables) say of dialects."""
    try:
        settings = load_settings(path)
    except ParleyError as error:
        yield Diagnosis(
            Level.PROBLEM, "settings", str(error), "mend it: parley serve will not start"
        )
        return
    found = list(check_dialects(settings))
    yield from found
    if not found:
        yield Diagnosis(Level.OK, "dialects", "the settings name no address where one is spoken")


def check_dialects(settings: Settings) -> Iterator[Diagnosis]:
    """One finding for each address that the settings name."""
    for name, dialect in (
        ("SimProto", settings.simproto),
        ("named events", settings.named),
        ("event relay", settings.relay),
    ):
        for address in dialect.listen:
            yield check_address(name, address, allowed=settings.dialects.allow_insecure)


def check_address(dialect: str, text: str, *, allowed: bool = True) -> Diagnosis:
    """Who can reach an address; `allowed` says whether it would be listened on at all.

    Raises:
        AddressError: the text is not an address.
    """
    address = Address.parse(text).without_node_id()
    subject = f"{dialect} {address}"
    if address.scheme == "unix":
        return _of_socket(subject, Path(address.path))
    if is_local(address):
        text = "nothing is encrypted there; every program of this machine can reach it"
        mend = "if others use this machine too: a Unix socket in a directory of your own"
        return Diagnosis(Level.NOTE, subject, text, mend)
    text = (
        f"nothing is encrypted there: {_who(address.host)} can say anything, and whoever is "
        "on the way reads and changes everything"
    )
    if not allowed:
        text += "; without allow_insecure it is not listened on"
    return Diagnosis(Level.PROBLEM, subject, text, _MEND)


def _of_socket(subject: str, path: Path) -> Diagnosis:
    if _is_own(path):
        text = "nothing is encrypted there; only you (and root) can open it"
        return Diagnosis(Level.OK, subject, text)
    text = f"nothing is encrypted there; other users may open it, who can enter {path.parent}"
    return Diagnosis(Level.NOTE, subject, text, "a directory of your own: chmod 700")


def _is_own(path: Path) -> bool:
    """Whether the socket, or a directory above it, keeps all others out."""
    return any(keeps_out(each, _ENTER) for each in path.parents) or keeps_out(path, _WRITE)


def keeps_out(path: Path, needed: int) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False  # not there yet, or not ours to look into: nothing is known of it
    return status.st_uid == os.geteuid() and not status.st_mode & _OTHERS & needed


def _who(host: str) -> str:
    try:
        place: IPv4Address | IPv6Address = ip_address(host.partition("%")[0])
    except ValueError:
        return f"whoever reaches {host}, whatever machine that is,"
    if place.is_unspecified:
        return "whoever reaches any address of this machine"
    if place.is_private or place.is_link_local:
        return f"whoever is in the network of {host}"
    return f"anybody who reaches {host}, perhaps from everywhere,"
