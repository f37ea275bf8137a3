"""Tests of failed handshakes: which event is sent, which details are not, and the deadline."""

from typing import Any

import pytest

from parley._lbm import keys
from parley._lbm.codec import decode
from parley._node.protocol.codes import REJECT, SENTENCES, CloseCode
from parley._node.protocol.errors import ConnectionClosedError
from parley._node.protocol.event import parse_raw
from parley._node.protocol.frames import frame
from parley._node.protocol.limits import HANDSHAKE_EVENT_SIZE
from parley._node.protocol.reports import ConnectionEnded
from parley._node.protocol.states import State
from tests.node.protocol.pair import ALICE, ALIVE, BOB, START, Pair, Side, events_of, make_config

# The handshake's states on either side, and after how many messages they are reached.
STATES = {
    "expect-hello": (False, 0),
    "expect-reply": (True, 0),
    "expect-proof of the initiator": (True, 1),
    "expect-proof of the responder": (False, 1),
    "deciding of the initiator": (True, 2),
    "deciding of the responder": (False, 2),
}
each_state = pytest.mark.parametrize("name", STATES)


def in_state(name: str, **settings: Any) -> tuple[Pair, Side]:
    """Return a pair with one side in a state of the handshake; its sent bytes are discarded."""
    initiator, flights = STATES[name]
    pair = Pair(make_config(ALICE, **settings), make_config(BOB, **settings))
    side = pair.a if initiator else pair.b
    side.answer = None
    if not initiator and flights:
        pair.carry(pair.a)
        pair.b.take(pair.now) if flights == 1 else pair.pump()
    elif initiator and flights:
        pair.carry(pair.a)
        events = events_of(pair.b.take(pair.now))
        pair.deliver(pair.a, b"".join(map(frame, events[:flights])))
    side.take(pair.now)
    expected = name.split(" ")[0].replace("-", "_").upper()
    assert side.core.state.name == expected
    return pair, side


@each_state
def test_the_deadline_ends_every_state_in_silence(name: str) -> None:
    pair, side = in_state(name)
    assert side.core.next_deadline() == START + 10.0
    side.core.handle_deadline(START + 9.9)
    side.collect(pair.now)
    assert side.code == ALIVE
    side.core.handle_deadline(START + 10.0)
    side.collect(pair.now)
    assert side.code == CloseCode.TIMEOUT
    assert side.core.ended
    assert not side.take(pair.now)
    assert not side.opened
    assert side.core.next_deadline() == float("inf")


def test_the_deadline_is_one_for_the_whole_handshake() -> None:
    pair = Pair(
        make_config(ALICE, algorithms={"kex": ("x25519-mlkem768", "x25519")}, handshake_timeout=4),
        make_config(BOB, handshake_timeout=6),
    )
    for side in (pair.a, pair.b, pair.a):
        pair.now += 1.0
        pair.carry(side)
        assert pair.a.core.next_deadline() == START + 4.0
        assert pair.b.core.next_deadline() == START + 6.0


@each_state
def test_the_end_of_the_transport_is_connection_lost(name: str) -> None:
    pair, side = in_state(name)
    side.core.receive_eof(pair.now)
    side.collect(pair.now)
    assert side.code == CloseCode.CONNECTION_LOST
    assert side.core.ended
    assert not side.take(pair.now)


@each_state
def test_close_asked_in_a_handshake_is_at_once_and_silent(name: str) -> None:
    pair, side = in_state(name)
    side.core.close(pair.now)
    side.collect(pair.now)
    assert side.code == CloseCode.NORMAL
    assert side.core.ended
    assert not side.take(pair.now)


@each_state
def test_abort_says_what_the_state_allows(name: str) -> None:
    pair, side = in_state(name)
    side.core.abort(pair.now, CloseCode.OVERLOADED, "the oldest gives way")
    side.collect(pair.now)
    assert side.code == CloseCode.OVERLOADED
    assert side.one(ConnectionEnded).reason == "the oldest gives way"
    sent = events_of(side.take(pair.now))
    if name == "expect-hello":
        event = parse_raw(sent[0])
        assert event.head == (0, 0, 1, REJECT)
        assert decode(event.payload) == {keys.CODE: 12, keys.TEXT: SENTENCES[12]}
    else:
        # Only a responder that has decrypted a Proof has keys to send with.
        assert len(sent) == (1 if name == "deciding of the responder" else 0)
    assert side.core.ended == (not sent)


@each_state
def test_a_frame_too_long_is_noticed_from_its_length(name: str) -> None:
    pair, side = in_state(name)
    if side.core.state is State.DECIDING:
        return_code, sent_events = ALIVE, 0  # received bytes are ignored
    else:
        return_code, sent_events = int(CloseCode.FRAME_TOO_LARGE), int(name == "expect-hello")
    pair.deliver(side, (HANDSHAKE_EVENT_SIZE + 1).to_bytes(4, "big"))
    assert side.code == return_code
    sent = events_of(side.take(pair.now))
    assert len(sent) == sent_events
    if sent:
        assert decode(parse_raw(sent[0]).payload)[keys.CODE] == CloseCode.FRAME_TOO_LARGE


@each_state
def test_codes_that_are_never_sent_are_not_sent(name: str) -> None:
    pair, side = in_state(name)
    side.core.abort(pair.now, CloseCode.CONNECTION_LOST, "not for the wire")
    side.collect(pair.now)
    assert side.code == CloseCode.CONNECTION_LOST
    assert not side.take(pair.now)


@each_state
def test_with_a_network_key_nothing_is_said_before_the_right_mac(name: str) -> None:
    pair, side = in_state(name, network_key=bytes([7]) * 32)
    side.core.abort(pair.now, CloseCode.OVERLOADED, "the oldest gives way")
    spoke = bool(side.take(pair.now))
    assert spoke == (name == "deciding of the responder")


@each_state
def test_the_application_cannot_send_in_a_handshake(name: str) -> None:
    pair, side = in_state(name)
    for attempt in (
        lambda: side.core.send(1, 0, 64, 1, b"early", lbm=False),
        lambda: side.core.open_stream("app/any"),
        lambda: side.core.ping(pair.now),
        lambda: side.core.update_keys(pair.now),
        lambda: side.core.rekey(pair.now),
    ):
        with pytest.raises(ConnectionClosedError):
            attempt()
    assert side.code == ALIVE
