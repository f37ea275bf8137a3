"""The base class of the servers of foreign dialects, and their plaintext listeners.

The dialects don't encrypt. Listeners therefore accept only loopback addresses and Unix sockets,
unless the caller allows an insecure address.
"""

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from ipaddress import ip_address
from types import TracebackType
from typing import Generic, Self, TypeVar

import anyio

from parley._node.errors import InsecureAddressError, ParleyError
from parley._node.fair_slots import FairSlots
from parley._node.gateways.guest import Guest
from parley._node.logs import RateLimitedLogger
from parley._node.protocol.limits import CLOSE_LINGER
from parley._node.protocol.memory_budget import MemoryBudget
from parley._node.transport.address import Address
from parley._node.transport.backend import Backend, Listener
from parley._node.transport.conditions import Condition
from parley._node.transport.driver import Driver
from parley._node.trust.admission import address_key

G = TypeVar("G", bound=Guest)

# Seconds to write the queued data and to wait until the other sides close.
CLOSE_TIMEOUT = CLOSE_LINGER + 1.0


access = logging.getLogger("parley.access")


class PlaintextListener:
    """The listening addresses of one dialect, for at most `most_clients` connections.

    `accept` creates a driver for a connection from an address. At the limit, a new connection can
    replace the oldest connection of the remote address with the most connections, if its own
    address has at least two fewer. `owner_of` returns the key of an address. `drop` closes a
    connection for which `is_open` returns True. `turned_away` counts rejected connections.
    """

    __slots__ = (
        "_accept",
        "_backend",
        "_drivers",
        "_drop",
        "_ending",
        "_full",
        "_is_open",
        "_listeners",
        "_most_clients",
        "_owner_of",
        "turned_away",
    )

    def __init__(
        self,
        backend: Backend,
        accept: Callable[[str], Driver],
        most_clients: int,
        owner_of: Callable[[str], Hashable],
        is_open: Callable[[Driver], bool],
        drop: Callable[[Driver], None],
    ) -> None:
        self._backend = backend
        self._accept = accept
        self._most_clients = most_clients
        self._listeners: list[Listener] = []
        self._owner_of = owner_of
        self._is_open = is_open
        self._drop = drop
        self._drivers: FairSlots[Driver] = FairSlots(self._idle_since, idle=math.inf)
        self._ending = False
        self._full = (
            RateLimitedLogger()
        )  # clients can cause these lines before they have authenticated
        self.turned_away = 0

    def __len__(self) -> int:
        return len(self._drivers)

    @property
    def addresses(self) -> list[str]:
        return [str(listener.address) for listener in self._listeners]

    async def listen(self, address: str, *, allow_insecure: bool = False) -> str:
        """Listen on an address; see `DialectServer.listen`."""
        place = Address.parse(address).without_node_id()
        if not allow_insecure and not is_local(place):
            raise InsecureAddressError(str(place))
        listener = await self._backend.listen(place, self.admitted)
        self._listeners.append(listener)
        return str(listener.address)

    def left(self, driver: Driver) -> None:
        """Remove a connection that has ended."""
        self._drivers.remove(driver)

    async def stop_listening(self) -> None:
        """Stop accepting; accepted connections continue."""
        self._ending = True
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            await listener.aclose()

    def admitted(self, name: str) -> Driver | None:
        if self._ending:
            return None  # the event loop had already accepted it when the listener was closed
        owner = self._owner_of(name)
        if len(self._drivers) >= self._most_clients and not self._evict_for(owner):
            self.turned_away += 1
            self._full.log(
                access,
                logging.WARNING,
                self._backend.now(),
                "rejected a connection from %s: too many clients (limit %d)",
                name,
                self._most_clients,
                extra={
                    "event": "connection.turned-away",
                    "address": name,
                    "reason": "too many clients",
                },
            )
            return None
        driver = self._accept(name)
        self._drivers.add(driver, owner)
        return driver

    def _evict_for(self, owner: Hashable) -> bool:
        evicted = self._drivers.evict_for(owner, 0.0)
        if evicted is None:
            return False
        self._drop(evicted)
        return True

    def _idle_since(self, driver: Driver) -> float | None:
        """Return the same time for all open connections, so that the oldest is evicted first."""
        return 0.0 if self._is_open(driver) else None


