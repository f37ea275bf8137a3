"""Synchronous peers and links, for scripts, notebooks and threads."""

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
