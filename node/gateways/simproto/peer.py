"""`SimProtoPeer`: the other side of a SimProto connection, as applications use it.

One rule: what waits here ends with the connection, at once, with its code. Data is bytes
both ways: what else is given goes by the table of `node.dialects.values`.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, cast

from lbm.codec import Encodable
from node.dialects.limits import SimProtoLimits
from node.dialects.simproto.core import SimProtoCore
from node.dialects.simproto.sim import Sim
from node.dialects.values import RESTS, Rest, to_bytes
from node.errors import ConfigError, NotSpokenError
from node.gateways.guest import Guest
from node.gateways.simproto.service import SimProtoService
from node.gateways.simproto.subscription import WINDOW, SimProtoSubscription
from node.messaging.pending import IncomingCall
from node.offering import Offering
from node.peer.answer_stream import answer_of
from node.protocol.account import Account
from node.protocol.codes import CloseCode
from node.protocol.errors import ConnectionClosedError
from node.protocol.reports import ConnectionEnded, PongReceived
from node.transport.backend import Backend
from node.transport.loop import Waiter
from node.transport.waiting import left_after

if TYPE_CHECKING:
    from node.peer.peer import Peer

DEFAULT_TIMEOUT = 30.0


class SimProtoPeer(Guest):
    """The other side. Made by `SimProtoGateway` and `SimProtoClient`.

    `offering` is what it may call and subscribe to here.
    """

    dialect: ClassVar[str] = "SimProto"

    def __init__(
        self,
        backend: Backend,
        name: str,
        limits: SimProtoLimits,
        offering: Offering,
        values: Rest,
        *,
        carrier: "Peer | None" = None,
        on_gone: Callable[[Guest], None] | None = None,
        total: Account | None = None,
    ) -> None:
        self.offering = offering
        self.values: Rest = values
        self.core = core = SimProtoCore(backend.now(), limits, total)
        self.carrier = carrier
        self.serving = serving = SimProtoService(self, offering, values)
        self.sim = sim = Sim(core, serving.find, serving.run, _stop, serving.knows)
        serving.core, serving.room = core, sim.room
        self._pings: dict[int, tuple[Waiter, list[float]]] = {}
        super().__init__(
            core,
            backend,
            name,
            carrier=carrier,
            on_gone=on_gone,
            violations=offering.handlers.violations,
            deadlines=(sim.next_deadline, sim.handle_deadline),
        )
        self.driver.high_water = limits.write_buffer

    # What to ask of it.

    async def call(
        self,
        topic: str,
        data: Encodable = None,
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
        headers: Mapping[str, Encodable] | None = None,
    ) -> bytes | None:
        """Call a topic and return the data of its response, None if that is empty.

        `timeout` is seconds for all of it. A response that takes longer than
        `limits.answer_timeout` ends the connection, whoever waits for it.

        Raises:
            CallRefused: a code other than 0; 1 is 'topic not found', which failures are,
                too. CallTimeout: no response in time. PeerClosedError: the connection is
                over. PayloadTooLargeError: not sent. ConversionError: `data` has no form
                here. NotSpokenError: `headers` were given, and SimProto has none.
        """
        if headers:
            raise NotSpokenError(self.dialect, "headers")
        payload = data if type(data) is bytes else to_bytes(data, self.values)
        if not self.driver.has_room or self.core.free_dialogs <= 0:
            timeout = await self.room(timeout)
        waiter = self.backend.waiter()
        asking = self.sim.outgoing
        try:
            call = asking.call(topic, payload, self.backend.now(), timeout, waiter.wake)
        except ConnectionClosedError as error:
            raise self.closed_error() from error
        self.driver.touch()
        try:
            await waiter.wait()
        finally:
            if not call.done:
                asking.give_up(call)
        return cast("bytes | None", answer_of(call))

    def subscribe(
        self,
        topic: str,
        data: Encodable = None,
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
        window: int = WINDOW,
    ) -> SimProtoSubscription:
        """Subscribe to a topic: `async with` it, then `async for`.

        `timeout` is seconds until the response, `data` is for the publisher to decide on.
        `window` is what may wait unread and acknowledged, in bytes, 65,536 at least (a note
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
        self.driver.touch()
        try:
            await waiter.wait()
        finally:
            self._pings.pop(dialog, None)
        if not answer:
            raise self.closed_error()
        return answer[0]

    def begin_close(self) -> None:
        """End it once what is queued is written, without waiting for that."""
        self.serving.draining = True
        self.sim.flush()
        super().begin_close()

    async def close(self, code: int = CloseCode.NORMAL, text: str = "") -> None:
        """End it: what is queued goes first; returns when the transport is closed. `code`
        and `text` are for our own side: the dialect has no word for the end."""
        self.serving.draining = True
        self.sim.flush()
        await super().close(code, text)

    async def room(self, timeout: float | None = None) -> float | None:
        """Wait while too much waits to be written, or for responses; returns what is left
        of `timeout`.

        Raises:
            CallTimeout: it took longer.
        """
        return await left_after(self._room, timeout, self.backend.now)

    # For the gateway and the handlers.

    @property
    def running_requests(self) -> int:
        """How many requests of theirs are not answered."""
        return len(self.sim.incoming)

    def drain(self) -> None:
        """Take nothing new: requests are refused."""
        self.serving.draining = True

    async def drained(self) -> None:
        """Wait until all requests of theirs are answered, or nobody waits for that."""
        await self._changes.until(lambda: not self.running_requests or not self.is_open)

    async def finished(self) -> None:
        """Wait until the notes that were published for it went, and it gets no more, or until
        nobody waits for that."""
        await self._changes.until(lambda: not self.sim.has_feeds or not self.is_open)

    async def gone(self) -> None:
        """Wait until the transport is closed."""
        await self._changes.until(lambda: self.is_gone)

    def answered(self) -> None:
        """A request of theirs was answered, or they get no more notes of a topic."""
        if self.serving.draining:
            self._changes.notify()
        self.driver.touch()

    # From the core.

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

    # Inside.

    async def _room(self) -> None:
        core, turns = self.core, self.sim.room
        while self.is_open and (core.free_dialogs <= 0 or not self.driver.has_room):
            if not self.driver.has_room:
                await self.driver.room()
                continue
            waiter = self.backend.waiter()
            wake = waiter.wake
            turns.wait(wake)
            try:
                await waiter.wait()
            except BaseException:
                turns.leave(wake)
                raise


def _stop(call: IncomingCall) -> None:
    if call.runner is not None:
        call.runner.cancel()


def require_form(values: Rest) -> Rest:
    """The form of what is neither bytes nor text; raises ConfigError if there is none."""
    if values not in RESTS:
        raise ConfigError(f"values is {values!r}; it must be one of {', '.join(RESTS)}")
    return values
