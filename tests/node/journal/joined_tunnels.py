"""Records of tunnels as their hops report them, for tests of journals and of the pipeline."""

from typing import Any

from parley._crypto.identity import NodeId
from parley._node.federation.dials import TunnelRecord
from parley._node.journal import keys
from parley._node.journal.record_types import JoinedTunnel
from tests.node.journal.memory_journal import NOW, MemoryJournal

TRACE = bytes(range(16))


def server(number: int) -> NodeId:
    """Return a server without a journal."""
    return NodeId(bytes([number]) * 32)


def tunnel_record(**changed: Any) -> TunnelRecord:
    """Return the record of the first server between two others, about a tunnel of one second."""
    record: dict[str, Any] = {
        "trace": TRACE,
        "hop": 1,
        "length": 3,
        "before": server(1),
        "after": server(3),
        "began": NOW / 1e9,
        "ended": NOW / 1e9 + 1,
        "forward": 300,
        "back": 70_000,
    }
    return TunnelRecord(**(record | changed))


def join(journal: MemoryJournal, record: TunnelRecord) -> None:
    """Add the record to a journal in memory."""
    journal.log.record(keys.TUNNEL, JoinedTunnel.of(record).encode())
