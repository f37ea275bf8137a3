"""What of Parley is public, and the page of docs/reference/api that describes it.

One rule: a name that is not here is no part of the API. Data only; `build_reference` reads it.
"""

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True)
class Page:
    """One page: its title, a sentence or two, and what it describes, by dotted name."""

    title: str
    intro: str
    names: tuple[str, ...]
    howto: str


@dataclass(frozen=True)
class Shown:
    """How a class is shown: not at all what is in `hidden`; without its constructor if the
    application is handed instances and makes none; without what its bases say of themselves if
    `alone`."""

    made: bool = True
    alone: bool = False
    hidden: frozenset[str] = field(default_factory=frozenset)


PAGES: Final[dict[str, Page]] = {
    "node": Page(
        "Node",
        "One identity, its listeners, its handlers and its peers.",
        (
            "node.Node",
            "node.handlers.rules.Roles",
            "node.handlers.rules.Allow",
            "node.handlers.rules.AllowFunction",
            "node.Supercategory",
        ),
        "embed-a-node",
    ),
    "peer": Page(
        "Peer",
        "The other node of one connection, from either side.",
        ("node.Peer", "node.protocol.reports.ConnectionEnded", "crypto.registry.Suite"),
        "embed-a-node",
    ),
    "calls": Page(
        "Calls",
        "What a handler is given, and the answer that comes in items. Calls are made with "
        "[Peer.call](peer.md#peercall) and [Peer.call_stream](peer.md#peercall_stream).",
        ("node.Call", "node.AnswerStream"),
        "calls",
    ),
    "topics": Page(
        "Topics",
        "What a node publishes, and how its peers read it. Topics are made with "
        "[Node.topic](node.md#nodetopic), subscriptions with "
        "[Peer.subscribe](peer.md#peersubscribe).",
        (
            "node.Topic",
            "node.handlers.topic.Subscriber",
            "node.SubscribeRequest",
            "node.Subscription",
            "node.Forward",
            "node.backoff.Pauses",
        ),
        "run-a-server",
    ),
    "events": Page(
        "Named events",
        "Events with a name, their replies, and what they carry, natively and byte for byte as "
        "the crate bromine. Handlers are registered with [Node.on](node.md#nodeon), events "
        "emitted with [Peer.emit](peer.md#peeremit).",
        (
            "node.NamedEvent",
            "node.Emission",
            "node.Replies",
            "node.Reply",
            "node.Namespace",
            "node.on_event",
            "node.Payload",
            "node.FormattedPayload",
            "node.Tandem",
            "node.formatted",
            "node.NamedGateway",
            "node.NamedClient",
            "node.gateways.named.peer.NamedPeer",
        ),
        "named-events",
    ),
    "simproto": Page(
        "SimProto",
        "A gateway that serves a node's handlers and topics to SimProto clients, and a client.",
        (
            "node.SimProtoGateway",
            "node.SimProtoClient",
            "node.gateways.simproto.peer.SimProtoPeer",
            "node.gateways.simproto.subscription.SimProtoSubscription",
            "node.offer_simproto",
            "node.Guest",
        ),
        "simproto",
    ),
    "relay": Page(
        "Event relay",
        "A server that forwards messages between clients with a UUID, a client, and a bridge to "
        "a topic.",
        (
            "node.Relay",
            "node.RelayClient",
            "node.RelayMessage",
            "node.RelayFault",
            "node.dialects.relay.codec.RelayCode",
            "node.Bridge",
        ),
        "event-relay",
    ),
    "streams": Page(
        "Streams",
        "Bytes and typed events both ways. Streams are opened with "
        "[Peer.open_stream](peer.md#peeropen_stream).",
        ("node.Stream", "node.StreamEvent"),
        "streams",
    ),
    "trust": Page(
        "Trust",
        "Whom to talk to: policies, accept hooks and the file of known peers.",
        (
            "node.trust.policies.TrustPolicy",
            "node.trust.policies.AnyPeer",
            "node.trust.policies.Pinned",
            "node.trust.policies.OneOf",
            "node.trust.policies.Known",
            "node.trust.policies.FirstUse",
            "node.trust.policies.parse_trust",
            "node.Candidate",
            "node.trust.accept_hook.AcceptHook",
            "node.trust.policies.KnownPeers",
            "node.trust.policies.KnownPeer",
            "node.trust.policies.default_known_peers",
        ),
        "identities-and-trust",
    ),
    "identities": Page(
        "Identities",
        "Keys, the node ids that follow from them, and the files that hold them.",
        (
            "node.Identity",
            "node.NodeId",
            "crypto.PublicIdentity",
            "crypto.load_identity",
            "crypto.save_identity",
            "crypto.describe_keyfile",
            "crypto.PassphraseCost",
        ),
        "identities-and-trust",
    ),
    "bus": Page(
        "The durable bus",
        "Events that are kept until they are processed. A bus is made with "
        "[Node.bus](node.md#nodebus), [Peer.bus](peer.md#peerbus), or without a node by "
        "`open_bus`; what it promises is in [the durable bus](../../bus.md).",
        (
            "node.bus.bus.Bus",
            "node.bus.bus.open_bus",
            "node.bus.event.BusEvent",
            "node.bus.consuming.consumption.Consumption",
            "node.bus.history.History",
            "node.bus.dead_letters.DeadLetter",
            "node.bus.ids.Position",
            "node.bus.model.StreamInfo",
            "node.bus.model.GroupInfo",
            "node.bus.model.ConsumerInfo",
            "node.bus.model.PendingInfo",
            "node.bus.model.Failure",
            "node.bus.counters.Counters",
            "node.remote_bus.authorisation.BusRequest",
            "node.bus.config.BusConfig",
            "node.bus.redis.format.RedisFormat",
        ),
        "bus",
    ),
    "journal": Page(
        "Journals",
        "What a node keeps of its connections for an auditor, the auditor's keys, and reading it "
        "back. A journal is given to a [Node](node.md#node).",
        (
            "node.journal.journal.Journal",
            "node.journal.journal.JournalMetrics",
            "crypto.AuditorKey",
            "crypto.AuditorPrivateKey",
            "crypto.load_auditor_key",
            "crypto.save_auditor_key",
            "node.journal.audit.Audit",
            "node.journal.audit.rows.Finding",
            "node.journal.audit.rows.SessionRow",
            "node.journal.segments.list_segments",
            "node.journal.segments.read_range",
            "node.journal.prune.prune",
        ),
        "journal",
    ),
    "settings": Page(
        "Settings",
        "How they are given. What each of them means, with unit, range and default, is in "
        "[the list of settings](../settings.md).",
        (
            "node.NodeConfig",
            "node.protocol.limits.Limits",
            "node.settings.load_settings",
            "node.settings.Settings",
            "node.settings.serve.ServeSettings",
            "node.settings.SimProtoSettings",
            "node.settings.NamedSettings",
            "node.settings.RelaySettings",
            "node.settings.JournalSettings",
            "node.settings.BusSettings",
            "node.dialects.limits.SimProtoLimits",
            "node.dialects.limits.NamedLimits",
            "node.dialects.limits.RelayLimits",
        ),
        "run-a-server",
    ),
    "errors": Page(
        "Errors",
        "What can be caught. The codes, and what raises what, are in "
        "[errors and codes](../errors.md).",
        (
            "node.ParleyError",
            "node.errors.AddressError",
            "node.errors.ConfigError",
            "node.errors.InsecureAddressError",
            "node.UnreachableError",
            "node.HandshakeError",
            "node.NotTrustedError",
            "node.errors.IdentityChangedError",
            "node.errors.KnownPeersError",
            "node.PeerClosedError",
            "node.StreamResetError",
            "node.CallRefused",
            "node.CallTimeout",
            "node.SubscribeRejected",
            "node.StreamedAnswerError",
            "node.UnreadRepliesError",
            "node.errors.NotSpokenError",
            "node.errors.RelayRefusedError",
            "node.journal.errors.JournalError",
            "node.journal.errors.JournalBusyError",
            "node.journal.errors.JournalFailedError",
            "node.journal.errors.JournalFormatError",
            "node.bus.errors.BusError",
            "node.bus.errors.InvalidEventError",
            "node.bus.errors.SchemaViolationError",
            "node.bus.errors.BusClosedError",
            "node.bus.errors.BusUnavailableError",
            "node.bus.errors.BusBusyError",
            "node.bus.errors.BusFullError",
            "node.bus.errors.BusDamagedError",
            "node.bus.errors.BusRefusedError",
            "node.bus.errors.NotPendingError",
            "node.FormatError",
            "node.dialects.values.ConversionError",
            "node.protocol.errors.LocalProtocolError",
            "node.protocol.errors.PayloadTooLargeError",
            "lbm.LbmError",
            "lbm.LbmDecodeError",
            "lbm.LbmEncodeError",
            "crypto.CryptoError",
            "crypto.IdentityError",
            "crypto.UnknownAlgorithmError",
            "crypto.KeyFileError",
            "crypto.KeyFileUnreadableError",
            "crypto.KeyFileExistsError",
            "crypto.KeyFileTooOpenError",
            "crypto.KeyFileMalformedError",
            "crypto.PassphraseError",
            "crypto.PassphraseNeededError",
            "crypto.WrongPassphraseError",
        ),
        "calls",
    ),
    "testing": Page(
        "Testing",
        "For the tests of applications: nodes that have met in memory, a fake clock, links "
        "with faults.",
        (
            "node.testing.connected_nodes",
            "node.testing.connect_nodes",
            "node.testing.ConnectedNodes",
            "node.testing.FakeClock",
            "node.testing.FaultyLink",
            "node.testing.FaultyWay",
            "node.testing.FaultyProxy",
            "node.transport.memory.memory_pair",
            "node.transport.memory.MemoryStream",
        ),
        "test-your-application",
    ),
}

