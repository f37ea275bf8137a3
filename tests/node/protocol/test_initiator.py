"""The initiator before the responder's Proof: it takes what it offered, and says nothing else."""

from typing import Any

import pytest

from parley._crypto.registry import KEX, NAMES, PARAMETERS
from parley._crypto.schedule import check_network_mac
from parley._lbm import keys
from parley._lbm.codec import Value, decode, encode
from parley._node.protocol.codes import HELLO, REJECT, REPLY, RETRY, CloseCode
from parley._node.protocol.config import Plaintext
from parley._node.protocol.errors import RemoteProtocolError
from parley._node.protocol.event import Event, handshake_event, parse_raw, serialise_raw
from parley._node.protocol.frames import frame
from parley._node.protocol.hello import PARAMETER_KEYS
from parley._node.protocol.initiator import Initiator
from parley._node.protocol.reports import ConnectionEnded, HandshakeCompleted
from parley._node.protocol.states import State
from tests.node.protocol.pair import (
    ALICE,
    ALIVE,
    BOB,
    START,
    Pair,
    Side,
    events_of,
    make_config,
    raw_frame,
)

HYBRID, CLASSIC = "x25519-mlkem768", "x25519"
NUMBERS = {name: n for n, name in PARAMETER_KEYS.items()}


def initiator(**settings: Any) -> tuple[Side, dict[int, Value]]:
    """An initiator whose Hello is out, and the cells of that Hello."""
    settings.setdefault("algorithms", {})
    side = Side(make_config(ALICE, **settings), initiator=True)
    return side, sent_hello(side)


def sent_hello(side: Side) -> dict[int, Value]:
    (event,) = events_of(side.take(START))
    parsed = parse_raw(event)
    assert parsed[:4] == (0, 0, 1, HELLO)
    return decode(parsed.payload)


def give(side: Side, subcategory: int, cells: dict[int, Value]) -> None:
    give_wire(side, raw_frame(subcategory, cells))


def give_wire(side: Side, wire: bytes) -> None:
    side.core.receive_data(wire, START)
    side.collect(START)


def reply_to(hello: dict[int, Value], **changes: Value) -> dict[int, Value]:
    """The cells of an acceptable Reply; `changes` as in test_responder."""
    offer, shares = hello[keys.OFFER], hello[keys.SHARES]
    assert isinstance(offer, dict)
    assert isinstance(shares, dict)
    suite: dict[int, Value] = {n: offer[n][0] for n in PARAMETER_KEYS}
    (kex,) = shares
    cells: dict[int, Value] = {
        keys.VERSION: 1,
        keys.RANDOM: bytes(32),
        keys.SUITE: {**suite, 1: kex},
        keys.SHARES: {kex: KEX[kex].respond(shares[kex])[0]},
        keys.ROLE: "peer",
    }
    for name, value in changes.items():
        key = getattr(keys, name.upper())
        cells[key] = value
        if value is None:
            del cells[key]
    return cells


def assert_left(side: Side, code: CloseCode = CloseCode.PROTOCOL_ERROR) -> None:
    """It closed the transport without a word, and reported no more than that."""
    assert side.core.ended
    assert not side.take(START)
    (ended,) = side.reports
    assert isinstance(ended, ConnectionEnded)
    assert (ended.code, ended.remote) == (code, False)


# Hello.


def test_hello_offers_what_the_settings_say() -> None:
    _, cells = initiator(
        role="client",
        max_payload=4_096,
        seal_delay_ms=0,
        algorithms={"cipher": ("chacha20-poly1305",), "sealing": ("each", "chain")},
        require={"kex": frozenset({HYBRID})},
    )
    offer = cells[keys.OFFER]
    assert offer == {
        1: [HYBRID],
        2: ["ed25519", "ml-dsa-65", "ecdsa-p256"],
        3: list(NAMES["hash"]),
        4: ["chacha20-poly1305"],
        5: ["each", "chain"],
    }
    shares, random = cells[keys.SHARES], cells[keys.RANDOM]
    assert isinstance(shares, dict)
    assert isinstance(random, bytes)
    assert list(shares) == [HYBRID]
    assert len(random) == 32
    assert (cells[keys.VERSION], cells[keys.ROLE], cells[keys.MAX_PAYLOAD]) == (1, "client", 4_096)
    assert keys.NETWORK_MAC not in cells
    assert keys.PLAINTEXT not in cells


