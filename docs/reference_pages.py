"""Which page of docs/reference/api describes which public name; `build_reference` reads it.

What is public is what `parley` and its modules have in `__all__`.
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
            "parley.Node",
            "parley.Roles",
            "parley.Allow",
            "parley.AllowFunction",
            "parley.Supercategory",
        ),
        "embed-a-node",
    ),
    "peer": Page(
        "Peer",
        "The other node of one connection, from either side.",
        ("parley.Peer", "parley.Remote", "parley.ConnectionEnded", "parley.Suite"),
        "embed-a-node",
    ),
    "calls": Page(
        "Calls",
        "What a handler is given, and the answer that comes in items. Calls are made with "
        "[Peer.call](peer.md#peercall) and [Peer.call_stream](peer.md#peercall_stream).",
        ("parley.Call", "parley.AnswerStream"),
        "calls",
    ),
    "topics": Page(
        "Topics",
        "What a node publishes, and how its peers read it. Topics are made with "
        "[Node.topic](node.md#nodetopic), subscriptions with "
        "[Peer.subscribe](peer.md#peersubscribe).",
        (
            "parley.Topic",
            "parley.Subscriber",
            "parley.SubscribeRequest",
            "parley.Subscription",
            "parley.Forward",
            "parley.Pauses",
        ),
        "run-a-server",
    ),
    "events": Page(
        "Named events",
        "Events with a name, their replies, and what they carry, natively and byte for byte as "
        "the crate bromine. Handlers are registered with [Node.on](node.md#nodeon), events "
        "emitted with [Peer.emit](peer.md#peeremit).",
        (
            "parley.NamedEvent",
            "parley.Emission",
            "parley.Replies",
            "parley.Reply",
            "parley.Namespace",
            "parley.on_event",
            "parley.Payload",
            "parley.FormattedPayload",
            "parley.Tandem",
            "parley.formatted",
            "parley.dialects.NamedGateway",
            "parley.dialects.NamedClient",
            "parley.dialects.NamedPeer",
        ),
        "named-events",
    ),
    "simproto": Page(
        "SimProto",
        "A gateway that serves a node's handlers and topics to SimProto clients, and a client.",
        (
            "parley.dialects.SimProtoGateway",
            "parley.dialects.SimProtoClient",
            "parley.dialects.SimProtoPeer",
            "parley.dialects.SimProtoSubscription",
            "parley.dialects.offer_simproto",
            "parley.dialects.Guest",
        ),
        "simproto",
    ),
    "relay": Page(
        "Event relay",
        "A server that forwards messages between clients with a UUID, a client, and a bridge to "
        "a topic.",
        (
            "parley.dialects.Relay",
            "parley.dialects.RelayClient",
            "parley.dialects.RelayMessage",
            "parley.dialects.RelayFault",
            "parley.dialects.RelayCode",
            "parley.dialects.Bridge",
        ),
        "event-relay",
    ),
    "streams": Page(
        "Streams",
        "Bytes and typed events both ways. Streams are opened with "
        "[Peer.open_stream](peer.md#peeropen_stream).",
        ("parley.Stream", "parley.StreamEvent"),
        "streams",
    ),
    "trust": Page(
        "Trust",
        "Whom to talk to: policies, accept hooks and the file of known peers.",
        (
            "parley.trust.TrustPolicy",
            "parley.trust.AnyPeer",
            "parley.trust.Pinned",
            "parley.trust.OneOf",
            "parley.trust.Known",
            "parley.trust.FirstUse",
            "parley.trust.parse_trust",
            "parley.trust.Candidate",
            "parley.trust.AcceptHook",
            "parley.trust.KnownPeers",
            "parley.trust.KnownPeer",
            "parley.trust.default_known_peers",
        ),
        "identities-and-trust",
    ),
    "identities": Page(
        "Identities",
        "Keys, the node ids that follow from them, and the files that hold them.",
        (
            "parley.Identity",
            "parley.NodeId",
            "parley.PublicIdentity",
            "parley.load_identity",
            "parley.save_identity",
            "parley.describe_keyfile",
            "parley.PassphraseCost",
        ),
        "identities-and-trust",
    ),
    "bus": Page(
        "The durable bus",
        "Events that are kept until they are processed. A bus is made with "
        "[Node.bus](node.md#nodebus), [Peer.bus](peer.md#peerbus), or without a node by "
        "`open_bus`; what it promises is in [the durable bus](../../bus.md).",
        (
            "parley.bus.Bus",
            "parley.bus.open_bus",
            "parley.bus.BusEvent",
            "parley.bus.Consumption",
            "parley.bus.History",
            "parley.bus.DeadLetter",
            "parley.bus.Position",
            "parley.bus.StreamInfo",
            "parley.bus.GroupInfo",
            "parley.bus.ConsumerInfo",
            "parley.bus.PendingInfo",
            "parley.bus.Failure",
            "parley.bus.Counters",
            "parley.bus.BusRequest",
            "parley.bus.BusConfig",
            "parley.bus.RedisFormat",
            "parley.bus.LIGHTBUS",
            "parley.bus.DOCUMENTED",
        ),
        "bus",
    ),
    "journal": Page(
        "Journals",
        "What a node keeps of its connections for an auditor, the auditor's keys, and reading it "
        "back. A journal is given to a [Node](node.md#node).",
        (
            "parley.journal.Journal",
            "parley.journal.JournalMetrics",
            "parley.journal.AuditorKey",
            "parley.journal.AuditorPrivateKey",
            "parley.journal.load_auditor_key",
            "parley.journal.save_auditor_key",
            "parley.journal.Audit",
            "parley.journal.EVENT_COLUMNS",
            "parley.journal.Finding",
            "parley.journal.SessionRow",
            "parley.journal.list_segments",
            "parley.journal.read_range",
            "parley.journal.encode_record",
            "parley.journal.prune",
        ),
        "journal",
    ),
    "settings": Page(
        "Settings",
        "How they are given. What each of them means, with unit, range and default, is in "
        "[the list of settings](../settings.md).",
        (
            "parley.NodeConfig",
            "parley.Limits",
            "parley.settings.load_settings",
            "parley.settings.Settings",
            "parley.settings.ServeSettings",
            "parley.settings.SimProtoSettings",
            "parley.settings.NamedSettings",
            "parley.settings.RelaySettings",
            "parley.settings.JournalSettings",
            "parley.settings.BusSettings",
            "parley.dialects.SimProtoLimits",
            "parley.dialects.NamedLimits",
            "parley.dialects.RelayLimits",
            "parley.settings.Padding",
            "parley.settings.parse_padding",
        ),
        "run-a-server",
    ),
    "errors": Page(
        "Errors",
        "What can be caught. The codes, and what raises what, are in "
        "[errors and codes](../errors.md).",
        (
            "parley.errors.ParleyError",
            "parley.errors.AddressError",
            "parley.errors.ConfigError",
            "parley.errors.InsecureAddressError",
            "parley.errors.UnreachableError",
            "parley.errors.HandshakeError",
            "parley.errors.NotTrustedError",
            "parley.errors.IdentityChangedError",
            "parley.errors.FileError",
            "parley.errors.KnownPeersError",
            "parley.errors.PeerClosedError",
            "parley.errors.StreamResetError",
            "parley.errors.CallRefused",
            "parley.errors.CallTimeout",
            "parley.errors.SubscribeRejected",
            "parley.errors.StreamedAnswerError",
            "parley.errors.UnreadRepliesError",
            "parley.errors.NotSpokenError",
            "parley.errors.RelayRefusedError",
            "parley.errors.JournalError",
            "parley.errors.JournalBusyError",
            "parley.errors.JournalFailedError",
            "parley.errors.JournalFormatError",
            "parley.errors.BusError",
            "parley.errors.InvalidEventError",
            "parley.errors.SchemaViolationError",
            "parley.errors.BusClosedError",
            "parley.errors.BusUnavailableError",
            "parley.errors.BusBusyError",
            "parley.errors.BusFullError",
            "parley.errors.BusDamagedError",
            "parley.errors.BusRefusedError",
            "parley.errors.NotPendingError",
            "parley.errors.PipelineError",
            "parley.errors.NoJavaError",
            "parley.errors.IngestError",
            "parley.errors.NoTablesError",
            "parley.errors.FormatError",
            "parley.errors.ConversionError",
            "parley.errors.LocalProtocolError",
            "parley.errors.PayloadTooLargeError",
            "parley.errors.LbmError",
            "parley.errors.LbmDecodeError",
            "parley.errors.LbmEncodeError",
            "parley.errors.CryptoError",
            "parley.errors.IdentityError",
            "parley.errors.UnknownAlgorithmError",
            "parley.errors.InvalidKeyError",
            "parley.errors.KeyFileError",
            "parley.errors.KeyFileUnreadableError",
            "parley.errors.KeyFileExistsError",
            "parley.errors.KeyFileTooOpenError",
            "parley.errors.KeyFileMalformedError",
            "parley.errors.PassphraseError",
            "parley.errors.PassphraseNeededError",
            "parley.errors.WrongPassphraseError",
            "parley.CloseCode",
            "parley.ResultCode",
        ),
        "calls",
    ),
    "testing": Page(
        "Testing",
        "For the tests of applications: nodes that have met in memory, a fake clock, links "
        "with faults.",
        (
            "parley.testing.connected_nodes",
            "parley.testing.connect_nodes",
            "parley.testing.ConnectedNodes",
            "parley.testing.FakeClock",
            "parley.testing.FaultyLink",
            "parley.testing.FaultyWay",
            "parley.testing.FaultyProxy",
            "parley.testing.memory_pair",
            "parley.testing.MemoryStream",
        ),
        "test-your-application",
    ),
    "transfer": Page(
        "File transfer",
        "What `parley send` and `parley receive` are made of.",
        (
            "parley.transfer.send_file",
            "parley.transfer.Source",
            "parley.transfer.FileReceiver",
            "parley.transfer.FileStore",
            "parley.transfer.FileOffer",
            "parley.transfer.Receipt",
            "parley.transfer.RefusalCode",
            "parley.transfer.Watcher",
        ),
        "send-files",
    ),
    "protocol": Page(
        "The wire",
        "For observers, auditors and the authors of another implementation: payloads, the hash "
        "chain, keys of streams, and what an observer is told.",
        (
            "parley.protocol.decode",
            "parley.protocol.encode",
            "parley.protocol.Value",
            "parley.protocol.Encodable",
            "parley.protocol.HashChain",
            "parley.protocol.chain_start_responder",
            "parley.protocol.chain_start_initiator",
            "parley.protocol.chain_bind",
            "parley.protocol.check_seal",
            "parley.protocol.StreamKey",
            "parley.protocol.Observer",
            "parley.protocol.Agreed",
            "parley.protocol.Checkpoint",
        ),
        "another-implementation",
    ),
    "pipeline": Page(
        "The data pipeline",
        "Journals as tables of Apache Spark; the tables, the commands and how to run them on a "
        "cluster are in [the data pipeline](../../pipeline.md). It needs the extra `pipeline`.",
        (
            "parley.pipeline.open_session",
            "parley.pipeline.run",
            "parley.pipeline.Outcome",
            "parley.pipeline.JournalSource",
            "parley.pipeline.Tables",
            "parley.pipeline.events",
            "parley.pipeline.sessions",
            "parley.pipeline.findings",
            "parley.pipeline.read_gold",
        ),
        "journal",
    ),
}

SHOWN: Final[dict[str, Shown]] = {
    "Agreed": Shown(made=False, hidden=frozenset({"without_secrets"})),
    "AnswerStream": Shown(made=False),
    "Bus": Shown(
        made=False,
        alone=True,
        hidden=frozenset({"begin", "drain", "is_closed", "opened"}),
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
        hidden=frozenset({"drain", "drained", "gone", "room", "running_requests"}),
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
    "Peer": Shown(made=False, hidden=frozenset({"closed_error"})),
    "PublicIdentity": Shown(made=False, hidden=frozenset({"cells", "parse", "verifier"})),
    "Identity": Shown(hidden=frozenset({"cells"})),
    "NodeConfig": Shown(hidden=frozenset({"core"})),
    "FileOffer": Shown(made=False, hidden=frozenset({"decode", "encode"})),
    "PeerClosedError": Shown(made=False),
    "Receipt": Shown(made=False, hidden=frozenset({"decode", "encode"})),
    "Remote": Shown(made=False, hidden=frozenset({"closed_error"})),
    "Roles": Shown(made=False),
    "JournalSource": Shown(
        made=False, hidden=frozenset({"name", "reader", "schema", "streamReader"})
    ),
    "Source": Shown(made=False, hidden=frozenset({"begins_with", "read"})),
    "FileStore": Shown(
        hidden=frozenset(
            ["discard", "open_existing", "open_partial", "place", "require_replaceable"]
        )
    ),
    "Stream": Shown(
        made=False,
        hidden=frozenset(
            ["send_answer", "data_received", "event_received", "finished", "failed", "writable"]
        ),
    ),
    "StreamEvent": Shown(made=False),
    "StreamKey": Shown(hidden=frozenset({"from_key"})),
    "SubscribeRequest": Shown(made=False),
    "Subscriber": Shown(made=False),
    "Subscription": Shown(made=False, hidden=frozenset({"ended", "lost"})),
    "Suite": Shown(
        made=False,
        hidden=frozenset(
            ["kex_algorithm", "signing_algorithm", "hash_algorithm", "cipher_algorithm"]
        ),
    ),
    "Tables": Shown(hidden=frozenset({"checkpoint", "write_batch"})),
    "Topic": Shown(made=False, hidden=frozenset({"flush", "takes", "rules", "join"})),
}
