"""Opening the bus of a command: a SQLite file, a Redis server, or the bus of another node.

Only publishing creates a missing file.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from parley._node.bus.address import open_bus, open_store, without_password
from parley._node.bus.bus import Bus
from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusUnavailableError
from parley._node.cli.first_contact import connect, open_node
from parley._node.cli.link import open_link, report_remarks
from parley._node.cli.options import NodeOptions
from parley._node.cli.output import Output
from parley._node.cli.standard_io import PacedOutput
from parley._node.errors import ConfigError, FileError
from parley._node.peer.link import Link

NODE_SCHEMES: Final = ("tcp://", "unix://")
_FILE: Final = "sqlite"


@asynccontextmanager
async def open_bus_at(
    options: NodeOptions, out: Output, address: str, *, consumer: str = "", new: bool = False
) -> AsyncIterator[Bus]:
    """Open the bus at an address. With `new`, its file need not exist.

    Raises:
        AddressError, ConfigError: an invalid address.
        FileError: the file doesn't exist. BusError, and the errors of `Node.connect`: the bus can't
            be reached.
    """
    config = BusConfig(consumer=consumer)
    if address.startswith(NODE_SCHEMES):
        async with connect(options, out, address) as peer, peer.bus(config) as bus:
            yield bus
        return

    file = sqlite_path(address)
    if file is not None and not new and not file.exists():
        raise FileError(
            f"cannot open the bus '{file}': the file does not exist; check the path, or publish "
            "an event to create it"
        )
    async with open_bus(address, config) as bus:
        yield bus


@asynccontextmanager
async def open_lasting_bus(
    options: NodeOptions, out: Output, address: str, pace: PacedOutput, *, consumer: str = ""
) -> AsyncIterator[tuple[Bus, Link | None]]:
    """Open the bus at an address; if it belongs to another node, reconnect after a loss.

    Yields the bus and its link, if any. The state of the link is reported on `out` through `pace`.
    Raises as `open_bus_at`.
    """
    if not address.startswith(NODE_SCHEMES):
        async with open_bus_at(options, out, address, consumer=consumer) as bus:
            yield bus, None
        return
    async with (
        open_node(options, out, address) as node,
        open_link(node, options, out, address, report_remarks(out, pace)) as link,
        link.bus(BusConfig(consumer=consumer)) as bus,
    ):
        yield bus, link


async def require_connection(link: Link | None) -> None:
    """Raise BusUnavailableError and close the link if it has no connection."""
    if link is not None and (link.peer is None or link.peer.is_suspended):
        await link.aclose(graceful=False)  # don't wait for pending requests
        raise BusUnavailableError(
            f"cannot use the bus over the {link}: the connection was lost; run the command again "
            "when that node is back"
        )


def sqlite_path(address: str) -> Path | None:
    """Return the file of the address of a SQLite bus, or None."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return None
    if parts.scheme != _FILE or not parts.path.startswith("/") or parts.path == "/":
        return None
    return Path(unquote(parts.path[1:]))


def require_offerable(url: str) -> None:
    """Raise ConfigError or AddressError if a node can't offer the bus at this address. The bus
    isn't opened.
    """

    if url.startswith(NODE_SCHEMES):
        raise ConfigError(
            f"cannot offer the bus {without_password(url)!r}: it belongs to another node; give a "
            "file or a Redis server"
        )
    open_store(url)
    file = sqlite_path(url)
    if file is not None and not file.parent.is_dir():
        raise ConfigError(
            f"cannot create a bus in '{file.parent}': the directory does not exist; create it first"
        )
