"""The bus that a command works on: a file, a Redis, or another node's over the network.

One rule: looking for a file makes none; only what publishes makes a bus that is not there.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from node.bus.config import BusConfig
from node.cli.exits import FileProblem
from node.cli.options import NodeOptions
from node.cli.output import Output
from node.cli.run import dialled

if TYPE_CHECKING:
    from node.bus.bus import Bus

NODES: Final = ("tcp://", "unix://")
_FILE: Final = "sqlite"


@asynccontextmanager
async def opened(
    options: NodeOptions, out: Output, address: str, *, consumer: str = "", new: bool = False
) -> "AsyncIterator[Bus]":
    """The bus at an address, closed at the end; `new` says that its file need not be there.

    Raises:
        AddressError, ConfigError: no address of a bus. FileProblem: there is no such file.
        BusError, and what `Node.connect` raises: it cannot be reached.
    """
    config = BusConfig(consumer=consumer)
    if address.startswith(NODES):
        async with dialled(options, out, address) as peer, peer.bus(config) as bus:
            yield bus
        return
    # Only here, since it reads settings for Redis as well.
    from node.bus.bus import open_bus

    file = file_of(address)
    if file is not None and not new and not file.exists():
        raise FileProblem(f"there is no bus at {file}")
    async with open_bus(address, config) as bus:
        yield bus


def file_of(address: str) -> Path | None:
    """The file that an address names; None of another kind of bus, or of none."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return None
    if parts.scheme != _FILE or not parts.path.startswith("/") or parts.path == "/":
        return None
    return Path(unquote(parts.path[1:]))


def without_password(address: str) -> str:
    """An address as it may be shown: without its settings, and who logs in there with what."""
    scheme, mark, rest = address.partition("://")
    if scheme != _FILE:
        rest = rest.rpartition("@")[2]
    return f"{scheme}{mark}{rest.partition('?')[0]}"
