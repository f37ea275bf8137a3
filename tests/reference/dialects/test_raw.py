"""The raw clients against each other, and against bytes, over socket pairs."""

import socket
from collections.abc import Iterator

import pytest

from tests.reference.dialects.named_raw import NamedRaw
from tests.reference.dialects.reading import Cut, Wrong
from tests.reference.dialects.relay import BROADCAST, RelayMessage, error
from tests.reference.dialects.relay_raw import RelayRaw
from tests.reference.dialects.simproto_raw import SimProtoRaw

ONE, TWO = b"\x11" * 16, b"\x22" * 16
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two connected sockets; no read waits for more than three seconds."""
    left, right = socket.socketpair()
    with left, right:
        left.settimeout(3)
        right.settimeout(3)
        yield left, right


def test_a_simproto_dialog_either_way(pair: Pair) -> None:
    left, right = (SimProtoRaw(sock) for sock in pair)
    ident = left.send_request("rpc", b"echo", b"hi")
    assert right.read_request() == (ident, "rpc", b"echo", b"hi")
    right.send_response(ident, "rpc", "accepted", b"hi")
    assert left.read_response(ident, "rpc") == ("accepted", b"hi")
    assert right.send_request("notify", b"news") == ident, "each side has ids of its own"
    assert left.read_request() == (ident, "notify", b"news", b"")
    left.send_frame("ping", 7)
    message = right.read_frame()
    assert (message.type, message.id, message.payload) == ("ping", 7, b"")


def test_a_question_and_its_answer_in_one(pair: Pair) -> None:
    left, right = (SimProtoRaw(sock) for sock in pair)
    right.send_response(1, "subscribe", "rejected", b"no")
    assert left.ask("subscribe", b"news") == ("rejected", b"no")


def test_a_simproto_length_is_not_waited_for(pair: Pair) -> None:
    left, right = (SimProtoRaw(sock) for sock in pair)
    right.send_raw(bytes(9) + b"\xff" * 8)
    with pytest.raises(Wrong, match="closes"):
        left.read_frame()


@pytest.mark.parametrize("typed", [False, True])
def test_an_event_and_its_reply(pair: Pair, typed: bool) -> None:
    left, right = (NamedRaw(sock, typed=typed) for sock in pair)
    ident = left.emit("ping", b"hi", namespace="game")
    event = right.read_event()
    assert (event.id, event.name, event.namespace, event.data) == (ident, "ping", "game", b"hi")
    right.emit("pong", ref_id=event.id)
    reply = left.read_event()
    assert (reply.ref_id, reply.kind) == (ident, "response" if typed else None)


def test_typed_replies_end(pair: Pair) -> None:
    left, right = (NamedRaw(sock, typed=True) for sock in pair)
    for name in ("a", "b"):
        right.emit(name, ref_id=9)
    right.end(9, b"last")
    assert [reply.name for reply in left.read_replies(9)] == ["a", "b", "end"]
    right.fail(9, 500, "failed")
    assert [reply.kind for reply in left.read_replies(9)] == ["error"]


def test_relay_messages_and_errors(pair: Pair) -> None:
    client, sock = RelayRaw(pair[0], ONE), pair[1]
    client.say_uuid()
    client.send(TWO, b"hi")
    client.broadcast()
    expected = [ONE, RelayMessage(TWO, ONE, b"hi").raw, RelayMessage(BROADCAST, ONE).raw]
    assert sock.recv(1_000) == b"".join(expected)
    sock.sendall(error(ONE, 5, "not connected").raw)
    assert client.read_error() == (5, "not connected")
    sock.sendall(RelayMessage(ONE, ONE, b"settled").raw)
    client.settle()


def test_the_end_of_the_other_side_is_seen(pair: Pair) -> None:
    client = RelayRaw(pair[0], ONE)
    pair[1].sendall(b"\x00\x00")
    pair[1].shutdown(socket.SHUT_WR)
    with pytest.raises(Cut) as caught:
        client.read_message()
    assert caught.value.got == b"\x00\x00"
    assert client.closed() == b""
