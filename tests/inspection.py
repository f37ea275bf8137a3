"""Read the internal state of nodes, peers and streams that has no public reading.

Tests of leaks and of limits use these functions, so that only this file depends on
private attributes.
"""

from parley._node.fair_slots import FairSlots
from parley._node.messaging.once import OnceMemory
from parley._node.messaging.topics import Topics
from parley._node.node import Node
from parley._node.peer.peer import Peer
from parley._node.protocol.account import Account
from parley._node.remote.sessions import SessionTable
from parley._node.streams.stream import Stream
from parley._node.transport.driver import Driver


def connections_of(node: Node) -> set[Peer]:
    """Return every peer that the node holds, including those in a handshake and local ones."""
    return node._peers


def half_open_of(node: Node) -> FairSlots[Peer]:
    """Return the accepted peers that have not completed the handshake."""
    return node._half_open


def suspended_of(node: Node) -> SessionTable:
    """Return the sessions that wait to be resumed."""
    return node._sessions


def once_of(node: Node) -> OnceMemory:
    """Return the results that the node keeps of calls made with `once=`."""
    return node._once


def memory_of(node: Node) -> Account:
    """Return the account of the bytes that the node buffers for all peers."""
    return node._held


def accept(node: Node, address: str) -> Driver | None:
    """Accept a connection from `address`, as a listener does; None if a limit refuses it."""
    return node._accept(address)


def error_code_of(stream: Stream) -> int | None:
    """Return the code of the error that ended the stream, if one did."""
    return stream._error.code if stream._error is not None else None


def topic_tables(topics: Topics) -> dict[str, int]:
    """Return the size of each table of subscriptions. All are 0 after the last one has ended."""
    return {
        "feeds": len(topics._feeds),
        "feeds by topic": len(topics._feeds_by_topic),
        "readers": len(topics._readers),
        "readers by topic": len(topics._readers_by_topic),
        "expected": len(topics._expected),
        "offered": len(topics._offered),
    }
