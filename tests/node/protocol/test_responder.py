"""The responder before its Reply: what it takes, Retry, Reject, network keys, plaintext."""

from collections.abc import Mapping
from typing import Any

import pytest

from parley._crypto.registry import KEX, NAMES
from parley._crypto.schedule import network_mac
from parley._lbm import keys
from parley._lbm.codec import Value, decode, encode
from parley._node.protocol.codes import HELLO, REJECT, REPLY, RETRY, SENTENCES, CloseCode
from parley._node.protocol.event import Event, handshake_event, parse_raw, serialise_raw
from parley._node.protocol.frames import frame
from parley._node.protocol.hello import PARAMETER_KEYS
from parley._node.protocol.reports import ConnectionEnded
from parley._node.protocol.states import State
from tests.node.protocol.pair import ALIVE, BOB, START, Side, events_of, make_config, raw_frame

HYBRID, CLASSIC = "x25519-mlkem768", "x25519"
NETWORK_KEY = bytes(range(32))


def share(kex: str) -> bytes:
    return KEX[kex].generate().share


def hello(**changes: Value) -> dict[int, Value]:
    """The cells of a Hello; `changes` by the names of lbm.keys, None leaves a cell out."""
    cells: dict[int, Value] = {
        keys.VERSION: 1,
        keys.RANDOM: bytes(range(32)),
        keys.OFFER: {n: list(NAMES[name]) for n, name in PARAMETER_KEYS.items()},
        keys.SHARES: {HYBRID: share(HYBRID)},
        keys.ROLE: "peer",
    }
    for name, value in changes.items():
        key = int(name[1:]) if name.startswith("_") else getattr(keys, name.upper())
        cells[key] = value
        if value is None:
            del cells[key]
    return cells


def plaintext_hello(**changes: Value) -> dict[int, Value]:
    return hello(offer=None, shares=None, **{"plaintext": True, **changes})


def responder(**settings: Any) -> Side:
    settings.setdefault("algorithms", {})
    return Side(make_config(BOB, **settings), initiator=False)


def give(side: Side, cells: Mapping[int, Value]) -> list[bytes]:
    """Let a responder have a Hello; the events that it answers."""
    return give_wire(side, raw_frame(HELLO, cells))


def give_wire(side: Side, wire: bytes) -> list[bytes]:
    side.core.receive_data(wire, START)
    side.collect(START)
    return events_of(side.take(START))


def assert_rejected(side: Side, answer: list[bytes], code: CloseCode, addition: str = "") -> None:
    (reject,) = answer
    event = parse_raw(reject)
    assert event[:4] == (0, 0, 1, REJECT)
    assert decode(event.payload) == {keys.CODE: code, keys.TEXT: SENTENCES[code] + addition}
    assert side.core.state is State.FAREWELL
    assert side.core.wants_eof
    ended = side.one(ConnectionEnded)
    assert (ended.code, ended.remote) == (code, False)
    assert len(side.reports) == 1


def assert_silent(side: Side, answer: list[bytes]) -> None:
    assert not answer
    assert side.core.ended
    assert isinstance(side.reports[0], ConnectionEnded)
    assert len(side.reports) == 1


# A Hello that is taken.


def test_reply_and_proof_answer_a_hello() -> None:
    side = responder(role="server", max_payload=2_048)
    reply, proof = give(side, hello())
    event = parse_raw(reply)
    assert event[:4] == (0, 0, 1, REPLY)
    cells = decode(event.payload)
    assert cells[keys.VERSION] == 1
    assert cells[keys.ROLE] == "server"
    assert cells[keys.MAX_PAYLOAD] == 2_048
    assert cells[keys.SUITE] == {n: NAMES[name][0] for n, name in PARAMETER_KEYS.items()}
    shares = cells[keys.SHARES]
    assert isinstance(shares, dict)
    assert list(shares) == [HYBRID]
    assert len(proof) > 25
    assert side.core.state is State.EXPECT_PROOF
    assert not side.reports


def test_unknown_cells_names_and_noise_are_passed_over() -> None:
    offer = {n: ["brand-new", *NAMES[name]] for n, name in PARAMETER_KEYS.items()}
    offer[6] = ["brand-new"]
    cells = hello(
        offer=offer, shares={"brand-new": b"x", HYBRID: share(HYBRID)}, _0=b"noise", _200=1, _999=2
    )
    assert len(give(responder(), cells)) == 2


def test_limits_may_be_left_out_or_too_great() -> None:
    assert len(give(responder(), hello(max_payload=2**64 - 1, seal_events=2**40))) == 2


