"""`RelayClient`: a client of an event relay, ours or another.

What is not read slows only this client, and only for a while: then the relay drops it. A relay
that refuses the UUID says so; one that accepts it says nothing.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, Self
from uuid import UUID

import anyio

from crypto.randomness import random_bytes
from node.dialects.limits import RelayLimits
from node.dialects.relay.client import RelayClientConnection
from node.dialects.relay.codec import BROADCAST, RelayFault, RelayMessage
from node.errors import PeerClosedError, RelayRefusedError
from node.gateways.client import CLOSE_TIMEOUT, CONNECT_TIMEOUT, DialectClient
from node.gateways.guest import Guest
from node.protocol.codes import CloseCode
from node.protocol.errors import ConnectionClosedError
from node.protocol.reports import ConnectionEnded
from node.transport.backend import Backend
from node.transport.waiting import Changes

logger = logging.getLogger("parley.gateway")


class RelayClient(DialectClient["_Link"]):
    """A client, known to others by its `uuid` (by default a fresh one), for as long as its
    `async with`. Reading it gives the messages in their order: `async for message in
    client`. One task may read at a time.

    `on_fault` is called with each error that the relay reports, such as a target that is not
    connected (code 5); `faults` counts them. `limits.client_memory` bounds what waits unread.
    """

    def __init__(
        self,
        address: str,
        uuid: UUID | None = None,
        *,
        limits: RelayLimits | None = None,
        on_fault: Callable[[RelayFault], None] | None = None,
        timeout: float = CONNECT_TIMEOUT,
    ) -> None:
        """`timeout` is in seconds, for connecting.

        Raises:
            AddressError: not an address.
        """
        super().__init__(address, timeout)
        self.uuid = uuid or UUID(bytes=random_bytes(16), version=4)
        self.faults = 0
        self._limits = limits or RelayLimits()
        self._on_fault = on_fault
        self._reading = anyio.ResourceGuard("reading from")

    def __repr__(self) -> str:
        return f"<RelayClient {self.uuid} at {self._place}>"

    # Sending.

    async def send(self, to: UUID, payload: bytes) -> None:
        """Send to one client; waits while too much waits to be written.

        Raises:
            PayloadTooLargeError: it is longer than `limits.longest_frame` minus 32.
            ValueError: `to` is the nil UUID, which stands for all.
            RelayRefusedError, PeerClosedError: the connection is over.
        """
        if not to.int:
            raise ValueError("the nil UUID stands for all clients: use broadcast")
        await self._send(to.bytes, payload)

    async def broadcast(self, payload: bytes) -> None:
        """Send to all other clients; as `send`."""
        await self._send(BROADCAST, payload)

    async def _send(self, to: bytes, payload: bytes) -> None:
        link = self._connected()
        if not link.driver.has_room:
            await link.driver.room()
        try:
            link.client.send(to, payload)
        except ConnectionClosedError:
            raise link.end_error() from None

    # Reading.

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RelayMessage:
        """The next message; the iteration ends after our own `close`.

        Raises:
            RelayRefusedError: the relay reported an error and closed the connection.
            PeerClosedError: the connection is over for another reason.
        """
        link = self._connected()
        with self._reading:
            if not link.inbox:
                await link.changes.until(lambda: bool(link.inbox) or not link.is_open)
        if link.inbox:
            return link.next_message()
        if link.left:
            raise StopAsyncIteration
        raise link.end_error()

    # Life.

    async def close(self) -> None:
        """Send what is queued, then leave the relay. What was received can be read on."""
        link = self._connected()
        with anyio.move_on_after(CLOSE_TIMEOUT):
            await link.close()

    # Inside.

    def _new_guest(self, backend: Backend, place: str) -> "_Link":
        return _Link(self.uuid, self._limits, backend, place, self._fault)

    def _fault(self, fault: RelayFault) -> None:
        self.faults += 1
        if self._on_fault is None:
            return
        try:
            self._on_fault(fault)
        except Exception:
            logger.exception("on_fault of %r failed", self)


class _Link(Guest):
    """The connection: reports in, an inbox out."""

    dialect: ClassVar[str] = "the event relay"

    def __init__(
        self,
        uuid: UUID,
        limits: RelayLimits,
        backend: Backend,
        name: str,
        on_fault: Callable[[RelayFault], None],
    ) -> None:
        self.client = RelayClientConnection(uuid.bytes, limits, backend.now())
        super().__init__(self.client, backend, name)
        self.inbox: deque[RelayMessage] = deque()
        self.changes = Changes(backend.waiter)
        self.left = False
        self._on_fault = on_fault

    def next_message(self) -> RelayMessage:
        """Take the first message of the inbox."""
        message = self.inbox.popleft()
        self.client.consumed(message)
        return message

    def end_error(self) -> RelayRefusedError | PeerClosedError:
        """Why the connection is over: in the relay's words, if it gave any."""
        fault = None if self.left else self.client.fault
        return self.closed_error() if fault is None else RelayRefusedError(*fault)

    async def close(self, code: int = CloseCode.NORMAL, text: str = "") -> None:
        """Send what is queued, then end the connection; what was received can be read on."""
        self.left = True
        await super().close(code, text)

    def _take(self, report: Any, now: float) -> None:
        if isinstance(report, RelayMessage):
            self.inbox.append(report)
            self.changes.notify()
        else:
            self._on_fault(report)

    def _lost(self, ended: ConnectionEnded) -> None:
        self.changes.notify()
