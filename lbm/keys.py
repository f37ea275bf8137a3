"""The table of field keys (docs/protocol.md section 13).

Keys 1..255 are reserved for the protocol; applications use keys from 256.
"""

from typing import Final, Literal, NamedTuple, TypeAlias

KeyType: TypeAlias = Literal["uint", "bytes", "text", "bool", "array", "map", "any"]

NOISE: Final = 0
VERSION: Final = 1
RANDOM: Final = 2
OFFER: Final = 3
SUITE: Final = 4
SHARES: Final = 5
ROLE: Final = 6
MAX_PAYLOAD: Final = 7
SEAL_EVENTS: Final = 8
SEAL_DELAY_MS: Final = 9
STREAM_WINDOW: Final = 10
MAX_STREAMS: Final = 11
NETWORK_MAC: Final = 12
PLAINTEXT: Final = 13
IDENTITY_KEYS: Final = 14
NODE_INFO: Final = 15
CODE: Final = 16
TEXT: Final = 17
STREAM: Final = 18
LABEL: Final = 19
CREDIT: Final = 20
TOPIC: Final = 21
DATA: Final = 22
DEADLINE_MS: Final = 23
HEADERS: Final = 24
REQUEST: Final = 25
NAME: Final = 26
NAMESPACE: Final = 27
FORMAT: Final = 28
SHARE: Final = 29
WINDOW: Final = 30
EPOCH: Final = 31
NOTES: Final = 32
REKEY_NUMBER: Final = 33
# The bus (section 16).
GROUP: Final = 34
CONSUMER: Final = 35
IDS: Final = 36
ROWS: Final = 37
COUNT: Final = 38
WAIT_MS: Final = 39
IDLE_MS: Final = 40
DELAY_MS: Final = 41
AFTER: Final = 42
UNTIL: Final = 43
BEFORE: Final = 44
DURABLE: Final = 45
MAX_LENGTH: Final = 46
MAX_BYTES: Final = 47
APPROXIMATE: Final = 48
MORE: Final = 49
# Resumption, calls with an idempotency key, and topics with history (sections 17 and 18).
RESUME_MS: Final = 50
TAG: Final = 51
ATTEMPT: Final = 52
RECEIVED: Final = 53
MAC: Final = 54
ONCE_KEY: Final = 55
TOPIC_EPOCH: Final = 56
NUMBER: Final = 57
RECOVERED: Final = 58
# Federation, home servers and mail (sections 19 and 20).
PATH: Final = 59
TO: Final = 60
TRACE: Final = 61
HAVE: Final = 62
ENVELOPES: Final = 63
HOP: Final = 64
CONTENT: Final = 65
SIGNING: Final = 66
SIGNATURE: Final = 67
SEALED: Final = 68
ADDRESSES: Final = 69
KIND: Final = 70
ORIGIN: Final = 71
MADE_MS: Final = 72
EXPIRES_MS: Final = 73
LINKS: Final = 74
EXPORTS: Final = 75
RECIPIENT: Final = 76
MAIL_ID: Final = 77
PREKEY_HASH: Final = 78
KEX: Final = 79
# Topics that store the newest note of each key (section 18).
REPLACED: Final = 80
# Key statements (section 22).
SUCCESSOR: Final = 81
SIGNER: Final = 82
CONSENT: Final = 83
SLOTS: Final = 84
STATEMENTS: Final = 85

FIRST_APPLICATION_KEY: Final = 256


class Key(NamedTuple):
    """The name of a key and the type of its value."""

    name: str
    type: KeyType


