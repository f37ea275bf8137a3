"""Tests of node/apps/transfer/framing.py: messages in crumbs, and what follows them."""

import anyio
import pytest

from parley._node.apps.transfer.framing import read_message
from parley._node.apps.transfer.protocol import Begin, MessageError
from parley._node.transport.memory import memory_pair

pytestmark = pytest.mark.anyio


async def test_a_message_in_crumbs_leaves_what_follows(anyio_backend: str) -> None:
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
