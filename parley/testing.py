"""Test utilities for applications: nodes connected in memory, a fake clock, and faulty
connections.
"""

from parley._node.testing import (
    ConnectedNodes,
    FakeClock,
    FaultyDirection,
    FaultyLink,
    FaultyProxy,
    connect_nodes,
    connected_nodes,
)
from parley._node.testing.clock import FakeTimer
from parley._node.testing.nodes import MemoryNetwork
from parley._node.transport.memory import MemoryStream, memory_pair

__all__ = [
    "ConnectedNodes",
    "FakeClock",
    "FakeTimer",
    "FaultyDirection",
    "FaultyLink",
    "FaultyProxy",
    "MemoryNetwork",
    "MemoryStream",
    "connect_nodes",
    "connected_nodes",
    "memory_pair",
]