KEYS: Final[dict[int, Key]] = {
    NOISE: Key("noise", "bytes"),
    VERSION: Key("version", "uint"),
    RANDOM: Key("random", "bytes"),
    OFFER: Key("offer", "map"),
    SUITE: Key("suite", "map"),
    SHARES: Key("key shares", "map"),
    ROLE: Key("role", "text"),
    MAX_PAYLOAD: Key("max_payload", "uint"),
    SEAL_EVENTS: Key("seal_events", "uint"),
    SEAL_DELAY_MS: Key("seal_delay_ms", "uint"),
    STREAM_WINDOW: Key("stream_window", "uint"),
    MAX_STREAMS: Key("max_streams", "uint"),
    NETWORK_MAC: Key("network mac", "bytes"),
    PLAINTEXT: Key("plaintext", "bool"),
    IDENTITY_KEYS: Key("identity keys", "array"),
    NODE_INFO: Key("node information", "map"),
    CODE: Key("code", "uint"),
    TEXT: Key("text", "text"),
    STREAM: Key("stream", "uint"),
    LABEL: Key("label", "text"),
    CREDIT: Key("credit", "uint"),
    TOPIC: Key("topic", "text"),
    DATA: Key("data", "any"),
    DEADLINE_MS: Key("deadline ms", "uint"),
    HEADERS: Key("headers", "map"),
    REQUEST: Key("request", "uint"),
    NAME: Key("name", "text"),
    NAMESPACE: Key("namespace", "text"),
    FORMAT: Key("format", "uint"),
    SHARE: Key("share", "bytes"),
    WINDOW: Key("window", "uint"),
    EPOCH: Key("epoch", "uint"),
    NOTES: Key("notes", "array"),
    REKEY_NUMBER: Key("rekey number", "uint"),
    GROUP: Key("group", "text"),
    CONSUMER: Key("consumer", "text"),
    IDS: Key("ids", "array"),
    ROWS: Key("rows", "array"),
    COUNT: Key("count", "uint"),
    WAIT_MS: Key("wait ms", "uint"),
    IDLE_MS: Key("idle ms", "uint"),
    DELAY_MS: Key("delay ms", "uint"),
    AFTER: Key("after", "text"),
    UNTIL: Key("until", "text"),
    BEFORE: Key("before", "text"),
    DURABLE: Key("durable", "bool"),
    MAX_LENGTH: Key("max length", "uint"),
    MAX_BYTES: Key("max bytes", "uint"),
    APPROXIMATE: Key("approximate", "bool"),
    MORE: Key("more", "bool"),
    RESUME_MS: Key("resume ms", "uint"),
    TAG: Key("tag", "bytes"),
    ATTEMPT: Key("attempt", "uint"),
    RECEIVED: Key("received", "uint"),
    MAC: Key("mac", "bytes"),
    ONCE_KEY: Key("once key", "bytes"),
    TOPIC_EPOCH: Key("topic epoch", "bytes"),
    NUMBER: Key("number", "uint"),
    RECOVERED: Key("recovered", "bool"),
    PATH: Key("path", "array"),
    TO: Key("to", "array"),
    TRACE: Key("trace", "bytes"),
    HAVE: Key("have", "array"),
    ENVELOPES: Key("envelopes", "array"),
    HOP: Key("hop", "uint"),
    CONTENT: Key("content", "bytes"),
    SIGNING: Key("signing", "text"),
    SIGNATURE: Key("signature", "bytes"),
    SEALED: Key("sealed", "bytes"),
    ADDRESSES: Key("addresses", "array"),
    KIND: Key("kind", "text"),
    ORIGIN: Key("origin", "bytes"),
    MADE_MS: Key("made ms", "uint"),
    EXPIRES_MS: Key("expires ms", "uint"),
    LINKS: Key("links", "array"),
    EXPORTS: Key("exports", "array"),
    RECIPIENT: Key("recipient", "bytes"),
    MAIL_ID: Key("mail id", "bytes"),
    PREKEY_HASH: Key("prekey hash", "bytes"),
    KEX: Key("kex", "text"),
    REPLACED: Key("replaced", "uint"),
    SUCCESSOR: Key("successor", "array"),
    SIGNER: Key("signer", "array"),
    CONSENT: Key("consent", "bytes"),
    SLOTS: Key("slots", "array"),
    STATEMENTS: Key("statements", "array"),
}


def key_name(key: int) -> str:
    """Return a field's name for errors: `21 (topic)`, or the number of an unknown key."""
    entry = KEYS.get(key)
    return str(key) if entry is None else f"{key} ({entry.name})"