def test_ephemeral_keys_and_random_are_fresh() -> None:
    hellos = [initiator()[1] for _ in range(2)]
    assert hellos[0][keys.RANDOM] != hellos[1][keys.RANDOM]
    assert hellos[0][keys.SHARES] != hellos[1][keys.SHARES]


def test_with_a_network_key_both_hellos_carry_their_mac() -> None:
    key = bytes(range(32))
    side, first = initiator(network_key=key)
    give(side, RETRY, {keys.SUITE: {1: CLASSIC}})
    second = sent_hello(side)
    for cells in (first, second):
        mac = cells.pop(keys.NETWORK_MAC)
        assert isinstance(mac, bytes)
        assert check_network_mac(key, encode(cells), mac)


# Retry.


def test_the_second_hello_equals_the_first_but_for_its_share() -> None:
    side, first = initiator()
    give(side, RETRY, {keys.SUITE: {1: CLASSIC}})
    second = sent_hello(side)
    assert side.state == "EXPECT_REPLY"
    assert side.code == ALIVE
    shares = second.pop(keys.SHARES)
    first.pop(keys.SHARES)
    assert second == first
    assert isinstance(shares, dict)
    assert list(shares) == [CLASSIC]
    give(side, REPLY, reply_to({**second, keys.SHARES: shares}))
    assert side.core.state is State.EXPECT_PROOF


def test_a_handshake_with_retry() -> None:
    pair = Pair(make_config(ALICE, algorithms={}), make_config(BOB))
    pair.pump()
    for side in pair.sides:
        suite = side.one(HandshakeCompleted).agreed.suite
        assert suite is not None
        assert suite.kex == CLASSIC


def test_a_second_retry_is_refused() -> None:
    for again in (CLASSIC, HYBRID):
        side, _ = initiator()
        give(side, RETRY, {keys.SUITE: {1: CLASSIC}})
        sent_hello(side)
        give(side, RETRY, {keys.SUITE: {1: again}})
        assert_left(side)


RETRIES: dict[str, dict[int, Value]] = {
    "already shared": {keys.SUITE: {1: HYBRID}},
    "unknown": {keys.SUITE: {1: "brand-new"}},
    "no name": {keys.SUITE: {}},
    "a number": {keys.SUITE: {1: 1}},
    "more than a kex": {keys.SUITE: {1: CLASSIC, 2: "ed25519"}},
    "of a wrong type": {keys.SUITE: CLASSIC},
    "nothing": {},
}


@pytest.mark.parametrize("what", RETRIES)
def test_a_retry_that_is_refused(what: str) -> None:
    side, _ = initiator()
    give(side, RETRY, RETRIES[what])
    assert_left(side)


def test_a_retry_for_what_was_not_offered_is_refused() -> None:
    for floor in ({"algorithms": {"kex": (HYBRID,)}}, {"require": {"kex": frozenset({HYBRID})}}):
        side, _ = initiator(**floor)
        give(side, RETRY, {keys.SUITE: {1: CLASSIC}})
        assert_left(side)


# Reply.


def test_an_acceptable_reply() -> None:
    side, hello = initiator()
    give(side, REPLY, reply_to(hello))
    assert side.core.state is State.EXPECT_PROOF
    assert not side.reports


