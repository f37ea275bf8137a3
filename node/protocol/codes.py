"""The numbers of the protocol (docs/protocol.md sections 11 and 12)."""

from enum import IntEnum
from typing import Final


class CloseCode(IntEnum):
    """Codes of Reject, Reset and Close (section 11)."""

    NORMAL = 0
    GOING_AWAY = 1
    PROTOCOL_ERROR = 2
    BAD_RECORD = 3
    SEAL_VIOLATION = 4
    AUTHENTICATION_FAILED = 5
    NO_COMMON_ALGORITHM = 6
    UNSUPPORTED_VERSION = 7
    PLAINTEXT_REFUSED = 8
    FRAME_TOO_LARGE = 9
    TIMEOUT = 10
    TOO_MANY_STREAMS = 11
    OVERLOADED = 12
    INTERNAL_ERROR = 13
    UNKNOWN_SESSION = 14  # Reject only
    # Only in Reset: the result codes of calls and subscriptions, applied to a stream.
    NOT_AUTHORISED = 20
    WRONG_SUPERCATEGORY = 22
    # Reset only.
    CANCELLED = 32
    SLOW_CONSUMER = 33
    NO_HANDLER = 34
    REFUSED = 35
    # Never sent: these numbers are outside the range of codes on the wire.
    CONNECTION_LOST = -1
    PEER_NOT_TRUSTED = -2


FIRST_APPLICATION_CODE: Final = 64
LAST_CODE: Final = 2**32 - 1

# The fixed sentences sent to peers. Details are only written to the local log.
SENTENCES: Final[dict[int, str]] = {
    CloseCode.NORMAL: "closed",
    CloseCode.GOING_AWAY: "the node is going away",
    CloseCode.PROTOCOL_ERROR: "the protocol was violated",
    CloseCode.BAD_RECORD: "a record could not be opened",
    CloseCode.SEAL_VIOLATION: "a seal is missing or wrong",
    CloseCode.AUTHENTICATION_FAILED: "authentication failed",
    CloseCode.NO_COMMON_ALGORITHM: "no common algorithm",
    CloseCode.UNSUPPORTED_VERSION: "unsupported protocol version; spoken here",
    CloseCode.PLAINTEXT_REFUSED: "unencrypted connections are refused",
    CloseCode.FRAME_TOO_LARGE: "a frame is too large",
    CloseCode.TIMEOUT: "the other side took too long",
    CloseCode.TOO_MANY_STREAMS: "too many streams",
    CloseCode.OVERLOADED: "overloaded",
    CloseCode.INTERNAL_ERROR: "internal error",
    CloseCode.UNKNOWN_SESSION: "no such session",
    CloseCode.NOT_AUTHORISED: "not authorised",
    CloseCode.WRONG_SUPERCATEGORY: "not allowed between these roles",
    CloseCode.CANCELLED: "cancelled",
    CloseCode.SLOW_CONSUMER: "the consumer is too slow",
    CloseCode.NO_HANDLER: "no handler",
    CloseCode.REFUSED: "refused",
    CloseCode.CONNECTION_LOST: "the connection was lost",
    CloseCode.PEER_NOT_TRUSTED: "the peer is not trusted",
}


def code_name(code: int) -> str:
    """Return the name of a close code, such as `going-away`, or its number."""
    try:
        return CloseCode(code).name.lower().replace("_", "-")
    except ValueError:
        return str(code)


# Categories (section 12).
CONNECTION: Final = 1
STREAM: Final = 2
SIM: Final = 3
NAMED: Final = 4
ACCOUNT: Final = 5
BUS: Final = 6
TUNNEL: Final = 7
FEDERATION: Final = 8
FIRST_APPLICATION_CATEGORY: Final = 64

# 1 Connection
HELLO: Final = 1
REPLY: Final = 2
PROOF: Final = 3
RETRY: Final = 4
REJECT: Final = 5
PING: Final = 6
PONG: Final = 7
SEAL: Final = 8
KEY_UPDATE: Final = 9
REKEY_OFFER: Final = 10
REKEY_ANSWER: Final = 11
CLOSE: Final = 12
RESUME: Final = 13
RESUMED: Final = 14
RECEIVED: Final = 15

# Events of category 1 that are always sealed (section 6).
ALWAYS_SEALED: Final = frozenset({PROOF, SEAL, KEY_UPDATE, REKEY_OFFER, REKEY_ANSWER, CLOSE})

# 2 Stream
OPEN: Final = 1
WINDOW: Final = 2
FINISH: Final = 3
RESET: Final = 4
DATA: Final = 5
BATCH: Final = 6

# 3 Sim
CALL: Final = 1
SUBSCRIBE: Final = 2
UNSUBSCRIBE: Final = 3
NOTIFY: Final = 4
RESULT: Final = 5
CANCEL: Final = 6
CHUNK: Final = 7
NOTES: Final = 8

# 4 Named
EMIT: Final = 1
REPLY_EVENT: Final = 2
ERROR: Final = 3
END: Final = 4


