"""One connection to Redis: commands out, answers in, in their order (RESP3).

Bytes go straight to the loop's transport, and answers to those who wait for them, without a task,
a scope or a timer for each. Parser and errors are coredis's; its connection has all three, which
cost more than everything else together. Callers may be cancelled: the answer is then taken and
dropped. Nothing is sent twice.
"""

import ssl
from collections import deque
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any, Final

import anyio
from coredis.constants.resp import DataType
from coredis.exceptions import ConnectionError as LostConnectionError
from coredis.parser import NotEnoughData, Parser

from parley._node.bus.redis.redis_address import RedisAddress
from parley._node.bus.redis.redis_errors import bus_error, check_version, is_too_old
from parley._node.errors import ConfigError
from parley._node.transport.alarm import Alarm
from parley._node.transport.backend import Backend
from parley._node.transport.gate import Outlet
from parley._node.transport.loop import Waiter
from parley._node.transport.stream_outlet import StreamOutlet

# Whom to log in as with a password alone.
_DEFAULT_USER: Final = "default"
# Bytes of answers that were read and may still be held.
_READ: Final = 2**20


class RedisRequest:
    """Commands that were sent together, and their answers as they come. `due` is when the last one
    has to be there, in seconds of the loop."""

    __slots__ = ("_loop", "_over", "_waiter", "answers", "due", "wanted")

    def __init__(self, loop: Backend, wanted: int, due: float) -> None:
        self._loop = loop
        self._waiter: Waiter | None = None
        self._over: Callable[[], None] | None = None
        self.answers: list[Any] = []
        self.wanted = wanted
        self.due = due

    async def wait(self) -> list[Any]:
        """The answers, texts as bytes; the server's error, or the loss of the connection, in place
        of an answer. After a cancellation it can be asked again."""
        while len(self.answers) < self.wanted:
            self._waiter = self._loop.waiter()
            await self._waiter
        return self.answers

    def leave(self, over: Callable[[], None]) -> None:
        """Nobody waits any more: `over` is called once the last answer is there."""
        if len(self.answers) < self.wanted:
            self._over = over
        else:
            over()

    def take(self, answer: object) -> bool:
        """The next answer; whether it was the last."""
        self.answers.append(answer)
        if len(self.answers) < self.wanted:
            return False
        if self._waiter is not None:
            self._waiter.wake()
        if self._over is not None:
            self._over()
        return True

    def fail(self, error: BaseException) -> None:
        """No further answer comes."""
        while not self.take(error):
            pass


