"""`Federation`: makes a node a server: links to others, their cards, and what goes through it to
them (docs/protocol.md section 19).

All that it starts ends with its `async with`, which stands inside of the node's.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Self

from crypto.identity import NodeId
from node.backoff import Pauses
from node.discovery.announcement import reachable
from node.errors import ParleyError
from node.federation.card import Card
from node.federation.directory import Directory
from node.handlers.registry import Entry
from node.node import Node
from node.peer.peer import Peer
from node.protocol.codes import FEDERATION_LABEL
from node.server.directory import DirectoryDriver
from node.server.link import DialServer, ServerLink
from node.server.links import ServerLinks
from node.settings.federation import FederationSettings
from node.streams.stream import Stream
from node.transport.address import Address
from node.transport.loop import Runner

logger = logging.getLogger("parley.federation")


def wall_ms() -> int:
    """The time of day, in milliseconds since 1970."""
    return int(datetime.now(UTC).timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class FederatedServer:
    """Another server, by its card: what it says of itself. `links` are the servers that it has a
    link with, and whether it carries tunnels that come from there. `exports` and `addresses` are
    its word, and prove nothing. `made` and `expires` are by its clock. `path` is the way there from
    here, the ids from this server to that one; empty if there is none.
    """

    node_id: NodeId
    links: dict[NodeId, bool]
    exports: tuple[str, ...]
    addresses: tuple[str, ...]
    made: datetime
    expires: datetime
    path: tuple[NodeId, ...]


class Federation:
    """The part that `node` takes in a federation as `settings` have it, while its `async with`
    lasts. `dial` makes the sessions of links, by default over the network; `pauses` are those
    between dials; `wall` is the time of day in milliseconds since 1970.

    Raises:
        ConfigError: the node is a member of its own, there are too many members, or too much
            stands in its card.
    """

    def __init__(
        self,
        node: Node,
        settings: FederationSettings,
        *,
        dial: DialServer | None = None,
        pauses: Pauses | None = None,
        wall: Callable[[], int] = wall_ms,
    ) -> None:
        self.node = node
        self.settings = settings
        self._dial = dial or partial(node.connect, resumable=False)
        self._links = ServerLinks(node.node_id, settings, self, pauses=pauses)
        self.directory = Directory(
            node.identity, settings.all_members, carry=settings.carried, exports=settings.exports
        )
        self._cards = DirectoryDriver(self.directory, wall, self._addresses)
        self._exchanging: dict[ServerLink, Runner] = {}
        self._runs = False

    def __repr__(self) -> str:
        return f"<Federation of {self.node.node_id.short}: {len(self.servers)} servers>"

    # What is known of it.

    @property
    def links(self) -> list[ServerLink]:
        """The links that the settings name, and those that members have made."""
        return list(self._links)

    @property
    def servers(self) -> list[FederatedServer]:
        """The other servers whose cards are here, in the order of their ids."""
        cards = self.directory.cards
        return [self._server(cards[one]) for one in sorted(cards) if one != self.node.node_id]

    def path(self, *to: NodeId) -> tuple[NodeId, ...] | None:
        """The way to a server, or to a home and a node that has its account there: at most 8 ids,
        the first this server's; None if the cards tell of none."""
        return self.directory.path(to)

    def knows(self, node_id: NodeId) -> bool:
        """Whether a node is a member here, or has an account."""
        return node_id in self.directory.members

    def redial(self) -> None:
        """The network has changed: dial the links that are down now."""
        self._links.redial()

    # Life.

    async def __aenter__(self) -> Self:
        """Begin to dial; returns at once. ParleyError: the node does not run, or is a server."""
        loop, reserved = self.node.backend, self.node.handlers.reserved
        if FEDERATION_LABEL in reserved:
            raise ParleyError("the node is a server already")
        self._cards.begin(loop)
        reserved[FEDERATION_LABEL] = Entry(FEDERATION_LABEL, self._opened)
        self._links.begin(loop, self._dial)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        """End the links and all that goes through them."""
        self.node.handlers.reserved.pop(FEDERATION_LABEL, None)
        self._cards.end()
        await self._links.end()

    # Of the links.

    def link_up(self, link: ServerLink, peer: Peer) -> None:
        """A session was made, and is kept."""
        logger.info("the link with %s is up", link.node_id)
        self._cards.link_up(link.node_id)
        if peer.core.initiator:
            self._exchanging[link] = self.node.backend.spawn(
                self._cards.keep_exchanging, link.node_id, peer
            )

    def link_down(self, link: ServerLink, peer: Peer) -> None:
        """That session is over, or another one took its place."""
        runner = self._exchanging.pop(link, None)
        if runner is not None:
            runner.cancel()
        self._cards.link_down(link.node_id)
        self._links.forget(link)

    async def _opened(self, stream: Stream) -> None:
        """Another server has opened a stream `federation`: so this session is a link."""
        peer = stream.peer
        assert isinstance(peer, Peer)
        refused = self._links.accept(peer)
        if refused is not None:
            logger.info("no link with %s: %s", peer.node_id, refused.name)
            stream.reset(refused)
            return
        assert peer.node_id is not None
        await self._cards.exchange(peer.node_id, stream)

    # Inside.

    def _server(self, card: Card) -> FederatedServer:
        made, expires = card.envelope.made_ms, card.envelope.expires_ms
        return FederatedServer(
            card.origin,
            dict(card.links),
            card.exports,
            card.addresses,
            datetime.fromtimestamp(made / 1000, UTC),
            datetime.fromtimestamp(expires / 1000, UTC),
            self.directory.path((card.origin,)) or (),
        )

    def _addresses(self) -> list[str]:
        """What the node listens on, as far as others could dial it."""
        places = reachable(map(Address.parse, self.node.addresses), ())
        return [f"{place}#{self.node.node_id}" for place in places]
