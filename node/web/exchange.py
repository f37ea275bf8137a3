"""One connection of HTTP/1.1: its requests in, what an ASGI application answers out.

Requests are answered one after the other. An error of the application is logged, answered with 500
if nothing was said yet, and ends the connection.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

import anyio
import h11
from anyio.abc import SocketAttribute, SocketStream

from parley._node.logs import LogRation
from parley._node.web.asgi import AsgiApp, Message, Scope
from parley._node.web.limits import WebLimits

logger = logging.getLogger("parley.web")

READ_SIZE: Final = 16 * 1024
# Seconds and bytes of reading on after an answer that came before the request's end: closing at
# once would reset the connection, and the answer might be lost with it.
LINGER: Final = 1.0
LINGER_SIZE: Final = 1024 * 1024

_TOO_LARGE: Final = HTTPStatus(413)  # its name changed with Python 3.13
_HEAD_TOO_LARGE: Final = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
# A proxy may see another end of a request with both headers than we do (RFC 9112, section 6.1).
_FRAMING: Final = {b"content-length", b"transfer-encoding"}
_CLOSED: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)


class HttpError(Exception):
    """A request that is answered with `status`, whatever the application would say."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(f"{status.value} {status.phrase}")
        self.status = status


class HttpConnection:
    """One connection, until it is closed; cancelling `scope` closes it. `failures` rate-limits the
    log lines on requests that the application could not answer. A request waits for `turns`, so
    that each turn of the event loop begins the answer to one request of all connections."""

    def __init__(
        self,
        stream: SocketStream,
        app: AsgiApp,
        limits: WebLimits,
        failures: LogRation,
        turns: anyio.Lock,
    ) -> None:
        self.scope = anyio.CancelScope()
        self.failures = failures
        self._turns = turns
        # Since when the client has to send or to read; None while the application works.
        self.waiting_since: float | None = anyio.current_time()
        self._stream = stream
        self._app = app
        self._limits = limits
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head)
        self._gone = False
        self._for_head = False  # whether the request that is answered has the method HEAD

    async def serve(self) -> None:
        """Answer requests as long as there are any."""
        try:
            while (request := await self._request()) is not None:
                self.waiting_since = None
                try:
                    async with self._turns:
                        pass
                    await HttpExchange(self, request).run()
                finally:
                    self.waiting_since = anyio.current_time()
                if not self._again():
                    break
        except HttpError as error:
            await self._refuse(error.status)
        await self._linger()

    # For the exchange.

    @property
    def app(self) -> AsgiApp:
        """Whatever answers."""
        return self._app

    @property
    def limits(self) -> WebLimits:
        """Its limits."""
        return self._limits

    @property
    def remote_host(self) -> str:
        """The client's address, without its port; empty if it has closed already."""
        address = self._address(SocketAttribute.remote_address)
        return "" if address is None else address[0]

    @property
    def gone(self) -> bool:
        """Whether the other side has closed, or taken too long."""
        return self._gone

    def next_event(self) -> Any:
        """What h11 has of the request; HttpError if that is no HTTP."""
        try:
            return self._http.next_event()
        except h11.RemoteProtocolError as error:
            raise HttpError(HTTPStatus(error.error_status_hint)) from error

    async def read(self) -> None:
        """Take what comes next; afterwards it may be `gone`."""
        try:
            data = await self._stream.receive(READ_SIZE)
        except _CLOSED:
            data, self._gone = b"", True
        self._http.receive_data(data)

    async def say_go_on(self) -> None:
        """Say 100 if the other side waits for that before it sends a body."""
        if self._http.they_are_waiting_for_100_continue:
            go_on = h11.InformationalResponse(status_code=100, headers=[])
            await self.write(self.encoded(go_on))

    def encoded(self, event: Any) -> bytes:
        """Its bytes on the wire; h11.LocalProtocolError if they would be no HTTP."""
        return self._http.send(event) or b""

    async def write(self, data: bytes) -> bool:
        """Write, and wait until that was taken; False if the other side is gone, or takes too
        long."""
        try:
            with self.waiting(), anyio.fail_after(self._limits.write):
                await self._stream.send(data)
        except (*_CLOSED, TimeoutError):
            self._gone = True
        return not self._gone

    @contextmanager
    def waiting(self, since: float | None = None) -> Iterator[None]:
        """Count as waiting for the client in this block, from now on or from `since`."""
        before = self.waiting_since
        if before is None:
            self.waiting_since = anyio.current_time() if since is None else since
        try:
            yield
        finally:
            self.waiting_since = before

    def asgi_scope(self, request: h11.Request) -> Scope:
        """A request in the words of ASGI; HttpError if it names no path."""
        raw_path, _, query = request.target.partition(b"?")
        if not raw_path.startswith(b"/"):
            raise HttpError(HTTPStatus.BAD_REQUEST)
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": request.http_version.decode("ascii"),
            "method": request.method.decode("ascii"),
            "scheme": "http",
            "path": unquote(raw_path.decode("ascii")),
            "raw_path": raw_path,
            "query_string": query,
            "root_path": "",
            "headers": list(request.headers),
            "client": self._address(SocketAttribute.remote_address),
            "server": self._address(SocketAttribute.local_address),
        }

    # Inside.

    def _address(self, which: Any) -> tuple[str, int] | None:
        """The address, or None if the connection is closed already."""
        try:
            found = self._stream.extra(which, None)  # noqa: S610 - nothing of Django
        except OSError:
            return None
        return None if found is None else found[:2]

    async def _request(self) -> h11.Request | None:
        with anyio.move_on_after(self._limits.idle):
            while True:
                unread = self._unread()
                event = self.next_event()
                if isinstance(event, h11.Request):
                    self._for_head = event.method == b"HEAD"
                    if unread - self._unread() > self._limits.head:
                        raise HttpError(_HEAD_TOO_LARGE)
                    if {name for name, _ in event.headers} >= _FRAMING:
                        raise HttpError(HTTPStatus.BAD_REQUEST)
                    return event
                if event is not h11.NEED_DATA:
                    return None
                await self.read()
        return None

    def _unread(self) -> int:
        """How many bytes came that h11 has not parsed yet."""
        return len(self._http.trailing_data[0])

    def _again(self) -> bool:
        """Whether another request may come: the last one came whole, and so did its answer."""
        http = self._http
        while http.their_state is h11.SEND_BODY and not self._gone:
            if self.next_event() is h11.NEED_DATA:
                return False
        if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
            return False
        http.start_next_cycle()
        self._for_head = False
        return True

    async def _refuse(self, status: HTTPStatus) -> None:
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            text = f"{status.value} {status.phrase}\n".encode()
            headers = [
                ("content-type", "text/plain; charset=utf-8"),
                ("content-length", str(len(text))),
                ("connection", "close"),
            ]
            said = h11.Response(status_code=status.value, headers=headers, reason=status.phrase)
            body = [] if self._for_head else [h11.Data(data=text)]
            data = [self.encoded(event) for event in (said, *body, h11.EndOfMessage())]
            await self.write(b"".join(data))

    async def _linger(self) -> None:
        if self._gone:
            return
        left = LINGER_SIZE
        with anyio.move_on_after(LINGER):
            try:
                await self._stream.send_eof()
                while left > 0:
                    left -= len(await self._stream.receive(READ_SIZE))
            except (*_CLOSED, OSError):
                return