class RedisLink:
    """A connection; `await connect()` first. Once it is not `usable` any more, discard it."""

    def __init__(
        self, loop: Backend, address: RedisAddress, message: Callable[[bytes], None] | None = None
    ) -> None:
        """`message` is called with each message of the channels that were subscribed to."""
        self._loop = loop
        self._address = address
        self._message = message
        self._outlet: Outlet | None = None
        self._parser = Parser()
        self._requests: deque[RedisRequest] = deque()
        self._alarm = Alarm(loop, self._rung)
        self._ended: BaseException | None = None  # why
        self.usable = False
        self.client_id = 0  # the number by which the server knows it

    async def connect(self, timeout: float) -> None:
        """Connect and greet, within `timeout` seconds.

        Raises:
            BusUnavailableError: no server answers. BusRefusedError: the server wants another user
                or password. ConfigError: it is too old.
        """
        try:
            with anyio.fail_after(timeout):
                await self._dial()
                await self._greet(timeout)
        except ConfigError:
            self.close()
            raise
        except Exception as error:
            self.close()
            if not is_too_old(error):
                refusal = bus_error(error)
                raise type(refusal)(f"{refusal} ({self._address})") from error
        except BaseException:
            self.close()
            raise
        if not self.usable:  # said here: what so old a server answers has the password in it
            check_version(None)

    def send(self, several: Sequence[tuple[Any, ...]], timeout: float) -> RedisRequest:
        """Send commands together; wait at what is returned for their answers.

        Raises:
            coredis.exceptions.ConnectionError: the connection is lost.
        """
        if self._outlet is None or self._ended is not None:
            raise LostConnectionError("the connection was lost") from self._ended
        data = b"".join(map(packed, several))
        request = RedisRequest(self._loop, len(several), self._loop.now() + timeout)
        self._requests.append(request)
        self._outlet.write(data)
        if request.due < self._alarm.at:
            self._alarm.set(request.due)
        return request

    def close(self) -> None:
        """Close now; callers that wait for an answer get an error."""
        self._lose(LostConnectionError("the connection was closed"))

    # From the transport.

    def connected(self, outlet: Outlet) -> None:
        """The transport is there."""
        self._outlet = outlet
        if self._ended is not None:  # given up while it was being dialled
            outlet.close()

    def received(self, data: bytes) -> None:
        """Answers came, or parts of them."""
        parser, requests = self._parser, self._requests
        try:
            parser.feed(data)
            while not isinstance(parsed := parser.parse(), NotEnoughData):
                if parsed[0] is DataType.PUSH and not self._is_answer(parsed[1]):
                    continue
                if requests[0].take(parsed[1]):
                    requests.popleft()
            if parser.bytes_read > _READ:
                _free_read(parser)
        except Exception as error:  # not the language of Redis, or more than was asked for
            lost = LostConnectionError(f"an answer that cannot be read: {error}")
            lost.__cause__ = error
            self._lose(lost)

    def _is_answer(self, pushed: list[Any]) -> bool:
        """Take a message that the server sent by itself; True for the answer to a SUBSCRIBE, which
        comes in the same form."""
        if pushed[0] == b"message" and self._message is not None:
            self._message(pushed[2])
        return bool(pushed[0] == b"subscribe")

    def ended(self) -> None:
        """The server is gone."""
        self._lose(LostConnectionError("the connection was lost"))

    def may_write(self) -> None:
        """Nothing is held back: how many commands are under way is bounded before."""

    # Inside.

    async def _dial(self) -> None:
        address = self._address
        if not address.tls:
            await self._loop.connect(address.place, lambda: self)
            return
        stream = await anyio.connect_tcp(
            address.host,
            address.port,
            tls=True,
            ssl_context=ssl.create_default_context(),
            tls_standard_compatible=False,
        )
        StreamOutlet(stream, self, self._loop)

    async def _greet(self, timeout: float) -> None:
        address = self._address
        hello: tuple[Any, ...] = (b"HELLO", 3)
        if address.username or address.password:
            user = address.username or _DEFAULT_USER
            hello = (*hello, b"AUTH", user, address.password or "")
        commands = [hello]
        if address.database:
            commands.append((b"SELECT", address.database))
        answers = await self.send(commands, timeout).wait()
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        self.client_id = answers[0][b"id"]
        check_version(answers[0][b"version"].decode())
        self.usable = True

    def _rung(self, now: float) -> None:
        """The first of the requests is the one that is served: has it waited too long?"""
        if not self._requests:
            return
        due = self._requests[0].due
        if due <= now:
            self._lose(TimeoutError("timed out"))
        else:
            self._alarm.set(max(due, self._alarm.earliest))

    def _lose(self, error: BaseException) -> None:
        if self._ended is not None:
            return
        self._ended = error
        self.usable = False
        self._alarm.stop()
        if self._outlet is not None:
            self._outlet.close()
        while self._requests:
            self._requests.popleft().fail(error)


def _free_read(parser: Parser) -> None:
    """Free what was read. The parser itself does so when all that came was read, which need never
    be while answers follow each other."""
    rest = parser.localbuffer.getvalue()[parser.bytes_read :]
    parser.localbuffer = BytesIO()
    parser.bytes_read = parser.bytes_written = 0
    parser.feed(rest)


def packed(words: Sequence[str | bytes | float]) -> bytes:
    """A command as Redis reads it: an array of bulk strings."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        if isinstance(word, str):
            word = word.encode()
        elif not isinstance(word, bytes):
            word = (b"%d" if isinstance(word, int) else b"%.15g") % word
        parts.append(b"$%d\r\n%b\r\n" % (len(word), word))
    return b"".join(parts)
