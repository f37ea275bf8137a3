"""Emitters: send this node's named events to one native peer (section 10)."""

from parley._node.errors import ParleyError, PeerClosedError
from parley._node.handlers.interceptors import Chain, Intercepted
from parley._node.messaging.named_events import OutgoingEmit
from parley._node.messaging.payloads import Payload
from parley._node.messaging.requests import RequestMux
from parley._node.remote.live_connection import LiveConnection
from parley._node.transport.backend import Backend


class NativeEmitter:
    """Our events to one peer, on its connection's main stream: an `Emitter`."""

    __slots__ = ("_calls", "_live", "backend", "marks_end")

    def __init__(self, live: LiveConnection, calls: RequestMux) -> None:
        self._live = live
        self._calls = calls
        self.backend: Backend = live.backend
        self.marks_end = True

    @property
    def can_send(self) -> bool:
        """Whether a sender need not wait."""
        return self._live.driver.can_send

    async def wait_writable(self, timeout: float | None) -> float | None:
        """Wait while too much waits to be written; CallTimeout if it takes too long."""
        return await self._live.wait_writable(timeout)

    def send(self, name: str, namespace: str, payload: Payload) -> None:
        """Send an event to which no reply is wanted."""
        self._calls.named.emit(name, namespace, payload)

    def ask(
        self, emit: OutgoingEmit, name: str, namespace: str, payload: Payload, timeout: float | None
    ) -> None:
        """Send an event; `emit` gets its replies."""
        self._calls.named.ask(emit, name, namespace, payload, self.backend.now(), timeout)

    def stop_waiting(self, emit: OutgoingEmit) -> None:
        """Wait for no more of its replies."""
        self._calls.outgoing.stop_waiting(emit)

    def cancel(self, emit: OutgoingEmit) -> None:
        """Want none of its replies: Cancel."""
        self._calls.outgoing.cancel(emit)

    def closed_error(self) -> PeerClosedError:
        """Why nothing can be sent any more."""
        return self._live.closed_error()


class InterceptedEmitter(NativeEmitter):
    """Sends one event of this `name`, once the interceptors of `chain` have returned."""

    __slots__ = ("_chain", "_name")

    def __init__(self, live: LiveConnection, calls: RequestMux, chain: Chain, name: str) -> None:
        super().__init__(live, calls)
        self._chain = chain
        self._name = name

    @property
    def can_send(self) -> bool:
        """Never: `wait_writable` is always waited for."""
        return False

    async def wait_writable(self, timeout: float | None) -> float | None:
        """Run the interceptors, then wait as for any event.

        Raises:
            ParleyError: one did not proceed. And what they raise.
        """
        timeouts: list[float | None] = []

        async def proceed(one: Intercepted) -> None:
            timeouts.append(one.timeout)

        peer = self._live.remote
        await self._chain.run(Intercepted(self._chain, peer, self._name, timeout=timeout), proceed)
        if not timeouts:
            raise ParleyError(
                f"the event {self._name!r} was not emitted: an interceptor did not call proceed"
            )
        return await super().wait_writable(timeouts[-1])
