"""`TunnelSessions`: sessions with other nodes through tunnels (docs/protocol/federation.md section
19).

A session that could use a direct address moves there as soon as one answers, and back to a tunnel
when none answers.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol

import anyio

from parley._crypto.errors import IdentityError
from parley._crypto.identity import NodeId
from parley._node.backoff import Backoff
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
from parley._node.tunnels.tunnel_transport import TunnelTransport

REACH_TIMEOUT: Final = 10.0
# Seconds between two attempts to leave a tunnel; each costs a query on the local network.
PAUSES: Final = Backoff(first=5.0, longest=300.0)
_DIRECT: Final = 1  # the index of the direct dial of a session


class TunnelDialler(Protocol):
    """The part of a node that opens sessions over tunnels."""

    @property
    def backend(self) -> Backend:
        """The node's loop; ParleyError if it isn't running."""

    def current(self, node_id: NodeId) -> NodeId:
        """Return the node ID to dial in place of one; IdentityEndedError if there is none."""

    async def connect_by(
        self, dials: Sequence[Dial], node_id: NodeId, *, name: str, timeout: float = ...
    ) -> Peer:
        """Connect to `node_id` over one of `dials`; raises as `Node.connect`."""


class Target:
    """The node to reach: `ids` are the ID of a server, or of a home server and a node there. `also`
    and `discover` provide its direct addresses.

    Raises:
        ConfigError: not one or two node IDs, or `also` has addresses of another node.
        AddressError: `also` has an invalid or `via://` address.
    """

    def __init__(
        self, ids: Sequence[NodeId | str], also: Sequence[str] = (), *, discover: bool = False
    ) -> None:
        if not 1 <= len(ids) <= 2:
            raise ConfigError(
                f"cannot reach a node by {len(ids)} IDs: pass a server, or a home and a node"
            )
        try:
            parsed = [one if isinstance(one, NodeId) else NodeId.parse(one) for one in ids]
        except IdentityError as error:
            raise ConfigError(f"cannot reach a node: {error}") from error
        self.ids: tuple[NodeId, ...] = tuple(parsed)
        addresses = [*also, f"mdns://{self.node_id}"] if discover else list(also)
        self.places = AddressList(addresses[0], addresses[1:]) if addresses else None
        if self.places is not None and self.places.node_id not in (None, self.node_id):
            raise ConfigError(
                f"cannot reach {self.node_id} at {self.places}: the address is of another node"
            )

    @property
    def node_id(self) -> NodeId:
        """The ID of the node to reach."""
        return self.ids[-1]


class TunnelSessions:
    """The sessions of `node` over tunnels that `open_tunnel` opens, until `close`.

    With `leads_around`, a failed handshake is retried through another tunnel if `leads_around`
    returns that it would take another path. There are three attempts in total, each with a third of
    the time.
    """

    def __init__(
        self,
        node: TunnelDialler,
        open_tunnel: Callable[[Sequence[NodeId]], Awaitable[TunnelTransport]],
        draw: Callable[[], float] = random_fraction,
        *,
        leads_around: Callable[[Sequence[NodeId]], bool] | None = None,
    ) -> None:
        self._node = node
        self._open_tunnel = open_tunnel
        self._draw = draw
        self._leads_around = leads_around
        self._sessions: dict[Peer, Runner | None] = {}  # with the task that moves each session
        self._closed = False

    async def reach(self, target: Target, name: str, timeout: float) -> Peer:
        """Open a session within `timeout` seconds; `name` is for the log. Raises as
        `TunnelDialler.connect_by`."""
        loop, places = self._node.backend, target.places
        current = self._node.current
        ids = tuple(map(current, target.ids))
        dials = [tunnel_dial(lambda: self._open_tunnel(tuple(map(current, ids))))]
        if places is not None:
            dials.append(direct_dial(places, loop, ids[-1]))
        peer = await self._connect(dials, target, ids, name, timeout)
        if self._closed:  # closed while the session was opened
            peer.live.drop(CloseCode.GOING_AWAY)
            raise TunnelRefusedError(ResultCode.UNREACHABLE)
        self._sessions = {one: mover for one, mover in self._sessions.items() if not one.is_gone}
        self._sessions[peer] = None
        if places is not None:
            self._sessions[peer] = loop.spawn(keep_direct, peer, _DIRECT, self._draw)
        return peer

    async def _connect(
        self,
        dials: Sequence[Dial],
        target: Target,
        ids: Sequence[NodeId],
        name: str,
        timeout: float,
    ) -> Peer:
        around = self._leads_around
        left = 1 if around is None else ATTEMPTS
        share = timeout / left
        while True:
            try:
                return await self._node.connect_by(dials, target.node_id, name=name, timeout=share)
            except HandshakeError:
                left -= 1
                if not left or around is None or not around(ids):
                    raise

    async def close(self, *, graceful: bool) -> None:
        """Close all sessions. `graceful` waits for the peer's Close, if there is a transport."""
        self._closed = True
        sessions, self._sessions = self._sessions, {}
        try:
            for mover in sessions.values():
                if mover is not None:
                    mover.cancel()
            if graceful:
                with ungrouped():
                    async with anyio.create_task_group() as closing:
                        for peer in sessions:
                            closing.start_soon(_close, peer)
        finally:
            for peer in sessions:
                if peer.is_suspended:
                    peer.live.lost("its tunnels are closed")
                peer.live.drop(CloseCode.GOING_AWAY)  # does nothing if it is closed


async def _close(peer: Peer) -> None:
    """Close a session. Without a transport, drop it, because no new tunnel will carry its Close."""
    async with anyio.create_task_group() as closing:
        closing.start_soon(peer.close)
        await peer.live.changes.until(lambda: peer.is_suspended or peer.is_gone)
        closing.cancel_scope.cancel()


def direct_dial(places: AddressList, loop: Backend, node_id: NodeId) -> Dial:
    """Return a function that dials the direct addresses of the node `node_id` in turn."""

    async def dial(accept: Callable[[], Driver | None]) -> None:
        failed: UnreachableError | None = None
        for text in await places.found(node_id):
            try:
                await loop.connect(Address.parse(text), accept)
                return
            except UnreachableError as error:
                failed = error
        raise failed or UnreachableError(f"cannot connect to {places}: no address was found")

    return dial


async def keep_direct(peer: Peer, by: int, draw: Callable[[], float] = random_fraction) -> None:
    """Try to move the session of `peer` to its dial number `by` while a tunnel carries it:
    immediately, then after increasing pauses, until the session ends. A move has failed if the
    session returns to a tunnel within 10 seconds.
    """
    live, loop = peer.live, peer.backend
    redialling = live.redialling
    if redialling is None or live.core.resumption is None:
        return

    with suppress(PeerClosedError):
        await peer.ping()  # a session can move only after the peer has sent an event in it

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
            seconds = PAUSES.delay(failures, draw())
            await pause_until(loop, seconds, live.changes, lambda: is_over() or not is_tunnelled())
        if is_over():
            return
        if is_tunnelled():
            redialling.now(by)
            failures, tried = failures + 1, loop.now()
