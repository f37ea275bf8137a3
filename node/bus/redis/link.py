"""One connection to Redis, in a task of its own: commands in, answers out, in their order.

One rule: coredis's connection is entered and left in one task, which the loop was asked for, and
whoever sends on it may be cancelled: the answer is then taken and dropped. Nothing is sent twice.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from coredis.connection import BaseConnection

from node.bus.redis.address import RedisAddress
from node.bus.redis.faults import bus_error, check_version, is_too_old
from node.errors import ConfigError
from node.transport.loop import Loop, Runner
from node.transport.waiting import Changes

# Seconds that a connection may take to let go once it was told to.
_CLOSE_PATIENCE: Final = 2.0


class _Command(NamedTuple):
    """A command as coredis takes it for a batch."""

    name: bytes
    serialized_arguments: tuple[Any, ...]
    decode: bool = False


class Link:
    """A connection; `await connect()` first. It is used up when it is not `usable` any more."""

    __slots__ = (
        "_address",
        "_began",
        "_changes",
        "_connection",
        "_ended",
        "_failed",
        "_loop",
        "_runner",
    )

    def __init__(self, loop: Loop, address: RedisAddress, timeout: float) -> None:
        self._loop = loop
        self._address = address
        self._connection: BaseConnection = address.connection(timeout)
        self._changes = Changes(loop.waiter)
        self._runner: Runner | None = None
        self._failed: Exception | None = None
        self._began = False
        self._ended = False

    @property
    def usable(self) -> bool:
        """Whether commands can be sent."""
        return self._connection.usable

    @property
    def client_id(self) -> int:
        """By what the server knows it."""
        return self._connection.client_id or 0

    @property
    def server_version(self) -> str | None:
        """Of the server, as it says itself."""
        return self._connection.server_version

    async def connect(self, timeout: float) -> None:
        """Connect and greet, within `timeout` seconds.

        Raises:
            BusUnavailableError: nobody answers. BusRefusedError: the server wants another user or
                password. ConfigError: it is too old.
        """
        self._runner = self._loop.spawn(self._run)
        try:
            with anyio.fail_after(timeout):
                await self._changes.until(lambda: self._ended or self.usable)
            if not self.usable:
                raise self._failed or ConnectionError("the connection was lost at once")
            check_version(self.server_version)
        except ConfigError:
            self.close()
            raise
        except Exception as error:
            self.close()
            if is_too_old(error):
                check_version(None)
            refusal = bus_error(error)
            raise type(refusal)(f"{refusal} ({self._address})") from error
        except BaseException:
            self.close()
            raise

    def send(self, words: tuple[Any, ...], timeout: float) -> Any:
        """Send a command; what is returned is awaited for the answer, which is as the server has
        it, texts as bytes.

        Raises:
            coredis.exceptions.ConnectionError: the connection is lost.
        """
        return self._connection.create_request(words[0], *words[1:], decode=False, timeout=timeout)

    async def answers(self, several: Sequence[tuple[Any, ...]], timeout: float) -> list[Any]:
        """The answers to commands that are sent in one go, or of each the error that it was, be
        it that none came. Who is cancelled here gives up the connection.

        Raises:
            coredis.exceptions.ConnectionError: the connection is lost.
        """
        commands: Any = [_Command(words[0], words[1:]) for words in several]
        return list(await self._connection.create_request_batch(commands, timeout=timeout))

    def close(self) -> None:
        """Let go now; what waits for an answer gets an error."""
        self._connection.invalidate()
        if self._runner is not None and not self._connection.transport_healthy:
            self._runner.cancel()
        if not self._began:
            self._end()

    async def aclose(self) -> None:
        """Let go, and wait until all is gone."""
        self.close()
        if self._runner is not None:
            with anyio.move_on_after(_CLOSE_PATIENCE, shield=True):
                await self._changes.until(lambda: self._ended)

    # For coredis: what it tells that it is connected.

    def started(self, value: object = None) -> None:
        """The connection can be used."""
        self._changes.notify()

    async def _run(self) -> None:
        self._began = True
        try:
            await self._connection.run(task_status=self)
        except Exception as error:
            self._failed = error
        finally:
            self._end()

    def _end(self) -> None:
        self._ended = True
        close_buffers(self._connection)
        self._changes.notify()


def close_buffers(connection: BaseConnection) -> None:
    """Close what a connection has opened for itself: it does so only where it was connected."""
    for held in vars(connection).values():
        if isinstance(held, (MemoryObjectSendStream, MemoryObjectReceiveStream)):
            held.close()
