"""The API pages and the public names on each: all that is in the `__all__` of `parley` and its
modules."""

from typing import Final, NamedTuple


class Page(NamedTuple):
    """One page: its title, a sentence or two, and what it describes, by dotted name."""

    title: str
    intro: str
    names: tuple[str, ...]
    guides: str


def _of(module: str, names: str) -> tuple[str, ...]:
    """Names of one module, with blanks between them."""
    return tuple(f"{module}.{name}" for name in names.split())


PAGES: Final[dict[str, Page]] = {
    "node": Page(
        "Node",
        "One identity, its listeners, its handlers and its peers.",
        (
            "parley.Node",
            "parley.HandlerOptions",
            "parley.Roles",
            "parley.Allow",
            "parley.AllowFunction",
            "parley.RolesFunction",
            "parley.Supercategory",
        ),
        "embed-a-node",
    ),
    "peer": Page(
        "Peer",
        "The other node of one connection, from either side.",
        (
            "parley.Peer",
            "parley.CallOptions",
            "parley.StreamCallOptions",
            "parley.SubscribeOptions",
            "parley.RequestOptions",
            "parley.Remote",
            "parley.ConnectionEnded",
            "parley.Suite",
        ),
        "embed-a-node",
    ),
    "blocking": Page(
        "Blocking",
        "Peers and links for programs that await nothing: `parley.blocking.connect(address)`.",
        (
            "parley.blocking.connect",
            "parley.blocking.link",
            "parley.blocking.BlockingPeer",
            "parley.blocking.BlockingLink",
            "parley.blocking.BlockingSubscription",
            "parley.blocking.BlockingAnswer",
        ),
        "scripts",
    ),
    "links": Page(
        "Links",
        "A node that is kept reachable, over as many sessions as it takes. Links are made with "
        "[Node.link](node.md#nodelink), those with a server that knows this node with "
        "[Node.home](node.md#nodehome).",
        ("parley.Link", "parley.Home", "parley.LinkSubscription"),
        "bad-network",
    ),
    "console": Page(
        "Console",
        "A page on which an operator sees what a node does, and may do a few things to it.",
        ("parley.console.serve_console", "parley.console.Console", "parley.console.ServedConsole"),
        "console",
    ),
    "calls": Page(
        "Calls",
        "What a handler is given, and the answer that comes in items. Calls are made with "
        "[Peer.call](peer.md#peercall) and [Peer.call_stream](peer.md#peercall_stream).",
        ("parley.Call", "parley.AnswerStream", "parley.IdempotencyKey"),
        "calls",
    ),
    "interceptors": Page(
        "Interceptors",
        "What is around many handlers at once. They are registered with "
        "[Node.intercept](node.md#nodeintercept); request ids and traces with "
        "[Node.propagate](node.md#nodepropagate).",
        _of(
            "parley.interceptors",
            "Intercepted Interceptor Proceed TraceContext current_request_id current_trace",
        ),
        "interceptors",
    ),
    "topics": Page(
        "Topics",
        "What a node publishes, and how its peers read it. Topics are made with "
        "[Node.topic](node.md#nodetopic), subscriptions with "
        "[Peer.subscribe](peer.md#peersubscribe).",
        (
            "parley.Topic",
            "parley.TopicOptions",
            "parley.Subscriber",
            "parley.SubscribeRequest",
            "parley.Subscription",
            "parley.TopicPosition",
            "parley.Forward",
            "parley.Backoff",
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
        _of(
            "parley.trust",
            "TrustPolicy AnyPeer Pinned OneOf Known FirstUse parse_trust Candidate "
            "AcceptHook KnownPeers KnownPeer default_known_peers",
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
        _of(
            "parley.bus",
            "Bus open_bus BusEvent Consumption History DeadLetter Position StreamInfo "
            "GroupInfo ConsumerInfo PendingInfo Failure Counters AllowBus BusRequest BusConfig "
            "ConsumeOptions RedisFormat LIGHTBUS DOCUMENTED",
        ),
        "bus",
    ),
    "journal": Page(
        "Journals",
        "What a node keeps of its connections for an auditor, the auditor's keys, and reading it "
        "back. A journal is given to a [Node](node.md#node).",
        _of(
            "parley.journal",
            "Journal WriteOptions JournalMetrics AuditorKey AuditorPrivateKey load_auditor_key "
            "save_auditor_key Audit EVENT_COLUMNS Finding SessionRow TunnelRow "
            "list_segments read_range encode_record prune",
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
            "parley.settings.DialectSettings",
            "parley.settings.SimProtoSettings",
            "parley.settings.NamedSettings",
            "parley.settings.RelaySettings",
            "parley.settings.JournalSettings",
            "parley.settings.BusSettings",
            "parley.settings.FederationSettings",
            "parley.dialects.DialectLimits",
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
            "parley.errors.TunnelRefusedError",
            "parley.errors.HandshakeError",
            "parley.errors.NotTrustedError",
            "parley.errors.IdentityChangedError",
            "parley.errors.FileError",
            "parley.errors.KnownPeersError",
            "parley.errors.PeerClosedError",
            "parley.errors.OutcomeUnknownError",
            "parley.errors.StreamResetError",
            "parley.errors.CallRefused",
            "parley.errors.CallTimeout",
            "parley.errors.SubscribeRefused",
            "parley.errors.NotOnceError",
            "parley.errors.MalformedDataError",
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
            "parley.errors.DamagedTablesError",
            "parley.errors.FormatError",
            "parley.errors.ConversionError",
            "parley.errors.LocalError",
            "parley.errors.LocalProtocolError",
            "parley.errors.LimitReachedError",
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
            "parley.errors.ungrouped",
            "parley.CloseCode",
            "parley.ResultCode",
        ),
        "calls",
    ),
    "testing": Page(
        "Testing",
        "For the tests of applications: nodes that have met in memory, a fake clock, links "
        "with faults.",
        _of(
            "parley.testing",
            "connected_nodes connect_nodes ConnectedNodes FakeClock FaultyLink FaultyDirection "
            "FaultyProxy MemoryNetwork memory_pair MemoryStream",
        ),
        "test-your-application",
    ),
    "transfer": Page(
        "File transfer",
        "What `parley send` and `parley receive` are made of.",
        _of(
            "parley.transfer",
            "send_file Source FileReceiver FileStore FileOffer Receipt RefusalCode Watcher",
        ),
        "send-files",
    ),
    "codes": Page(
        "Short codes",
        "How nodes that have never met get to know each other by a code that people tell each "
        "other.",
        _of(
            "parley.codes",
            "Code CodeListener take_code draw_slot offer_code_calls claim_slot keep_slot find_slot "
            "free_slot CodeTextError WrongCodeError CodeGoneError",
        ),
        "send-files",
    ),
    "protocol": Page(
        "The wire",
        "For observers, auditors and the authors of another implementation: payloads, the hash "
        "chain, keys of streams, and what an observer is told.",
        _of(
            "parley.protocol",
            "decode encode Value Encodable HashChain chain_start_responder "
            "chain_start_initiator chain_bind check_seal StreamKey Observer Agreed "
            "Checkpoint",
        ),
        "another-implementation",
    ),
    "metrics": Page(
        "Metrics and traces",
        "What a node counts, and how others' programs read it. `parley.telemetry` needs the extra "
        "`metrics`.",
        (
            "parley.metrics.Metrics",
            "parley.metrics.MetricFamily",
            "parley.metrics.Sample",
            "parley.metrics.Measure",
            "parley.metrics.Histogram",
            "parley.metrics.CATALOGUE",
            "parley.telemetry.prometheus_text",
            "parley.telemetry.observed",
            "parley.telemetry.trace",
        ),
        "metrics",
    ),
    "discovery": Page(
        "Discovery",
        "Nodes of the local network, by multicast DNS. It needs the extra `discovery`.",
        (
            "parley.discovery.announce",
            "parley.discovery.find",
            "parley.discovery.resolve",
            "parley.discovery.FoundNode",
        ),
        "discovery",
    ),
    "federation": Page(
        "Federation",
        "What makes a node a server: links with others, their cards, and the way to them.",
        (
            "parley.federation.Federation",
            "parley.federation.FederatedServer",
            "parley.federation.LinkState",
            "parley.federation.FederationFinding",
        ),
        "federation",
    ),
    "pipeline": Page(
        "The data pipeline",
        "Journals as tables of Apache Spark; the tables, the commands and how to run them on a "
        "cluster are in [the data pipeline](../../pipeline.md). It needs the extra `pipeline`.",
        _of(
            "parley.pipeline",
            "open_session run Outcome JournalSource Tables events sessions tunnels findings "
            "read_gold",
        ),
        "journal",
    ),
    "types": Page(
        "Types",
        "Types of arguments and results that the signatures on other pages name.",
        (
            "parley.Backend",
            "parley.Batches",
            "parley.Clock",
            "parley.DataType",
            "parley.FormatName",
            "parley.KeepLastBy",
            "parley.Model",
            "parley.OnMalformed",
            "parley.PathLike",
            "parley.SigningKey",
            "parley.Slow",
            "parley.StateFunction",
            "parley.StreamEvents",
            "parley.Timer",
            "parley.bus.Data",
            "parley.bus.When",
            "parley.codes.SlotTable",
            "parley.dialects.Flavour",
            "parley.dialects.FlavourName",
            "parley.dialects.Registrar",
            "parley.dialects.Rest",
            "parley.discovery.Announced",
            "parley.federation.DialServer",
            "parley.interceptors.Kind",
            "parley.interceptors.Way",
            "parley.journal.Auditor",
            "parley.journal.CompactRow",
            "parley.journal.EventRow",
            "parley.journal.Fsync",
            "parley.journal.OnFailure",
            "parley.journal.Pruned",
            "parley.journal.Record",
            "parley.journal.SegmentFile",
            "parley.journal.Span",
            "parley.protocol.HashAlgorithm",
            "parley.protocol.LbmLimits",
            "parley.protocol.Verifier",
            "parley.settings.BusRight",
            "parley.telemetry.Intercepting",
            "parley.telemetry.Observed",
            "parley.testing.FakeTimer",
            "parley.transfer.Transfer",
        ),
        "embed-a-node",
    ),
}
