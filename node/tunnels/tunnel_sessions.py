"""From a tunnel to the same network: a session that could go directly does, as soon as one of the
direct addresses answers, and comes back to a tunnel when none does any more (section 19).
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol

import anyio

from parley._crypto.errors import IdentityError
from parley._crypto.identity import NodeId
from parley._node.backoff import Pauses
from parley._node.errors import (
    ConfigError,
    HandshakeError,
    PeerClosedError,
    TunnelRefusedError,
    UnreachableError,
    ungrouped,
)
from parley._node.federation.limits import ATTEMPTS
from parley._node.peer.addresses import AddressList
from parley._node.peer.peer import Peer
from parley._node.peer.reconnecting import random_fraction
from parley._node.protocol.codes import CloseCode, ResultCode
from parley._node.remote.resumer import Dial
from parley._node.transport.address import Address
from parley._node.transport.backend import Backend
from parley._node.transport.conditions import pause_until
from parley._node.transport.driver import Driver
from parley._node.transport.loop import Runner
from parley._node.tunnels.dial import tunnel_dial
from parley._node.tunnels.tunnel_transport import TunnelOutlet

# Between two attempts to leave a tunnel, which cost a question to the local network each.
PAUSES: Final = Pauses(first=5.0, longest=300.0)


def direct_dial(places: AddressList, loop: Backend) -> Dial:
    """How a node is dialled at its direct addresses, and at what is found then: in turn."""

    async def dial(accept: Callable[[], Driver | None]) -> None:
        failed: UnreachableError | None = None
        for text in await places.found():
            try:
                await loop.connect(Address.parse(text), accept)
                return
            except UnreachableError as error:
                failed = error
        raise failed or UnreachableError(f"{places}: no address was found")

    return dial


async def keep_direct(peer: Peer, by: int, draw: Callable[[], float] = random_fraction) -> None:
    """Whenever the session of `peer` has come through a tunnel, try the dial of the number `by`: at
    once, and after growing pauses; until it has ended. One that goes back to a tunnel within 10
    seconds counts as an attempt that failed."""
    live, loop = peer.live, peer.backend
    redialling = live.redialling
    if redialling is None or live.core.resumption is None:
        return

    with suppress(PeerClosedError):
        await peer.ping()  # a session can move once the other side has said something in it

    def is_over() -> bool:
        return live.ended is not None

    def is_tunnelled() -> bool:
        return bool(live.path) and not live.is_suspended

    failures, tried = 0, 0.0
    while True:
        await live.changes.until(lambda: is_tunnelled() or is_over())
        if failures and loop.now() - tried >= PAUSES.steady:
            failures = 0
        if failures:
            seconds = PAUSES.after(failures, draw())
            await pause_until(loop, seconds, live.changes, lambda: is_over() or not is_tunnelled())
        if is_over():
            return
        if is_tunnelled():
            redialling.now(by)
            failures, tried = failures + 1, loop.now()


REACH_TIMEOUT: Final = 10.0
_DIRECT: Final = 1  # the number of the dial that is tried for what goes through a tunnel


class ReachingNode(Protocol):
    """What is asked of the node."""

    @property
    def backend(self) -> Backend:
        """The loop it runs in; ParleyError if it does not run."""

    async def connect_by(
        self, dials: Sequence[Dial], node_id: NodeId, *, name: str, timeout: float = ...
    ) -> Peer:
        """Do the handshake over what one of `dials` leads to; raises as `Node.connect`."""


class Way:
    """Whom to reach: `ids` are those of a server, or of a home and a node there; and where it may
    be dialled directly.

    Raises:
        ConfigError: not one or two node ids, or `also` has addresses of another node.
        AddressError: not a direct address.
    """

    def __init__(
        self, ids: Sequence[NodeId | str], also: Sequence[str] = (), *, discover: bool = False
    ) -> None:
        if not 1 <= len(ids) <= 2:
            raise ConfigError(
                f"to be reached are a server, or a home and a node, not {len(ids)} ids"
            )
        try:
            read = [one if isinstance(one, NodeId) else NodeId.parse(one) for one in ids]
        except IdentityError as error:
            raise ConfigError(f"whom to reach is said by node ids: {error}") from error
        self.ids: tuple[NodeId, ...] = tuple(read)
        found = [*also, f"mdns://{self.target}"] if discover else list(also)
        self.places = AddressList(found[0], found[1:]) if found else None
        if self.places is not None and self.places.node_id not in (None, self.target):
            raise ConfigError(f"{self.places} is not an address of {self.target}")

    @property
    def target(self) -> NodeId:
        """The node that is to be reached."""
        return self.ids[-1]


class Reaching:
    """The sessions of `node` through tunnels that `open_tunnel` opens, and the moves of these to
    direct addresses: until `close`. Where no handshake comes about in a tunnel, another is opened
    if `leads_around` says that it would go another way: three in all, each with a third of the time
    that there is. None: the ways are chosen elsewhere, and one has all of it.
    """

    def __init__(
        self,
        node: ReachingNode,
        open_tunnel: Callable[[Sequence[NodeId]], Awaitable[TunnelOutlet]],
        draw: Callable[[], float] = random_fraction,
        *,
        leads_around: Callable[[Sequence[NodeId]], bool] | None = None,
    ) -> None:
        self._node = node
        self._open_tunnel = open_tunnel
        self._draw = draw
        self._leads_around = leads_around
        self._reached: dict[Peer, Runner | None] = {}
        self._closed = False

    async def reach(self, way: Way, name: str, timeout: float) -> Peer:
        """Open a session, within `timeout` seconds; `name` is for the log. Raises as
        `Meeting.connect_by`."""
        loop, places = self._node.backend, way.places
        dials = [tunnel_dial(lambda: self._open_tunnel(way.ids))]
        if places is not None:
            dials.append(direct_dial(places, loop))
        peer = await self._met(dials, way, name, timeout)
        if self._closed:  # meanwhile
            peer.live.drop(CloseCode.GOING_AWAY)
            raise TunnelRefusedError(ResultCode.UNREACHABLE)
        self._reached = {one: mover for one, mover in self._reached.items() if not one.is_gone}
        self._reached[peer] = None
        if places is not None:
            self._reached[peer] = loop.spawn(keep_direct, peer, _DIRECT, self._draw)
        return peer

    async def _met(self, dials: Sequence[Dial], way: Way, name: str, timeout: float) -> Peer:
        around = self._leads_around
        left = 1 if around is None else ATTEMPTS
        share = timeout / left
        while True:
            try:
                return await self._node.connect_by(dials, way.target, name=name, timeout=share)
            except HandshakeError:
                left -= 1
                if not left or around is None or not around(way.ids):
                    raise

    async def close(self, *, graceful: bool) -> None:
        """End them; `graceful` waits for their Close, of those that have a transport."""
        self._closed = True
        reached, self._reached = self._reached, {}
        try:
            for mover in reached.values():
                if mover is not None:
                    mover.cancel()
            if graceful:
                with ungrouped():
                    async with anyio.create_task_group() as closing:
                        for peer in reached:
                            closing.start_soon(_close, peer)
        finally:
            for peer in reached:
                if peer.is_suspended:
                    peer.live.lost("the way to it was left")
                peer.live.drop(CloseCode.GOING_AWAY)  # nothing, where it is closed


async def _close(peer: Peer) -> None:
    """Close a session, unless it has no transport: no tunnel will come that could bring Close."""
    async with anyio.create_task_group() as closing:
        closing.start_soon(peer.close)
        await peer.live.changes.until(lambda: peer.is_suspended or peer.is_gone)
        closing.cancel_scope.cancel()
