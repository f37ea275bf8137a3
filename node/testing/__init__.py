"""Test utilities for applications: connected nodes, a fake clock, and links with faults.

They use only the public interfaces of `node`; docs/guides/test-your-application.md explains them.
"""

from parley._node.testing.clock import FakeClock
from parley._node.testing.faults import FaultyDirection, FaultyLink
from parley._node.testing.nodes import ConnectedNodes, connect_nodes, connected_nodes
from parley._node.testing.proxy import FaultyProxy

__all__ = [
    "ConnectedNodes",
    "FakeClock",
    "FaultyDirection",
    "FaultyLink",
    "FaultyProxy",
    "connect_nodes",
    "connected_nodes",
]
