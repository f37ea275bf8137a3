"""The console as an ASGI application: its page, view and actions.

The page itself is public and contains no data. Everything else requires a session's cookie and key.

A page of another site can make a browser send requests here, with a host name that its own DNS
resolves to this machine (DNS rebinding), or with a form. Therefore the Host must be the console's
address, an Origin must be the console's own, and requests that change anything must have an Origin.
"""

import json
from collections.abc import Awaitable, Callable
from hmac import compare_digest
from importlib.resources import files
from typing import Any, Final

import anyio
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from parley._node.bus.identifiers import BEFORE_ALL
from parley._node.errors import ParleyError
from parley._node.web.console.actions import Actions, CannotDoError
from parley._node.web.console.console import Console
from parley._node.web.console.sessions import ConsoleSession, ConsoleSessions
from parley._node.web.console.views import display_text, letters_view

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_READS: Final = ("GET", "HEAD")
_OF_OURS: Final = ("same-origin", "none")


class Guard:
    """Passes requests to `app` if they are for one of `hosts` and come from the console's pages.

    A host is `127.0.0.1:7480`. All responses get the headers above.
    """

    def __init__(self, app: ASGIApp, hosts: set[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        refused = self._refusal(Headers(scope=scope), scope["method"])
        if refused is not None:
            status, text = refused
            await PlainTextResponse(f"{text}\n", status)(scope, receive, with_headers)
            return
        await self._app(scope, receive, with_headers)

    def _refusal(self, headers: Headers, method: str) -> tuple[int, str] | None:
        if headers.getlist("host") not in [[host] for host in self._hosts]:
            return 421, "wrong Host header; open the console at its own address"
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is not None and origin not in {f"http://{host}" for host in self._hosts}:
            return 403, "requests of other sites are refused"
        foreign = site is not None and site not in _OF_OURS
        if foreign and headers.get("sec-fetch-mode") != "navigate":
            return 403, "requests of other sites are refused"
        if method not in _READS and origin is None and "authorization" not in headers:
            return 403, "a request that changes anything must have an Origin header"
        return None


BEGIN: Final = [(b"content-type", b"text/event-stream; charset=utf-8")]


class EventStream(Response):
    """Server-sent events: sends `event()` every `interval` seconds.

    It continues while `goes_on` returns True and the client reads, and then calls `on_end`.
    """

    def __init__(
        self,
        event: Callable[[], bytes],
        interval: float,
        goes_on: Callable[[], bool],
        on_end: Callable[[], None],
    ) -> None:
        super().__init__()
        self._event = event
        self._interval = interval
        self._goes_on = goes_on
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": BEGIN})
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._until_gone, receive, tasks.cancel_scope)
                while self._goes_on():
                    body = b"data: " + self._event() + b"\n\n"
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                    await anyio.sleep(self._interval)
                tasks.cancel_scope.cancel()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._on_end()

    async def _until_gone(self, receive: Receive, scope: anyio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()


MOST_READERS: Final = 8
LONGEST_SEARCH: Final = 200
LONGEST_NUMBER: Final = 18  # Digits.
KEY_HEADER: Final = "x-parley-key"
TYPES: Final = {
    "css": "text/css",
    "html": "text/html",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
_READ_ONLY: Final = "this session is read-only; open a link from `parley console --act` to act"

Answer = Callable[[Request, ConsoleSession], Awaitable[Response]]


class ConsoleApp:
    """The application of one console.

    With the secret `operator`, a program of the same user can request a new link.
    """

    def __init__(self, console: Console, sessions: ConsoleSessions, operator: str) -> None:
        self._console = console
        self._sessions = sessions
        self._actions = Actions(console)
        self._operator = operator
        self._readers = 0
        self._pages = dict(_pages())
        self._routes = Starlette(
            routes=[
                Route("/", self._page),
                Route("/static/{name}", self._page),
                Route("/enter", self._enter, methods=["POST"]),
                Route("/leave", self._for_session(self._leave), methods=["POST"]),
                Route("/links", self._link, methods=["POST"]),
                Route("/api/events", self._for_session(self._events)),
                Route("/api/peers", self._for_session(self._peers)),
                Route("/api/peers/{number}", self._for_session(self._peer)),
                Route("/api/letters", self._for_session(self._letters)),
                Route("/api/look", self._for_session(self._look), methods=["POST"]),
                Route(
                    "/api/do/{action}",
                    self._for_session(self._do, is_action=True),
                    methods=["POST"],
                ),
            ]
        )

    def app(self, hosts: set[str]) -> ASGIApp:
        """Return the application, for requests to one of `hosts`."""
        return Guard(self._routes, hosts)

    # Public routes.

    async def _page(self, request: Request) -> Response:
        page = self._pages.get(request.path_params.get("name", "index.html"))
        return Response(status_code=404) if page is None else Response(page[0], media_type=page[1])

    async def _enter(self, request: Request) -> Response:
        now = self._console.now()
        if not self._sessions.has_room(now):
            return _refused(429, "too many attempts; wait a few seconds")
        secrets = self._sessions.redeem_link(str((await _body(request)).get("token")), now)
        if secrets is None:
            return _refused(
                401, "this link was used before or has expired; get a new one with `parley console`"
            )
        answer = JSONResponse({"key": secrets.key, "may_act": secrets.may_act})
        answer.set_cookie(_cookie(request), secrets.cookie, httponly=True, samesite="strict")
        return answer

    async def _link(self, request: Request) -> Response:
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        if not self._sessions.has_room(self._console.now()):
            return _refused(429, "too many attempts; wait a few seconds")
        if scheme != "Bearer" or not compare_digest(secret.encode(), self._operator.encode()):
            return _refused(401, "wrong secret for this console")
        may_act = (await _body(request)).get("may_act") is True
        return JSONResponse(
            {"token": self._sessions.make_link(self._console.now(), may_act=may_act)}
        )

    # Routes for sessions.

    def _for_session(
        self, answer: Answer, *, is_action: bool = False
    ) -> Callable[[Request], Awaitable[Response]]:
        """Wrap a route so that it answers only authorised sessions."""

        async def checked(request: Request) -> Response:
            session = self._authorise(request, is_action=is_action)
            if isinstance(session, Response):
                return session
            return await answer(request, session)

        return checked

    def _authorise(self, request: Request, *, is_action: bool) -> ConsoleSession | Response:
        """Return the session of a permitted request, or the response that refuses it.

        The request needs a valid session within its rate limits; an action needs a session that may
        act.
        """
        now = self._console.now()
        cookie, key = request.cookies.get(_cookie(request)), request.headers.get(KEY_HEADER)
        session = self._sessions.authenticate(cookie or "", key or "", now)
        if session is None:
            return _refused(401, "this session has ended; get a new link with `parley console`")
        if not session.requests.take(now):
            return _refused(429, "too many requests; wait a moment")
        if is_action and not session.may_act:
            return _refused(403, _READ_ONLY)
        if is_action and not session.actions.take(now):
            return _refused(429, "too many actions; wait a few seconds")
        return session

    async def _leave(self, request: Request, session: ConsoleSession) -> Response:
        self._sessions.leave(session)
        answer = JSONResponse({})
        answer.delete_cookie(_cookie(request), httponly=True, samesite="strict")
        return answer

    async def _events(self, request: Request, session: ConsoleSession) -> Response:
        if self._readers >= MOST_READERS:
            return _refused(503, f"the limit of {MOST_READERS} open pages is reached; close one")
        self._readers += 1

        def ended() -> None:
            self._readers -= 1

        def goes_on() -> bool:
            return self._sessions.is_open(session)

        return EventStream(self._console.encoded, self._console.interval, goes_on, ended)

    async def _peers(self, request: Request, session: ConsoleSession) -> Response:
        return JSONResponse(
            self._console.peers(request.query_params.get("find", "")[:LONGEST_SEARCH])
        )

    async def _peer(self, request: Request, session: ConsoleSession) -> Response:
        number = request.path_params["number"]
        is_number = number.isascii() and number.isdecimal() and len(number) <= LONGEST_NUMBER
        found = self._console.peer(int(number)) if is_number else None
        return _refused(404, "this peer has disconnected") if found is None else JSONResponse(found)

    async def _letters(self, request: Request, session: ConsoleSession) -> Response:
        asked = request.query_params
        bus = self._console.find_bus(asked.get("bus", ""))
        if bus is None:
            return _refused(404, "unknown bus; reload the page")
        try:
            view = await letters_view(bus, asked.get("stream", ""), asked.get("after", BEFORE_ALL))
        except ParleyError as error:
            return _refused(409, display_text(error))
        return JSONResponse(view)

    async def _look(self, request: Request, session: ConsoleSession) -> Response:
        if not session.actions.take(self._console.now()):
            return _refused(429, "the checks ran a moment ago; wait a few seconds")
        self._console.refresh()
        return JSONResponse({})

    async def _do(self, request: Request, session: ConsoleSession) -> Response:
        try:
            done = await self._actions.do(request.path_params["action"], await _body(request))
        except CannotDoError as error:
            return _refused(409, str(error))
        except ParleyError as error:
            return _refused(409, display_text(f"the action failed: {error}"))
        return JSONResponse({"done": done})


def _pages() -> list[tuple[str, tuple[bytes, str]]]:
    """Return the static files with their types."""
    folder = files("parley._node.web.console").joinpath("static")
    return [
        (one.name, (one.read_bytes(), TYPES[one.name.rpartition(".")[2]]))
        for one in folder.iterdir()
        if one.is_file()
    ]


def _cookie(request: Request) -> str:
    """Return the cookie's name, with the port: browsers send a cookie to all ports of a host."""
    return f"parley-console-{request.url.port or 80}"


async def _body(request: Request) -> dict[str, Any]:
    """Return the JSON object of a request, or an empty one. The server limits the length."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        return {}
    try:
        found = json.loads(await request.body())
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _refused(status: int, text: str) -> Response:
    return JSONResponse({"error": text}, status)
