"""The bus that a command works on: a file, a Redis, or another node's over the network.

Looking for a bus never creates its file; only publishing does.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import unquote, urlsplit

import anyio

from node.backoff import Pauses
from node.bus.bus import Bus
from node.bus.bus_address import open_bus
from node.bus.config import BusConfig
from node.bus.consumers.roster import process_name
from node.bus.errors import BusClosedError, BusUnavailableError
from node.bus.retry import TRANSIENT, jitter
from node.cli.options import NodeOptions
from node.cli.output import Output
from node.cli.run import dialled, linked, make_node
from node.errors import (
    FileError,
    HandshakeError,
    NotTrustedError,
    PeerClosedError,
    UnreachableError,
)
from node.logs import one_line

NODES: Final = ("tcp://", "unix://")
_FILE: Final = "sqlite"
# What is over when the connection can be made again.
_LOST: Final = (BusClosedError, *TRANSIENT, PeerClosedError, HandshakeError, UnreachableError)
_PAUSES: Final = Pauses()

T = TypeVar("T")


@asynccontextmanager
async def opened(
    options: NodeOptions, out: Output, address: str, *, consumer: str = "", new: bool = False
) -> AsyncIterator[Bus]:
    """The bus at an address, closed at the end; `new` says that its file need not be there.

    Raises:
        AddressError, ConfigError: no address of a bus. FileError: there is no such file.
        BusError, and what `Node.connect` raises: it cannot be reached.
    """
    config = BusConfig(consumer=consumer)
    if address.startswith(NODES):
        async with dialled(options, out, address) as peer, peer.bus(config) as bus:
            yield bus
        return

    file = file_of(address)
    if file is not None and not new and not file.exists():
        raise FileError(f"there is no bus at {file}")
    async with open_bus(address, config) as bus:
        yield bus


async def kept_open(
    options: NodeOptions,
    out: Output,
    address: str,
    use: Callable[[Bus], Awaitable[T]],
    *,
    consumer: str = "",
    patience: float | None = None,
) -> T:
    """What `use` makes of the bus at an address. A connection to another node that is lost is made
    again, by the same node, for `patience` seconds or as long as it takes, and the bus used anew
    under the same name of a consumer; the first one has to be made. Raises as `opened` and `use`.
    """
    if not address.startswith(NODES):
        async with opened(options, out, address, consumer=consumer) as bus:
            return await use(bus)
    config = BusConfig(consumer=consumer or process_name())
    failures, lost = 0, inf
    async with make_node(options) as node:
        while True:
            began = inf
            try:
                async with (
                    linked(node, options, out, address) as peer,
                    peer.bus(config) as bus,
                ):
                    began = anyio.current_time()
                    return await use(bus)
            except _LOST as error:
                now = anyio.current_time()
                if began < inf:
                    lost = now
                if lost == inf or isinstance(error, NotTrustedError):
                    raise
                failures = 1 if now - began >= _PAUSES.steady else failures + 1
                seconds = _PAUSES.after(failures, jitter())
                why = one_line(str(error))
                if patience is not None and now + seconds > lost + patience:
                    raise BusUnavailableError(why) from error
                out.event("disconnected", text=why, again_in=seconds)
                out.remark(f"{why}; connecting again in {seconds:.1f} s")
                await anyio.sleep(seconds)


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
    """An address as it may be shown: without settings, user and password."""
    scheme, mark, rest = address.partition("://")
    if not mark:
        return "?"  # not an address: any part of it may be the password
    if scheme != _FILE:
        rest = rest.rpartition("@")[2]
    return f"{scheme}{mark}{rest.partition('?')[0]}"
