"""Byte-exact named events: a node's gateway, the client, and the other side of a connection.

As in the crate, a handler runs to its end even if its connection has ended.
"""

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

import anyio

from parley._lbm.codec import Encodable
from parley._node.backoff import Backoff
from parley._node.config import NodeConfig
from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.named.codec import BromineEvent, Flavour
from parley._node.dialects.named.core import NamedCore
from parley._node.dialects.named.replies import NamedReply
from parley._node.errors import ConfigError, PeerClosedError
from parley._node.gateways.client import CONNECT_TIMEOUT, DialectClient
from parley._node.gateways.guest import Guest
from parley._node.gateways.server import DialectServer
from parley._node.handlers.invoke import FAILED, TURN_SIZE, Outcome, run_handler
from parley._node.handlers.registry import Entry, Handlers
from parley._node.messaging.call_codec import cut, error_text, event_code
from parley._node.messaging.formats import Format, FormatError, FormatName
from parley._node.messaging.named_events import OutgoingEmit
from parley._node.messaging.payloads import FormattedPayload, Payload, Tandem, make_payload
from parley._node.node import Node
from parley._node.peer.reconnecting import ReconnectingEmitter
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.errors import (
    ConnectionClosedError,
    LocalError,
    PayloadTooLargeError,
)
from parley._node.protocol.limits import EVENT_COST
from parley._node.protocol.memory_budget import MemoryBudget
from parley._node.protocol.reports import ConnectionEnded
from parley._node.registrar import Registrar
from parley._node.remote.emission import Emission
from parley._node.remote.requests import NamedEvent
from parley._node.transport.backend import Backend
from parley._node.transport.conditions import wait_within, yield_to_loop
from parley._node.transport.loop import Runner

logger = logging.getLogger("parley.gateway")


FlavourName = Flavour | Literal["plain", "typed"]
FORMATS: Final[tuple[FormatName, ...]] = ("msgpack", "json", "raw")


@dataclass(frozen=True, slots=True)
class NamedOptions:
    """The handlers, flavour, default format of events and replies, and limits of one side."""

    handlers: Handlers
    flavour: Flavour
    format: FormatName
    limits: DialectLimits

    @classmethod
    def of(
        cls,
        handlers: Handlers,
        flavour: FlavourName,
        format: FormatName,
        limits: DialectLimits | None,
    ) -> "NamedOptions":
        """Validate options.

        Raises:
            ConfigError: the flavour doesn't exist, or the crate doesn't support the format.
        """
        try:
            known = Flavour(flavour)
        except ValueError:
            raise ConfigError(f"invalid flavour {flavour!r}: expected plain or typed") from None
        if format not in FORMATS:
            raise ConfigError(f"invalid format {format!r}: expected {', '.join(FORMATS)}")
        return cls(handlers, known, format, limits or DialectLimits())


