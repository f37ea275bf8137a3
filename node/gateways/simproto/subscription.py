"""Subscriptions to topics of a SimProto peer.

Unread notes slow down only their own subscription. SimProto neither numbers nor stores notes: notes
published while there is no connection are lost.
"""

import logging
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Protocol, Self

import anyio

from parley._lbm.codec import Encodable
from parley._node.dialects.simproto.feeds import ON_THE_WAY
from parley._node.dialects.simproto.requests import SimProtoRequest
from parley._node.dialects.simproto.sim import NoteQueue
from parley._node.dialects.values import to_bytes
from parley._node.errors import (
    CallRefused,
    ConfigError,
    ParleyError,
    PeerClosedError,
    StreamResetError,
    received_refusal,
)
from parley._node.gateways.guest import Guest
from parley._node.gateways.simproto.connection import SimProtoConnection
from parley._node.logs import one_line
from parley._node.peer.link_subscription import PASSING, PAUSES
from parley._node.peer.reconnecting import Connector, random_fraction
from parley._node.protocol.codes import LOST, CloseCode, ResultCode
from parley._node.protocol.errors import ConnectionClosedError
from parley._node.transport.conditions import Condition, pause

logger = logging.getLogger("parley.gateway")


# Bytes of cost (a note's data and 64) that may be unread and acknowledged.
WINDOW = 1 << 20
# Large enough for all the notes that a Parley publisher sends before their responses.
LEAST_WINDOW = ON_THE_WAY
# Seconds to wait for the publisher's response when a subscription is left.
LEAVE_TIMEOUT = 5.0


class SimProtoNotes:
    """One subscription over one connection, which subscribes once.

    `window` is as in `SimProtoPeer.subscribe`.
    """

    def __init__(self, link: SimProtoConnection, topic: str, window: int) -> None:
        self.topic = topic
        self._link = link
        self._changes = Condition(link.guest.backend.waiter)
        patience = link.core.limits.answer_timeout / 2
        self.queue = NoteQueue(window, patience, self._acknowledge, self._changes.notify)
        self._error: StreamResetError | PeerClosedError | None = None

    async def begin(self, data: Encodable, timeout: float | None) -> bytes | None:
        """Subscribe and return the data of the acceptance; raises like `SimProtoSubscription`."""
        link, sim = self._link, self._link.sim
        payload = to_bytes(data, link.values)
        timeout = await link.wait_writable(timeout)
        backend = link.guest.backend
        waiter = backend.waiter()
        try:
            call = sim.outgoing.subscribe(self.topic, payload, backend.now(), timeout, waiter.wake)
        except ConnectionClosedError as error:
            raise link.guest.closed_error() from error
        sim.subscriptions.expect(self.topic, self, call)
        try:
            await waiter
        except BaseException:
            if not call.done:
                sim.outgoing.cancel(call)
                self.queue.close()
            else:
                self._leave()
            raise
        return self._accepted(call)

    async def end(self, *, hasty: bool) -> None:
        """Unsubscribe, and wait for the publisher's response unless `hasty`."""
        left = self._leave()
        if not hasty and left is not None:
            with anyio.move_on_after(LEAVE_TIMEOUT):
                await self._changes.until(lambda: left.done)

    async def take(self) -> bytes | None:
        """Return the next note; raises like `async for`."""
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

    # Callbacks of the connection.

    def cut_off(self) -> None:
        """End the subscription because the reader was too slow; received notes can still be
        read.
        """
        self._error = StreamResetError(CloseCode.SLOW_CONSUMER)
        self._changes.notify()

    def lost(self, code: int, text: str) -> None:
        """End the subscription with its connection; received notes can still be read."""
        self._error = PeerClosedError(code, text)
        self._changes.notify()

    # Internals.

    def _accepted(self, call: SimProtoRequest) -> bytes | None:
        if call.code == LOST:
            raise PeerClosedError(call.close_code, call.close_text)
        if call.code != ResultCode.ACCEPTED:
            if call.code == ResultCode.DEADLINE_EXCEEDED:
                self.queue.close()
            raise received_refusal(call.code, call.data, subscribing=True)
        if self._error is None and not self._link.sim.subscriptions.reads(self.topic, self):
            # The topic already has a reader here, which the other side should have known.
            raise received_refusal(ResultCode.ALREADY_SUBSCRIBED, None, subscribing=True)
        return call.data if isinstance(call.data, bytes) else None

    def _leave(self) -> SimProtoRequest | None:
        """Unsubscribe, and return the request if it is unanswered."""
        self.queue.close()
        now, notify = self._link.guest.backend.now(), self._changes.notify
        left = self._link.sim.subscriptions.leave(self.topic, self, now, notify)
        notify()
        return left

    def _acknowledge(self, dialog: int) -> None:
        self._link.sim.subscriptions.acknowledge(dialog, self._link.guest.backend.now())


class SimProtoSource(Connector["SimProtoPublisher"], Protocol):
    """A peer or client on which a topic is subscribed."""

    @property
    def is_over(self) -> bool:
        """Whether no further connection will follow."""


class SimProtoPublisher(Protocol):
    @property
    def link(self) -> SimProtoConnection: ...


