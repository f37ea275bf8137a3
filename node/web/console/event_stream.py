"""Server-sent events: the console's view, again and again, to one reader."""

from collections.abc import Callable
from typing import Final

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

BEGIN: Final = [(b"content-type", b"text/event-stream; charset=utf-8")]


class EventStream(Response):
    """Sends `event()` every `interval` seconds, as long as it `goes_on` and is read; `on_end` is
    called at its end. A reader that takes nothing is the server's to end."""

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
