"""The base class of the clients of foreign dialects: connecting, reconnecting and closing."""

from abc import abstractmethod
from types import TracebackType
from typing import Self, TypeVar

import anyio
from anyio.abc import ByteStream

from parley._node.backoff import Backoff
from parley._node.errors import ConfigError, ParleyError, PeerClosedError, UnreachableError
from parley._node.gateways.guest import Guest
from parley._node.peer.reconnecting import ReconnectingClient
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.limits import CLOSE_LINGER
from parley._node.transport.address import Address
from parley._node.transport.backend import Backend
from parley._node.transport.task_scope import TaskScope
from parley._node.transport.transport import StreamTransport

G = TypeVar("G", bound=Guest)

CONNECT_TIMEOUT = 10.0
# Seconds to write the queued data and to wait until the other side closes.
CLOSE_TIMEOUT = CLOSE_LINGER + 1.0


class DialectClient(ReconnectingClient[G]):
    """A client with one connection; with `pauses` it reconnects.

    While a reconnecting client has no connection, requests wait within their timeouts. Requests in
    progress when a connection is lost fail with PeerClosedError and are not repeated. Hooks are
    only called with `pauses`.

    Raises:
        AddressError: the target is not a valid address.
        ConfigError: `pauses` was given with a byte stream, which cannot be redialled.
    """

    def __init__(
        self, target: str | ByteStream, timeout: float, pauses: Backoff | None = None
    ) -> None:
        self._target: Address | ByteStream
        if isinstance(target, str):
            self._target = Address.parse(target).without_node_id()
            self._place = self._target.place
        elif pauses is not None:
            raise ConfigError(
                f"cannot use pauses={pauses!r} with a byte stream, which cannot be redialled; "
                "give an address, or leave pauses out"
            )
        else:
            self._target = target
            self._place = "a stream"
        super().__init__(f"client of {self._place}", pauses)
        self._timeout = timeout
        self._redials = pauses is not None
        self._scope = TaskScope("the client")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._place}>"

    @property
    def is_open(self) -> bool:
        """Whether the client is connected, as far as this side knows."""
        return self._current is not None and self._current.is_open

    @property
    def is_over(self) -> bool:
        """Whether no further connection will follow."""
        return super().is_over if self._redials else not self.is_open

    async def __aenter__(self) -> Self:
        """Connect; with pauses, only start to connect: `ready` waits for the connection.

        Raises:
            UnreachableError: without pauses, the other side did not answer in time.
            ParleyError: the client is already running.
        """
        self._loop = await self._scope.enter()
        self._current, self._left = None, False
        if self._redials:
            self._redial.begin(self._loop)
            return self
        try:
            self._current = await self._dial()
            self.sessions += 1
        except BaseException:
            await self._scope.leave()
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        """Close the connection and stop dialling; after an exception, without waiting."""
        try:
            if exc_type is None:
                with anyio.move_on_after(CLOSE_TIMEOUT):
                    await self._close()
            self._finish()
            if self._current is not None:
                self._current.drop()
        finally:
            await self._stop()
            await self._scope.leave()

    def over_error(self) -> ParleyError:
        if self._redials:
            return PeerClosedError(CloseCode.NORMAL, "the client was closed")
        return self._why(self._guest())

    # Subclasses implement or use these.

    @abstractmethod
    def _new_guest(self, backend: Backend, place: str) -> G: ...

    def _why(self, guest: G) -> ParleyError:
        return guest.closed_error()

    def _guest(self) -> G:
        """Return the last connection; raises ParleyError before the first one."""
        if self._current is None:
            raise ParleyError(
                f"the client of {self._place} is not connected; enter it with `async with`"
            )
        return self._current

    @property
    def _must_wait(self) -> bool:
        """Whether requests must wait for a connection."""
        return self._redials and not self.is_open

    async def _close(self, code: int = CloseCode.NORMAL, text: str = "") -> None:
        """Send queued data, then end the connection permanently."""
        self._finish()
        guest = self._current if self._redials else self._guest()
        if guest is not None:
            await guest.close(code, text)

    # For `ReconnectingClient`.

    def _usable(self) -> G | None:
        return self._current if self.is_open else None

    async def _attempt(self) -> Exception:
        guest = await self._dial()
        try:
            self._came(guest)
            self._holds()
            await guest.closed()
            return self._why(guest)
        finally:
            if guest.is_open:  # otherwise the last data may still be in transit
                guest.drop()
            self._up.cancel()

    async def _dial(self) -> G:
        guest = self._new_guest(self.backend, self._place)
        try:
            if isinstance(self._target, Address):
                with anyio.fail_after(self._timeout):
                    await self.backend.connect(self._target, lambda: guest.driver)
            else:
                StreamTransport(self._target, guest.driver, self.backend)
        except BaseException as error:
            guest.drop()
            if isinstance(error, TimeoutError):
                text = f"cannot connect to {self._place}: no answer within {self._timeout:g} s"
                raise UnreachableError(text) from error
            raise
        return guest
