"""An HTTP server for one ASGI application, in the node's event loop on asyncio or trio.

Hypercorn, the other server for both loops, cannot enforce these limits. It limits neither the
number of connections nor the time of a write. It answers an oversized head that arrives in one
piece, and a request with two framings. On trio, a connection that is open at the end raises from
`serve`.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

import anyio
import anyio.lowlevel
import h11
from anyio.abc import SocketAttribute, SocketListener, SocketStream
from starlette.types import ASGIApp, Message, Scope

from parley._node.fair_slots import FairSlots
from parley._node.logs import RateLimitedLogger
from parley._node.transport.address import Address
from parley._node.transport.sockets import listen_error
from parley._node.transport.task_scope import own_task_group
from parley._node.trust.admission import address_key


@dataclass(frozen=True, slots=True, kw_only=True)
class WebLimits:
    """Limits for all clients together, and for each connection.

    Attributes:
        connections: the number of connections. At the limit, a new connection replaces the
            connection that has waited longest for its client, among the connections of the address
            (IPv6: its /64) that has the most. If none of them waits, the new one is closed.
        head: the size of a request's line and headers, in bytes; a longer one gets a 431.
        body: the size of a request's body, in bytes; a longer one is answered with 413.
        idle: seconds for a whole request with its body, from the connection or the last response.
        write: seconds for the client to read the data that was written.
    """

    connections: int = 64
    head: int = 16 * 1024
    body: int = 64 * 1024
    idle: float = 30.0
    write: float = 10.0


logger = logging.getLogger("parley.web")

READ_SIZE: Final = 16 * 1024
# How long, and how much, to read after a response that was sent before the end of the request.
# Closing immediately would reset the connection, and the client might lose the response.
LINGER: Final = 1.0
LINGER_SIZE: Final = 1024 * 1024

_TOO_LARGE: Final = HTTPStatus(413)  # Renamed in Python 3.13.
_HEAD_TOO_LARGE: Final = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
# With both headers, a proxy may determine another end of the request (RFC 9112, section 6.1).
_FRAMING: Final = {b"content-length", b"transfer-encoding"}
_CLOSED: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)


class HttpError(Exception):
    """A request that is answered with `status`, after which the connection closes."""

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
        failures: RateLimitedLogger,
        turns: anyio.Lock,
    ) -> None:
        self.scope = anyio.CancelScope()
        # Since when the server waits for the client to send or read; None while the application
        # runs.
        self.waiting_since: float | None = anyio.current_time()
        self._stream = stream
        self._app = app
        self._limits = limits
        self._failures = failures
        self._turns = turns
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head)
        self._gone = False  # Whether the client has closed the connection or was too slow.
        self._is_head = False  # Whether the method of the current request is HEAD.

    @property
    def remote_host(self) -> str:
        """The client's address without its port; empty if the client has already disconnected."""
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
        """Read a request and its body; return None if the client closes or is idle for too long.

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
                            raise HttpError(_TOO_LARGE)  # Before the body is sent.
                    elif isinstance(event, h11.Data):
                        body += event.data
                        if len(body) > self._limits.body:
                            raise HttpError(_TOO_LARGE)
                        # One read can bring thousands of chunks from an unauthenticated client.
                        await anyio.lowlevel.checkpoint()
                    else:  # The end of the request, or of the connection.
                        return None if request is None else (request, bytes(body))
        except h11.RemoteProtocolError as error:
            raise HttpError(HTTPStatus(error.error_status_hint)) from error
        except TimeoutError:
            if request is None:
                return None
            raise HttpError(HTTPStatus.REQUEST_TIMEOUT) from None

    async def _answer(self, request: h11.Request, body: bytes) -> None:
        """Run the application; cancel it if the client can no longer receive the response.

        Raises:
            HttpError: the request has no path, or the application failed.
        """
        scope = self._asgi_scope(request)
        running, answered = anyio.CancelScope(), anyio.Event()
        head, is_read = b"", False  # Of the response; of the request.

        async def receive() -> Message:
            nonlocal is_read
            if not is_read:
                is_read = True
                return {"type": "http.request", "body": body, "more_body": False}
            # The received data is the end of the connection, or the next request, which waits.
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
        """Return the ASGI scope of a request; raise HttpError if its target is not a path."""
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
        """Return the bytes of an event; raise h11.LocalProtocolError if they would be malformed."""
        return self._http.send(event) or b""

    async def _read(self) -> None:
        """Pass the next bytes to h11."""
        try:
            data = await self._stream.receive(READ_SIZE)
        except _CLOSED:
            data, self._gone = b"", True
        self._http.receive_data(data)

    async def _write(self, data: bytes) -> bool:
        """Write to the client; return False if it has disconnected or does not read in time."""
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


AGAIN: Final = 1.0  # Seconds to wait after a failed accept.


@asynccontextmanager
async def serve_asgi(
    app: ASGIApp, address: str, *, limits: WebLimits | None = None
) -> AsyncIterator[str]:
    """Serve `app` on `HOST:PORT` over HTTP/1.1 inside the block, and yield the URL.

    The URL is like `http://127.0.0.1:9464`. Leaving the block cancels the requests in progress. The
    server doesn't use ASGI's `lifespan`: an application runs while its node runs.

    Raises:
        AddressError: the address is malformed.
        UnreachableError: the server cannot listen on the address.
    """
    place, limits = Address.parse_web(address), limits or WebLimits()
    try:
        listener = await anyio.create_tcp_listener(local_host=place.host, local_port=place.port)
    except OSError as error:
        raise listen_error(place, error) from error
    port: int = listener.extra(SocketAttribute.local_port)  # noqa: S610 - nothing of Django
    slots: FairSlots[HttpConnection] = FairSlots(lambda one: one.waiting_since, idle=0.0)
    turns = anyio.Lock()
    # Clients can cause these lines without authentication.
    full, bugs, not_accepted, failures = (
        RateLimitedLogger(),
        RateLimitedLogger(),
        RateLimitedLogger(),
        RateLimitedLogger(),
    )

    def has_slot(connection: HttpConnection, owner: str) -> bool:
        """Take a slot, if necessary from a connection that waits for its client."""
        now = anyio.current_time()
        if len(slots) >= limits.connections:
            full.log(
                logger,
                logging.WARNING,
                now,
                "the limit of %d HTTP connections is reached",
                limits.connections,
                extra={"event": "web.full"},
            )
            evicted = slots.evict_for(owner, now)
            if evicted is None:
                return False
            evicted.scope.cancel()
        slots.add(connection, owner)
        return True

    async def serve(stream: SocketStream) -> None:
        async with stream:
            connection = HttpConnection(stream, app, limits, failures, turns)
            try:
                if has_slot(connection, address_key(connection.remote_host)[0]):
                    with connection.scope:
                        await connection.serve()
            except Exception:
                bugs.log(
                    logger,
                    logging.ERROR,
                    anyio.current_time(),
                    "internal error while serving HTTP",
                    exc_info=True,
                    extra={"event": "web.bug"},
                )
            finally:
                slots.remove(connection)

    async def accept(one: SocketListener) -> None:
        while True:
            try:
                stream = await one.accept()
            except (OSError, anyio.BrokenResourceError):  # For example, too many open files.
                not_accepted.log(
                    logger,
                    logging.ERROR,
                    anyio.current_time(),
                    "cannot accept HTTP",
                    exc_info=True,
                    extra={"event": "web.not-accepted"},
                )
                await anyio.sleep(AGAIN)
            else:
                tasks.start_soon(serve, stream)

    try:
        async with own_task_group("the HTTP server") as tasks:
            for one in listener.listeners:
                assert isinstance(one, SocketListener)
                tasks.start_soon(accept, one)
            yield f"http://{place.with_port(port).place.removeprefix('tcp://')}"
    finally:
        with anyio.CancelScope(shield=True):
            await listener.aclose()
