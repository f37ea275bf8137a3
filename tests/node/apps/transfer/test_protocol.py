"""Tests of node/apps/transfer/protocol.py: unique encodings, and limits when parsing."""

from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._lbm.codec import encode
from parley._node.apps.transfer.protocol import (
    LARGEST_FILE,
    LARGEST_MESSAGE,
    Begin,
    FileOffer,
    MessageError,
    Receipt,
    Resume,
    message_size,
    read_message,
)
from parley._node.transport.memory import memory_pair

SHA256 = st.binary(min_size=32, max_size=32)
SIZES = st.integers(0, LARGEST_FILE)
MESSAGES = st.one_of(
    st.builds(FileOffer, st.text(max_size=100), SIZES, SHA256),
    st.builds(Resume, SIZES, SHA256),
    st.builds(Begin, SIZES),
    st.builds(Receipt, SHA256, st.booleans()),
)
KINDS: tuple[Any, ...] = (FileOffer, Resume, Begin, Receipt)


@given(MESSAGES)
def test_encoded_messages_are_parsed(message: Any) -> None:
    data = message.encode()
    assert message_size(data[:2]) == len(data) - 2 <= LARGEST_MESSAGE
    assert type(message).decode(data[2:]) == message


@given(st.sampled_from(KINDS), st.binary(max_size=80) | MESSAGES.map(lambda m: m.encode()[2:]))
def test_any_bytes_are_a_message_or_a_message_error(kind: Any, data: bytes) -> None:
    try:
        message = kind.decode(data)
    except MessageError:
        return
    assert kind.decode(message.encode()[2:]) == message


@pytest.mark.parametrize(
    ("kind", "cells"),
    [
        (FileOffer, {64: "a", 65: 1}),
        (FileOffer, {64: b"a", 65: 1, 66: bytes(32)}),
        (FileOffer, {64: "a", 65: 1, 66: bytes(31)}),
        (FileOffer, {64: "a", 65: LARGEST_FILE + 1, 66: bytes(32)}),
        (FileOffer, {64: "a", 65: True, 66: bytes(32)}),
        (FileOffer, {64: "a" * 600, 65: 1, 66: bytes(32)}),
        (Resume, {67: 1}),
        (Resume, {67: -1, 66: bytes(32)}),
        (Begin, {}),
        (Begin, {67: "0"}),
        (Receipt, {66: bytes(32), 68: 1}),
    ],
)
def test_malformed_messages(kind: Any, cells: dict[int, Any]) -> None:
    with pytest.raises(MessageError):
        kind.decode(encode(cells))


def test_unknown_cells_are_ignored() -> None:
    assert Begin.decode(encode({67: 5, 200: "later"})) == Begin(5)


@pytest.mark.parametrize("prefix", [b"", b"\1", b"\0\0", b"\xff\xff", b"\4\1", b"\0\0\1"])
def test_sizes_of_no_message(prefix: bytes) -> None:
    with pytest.raises(MessageError):
        message_size(prefix)


pytestmark = pytest.mark.anyio


async def test_message_in_small_pieces_leaves_later_data_unread(anyio_backend: str) -> None:
    ours, theirs = memory_pair()

    async def send() -> None:
        for byte in Begin(7).encode():
            await ours.send(bytes([byte]))
        await ours.send(Begin(8).encode() + b"rest")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        assert await read_message(theirs, Begin.decode) == Begin(7)
        assert await read_message(theirs, Begin.decode) == Begin(8)
        assert await theirs.receive() == b"rest"
    await ours.aclose()
    await theirs.aclose()


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\5abc", b"\xff\xff"])
async def test_a_message_that_is_none(anyio_backend: str, data: bytes) -> None:
    ours, theirs = memory_pair()
    if data:
        await ours.send(data)
    await ours.send_eof()
    with pytest.raises(MessageError):
        await read_message(theirs, Begin.decode)
    await ours.aclose()
    await theirs.aclose()
