"""Addresses of Redis servers, and a coredis connection that runs in a task of the backend.

coredis connects, logs in, writes commands in order and assigns responses to requests. The response
to a cancelled request is discarded when it arrives. Errors never show passwords.
"""

import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import parse_qs, unquote, urlsplit

import anyio
from anyio.abc import ByteStream, TaskStatus
from coredis.commands import CommandRequest
from coredis.connection import BaseConnection, TCPLocation
from coredis.exceptions import RedisError

from parley._node.bus.redis.errors import (
    bus_error,
    check_version,
    is_no_answer,
    is_too_old,
    too_old,
)
from parley._node.errors import AddressError, ConfigError
from parley._node.transport.address import Address
from parley._node.transport.backend import Backend

DEFAULT_PORT: Final = 6379
DEFAULT_HOST: Final = "localhost"


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """The address of one server and database, and the user to log in as.

    Attributes:
        path: the path of a Unix socket; empty for TCP.
        tls: whether to use TLS, with the system's certificate authorities and host name checks.
    """

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    path: str = ""
    database: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False

    @property
    def place(self) -> Address:
        """The address to dial, without TLS.

        Raises:
            AddressError: it is not a valid address.
        """
        if self.path:
            return Address("unix", path=self.path)
        return Address("tcp", self.host, self.port)

    def __str__(self) -> str:
        return self.path or f"{self.host}:{self.port}"


