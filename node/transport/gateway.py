"""Where a node listens for other dialects: addresses, and how many connections at once.

None of these dialects encrypts, so they are spoken on this machine only (loopback or Unix sockets),
unless an address was declared insecure. What is served is the driver that `accept` makes.
"""

import logging
import math
from collections.abc import Callable, Hashable
from ipaddress import ip_address

from parley._node.errors import InsecureAddressError
from parley._node.fair_slots import FairSlots
from parley._node.logs import LogRation
from parley._node.transport.address import Address
from parley._node.transport.backend import Backend, Listener
from parley._node.transport.driver import Driver

access = logging.getLogger("parley.access")


class Gateway:
    """The listening addresses of one dialect, by which `most_clients` may be connected.

    `accept` makes a driver for each connection, and is told where it comes from. Remote addresses
    share the limit: when it is reached, the oldest connection of the address with the most is
    dropped for an address that has at least two fewer. `owner_of` returns the key of an address;
    `drop` closes a connection, one for which `is_open` returns True.
    `turned_away` counts the connections for which there was no room.
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
        self._full = LogRation()  # clients cause these lines before they have authenticated
        self.turned_away = 0

    def __len__(self) -> int:
        """How many are connected."""
        return len(self._drivers)

    @property
    def addresses(self) -> list[str]:
        """What it listens on."""
        return [str(listener.address) for listener in self._listeners]

    async def listen(self, address: str, *, allow_insecure: bool = False) -> str:
        """Listen on `tcp://host:port` (port 0: any) or `unix:///path`.

        Returns:
            The address to dial.

        Raises:
            InsecureAddressError: others than this machine could reach it, and
                `allow_insecure` is not given. AddressError: not an address.
            UnreachableError: it cannot be listened on.
        """
        place = Address.parse(address).without_node_id()
        if not allow_insecure and not is_local(place):
            raise InsecureAddressError(str(place))
        listener = await self._backend.listen(place, self.admitted)
        self._listeners.append(listener)
        return str(listener.address)

    def left(self, driver: Driver) -> None:
        """A connection is over: there is room for another."""
        self._drivers.remove(driver)

    async def stop_listening(self) -> None:
        """Take no new connections; those that were taken go on."""
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
        """The same for all that are open, so that the oldest goes first."""
        return 0.0 if self._is_open(driver) else None


def is_local(address: Address) -> bool:
    """Whether only this machine's own programs can reach an address."""
    if address.scheme in ("unix", "memory") or address.host == "localhost":
        return True
    try:
        return ip_address(address.host.partition("%")[0]).is_loopback
    except ValueError:
        return False  # a name: tomorrow it may stand for another address