def test_a_hello_byte_by_byte() -> None:
    side = responder()
    for byte in raw_frame(HELLO, hello()):
        side.core.receive_data(bytes([byte]), START)
    assert len(events_of(side.take(START))) == 2


# Retry.


def test_retry_asks_for_the_share_and_the_second_hello_brings_it() -> None:
    side = responder(algorithms={"kex": (CLASSIC,)})
    cells = hello()
    (retry,) = give(side, cells)
    event = parse_raw(retry)
    assert event[:4] == (0, 0, 1, RETRY)
    assert decode(event.payload) == {keys.SUITE: {1: CLASSIC}}
    assert side.state == "EXPECT_HELLO"
    cells[keys.SHARES] = {CLASSIC: share(CLASSIC)}
    cells[keys.NOISE] = b"may differ"
    cells[keys.NETWORK_MAC] = b"may differ, and is ignored here"
    assert len(give(side, cells)) == 2
    assert side.core.state is State.EXPECT_PROOF


def test_a_hello_without_any_share_is_answered_by_retry() -> None:
    nothing: list[Value] = [{}, None]
    for shares in nothing:
        (retry,) = give(responder(), hello(shares=shares))
        assert parse_raw(retry).subcategory == RETRY


SECOND: dict[str, dict[str, Value]] = {
    "random": {"random": bytes(32)},
    "role": {"role": "client"},
    "an unknown role": {"role": "king"},
    "a limit": {"max_payload": 4_096},
    "a limit below its range": {"max_payload": 1},
    "an unknown cell": {"_999": 1},
    "a name more": {"offer": {n: [*NAMES[p], "x"] for n, p in PARAMETER_KEYS.items()}},
    "the version": {"version": 2},
    "plaintext": {"plaintext": True, "offer": None, "shares": None},
    "no share": {"shares": None},
    "no share in the map": {"shares": {}},
    "shares of a wrong type": {"shares": b""},
    "a share of a wrong type": {"shares": {CLASSIC: 1}},
    "the same share again": {"shares": {HYBRID: share(HYBRID)}},
    "two shares": {"shares": {CLASSIC: share(CLASSIC), HYBRID: share(HYBRID)}},
}


@pytest.mark.parametrize("what", SECOND)
def test_a_second_hello_that_differs(what: str) -> None:
    side = responder(algorithms={"kex": (CLASSIC,)})
    give(side, hello())
    answer = give(side, hello(**{"shares": {CLASSIC: share(CLASSIC)}, **SECOND[what]}))
    assert_rejected(side, answer, CloseCode.PROTOCOL_ERROR)


@pytest.mark.parametrize("subcategory", [2, 3, 4, 5, 6, 12, 13, 255])
def test_any_other_event_in_place_of_either_hello(subcategory: int) -> None:
    for second in (False, True):
        side = responder(algorithms={"kex": (CLASSIC,)})
        if second:
            give(side, hello())
        answer = give_wire(side, raw_frame(subcategory, {keys.CODE: 0, keys.TEXT: ""}))
        assert_rejected(side, answer, CloseCode.PROTOCOL_ERROR)


# Reject.


@pytest.mark.parametrize("parameter", NAMES)
def test_nothing_in_common_names_the_parameter(parameter: str) -> None:
    number = {name: n for n, name in PARAMETER_KEYS.items()}[parameter]
    offer: dict[int, Value] = {n: list(NAMES[name]) for n, name in PARAMETER_KEYS.items()}
    for names in ([], ["brand-new"]):
        side = responder()
        answer = give(side, hello(offer={**offer, number: names}))
        assert_rejected(side, answer, CloseCode.NO_COMMON_ALGORITHM, f": {parameter}")


@pytest.mark.parametrize("parameter", NAMES)
def test_the_floor_refuses_what_a_middle_node_left_over(parameter: str) -> None:
    number = {name: n for n, name in PARAMETER_KEYS.items()}[parameter]
    offer: dict[int, Value] = {n: list(NAMES[name]) for n, name in PARAMETER_KEYS.items()}
    best, *rest = NAMES[parameter]
    side = responder(require={parameter: frozenset({best})})
    answer = give(side, hello(offer={**offer, number: rest}))
    assert_rejected(side, answer, CloseCode.NO_COMMON_ALGORITHM, f": {parameter}")


