"""`SimProtoPeer`: the other side of a SimProto connection, as applications use it.

Whatever waits here ends with the connection, at once, with its code. Data is bytes in both
directions; other values are converted by the table in `node.dialects.values`.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, overload

from parley._lbm.codec import Encodable
from parley._node.dialects.simproto.core import SimProtoCore
from parley._node.dialects.values import to_bytes
from parley._node.errors import NotSpokenError
from parley._node.gateways.guest import Guest
from parley._node.gateways.simproto.link import SimProtoLink, SimProtoTerms
from parley._node.gateways.simproto.notes import WINDOW
from parley._node.gateways.simproto.service import SimProtoService
from parley._node.gateways.simproto.subscription import SimProtoSubscription
from parley._node.peer.answer_stream import answer_of
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import ConnectionClosedError
from parley._node.protocol.memory_budget import MemoryBudget
from parley._node.protocol.reports import ConnectionEnded, PongReceived
from parley._node.remote.live import LiveConnection
from parley._node.transport.backend import Backend
from parley._node.transport.loop import Waiter
from parley._node.typed.models import Model, R

DEFAULT_TIMEOUT = 30.0


class SimProtoPeer(Guest):
    """The other side. Made by `SimProtoGateway` and `SimProtoClient`."""

    dialect: ClassVar[str] = "SimProto"

    def __init__(
        self,
        backend: Backend,
        name: str,
        terms: SimProtoTerms,
        *,
        carrier: LiveConnection | None = None,
        on_gone: Callable[[Guest], None] | None = None,
        total: MemoryBudget | None = None,
    ) -> None:
        self.core = core = SimProtoCore(backend.now(), terms.limits, total)
        violations = terms.offering.handlers.violations
        super().__init__(
            core, backend, name, carrier=carrier, on_gone=on_gone, violations=violations
        )
        self.driver.high_water = terms.limits.write_buffer
        self.service = SimProtoService(self, core, terms, self._answered)
        self.sim = self.service.sim
        self.link = SimProtoLink(self, core, self.sim, terms.values)
        self._pings: dict[int, tuple[Waiter, list[float]]] = {}

    # What to ask of it.

    @overload
    async def call(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        timeout: float | None = ...,
        headers: Mapping[str, Encodable] | None = ...,
        once: bool | bytes = ...,
        returns: None = None,
    ) -> bytes | None: ...

    @overload
    async def call(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        timeout: float | None = ...,
        headers: Mapping[str, Encodable] | None = ...,
        once: bool | bytes = ...,
        returns: type[R],
    ) -> R: ...

    async def call(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
        headers: Mapping[str, Encodable] | None = None,
        once: bool | bytes = False,
        returns: Any = None,
    ) -> Any:
        """Call a topic and return the data of its response, None if that is empty.

        `timeout` is in seconds, for all of it. A response that takes longer than
        `limits.answer_timeout` ends the connection, whoever waits for it.

        Raises:
            CallRefused: the code is not 0; 1 is 'topic not found', and also stands for any
                failure. CallTimeout: no response in time. PeerClosedError: the connection is
                over. PayloadTooLargeError: not sent. ConversionError: `data` has no form
                here. NotSpokenError: `headers`, `once` or `returns` were given, and SimProto has
                none of them.
        """
        if returns is not None:
            raise NotSpokenError(self.dialect, "answers of a type")
        if once is not False:
            raise NotSpokenError(self.dialect, "calls that are made once")
        if headers:
            raise NotSpokenError(self.dialect, "headers")
        link = self.link
        value: Any = data
        payload = value if type(value) is bytes else to_bytes(value, link.values)
        if not link.has_room:
            timeout = await link.room(timeout)
        waiter = self.backend.waiter()
        outgoing = self.sim.outgoing
        try:
            call = outgoing.call(topic, payload, self.backend.now(), timeout, waiter.wake)
        except ConnectionClosedError as error:
            raise self.closed_error() from error
        try:
            await waiter.wait()
        finally:
            if not call.done:
                outgoing.give_up(call)
        return answer_of(call)

    def subscribe(
        self,
        topic: str,
        data: Encodable = None,
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
        window: int = WINDOW,
    ) -> SimProtoSubscription:
        """Subscribe to a topic: `async with` it, then `async for`.

        `timeout` is in seconds, until the response; `data` is for the publisher to decide on.
        `window` is how many bytes may wait unread and acknowledged, at least 65,536 (a note
        counts its data and 64): beyond it notes are acknowledged as they are read, or after half of
        `limits.answer_timeout`; beyond twice of it the subscription is lost.
        """
        return SimProtoSubscription(self, topic, data, timeout, window)

    async def ping(self) -> float:
        """The round-trip time in seconds.

        Raises:
            PeerClosedError: the connection is over. LocalProtocolError: 64 wait already.
        """
        waiter = self.backend.waiter()
        try:
            dialog = self.core.ping(self.backend.now())
        except ConnectionClosedError as error:
            raise self.closed_error() from error
        answer: list[float] = []
        self._pings[dialog] = waiter, answer
        try:
            await waiter.wait()
        finally:
            self._pings.pop(dialog, None)
        if not answer:
            raise self.closed_error()
        return answer[0]

    def begin_close(self) -> None:
        """End the connection once what is queued is written; does not wait for that."""
        self.drain()
        self.sim.flush()
        super().begin_close()

    async def close(self, code: int = CloseCode.NORMAL, text: str = "") -> None:
        """Send what is queued, then end the connection; returns when the transport is closed.
        `code` and `text` stay on this side: SimProto has no word for the end."""
        self.drain()
        self.sim.flush()
        await super().close(code, text)

    async def room(self, timeout: float | None = None) -> float | None:
        """Wait while too much waits to be written, or for responses; returns what is left
        of `timeout`.

        Raises:
            CallTimeout: it took longer.
        """
        return await self.link.room(timeout)

    # For its subscriptions: it has one connection.

    @property
    def is_over(self) -> bool:
        """No connection follows the one that there is."""
        return True

    async def connected(self, timeout: float | None) -> tuple["SimProtoPeer", float | None]:
        """Itself, and `timeout`: what is asked of it says whether the connection is over."""
        return self, timeout

    # For the gateway.

    @property
    def running_requests(self) -> int:
        """How many of their requests are not answered."""
        return len(self.sim.incoming)

    def drain(self) -> None:
        """Refuse new requests from now on."""
        self.service.draining = True

    async def drained(self) -> None:
        """Wait until all their requests are answered, or the connection is over."""
        await self._changes.until(lambda: not self.running_requests or not self.is_open)

    async def finished(self) -> None:
        """Wait until all notes published for them were sent, and their subscriptions are over,
        or the connection is."""
        await self._changes.until(lambda: not self.sim.has_feeds or not self.is_open)

    async def gone(self) -> None:
        """Wait until the transport is closed."""
        await self._changes.until(lambda: self.is_gone)

    # From the core and the service.

    def _take(self, report: Any, now: float) -> None:
        if isinstance(report, PongReceived):
            waiting = self._pings.get(report.async_id)
            if waiting is not None:
                waiting[1].append(report.round_trip)
                waiting[0].wake()
        else:
            self.sim.take(report, now)

    def _lost(self, ended: ConnectionEnded) -> None:
        self.sim.connection_ended(ended.code, ended.text)
        for waiter, _ in self._pings.values():
            waiter.wake()

    def _next_deadline(self) -> float:
        return self.sim.next_deadline()

    def _handle_deadline(self, now: float) -> None:
        self.sim.handle_deadline(now)

    def _answered(self) -> None:
        if self.service.draining:
            self._changes.notify()
