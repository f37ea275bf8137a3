"""Peers and links for programs that await nothing: scripts, notebooks, threads."""

from parley._node.blocking.client import (
    BlockingAnswer,
    BlockingLink,
    BlockingPeer,
    BlockingSubscription,
    connect,
    link,
)

__all__ = [
    "BlockingAnswer",
    "BlockingLink",
    "BlockingPeer",
    "BlockingSubscription",
    "connect",
    "link",
]