SHOWN: Final[dict[str, Shown]] = {
    "AnswerStream": Shown(made=False),
    "Bus": Shown(
        made=False,
        alone=True,
        hidden=frozenset({"begin", "close_store", "drain", "loop", "opened"}),
    ),
    "BusConfig": Shown(hidden=frozenset({"format_of", "group_name"})),
    "BusEvent": Shown(made=False),
    "BusRequest": Shown(made=False),
    "Consumption": Shown(made=False, hidden=frozenset({"close"})),
    "Counters": Shown(made=False),
    "DeadLetter": Shown(made=False),
    "History": Shown(made=False),
    "SchemaViolationError": Shown(made=False),
    "Bridge": Shown(hidden=frozenset({"deliver"})),
    "Call": Shown(made=False),
    "Candidate": Shown(made=False),
    "ConnectedNodes": Shown(made=False),
    "ConnectionEnded": Shown(made=False),
    "Emission": Shown(made=False),
    "FormattedPayload": Shown(hidden=frozenset({"cells"})),
    "Guest": Shown(made=False, hidden=frozenset({"closed_error", "is_gone"})),
    "NamedEvent": Shown(made=False),
    "NamedPeer": Shown(
        made=False, hidden=frozenset({"begin_close", "drained", "running", "stop_handlers"})
    ),
    "Payload": Shown(made=False, hidden=frozenset({"cells"})),
    "RedisFormat": Shown(hidden=frozenset({"fields", "key", "name", "read"})),
    "Relay": Shown(hidden=frozenset({"join"})),
    "RelayFault": Shown(made=False),
    "RelayMessage": Shown(made=False),
    "Replies": Shown(made=False),
    "Reply": Shown(made=False),
    "SimProtoPeer": Shown(
        made=False,
        hidden=frozenset({"answered", "drain", "drained", "gone", "room", "running_requests"}),
    ),
    "SimProtoSubscription": Shown(made=False, hidden=frozenset({"cut_off", "lost"})),
    "FaultyWay": Shown(made=False, hidden=frozenset({"carry"})),
    "IdentityChangedError": Shown(made=False),
    "Journal": Shown(
        made=False, hidden=frozenset({"begin", "end", "gate", "session_log", "stops_node"})
    ),
    "JournalMetrics": Shown(made=False),
    "KnownPeer": Shown(made=False),
    "Limits": Shown(hidden=frozenset({"agreed_with", "cells", "from_cells"})),
    "MemoryStream": Shown(made=False),
    "Peer": Shown(
        made=False,
        hidden=frozenset(
            [
                "room",
                "opened",
                "drain",
                "touch",
                "consume",
                "drop",
                "call_ended",
                "closed_error",
                "changed",
            ]
        ),
    ),
    "PublicIdentity": Shown(made=False, hidden=frozenset({"cells", "parse", "verifier"})),
    "Identity": Shown(hidden=frozenset({"cells"})),
    "NodeConfig": Shown(hidden=frozenset({"core"})),
    "PeerClosedError": Shown(made=False),
    "Roles": Shown(made=False),
    "Stream": Shown(
        made=False,
        hidden=frozenset(
            ["send_answer", "data_received", "event_received", "finished", "failed", "writable"]
        ),
    ),
    "StreamEvent": Shown(made=False),
    "SubscribeRequest": Shown(made=False),
    "Subscriber": Shown(made=False),
    "Subscription": Shown(made=False, hidden=frozenset({"ended", "lost"})),
    "Suite": Shown(
        made=False,
        hidden=frozenset(
            ["kex_algorithm", "signing_algorithm", "hash_algorithm", "cipher_algorithm"]
        ),
    ),
    "Topic": Shown(made=False, hidden=frozenset({"flush", "takes", "rules", "join"})),
}
