"""`BlockingLink`: a node that is kept reachable, for a program that awaits nothing."""

from collections.abc import Sequence

from parley._crypto.identity import Identity
from parley._node.backoff import Pauses
from parley._node.blocking.background import Background
from parley._node.blocking.requests import BlockingRequests
from parley._node.links.link import Link
from parley._node.node import Node
from parley._node.trust.policies import AcceptHook, TrustPolicy


class BlockingLink(BlockingRequests[Link]):
    """A link whose methods wait for what they return: calls wait for the connection, subscriptions
    go on over sessions. Made by `parley.blocking.link`.

    `link` is the same for asynchronous code, which has to run in its loop: `run` does that.
    """

    def __repr__(self) -> str:
        return f"<BlockingLink of {self.link!r}>"

    @property
    def link(self) -> Link:
        """The link, for what runs in its loop."""
        return self._asked

    @property
    def is_up(self) -> bool:
        """Whether there is a session at this moment."""
        return self.link.is_up

    def ready(self, timeout: float | None = None) -> None:
        """Wait until it is up, for so many seconds; raises as `Link.ready`."""
        self._background.run(self.link.ready, timeout)


def link(
    address: str,
    *,
    also: Sequence[str] = (),
    node: Node | None = None,
    trust: TrustPolicy | AcceptHook | None = None,
    pauses: Pauses | None = None,
) -> BlockingLink:
    """Keep a node reachable, as `Node.link`, which says what is raised; returns at once.

    `node` is our own, as in `connect`. It and the link live until that is closed.
    """
    ours = node or Node(Identity.create())
    kept = ours.link(address, also=also, trust=trust, pauses=pauses)
    return BlockingLink(Background(ours, kept), kept)
