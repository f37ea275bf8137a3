"""All links of one server: those that its settings name, and those that members make with it."""

from collections.abc import Callable, Collection, Iterator
from typing import Final

from parley._crypto.identity import NodeId
from parley._node.backoff import Pauses
from parley._node.errors import ConfigError
from parley._node.federation.limits import LEAST_LINK_PAYLOAD, MOST_LINKS
from parley._node.links.redial import random_fraction
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import CloseCode
from parley._node.server.link import DialServer, LinkHooks, ServerLink, require_link
from parley._node.settings.federation import FederationSettings
from parley._node.transport.backend import Backend

# In a row, of links that are dialled: other ways are used meanwhile, and servers are few.
PAUSES: Final = Pauses(first=0.5, longest=15.0)


class ServerLinks:
    """The links, by the node id of the other server. A link that only the other side dials is
    there while it is up."""

    def __init__(
        self,
        own_id: NodeId,
        settings: FederationSettings,
        hooks: LinkHooks,
        *,
        pauses: Pauses | None = None,
        draw: Callable[[], float] = random_fraction,
    ) -> None:
        require_others(own_id, settings)
        self._own_id = own_id
        self._members: Collection[NodeId] = settings.all_members
        self._hooks = hooks
        self._pauses = pauses or PAUSES
        self._draw = draw
        self._loop: Backend | None = None
        self._links = {
            node_id: self._new(node_id, places) for node_id, places in settings.places.items()
        }

    def __iter__(self) -> Iterator[ServerLink]:
        return iter(self._links.values())

    def peer(self, node_id: NodeId) -> Peer | None:
        """The session of the link with that server, if it is up."""
        link = self._links.get(node_id)
        return None if link is None else link.peer

    def begin(self, loop: Backend, dial: DialServer) -> None:
        """Start to dial."""
        self._loop = loop
        for link in self:
            link.begin(loop, dial)

    async def end(self) -> None:
        """End them all, and dial no more."""
        self._loop = None
        links = list(self)
        for link in links:
            link.drop()
        for link in links:
            await link.stop()

    def change_members(self, members: Collection[NodeId]) -> None:
        """Let these link here from now on, and end the links with others."""
        self._members = members
        for link in list(self):
            if link.node_id not in members:
                link.drop()

    def redial(self) -> None:
        """The network has changed: dial what is down now."""
        for link in self:
            link.redial()

    def accept(self, peer: Peer) -> CloseCode | None:
        """A session on which the other side made itself the link's: take it. Returns why not; a
        session with payloads that are too small for a link is closed."""
        node_id, loop = peer.node_id, self._loop
        if node_id not in self._members or peer.core.initiator or loop is None:
            return CloseCode.NOT_AUTHORISED
        assert node_id is not None
        if peer.limits.max_payload < LEAST_LINK_PAYLOAD:
            peer.live.drop(CloseCode.NORMAL)
            return CloseCode.REFUSED
        try:
            require_link(peer)
        except ConfigError:
            return CloseCode.REFUSED
        link = self._links.get(node_id)
        if link is None:
            if len(self._links) >= MOST_LINKS:
                return CloseCode.OVERLOADED
            link = self._links[node_id] = self._new(node_id, ())
            link.begin(loop)
        if link.peer is peer or link.take(peer):
            return None
        return CloseCode.REFUSED

    def forget(self, link: ServerLink) -> None:
        """It is down; one that only the other side dials is over."""
        if not link.is_kept and not link.is_up:
            self._links.pop(link.node_id, None)

    def _new(self, node_id: NodeId, places: tuple[str, ...]) -> ServerLink:
        return ServerLink(
            self._own_id, node_id, places, self._hooks, pauses=self._pauses, draw=self._draw
        )


def require_others(own_id: NodeId, settings: FederationSettings) -> None:
    """Raise ConfigError if the node itself is among the members."""
    if own_id in settings.all_members:
        raise ConfigError(
            "a server is not a member of its own federation: that node id is this one's: "
            f"{own_id}; remove it from links and members"
        )
