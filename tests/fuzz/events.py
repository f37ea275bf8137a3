"""Target `events`: the decoded payload of each kind of event.

It uses no keys and is therefore fast: payload readers, and all of messaging over an unencrypted
connection. The input is a byte for the setting and a script, in which a RAW step is a payload for
the reader that its category selects.
"""

from collections.abc import Callable
from typing import Final

from parley._lbm.codec import decode, encode_value
from parley._node.messaging.notes import decode_notes, decode_notify, read_slow_text
from parley._node.protocol.event import parse_raw
from parley._node.protocol.handshake import read_proof
from parley._node.protocol.handshake_messages import (
    check_version,
    decode_handshake,
    parse_code_and_text,
    parse_hello,
    parse_reply,
    parse_retry,
)
from parley._node.protocol.limits import NODE_INFO_SIZE, Limits
from tests.fuzz.allowed import ALLOWED
from tests.fuzz.conversation import Conversation
from tests.fuzz.meeting import Setting, fixed_randomness
from tests.fuzz.script import Kind, Step, parse

MAX_SIZE: Final = 4096
SMALL: Final = Limits(max_payload=1024, stream_window=1024, max_streams=4)
SETTINGS: Final = (
    Setting("responder", None),
    Setting("initiator", None),
    Setting("responder", None, {"peer_memory": 2048}, SMALL),
    Setting("initiator", None, {}, SMALL),
)


def _read_identity(payload: bytes) -> None:
    proof = read_proof(payload)
    assert len(proof.identity.node_id) == 32
    assert len(encode_value(proof.info())) <= NODE_INFO_SIZE


def _read_text(payload: bytes) -> None:
    code, text = parse_code_and_text(decode(payload))
    assert code >= 0
    assert 0 <= read_slow_text(text) < 2**64 + 10**20


def _read_notes(payload: bytes) -> None:
    assert len(decode_notes(payload)) <= 4096


READERS: Final[tuple[Callable[[bytes], object], ...]] = (
    lambda payload: parse_hello(decode_handshake(payload)),
    lambda payload: parse_reply(decode_handshake(payload)),
    lambda payload: parse_retry(decode_handshake(payload)),
    lambda payload: check_version(decode_handshake(payload)),
    _read_identity,
    _read_text,
    decode_notify,
    _read_notes,
    parse_raw,
)


def fuzz(data: bytes) -> None:
    """Run the conversation, and read the separate payloads."""
    setting = SETTINGS[data[0] % len(SETTINGS)] if data else SETTINGS[0]
    with fixed_randomness():
        conversation = Conversation(setting)
        for step in parse(data[1:]):
            if step.kind is Kind.RAW:
                _read(step)
            else:
                conversation.take(step)
        conversation.finish()


def _read(step: Step) -> None:
    try:
        READERS[step.category % len(READERS)](step.payload)
    except ALLOWED["events"]:
        return
