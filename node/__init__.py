"""Parley: a secure peer-to-peer messaging node.

`Node` and `Identity` are where to begin; `Peer`, `Call`, `Stream`, `Subscription` and
`Topic` are what they hand out, `node.errors` what they raise.
"""

try:
    from crypto.identity import Identity, NodeId
except ImportError as error:
    from parley_node.shadows import explained

    raise explained(error) from None
from node.answer_stream import AnswerStream
from node.call import Call
from node.config import NodeConfig
from node.dialects.relay.codec import RelayFault, RelayMessage
from node.doors.accept_hook import Candidate
from node.emission import Emission, Replies
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
    UnreadRepliesError,
)
from node.gateways.bridge import Bridge
from node.gateways.forward import Forward
from node.gateways.named import NamedGateway
from node.gateways.named_client import NamedClient
from node.gateways.relay import Relay
from node.gateways.relay_client import RelayClient
from node.gateways.simproto import SimProtoGateway, offer_simproto
from node.gateways.simproto_client import SimProtoClient
from node.guest import Guest
from node.journal.journal import Journal
from node.messaging.emits import Reply
from node.messaging.formats import FormatError
from node.messaging.payloads import FormattedPayload, Payload, Tandem, formatted
from node.named_event import NamedEvent
from node.namespace import Namespace, on_event
from node.node import Node
from node.peer import Peer
from node.protocol.codes import Supercategory
from node.streams.event import StreamEvent
from node.streams.stream import Stream
from node.subscription import Subscription
from node.topic import SubscribeRequest, Topic

__all__ = [
    "AnswerStream",
    "Bridge",
    "Call",
    "CallRefused",
    "CallTimeout",
    "Candidate",
    "Emission",
    "FormatError",
    "FormattedPayload",
    "Forward",
    "Guest",
    "HandshakeError",
    "Identity",
    "Journal",
    "NamedClient",
    "NamedEvent",
    "NamedGateway",
    "Namespace",
    "Node",
    "NodeConfig",
    "NodeId",
    "NotTrustedError",
    "ParleyError",
    "Payload",
    "Peer",
    "PeerClosedError",
    "Relay",
    "RelayClient",
    "RelayFault",
    "RelayMessage",
    "Replies",
    "Reply",
    "SimProtoClient",
    "SimProtoGateway",
    "Stream",
    "StreamEvent",
    "StreamResetError",
    "StreamedAnswerError",
    "SubscribeRejected",
    "SubscribeRequest",
    "Subscription",
    "Supercategory",
    "Tandem",
    "Topic",
    "UnreachableError",
    "UnreadRepliesError",
    "formatted",
    "offer_simproto",
    "on_event",
]