def parse_address(url: str) -> RedisAddress:
    """Parse the URL of a Redis server.

    It has the form `redis[s]://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]` or
    `unix://[USER[:PASSWORD]@]PATH[?db=DATABASE]`.

    Raises:
        AddressError: `url` has neither form.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        # The error's text may contain part of a password.
        raise AddressError(
            "invalid Redis address: not a URL; use redis://HOST:PORT/DATABASE"
        ) from None
    if parts.scheme not in ("redis", "rediss", "unix"):
        raise AddressError(
            f"invalid Redis address: unknown scheme {parts.scheme!r}; use redis, rediss or unix"
        )
    username = unquote(parts.username) if parts.username else None
    password = unquote(parts.password) if parts.password else None
    if parts.scheme == "unix":
        if parts.path in ("", "/"):
            raise AddressError(
                "invalid Redis address: a Unix socket needs a path; use unix:///run/redis.sock"
            )
        database = parse_qs(parts.query).get("db", ["0"])[0]
        found = RedisAddress(
            path=unquote(parts.path),
            database=_database(database),
            username=username,
            password=password,
        )
    else:
        found = RedisAddress(
            host=parts.hostname or DEFAULT_HOST,
            port=DEFAULT_PORT if port is None else port,
            database=_database(parts.path.strip("/") or "0"),
            username=username,
            password=password,
            tls=parts.scheme == "rediss",
        )
    _ = found.place  # raises AddressError
    return found


def _database(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise AddressError(
            "invalid Redis address: the database must be a number; use redis://HOST:PORT/0"
        )
    return int(text)


class RedisRequest:
    """Commands that were sent together, and their responses.

    With `batch` the commands cost less, but cancelling the wait closes the connection.
    """

    def __init__(
        self,
        connection: BaseConnection,
        commands: Sequence[tuple[Any, ...]],
        timeout: float,
        batch: bool,
    ) -> None:
        self._batch: Awaitable[list[Any]] | None = None
        if batch:
            together: list[CommandRequest[Any]] = [
                CommandRequest(*words, execution_parameters={}) for words in commands
            ]
            self._batch = connection.create_request_batch(together, timeout)
            return
        self._requests = [
            connection.create_request(command, *arguments, raise_exceptions=False, timeout=timeout)
            for command, *arguments in commands
        ]

    async def wait(self) -> list[Any]:
        """Return the responses, with texts as bytes. Can be called again after a cancellation.

        A response can be an error of the server. For each response that did not arrive, the list
        has a TimeoutError or coredis.exceptions.ConnectionError.
        """
        if self._batch is not None:
            return await self._batch
        last: Any = await self._requests[-1]
        return [await one if one.complete else last for one in self._requests]

    async def only(self) -> Any:
        """Return the response to a single command.

        Raises:
            coredis.exceptions.ConnectionError, TimeoutError: no response arrived.
        """
        (answer,) = await self.wait()
        if isinstance(answer, BaseException) and is_no_answer(answer):
            raise answer
        return answer


class RedisConnection(BaseConnection):
    """A connection of coredis on a stream, created by `open_connection`.

    Discard it when it isn't `usable`, and close it with `invalidate`.
    """

    def __init__(self, address: RedisAddress, stream: ByteStream) -> None:
        super().__init__(
            TCPLocation(address.host, address.port),
            username=address.username,
            password=address.password,
            db=address.database,
        )
        self._address = address
        self._dialled = stream
        self._failure: Exception | None = None

    async def _connect(self) -> ByteStream:
        return self._dialled

    def describe(self) -> str:
        return f"{type(self).__name__}({self._address})"

    def send(
        self, commands: Sequence[tuple[Any, ...]], timeout: float, batch: bool = False
    ) -> RedisRequest:
        """Send commands together. Each response must arrive within `timeout` seconds.

        Use `batch` only in a task that is cancelled only when the client closes.

        Raises:
            coredis.exceptions.ConnectionError: the connection is lost.
        """
        return RedisRequest(self, commands, timeout, batch)

    async def listen(self, channel: str, receive: Callable[[bytes], None]) -> None:
        """Call `receive` with each message of a channel until the connection is closed.

        The connection can't be used for anything else.
        """
        with suppress(RedisError):
            self.send_command(b"SUBSCRIBE", channel)
            async with aclosing(self.push_messages) as messages:
                async for kind, _, message in cast(AsyncGenerator[list[Any], None], messages):
                    if kind == b"message":
                        receive(message)

    async def log_in(self, loop: Backend, ended: Callable[[], None]) -> None:
        """Run the connection in a task, and return after the login."""
        ready = loop.waiter()
        runner = loop.spawn(self._run, ready.wake, ended)
        try:
            await ready
            if self._failure is not None:
                raise self._failure
            check_version(self.server_version)
        except BaseException:
            runner.cancel()
            raise

    async def _run(self, ready: Callable[[], None], ended: Callable[[], None]) -> None:
        try:
            await self.run(task_status=_Started(ready))
        except Exception as error:
            self._failure = error
        finally:
            ready()
            ended()


class _Started(TaskStatus[None]):
    """Calls `ready` when coredis has logged in."""

    def __init__(self, ready: Callable[[], None]) -> None:
        self._ready = ready

    def started(self, value: None = None) -> None:
        self._ready()


async def open_connection(
    loop: Backend, address: RedisAddress, timeout: float, ended: Callable[[RedisConnection], None]
) -> RedisConnection:
    """Connect and log in within `timeout` seconds. `ended` is called when the connection ends.

    Raises:
        BusUnavailableError: no server answers.
        BusRefusedError: the server rejects the user or password.
        ConfigError: the server is too old.
    """
    try:
        with anyio.fail_after(timeout):
            connection = RedisConnection(address, await _dial(address))
            await connection.log_in(loop, lambda: ended(connection))
            return connection
    except ConfigError:
        raise
    except Exception as error:
        if not is_too_old(error):
            refusal = bus_error(error)
            raise type(refusal)(f"{refusal} ({address})") from error
    raise too_old(
        None
    )  # Raised outside the `except`, because the text of that error contains the password.


async def _dial(address: RedisAddress) -> ByteStream:
    """Connect without coredis, whose connections leak their buffers when they cannot connect."""
    if address.path:
        return await anyio.connect_unix(address.path)
    if not address.tls:
        return await anyio.connect_tcp(address.host, address.port)
    return await anyio.connect_tcp(
        address.host,
        address.port,
        ssl_context=ssl.create_default_context(),
        tls_standard_compatible=False,
    )