class HttpExchange:
    """One request and its answer."""

    def __init__(self, connection: HttpConnection, request: h11.Request) -> None:
        self._connection = connection
        self._request = request
        self._left = connection.limits.body
        self._until = anyio.current_time() + connection.limits.idle  # for its body to be whole
        self._head = b""  # of the answer, until its body begins
        self._has_all = False
        self._answered = anyio.Event()
        self._scope = anyio.CancelScope()
        self._refused: HttpError | None = None

    async def run(self) -> None:
        """Have the application answer; it is cancelled where nobody can take that any more.

        Raises:
            HttpError: the request cannot be answered, or the application failed.
        """
        connection = self._connection
        scope = connection.asgi_scope(self._request)
        try:
            with self._scope:
                await connection.app(scope, self._receive, self._send)
        except Exception as error:
            connection.failures.log(
                logger,
                logging.ERROR,
                anyio.current_time(),
                "cannot answer a %s request",
                scope["method"],
                exc_info=True,
                extra={"event": "web.answer-failed"},
            )
            raise HttpError(HTTPStatus.INTERNAL_SERVER_ERROR) from error
        finally:
            self._answered.set()
        if self._refused is not None:
            raise self._refused

    async def _receive(self) -> Message:
        connection = self._connection
        try:
            if not self._has_all:
                return await self._part()
        except HttpError as error:
            self._refused = error
            self._scope.cancel()
        # Whole. What comes next is the end, or another request, which waits.
        if not connection.gone and not self._answered.is_set() and self._refused is None:
            await connection.read()
        if not connection.gone:
            await self._answered.wait()
        return {"type": "http.disconnect"}

    async def _part(self) -> Message:
        """What comes next of the body; HttpError if it is too late, too long or no HTTP."""
        connection = self._connection
        try:
            since = self._until - connection.limits.idle
            with (
                connection.waiting(since),
                anyio.fail_after(self._until - anyio.current_time()),
            ):
                await connection.say_go_on()
                while (event := connection.next_event()) is h11.NEED_DATA:
                    await connection.read()
        except TimeoutError:
            raise HttpError(HTTPStatus.REQUEST_TIMEOUT) from None
        if not isinstance(event, h11.Data):
            self._has_all = True
            return {"type": "http.request", "body": b"", "more_body": False}
        self._left -= len(event.data)
        if self._left < 0:
            raise HttpError(_TOO_LARGE)
        return {"type": "http.request", "body": bytes(event.data), "more_body": True}

    async def _send(self, message: Message) -> None:
        connection, kind = self._connection, message["type"]
        if self._answered.is_set() or self._refused is not None:
            return
        if kind == "http.response.start":
            self._head = connection.encoded(
                h11.Response(
                    status_code=message["status"],
                    headers=list(message.get("headers", ())),
                    reason=_phrase(message["status"]),
                )
            )
        elif kind == "http.response.body":
            data, self._head = self._head, b""
            body, more = message.get("body", b""), message.get("more_body", False)
            if body and self._request.method != b"HEAD":
                data += connection.encoded(h11.Data(data=body))
            if not more:
                data += connection.encoded(h11.EndOfMessage())
            if not await connection.write(data):
                self._scope.cancel()
            elif not more:
                self._answered.set()


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
