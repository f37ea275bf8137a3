"""What every request to the console must be, before anything is looked up for it.

A page of another site can have a browser send requests here: by the name that its own server has
had resolved to this machine (DNS rebinding), or with whatever a form may send. So the Host must be
the address that was meant, an Origin the console's own, and what changes anything must have one.
"""

from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
    """Lets requests through to `app` that were meant for one of `hosts` (`127.0.0.1:7480`), and
    come from its own pages; all answers get the headers above."""

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
            return 421, "the console is not at this host"
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is not None and origin not in {f"http://{host}" for host in self._hosts}:
            return 403, "another site asks"
        foreign = site is not None and site not in _OF_OURS
        if foreign and headers.get("sec-fetch-mode") != "navigate":
            return 403, "another site asks"
        if method not in _READS and origin is None and "authorization" not in headers:
            return 403, "what changes anything says where it comes from"
        return None
