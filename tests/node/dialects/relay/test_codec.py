from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._node.dialects.relay.codec import (
    BROADCAST,
    NOBODY,
    SERVER,
    TEXTS,
    RelayCode,
    RelayFault,
    check_length,
    decode_error,
    decode_messages,
    encode_error,
    encode_message,
    is_client_uuid,
    not_connected,
)
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import RemoteProtocolError

A, B = bytes([1]) * 16, bytes([2]) * 16
LONGEST = 4_096

uuids = st.binary(min_size=16, max_size=16)
payloads = st.binary(max_size=64)


@given(to=uuids, code=st.integers(0, 2**32 - 1), text=st.text(max_size=20))
def test_an_error_is_what_it_was(to: bytes, code: int, text: str) -> None:
    [(recipient, sender, payload)] = decode_messages(encode_error(to, code, text))
    assert (recipient, sender) == (to, SERVER)
    assert decode_error(payload) == RelayFault(code, text)


@given(st.lists(st.tuples(uuids, uuids, payloads), max_size=5))
def test_messages_in_a_row_are_what_they_were(sent: list[tuple[bytes, bytes, bytes]]) -> None:
    data = b"".join(encode_message(*message) for message in sent)
    assert list(decode_messages(data)) == sent


@pytest.mark.parametrize("length", [0, 31, LONGEST + 1, 2**32 - 1])
def test_a_length_out_of_its_range_is_refused_by_itself(length: int) -> None:
    too_long = length > LONGEST
    with pytest.raises(RemoteProtocolError) as caught:
        check_length(length, LONGEST)
    check_length(32, LONGEST)
    check_length(LONGEST, LONGEST)
    code = CloseCode.FRAME_TOO_LARGE if too_long else CloseCode.PROTOCOL_ERROR
    assert caught.value.code == code


def test_a_uuid_has_sixteen_bytes() -> None:
    for to, sender in ((A[:15], B), (A, B + b"x")):
        with pytest.raises(ValueError, match=r"of 1\d and 1\d bytes: expected 16 each"):
            encode_message(to, sender, b"")


@pytest.mark.parametrize(
    ("uuid", "valid"),
    [
        (A, True),
        (bytes(15) + b"\1", True),  # neither version nor variant
        (b"\xff" * 15 + b"\xfe", True),
        (BROADCAST, False),
        (SERVER, False),
        (A[:15], False),
        (b"", False),
    ],
)
def test_permitted_client_uuids(uuid: bytes, valid: bool) -> None:
    assert is_client_uuid(uuid) is valid


def test_the_error_for_a_missing_target_names_it() -> None:
    target = UUID("0b7e31ac-5f5c-4c6f-9d53-0a56f0e2a4cf")
    [(to, sender, payload)] = decode_messages(not_connected(A, target.bytes))
    assert (to, sender) == (A, SERVER)
    assert decode_error(payload) == RelayFault(5, f"target UUID not connected: {target}")


def test_each_code_has_its_number_and_a_text() -> None:
    assert list(RelayCode) == [1, 2, 3, 4, 5, 6]
    assert set(TEXTS) == set(RelayCode)
    assert bytes(16) == NOBODY
