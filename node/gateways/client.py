"""`DialectClient`: what the clients of all foreign dialects share: connecting and leaving.

It has one connection, for as long as its `async with`. A subclass knows the dialect.
"""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Generic, Self, TypeVar

import anyio
from anyio.abc import ByteStream

from node.errors import ParleyError, UnreachableError
from node.gateways.guest import Guest
from node.protocol.limits import CLOSE_LINGER
from node.transport.address import Address
from node.transport.backend import Backend
from node.transport.ground import Ground
from node.transport.stream_outlet import StreamOutlet

G = TypeVar("G", bound=Guest)

CONNECT_TIMEOUT = 10.0
# Seconds for what is queued to be written, and for the other side to hang up.
CLOSE_TIMEOUT = CLOSE_LINGER + 1.0


class DialectClient(ABC, Generic[G]):
    """A connection in one dialect to `target`, an address or any byte stream; `timeout` is
    in seconds, for connecting.

    Raises:
        AddressError: not an address.
    """

    def __init__(self, target: str | ByteStream, timeout: float) -> None:
        self._target: Address | ByteStream
        if isinstance(target, str):
            self._target = Address.parse(target).without_node_id()
            self._place = self._target.place
        else:
            self._target = target
            self._place = "a stream"
        self._timeout = timeout
        self._ground = Ground("the client")
        self._guest: G | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._place}>"

    @property
    def is_open(self) -> bool:
        """Whether it is connected, as far as this side knows."""
        return self._guest is not None and self._guest.is_open

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            UnreachableError: the other side does not answer, or not in time. ParleyError: it
                is running already.
        """
        backend = await self._ground.enter()
        guest = self._new_guest(backend, self._place)
        try:
            await self._connect(backend, guest)
        except BaseException as error:
            guest.drop()
            await self._ground.leave()
            if isinstance(error, TimeoutError):
                text = f"{self._place} did not answer in {self._timeout:g} s"
                raise UnreachableError(text) from error
            raise
        self._guest = guest
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        """Close; after an exception, at once."""
        guest = self._connected()
        try:
            if exc_type is None:
                with anyio.move_on_after(CLOSE_TIMEOUT):
                    await guest.close()
            guest.drop()
        finally:
            await self._ground.leave()

    # For the dialects.

    @abstractmethod
    def _new_guest(self, backend: Backend, place: str) -> G:
        """The other side."""

    def _connected(self) -> G:
        """The other side; ParleyError before the client is connected."""
        if self._guest is None:
            raise ParleyError("the client is not connected: use `async with`")
        return self._guest

    async def _connect(self, backend: Backend, guest: G) -> None:
        if isinstance(self._target, Address):
            with anyio.fail_after(self._timeout):
                await backend.connect(self._target, lambda: guest.driver)
        else:
            StreamOutlet(self._target, guest.driver, backend)
