"""The bus that `parley serve` offers to other nodes: its options, its rights, and its announcement.

Whatever the rights do not allow is refused; a bus without rights is announced as such.
"""

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

from parley._node.bus.address import open_store, without_password
from parley._node.bus.remote.authorisation import BusRequest
from parley._node.cli.bus.connection import NODES, file_of
from parley._node.cli.output import Output
from parley._node.errors import ConfigError
from parley._node.handlers.permissions import Roles
from parley._node.node import Node
from parley._node.settings.bus import BusSettings


class BusRights:
    """Who may do what to the bus of a server: what its settings say, which may change, of nodes
    and of `roles`."""

    def __init__(self, settings: BusSettings, roles: Roles) -> None:
        self._roles = roles
        self.change(settings)

    def change(self, settings: BusSettings) -> None:
        """Have these from the next request on."""
        self._rights = settings.rights

    def allow(self, request: BusRequest) -> bool | Awaitable[bool]:
        """Whether a request of a peer is allowed; where a role decides, that may have to be asked
        of the application."""
        who, group, name = request.peer.node_id, request.group or "", request.name or ""
        roles = frozenset(
            right.role
            for right in self._rights
            if right.allows(who, request.action, name, group, (right.role,))
        )
        if "" in roles:
            return True
        if not roles or who is None:
            return False
        return self._roles.include(roles, who, request.peer.backend.now())


def require_bus(settings: BusSettings) -> None:
    """Raise ConfigError if there are rights, and no bus."""
    if settings.allow and settings.url is None:
        raise ConfigError(
            f"cannot allow {next(iter(settings.allow))} on the bus: no bus is configured; "
            "give --bus, or set bus.url"
        )


@asynccontextmanager
async def offered(node: Node, settings: BusSettings, rights: BusRights) -> AsyncIterator[None]:
    """While it lasts, the node offers the bus of the settings, if they name one.

    Raises:
        ConfigError: no address of a bus. BusError: it cannot be opened.
    """
    if settings.url is None:
        yield
        return
    require_own(settings.url)
    async with node.bus(settings.url, allow=rights.allow):
        yield


def require_own(url: str) -> None:
    """Raise ConfigError or AddressError unless it is the address of a bus that a node may offer;
    nothing is opened."""

    if url.startswith(NODES):
        raise ConfigError(
            f"cannot offer the bus {without_password(url)!r}: it belongs to another node; give a "
            "file or a Redis server"
        )
    open_store(url)
    file = file_of(url)
    if file is not None and not file.parent.is_dir():
        raise ConfigError(f"there is no directory {file.parent} for the bus")


def announce_bus(out: Output, settings: BusSettings) -> None:
    """Say what is offered, and to how many."""
    if settings.url is None:
        return
    url = without_password(settings.url)
    out.say(f"offering the bus at {url}")
    if not settings.allow:
        out.say("no node may use it: give --bus-allow")
    out.event("bus", url=url, rights=list(settings.allow))
