"""Emitters: send this node's named events to one native peer (section 10)."""

from parley._node.errors import ParleyError, PeerClosedError
from parley._node.handlers.interceptors import Chain, Intercepted
from parley._node.messaging.named_events import OutgoingEmit
from parley._node.messaging.payloads import Payload
from parley._node.messaging.requests import RequestMux
from parley._node.remote.live_connection import LiveConnection
from parley._node.transport.backend import Backend


class NativeEmitter:
    """An `Emitter` for one native peer; it sends on the main stream of the connection."""

    __slots__ = ("_calls", "_live", "backend", "marks_end")

    def __init__(self, live: LiveConnection, calls: RequestMux) -> None:
        self._live = live
        self._calls = calls
        self.backend: Backend = live.backend
        self.marks_end = True

    @property
    def can_send(self) -> bool:
        """Whether an event can be sent without waiting."""
        return self._live.driver.can_send

    async def wait_writable(self, timeout: float | None) -> float | None:
        """Wait until the send queue has capacity; CallTimeout if it takes longer than `timeout`."""
        return await self._live.wait_writable(timeout)

    def send(self, name: str, namespace: str, payload: Payload) -> None:
        """Send an event without waiting for replies."""
        self._calls.named.emit(name, namespace, payload)

    def ask(
        self, emit: OutgoingEmit, name: str, namespace: str, payload: Payload, timeout: float | None
    ) -> None:
        """Send an event; `emit` receives its replies."""
        self._calls.named.ask(emit, name, namespace, payload, self.backend.now(), timeout)

    def stop_waiting(self, emit: OutgoingEmit) -> None:
        """Stop waiting for replies to an event."""
        self._calls.outgoing.stop_waiting(emit)

    def cancel(self, emit: OutgoingEmit) -> None:
        """Send a Cancel for an event and discard further replies."""
        self._calls.outgoing.cancel(emit)

    def closed_error(self) -> PeerClosedError:
        """Return the error to raise when the connection has ended."""
        return self._live.closed_error()


class InterceptedEmitter(NativeEmitter):
    """Sends one event named `name` after running the interceptors in `chain`."""

    __slots__ = ("_chain", "_name")

    def __init__(self, live: LiveConnection, calls: RequestMux, chain: Chain, name: str) -> None:
        super().__init__(live, calls)
        self._chain = chain
        self._name = name

    @property
    def can_send(self) -> bool:
        """Always False, so that callers wait with `wait_writable`."""
        return False

    async def wait_writable(self, timeout: float | None) -> float | None:
        """Run the interceptors, then wait for capacity.

        Raises:
            ParleyError: an interceptor did not call proceed. Their own exceptions propagate.
        """
        timeouts: list[float | None] = []

        async def proceed(one: Intercepted) -> None:
            timeouts.append(one.timeout)

        peer = self._live.remote
        await self._chain.run(Intercepted(self._chain, peer, self._name, timeout=timeout), proceed)
        if not timeouts:
            raise ParleyError(
                f"cannot emit event {self._name!r}: an interceptor did not call proceed"
            )
        return await super().wait_writable(timeouts[-1])
