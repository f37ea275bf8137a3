"""The names that `parley` itself has; it loads this module when the first of them is used."""

from crypto.container import PathLike
from crypto.identity import Identity, NodeId, PublicIdentity
from crypto.keyfile import PassphraseCost, describe_keyfile, load_identity, save_identity
from crypto.registry import Suite
from crypto.signing import SigningKey
from node.backoff import Pauses
from node.config import NodeConfig
from node.errors import (
    CallRefused,
    CallTimeout,
    HandshakeError,
    MalformedDataError,
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
from node.handlers.note_key import KeepLastBy
from node.handlers.registry import Namespace, on_event
from node.handlers.rules import Allow, AllowFunction, Roles, RolesFunction
from node.handlers.subscriber import Subscriber
from node.handlers.topic import StateFunction, SubscribeRequest, Topic
from node.links.link import Link
from node.links.subscription import LinkSubscription
from node.messaging.emits import Reply
from node.messaging.fanout import Slow
from node.messaging.formats import FormatError, FormatName
from node.messaging.kept import TopicPosition
from node.messaging.payloads import FormattedPayload, Payload, Tandem, formatted
from node.node import Node
from node.peer.answer_stream import AnswerStream
from node.peer.batches import Batches
from node.peer.once_key import OnceKey
from node.peer.peer import Peer
from node.peer.subscription import OnMalformed, Subscription
from node.protocol.codes import CloseCode, ResultCode, Supercategory
from node.protocol.limits import Limits
from node.protocol.reports import ConnectionEnded
from node.remote.emission import Emission, Replies
from node.remote.named_event import NamedEvent
from node.remote.remote import Remote
from node.remote.requests import Call
from node.streams.event import StreamEvent, StreamEvents
from node.streams.stream import Stream
from node.transport.backend import Backend
from node.transport.clocked import Clock
from node.transport.loop import Timer
from node.tunnels.home import Home
from node.typed.data_type import DataType
from node.typed.models import Model

__all__ = [
    "Allow",
    "AllowFunction",
    "AnswerStream",
    "Backend",
    "Batches",
    "Call",
    "CallRefused",
    "CallTimeout",
    "Clock",
    "CloseCode",
    "ConnectionEnded",
    "DataType",
    "Emission",
    "FormatError",
    "FormatName",
    "FormattedPayload",
    "Forward",
    "HandshakeError",
    "Home",
    "Identity",
    "KeepLastBy",
    "Limits",
    "Link",
    "LinkSubscription",
    "MalformedDataError",
    "Model",
    "NamedEvent",
    "Namespace",
    "Node",
    "NodeConfig",
    "NodeId",
    "NotTrustedError",
    "OnMalformed",
    "OnceKey",
    "ParleyError",
    "PassphraseCost",
    "PathLike",
    "Pauses",
    "Payload",
    "Peer",
    "PeerClosedError",
    "PublicIdentity",
    "Remote",
    "Replies",
    "Reply",
    "ResultCode",
    "Roles",
    "RolesFunction",
    "SigningKey",
    "Slow",
    "StateFunction",
    "Stream",
    "StreamEvent",
    "StreamEvents",
    "StreamResetError",
    "StreamedAnswerError",
    "SubscribeRejected",
    "SubscribeRequest",
    "Subscriber",
    "Subscription",
    "Suite",
    "Supercategory",
    "Tandem",
    "Timer",
    "Topic",
    "TopicPosition",
    "UnreachableError",
    "UnreadRepliesError",
    "describe_keyfile",
    "formatted",
    "load_identity",
    "on_event",
    "save_identity",
]
