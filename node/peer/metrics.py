"""Metrics of a node's connections: the open connections, and totals that include closed ones.

Each connection counts its own traffic; its totals are added here when it closes.
"""

from collections import Counter
from collections.abc import Iterator, Set
from typing import NamedTuple

from parley._node.config import NodeConfig
from parley._node.messaging.idempotency import IdempotencyCache
from parley._node.metrics import catalogue
from parley._node.metrics.catalogue import MetricFamily, family, labelled
from parley._node.peer.connection_handlers import direction
from parley._node.peer.peer import Peer
from parley._node.protocol.memory_budget import MemoryBudget
from parley._node.remote.session_table import SessionTable
from parley._node.trust.admission import Admission


class Traffic(NamedTuple):
    """The traffic of one connection: bytes received and sent, dropped events, and waits."""

    came: int = 0
    went: int = 0
    dropped: int = 0
    credit_waits: int = 0
    write_waits: int = 0


def traffic_of(peer: Peer) -> Traffic:
    """Return the traffic of a connection so far."""
    driver, core = peer.driver, peer.core
    return Traffic(
        driver.bytes_received,
        driver.bytes_sent,
        core.dropped,
        core.outbox.credit_waits,
        driver.write_waiters.waits,
    )


class ConnectionCollector:
    """Collects the metrics of the connections of one node."""

    def __init__(
        self,
        config: NodeConfig,
        peers: Set[Peer],
        admission: Admission,
        sessions: SessionTable,
        held: MemoryBudget,
        once: IdempotencyCache,
    ) -> None:
        self._config = config
        self._peers = peers
        self._admission = admission
        self._sessions = sessions
        self._held = held
        self._once = once
        self._gone = Traffic()

    def gone(self, peer: Peer) -> None:
        """Add the totals of a connection that has closed."""
        self._gone = Traffic(*map(sum, zip(self._gone, traffic_of(peer), strict=True)))

    def families(self) -> Iterator[MetricFamily]:
        """Yield the metric families."""
        config, peers = self._config, list(self._peers)
        states = Counter((direction(peer.live), _state(peer)) for peer in peers)
        yield labelled(catalogue.CONNECTIONS, states.items())
        yield family(catalogue.CONNECTIONS_LIMIT, config.max_connections)
        yield family(catalogue.HANDSHAKING_LIMIT, config.tuning.half_open)
        refused = self._admission.refused.items()
        yield labelled(catalogue.CONNECTIONS_REFUSED, (((why,), n) for why, n in refused))
        yield family(catalogue.SESSIONS_WAITING, len(self._sessions))
        yield family(catalogue.SESSIONS_WAITING_LIMIT, config.tuning.parted_sessions)
        total = Traffic(*map(sum, zip(self._gone, *map(traffic_of, peers), strict=True)))
        yield family(catalogue.RECEIVED, total.came)
        yield family(catalogue.SENT, total.went)
        yield family(catalogue.EVENTS_DROPPED, total.dropped)
        yield family(catalogue.CREDIT_WAITS, total.credit_waits)
        yield family(catalogue.WRITE_WAITS, total.write_waits)
        outboxes = [peer.core.outbox for peer in peers]
        yield family(catalogue.QUEUED_EVENTS, sum(outbox.count for outbox in outboxes))
        yield family(catalogue.QUEUED, sum(outbox.size for outbox in outboxes))
        waiting = sum(len(peer.driver.write_waiters.waiters) for peer in peers)
        yield family(catalogue.WRITERS_WAITING, waiting)
        yield family(catalogue.STREAMS, sum(len(peer.streams) for peer in peers))
        yield family(catalogue.MEMORY, self._held.held)
        yield family(catalogue.MEMORY_LIMIT, self._held.limit)
        running = sum(len(peer.calls.incoming) for peer in peers)
        yield family(catalogue.REQUESTS_RUNNING, running)
        yield family(catalogue.REQUESTS_WAITING, sum(len(peer.outgoing) for peer in peers))
        yield family(catalogue.ONCE_REMEMBERED, len(self._once))


def _state(peer: Peer) -> str:
    live = peer.live
    if live.agreed is None:
        return "opening"
    if live.ended is not None:
        return "closing"
    return "suspended" if live.is_suspended else "open"
