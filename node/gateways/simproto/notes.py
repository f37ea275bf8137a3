"""`SimProtoNotes`: the notes of one topic over one connection.

SimProto has no word for a subscription that its publisher ends: notes just stop coming.
"""

import anyio

from parley._lbm.codec import Encodable
from parley._node.dialects.simproto.feeds import ON_THE_WAY
from parley._node.dialects.simproto.requests import SimProtoRequest
from parley._node.dialects.simproto.subscriptions import NoteQueue
from parley._node.dialects.values import to_bytes
from parley._node.errors import ConfigError, PeerClosedError, StreamResetError, received_refusal
from parley._node.gateways.simproto.link import SimProtoLink
from parley._node.protocol.codes import LOST, CloseCode, ResultCode
from parley._node.protocol.errors import ConnectionClosedError
from parley._node.transport.waiting import Changes

# Bytes of cost that may wait unread and acknowledged: a note's data and 64.
WINDOW = 1 << 20
# It holds all that a publisher of ours sends ahead.
LEAST_WINDOW = ON_THE_WAY
# Seconds to wait, on leaving, for the publisher's response.
LEAVE_TIMEOUT = 5.0


class SimProtoNotes:
    """From one subscribing, which is done once, to its end; `window` as for
    `SimProtoPeer.subscribe`."""

    def __init__(self, link: SimProtoLink, topic: str, window: int) -> None:
        self.topic = topic
        self._link = link
        self._changes = Changes(link.guest.backend.waiter)
        patience = link.core.limits.answer_timeout / 2
        self.queue = NoteQueue(window, patience, self._acknowledge, self._changes.notify)
        self._error: StreamResetError | PeerClosedError | None = None

    async def begin(self, data: Encodable, timeout: float | None) -> bytes | None:
        """Subscribe; returns what came with the acceptance. Raises as `SimProtoSubscription`."""
        link, sim = self._link, self._link.sim
        payload = to_bytes(data, link.values)
        timeout = await link.room(timeout)
        backend = link.guest.backend
        waiter = backend.waiter()
        try:
            call = sim.outgoing.subscribe(self.topic, payload, backend.now(), timeout, waiter.wake)
        except ConnectionClosedError as error:
            raise link.guest.closed_error() from error
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
        return self._accepted(call)

    async def end(self, *, hasty: bool) -> None:
        """Unsubscribe, and wait for the publisher's answer unless `hasty`."""
        left = self._leave()
        if not hasty and left is not None:
            with anyio.move_on_after(LEAVE_TIMEOUT):
                await self._changes.until(lambda: left.done)

    async def take(self) -> bytes | None:
        """The next note; raises as `async for`."""
        queue = self.queue
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

    def _accepted(self, call: SimProtoRequest) -> bytes | None:
        if call.code == LOST:
            raise PeerClosedError(call.close_code, call.close_text)
        if call.code != ResultCode.ACCEPTED:
            if call.code == ResultCode.DEADLINE_EXCEEDED:
                self.queue.close()
            raise received_refusal(call.code, call.data, subscribing=True)
        if self._error is None and not self._link.sim.subscriptions.reads(self.topic, self):
            # The topic has a reader here already, as the other side should have known.
            raise received_refusal(ResultCode.ALREADY_SUBSCRIBED, None, subscribing=True)
        return call.data if isinstance(call.data, bytes) else None

    def _leave(self) -> SimProtoRequest | None:
        """Unsubscribe; returns the request that the publisher has yet to answer, if any."""
        self.queue.close()
        now, notify = self._link.guest.backend.now(), self._changes.notify
        left = self._link.sim.subscriptions.leave(self.topic, self, now, notify)
        notify()
        return left

    def _acknowledge(self, dialog: int) -> None:
        self._link.sim.subscriptions.acknowledge(dialog, self._link.guest.backend.now())


def check_window(window: int) -> None:
    """Raise ConfigError if so many bytes are too few."""
    if window < LEAST_WINDOW:
        raise ConfigError(f"window must be at least {LEAST_WINDOW} bytes")