class SimProtoSubscription:
    """The notes of a topic, in order, as bytes (None if empty).

    Enter it with `async with`, then read notes with `async for`; only one task may read at a time.
    `data` is the data of the acceptance, bytes or None.

    If a client has `pauses` and its connection is lost, the received notes can still be read. The
    next read then subscribes again. `cuts` counts the connections lost before the last read note:
    if it has grown, notes may be missing.

    Raises:
        ConfigError: `window` is below 65,536.

    Example:

        from parley.dialects import SimProtoClient, SimProtoGateway

        topic = node.topic("prices")
        async with SimProtoGateway(node) as gateway:
            address = await gateway.listen("tcp://127.0.0.1:0")
            async with SimProtoClient(address) as client:
                async with client.subscribe("prices") as notes:
                    await topic.publish(b"42")
                    assert await anext(notes) == b"42"
    """

    def __init__(
        self,
        source: SimProtoSource,
        topic: str,
        data: Encodable,
        timeout: float | None,
        window: int,
    ) -> None:
        check_window(window)
        self.topic = topic
        self.data: bytes | None = None
        self.cuts = 0
        self._source = source
        self._asked = data
        self._timeout = timeout
        self._window = window
        self._begun = self._left = False
        self._lost = 0  # number of lost connections
        self._link: SimProtoConnection | None = None  # the last connection
        self._notes: SimProtoNotes | None = (
            None  # on the last connection; None once it was read to its end
        )
        self._again: anyio.CancelScope | None = None  # while resubscribing
        self._reading = anyio.ResourceGuard("reading from")

    def __repr__(self) -> str:
        return f"<SimProtoSubscription to {self.topic!r} of {self._source!r}>"

    @property
    def peer(self) -> Guest:
        """The publisher, over the last connection; raises ParleyError before the subscription is
        entered.
        """
        if self._link is None:
            raise ParleyError(
                f"not subscribed to {self.topic!r} yet; enter the subscription with `async with`"
            )
        return self._link.guest

    async def __aenter__(self) -> Self:
        """Subscribe; if the client has `pauses`, wait for a connection first.

        Raises:
            SubscribeRefused: the publisher rejected the subscription (code 3).
            CallRefused: the response has another code: 1 for an unknown topic, 2 if already
                subscribed.
            CallTimeout: no response, or no connection, in time; for a connection, its cause is the
                reason.
            PeerClosedError: the connection is closed.
            ConversionError: the data cannot be encoded in SimProto.
            LimitReachedError: 4,096 requests already wait for the connection.
        """
        if self._begun:
            raise ParleyError(
                f"cannot enter the subscription to {self.topic!r} again; call subscribe again"
            )
        self._begun = True
        try:
            await self._subscribe(*await self._source.connected(self._timeout))
        except BaseException:
            self._left = True
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self._left = True
        if self._again is not None:
            self._again.cancel()
        if self._notes is not None:
            await self._notes.end(hasty=exc_type is not None)

    # Reading.

    def __aiter__(self) -> AsyncIterator[bytes | None]:
        return self

    async def __anext__(self) -> bytes | None:
        """Return the data of the next note, or None if it is empty.

        Raises:
            StreamResetError: the reader was too slow (code 33, slow-consumer).
            PeerClosedError: the connection is closed, and no further one will follow.
            CallRefused: after a reconnect, the publisher rejected the subscription permanently.
            ClosedResourceError: the `async with` block was left.
            BusyResourceError: two tasks read at the same time.
        """
        if not self._begun:
            raise ParleyError(
                f"cannot read topic {self.topic!r}: the subscription isn't entered; "
                "use `async with`"
            )
        with self._reading:
            while not self._left:
                if self._notes is None:
                    with anyio.CancelScope() as self._again:
                        await self._subscribe_again()
                    continue
                try:
                    note = await self._notes.take()
                except PeerClosedError:
                    if self._source.is_over:
                        raise
                    self._notes = None
                    self._lost += 1
                else:
                    self.cuts = self._lost
                    return note
        raise anyio.ClosedResourceError

    # Internals.

    async def _subscribe(self, publisher: SimProtoPublisher, timeout: float | None) -> None:
        notes = SimProtoNotes(publisher.link, self.topic, self._window)
        self.data = await notes.begin(self._asked, timeout)
        self._link, self._notes = publisher.link, notes
        if self._left:  # the block was left in the meantime
            await notes.end(hasty=True)

    async def _subscribe_again(self) -> None:
        failures = 0
        while True:
            publisher, _ = await self._source.connected(None)
            try:
                await self._subscribe(publisher, self._timeout)
            except PeerClosedError:
                continue
            except CallRefused as error:
                if error.code not in PASSING:
                    raise
                failures += 1
                seconds = PAUSES.delay(failures, random_fraction())
                text = "topic %r: %s; subscribing again in %.1f s"
                logger.info(
                    text,
                    self.topic,
                    one_line(str(error)),
                    seconds,
                    extra={"event": "subscription.again", "again_in": seconds},
                )
                await pause(self._source.backend, seconds)
            else:
                return


def check_window(window: int) -> None:
    if window < LEAST_WINDOW:
        raise ConfigError(f"invalid window {window}: expected at least {LEAST_WINDOW} bytes")
