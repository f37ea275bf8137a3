"""Parley: a secure peer-to-peer messaging node.

`Node` and `Identity` are where to begin; `Peer`, `Call`, `Stream`, `Subscription` and
`Topic` are what they hand out, `node.errors` what they raise.
"""

try:
    from crypto.identity import Identity, NodeId
except ImportError as error:
    from parley.shadows import explained

    raise explained(error) from None
from node.config import NodeConfig
from node.dialects.relay.codec import RelayFault, RelayMessage
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
from node.gateways.forward import Forward
from node.gateways.guest import Guest
from node.gateways.named.client import NamedClient
from node.gateways.named.gateway import NamedGateway
from node.gateways.relay.bridge import Bridge
from node.gateways.relay.client import RelayClient
from node.gateways.relay.relay import Relay
from node.gateways.simproto.client import SimProtoClient
from node.gateways.simproto.gateway import SimProtoGateway, offer_simproto
from node.handlers.namespace import Namespace, on_event
from node.handlers.topic import SubscribeRequest, Topic
from node.journal.journal import Journal
from node.messaging.emits import Reply
from node.messaging.formats import FormatError
from node.messaging.payloads import FormattedPayload, Payload, Tandem, formatted
from node.node import Node
from node.peer.answer_stream import AnswerStream
from node.peer.peer import Peer
from node.peer.subscription import Subscription
from node.protocol.codes import Supercategory
from node.remote.emission import Emission, Replies
from node.remote.named_event import NamedEvent
from node.remote.requests import Call
from node.streams.event import StreamEvent
from node.streams.stream import Stream
from node.trust.accept_hook import Candidate

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
