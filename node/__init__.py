"""Parley: a secure peer-to-peer messaging node.

`Node` and `Identity` are where to begin; `Peer`, `Call` and `Stream` are what they hand
out, `node.errors` what they raise.
"""

from crypto.identity import Identity, NodeId
from node.accept_hook import Candidate
from node.call import Call
from node.config import NodeConfig
from node.errors import (
    CallRefused,
    CallTimeout,
    HandshakeError,
    NotTrustedError,
    ParleyError,
    PeerClosedError,
    StreamResetError,
    UnreachableError,
)
from node.node import Node
from node.peer import Peer
from node.stream import Stream

__all__ = [
    "Call",
    "CallRefused",
    "CallTimeout",
    "Candidate",
    "HandshakeError",
    "Identity",
    "Node",
    "NodeConfig",
    "NodeId",
    "NotTrustedError",
    "ParleyError",
    "Peer",
    "PeerClosedError",
    "Stream",
    "StreamResetError",
    "UnreachableError",
]
