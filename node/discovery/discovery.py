"""Announcing a node on the local network, and finding other nodes (extra `discovery`)."""

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
# Seconds. Answers take about 0.1 s, but a node doesn't repeat an answer to all within a second, and
# a question that another node has just asked is repeated after a second.
SECONDS: Final = 3.0
LONGEST: Final = 3_600.0


class Announced(Protocol):
    """A node that can be announced."""

    @property
    def node_id(self) -> NodeId:
        """The node's ID."""

    @property
    def addresses(self) -> list[str]:
        """The addresses on which the node listens."""


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

    The announcement contains the node ID, at most 8 of the TCP addresses on which the node listens
    when the block begins, and `name` (at most 63 bytes of UTF-8). If the machine's addresses
    change, the announcement is updated within 15 s.

    `interfaces` are the IPv4 addresses to announce on. By default these are all, or only loopback
    for a node that only this machine can dial. `server` announces a server of a federation. `slot`
    (1 to 9,999) announces that the node waits for a short code.

    Raises:
        ConfigError: the extra `discovery` is not installed; a name or an interface is invalid; or
            the node doesn't listen on TCP with encryption.
        UnreachableError: the system doesn't permit multicast.

    Example:

        from parley.discovery import announce

        await node.listen("tcp://127.0.0.1:0")
        async with announce(node, name="kitchen", interfaces=["127.0.0.1"]):
            print("announced", node.node_id)
    """
    mdns = _mdns()
    require_name(name)
    _require_interfaces(interfaces)
    async with thread_loop() as loop:
        announcer = mdns.Announcer(node.node_id, name, interfaces, server=server, slot=slot)
        try:
            if not await loop.run(announcer.start, _listeners(node)):
                raise ConfigError(
                    "cannot announce the node: it doesn't listen on a TCP address that other nodes "
                    "can dial"
                )
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await loop.run(announcer.aclose)


async def find(
    seconds: float = SECONDS, *, interfaces: Sequence[str] = (), slot: int | None = None
) -> list[FoundNode]:
    """Search the local network for announced nodes, and return at most 256, ordered by node ID.

    The search takes `seconds` (above 0, at most 3,600). With a `slot`, it only finds nodes that
    wait for a short code there, and ends with the first result. The results are unverified; nodes
    beyond 256 are logged. `interfaces` is as in `announce`.

    Raises:
        ConfigError: the extra `discovery` is not installed; `seconds` is out of range; or an
            interface is invalid.
        UnreachableError: the system doesn't permit multicast.

    Example:

        from parley.discovery import find

        for found in await find(0.2, interfaces=["127.0.0.1"]):
            print(found.node_id, found.name)
    """
    mdns = _mdns()
    _require_search(seconds, interfaces)
    async with thread_loop() as loop:
        found, left_out = await loop.run(mdns.browse, seconds, interfaces, slot)
    if left_out:
        logger.warning(
            "found more than %d nodes; %d were left out",
            len(found),
            left_out,
            extra={"event": "discovery.too-many"},
        )
    nodes: list[FoundNode] = found
    return nodes


async def resolve(
    address: str, *, seconds: float = SECONDS, interfaces: Sequence[str] = ()
) -> list[str]:
    """Return at most 8 addresses of the node that `mdns://NODEID` names, each with the node ID.

    It waits for at most `seconds`. `interfaces` is as in `announce`.

    Raises:
        AddressError: `address` doesn't have the form `mdns://NODEID`.
        ConfigError: as in `find`.
        UnreachableError: the node is not announced, or the system doesn't permit multicast.

    Example:

        from parley import UnreachableError
        from parley.discovery import resolve

        try:
            address = f"mdns://{peer.node_id}"
            print(await resolve(address, seconds=0.2, interfaces=["127.0.0.1"]))
        except UnreachableError as error:
            print(error)
    """
    scheme, _, text = address.partition("://")
    try:
        node_id = NodeId.parse(text)
    except IdentityError:
        node_id = None
    if scheme != SCHEME or node_id is None:
        raise AddressError(
            f"invalid address {ascii(address)[:100]}: expected mdns://NODEID with a node ID of 52 "
            "base32 characters"
        )
    mdns = _mdns()
    _require_search(seconds, interfaces)
    async with thread_loop() as loop:
        found: FoundNode | None = await loop.run(mdns.ask_for, node_id, seconds, interfaces)
    if found is None:
        raise UnreachableError(
            f"cannot find the node {node_id}: it is not announced on the local network"
        )
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
        raise ConfigError(
            "cannot announce a node that listens without encryption: it cannot prove its node ID"
        )
    return listeners


def _require_search(seconds: float, interfaces: Sequence[str]) -> None:
    _require_interfaces(interfaces)
    if not (math.isfinite(seconds) and 0 < seconds <= LONGEST):
        raise ConfigError(f"invalid seconds {seconds:g}: expected above 0 and at most {LONGEST:g}")


def _require_interfaces(interfaces: Sequence[str]) -> None:
    for interface in interfaces:
        try:
            IPv4Address(interface)
        except AddressValueError as error:
            raise ConfigError(
                f"invalid interface {ascii(interface)[:80]}: expected an IPv4 address"
            ) from error


P = ParamSpec("P")
T = TypeVar("T")


class ThreadLoop:
    """Runs coroutines in the event loop of another thread."""

    __slots__ = ("_portal",)

    def __init__(self, portal: BlockingPortal) -> None:
        self._portal = portal

    async def run(
        self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call `function` in the other thread and return its result; cancellation cancels it."""

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
    """Run an asyncio event loop in another thread; the thread has ended when the block is left."""
    thread = start_blocking_portal("asyncio")
    portal = await to_thread.run_sync(thread.__enter__)
    try:
        yield ThreadLoop(portal)
    finally:
        with CancelScope(shield=True):
            await to_thread.run_sync(thread.__exit__, None, None, None)
