"""Peers and links for programs that await nothing: scripts, notebooks, threads."""

from parley._node.blocking.link import BlockingLink, link
from parley._node.blocking.peer import BlockingPeer, connect
from parley._node.blocking.reading import BlockingAnswer, BlockingSubscription

__all__ = [
    "BlockingAnswer",
    "BlockingLink",
    "BlockingPeer",
    "BlockingSubscription",
    "connect",
    "link",
]