class NamedPeer(Guest):
    """The other side of a connection with named events.

    `ignored` counts its events without a handler. `on_over` is called once its transport is closed
    and no handler of its events is running.

    Example:

        from parley import NamedEvent
        from parley.dialects import NamedClient, NamedGateway

        @node.on("welcome")
        async def welcome(event: NamedEvent) -> str:
            return f"hello {event.data}"

        async with NamedGateway(node) as gateway:
            address = await gateway.listen("tcp://127.0.0.1:0")
            async with NamedClient(address) as client:
                reply = await client.peer.emit("welcome", "Ada").reply(timeout=5)
                assert reply.data == "hello Ada"
    """

    dialect: ClassVar[str] = "named events"

    def __init__(
        self,
        backend: Backend,
        name: str,
        options: NamedOptions,
        *,
        on_over: Callable[["NamedPeer"], None] | None = None,
        total: MemoryBudget | None = None,
    ) -> None:
        self._named = NamedCore(backend.now(), options.limits, options.flavour, total)
        violations = options.handlers.violations
        super().__init__(
            self._named,
            backend,
            name,
            on_gone=self._look,
            violations=violations,
            high_water=options.limits.write_buffer,
        )
        self._named.take_turns(self._wait_for_turn)
        self.format = options.format
        self.ignored = 0
        self.draining = False
        self._handlers = options.handlers
        self.emitter = NamedEmitter(self, self._named)
        self._on_over = on_over
        self._runners: dict[int, Runner] = {}
        self._begun: set[int] = set()  # keys of the runners that have started

    @property
    def flavour(self) -> Flavour:
        """The flavour of the connection."""
        return self._named.flavour

    @property
    def running(self) -> int:
        """Number of running handlers of the peer's events."""
        return self._named.running

    def emit(
        self,
        name: str,
        data: Encodable | Tandem | Payload = None,
        *,
        namespace: str = "",
        format: FormatName | None = None,
    ) -> Emission:
        """Emit a named event: `await` the result, or use its `reply()` or `replies()`.

        `format` is the format of the data, by default that of the connection; `raw` requires bytes,
        and a Tandem contains two payloads. `Emission` describes the errors raised while sending.

        Raises:
            FormatError: the format doesn't exist, or `raw` was given something other than bytes.
        """
        payload = make_payload(data, format or self.format)
        return Emission(self.emitter, name, namespace, payload)

    async def drained(self) -> None:
        """Wait until no handler of the peer's events is running."""
        await self._changes.until(lambda: not self._runners)

    def stop_handlers(self) -> None:
        """Cancel the handlers of the peer's events."""
        for key, runner in list(self._runners.items()):
            runner.cancel()
            if key not in self._begun:
                del self._runners[
                    key
                ]  # on asyncio a runner cancelled before its start never runs its finally block

    # Reports from the core.

    def _take(self, report: BromineEvent, now: float) -> None:
        entry = self._handlers.find_event(report.namespace, report.name)
        if entry is None:
            self.ignored += 1
            self._answer(report, ResultCode.ACCEPTED, None)
        elif entry.supercategories is not None:
            # Supercategories are pairs of roles, and guests have no roles.
            self._answer(report, ResultCode.WRONG_SUPERCATEGORY, None)
        elif self.draining:
            self._answer(report, ResultCode.OVERLOADED, None)
        else:
            self._runners[id(report)] = self.backend.spawn(self._serve, entry, report)

    def _lost(self, ended: ConnectionEnded) -> None: ...

    def _wait_for_turn(self) -> None:
        self.backend.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._named.go_on(self.backend.now())
        self.driver.step()

    def _look(self, _: Guest) -> None:
        if self.is_gone and not self._runners and self._on_over is not None:
            self._on_over(self)

    # Handlers.

    async def _serve(self, entry: Entry[Any], event: BromineEvent) -> None:
        self._begun.add(id(event))
        outcome: Outcome = (ResultCode.CANCELLED, None)
        port = NamedReplies(self, self._named, event, self.format)
        payload = FormattedPayload(event.data)
        try:
            outcome = await run_handler(
                entry,
                NamedEvent(self, event.name, event.namespace, payload, port),
                self,
                event.name,
                self._handlers.roles,
                port.send_all,
            )
        finally:
            # Also after cancellation: in the typed flavour, each event gets exactly one End or
            # Error.
            self._begun.discard(id(event))
            self._runners.pop(id(event), None)
            self._answer(event, *outcome)
            self.driver.step()
            if self.draining:
                self._changes.notify()
            if self._gone:
                self._look(self)

    def _answer(self, event: BromineEvent, code: int, data: Any) -> None:
        """Send the result or failure of a handler; a value that cannot be encoded is a failure."""
        core, now, unsent = self._named, self.backend.now(), self._handlers.unsent
        try:
            if code == ResultCode.ACCEPTED:
                try:
                    returned = None if data is None else on_wire(make_payload(data, self.format))
                    core.finish(event, returned, now)
                    return
                except FormatError:
                    text = "cannot encode the result of the handler of %r"
                    unsent.log(
                        logger,
                        logging.ERROR,
                        now,
                        text,
                        event.name,
                        exc_info=True,
                        extra={"event": "answer.unsent", "topic": event.name},
                    )
                    code, data = FAILED
                except PayloadTooLargeError:
                    text = "cannot send the result of the handler of %r: it is too large"
                    unsent.log(
                        logger,
                        logging.WARNING,
                        now,
                        text,
                        event.name,
                        extra={"event": "answer.unsent", "topic": event.name},
                    )
                    code, data = ResultCode.PAYLOAD_TOO_LARGE, None
            text = data if isinstance(data, str) else error_text(code)
            core.fail(event, event_code(code), cut(text), now)
        except LocalError:  # the connection is closed
            core.release(event, now)


_OURS: Final = frozenset({Format.LBM, Format.CBOR})


