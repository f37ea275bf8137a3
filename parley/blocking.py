"""Peers and links for programs that await nothing: scripts, notebooks, threads."""

from node.blocking.link import BlockingLink, link
from node.blocking.peer import BlockingPeer, connect
from node.blocking.reading import BlockingAnswer, BlockingSubscription

__all__ = [
    "BlockingAnswer",
    "BlockingLink",
    "BlockingPeer",
    "BlockingSubscription",
    "connect",
    "link",
]
