"""Announcing a node on the local network, and finding others (extra `discovery`)."""

import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from ipaddress import AddressValueError, IPv4Address
from types import ModuleType
from typing import Final, ParamSpec, Protocol, TypeVar

import anyio
from anyio import CancelScope, to_thread
from anyio.from_thread import BlockingPortal, start_blocking_portal

from parley._crypto.errors import IdentityError
from parley._crypto.identity import NodeId
from parley._node.discovery.announcement import FoundNode, require_name
from parley._node.errors import AddressError, ConfigError, UnreachableError
from parley._node.logs import needs_extra
from parley._node.transport.address import Address

logger = logging.getLogger("parley.discovery")

SCHEME: Final = "mdns"
# Seconds: answers take some 0.1 s; but nobody says the same to all again within a second, and a
# question that somebody else has just asked is asked again after one.
SECONDS: Final = 3.0
LONGEST: Final = 3_600.0


class Announced(Protocol):
    """A node that can be announced."""

    @property
    def node_id(self) -> NodeId:
        """Its node id."""

    @property
    def addresses(self) -> list[str]:
        """The addresses on which it listens."""


@asynccontextmanager
async def announce(
    node: Announced,
    *,
    name: str = "",
    interfaces: Sequence[str] = (),
    server: bool = False,
    slot: int | None = None,
) -> AsyncIterator[None]:
    """Announce `node` on the local network during the block.

    It publishes the node id, at most 8 TCP addresses on which the node listens when the block
    begins, and `name` (at most 63 bytes of UTF-8). Changes of the machine's addresses are announced
    within 15 s. `interfaces` are IPv4 addresses to announce on; by default all, or loopback for a
    node that only this machine can dial. `server` announces a server of a federation, `slot` (1 to
    9,999) that the node waits for a short code.

    Raises:
        ConfigError: the extra `discovery` is not installed; a name or an interface is invalid; the
            node doesn't listen on TCP with encryption.
        UnreachableError: the system doesn't permit multicast.
    """
    mdns = _mdns()
    require_name(name)
    _require_interfaces(interfaces)
    async with thread_loop() as loop:
        announcer = mdns.Announcer(node.node_id, name, interfaces, server=server, slot=slot)
        try:
            if not await loop.run(announcer.start, _listeners(node)):
                raise ConfigError("the node listens on no TCP address that others could dial")
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await loop.run(announcer.aclose)


async def find(
    seconds: float = SECONDS, *, interfaces: Sequence[str] = (), slot: int | None = None
) -> list[FoundNode]:
    """Search the local network for announced nodes, for `seconds` (above 0, at most 3,600); with a
    `slot`, for a node that waits for a short code there, until one is found.

    Returns at most 256 nodes, ordered by id, and logs if there were more. The results are
    unverified. `interfaces` as in `announce`.

    Raises:
        ConfigError: the extra `discovery` is not installed; `seconds` is out of range; an interface
            is invalid.
        UnreachableError: the system doesn't permit multicast.
    """
    mdns = _mdns()
    _require_search(seconds, interfaces)
    async with thread_loop() as loop:
        found, left_out = await loop.run(mdns.browse, seconds, interfaces, slot)
    if left_out:
        logger.warning(
            "%d more nodes were announced than %d, and left out",
            left_out,
            len(found),
            extra={"event": "discovery.too-many"},
        )
    nodes: list[FoundNode] = found
    return nodes


async def resolve(
    address: str, *, seconds: float = SECONDS, interfaces: Sequence[str] = ()
) -> list[str]:
    """Return the addresses, at most 8, of the node that `mdns://NODEID` names, each with its id.

    Waits for at most `seconds`. `interfaces` as in `announce`.

    Raises:
        AddressError: not such an address.
        ConfigError: as `find`.
        UnreachableError: the node is not announced, or the system doesn't permit multicast.
    """
    scheme, _, text = address.partition("://")
    try:
        node_id = NodeId.parse(text)
    except IdentityError:
        node_id = None
    if scheme != SCHEME or node_id is None:
        raise AddressError(
            f"cannot find {ascii(address)[:100]}: after mdns:// stands a node id: 52 characters of "
            "base32"
        )
    mdns = _mdns()
    _require_search(seconds, interfaces)
    async with thread_loop() as loop:
        found: FoundNode | None = await loop.run(mdns.ask_for, node_id, seconds, interfaces)
    if found is None:
        raise UnreachableError(f"nobody on the local network announces {node_id}")
    return list(found.addresses)


def _mdns() -> ModuleType:
    try:
        from parley._node.discovery import mdns
    except ModuleNotFoundError as error:
        raise ConfigError(needs_extra(f"discovery ({error.name})", "discovery")) from error
    return mdns


def _listeners(node: Announced) -> list[Address]:
    listeners = [Address.parse(text) for text in node.addresses]
    if any(address.node_id is None for address in listeners):
        raise ConfigError("a node without encryption cannot prove its id, and is not announced")
    return listeners


def _require_search(seconds: float, interfaces: Sequence[str]) -> None:
    _require_interfaces(interfaces)
    if not (math.isfinite(seconds) and 0 < seconds <= LONGEST):
        raise ConfigError(f"seconds are above 0 and at most {LONGEST:g}")


def _require_interfaces(interfaces: Sequence[str]) -> None:
    for interface in interfaces:
        try:
            IPv4Address(interface)
        except AddressValueError as error:
            raise ConfigError(
                f"an interface is named by its IPv4 address, not {ascii(interface)[:80]}"
            ) from error


P = ParamSpec("P")
T = TypeVar("T")


class ThreadLoop:
    """Runs coroutines in the other thread's loop."""

    __slots__ = ("_portal",)

    def __init__(self, portal: BlockingPortal) -> None:
        self._portal = portal

    async def run(
        self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call `function` there and wait for what it returns; being cancelled cancels it."""

        async def call() -> T:
            return await function(*args, **kwargs)

        future = self._portal.start_task_soon(call)
        try:
            return await to_thread.run_sync(future.result, abandon_on_cancel=True)
        except BaseException:
            future.cancel()
            raise


@asynccontextmanager
async def thread_loop() -> AsyncIterator[ThreadLoop]:
    """A loop that lives until the block is left, by which time its thread has ended."""
    thread = start_blocking_portal("asyncio")
    portal = await to_thread.run_sync(thread.__enter__)
    try:
        yield ThreadLoop(portal)
    finally:
        with CancelScope(shield=True):
            await to_thread.run_sync(thread.__exit__, None, None, None)