class NamedReplies:
    """Replies to one event of a peer, by default in `format`."""

    __slots__ = ("_core", "_event", "_peer", "_said", "format")

    def __init__(
        self, peer: Guest, core: NamedCore, event: BromineEvent, format: FormatName
    ) -> None:
        self._peer = peer
        self._core = core
        self._event = event
        self._said = (
            0  # bytes since other tasks ran; a handler that never waits must not block the loop
        )
        self.format: FormatName = format

    @property
    def wanted(self) -> bool:
        """Whether the connection is open; the dialect doesn't show whether the emitter still
        waits.
        """
        return self._peer.is_open

    async def reply(self, name: str, namespace: str, payload: Payload) -> None:
        """Send a reply, waiting until it can be written.

        Raises:
            PeerClosedError: the connection is closed.
            PayloadTooLargeError: the reply is too long.
            LocalProtocolError: the name is too long.
            FormatError: the payload cannot be encoded in its format.
        """
        try:
            await self._send(name, namespace, on_wire(payload))
        except ConnectionClosedError as error:
            raise self._peer.closed_error() from error

    async def send_all(self, items: AsyncGenerator[Any, Any]) -> Outcome:
        async with aclosing(items):
            async for item in items:
                try:
                    await self._send("", "", on_wire(make_payload(item, self.format)))
                except PayloadTooLargeError:
                    return ResultCode.PAYLOAD_TOO_LARGE, None
                except ConnectionClosedError:
                    break  # the emitter has disconnected
        return ResultCode.ACCEPTED, None

    async def _send(self, name: str, namespace: str, data: bytes) -> None:
        driver = self._peer.driver
        if not driver.can_send:
            await driver.wait_writable()
        self._core.reply(self._event, data, name, namespace)
        self._said += len(data) + EVENT_COST
        if self._said > TURN_SIZE:
            self._said = 0
            await yield_to_loop(self._peer.backend)


class NamedEmitter:
    """The `Emitter` of one connection."""

    __slots__ = ("_core", "_peer", "backend", "marks_end")

    def __init__(self, peer: Guest, core: NamedCore) -> None:
        self._peer = peer
        self._core = core
        self.backend: Backend = peer.backend
        self.marks_end = core.flavour is Flavour.TYPED

    @property
    def can_send(self) -> bool:
        return self._peer.driver.can_send

    async def wait_writable(self, timeout: float | None) -> float | None:
        if self.can_send:
            return timeout
        return await wait_within(self._peer.driver.wait_writable, timeout, self.backend.now)

    def send(self, name: str, namespace: str, payload: Payload) -> None:
        self._core.emit(name, on_wire(payload), namespace)

    def ask(
        self, emit: OutgoingEmit, name: str, namespace: str, payload: Payload, timeout: float | None
    ) -> None:
        now = self.backend.now()
        self._core.ask(emit, name, on_wire(payload), now, timeout, namespace)

    def stop_waiting(self, emit: OutgoingEmit) -> None:
        """Pass replies after the first one to handlers."""
        self._core.stop_waiting(emit)
        self._peer.driver.step()

    def cancel(self, emit: OutgoingEmit) -> None:
        """Discard further replies; the dialect cannot cancel an event."""
        self._core.cancel(emit)

    def closed_error(self) -> PeerClosedError:
        return self._peer.closed_error()


def on_wire(payload: Payload) -> bytes:
    """Encode a payload in this dialect: its format id, if it has one, followed by its data.

    Raises:
        FormatError: the crate doesn't support the format, or the value cannot be encoded in it.
    """
    if payload.format is None or isinstance(payload, FormattedPayload | NamedReply):
        return payload.raw
    if payload.format in _OURS:
        raise FormatError(
            f"cannot send a payload of format {payload.format}: named events (bromine) don't "
            "support LBM and CBOR; use msgpack, json or raw"
        )
    return bytes((payload.format,)) + payload.raw