class DialectServer(ABC, Generic[G]):
    """A server of one dialect for at most `clients` connections, called `what` in errors.

    All clients together may use `memory` bytes, charged to `account`. Leaving the `async with`
    block stops listening, lets handlers finish, and closes all connections.
    """

    def __init__(self, what: str, clients: int, memory: int) -> None:
        self.account = MemoryBudget(memory)
        self._what = what
        self._most_clients = clients
        self._gateway: PlaintextListener | None = None
        self._guests: dict[Driver, G] = {}
        self._changes = Condition(lambda: self.backend.waiter())

    # Listeners and connected clients.

    @property
    @abstractmethod
    def backend(self) -> Backend:
        """The event loop; raises ParleyError if it isn't running."""

    @property
    def addresses(self) -> list[str]:
        """The listening addresses."""
        return self._gateway.addresses if self._gateway is not None else []

    @property
    def turned_away(self) -> int:
        """Number of connections that were rejected because of `limits.clients`."""
        return self._gateway.turned_away if self._gateway is not None else 0

    async def listen(self, address: str, *, allow_insecure: bool = False) -> str:
        """Listen on `tcp://host:port` (port 0: any free port) or `unix:///path`.

        Returns:
            The address to dial.

        Raises:
            InsecureAddressError: other machines can reach the address, and `allow_insecure` is
                False.
            AddressError: `address` is not a valid address.
            UnreachableError: the system refuses to listen on the address.
            ParleyError: the server is not running.
        """
        return await self._running().listen(address, allow_insecure=allow_insecure)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition is true; it is checked when a client connects or leaves."""
        await self._changes.until(condition)

    async def __aenter__(self) -> Self:
        """Start the server.

        Raises:
            ParleyError: the server is already running, or its node isn't.
        """
        if self._gateway is not None:
            raise ParleyError(f"{self._what} is already running")
        self._gateway = PlaintextListener(
            await self._enter(),
            self._accept,
            self._most_clients,
            owner_of=lambda name: address_key(name)[0],
            is_open=lambda driver: driver in self._guests and self._guests[driver].is_open,
            drop=lambda driver: self._guests[driver].drop(),
        )
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        """Stop listening, let handlers finish, and close all connections; after an exception, close
        them immediately.
        """
        hasty = exc_type is not None
        try:
            # Connections and listeners are closed even on cancellation.
            with anyio.CancelScope(shield=True):
                await self._running().stop_listening()
                if not hasty:
                    await self._drain()
                for guest in list(self._guests.values()):
                    self._dismiss(guest, hasty=hasty)
                with anyio.move_on_after(CLOSE_TIMEOUT):
                    await self._changes.until(lambda: not self._guests)
        finally:
            self._gateway = None
            await self._leave()

    # Subclasses implement or use these.

    @abstractmethod
    def _new_guest(self, name: str) -> G:
        """Return the guest that connects from `name`; it calls `_gone` when its connection has
        ended.
        """

    async def _enter(self) -> Backend:
        return self.backend

    async def _drain(self) -> None:
        """Reject new requests and let running ones finish."""

    def _dismiss(self, guest: G, *, hasty: bool) -> None:
        """End one connection without waiting."""
        if hasty:
            guest.drop()
        else:
            guest.begin_close()

    async def _leave(self) -> None: ...

    def _welcome(self, guest: G) -> None:
        self._guests[guest.driver] = guest
        self._changes.notify()

    def _gone(self, guest: Guest) -> None:
        self._guests.pop(guest.driver, None)
        if self._gateway is not None:
            self._gateway.left(guest.driver)
        self._changes.notify()

    def _running(self) -> PlaintextListener:
        if self._gateway is None:
            raise ParleyError(f"{self._what} is not running: use `async with`")
        return self._gateway

    def _accept(self, name: str) -> Driver:
        guest = self._new_guest(name)
        self._welcome(guest)
        return guest.driver


def is_local(address: Address) -> bool:
    """Return whether only programs on this machine can reach an address."""
    if address.scheme in ("unix", "memory") or address.host == "localhost":
        return True
    try:
        return ip_address(address.host.partition("%")[0]).is_loopback
    except ValueError:
        return False  # a host name, which can resolve to another address later
