"""Parley: a secure peer-to-peer messaging node.

`Node` and `Identity` are where to begin; `Peer`, `Call`, `Stream`, `Subscription` and
`Topic` are what they hand out, `node.errors` what they raise.
"""

try:
    from crypto.identity import Identity, NodeId
except ImportError as error:
    from node.shadows import explained

    raise explained(error) from None
from node.answer_stream import AnswerStream
from node.call import Call
from node.config import NodeConfig
from node.doors.accept_hook import Candidate
from node.errors import (
    CallRefused,
    CallTimeout,
    HandshakeError,
    NotTrustedError,
    ParleyError,
    PeerClosedError,
    StreamedAnswerError,
    StreamResetError,
    SubscribeRejected,
    UnreachableError,
)
from node.node import Node
from node.peer import Peer
from node.protocol.codes import Supercategory
from node.streams.event import StreamEvent
from node.streams.stream import Stream
from node.subscription import Subscription
from node.topic import SubscribeRequest, Topic

__all__ = [
    "AnswerStream",
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
    "StreamEvent",
    "StreamResetError",
    "StreamedAnswerError",
    "SubscribeRejected",
    "SubscribeRequest",
    "Subscription",
    "Supercategory",
    "Topic",
    "UnreachableError",
]
