"""`Home`: a server at which a node has an account (docs/protocol/federation.md section 20).

The node dials others through it, and they dial the node.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Protocol, Self, Unpack

from anyio import CapacityLimiter

from parley._crypto.errors import StatementError
from parley._crypto.identity import NodeId
from parley._crypto.randomness import random_bytes
from parley._lbm.codec import Encodable
from parley._node.backoff import Backoff
from parley._node.data_types import Model
from parley._node.errors import CallTimeout, ParleyError, PeerClosedError, TunnelRefusedError
from parley._node.federation.exports import Exports, read_topic_name
from parley._node.handlers.registry import Handlers
from parley._node.logs import one_line
from parley._node.peer.link import Dialler, Link
from parley._node.peer.login import log_in, log_out
from parley._node.peer.peer import DEFAULT_TIMEOUT, CallOptions, Peer
from parley._node.peer.reconnecting import random_fraction
from parley._node.protocol.codes import TUNNEL_LABEL, CloseCode, ResultCode
from parley._node.protocol.errors import LocalError
from parley._node.protocol.event_types import TRACE_SIZE
from parley._node.remote.resumer import Dial
from parley._node.trust.key_statements import KeyStatements
from parley._node.trust.policies import AcceptHook, TrustPolicy
from parley._node.trust.statement_table import MAX_ANSWER_BYTES, MAX_STATEMENTS
from parley._node.trust.watched_file import in_thread
from parley._node.tunnels.dial import TUNNEL_TIMEOUT, dial_tunnel
from parley._node.tunnels.policy import AccountDialPolicy, DialPolicy
from parley._node.tunnels.service import TunnelService
from parley._node.tunnels.session_pool import SessionPool
from parley._node.tunnels.tunnel_sessions import REACH_TIMEOUT, Target, TunnelSessions
from parley._node.tunnels.tunnel_transport import TunnelTransport

logger = logging.getLogger("parley.node")

# The call with which a node asks its home for key statements, and the most IDs in it (section 22).
STATEMENTS_CALL: Final = "parley.statements"
MOST_ASKED: Final = 16
# Longest time in seconds to log out, if the home doesn't answer.
LOGOUT_TIMEOUT: Final = 1.0
# Sessions with topic owners that stay open: half of the tunnels that an account may have.
MOST_PUBLISHERS: Final = 8


class HomedNode(Dialler, Protocol):
    """The parts of a node that its homes use."""

    handlers: Handlers
    statements: KeyStatements

    @property
    def node_id(self) -> NodeId:
        """The node's ID."""

    async def connect_by(
        self, dials: Sequence[Dial], node_id: NodeId, *, name: str, timeout: float = ...
    ) -> Peer:
        """Connect to `node_id` over one of `dials`; raises as `Node.connect`."""

    def current(self, node_id: NodeId) -> NodeId:
        """Return the node ID to dial in place of one; IdentityEndedError if there is none."""

    def offer_statements(
        self, encoded: Sequence[bytes], *, dialled: Iterable[NodeId] = ()
    ) -> StatementError | None:
        """Store the statements of another node that are valid; return the last error."""

    def serve_tunnels(self, policy: DialPolicy) -> TunnelService:
        """Accept Dials; ParleyError if the node does already."""


class Homes:
    """The homes of one node. While there is one, the node accepts tunnels that come through it."""

    def __init__(self, node: HomedNode) -> None:
        self._node = node
        self._servers: dict[Exports, Callable[[], NodeId | None]] = {}

    def add(self, exports: Exports, server: Callable[[], NodeId | None]) -> None:
        """Add a home until `remove`. `server` returns its id, None while that is unknown.

        Raises:
            ParleyError: the node is a server itself and serves tunnels of its own.
        """
        node = self._node
        if not self._servers:
            node.serve_tunnels(AccountDialPolicy(node.node_id, self._ids, node.backend.now))
        self._servers[exports] = server
        node.handlers.exports.add(exports)

    def remove(self, exports: Exports) -> None:
        """Remove a home and its exports, if it was added."""
        if self._servers.pop(exports, None) is None:
            return
        handlers = self._node.handlers
        handlers.exports.discard(exports)
        if not self._servers:
            del handlers.reserved[TUNNEL_LABEL]

    def _ids(self) -> set[NodeId]:
        found = (server() for server in self._servers.values())
        return {one for one in found if one is not None}


