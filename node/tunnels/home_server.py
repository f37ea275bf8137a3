"""`Homes`: the servers at which a node has accounts. Through them others may dial it, and ask for
what it exports (sections 19 and 20).
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol, Self

from parley._crypto.identity import NodeId
from parley._crypto.randomness import random_bytes
from parley._lbm.codec import Encodable
from parley._node.backoff import Pauses
from parley._node.data_types import Model
from parley._node.errors import CallTimeout, ParleyError, PeerClosedError, TunnelRefusedError
from parley._node.federation.exports import Exports, read_topic_name
from parley._node.handlers.registry import Handlers
from parley._node.peer.idempotency import IdempotencyKey
from parley._node.peer.link import Dialler, Link
from parley._node.peer.login import log_in, log_out
from parley._node.peer.peer import DEFAULT_TIMEOUT, Peer
from parley._node.peer.reconnecting import random_fraction
from parley._node.protocol.codes import TUNNEL_LABEL, CloseCode, ResultCode
from parley._node.protocol.errors import LocalProtocolError
from parley._node.protocol.event_types import TRACE_SIZE
from parley._node.remote.resumer import Dial
from parley._node.trust.policies import AcceptHook, TrustPolicy
from parley._node.tunnels.dial import dial_tunnel
from parley._node.tunnels.policy import AccountSwitch, Switch
from parley._node.tunnels.service import TunnelService
from parley._node.tunnels.session_pool import TIMEOUT, Publishers
from parley._node.tunnels.tunnel_sessions import REACH_TIMEOUT, Reaching, Way
from parley._node.tunnels.tunnel_transport import TunnelOutlet


class HomedNode(Dialler, Protocol):
    """What a home asks of its node, beside what a link does."""

    handlers: Handlers

    @property
    def node_id(self) -> NodeId:
        """Its id."""

    async def connect_by(
        self, dials: Sequence[Dial], node_id: NodeId, *, name: str, timeout: float = ...
    ) -> Peer:
        """Do the handshake over what one of `dials` leads to; raises as `Node.connect`."""

    def serve_tunnels(self, switch: Switch) -> TunnelService:
        """Let peers dial tunnels; ParleyError if they may already."""


class Homes:
    """The homes of one node. While there are any, it takes the tunnels that come through them."""

    def __init__(self, node: HomedNode) -> None:
        self._node = node
        self._servers: dict[Exports, Callable[[], NodeId | None]] = {}

    def begin(self, exports: Exports, server: Callable[[], NodeId | None]) -> None:
        """There is one more, until `end`: `server` gives its id, if that is known.

        Raises:
            ParleyError: the node serves tunnels of its own: it is a server itself.
        """
        node = self._node
        if not self._servers:
            node.serve_tunnels(AccountSwitch(node.node_id, self._ids, node.backend.now))
        self._servers[exports] = server
        node.handlers.exports.add(exports)

    def end(self, exports: Exports) -> None:
        """It is left, and what it exported is exported no more; a second time changes nothing."""
        if self._servers.pop(exports, None) is None:
            return
        handlers = self._node.handlers
        handlers.exports.discard(exports)
        if not self._servers:
            del handlers.reserved[TUNNEL_LABEL]

    def _ids(self) -> set[NodeId]:
        found = (server() for server in self._servers.values())
        return {one for one in found if one is not None}


# Seconds that leaving takes at most, if the home does not answer.
LEAVE_TIMEOUT: Final = 1.0


class Home(Link):
    """A home while `async with node.home(..) as home` lasts: a link that logs in with each new
    session, and is up once it has. Without an account there it is dialled on, with the longest
    pauses; `error` is then CallRefused with code 20.

    What is asked of it is asked of the home itself, as of any link: `home.subscribe("TOPIC@ID")`
    reads a topic of another server, which the home follows with its own right.
    """

    def __init__(
        self,
        node: HomedNode,
        among: "set[Link]",
        homes: Homes,
        address: str,
        also: Sequence[str] = (),
        *,
        exports: Exports,
        trust: TrustPolicy | AcceptHook | None = None,
        pauses: Pauses | None = None,
        draw: Callable[[], float] = random_fraction,
    ) -> None:
        super().__init__(node, among, address, also, trust=trust, pauses=pauses, draw=draw)
        self.exports = exports
        self._homes = homes
        self._reaching = Reaching(node, self._tunnel, draw)
        self._publishers = Publishers(lambda way, timeout: self.reach(*way, timeout=timeout))

    def __repr__(self) -> str:
        return f"<Home at {self._places}, {'up' if self.is_up else 'down'}>"

    @property
    def server(self) -> NodeId | None:
        """The home's node id; None as long as no address has said it and nobody answered."""
        return self._places.node_id

    # Others.

    async def reach(
        self,
        *ids: NodeId | str,
        also: Sequence[str] = (),
        discover: bool = False,
        timeout: float = REACH_TIMEOUT,
    ) -> Peer:
        """Open a session with a server, or with [home, node], end to end through a tunnel that this
        home dials. It may ask there for what is exported.

        The session goes on over another tunnel if its own is lost. With direct addresses of the
        node in `also`, or with `discover` if it is announced on the local network (extra
        `discovery`), it moves there as soon as it can. It ends with the home that it was reached
        through. `timeout` is seconds for all of it.

        Raises:
            ConfigError: not one or two node ids, or `also` has addresses of another node.
            AddressError: not a direct address. CallTimeout: no connection with the home; its cause
                is why. TunnelRefusedError, which is an UnreachableError: no tunnel leads there;
                its `code` says why. HandshakeError, NotTrustedError: as `Node.connect`; if a server
            between lies, the home does not see it, and may choose the same way another time.
        """
        way = Way(ids, also, discover=discover)
        began = self.backend.now()
        await self.connected(timeout)
        left = timeout - (self.backend.now() - began)
        name = f"{way.target.short} by {self._places}"
        return await self._reaching.reach(way, name, max(0.0, left))

    async def publish(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
        headers: Mapping[str, Encodable] | None = None,
        once: bool | bytes | IdempotencyKey = False,
    ) -> int | None:
        """Publish a note of a topic that has us among its writers: `TOPIC@SERVER`, or
        `TOPIC@HOME/NODE` of a node that is logged in there, end to end through a tunnel; or a topic
        of the home. Returns its number, None if the topic does not remember.

        Raises:
            CallRefused: as `Peer.publish`; 20 also if the topic's node does not export
                `publish:TOPIC`. LimitReachedError: notes for 8 nodes are on their way. What
                `reach` raises, and `Peer.call`.
        """
        elsewhere = read_topic_name(self._name_there(topic))
        if elsewhere is None:
            name = self._name_there(topic)
            return await super().publish(name, data, timeout=timeout, headers=headers, once=once)
        began = self.backend.now()
        reaching = REACH_TIMEOUT if timeout is None else min(timeout, REACH_TIMEOUT)
        async with self._publishers.at(elsewhere.to, reaching) as peer:
            if timeout is not None:
                timeout = max(0.0, timeout - (self.backend.now() - began))
            return await peer.publish(
                elsewhere.topic, data, timeout=timeout, headers=headers, once=once
            )

    def _name_there(self, topic: str) -> str:
        """A topic of the home itself has its plain name there."""
        elsewhere = read_topic_name(topic)
        return topic if elsewhere is None or elsewhere.to != (self.server,) else elsewhere.topic

    async def _tunnel(self, to: Sequence[NodeId]) -> TunnelOutlet:
        try:
            peer, _ = await self.connected(TIMEOUT)
        except (CallTimeout, PeerClosedError, LocalProtocolError) as error:
            raise TunnelRefusedError(ResultCode.UNREACHABLE) from error
        return await dial_tunnel(peer, to=to, trace=random_bytes(TRACE_SIZE), timeout=TIMEOUT)

    # Life.

    async def __aenter__(self) -> Self:
        """Start to dial; returns at once. ParleyError: as a link, or the node is a server itself,
        and dials tunnels of its own."""
        if self._loop is not None:
            raise ParleyError("a home is entered once")
        self._homes.begin(self.exports, lambda: self.server)
        try:
            return await super().__aenter__()
        except BaseException:
            self._homes.end(self.exports)
            raise

    async def aclose(self, *, graceful: bool = True) -> None:
        """Log out, and end it and what was reached through it; as `Link.aclose`."""
        try:
            await self._reaching.close(graceful=graceful)
            server = self._usable()
            if graceful and server is not None:
                with suppress(ParleyError):
                    await log_out(server, LEAVE_TIMEOUT)
        finally:
            self._homes.end(self.exports)
            await super().aclose(graceful=graceful)

    async def _dial(self) -> Peer:
        peer = await super()._dial()
        try:
            await log_in(peer, self.exports.patterns)
        except BaseException:
            peer.live.drop(CloseCode.GOING_AWAY)
            raise
        return peer