class NamedGateway(DialectServer[NamedPeer]):
    """Serves the named events of a running node to clients during its `async with` block.

    `flavour` is the header format that the clients use: `plain` (bromine 0.14 to 0.17) or `typed`
    (0.18 and later). The gateway cannot detect it. `format` is the default format of replies.

    Raises:
        ConfigError: the flavour or format doesn't exist.

    Example:

        from parley.dialects import NamedGateway

        async with NamedGateway(node, flavour="typed") as gateway:
            address = await gateway.listen("tcp://127.0.0.1:0")
    """

    def __init__(
        self,
        node: Node,
        *,
        flavour: FlavourName = "plain",
        format: FormatName = "msgpack",
        limits: DialectLimits | None = None,
    ) -> None:
        self.node = node
        self._options = options = NamedOptions.of(node.handlers, flavour, format, limits)
        self.flavour = options.flavour
        self.format = options.format
        self.limits = options.limits
        super().__init__("the gateway", self.limits.clients, self.limits.memory)
        self._ignored = 0  # events of disconnected clients

    def __repr__(self) -> str:
        return f"<NamedGateway, {self.flavour}, {len(self.peers)} clients>"

    @property
    def peers(self) -> list[NamedPeer]:
        """The connected clients."""
        return [peer for peer in self._guests.values() if peer.is_open]

    @property
    def clients(self) -> int:
        """Number of clients that are connected or have a running handler."""
        return len(self._guests)

    @property
    def backend(self) -> Backend:
        """The node's event loop."""
        return self.node.backend

    @property
    def ignored(self) -> int:
        """Number of events without a handler."""
        return self._ignored + sum(peer.ignored for peer in self._guests.values())

    # Internals.

    def _new_guest(self, name: str) -> NamedPeer:
        return NamedPeer(self.backend, name, self._options, on_over=self._over, total=self.account)

    def _over(self, peer: NamedPeer) -> None:
        self._ignored += peer.ignored
        self._gone(peer)

    async def _drain(self) -> None:
        peers = list(self._guests.values())
        for peer in peers:
            peer.draining = True
        with anyio.move_on_after(self.node.config.drain_timeout):
            for peer in peers:
                await peer.drained()

    def _dismiss(self, guest: NamedPeer, *, hasty: bool) -> None:
        guest.stop_handlers()
        super()._dismiss(guest, hasty=hasty)


class NamedClient(DialectClient[NamedPeer]):
    """A connection to a server of named events during its `async with` block, with or without a
    node.

    `flavour` is the server's: `plain` (bromine 0.14 to 0.17) or `typed` (0.18 and later). `format`
    is the default format of events. `registrar` provides the handlers of the server's events; by
    default the client has its own.

    Example:

        from parley import NamedEvent
        from parley.dialects import NamedClient, NamedGateway

        @node.on("welcome")
        async def welcome(event: NamedEvent) -> str:
            return f"hello {event.data}"

        async with NamedGateway(node) as gateway:
            address = await gateway.listen("tcp://127.0.0.1:0")
            async with NamedClient(address) as client:
                reply = await client.emit("welcome", "Ada").reply(timeout=5)
                assert reply.data == "hello Ada"
    """

    def __init__(
        self,
        address: str,
        *,
        flavour: FlavourName = "plain",
        format: FormatName = "msgpack",
        limits: DialectLimits | None = None,
        registrar: Registrar | None = None,
        timeout: float = CONNECT_TIMEOUT,
        pauses: Backoff | None = None,
    ) -> None:
        """Create a client; `timeout` is in seconds, for connecting. With `pauses` it reconnects.

        Raises:
            AddressError: `address` is not a valid address.
            ConfigError: the flavour or format doesn't exist.
        """
        super().__init__(address, timeout, pauses)
        self.registrar = registrar or Registrar(NodeConfig(), self._scope)
        self._options = NamedOptions.of(self.registrar.handlers, flavour, format, limits)

    @property
    def peer(self) -> NamedPeer:
        """The server, over the last connection; raises ParleyError before the first one."""
        return self._guest()

    def emit(
        self,
        name: str,
        data: Encodable | Tandem | Payload = None,
        *,
        namespace: str = "",
        format: FormatName | None = None,
    ) -> Emission:
        """Emit a named event, like `NamedPeer.emit`.

        With `pauses` the event waits for a connection. `reply()` and `replies()` wait within their
        timeouts, then raise CallTimeout with the reason as its cause; `await` waits without a
        limit. At most 4,096 requests can wait; further ones raise LimitReachedError.
        """
        if not self._redials:
            return self.peer.emit(name, data, namespace=namespace, format=format)
        marks_end = self._options.flavour is Flavour.TYPED
        emitter = ReconnectingEmitter(self, lambda peer: peer.emitter, marks_end=marks_end)
        return Emission(
            emitter, name, namespace, make_payload(data, format or self._options.format)
        )

    # Internals.

    def _new_guest(self, backend: Backend, place: str) -> NamedPeer:
        return NamedPeer(backend, place, self._options)
