"""A client of an event relay.

Unread messages slow only this client; after a while the relay drops it.
"""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Self
from uuid import UUID

import anyio

from parley._crypto.randomness import random_bytes
from parley._node.backoff import Backoff
from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.relay.client import RelayClientConnection
from parley._node.dialects.relay.codec import BROADCAST, RelayFault, RelayMessage
from parley._node.errors import APPLICATION_ERRORS, ParleyError, PeerClosedError, RelayRefusedError
from parley._node.gateways.client import CLOSE_TIMEOUT, CONNECT_TIMEOUT, DialectClient
from parley._node.gateways.guest import Guest
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import ConnectionClosedError
from parley._node.protocol.memory_budget import MemoryBudget
from parley._node.protocol.reports import ConnectionEnded
from parley._node.transport.backend import Backend

logger = logging.getLogger("parley.gateway")


class RelayClient(DialectClient["_Link"]):
    """A relay client with a `uuid` (by default a new one), connected during its `async with` block.

    Iterate over it to read messages; only one task may read at a time. `on_fault` is called with
    each error that the relay reports, such as a target that is not connected (code 5); `faults`
    counts them. `limits.client_memory` limits unread messages.

    With `pauses` it reconnects. `cuts` counts the connections lost before the last read message: if
    it has grown, messages may be missing. If the relay reports that the UUID is in use, the client
    tries again, because the relay may not have noticed the end of the last connection.

    Example:

        from parley.dialects import Relay, RelayClient

        async with Relay() as relay:
            address = await relay.listen("tcp://127.0.0.1:0")
            async with RelayClient(address) as alice, RelayClient(address) as bob:
                await relay.until(lambda: bob.uuid in relay)
                await alice.send(bob.uuid, b"hello")
                message = await anext(bob)
                assert (message.sender, message.payload) == (alice.uuid, b"hello")
    """

    def __init__(
        self,
        address: str,
        uuid: UUID | None = None,
        *,
        limits: DialectLimits | None = None,
        on_fault: Callable[[RelayFault], None] | None = None,
        timeout: float = CONNECT_TIMEOUT,
        pauses: Backoff | None = None,
    ) -> None:
        """Create a client; `timeout` is in seconds, for connecting. With `pauses` it reconnects.

        Raises:
            AddressError: `address` is not a valid address.
        """
        super().__init__(address, timeout, pauses)
        self.uuid = uuid or UUID(bytes=random_bytes(16), version=4)
        self.faults = self.cuts = 0
        self._limits = limits or DialectLimits()
        self._on_fault = on_fault
        self._inbox: deque[tuple[int, RelayMessage]] = (
            deque()
        )  # each with the number of connections lost before it
        self._unread = MemoryBudget(self._limits.client_memory)
        self._reading = anyio.ResourceGuard("reading from")

    def __repr__(self) -> str:
        return f"<RelayClient {self.uuid} at {self._place}>"

    # Sending.

    async def send(self, to: UUID, payload: bytes) -> None:
        """Send a message to one client, waiting until it can be written.

        With `pauses` it also waits for a connection. A message sent just before a connection is
        lost may be lost.

        Raises:
            PayloadTooLargeError: the payload is longer than `limits.longest_frame` minus 32.
            ValueError: `to` is the nil UUID, which addresses all clients.
            RelayRefusedError: the relay reported an error and closed the connection.
            PeerClosedError: the connection (with `pauses`, the client) is closed.
            LimitReachedError: 4,096 requests already wait for the connection.
        """
        if not to.int:
            raise ValueError(f"cannot send to {to}: the nil UUID means all clients; use broadcast")
        await self._send(to.bytes, payload)

    async def broadcast(self, payload: bytes) -> None:
        """Send a message to all other clients; raises like `send`."""
        await self._send(BROADCAST, payload)

    async def _send(self, to: bytes, payload: bytes) -> None:
        if self._must_wait:
            await self.connected(None)
        link = self._guest()
        if not link.driver.can_send:
            await link.driver.wait_writable()
        try:
            link.client.send(to, payload)
        except ConnectionClosedError:
            raise link.end_error() from None

    # Reading.

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RelayMessage:
        """Return the next message; the iteration ends after this client's own `close`.

        Raises:
            RelayRefusedError: the relay reported an error and closed the connection (never with
                `pauses`).
            PeerClosedError: the connection ended for another reason (never with `pauses`).
        """
        inbox = self._inbox
        with self._reading:
            if not inbox or self._current is None:
                await self.changes.until(
                    lambda: (bool(inbox) and self._current is not None) or self.is_over
                )
        if inbox and self._current is not None:
            self.cuts, message = inbox.popleft()
            self._current.client.consumed(message)
            return message
        if self._left:
            raise StopAsyncIteration
        raise self.over_error()

    # Closing.

    async def close(self) -> None:
        """Send queued data, then leave the relay. Received messages can still be read."""
        with anyio.move_on_after(CLOSE_TIMEOUT):
            await self._close()

    # Internals.

    def _new_guest(self, backend: Backend, place: str) -> "_Link":
        core = RelayClientConnection(self.uuid.bytes, self._limits, backend.now(), self._unread)
        took = partial(self._took, self.sessions)
        return _Link(core, backend, place, took, self._fault, self.changes.notify)

    def _came(self, current: "_Link") -> None:
        super()._came(current)
        # The connection may have paused because of unread messages that were read while it was
        # being established.
        current.driver.step()

    def _why(self, guest: "_Link") -> ParleyError:
        return guest.end_error()

    def _took(self, cuts: int, message: RelayMessage) -> None:
        self._inbox.append((cuts, message))
        self.changes.notify()

    def _fault(self, fault: RelayFault) -> None:
        self.faults += 1
        if self._on_fault is None:
            return
        try:
            self._on_fault(fault)
        except APPLICATION_ERRORS:
            logger.exception(
                "on_fault of the client of %s failed",
                self._place,
                extra={"event": "relay.hook-failed"},
            )


class _Link(Guest):
    """One connection; `changed` is called when it has ended."""

    dialect: ClassVar[str] = "the event relay"

    def __init__(
        self,
        client: RelayClientConnection,
        backend: Backend,
        name: str,
        on_message: Callable[[RelayMessage], None],
        on_fault: Callable[[RelayFault], None],
        changed: Callable[[], None],
    ) -> None:
        self.client = client
        super().__init__(client, backend, name)
        self._on_message = on_message
        self._on_fault = on_fault
        self._changed = changed
        self._left = False

    def end_error(self) -> RelayRefusedError | PeerClosedError:
        fault = None if self._left else self.client.fault
        return self.closed_error() if fault is None else RelayRefusedError(*fault)

    async def close(self, code: int = CloseCode.NORMAL, text: str = "") -> None:
        self._left = True
        await super().close(code, text)

    def _take(self, report: Any, now: float) -> None:
        if isinstance(report, RelayMessage):
            self._on_message(report)
        else:
            self._on_fault(report)

    def _lost(self, ended: ConnectionEnded) -> None:
        self._changed()
