"""`Neighbours`: the servers that this one is linked with: their sessions, and the cards that are
exchanged on them.
"""

import logging

from parley._crypto.identity import NodeId
from parley._node.backoff import Pauses
from parley._node.peer.peer import Peer
from parley._node.server.directory import DirectoryDriver
from parley._node.server.link import DialServer, ServerLink
from parley._node.server.links import ServerLinks
from parley._node.settings.federation import FederationSettings
from parley._node.streams.stream import Stream
from parley._node.transport.backend import Backend
from parley._node.transport.loop import Runner

logger = logging.getLogger("parley.federation")


class Neighbours:
    """Keeps the links of `settings`, and tells `cards` of those that come and go. ConfigError: the
    node itself is among them."""

    def __init__(
        self,
        own_id: NodeId,
        settings: FederationSettings,
        cards: DirectoryDriver,
        pauses: Pauses | None = None,
    ) -> None:
        self.links = ServerLinks(own_id, settings, self, pauses=pauses)
        self._cards = cards
        self._exchanging: dict[ServerLink, Runner] = {}
        self._loop: Backend | None = None

    def begin(self, loop: Backend, dial: DialServer) -> None:
        """Start to dial."""
        self._loop = loop
        self._cards.begin(loop)
        self.links.begin(loop, dial)

    async def end(self) -> None:
        """End the links, and dial no more."""
        self._cards.end()
        await self.links.end()

    async def opened(self, stream: Stream) -> None:
        """Serve a stream `federation`: whoever opens it makes its session a link."""
        peer = stream.peer
        assert isinstance(peer, Peer)
        refused = self.links.accept(peer)
        if refused is not None:
            logger.debug(
                "no link with %s: %s",
                peer.node_id,
                refused.name,
                extra={"event": "federation.link-refused", "peer": peer.node_id},
            )
            stream.reset(refused)
            return
        assert peer.node_id is not None
        await self._cards.exchange(peer.node_id, stream)

    # Of the links.

    def link_up(self, link: ServerLink, peer: Peer) -> None:
        """A session was made, and is kept."""
        logger.info(
            "the link with %s is up",
            link.node_id,
            extra={"event": "federation.link-up", "peer": link.node_id},
        )
        peer.live.measure_round_trip()
        self._cards.link_up(link.node_id)
        if peer.core.initiator and self._loop is not None:
            exchange = self._cards.keep_exchanging
            self._exchanging[link] = self._loop.spawn(exchange, link.node_id, peer)

    def link_down(self, link: ServerLink, peer: Peer) -> None:
        """That session is over, or another one took its place."""
        runner = self._exchanging.pop(link, None)
        if runner is not None:
            runner.cancel()
        self._cards.link_down(link.node_id)
        self.links.forget(link)
