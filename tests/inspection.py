"""Read the internal state of nodes, peers and streams that has no public reading.

Tests of leaks and of limits use these functions, so that only this file depends on
private attributes.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from parley._node.bus.sqlite.store import OpenStore, SqliteStore
from parley._node.fair_slots import FairSlots
from parley._node.federation.paths import PathFinder
from parley._node.messaging.idempotency import IdempotencyCache
from parley._node.messaging.outgoing_calls import ChunkInbox
from parley._node.messaging.topics import Topics
from parley._node.node import Node
from parley._node.peer.answer_stream import AnswerStream
from parley._node.peer.link_subscription import LinkSubscription
from parley._node.peer.peer import Peer
from parley._node.peer.subscription import Subscription
from parley._node.protocol.codes import SIM
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.event import Event
from parley._node.protocol.memory_budget import MemoryBudget
from parley._node.protocol.reports import Report
from parley._node.remote.resumer import Dial
from parley._node.remote.session_table import SessionTable
from parley._node.remote.stream import ReceiveQueue, Stream, StreamEvent
from parley._node.server.federation import Federation
from parley._node.testing.proxy import FaultyProxy
from parley._node.transport.address import Address
from parley._node.transport.driver import Driver
from parley._node.trust.revalidation import Revalidation


def connections_of(node: Node) -> set[Peer]:
    """Return every peer that the node holds, including those in a handshake and local ones."""
    return node.connections._peers


def replace_dial(node: Node, dial: Callable[[Address], Dial]) -> None:
    """Have the node dial every address by `dial`."""
    node.connections._dial = dial  # type: ignore[assignment,method-assign] # no public way


def half_open_of(node: Node) -> FairSlots[Peer]:
    """Return the accepted peers that have not completed the handshake."""
    return node.connections._half_open


def suspended_of(node: Node) -> SessionTable:
    """Return the sessions that wait to be resumed."""
    return node.connections._sessions


def once_of(node: Node) -> IdempotencyCache:
    """Return the results that the node keeps of calls made with `once=`."""
    return node.connections._once


def memory_of(node: Node) -> MemoryBudget:
    """Return the account of the bytes that the node buffers for all peers."""
    return node.connections._held


def accept(node: Node, address: str) -> Driver | None:
    """Accept a connection from `address`, as a listener does; None if a limit refuses it."""
    return node.connections.accept(address)


@contextmanager
def intercepted(
    peer: Peer,
    matches: Callable[[Report], bool],
    receive: Callable[[Report], object] = lambda report: None,
) -> Iterator[None]:
    """Pass the matching reports of the peer's core to `receive` instead of to its handlers."""
    take = peer.driver._on_reports

    def divert(reports: list[Report]) -> None:
        for report in filter(matches, reports):
            receive(report)
        take([report for report in reports if not matches(report)])

    peer.driver._on_reports = divert
    try:
        yield
    finally:
        peer.driver._on_reports = take


def is_sim(subcategory: int) -> Callable[[Report], bool]:
    """Return whether a report is an event of category 3 and this subcategory."""
    return lambda report: type(report) is Event and report.head[2:] == (SIM, subcategory)


def error_code_of(stream: Stream) -> int | None:
    """Return the code of the error that ended the stream, if one did."""
    return stream._error.code if stream._error is not None else None


def core_config_of(node: Node, *, resumable: bool) -> CoreConfig:
    """Return the settings that the node passes to a new connection."""
    return node.connections.core_config(resumable=resumable)


def reviews_of(node: Node) -> Revalidation:
    """Return the task that checks the connected peers again after a change of the trust policy."""
    return node.connections._reviews


def received_bytes_of(stream: Stream) -> ReceiveQueue[bytes]:
    """Return the unread received bytes."""
    return stream._bytes


def received_events_of(stream: Stream) -> ReceiveQueue[StreamEvent]:
    """Return the unread received events."""
    return stream._events


def stream_id_of(subscription: Subscription[Any]) -> int:
    """Return the number of the stream that carries the subscription."""
    return subscription._stream


def chunks_of(answer: AnswerStream) -> ChunkInbox | None:
    """Return the unread items of a streamed answer."""
    return answer._inbox


def parts_of(subscription: LinkSubscription[Any]) -> deque[Subscription[Any]]:
    """Return the subscriptions of a link's subscription, one for each session, oldest first."""
    return subscription._parts


def path_finder_of(federation: Federation) -> PathFinder:
    """Return what selects the paths of the federation's Dials."""
    return federation._directory._finder


def card_streams_of(federation: Federation) -> list[Stream]:
    """Return the streams on which the federation exchanges cards and statements."""
    return list(federation._cards._streams.values())


def running_of(store: SqliteStore) -> OpenStore:
    """Return the parts of an open SQLite store."""
    assert store._running is not None
    return store._running


def redirect(proxy: FaultyProxy, target: Address) -> None:
    """Connect the proxy's next connections to `target`."""
    proxy._target = target


def topic_tables(topics: Topics) -> dict[str, int]:
    """Return the size of each table of subscriptions. All are 0 after the last one has ended."""
    return {
        "feeds": len(topics._feeds),
        "feeds by topic": len(topics._feeds_by_topic),
        "readers": len(topics._readers),
        "readers by topic": len(topics._readers_by_topic),
        "expected": len(topics._expected),
        "offered": len(topics._offered),
        "given up": len(topics._given_up),
    }
