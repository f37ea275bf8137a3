"""For the tests of applications: connected nodes, a fake clock, links with faults.

It uses what `node` gives to everybody. docs/guides/test-your-application.md shows how to use it.
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
