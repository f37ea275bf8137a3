"""One HTTP/1.1 connection: reads requests with h11 and answers them with an ASGI application.

Requests are answered one after another. A request is read whole before the application starts. If
the application fails, the error is logged, the client gets a 500 if no response has started, and
the connection ends.
"""

import logging
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

import anyio
import anyio.lowlevel
import h11
from anyio.abc import SocketAttribute, SocketStream
from starlette.types import ASGIApp, Message, Scope

from parley._node.logs import LogRation
from parley._node.web.limits import WebLimits

logger = logging.getLogger("parley.web")

READ_SIZE: Final = 16 * 1024
# Seconds and bytes of reading after a response that was sent before the end of the request. Closing
# immediately would reset the connection, and the client might lose the response.
LINGER: Final = 1.0
LINGER_SIZE: Final = 1024 * 1024

_TOO_LARGE: Final = HTTPStatus(413)  # its name changed with Python 3.13
_HEAD_TOO_LARGE: Final = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
# With both headers, a proxy may find another end of the request (RFC 9112, section 6.1).
_FRAMING: Final = {b"content-length", b"transfer-encoding"}
_CLOSED: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)


class HttpError(Exception):
    """A request that is answered with `status` and closes the connection."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(f"{status.value} {status.phrase}")
        self.status = status


class HttpConnection:
    """One connection of a client. Cancel `scope` to close it.

    `failures` limits the log lines about failures of the application. Each request waits for
    `turns`, so that the event loop starts one request of all connections at a time.
    """

    def __init__(
        self,
        stream: SocketStream,
        app: ASGIApp,
        limits: WebLimits,
        failures: LogRation,
        turns: anyio.Lock,
    ) -> None:
        self.scope = anyio.CancelScope()
        # The time since which the client has to send or to read; None while the application runs.
        self.waiting_since: float | None = anyio.current_time()
        self._stream = stream
        self._app = app
        self._limits = limits
        self._failures = failures
        self._turns = turns
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head)
        self._gone = False  # the client has closed, or was too slow
        self._is_head = False  # the method of the current request is HEAD

    @property
    def remote_host(self) -> str:
        """The client's address without its port; empty if the client has already closed."""
        address = self._address(SocketAttribute.remote_address)
        return "" if address is None else address[0]

    async def serve(self) -> None:
        """Answer requests until the connection ends."""
        http = self._http
        try:
            while (found := await self._request()) is not None:
                self.waiting_since = None
                try:
                    async with self._turns:
                        pass
                    await self._answer(*found)
                finally:
                    self.waiting_since = anyio.current_time()
                if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
                    break
                http.start_next_cycle()
        except HttpError as error:
            await self._refuse(error.status)
        await self._linger()

    async def _request(self) -> tuple[h11.Request, bytes] | None:
        """Read a request and its body. Returns None if the client closes, or is idle for too long.

        Raises:
            HttpError: the request is malformed, too large or too slow.
        """
        request, body = None, bytearray()
        self._is_head = False
        try:
            with anyio.fail_after(self._limits.idle):
                while True:
                    unread = self._unread()
                    event = self._http.next_event()
                    if event is h11.NEED_DATA:
                        if self._http.they_are_waiting_for_100_continue:
                            proceed = h11.InformationalResponse(status_code=100, headers=[])
                            await self._write(self._encoded(proceed))
                        await self._read()
                    elif isinstance(event, h11.Request):
                        request = event
                        self._is_head = request.method == b"HEAD"
                        if unread - self._unread() > self._limits.head:
                            raise HttpError(_HEAD_TOO_LARGE)
                        if {name for name, _ in request.headers} >= _FRAMING:
                            raise HttpError(HTTPStatus.BAD_REQUEST)
                        if _stated_length(request) > self._limits.body:
                            raise HttpError(_TOO_LARGE)  # before it is sent
                    elif isinstance(event, h11.Data):
                        body += event.data
                        if len(body) > self._limits.body:
                            raise HttpError(_TOO_LARGE)
                        # One read can bring thousands of chunks, from a client without rights.
                        await anyio.lowlevel.checkpoint()
                    else:  # the end of the request, or of the connection
                        return None if request is None else (request, bytes(body))
        except h11.RemoteProtocolError as error:
            raise HttpError(HTTPStatus(error.error_status_hint)) from error
        except TimeoutError:
            if request is None:
                return None
            raise HttpError(HTTPStatus.REQUEST_TIMEOUT) from None

    async def _answer(self, request: h11.Request, body: bytes) -> None:
        """Run the application; it is cancelled if the client can no longer get the response.

        Raises:
            HttpError: the request has no path, or the application failed.
        """
        scope = self._asgi_scope(request)
        running, answered = anyio.CancelScope(), anyio.Event()
        head, is_read = b"", False  # of the response; of the request

        async def receive() -> Message:
            nonlocal is_read
            if not is_read:
                is_read = True
                return {"type": "http.request", "body": body, "more_body": False}
            # What arrives is the end of the connection, or the next request, which waits.
            if not self._gone and not answered.is_set():
                await self._read()
            if not self._gone:
                await answered.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            nonlocal head
            if answered.is_set():
                return
            if message["type"] == "http.response.start":
                response = h11.Response(
                    status_code=message["status"],
                    headers=list(message.get("headers", ())),
                    reason=_phrase(message["status"]),
                )
                head = self._encoded(response)
            elif message["type"] == "http.response.body":
                data, head = head, b""
                if message.get("body") and not self._is_head:
                    data += self._encoded(h11.Data(data=message["body"]))
                is_last = not message.get("more_body", False)
                if is_last:
                    data += self._encoded(h11.EndOfMessage())
                if not await self._write(data):
                    running.cancel()
                elif is_last:
                    answered.set()

        try:
            with running:
                await self._app(scope, receive, send)
        except Exception as error:
            self._failures.log(
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
            answered.set()

    def _asgi_scope(self, request: h11.Request) -> Scope:
        """Return the ASGI scope of a request; HttpError if its target is not a path."""
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

    def _address(self, which: Any) -> tuple[str, int] | None:
        """Return an address, or None if the connection is already closed."""
        try:
            found = self._stream.extra(which, None)  # noqa: S610 - not Django's
        except OSError:
            return None
        return None if found is None else found[:2]

    def _unread(self) -> int:
        """Return the number of received bytes that h11 has not parsed."""
        return len(self._http.trailing_data[0])

    def _encoded(self, event: Any) -> bytes:
        """Return the bytes of an event; h11.LocalProtocolError if they would be malformed."""
        return self._http.send(event) or b""

    async def _read(self) -> None:
        """Pass the next bytes to h11."""
        try:
            data = await self._stream.receive(READ_SIZE)
        except _CLOSED:
            data, self._gone = b"", True
        self._http.receive_data(data)

    async def _write(self, data: bytes) -> bool:
        """Write to the client; returns False if it has closed or does not read in time."""
        before = self.waiting_since
        if before is None:
            self.waiting_since = anyio.current_time()
        try:
            with anyio.fail_after(self._limits.write):
                await self._stream.send(data)
        except (*_CLOSED, TimeoutError):
            self._gone = True
        finally:
            self.waiting_since = before
        return not self._gone

    async def _refuse(self, status: HTTPStatus) -> None:
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        text = f"{status.value} {status.phrase}\n".encode()
        headers = [
            ("content-type", "text/plain; charset=utf-8"),
            ("content-length", str(len(text))),
            ("connection", "close"),
        ]
        response = h11.Response(status_code=status.value, headers=headers, reason=status.phrase)
        body = [] if self._is_head else [h11.Data(data=text)]
        parts = [self._encoded(event) for event in (response, *body, h11.EndOfMessage())]
        await self._write(b"".join(parts))

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


def _stated_length(request: h11.Request) -> int:
    return next((int(value) for name, value in request.headers if name == b"content-length"), 0)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
