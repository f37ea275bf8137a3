"""How a node meets others: it listens, dials, and keeps links.

What it is made of, how it lives and what it lets in is up to `Node`.
"""

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final, cast
from weakref import WeakSet

from anyio.abc import ByteStream

from parley._crypto.identity import NodeId
from parley._node.backoff import Pauses
from parley._node.config import NodeConfig
from parley._node.errors import ConfigError
from parley._node.federation.dials import TunnelRecord
from parley._node.federation.exports import Exports
from parley._node.metrics import catalogue
from parley._node.metrics.catalogue import MetricFamily, family, labelled
from parley._node.peer.dial import (
    open_over,
    open_peer,
    parse_addresses,
    policy_for,
    proof,
    stream_dial,
)
from parley._node.peer.link import Link
from parley._node.peer.peer import Peer
from parley._node.peer.reconnecting import random_fraction
from parley._node.protocol.config_types import require_number
from parley._node.registrar import Registrar
from parley._node.remote.resumer import Dial, SessionResumer
from parley._node.transport.address import Address
from parley._node.transport.backend import Backend, Listener
from parley._node.transport.driver import Driver
from parley._node.trust.policies import AcceptHook, Decider, Pinned, TrustPolicy
from parley._node.tunnels.home_server import Home, Homes
from parley._node.tunnels.policy import Switch
from parley._node.tunnels.service import TunnelService, offer_tunnels
from parley._node.tunnels.session_pool import Outers

CONNECT_TIMEOUT: Final = 10.0


