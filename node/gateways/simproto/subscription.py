"""`SimProtoSubscription`: the notes of a topic that the other side publishes.

What is not read slows only this subscription, which ends with its `async with`. SimProto has
no word for a subscription that its publisher ends: notes just stop coming.
"""

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

import anyio

from lbm.codec import Encodable
from node.dialects.simproto.feeds import ON_THE_WAY
from node.dialects.simproto.requests import SimProtoRequest
from node.dialects.simproto.subscriptions import NoteQueue
from node.dialects.values import to_bytes
from node.errors import (
    ConfigError,
    ParleyError,
    PeerClosedError,
    StreamResetError,
    received_refusal,
)
from node.gateways.simproto.link import SimProtoLink
from node.messaging.pending import LOST
from node.protocol.codes import CloseCode, ResultCode
from node.protocol.errors import ConnectionClosedError
from node.transport.waiting import Changes

# Bytes of cost that may wait unread and acknowledged: a note's data and 64.
WINDOW = 1 << 20
# It holds all that a publisher of ours sends ahead.
LEAST_WINDOW = ON_THE_WAY
# Seconds to wait, on leaving, for the publisher's response.
LEAVE_TIMEOUT = 5.0


class SimProtoSubscription:
    """The notes of a topic, in their order, each as bytes (None if it is empty): `async with
    peer.subscribe("prices") as notes`, then `async for note in notes`. One task may read
    at a time.

    `peer` publishes the topic; `data` is what came with the acceptance, bytes or None.

    Raises:
        ConfigError: `window` is below 65,536.
    """

    def __init__(
        self,
        link: SimProtoLink,
        topic: str,
        data: Encodable,
        timeout: float | None,
        window: int,
    ) -> None:
        if window < LEAST_WINDOW:
            raise ConfigError(f"window must be at least {LEAST_WINDOW} bytes")
        self.peer = link.guest
        self.topic = topic
        self.data: bytes | None = None
        self._link = link
        self._changes = Changes(link.guest.backend.waiter)
        patience = link.core.limits.answer_timeout / 2
        self.queue = NoteQueue(window, patience, self._acknowledge, self._changes.notify)
        self._asked = data
        self._timeout = timeout
        self._begun = False
        self._error: StreamResetError | PeerClosedError | None = None
        self._reading = anyio.ResourceGuard("reading from")

    def __repr__(self) -> str:
        return f"<SimProtoSubscription to {self.topic!r} of {self.peer}>"

    # Beginning and end.

    async def __aenter__(self) -> Self:
        """Subscribe.

        Raises:
            SubscribeRejected: the publisher said no (code 3). CallRefused: another code:
                1 no such topic, 2 subscribed already. CallTimeout: no response in time.
            PeerClosedError: the connection is over. ConversionError: the data has no form.
        """
        if self._begun:
            raise ParleyError("a subscription is entered once")
        self._begun = True
        link, peer, sim = self._link, self.peer, self._link.sim
        payload = to_bytes(self._asked, link.values)
        timeout = await link.room(self._timeout)
        waiter = peer.backend.waiter()
        now = peer.backend.now()
        try:
            call = sim.outgoing.subscribe(self.topic, payload, now, timeout, waiter.wake)
        except ConnectionClosedError as error:
            raise peer.closed_error() from error
        sim.subscriptions.expect(self.topic, self, call)
        try:
            await waiter.wait()
        except BaseException:
            if not call.done:
                sim.outgoing.give_up(call)
                self.queue.close()
            else:
                self._leave()
            raise
        self._require_accepted(call)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        left = self._leave()
        if exc_type is None and left is not None:
            with anyio.move_on_after(LEAVE_TIMEOUT):
                await self._changes.until(lambda: left.done)

    # Reading.

    def __aiter__(self) -> AsyncIterator[bytes | None]:
        return self

    async def __anext__(self) -> bytes | None:
        """The data of the next note, None if it is empty.

        Raises:
            StreamResetError: code 33, slow-consumer: we did not keep up.
            PeerClosedError: the connection is over. ClosedResourceError: its `async with` is.
            BusyResourceError: two tasks read.
        """
        queue = self.queue
        with self._reading:
            if not queue:
                await self._changes.until(
                    lambda: bool(queue) or queue.closed or self._error is not None
                )
        if queue.closed:
            raise anyio.ClosedResourceError
        if queue:
            return queue.take() or None
        assert self._error is not None
        raise self._error

    # From the connection.

    def cut_off(self) -> None:
        """The reader was too slow, and the subscription is over; what came can be read on."""
        self._error = StreamResetError(CloseCode.SLOW_CONSUMER)
        self._changes.notify()

    def lost(self, code: int, text: str) -> None:
        """The connection is over; what came can be read on."""
        self._error = PeerClosedError(code, text)
        self._changes.notify()

    # Inside.

    def _require_accepted(self, call: SimProtoRequest) -> None:
        if call.code == LOST:
            raise PeerClosedError(call.close_code, call.close_text)
        if call.code != ResultCode.ACCEPTED:
            if call.code == ResultCode.DEADLINE_EXCEEDED:
                self.queue.close()
            raise received_refusal(call.code, call.data, subscribing=True)
        if self._error is None and not self._link.sim.subscriptions.reads(self.topic, self):
            # The topic has a reader here already, as the other side should have known.
            raise received_refusal(ResultCode.ALREADY_SUBSCRIBED, None, subscribing=True)
        self.data = call.data if isinstance(call.data, bytes) else None

    def _leave(self) -> SimProtoRequest | None:
        """Unsubscribe; returns the request that the publisher has yet to answer, if any."""
        peer = self.peer
        self.queue.close()
        now, notify = peer.backend.now(), self._changes.notify
        left = self._link.sim.subscriptions.leave(self.topic, self, now, notify)
        notify()
        return left

    def _acknowledge(self, dialog: int) -> None:
        self._link.sim.subscriptions.acknowledge(dialog, self.peer.backend.now())
