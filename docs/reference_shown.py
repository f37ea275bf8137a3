"""What of each public class its page shows, where that is not all; `build_reference` reads it."""

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True)
class Shown:
    """How a class is shown: not at all what is in `hidden`; without its constructor if the
    application is handed instances and makes none; without what its bases say of themselves if
    `alone`."""

    made: bool = True
    alone: bool = False
    hidden: frozenset[str] = field(default_factory=frozenset)


# What links, and those at a home, have for their own parts.
_OF_LINKS: Final = frozenset(
    {
        "close_buses",
        "connected",
        "joined",
        "next_session",
        "node_ends",
        "over",
        "over_error",
        "parted",
    }
)

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
    "Call": Shown(made=False, hidden=frozenset({"hold_to"})),
    "Candidate": Shown(made=False),
    "ConnectedNodes": Shown(made=False),
    "ConnectionEnded": Shown(made=False),
    "Emission": Shown(made=False),
    "FormattedPayload": Shown(hidden=frozenset({"cells"})),
    "FederatedServer": Shown(made=False),
    "FederationFinding": Shown(made=False),
    "Guest": Shown(made=False, hidden=frozenset({"closed_error", "is_gone"})),
    "Home": Shown(made=False, hidden=_OF_LINKS),
    "Link": Shown(made=False, hidden=_OF_LINKS),
    "LinkState": Shown(made=False),
    "NamedClient": Shown(hidden=frozenset({"connected", "over_error"})),
    "NamedEvent": Shown(made=False, hidden=frozenset({"hold_to"})),
    "NamedPeer": Shown(
        made=False, hidden=frozenset({"begin_close", "drained", "running", "stop_handlers"})
    ),
    "Payload": Shown(made=False, hidden=frozenset({"cells"})),
    "RedisFormat": Shown(hidden=frozenset({"fields", "key", "name", "read"})),
    "Relay": Shown(hidden=frozenset({"join"})),
    "RelayClient": Shown(hidden=frozenset({"connected", "over_error"})),
    "RelayFault": Shown(made=False),
    "RelayMessage": Shown(made=False),
    "Replies": Shown(made=False),
    "Reply": Shown(made=False),
    "SimProtoClient": Shown(hidden=frozenset({"connected", "over_error"})),
    "SimProtoPeer": Shown(
        made=False,
        hidden=frozenset(
            ["connected", "drain", "drained", "gone", "is_over", "room", "running_requests"]
        ),
    ),
    "SimProtoSubscription": Shown(made=False),
    "FaultyDirection": Shown(made=False, hidden=frozenset({"carry"})),
    "IdentityChangedError": Shown(made=False),
    "BlockingAnswer": Shown(made=False),
    "BlockingLink": Shown(made=False),
    "BlockingPeer": Shown(made=False),
    "BlockingSubscription": Shown(made=False),
    "Backend": Shown(
        made=False,
        hidden=frozenset({"begin", "connect", "line", "listen", "spawn", "waiter"}),
    ),
    "Batches": Shown(made=False),
    "DataType": Shown(made=False),
    "FakeTimer": Shown(made=False),
    "HashAlgorithm": Shown(made=False),
    "Intercepted": Shown(made=False),
    "Registrar": Shown(made=False),
    "Observed": Shown(hidden=frozenset({"backend"})),
    "SegmentFile": Shown(made=False),
    "SigningKey": Shown(made=False),
    "SlotTable": Shown(made=False),
    "StreamEvents": Shown(made=False),
    "Transfer": Shown(made=False),
    "Verifier": Shown(made=False, hidden=frozenset({"algorithm"})),
    "LinkSubscription": Shown(made=False),
    "Namespace": Shown(hidden=frozenset({"handlers"})),
    "ServedConsole": Shown(made=False),
    "Journal": Shown(
        made=False,
        hidden=frozenset({"begin", "end", "gate", "session_log", "stops_node", "tunnel"}),
    ),
    "JournalMetrics": Shown(made=False),
    "KnownPeer": Shown(made=False),
    "Limits": Shown(hidden=frozenset({"agreed_with", "cells", "from_cells"})),
    "MemoryStream": Shown(made=False),
    "Peer": Shown(made=False, hidden=frozenset({"closed_error"})),
    "PublicIdentity": Shown(made=False, hidden=frozenset({"cells", "parse", "verifier"})),
    "Identity": Shown(hidden=frozenset({"cells"})),
    "Node": Shown(hidden=frozenset({"add_addresses", "connect_by", "serve_tunnels"})),
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
    "StreamKey": Shown(hidden=frozenset({"start"})),
    "SubscribeRequest": Shown(made=False, hidden=frozenset({"hold_to"})),
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