class Connections(Registrar):
    """The part of a node that others are met through."""

    trust: Decider

    def __init__(self, config: NodeConfig, loop: Callable[[], Backend]) -> None:
        super().__init__(config, loop)
        self._listeners: list[Listener] = []
        self._links: set[Link] = set()
        self._outers = Outers(self.connect, loop)
        self._homes = Homes(self)
        self._tunnels: WeakSet[TunnelService] = WeakSet()
        self.metrics.add(self._families)

    @property
    def backend(self) -> Backend:
        """The loop it runs in, for what is joined to it; ParleyError if it does not run."""
        return self._loop()

    @property
    def addresses(self) -> list[str]:
        """What the node listens on, with its node id."""
        return [str(self._advertised(listener.address)) for listener in self._listeners]

    async def listen(self, address: str) -> str:
        """Listen on `tcp://host:port` (port 0: any), `unix:///path`, or `memory://name`, where
        nodes of the same event loop find it.

        Returns:
            The address to dial, with this node's id, so that it is pinned.

        Raises:
            AddressError: not an address. UnreachableError: it cannot be listened on.
        """
        self._check_journal()
        listener = await self._loop().listen(Address.parse(address), self._accept)
        self._listeners.append(listener)
        return str(self._advertised(listener.address))

    async def connect(
        self,
        address: str,
        *,
        also: Iterable[str] = (),
        trust: TrustPolicy | AcceptHook | None = None,
        timeout: float = CONNECT_TIMEOUT,
        resumable: bool = True,
    ) -> Peer:
        """Dial a node and do the handshake; `timeout` is seconds for both. `also` are more
        addresses of the same node: they are tried in turn, and so they are when the transport
        is lost and the session is to go on over another (docs/protocol.md section 17). One that
        is not `resumable` ends with its transport. An address `via://host:port/SERVER#NODEID`, or
        `/SERVER/HOME#NODEID`, leads through a tunnel that this server opens for us (section 19).

        The peer must be the one whose id the address carries; without an id `trust` has
        to say who will do.

        Raises:
            AddressError: not an address. ConfigError: neither a node id nor `trust`, or one of
                `also` carries another id.
            UnreachableError: nobody answers; TunnelRefusedError, which is one: no tunnel leads
                there. HandshakeError: they could not agree.
            NotTrustedError: it is another node, or refuses us.
        """
        require_number("timeout", timeout, error=ConfigError)
        addresses = parse_addresses(address, also)
        target, place = addresses[0], addresses[0].place
        policy = policy_for(target, trust, self.config)
        peer = self._peer(policy, place, initiator=True, dialled=place, resumable=resumable)
        dials = [self._dial(one) for one in addresses]
        await open_peer(peer, dials, timeout, self._anew(place))
        return peer

    async def connect_by(
        self,
        dials: Sequence[Dial],
        node_id: NodeId,
        *,
        name: str,
        timeout: float = CONNECT_TIMEOUT,
    ) -> Peer:
        """Do the handshake with the node `node_id` over whatever one of `dials` leads to
        (`tunnel_dial`); they are tried in turn, now and when the session has lost its transport.
        `name` is for the log. Raises as `connect`."""
        policy = policy_for(None, Pinned(node_id), self.config)
        peer = self._peer(policy, name, initiator=True)
        await open_peer(peer, dials, timeout, self._anew(name))
        return peer

    def add_addresses(self, peer: Peer, addresses: Iterable[str]) -> None:
        """Let the session of a peer that was dialled go on over these addresses of the same node,
        too; AddressError, ConfigError as `connect`."""
        dials = [self._dial(address) for address in map(Address.parse, addresses)]
        if isinstance(peer.live.redialling, SessionResumer):
            peer.live.redialling.add(dials)

    def serve_tunnels(
        self, switch: Switch, on_over: Callable[[TunnelRecord], None] = lambda record: None
    ) -> TunnelService:
        """Let peers dial tunnels to this node and through it, as `switch` decides. `on_over` is
        given the record of each tunnel that was joined here. ParleyError if they may already."""
        service = TunnelService(self.node_id, switch, self._accept, self.metrics, on_over)
        self._tunnels.add(service)
        offer_tunnels(self.handlers, service)
        return service

    def link(
        self,
        address: str,
        *,
        also: Sequence[str] = (),
        trust: TrustPolicy | AcceptHook | None = None,
        pauses: Pauses | None = None,
        draw: Callable[[], float] = random_fraction,
    ) -> Link:
        """Keep a node reachable: `async with` it. It dials, and dials again after growing `pauses`
        whenever a session is over; `draw` gives the random part of them, 0 to 1. `also` has further
        addresses of the same node, 16 at most with the first; `trust` as in `connect`.

        Raises:
            AddressError: not an address. ConfigError: neither a node id nor `trust`, different
                node ids, or too many addresses.
        """
        return Link(self, self._links, address, also, trust=trust, pauses=pauses, draw=draw)

    def home(
        self,
        address: str,
        *,
        exports: Iterable[str] = (),
        also: Sequence[str] = (),
        trust: TrustPolicy | AcceptHook | None = None,
        pauses: Pauses | None = None,
        draw: Callable[[], float] = random_fraction,
    ) -> Home:
        """Keep a server reachable at which this node has an account, and stay logged in there:
        `async with` it. `exports` are what peers that come through a tunnel may ask for, at most
        64 names and patterns that end in `*` (of calls, topics, events, labels of streams, and of
        the bus), beside what `allow=` says; nothing by default. The rest is as in `link`.

        Raises:
            ConfigError: as `link`, or `exports` are not such patterns. AddressError: not an
                address.
        """
        return Home(
            self,
            self._links,
            self._homes,
            address,
            also,
            exports=Exports(exports),
            trust=trust,
            pauses=pauses,
            draw=draw,
        )

    async def connect_stream(
        self,
        stream: ByteStream,
        *,
        trust: TrustPolicy | AcceptHook,
        redial: Callable[[], Awaitable[ByteStream]] | None = None,
    ) -> Peer:
        """Do the handshake over any byte stream, as its initiator; raises as `connect`. If the
        stream is lost, the session goes on over another one that `redial` returns; without
        `redial` it ends."""
        backend = self._loop()
        policy = policy_for(None, trust, self.config)
        peer = self._peer(policy, "stream", initiator=True, resumable=redial is not None)
        if redial is not None:
            dials = [stream_dial(redial, backend)]
            peer.live.redialling = SessionResumer(
                peer.live, dials, proof(peer, self._anew("stream"))
            )
        await open_over(peer, stream)
        return peer

    async def accept_stream(self, stream: ByteStream) -> Peer:
        """Do the handshake over any byte stream, as its responder; raises as `connect`. If the
        other side goes on with a session over it, that one's peer is returned."""
        peer = self._peer(self.trust, "stream", initiator=False)
        await open_over(peer, stream)
        became = peer.live.became
        return peer if became is None else cast(Peer, became.remote)

    def _dial(self, address: Address) -> Dial:
        """How an address is dialled.

        Raises:
            ConfigError: it is to be reached by a tunnel, and says no node id.
        """
        if address.scheme != "via":
            return partial(self._loop().connect, address)
        if address.node_id is None:
            raise ConfigError(
                f"cannot dial {address}: the node id to reach is missing; append #NODEID"
            )
        return self._outers.dial(address)

    def _anew(self, name: str) -> Callable[[TrustPolicy], Peer]:
        """What makes a peer that is only to prove that it answers."""
        return lambda policy: self._peer(policy, name, initiator=True, resumable=False)

    def _families(self) -> Iterable[MetricFamily]:
        """What is told of its links and tunnels."""
        up = sum(link.is_up for link in self._links)
        states = ((("up",), up), (("down",), len(self._links) - up))
        yield labelled(catalogue.LINKS, states)
        yield family(catalogue.TUNNELS, sum(service.count for service in self._tunnels))

    def _advertised(self, address: Address) -> Address:
        if self.config.plaintext == "only":
            return address.without_node_id()
        return address.with_node_id(self.node_id)

    # Of the node itself.

    @property
    @abstractmethod
    def node_id(self) -> NodeId:
        """The id of this node."""

    @abstractmethod
    def _check_journal(self) -> None:
        """Raise JournalFailedError if nothing may be said any more."""

    @abstractmethod
    def _accept(self, name: str) -> Driver | None:
        """A connection came."""

    @abstractmethod
    def _peer(
        self,
        policy: Decider,
        name: str,
        *,
        initiator: bool,
        dialled: str | None = None,
        resumable: bool = True,
    ) -> Peer:
        """A connection begins."""
