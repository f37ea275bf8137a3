"""What another node handed out to somebody who was cancelled meanwhile: it is given back.

One rule: the cancellation waits for that, so that whoever asks next finds it; but not for long.
Then the group has it again once it was idle. Knows no connection.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import anyio

from lbm.errors import LbmDecodeError
from node.bus.errors import BusError
from node.bus.store import Store
from node.remote_bus import requests as wire
from node.remote_bus.answers import decode_answer, read_delivery, read_rows
from node.transport.loop import Waiter

# Seconds that a cancellation waits for the answer, and for what it holds to be given back.
PATIENCE: Final = 2.0


class Late:
    """The answer to one request, should it come to nobody. `waiter` waits for it."""

    __slots__ = ("_asked", "_payload", "_waiter")

    def __init__(self, waiter: Waiter) -> None:
        self._waiter = waiter
        self._asked = False
        self._payload: bytes | None = None

    def expected(self) -> Callable[[bytes], None]:
        """The request is being sent; who takes its answer."""
        self._asked = True
        return self._take

    async def give_back(self, store: Store, asked: wire.Read | wire.Own | wire.Claim) -> None:
        """Wait for the answer, and release what it hands out."""
        if not self._asked:
            return
        with anyio.move_on_after(PATIENCE, shield=True), suppress(BusError, LbmDecodeError):
            if self._payload is None:
                await self._waiter.wait()
            answer = decode_answer(self._payload or b"")
            ids = [one.event.id for one in read_rows(answer.rows, read_delivery)]
            if ids:
                await store.release(asked.name, asked.group, asked.consumer, ids)

    def _take(self, payload: bytes) -> None:
        self._payload = payload
        self._waiter.wake()
