"""Sends what a handler yields, item by item, no faster than it is read.

A handler that never waits does not keep the loop to itself, and one whose items are not read waits.
What an item is on the wire is up to the caller.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final

from parley._node.handlers.running import Outcome
from parley._node.messaging.pending import IncomingCall
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.errors import LocalProtocolError, PayloadTooLargeError
from parley._node.protocol.limits import EVENT_COST
from parley._node.remote.live_connection import LiveConnection
from parley._node.transport.conditions import turn_of
from parley._node.transport.loop import Waiter

# Bytes of cost that a handler may yield before others run.
TURN_SIZE: Final = 64 * 1024


async def send_items(
    live: LiveConnection,
    call: IncomingCall,
    items: AsyncGenerator[Any, Any],
    encode_item: Callable[[Any], Awaitable[bytes]],
    send: Callable[[IncomingCall, bytes], bool],
) -> Outcome:
    """Send each of `items` as parts of the answer to `call`, up to the handler's end."""
    yielded = 0  # since others ran
    async with aclosing(items):
        async for item in items:
            payload = await encode_item(item)
            try:
                await send_part(live, call, payload, send)
            except PayloadTooLargeError:
                return ResultCode.PAYLOAD_TOO_LARGE, None
            except LocalProtocolError:
                break  # nobody reads on: the call, the stream or the connection is over
            yielded += len(payload) + EVENT_COST
            if yielded > TURN_SIZE:
                yielded = 0
                await turn_of(live.backend)
    return ResultCode.ACCEPTED, None


async def run_items(live: LiveConnection, items: AsyncGenerator[Any, Any]) -> Outcome:
    """Run a handler that yields for what it does: what it yields goes nowhere."""
    yielded = 0
    async with aclosing(items):
        async for _ in items:
            yielded += EVENT_COST
            if yielded > TURN_SIZE:
                yielded = 0
                await turn_of(live.backend)
    return ResultCode.ACCEPTED, None


async def send_part(
    live: LiveConnection,
    call: IncomingCall,
    payload: bytes,
    send: Callable[[IncomingCall, bytes], bool],
) -> None:
    """Send one part of an answer once there are room and credit for it.

    Raises:
        LocalProtocolError: nobody reads on, or it is too large.
    """
    await live.room()
    while not send(call, payload):
        await _credit(live, call)
        await live.room()


async def _credit(live: LiveConnection, call: IncomingCall) -> None:
    """Wait until there may be credit."""
    wakes = call.on_credit
    if not isinstance(wakes, _Wakes):
        wakes = call.on_credit = _Wakes()
    waiter = live.backend.waiter()
    wakes.waiters.add(waiter)
    try:
        await waiter.wait()
    finally:
        wakes.waiters.discard(waiter)
        if not wakes.waiters:
            call.on_credit = None


class _Wakes:
    """Those tasks of one handler that wait for credit: a handler may emit from several."""

    __slots__ = ("waiters",)

    def __init__(self) -> None:
        self.waiters: set[Waiter] = set()

    def __call__(self) -> None:
        for waiter in self.waiters:
            waiter.wake()
