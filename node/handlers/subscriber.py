"""A subscription, as the publisher of its topic sees it."""

from parley._node.messaging.fanout import Feed
from parley._node.remote.remote import Remote


class Subscriber:
    """The subscription of a peer or guest (`peer`), as its publisher sees it."""

    __slots__ = ("_feed", "peer")

    def __init__(self, peer: Remote, feed: Feed) -> None:
        self.peer = peer
        self._feed = feed

    @property
    def dropped(self) -> int:
        """How many notes it lost because it did not keep up."""
        return self._feed.dropped

    @property
    def waiting_bytes(self) -> int:
        """What waits for it: each note's encoding and 64 bytes."""
        return self._feed.cost

    @property
    def behind(self) -> int:
        """How many notes it is yet to read out of what the topic remembers."""
        return self._feed.behind

    def __repr__(self) -> str:
        return f"<Subscriber {self.peer} of {self._feed.topic!r}>"