@pytest.mark.parametrize("parameter", PARAMETERS)
def test_a_reply_with_what_was_not_offered(parameter: str) -> None:
    best, other = NAMES[parameter][:2]
    for settings in ({"algorithms": {parameter: (best,)}}, {"require": {parameter: {best}}}):
        side, hello = initiator(**settings)
        cells = reply_to(hello)
        suite = cells[keys.SUITE]
        assert isinstance(suite, dict)
        suite[NUMBERS[parameter]] = other
        if parameter == "kex":
            cells[keys.SHARES] = {other: bytes([9]) * 32}
        give(side, REPLY, cells)
        assert_left(side)


def test_a_reply_with_a_kex_that_had_no_share() -> None:
    side, hello = initiator()
    cells = reply_to(hello)
    suite = cells[keys.SUITE]
    assert isinstance(suite, dict)
    suite[1] = CLASSIC
    cells[keys.SHARES] = {CLASSIC: bytes([9]) * 32}
    give(side, REPLY, cells)
    assert_left(side)


REPLIES: dict[str, dict[str, Value]] = {
    "no version": {"version": None},
    "no random": {"random": None},
    "a short random": {"random": bytes(31)},
    "no role": {"role": None},
    "an unknown role": {"role": "king"},
    "no suite": {"suite": None},
    "a suite without a parameter": {"suite": {n: NAMES[PARAMETER_KEYS[n]][0] for n in range(1, 5)}},
    "an unknown name": {"suite": dict.fromkeys(range(1, 6), "brand-new")},
    "a suite of lists": {"suite": {n: [NAMES[p][0]] for n, p in PARAMETER_KEYS.items()}},
    "no share": {"shares": None},
    "no share in the map": {"shares": {}},
    "a share of a wrong type": {"shares": {HYBRID: 1}},
    "a share for another kex": {"shares": {CLASSIC: bytes([9]) * 32}},
    "two shares": {"shares": {CLASSIC: bytes([9]) * 32, HYBRID: bytes([9]) * 1_120}},
    "a short share": {"shares": {HYBRID: bytes([9]) * 1_119}},
    "an all-zero result": {"shares": {HYBRID: bytes([9]) * 1_088 + bytes(32)}},
    "a limit below its range": {"max_payload": 1},
    "a limit of a wrong type": {"seal_events": "1"},
    "plaintext": {"plaintext": True, "suite": None, "shares": None},
    "plaintext and a suite": {"plaintext": True},
}


@pytest.mark.parametrize("what", REPLIES)
def test_a_reply_that_is_refused(what: str) -> None:
    side, hello = initiator()
    give(side, REPLY, reply_to(hello, **REPLIES[what]))
    assert_left(side)


@pytest.mark.parametrize("version", [0, 2])
def test_a_reply_of_another_version(version: int) -> None:
    side, hello = initiator()
    give(side, REPLY, reply_to(hello, version=version))
    assert_left(side, CloseCode.UNSUPPORTED_VERSION)


# Reject.


@pytest.mark.parametrize("code", [0, 2, 6, 7, 8, 9, 12, 13, 64, 2**32 - 1])
def test_a_reject_ends_it_with_its_code(code: int) -> None:
    for retried in (False, True):
        side, _ = initiator()
        if retried:
            give(side, RETRY, {keys.SUITE: {1: CLASSIC}})
            side.take(START)
        give(side, REJECT, {keys.CODE: code, keys.TEXT: "sorry"})
        ended = side.one(ConnectionEnded)
        assert (ended.code, ended.text, ended.remote) == (code, "sorry", True)
        assert side.core.ended
        assert not side.take(START)


REJECTS: list[dict[int, Value]] = [
    {},
    {keys.TEXT: "no code"},
    {keys.CODE: "2"},
    {keys.CODE: -1},
    {keys.CODE: 2**32},
    {keys.CODE: 2, keys.TEXT: 1},
]


