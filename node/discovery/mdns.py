"""Multicast DNS with `zeroconf` in an asyncio loop: announcing, browsing, resolving.

`zeroconf` stores at most 10,000 records and drops packets above 8,966 bytes. It sends over IPv4;
announced addresses may be IPv4 or IPv6.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from ipaddress import ip_address
from typing import Final

import ifaddr
from anyio import CancelScope
from zeroconf import (
    DNSQuestionType,
    Error,
    InterfaceChoice,
    IPVersion,
    ServiceInfo,
    ServiceStateChange,
    Zeroconf,
)
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from parley._crypto.identity import NodeId
from parley._node.discovery.announcement import (
    SERVICE,
    FoundNode,
    is_instance,
    is_on_loopback,
    properties,
    reachable,
    read_announcement,
)
from parley._node.errors import UnreachableError
from parley._node.transport.address import Address

logger = logging.getLogger("parley.discovery")

MOST_FOUND: Final = 256  # nodes returned by one search; others are only counted
# Seconds between two checks whether the machine's addresses have changed.
REFRESH: Final = 15.0
# Seconds to wait for further answers for a slot after the first one.
OTHERS: Final = 0.3
_LOOPBACK: Final = ("127.0.0.1",)
# Multicast answers: a unicast answer would reach only one of several programs on this machine.
_ASKED: Final = DNSQuestionType.QM


class Announcer:
    """Announces a node, or a `server` of a federation, until it is closed.

    `interfaces` are IPv4 addresses of this machine, empty for all. A node that only this machine
    can dial is announced on loopback. `slot` is the number under which it waits for a short code.
    """

    def __init__(
        self,
        node_id: NodeId,
        name: str,
        interfaces: Sequence[str],
        *,
        server: bool = False,
        slot: int | None = None,
    ) -> None:
        self._node_id = node_id
        self._server = server
        self._slot = slot
        self._name = name
        self._interfaces = interfaces
        self._places: list[str] = []
        self._mdns: AsyncZeroconf | None = None
        self._keeping: asyncio.Task[None] | None = None

    async def start(self, listeners: Sequence[Address]) -> list[str]:
        """Announce the addresses at which other nodes can dial the node.

        The announcement is updated when the machine's addresses change.

        Returns:
            The announced addresses. If other nodes cannot dial the node, it is empty and the node
                is not announced.

        Raises:
            UnreachableError: the system doesn't permit multicast.
        """
        places = await self._announce(listeners)
        if places:
            self._keeping = asyncio.create_task(self._keep(listeners))
        return places

    async def aclose(self) -> None:
        """Withdraw the announcement."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        await self._take_back()

    async def _keep(self, listeners: Sequence[Address]) -> None:
        while True:
            await asyncio.sleep(REFRESH)
            try:
                await self._announce(listeners)
            except UnreachableError as error:
                logger.info(
                    "cannot announce the node: %s; trying again in %d s",
                    error,
                    REFRESH,
                    extra={"event": "discovery.not-announced"},
                )

    async def _announce(self, listeners: Sequence[Address]) -> list[str]:
        places = reachable(listeners, own_addresses())
        if places != self._places:
            await self._take_back()
            if places:
                await self._say(places)
        return places

    async def _take_back(self) -> None:
        mdns, self._mdns = self._mdns, None
        self._places = []
        if mdns is not None:
            with CancelScope(shield=True):
                await mdns.async_close()

    async def _say(self, places: list[str]) -> None:
        dialled = [Address.parse(place) for place in places]
        info = ServiceInfo(
            SERVICE,
            f"{self._node_id}.{SERVICE}",
            port=dialled[0].port,
            addresses=[ip_address(address.host).packed for address in dialled],
            properties=properties(
                self._node_id, self._name, places, server=self._server, slot=self._slot
            ),
            server=f"{self._node_id}.local.",
        )
        interfaces = self._interfaces or (_LOOPBACK if is_on_loopback(places) else ())
        self._mdns = _open(interfaces)
        with _as_unreachable():
            # A node ID is unique: don't let another machine that announces the same name stop this
            # one.
            said = await self._mdns.async_register_service(info, cooperating_responders=True)
            await said
        self._places = places


