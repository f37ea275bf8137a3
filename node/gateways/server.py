"""The base of the servers of foreign dialects, and their plaintext listeners.

The dialects don't encrypt, so listeners accept loopback and Unix sockets only, unless an address
was declared insecure.
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

# Seconds for what is queued to be written, and for the other sides to hang up.
CLOSE_TIMEOUT = CLOSE_LINGER + 1.0


access = logging.getLogger("parley.access")


class PlaintextListener:
    """The listening addresses of one dialect, for at most `most_clients` connections.

    `accept` makes a driver for a connection from an address. Remote addresses share the limit: when
    it is reached, the oldest connection of the address with the most is dropped for an address that
    has at least two fewer. `owner_of` returns the key of an address; `drop` closes a connection for
    which `is_open` returns True. `turned_away` counts refused connections.
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
        self._full = RateLimitedLogger()  # clients cause these lines before they have authenticated
        self.turned_away = 0

    def __len__(self) -> int:
        return len(self._drivers)

    @property
    def addresses(self) -> list[str]:
        return [str(listener.address) for listener in self._listeners]

    async def listen(self, address: str, *, allow_insecure: bool = False) -> str:
        """As `DialectServer.listen`."""
        place = Address.parse(address).without_node_id()
        if not allow_insecure and not is_local(place):
            raise InsecureAddressError(str(place))
        listener = await self._backend.listen(place, self.admitted)
        self._listeners.append(listener)
        return str(listener.address)

    def left(self, driver: Driver) -> None:
        """A connection has ended."""
        self._drivers.remove(driver)

    async def stop_listening(self) -> None:
        """Stop accepting; accepted connections continue."""
        self._ending = True
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            await listener.aclose()

    def admitted(self, name: str) -> Driver | None:
        if self._ending:
            return None  # the loop had it already when the listener was closed
        owner = self._owner_of(name)
        if len(self._drivers) >= self._most_clients and not self._make_room(owner):
            self.turned_away += 1
            self._full.log(
                access,
                logging.WARNING,
                self._backend.now(),
                "a connection from %s was turned away: no room",
                name,
                extra={"event": "connection.turned-away", "address": name, "reason": "no room"},
            )
            return None
        driver = self._accept(name)
        self._drivers.add(driver, owner)
        return driver

    def _make_room(self, owner: Hashable) -> bool:
        evicted = self._drivers.evict_for(owner, 0.0)
        if evicted is None:
            return False
        self._drop(evicted)
        return True

    def _idle_since(self, driver: Driver) -> float | None:
        """Return the same for all open ones, so that the oldest is evicted first."""
        return 0.0 if self._is_open(driver) else None


class DialectServer(ABC, Generic[G]):
    """A server of one dialect for at most `clients` connections; errors call it `what`. Clients
    together may use `memory` bytes, charged to `account`.

    Leaving its `async with` stops listening, lets handlers finish, and closes all connections.
    """

    def __init__(self, what: str, clients: int, memory: int) -> None:
        self.account = MemoryBudget(memory)
        self._what = what
        self._most_clients = clients
        self._gateway: PlaintextListener | None = None
        self._guests: dict[Driver, G] = {}
        self._changes = Condition(lambda: self.backend.waiter())

    # Where it listens, and who is connected.

    @property
    @abstractmethod
    def backend(self) -> Backend:
        """The loop; raises ParleyError if it isn't running."""

    @property
    def addresses(self) -> list[str]:
        """The listening addresses."""
        return self._gateway.addresses if self._gateway is not None else []

    @property
    def turned_away(self) -> int:
        """How many connections were refused because of `limits.clients`."""
        return self._gateway.turned_away if self._gateway is not None else 0

    async def listen(self, address: str, *, allow_insecure: bool = False) -> str:
        """Listen on `tcp://host:port` (port 0: any) or `unix:///path`.

        Returns:
            The address to dial.

        Raises:
            InsecureAddressError: other machines can reach it, and `allow_insecure` is not given.
            AddressError: not an address.
            UnreachableError: it cannot be listened on.
            ParleyError: it is not running.
        """
        return await self._running().listen(address, allow_insecure=allow_insecure)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition on the clients, checked when one connects or leaves."""
        await self._changes.until(condition)

    # Life.

    async def __aenter__(self) -> Self:
        """Start; raises ParleyError if it is running already, or its node isn't."""
        if self._gateway is not None:
            raise ParleyError(f"{self._what} is running already")
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
        """Stop listening, let handlers finish and close all connections; after an exception, close
        them immediately."""
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

    # For the dialects.

    @abstractmethod
    def _new_guest(self, name: str) -> G:
        """Return the guest that connects from `name`; it calls `_gone` when its connection has
        ended."""

    async def _enter(self) -> Backend:
        return self.backend

    async def _drain(self) -> None:
        """Refuse new requests and let running ones finish."""

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
    """Whether only programs on this machine can reach an address."""
    if address.scheme in ("unix", "memory") or address.host == "localhost":
        return True
    try:
        return ip_address(address.host.partition("%")[0]).is_loopback
    except ValueError:
        return False  # a name: tomorrow it may stand for another address