@pytest.mark.parametrize("cells", REJECTS)
def test_a_malformed_reject(cells: dict[int, Value]) -> None:
    side, _ = initiator()
    give(side, REJECT, cells)
    assert_left(side)


# Anything else.


@pytest.mark.parametrize("subcategory", [1, 3, 6, 7, 8, 12, 13, 255])
def test_any_other_event(subcategory: int) -> None:
    side, hello = initiator()
    give(side, subcategory, reply_to(hello))
    assert_left(side)


@pytest.mark.parametrize(
    "event",
    [
        Event(1, 0, 1, REPLY, b""),
        Event(0, 1, 1, REPLY, b""),
        Event(0, 0, 2, REPLY, b""),
        Event(0, 0, 64, 1, b""),
        Event(0, 0, 0, REPLY, b""),
    ],
)
def test_a_reply_in_the_wrong_place(event: Event) -> None:
    side, hello = initiator()
    give_wire(side, frame(serialise_raw(event._replace(payload=encode(reply_to(hello))))))
    assert_left(side)


@pytest.mark.parametrize("payload", [b"\x00", b"\xff", b"\xa1\x01"])
def test_what_is_not_lbm(payload: bytes) -> None:
    for subcategory in (REPLY, RETRY, REJECT):
        side, _ = initiator()
        give_wire(side, frame(handshake_event(subcategory, payload)))
        assert_left(side)


def test_its_own_hello_reflected() -> None:
    side = Side(make_config(ALICE), initiator=True)
    give_wire(side, side.take(START))
    assert_left(side)


# Plaintext.


def test_a_plaintext_hello_and_reply() -> None:
    side, cells = initiator(plaintext="only")
    assert cells[keys.PLAINTEXT] is True
    assert not {keys.OFFER, keys.SHARES, keys.NETWORK_MAC} & set(cells)
    reply: dict[int, Value] = {1: 1, 2: bytes(32), 6: "server", 13: True, 7: 2_000}
    give(side, REPLY, reply)
    assert side.core.state is State.OPEN
    agreed = side.one(HandshakeCompleted).agreed
    assert [agreed.identity, agreed.suite, agreed.session_id, agreed.exporter] == [None] * 4
    assert (agreed.remote_role, agreed.limits.max_payload) == ("server", 2_000)


def test_an_encrypted_reply_to_a_plaintext_hello_is_refused() -> None:
    _, encrypted = initiator()
    side, _ = initiator(plaintext="only")
    give(side, REPLY, reply_to(encrypted))
    assert_left(side)


def test_a_retry_to_a_plaintext_hello_is_refused() -> None:
    side, _ = initiator(plaintext="only")
    give(side, RETRY, {keys.SUITE: {1: CLASSIC}})
    assert_left(side)


def test_who_may_do_both_dials_encrypted_and_does_not_fall_back() -> None:
    side, cells = initiator(plaintext="both")
    assert keys.OFFER in cells
    give(side, REPLY, {1: 1, 2: bytes(32), 6: "server", 13: True})
    assert_left(side)


@pytest.mark.parametrize("plaintext", ["never", "only"])
@pytest.mark.parametrize(
    ("subcategory", "cells"),
    [
        (
            REPLY,
            {keys.VERSION: 1, keys.RANDOM: bytes(32), keys.ROLE: "peer", keys.PLAINTEXT: True},
        ),
        (RETRY, {keys.SUITE: {1: CLASSIC}}),
        (REJECT, {keys.CODE: 2}),
    ],
)
def test_an_answer_before_the_hello_is_none(
    subcategory: int, cells: dict[int, Value], plaintext: Plaintext
) -> None:
    # Found by fuzzing: without keys of ours a Reply in plain was taken by a node that
    # never speaks in plain.
    early = Initiator(make_config(ALICE, plaintext=plaintext), bytes(32))
    with pytest.raises(RemoteProtocolError, match="before our Hello"):
        early.receive(handshake_event(subcategory, encode(cells)))