@pytest.mark.parametrize("version", [0, 2, 2**64 - 1])
def test_another_version_is_refused_before_anything_else_is_read(version: int) -> None:
    for cells in (hello(version=version), {keys.VERSION: version}):
        side = responder()
        assert_rejected(side, give(side, cells), CloseCode.UNSUPPORTED_VERSION, ": 1")


MALFORMED: dict[str, dict[str, Value]] = {
    "no version": {"version": None},
    "version of a wrong type": {"version": "1"},
    "version true": {"version": True},
    "no random": {"random": None},
    "a short random": {"random": bytes(31)},
    "a long random": {"random": bytes(33)},
    "no role": {"role": None},
    "an unknown role": {"role": "king"},
    "role of a wrong type": {"role": 1},
    "no offer": {"offer": None},
    "offer of a wrong type": {"offer": []},
    "offer without a parameter": {"offer": {n: ["x25519"] for n in range(1, 5)}},
    "offer of one name": {"offer": dict.fromkeys(range(1, 6), "x25519")},
    "offer of numbers": {"offer": {n: [1] for n in range(1, 6)}},
    "offer by text": {"offer": {"kex": ["x25519"]}},
    "shares of a wrong type": {"shares": [b""]},
    "a share of a wrong type": {"shares": {HYBRID: "x"}},
    "shares by number": {"shares": {1: b"x"}},
    "an offer in plaintext": {"plaintext": True, "shares": None},
    "a share in plaintext": {"plaintext": True, "offer": None},
    "plaintext of a wrong type": {"plaintext": 1},
    "max_payload too small": {"max_payload": 1_023},
    "max_payload negative": {"max_payload": -1},
    "seal_events 0": {"seal_events": 0},
    "seal_delay_ms negative": {"seal_delay_ms": -1},
    "stream_window too small": {"stream_window": 1_023},
    "max_streams of a wrong type": {"max_streams": "1"},
    "too many items": {"_999": list(range(256))},
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_hello(what: str) -> None:
    side = responder(plaintext="both")
    answer = give(side, hello(**MALFORMED[what]))
    assert_rejected(side, answer, CloseCode.PROTOCOL_ERROR)


@pytest.mark.parametrize(
    "payload",
    [
        b"\x00",
        b"\xff",
        b"\xa1\x01",
        encode(hello()) + b"\x00",
        encode(hello(_999=0))[:-1] + b"\x81" * 20 + b"\x01",  # too deep
        encode(hello(_0=b"")).replace(b"\x00\x40", b"\x00\x01", 1),  # noise is no number
    ],
)
def test_a_hello_that_is_not_lbm(payload: bytes) -> None:
    side = responder()
    answer = give_wire(side, frame(handshake_event(HELLO, payload)))
    assert_rejected(side, answer, CloseCode.PROTOCOL_ERROR)


BAD_SHARES = {
    "an all-zero result": (CLASSIC, bytes(32)),
    "a short x25519 key": (CLASSIC, bytes(31)),
    "no bytes": (CLASSIC, b""),
    "a modulus too great": (HYBRID, b"\xff" * 1_184 + share(CLASSIC)),
    "a short hybrid": (HYBRID, share(HYBRID)[:-1]),
    "an all-zero result of the hybrid": (HYBRID, share(HYBRID)[:1_184] + bytes(32)),
}


@pytest.mark.parametrize("what", BAD_SHARES)
def test_a_malformed_share(what: str) -> None:
    kex, bad = BAD_SHARES[what]
    side = responder()
    assert_rejected(side, give(side, hello(shares={kex: bad})), CloseCode.PROTOCOL_ERROR)


@pytest.mark.parametrize(
    "event",
    [
        Event(1, 0, 1, HELLO, b""),
        Event(3, 0, 1, HELLO, b""),
        Event(0, 1, 1, HELLO, b""),
        Event(0, 0, 2, HELLO, b""),
        Event(0, 0, 64, HELLO, b""),
        Event(0, 0, 0, HELLO, b""),
        Event(0, 0, 1, 0, b""),
    ],
)
def test_a_hello_in_the_wrong_place(event: Event) -> None:
    side = responder()
    answer = give_wire(side, frame(serialise_raw(event._replace(payload=encode(hello())))))
    assert_rejected(side, answer, CloseCode.PROTOCOL_ERROR)


@pytest.mark.parametrize("size", [0, 1, 8])
def test_an_event_that_is_too_short(size: int) -> None:
    side = responder()
    assert_rejected(side, give_wire(side, frame(bytes(size))), CloseCode.PROTOCOL_ERROR)


def test_what_follows_a_reject_is_thrown_away() -> None:
    side = responder()
    wire = frame(bytes(3)) + raw_frame(HELLO, hello())
    assert_rejected(side, give_wire(side, wire), CloseCode.PROTOCOL_ERROR)
    assert not give(side, hello())
    assert len(side.reports) == 1


# Network keys: not a byte in any wrong case.


def with_mac(cells: dict[int, Value], key: bytes = NETWORK_KEY) -> dict[int, Value]:
    covered = {k: v for k, v in cells.items() if k != keys.NETWORK_MAC}
    return {**covered, keys.NETWORK_MAC: network_mac(key, encode(covered))}


def in_network(**settings: Any) -> Side:
    return responder(network_key=NETWORK_KEY, **settings)


def test_the_right_mac_is_answered() -> None:
    side = in_network()
    assert len(give(side, with_mac(hello(_0=b"noise", _999={1: "unknown"})))) == 2


def test_after_the_right_mac_faults_are_answered() -> None:
    side = in_network()
    answer = give(side, with_mac(hello(role="king")))
    assert_rejected(side, answer, CloseCode.PROTOCOL_ERROR)


WRONG_MACS: dict[str, dict[int, Value]] = {
    "none": hello(),
    "zeros": hello(network_mac=bytes(32)),
    "a short one": hello(network_mac=b"\x00"),
    "a wrong type": hello(network_mac="x"),
    "another network's": with_mac(hello(), bytes([9]) * 32),
    "a changed cell": {**with_mac(hello()), keys.ROLE: "client"},
    "an added cell": {**with_mac(hello()), 999: 1},
    "changed noise": {**with_mac(hello(_0=b"a")), keys.NOISE: b"b"},
    "another version": {**with_mac(hello()), keys.VERSION: 2},
    "plaintext": plaintext_hello(),
    "nothing at all": {},
}


@pytest.mark.parametrize("what", WRONG_MACS)
def test_a_wrong_mac_is_met_with_silence(what: str) -> None:
    side = in_network()
    assert_silent(side, give(side, WRONG_MACS[what]))


@pytest.mark.parametrize(
    "wire",
    [
        raw_frame(REPLY, {}),
        raw_frame(13, {}),
        frame(b""),
        frame(bytes(8)),
        frame(handshake_event(HELLO, b"\xff")),
        frame(serialise_raw(Event(1, 0, 1, HELLO, encode(with_mac(hello()))))),
        b"\xff\xff\xff\xff",
        (16_385).to_bytes(4, "big"),
    ],
)
def test_without_a_mac_everything_is_met_with_silence(wire: bytes) -> None:
    side = in_network()
    assert_silent(side, give_wire(side, wire))


def test_the_second_hello_has_its_own_mac() -> None:
    for right in (True, False):
        side = in_network(algorithms={"kex": (CLASSIC,)})
        first = with_mac(hello())
        assert len(give(side, first)) == 1
        second = {**first, keys.SHARES: {CLASSIC: share(CLASSIC)}}
        answer = give(side, with_mac(second) if right else second)
        if right:
            assert len(answer) == 2
        else:
            assert_silent(side, answer)


def test_without_a_network_key_the_mac_is_ignored() -> None:
    assert len(give(responder(), with_mac(hello()))) == 2
    assert len(give(responder(), hello(network_mac=b"nonsense"))) == 2


def test_no_public_key_work_before_the_mac() -> None:
    side = in_network()
    assert_silent(side, give(side, hello(shares={HYBRID: b"malformed"})))


# Plaintext.


def test_plaintext_is_refused_by_default() -> None:
    side = responder()
    assert_rejected(side, give(side, plaintext_hello()), CloseCode.PLAINTEXT_REFUSED)


@pytest.mark.parametrize("allowed", ["only", "both"])
def test_plaintext_is_taken_where_it_is_allowed(allowed: str) -> None:
    side = responder(plaintext=allowed)
    (reply,) = give(side, plaintext_hello(max_payload=3_000))
    cells = decode(parse_raw(reply).payload)
    assert cells[keys.PLAINTEXT] is True
    assert not {keys.OFFER, keys.SUITE, keys.SHARES} & set(cells)
    assert side.core.state is State.OPEN
    assert side.code == ALIVE


def test_a_listener_for_plaintext_only_refuses_encryption() -> None:
    side = responder(plaintext="only")
    assert_rejected(side, give(side, hello()), CloseCode.PROTOCOL_ERROR)


def test_a_listener_for_both_takes_encryption() -> None:
    assert len(give(responder(plaintext="both"), hello())) == 2
