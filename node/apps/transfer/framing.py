"""Messages on a byte stream: each read whole, and not a byte of what follows it.

At most one message's bytes are held.
"""

from collections.abc import Callable
from typing import TypeVar

import anyio
from anyio.abc import ByteReceiveStream

from parley._node.apps.transfer.protocol import SIZE_BYTES, MessageError, message_size

M = TypeVar("M")


async def read_message(stream: ByteReceiveStream, decode: Callable[[bytes], M]) -> M:
    """The next message.

    Raises:
        MessageError: it is not what was to come, or the stream ended. The stream's own.
    """
    return decode(await _exactly(stream, message_size(await _exactly(stream, SIZE_BYTES))))


async def _exactly(stream: ByteReceiveStream, size: int) -> bytes:
    data = b""
    while len(data) < size:
        try:
            data += await stream.receive(size - len(data))
        except anyio.EndOfStream:
            raise MessageError(
                f"the stream ended after {len(data):,} of the {size:,} bytes of a message"
            ) from None
    return data