class Home(Link):
    """A home server of a node, active while `async with node.home(..) as home`.

    It is a link that logs in with each new session and is up afterwards. Without an account there,
    it redials with the longest pauses, and `error` is CallRefused with code 20.

    Requests go to the home server, as with any link. For example, `home.subscribe("TOPIC@ID")`
    reads a topic of another server, which the home subscribes to with its own permission.
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
        pauses: Backoff | None = None,
        draw: Callable[[], float] = random_fraction,
    ) -> None:
        super().__init__(node, among, address, also, trust=trust, pauses=pauses, draw=draw)
        self.exports = exports
        self._node: HomedNode = node
        self._threads = CapacityLimiter(1)
        self._homes = homes
        self._sessions = TunnelSessions(node, self._open_tunnel, draw)
        self._publishers: SessionPool[tuple[NodeId, ...]] = SessionPool(
            lambda peer: self.backend.spawn(peer.close), limit=MOST_PUBLISHERS
        )

    def __repr__(self) -> str:
        return f"<Home at {self._places}, {'up' if self.is_up else 'down'}>"

    @property
    def server(self) -> NodeId | None:
        """The home's node ID; None if no address contains it and the home hasn't answered yet."""
        node_id = self._places.node_id
        # The successor has the addresses of an ended ID.
        return None if node_id is None else self._node.statements.table.current(node_id)

    async def reach(
        self,
        *ids: NodeId | str,
        also: Sequence[str] = (),
        discover: bool = False,
        timeout: float = REACH_TIMEOUT,
    ) -> Peer:
        """Open an end-to-end session with a server, `reach(id)`, or with a node at its home,
        `reach(home_id, id)`, through a tunnel that this home dials. It can use what the node
        exports.

        If its tunnel is lost, the session continues over another. With direct addresses in `also`,
        or with `discover` if the node is announced on the local network (extra `discovery`), it
        moves there as soon as it can. It ends with this home. `timeout` is seconds for all of it.

        If no tunnel leads there, this node asks the home for key statements about the IDs. If they
        name a successor of one, this node dials again (section 22).

        Raises:
            ConfigError: not one or two node ids, or `also` has addresses of another node.
            AddressError: not a direct address.
            CallTimeout: no connection with the home; its cause is the reason.
            IdentityEndedError: one of the IDs has ended, and no successor is known or accepted.
            TunnelRefusedError: an UnreachableError: no tunnel leads there; `code` is the reason.
            HandshakeError, NotTrustedError: as `Node.connect`. The home doesn't see a server on the
                path that lies, and may choose the same path again.
        """
        target = Target(ids, also, discover=discover)
        began = self.backend.now()
        await self.connected(timeout)
        name = f"{target.node_id.short} by {self._places}"

        def left() -> float:
            return max(0.0, timeout - (self.backend.now() - began))

        def current() -> list[NodeId | None]:
            return list(map(self._node.statements.table.current, target.ids))

        dialled = current()
        try:
            return await self._sessions.reach(target, name, left())
        except TunnelRefusedError:
            await self._ask_about([one for one in dialled if one is not None], left())
            if current() == dialled:
                raise
        return await self._sessions.reach(target, name, left())

    async def _ask_about(self, node_ids: Sequence[NodeId], timeout: float) -> None:
        """Ask the home for key statements about node IDs, and store those that are valid."""
        try:
            of = {"of": list(map(str, node_ids))}
            answer = await self.call(STATEMENTS_CALL, of, timeout=timeout)
        except (ParleyError, LocalError) as error:
            self._log_no_statements(node_ids, error)
            return
        statements = answer.get("statements") if isinstance(answer, dict) else None
        found = statements if isinstance(statements, list) else [None]
        encoded = [one for one in found if type(one) is bytes]
        too_many = len(found) > MAX_STATEMENTS or sum(map(len, encoded)) > MAX_ANSWER_BYTES
        if too_many or len(encoded) < len(found):
            self._log_no_statements(node_ids, "the answer is malformed or too long")
            return
        store = partial(self._node.offer_statements, encoded, dialled=node_ids)
        failed = await in_thread(self._threads, store)
        if failed is not None:
            self._log_no_statements(node_ids, failed)

    def _log_no_statements(self, node_ids: Sequence[NodeId], why: object) -> None:
        for node_id in node_ids:
            logger.debug(
                "no key statements about %s from %s: %s",
                node_id,
                self._places,
                one_line(str(why)),
                extra={"event": "home.no-statements", "peer": node_id},
            )

    async def publish(
        self, topic: str, data: Encodable | Model = None, **options: Unpack[CallOptions]
    ) -> int | None:
        """Publish to a topic that lists this node as a writer: `TOPIC@SERVER`, or
        `TOPIC@HOME/NODE` of a node that is logged in there, end to end through a tunnel; or a topic
        of the home. Returns the number of the note, None if the topic keeps no history.

        Raises:
            CallRefused: as `Peer.publish`; 20 also if the topic's node does not export
                `publish:TOPIC`.
            LimitReachedError: publishing to 8 other nodes is in progress. Also whatever `reach` and
                `Peer.call` raise.
        """
        name = self._name_there(topic)
        remote = read_topic_name(name)
        if remote is None:
            return await super().publish(name, data, **options)
        timeout = options.get("timeout", DEFAULT_TIMEOUT)
        to, limit = remote.to, REACH_TIMEOUT if timeout is None else min(timeout, REACH_TIMEOUT)
        began = self.backend.now()
        async with self._publishers.use(to, lambda: self.reach(*to, timeout=limit)) as peer:
            if timeout is not None:
                options["timeout"] = max(0.0, timeout - (self.backend.now() - began))
            return await peer.publish(remote.topic, data, **options)

    def _name_there(self, topic: str) -> str:
        """Return the name of a topic as the home knows it: without `@` if it is the home's own."""
        remote, current = read_topic_name(topic), self._node.statements.table.current
        server = self.server
        is_own = (
            remote is not None
            and server is not None
            and tuple(map(current, remote.to)) == (server,)
        )
        return remote.topic if remote is not None and is_own else topic

    async def _open_tunnel(self, to: Sequence[NodeId]) -> TunnelTransport:
        try:
            peer, _ = await self.connected(TUNNEL_TIMEOUT)
        except (CallTimeout, PeerClosedError, LocalError) as error:
            raise TunnelRefusedError(ResultCode.UNREACHABLE) from error
        trace = random_bytes(TRACE_SIZE)
        return await dial_tunnel(peer, to=to, trace=trace, timeout=TUNNEL_TIMEOUT)

    async def __aenter__(self) -> Self:
        """Start to dial, without waiting.

        Raises:
            ParleyError: as for a link, or the node is a server itself and dials its own tunnels.
        """
        if self._loop is not None:
            raise ParleyError("cannot enter a home twice: create another one")
        self._homes.add(self.exports, lambda: self.server)
        try:
            return await super().__aenter__()
        except BaseException:
            self._homes.remove(self.exports)
            raise

    async def aclose(self, *, graceful: bool = True) -> None:
        """Log out and close the home and all sessions through it; otherwise like `Link.aclose`."""
        try:
            await self._sessions.close(graceful=graceful)
            server = self._usable()
            if graceful and server is not None:
                with suppress(ParleyError):
                    await log_out(server, LOGOUT_TIMEOUT)
        finally:
            self._homes.remove(self.exports)
            await super().aclose(graceful=graceful)

    async def _dial(self) -> Peer:
        peer = await super()._dial()
        try:
            await log_in(peer, self.exports.patterns)
        except BaseException:
            peer.live.drop(CloseCode.GOING_AWAY)
            raise
        return peer
