"""The Redis client: a shared connection for commands, and others for blocking reads and a channel.

Every failure is raised as a BusError and makes the next command reconnect. No command is sent
twice. Commands of concurrent tasks are sent together.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final, TypeAlias, cast

import anyio
from anyio import get_cancelled_exc_class
from coredis.exceptions import NoScriptError, RedisError

from parley._node.bus.batcher import Batcher, Bounds, Cost
from parley._node.bus.errors import BusClosedError, BusError
from parley._node.bus.redis.connection import (
    RedisAddress,
    RedisConnection,
    RedisRequest,
    open_connection,
)
from parley._node.bus.redis.errors import bus_error, is_missing_group, is_no_answer
from parley._node.bus.redis.scripts import GroupKeys, Script
from parley._node.errors import ParleyError
from parley._node.transport.backend import Backend
from parley._node.transport.conditions import Condition

Word: TypeAlias = str | bytes | int | float
Commands: TypeAlias = Sequence[tuple[Word, ...]]

# The limits of one request (commands, and bytes of their words, which a single caller may exceed),
# and the number of requests that can wait for responses.
MOST_TOGETHER: Final = 256
LARGEST_TOGETHER: Final = 2**20
REQUESTS: Final = 8

# The most idle connections for blocking reads.
IDLE_READERS: Final = 16
# The most connections. A further blocking read waits until one is free.
MOST_CONNECTIONS: Final = 1_000
# How long a cancellation waits for events to be released, in seconds.
CANCEL_PATIENCE: Final = 2.0
# Seconds before the client reconnects to listen on its channel.
_LISTEN_PAUSE: Final = 1.0
# The interval between attempts to end the read of a cancelled caller, in seconds, and their number.
_UNBLOCK_PAUSE: Final = 0.05
_UNBLOCK_TRIES: Final = 40


class RedisClient:
    """The client of one server.

    `timeout` is the time limit for each response, in seconds. At most `waiting` commands are in
    progress; further commands wait.
    """

    def __init__(self, loop: Backend, address: RedisAddress, timeout: float, waiting: int) -> None:
        self._loop = loop
        self._address = address
        self._timeout = timeout
        self._waiting = waiting
        self._changes = Condition(loop.waiter)
        self._shared: RedisConnection | None = None
        self._connecting = False
        self._failure: ParleyError | None = None
        self._under_way = 0  # Commands of callers that wait.
        self._left = 0  # Commands of cancelled callers.
        bounds = Bounds(MOST_TOGETHER, LARGEST_TOGETHER, REQUESTS)
        self._batcher = Batcher(self._ask, _cost, loop, bounds)
        self._finishing = 0
        self._readers: list[RedisConnection] = []  # idle
        self._connections: set[RedisConnection] = set()
        self._dialled = 0  # Connections being established.
        self._closed = False
        self._listens = False

    async def open(self) -> None:
        """Connect for the first time.

        Raises:
            BusError: the connection failed.
            ConfigError: the server is too old.
        """
        await self._get_connection()

    async def aclose(self) -> None:
        """Wait for commands in progress, end blocking reads, and disconnect."""
        with anyio.move_on_after(self._timeout):
            # A read that is ended releases its events with further commands.
            await self._changes.until(lambda: not self._finishing)
        self._closed = True
        self._changes.notify()
        for reader in self._connections - {self._shared}:
            reader.invalidate()
        with anyio.move_on_after(self._timeout):
            await self._changes.until(lambda: not self._under_way and not self._finishing)
        for connection in self._connections:
            connection.invalidate()
        with anyio.move_on_after(self._timeout):
            await self._changes.until(lambda: not self._connections)

    def subscribe(self, channel: str, receive: Callable[[bytes], None]) -> None:
        """Call `receive` with each message of a channel from now on. Later calls have no effect.

        Messages can be lost, and the server can refuse the subscription.
        """
        if not self._listens and not self._closed:
            self._listens = True
            self._loop.spawn(self._listen, channel, receive)

    async def _listen(self, channel: str, receive: Callable[[bytes], None]) -> None:
        while not self._closed:
            with suppress(ParleyError):
                connection = await self._connect()
                try:
                    await connection.listen(channel, receive)
                finally:
                    connection.invalidate()
            with anyio.move_on_after(_LISTEN_PAUSE):
                await self._changes.until(lambda: self._closed)

    @property
    def under_way(self) -> int:
        """The number of commands without a response."""
        return self._under_way + self._left

    def check_open(self) -> None:
        if self._closed:
            raise BusClosedError("the bus is closed")

    async def command(self, *words: Word) -> Any:
        """Return the response to one command.

        Raises:
            BusError: the command failed.
        """
        try:
            return await self.raw(*words)
        except RedisError as error:
            raise bus_error(error) from error

    async def raw(self, *words: Word) -> Any:
        """Return the response to one command.

        Raises:
            coredis.exceptions.RedisError: the server returned an error.
            BusError: any other failure.
        """
        (answer,) = await self.commands([words])
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def commands(self, several: Commands) -> list[Any]:
        """Send commands together and return their responses, which can be errors of the server.

        The commands are not atomic.

        Raises:
            BusError: the connection was lost.
        """
        self.check_open()
        if self.under_way >= self._waiting:
            await self._wait_for_slot()
        self._under_way += 1
        try:
            return await self._batcher.submit(several)
        finally:
            self._done()

    async def _ask(self, callers: Sequence[Commands]) -> list[list[Any] | ParleyError]:
        """Return the responses, or the error, for each caller."""
        try:
            connection = await self._get_connection()
        except ParleyError as error:
            return [error for _ in callers]  # One attempt is enough for all callers.
        together = [words for several in callers for words in several]
        try:
            # A batch runs in the batcher's task, a single request in its caller's.
            request = connection.send(together, self._timeout, batch=len(callers) > 1)
        except RedisError as error:
            return [self._lost(connection, error) for _ in callers]
        try:
            answers = iter(await request.wait())
        except get_cancelled_exc_class():
            self._left += 1
            self._loop.spawn(self._discard_answers, connection, request)
            raise
        return [
            self._outcome(connection, list(islice(answers, len(several)))) for several in callers
        ]

    async def _discard_answers(self, connection: RedisConnection, request: RedisRequest) -> None:
        """Count the commands of cancelled callers until their responses arrive."""
        try:
            self._outcome(connection, await request.wait())
        finally:
            self._left -= 1
            self._changes.notify()

    def _outcome(self, connection: RedisConnection, answers: list[Any]) -> list[Any] | ParleyError:
        for answer in answers:
            if isinstance(answer, BaseException) and is_no_answer(answer):
                return self._lost(connection, answer)
        return answers

    def _lost(self, connection: RedisConnection, error: BaseException) -> ParleyError:
        """Discard a connection that did not respond, and return the error to raise."""
        connection.invalidate()
        lost = BusClosedError("the bus is closed") if self._closed else bus_error(error)
        lost.__cause__ = error
        return lost

    async def script(self, script: Script, keys: Sequence[Word], *arguments: Word) -> Any:
        """Return the response to a script.

        Raises:
            coredis.exceptions.RedisError: the script failed.
            BusError: any other failure.
        """
        rest = (len(keys), *keys, *arguments)
        try:
            return await self.raw(b"EVALSHA", script.digest, *rest)
        except NoScriptError:
            return await self.raw(b"EVAL", script.text, *rest)

    async def group_script(
        self, script: Script, keys: GroupKeys, group: Word, consumer: str, *words: Word
    ) -> Any:
        """Return the response to a script of a group, or None if the group does not exist.

        Raises:
            BusError: the script failed.
        """
        try:
            return await self.script(script, keys, group, consumer, *words)
        except RedisError as error:
            if is_missing_group(error):
                return None
            raise bus_error(error) from error

    async def try_script(self, script: Script, keys: Sequence[Word], *arguments: Word) -> None:
        """Run a script and ignore failures."""
        with suppress(RedisError, BusError):
            await self.script(script, keys, *arguments)

    async def blocking(
        self,
        words: tuple[Word, ...],
        block: float,
        unwanted: Callable[[Any], Awaitable[object]],
        lost: Callable[[], None] = lambda: None,
    ) -> Any:
        """Return the response to a command that can block for `block` seconds.

        If the caller is cancelled, the read is ended and `unwanted` is called with the response.
        Without a response, or if `unwanted` fails, `lost` is called.

        Raises:
            coredis.exceptions.RedisError: the server returned an error.
            BusError: any other failure.
        """
        reader = await self._reader()
        request: RedisRequest
        try:
            request = reader.send([words], block + self._timeout)
            answer = await request.only()
        except get_cancelled_exc_class():
            self._finishing += 1
            over = self._loop.waiter()
            self._loop.spawn(self._finish, reader, request, unwanted, lost, over.wake)
            # The next caller should find the released events, but this must not take long.
            with anyio.move_on_after(CANCEL_PATIENCE, shield=True):
                await over
            raise
        except (RedisError, OSError) as error:
            reader.invalidate()
            self.check_open()
            raise bus_error(error) from error
        self._put_back(reader)
        self.check_open()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    # Connections.

    async def _get_connection(self) -> RedisConnection:
        """Return the shared connection, reconnected if it was lost.

        One task connects, and all waiting tasks share the result.
        """
        self.check_open()
        while self._shared is None or not self._shared.usable:
            if not self._connecting:
                return await self._reconnect()
            await self._changes.until(lambda: not self._connecting)
            self.check_open()
            if self._failure is not None:
                raise type(self._failure)(str(self._failure)) from self._failure
        return self._shared

    async def _reconnect(self) -> RedisConnection:
        self._connecting, self._failure = True, None
        try:
            if self._shared is not None:
                self._shared.invalidate()
            self._shared = await self._connect()
            return self._shared
        except ParleyError as error:
            self._failure = error
            raise
        finally:
            self._connecting = False
            self._changes.notify()

    async def _reader(self) -> RedisConnection:
        self.check_open()
        while True:
            while self._readers:
                reader = self._readers.pop()
                if reader.usable:
                    return reader
                reader.invalidate()
            if self._may_connect():
                return await self._connect()
            await self._changes.until(
                lambda: self._closed or bool(self._readers) or self._may_connect()
            )
            self.check_open()

    def _may_connect(self) -> bool:
        return len(self._connections) + self._dialled < MOST_CONNECTIONS

    async def _connect(self) -> RedisConnection:
        self._dialled += 1
        try:
            connection = await open_connection(
                self._loop, self._address, self._timeout, self._on_ended
            )
            if connection.usable:
                self._connections.add(connection)
            return connection
        finally:
            self._dialled -= 1
            self._changes.notify()

    def _on_ended(self, connection: RedisConnection) -> None:
        self._connections.discard(connection)
        self._changes.notify()

    def _put_back(self, reader: RedisConnection) -> None:
        if reader.usable and len(self._readers) < IDLE_READERS and not self._closed:
            self._readers.append(reader)
            self._changes.notify()
        else:
            reader.invalidate()

    async def _finish(
        self,
        reader: RedisConnection,
        request: RedisRequest,
        unwanted: Callable[[Any], Awaitable[object]],
        lost: Callable[[], None],
        over: Callable[[], None],
    ) -> None:
        """End the read of a cancelled caller, release its events, and reuse the connection."""
        try:
            for _ in range(_UNBLOCK_TRIES):
                # The read may not have started at the first attempt.
                await self.command(b"CLIENT", b"UNBLOCK", reader.client_id or 0)
                with anyio.move_on_after(_UNBLOCK_PAUSE) as scope:
                    answer = await request.only()
                if not scope.cancelled_caught:
                    break
            else:
                reader.invalidate()
                lost()
                return
            await unwanted(answer)
            self._put_back(reader)
        except (BusError, RedisError, OSError):
            reader.invalidate()
            lost()
        finally:
            self._finishing -= 1
            self._changes.notify()
            over()

    # The limit of commands in progress.

    async def _wait_for_slot(self) -> None:
        await self._changes.until(lambda: self.under_way < self._waiting)
        self.check_open()

    def _done(self) -> None:
        self._under_way -= 1
        if self._closed or self.under_way == self._waiting - 1:
            self._changes.notify()


def _cost(several: Commands) -> Cost:
    return Cost(len(several), sum([_size(words) for words in several]))


def _size(words: tuple[Word, ...]) -> int:
    """Return about how many bytes the words have, ignoring numbers."""
    try:
        return sum(map(len, cast(tuple[str, ...], words)))  # In most commands, all words are text.
    except TypeError:
        return sum([len(word) for word in words if isinstance(word, str | bytes)])
