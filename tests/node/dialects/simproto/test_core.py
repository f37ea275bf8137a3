"""Sim packets on dialogs: what is no packet, and topics that can be none."""

from hypothesis import given
from hypothesis import strategies as st

from node.dialects.simproto.codec import NOTIFY, RESPONSE, RPC, serialise_message
from node.protocol.codes import CloseCode
from tests.node.dialects.simproto.sides import TIGHT, Side, call, request


def test_topics_that_can_be_none_here_are_not_found() -> None:
    side = Side(TIGHT)
    for topic in (b"\xff", b"x" * 17):
        for kind in range(NOTIFY + 1):
            assert side.receive(request(kind, topic)) == serialise_message(RESPONSE, 1, b"\x01")
    assert side.ended is None


def test_every_cut_and_every_changed_byte() -> None:
    message = request(RPC, "echo", b"hi", dialog=0x0102)
    for size in range(len(message)):
        side = Side(TIGHT)
        assert side.receive(message[:size]) == b""
        assert side.ended is None
    allowed = {None, CloseCode.PROTOCOL_ERROR, CloseCode.FRAME_TOO_LARGE}
    for at in range(len(message)):
        for byte in range(256):
            changed = message[:at] + bytes([byte]) + message[at + 1 :]
            side = Side(TIGHT)
            side.receive(changed)
            assert side.code in allowed
            too_long = int.from_bytes(changed[9:17], "little") > TIGHT.longest_frame
            assert (side.code == CloseCode.FRAME_TOO_LARGE) is too_long


@given(
    st.lists(st.tuples(st.booleans(), st.binary(max_size=60)), max_size=12),
    st.integers(1, 40),
)
def test_all_calls_are_answered_in_whatever_pieces(
    calls: list[tuple[bool, bytes]], piece: int
) -> None:
    sides = Side(), Side()
    answers = [(call(sides[ours], data=data), data) for ours, data in calls]
    said = [sides[0].said(), sides[1].said()]
    while any(said):
        heard, said = said, [b"", b""]
        for ours in range(2):
            for at in range(0, len(heard[1 - ours]), piece):
                said[ours] += sides[ours].receive(heard[1 - ours][at : at + piece])
    assert [answer for answer, _ in answers] == [[0, data or None] for _, data in answers]
    assert [side.ended for side in sides] == [None, None]