class BusType(IntEnum):
    """The types of category 6 (the bus): the answer and the requests (section 16)."""

    ANSWER = 1
    PUBLISH = 2
    JOIN = 3
    READ = 4
    OWN = 5
    CLAIM = 6
    TOUCH = 7
    ACK = 8
    NACK = 9
    RELEASE = 10
    BURY = 11
    STREAMS = 12
    GROUPS = 13
    CONSUMERS = 14
    PENDING = 15
    HISTORY = 16
    REWIND = 17
    REDELIVER = 18
    TRIM = 19
    DROP = 20
    REMOVE_CONSUMERS = 21
    REMOVE_GROUP = 22


# 5 MemoryBudget
LOGIN: Final = 1
LOGOUT: Final = 2
ACCOUNT_ANSWER: Final = 3

# 7 Tunnel
TUNNEL_ANSWER: Final = 1
DIAL: Final = 2

# 8 Federation
HAVE: Final = 1
CARDS: Final = 2
STATEMENTS: Final = 3

# The labels of the streams that carry bus and federation events.
BUS_LABEL: Final = "bus"
TUNNEL_LABEL: Final = "tunnel"
FEDERATION_LABEL: Final = "federation"
RESERVED_LABELS: Final = frozenset({BUS_LABEL, TUNNEL_LABEL, FEDERATION_LABEL})


class ResultCode(IntEnum):
    """Codes of Result (section 9) and of the bus (section 16). 2 and 3 depend on the request."""

    ACCEPTED = 0
    TOPIC_NOT_FOUND = 1
    ALREADY_SUBSCRIBED = 2  # Subscribe
    NOT_SUBSCRIBED = 2
    REJECTED = 3
    HANDLER_FAILED = 16
    DEADLINE_EXCEEDED = 17
    CANCELLED = 18
    OVERLOADED = 19
    NOT_AUTHORISED = 20
    PAYLOAD_TOO_LARGE = 21
    WRONG_SUPERCATEGORY = 22
    MALFORMED = 23
    # Only used by the bus.
    INVALID_EVENT = 24
    STORE_FULL = 25
    STORE_DAMAGED = 26
    # Only used by calls with an idempotency key (section 18).
    NOT_ONCE = 27
    # Only used by Dial (section 19).
    UNREACHABLE = 28


# The code in an Error where a Result has 16: the handler of a named event failed.
EVENT_FAILED: Final = 500

# Set locally and never received: the connection ended; the answer arrived in Chunks but no code was
# reading them; the caller cancelled the request.
LOST: Final = -1
STREAMED: Final = -2
GIVEN_UP: Final = -3


def result_name(code: int) -> str:
    """Return the name of a result code, such as `not-authorised`; `other` for an application's
    code.
    """
    return _RESULT_NAMES.get(code, "other")


def result_label(code: int) -> str:
    """Return a readable name of a result code; an application's code 64 is `code 64`."""
    return _RESULT_NAMES.get(code, f"code {code}")


_RESULT_NAMES: Final[dict[int, str]] = {
    **{code.value: code.name.lower().replace("_", "-") for code in ResultCode},
    EVENT_FAILED: "handler-failed",
    LOST: "connection-lost",
    STREAMED: "streamed",
    GIVEN_UP: "given-up",
}

# Sentences for results that arrive without a text.
RESULT_SENTENCES: Final[dict[int, str]] = {
    ResultCode.TOPIC_NOT_FOUND: "topic not found",
    ResultCode.HANDLER_FAILED: "the handler failed",
    ResultCode.DEADLINE_EXCEEDED: "the deadline passed",
    ResultCode.CANCELLED: "cancelled",
    ResultCode.OVERLOADED: "overloaded",
    ResultCode.NOT_AUTHORISED: "not authorised",
    ResultCode.PAYLOAD_TOO_LARGE: "the payload is too large",
    ResultCode.WRONG_SUPERCATEGORY: "not allowed between these roles",
    ResultCode.MALFORMED: "malformed request",
    ResultCode.INVALID_EVENT: "invalid event",
    ResultCode.STORE_FULL: "the store is full",
    ResultCode.STORE_DAMAGED: "stored data is damaged",
    ResultCode.NOT_ONCE: "cannot guarantee that the call runs only once",
    ResultCode.UNREACHABLE: "unreachable",
    EVENT_FAILED: "the handler failed",
}

ROLES: Final = ("client", "server", "peer")


class Supercategory(IntEnum):
    """The kinds of nodes that an event travels between (section 2). Derived from the roles, never
    sent.
    """

    CLIENT_TO_SERVER = 1
    SERVER_TO_CLIENT = 2
    PEER_TO_PEER = 3


def supercategory(sender_role: str, receiver_role: str) -> Supercategory:
    """Return the supercategory of events from `sender_role` to `receiver_role`."""
    if (sender_role, receiver_role) == ("client", "server"):
        return Supercategory.CLIENT_TO_SERVER
    if (sender_role, receiver_role) == ("server", "client"):
        return Supercategory.SERVER_TO_CLIENT
    return Supercategory.PEER_TO_PEER


VERSION: Final = 1
MAIN_STREAM: Final = 1
FIRST_INITIATOR_STREAM: Final = 3
FIRST_RESPONDER_STREAM: Final = 2
LAST_STREAM: Final = 2**32 - 1