class Gathering:
    """The results of one search: at most 256 nodes by ID; `left_out` counts the others."""

    def __init__(self, slot: int | None = None) -> None:
        """With a `slot`, find only nodes that wait there; `some` is set after the first result."""
        self.found: dict[str, FoundNode] = {}
        self.left_out = 0
        self.some = asyncio.Event()
        self._slot = slot

    def heard(
        self, zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange
    ) -> None:
        instance = name.removesuffix(f".{SERVICE}")
        if state_change is ServiceStateChange.Removed:
            self.found.pop(instance, None)
            return
        if not is_instance(instance):
            return  # the library raises an error for some names, which any machine could send
        info = ServiceInfo(SERVICE, f"{instance}.{SERVICE}")
        info.load_from_cache(zeroconf)
        self.take(instance, info.text or b"", is_new=state_change is ServiceStateChange.Added)

    def take(self, instance: str, text: bytes, *, is_new: bool) -> None:
        node = read_announcement(instance, text)
        if node is None or self._slot not in (None, node.slot):
            return
        if instance in self.found or len(self.found) < MOST_FOUND:
            self.found[instance] = node
            self.some.set()
        elif is_new:
            self.left_out += 1


async def browse(
    seconds: float, interfaces: Sequence[str], slot: int | None = None
) -> tuple[list[FoundNode], int]:
    """Return the found nodes by ID, and the number of nodes left out; raises UnreachableError.

    With a `slot`, the search ends soon after the first result.
    """
    gathering = Gathering(slot)
    async with _spoken(interfaces) as mdns:
        browser = AsyncServiceBrowser(
            mdns.zeroconf, SERVICE, handlers=[gathering.heard], question_type=_ASKED
        )
        try:
            if slot is None:
                await asyncio.sleep(seconds)
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(gathering.some.wait(), seconds)
                    await asyncio.sleep(min(seconds, OTHERS))
        finally:
            with CancelScope(shield=True):
                await browser.async_cancel()
    return [gathering.found[instance] for instance in sorted(gathering.found)], gathering.left_out


async def ask_for(node_id: NodeId, seconds: float, interfaces: Sequence[str]) -> FoundNode | None:
    """Resolve one node within `seconds`; raises UnreachableError."""
    info = AsyncServiceInfo(SERVICE, f"{node_id}.{SERVICE}")
    async with _spoken(interfaces) as mdns:
        await info.async_request(mdns.zeroconf, round(seconds * 1000), _ASKED)
    return read_announcement(node_id.text, info.text or b"")


@asynccontextmanager
async def _spoken(interfaces: Sequence[str]) -> AsyncIterator[AsyncZeroconf]:
    mdns = _open(interfaces)
    try:
        with _as_unreachable():
            yield mdns
    finally:
        with CancelScope(shield=True):
            await mdns.async_close()


def _open(interfaces: Sequence[str]) -> AsyncZeroconf:
    choice = list(interfaces) or InterfaceChoice.All
    for interface in set(interfaces).difference(own_addresses()):
        raise UnreachableError(
            f"cannot use the interface {interface}: it is not an address of this machine"
        )
    with _as_unreachable():
        return AsyncZeroconf(interfaces=choice, ip_version=IPVersion.V4Only)


@contextmanager
def _as_unreachable() -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError, Error) as error:
        reason = str(error) or type(error).__name__
        text = f"cannot use multicast DNS on the local network: {reason}"
        raise UnreachableError(text) from error


def own_addresses() -> list[str]:
    """Return this machine's IP addresses."""
    found = (ip.ip for adapter in ifaddr.get_adapters() for ip in adapter.ips)
    return [ip if isinstance(ip, str) else ip[0] for ip in found]
