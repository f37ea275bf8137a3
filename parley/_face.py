"""The public names of `parley`. This module is loaded when the first of them is used."""

from parley._crypto.identity import Identity, NodeId, PrimaryKey, PublicIdentity, RecoveryKey
from parley._crypto.keyfile import (
    PassphraseCost,
    PathLike,
    change_passphrase,
    describe_keyfile,
    load_identity,
    load_recovery,
    save_identity,
    save_recovery,
)
from parley._crypto.registry import Suite
from parley._crypto.signing import SigningKey
from parley._crypto.statements import (
    Statement,
    StatementKind,
    create_revocation,
    create_succession,
)
from parley._node.backoff import Backoff
from parley._node.config import NodeConfig
from parley._node.data_types import DataType, Model
from parley._node.errors import (
    CallRefused,
    CallTimeout,
    HandshakeError,
    MalformedDataError,
    NotTrustedError,
    ParleyError,
    PeerClosedError,
    StreamedAnswerError,
    StreamResetError,
    SubscribeRefused,
    UnreachableError,
    UnreadRepliesError,
)
from parley._node.gateways.forward import Forward
from parley._node.handlers.permissions import Allow, AllowFunction, Roles, RolesFunction
from parley._node.handlers.registry import HandlerOptions, Namespace, on_event
from parley._node.handlers.topic import (
    KeepLastBy,
    StateFunction,
    Subscriber,
    SubscribeRequest,
    Topic,
    TopicOptions,
)
from parley._node.messaging.fanout import Slow
from parley._node.messaging.formats import FormatError, FormatName
from parley._node.messaging.named_events import Reply
from parley._node.messaging.payloads import FormattedPayload, Payload, Tandem, formatted
from parley._node.messaging.topic_history import TopicPosition
from parley._node.node import Node
from parley._node.peer.answer_stream import AnswerStream
from parley._node.peer.idempotency import IdempotencyKey
from parley._node.peer.link import Link
from parley._node.peer.link_subscription import LinkSubscription
from parley._node.peer.peer import CallOptions, Peer, StreamCallOptions, SubscribeOptions
from parley._node.peer.subscription import Batches, OnMalformed, Subscription
from parley._node.protocol.codes import CloseCode, ResultCode, Supercategory
from parley._node.protocol.limits import Limits
from parley._node.protocol.reports import ConnectionEnded
from parley._node.remote.emission import Emission, Replies
from parley._node.remote.remote import Remote, RequestOptions
from parley._node.remote.requests import Call, NamedEvent
from parley._node.remote.stream import Stream, StreamEvent, StreamEvents
from parley._node.transport.backend import Backend, Clock
from parley._node.transport.loop import Timer
from parley._node.trust.statement_file import load_statement, save_statement
from parley._node.tunnels.home_server import Home

__all__ = [
    "Allow",
    "AllowFunction",
    "AnswerStream",
    "Backend",
    "Backoff",
    "Batches",
    "Call",
    "CallOptions",
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
    "HandlerOptions",
    "HandshakeError",
    "Home",
    "IdempotencyKey",
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
    "ParleyError",
    "PassphraseCost",
    "PathLike",
    "Payload",
    "Peer",
    "PeerClosedError",
    "PrimaryKey",
    "PublicIdentity",
    "RecoveryKey",
    "Remote",
    "Replies",
    "Reply",
    "RequestOptions",
    "ResultCode",
    "Roles",
    "RolesFunction",
    "SigningKey",
    "Slow",
    "StateFunction",
    "Statement",
    "StatementKind",
    "Stream",
    "StreamCallOptions",
    "StreamEvent",
    "StreamEvents",
    "StreamResetError",
    "StreamedAnswerError",
    "SubscribeOptions",
    "SubscribeRefused",
    "SubscribeRequest",
    "Subscriber",
    "Subscription",
    "Suite",
    "Supercategory",
    "Tandem",
    "Timer",
    "Topic",
    "TopicOptions",
    "TopicPosition",
    "UnreachableError",
    "UnreadRepliesError",
    "change_passphrase",
    "create_revocation",
    "create_succession",
    "describe_keyfile",
    "formatted",
    "load_identity",
    "load_recovery",
    "load_statement",
    "on_event",
    "save_identity",
    "save_recovery",
    "save_statement",
]
