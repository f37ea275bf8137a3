"""Tests of the wire's numbers, which are repeated here from sections 2, 11 and 12."""

import pytest

from parley._node.protocol import codes
from parley._node.protocol.codes import (
    ALWAYS_SEALED,
    SENTENCES,
    CloseCode,
    Supercategory,
    code_name,
    supercategory,
)

CLOSE_CODES = {
    0: "normal",
    1: "going-away",
    2: "protocol-error",
    3: "bad-record",
    4: "seal-violation",
    5: "authentication-failed",
    6: "no-common-algorithm",
    7: "unsupported-version",
    8: "plaintext-refused",
    9: "frame-too-large",
    10: "timeout",
    11: "too-many-streams",
    12: "overloaded",
    13: "internal-error",
    14: "unknown-session",
    32: "cancelled",
    33: "slow-consumer",
    34: "no-handler",
    35: "refused",
    20: "not-authorised",
    22: "wrong-supercategory",
    -1: "connection-lost",
    -2: "peer-not-trusted",
}
CONNECTION_EVENTS = (
    "HELLO REPLY PROOF RETRY REJECT PING PONG SEAL KEY_UPDATE REKEY_OFFER REKEY_ANSWER CLOSE "
    "RESUME RESUMED RECEIVED"
)
OTHER_EVENTS = (
    "OPEN WINDOW FINISH RESET DATA BATCH",
    "CALL SUBSCRIBE UNSUBSCRIBE NOTIFY RESULT CANCEL CHUNK NOTES",
    "EMIT REPLY_EVENT ERROR END",
)


def test_close_codes_have_their_names() -> None:
    assert {int(code): code_name(code) for code in CloseCode} == CLOSE_CODES
    assert code_name(64) == "64"
    assert code_name(15) == "15"


def test_every_close_code_has_its_sentence() -> None:
    assert SENTENCES.keys() == CLOSE_CODES.keys()
    assert len(set(SENTENCES.values())) == len(SENTENCES)


@pytest.mark.parametrize("names", [CONNECTION_EVENTS, *OTHER_EVENTS])
def test_subcategories_count_from_1(names: str) -> None:
    numbers = [getattr(codes, name) for name in names.split()]
    assert numbers == list(range(1, len(numbers) + 1))


def test_the_six_events_that_are_always_sealed() -> None:
    assert {3, 8, 9, 10, 11, 12} == ALWAYS_SEALED


@pytest.mark.parametrize("sender", codes.ROLES)
@pytest.mark.parametrize("receiver", codes.ROLES)
def test_supercategories(sender: str, receiver: str) -> None:
    expected = {
        ("client", "server"): Supercategory.CLIENT_TO_SERVER,
        ("server", "client"): Supercategory.SERVER_TO_CLIENT,
    }.get((sender, receiver), Supercategory.PEER_TO_PEER)
    assert supercategory(sender, receiver) is expected
