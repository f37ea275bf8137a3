"""`DialectServer`: what the servers of all foreign dialects share.

It ends with its `async with`: no further connection is accepted, what runs may finish, and then
every connection is closed. A subclass knows the dialect: whom it serves, and how.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

import anyio

from parley._node.errors import ParleyError
from parley._node.gateways.guest import Guest
from parley._node.protocol.limits import CLOSE_LINGER
from parley._node.protocol.memory_budget import MemoryBudget
from parley._node.transport.backend import Backend
from parley._node.transport.driver import Driver
from parley._node.transport.gateway import Gateway
from parley._node.transport.waiting import Changes
from parley._node.trust.admission import address_key

G = TypeVar("G", bound=Guest)

# Seconds for what is queued to be written, and for the other sides to hang up.
CLOSE_TIMEOUT = CLOSE_LINGER + 1.0


class DialectServer(ABC, Generic[G]):
    """A server of one dialect, for at most `clients` connections at once; `what` names it in
    errors. What they make it hold together is charged to `account`, of `memory` bytes."""

    def __init__(self, what: str, clients: int, memory: int) -> None:
        self.account = MemoryBudget(memory)
        self._what = what
        self._most_clients = clients
        self._gateway: Gateway | None = None
        self._guests: dict[Driver, G] = {}
        self._changes = Changes(lambda: self.backend.waiter())

    # Where it listens, and who is connected.

    @property
    @abstractmethod
    def backend(self) -> Backend:
        """The loop it runs in; ParleyError if it is not running."""

    @property
    def addresses(self) -> list[str]:
        """What it listens on."""
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
            InsecureAddressError: other machines could reach it, although nothing is encrypted,
                and `allow_insecure` is not given. AddressError: not an address.
            UnreachableError: it cannot be listened on. ParleyError: it is not running.
        """
        return await self._running().listen(address, allow_insecure=allow_insecure)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition on the clients; it is checked whenever one comes or goes."""
        await self._changes.until(condition)

    # Life.

    async def __aenter__(self) -> Self:
        """Start; raises ParleyError if it is running already, or its node is not."""
        if self._gateway is not None:
            raise ParleyError(f"{self._what} is running already")
        self._gateway = Gateway(
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
        """Accept no more connections, let handlers finish and close all connections; after an
        exception, close them at once."""
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
        """The guest that connects from `name`; it calls `_gone` when its connection is over."""

    async def _enter(self) -> Backend:
        """Start to run; returns the loop."""
        return self.backend

    async def _drain(self) -> None:
        """Take no new requests, and let what runs finish."""

    def _dismiss(self, guest: G, *, hasty: bool) -> None:
        """End one connection; does not wait for that."""
        if hasty:
            guest.drop()
        else:
            guest.begin_close()

    async def _leave(self) -> None:
        """Undo `_enter`."""

    def _welcome(self, guest: G) -> None:
        """A guest connected."""
        self._guests[guest.driver] = guest
        self._changes.notify()

    def _gone(self, guest: Guest) -> None:
        """A guest's connection is over."""
        self._guests.pop(guest.driver, None)
        if self._gateway is not None:
            self._gateway.left(guest.driver)
        self._changes.notify()

    def _running(self) -> Gateway:
        if self._gateway is None:
            raise ParleyError(f"{self._what} is not running: use `async with`")
        return self._gateway

    def _accept(self, name: str) -> Driver:
        guest = self._new_guest(name)
        self._welcome(guest)
        return guest.driver
