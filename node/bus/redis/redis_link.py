"""One connection to Redis, in a task of its own: commands in, answers out, in their order.

coredis's connection is entered and left in this one task, and callers may be cancelled: the answer
is then taken and dropped. Nothing is sent twice.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from coredis.connection import BaseConnection

from node.bus.redis.redis_address import RedisAddress
from node.bus.redis.redis_errors import bus_error, check_version, is_too_old
from node.errors import ConfigError
from node.transport.loop import Loop, Runner
from node.transport.waiting import Changes

# Seconds that a connection may take to close.
_CLOSE_PATIENCE: Final = 2.0


class _Command(NamedTuple):
    """A command as coredis takes it for a batch."""

    name: bytes
    serialized_arguments: tuple[Any, ...]
    decode: bool = False


class RedisLink:
    """A connection; `await connect()` first. Once it is not `usable` any more, discard it."""

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
        """The number by which the server knows it."""
        return self._connection.client_id or 0

    @property
    def server_version(self) -> str | None:
        """The version of the server, as it says."""
        return self._connection.server_version

    async def connect(self, timeout: float) -> None:
        """Connect and greet, within `timeout` seconds.

        Raises:
            BusUnavailableError: no server answers. BusRefusedError: the server wants another user
                or password. ConfigError: it is too old.
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
        """Send a command; await what is returned for the answer, as the server has it, texts as
        bytes.

        Raises:
            coredis.exceptions.ConnectionError: the connection is lost.
        """
        return self._connection.create_request(words[0], *words[1:], decode=False, timeout=timeout)

    async def answers(self, several: Sequence[tuple[Any, ...]], timeout: float) -> list[Any]:
        """The answers to commands that are sent together, or for each the error in its place. A
        caller that is cancelled gives up the connection.

        Raises:
            coredis.exceptions.ConnectionError: the connection is lost.
        """
        commands: Any = [_Command(words[0], words[1:]) for words in several]
        return list(await self._connection.create_request_batch(commands, timeout=timeout))

    def close(self) -> None:
        """Close now; callers that wait for an answer get an error."""
        self._connection.invalidate()
        if self._runner is not None and not self._connection.transport_healthy:
            self._runner.cancel()
        if not self._began:
            self._end()

    async def aclose(self) -> None:
        """Close, and wait until everything is gone."""
        self.close()
        if self._runner is not None:
            with anyio.move_on_after(_CLOSE_PATIENCE, shield=True):
                await self._changes.until(lambda: self._ended)

    # For coredis, which calls this once it is connected.

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
    """Close the buffers that a connection made in its constructor.

    coredis 6.9 closes them only at the end of a `run` that got as far as a connected socket;
    `invalidate` cancels tasks, and nothing else of its interface closes them. Left open, anyio
    warns of each when it is collected.
    """
    for held in vars(connection).values():
        if isinstance(held, (MemoryObjectSendStream, MemoryObjectReceiveStream)):
            held.close()
