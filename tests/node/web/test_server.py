"""The HTTP server: ASGI on both loops, limits of size and time, and an end that leaves nothing."""

from typing import Any

import anyio
import httpx2
import pytest
from anyio.abc import SocketStream
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from node.errors import UnreachableError
from node.web.asgi import AsgiApp
from node.web.server import serving


async def echo(request: Request) -> Response:
    return PlainTextResponse(await request.body(), headers={"x-path": request.url.path})


async def fail(request: Request) -> Response:
    raise RuntimeError("of the application")


def app(*more: Route) -> AsgiApp:
    return Starlette(
        routes=[Route("/echo", echo, methods=["GET", "POST"]), Route("/f", fail), *more]
    )


async def said(url: str, *pieces: bytes) -> bytes:
    """All that comes back for raw bytes, up to the end."""
    async with await dialled(url) as stream:
        for piece in pieces:
            await stream.send(piece)
        return await rest(stream)


async def dialled(url: str) -> SocketStream:
    return await anyio.connect_tcp("127.0.0.1", int(url.rpartition(":")[2]))


async def rest(stream: SocketStream) -> bytes:
    came = b""
    try:
        while True:
            came += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return came


async def test_requests_are_answered_one_after_the_other_on_one_connection(
    anyio_backend: Any,
) -> None:
    async with serving(app(), "127.0.0.1:0") as url, httpx2.AsyncClient(base_url=url) as client:
        for number in range(3):
            answer = await client.post("/echo?x=1", content=b"x" * number)
            assert (answer.status_code, answer.content) == (200, b"x" * number)
        assert (await client.head("/echo")).headers["x-path"] == "/echo"
        assert (await client.get("/nothing")).status_code == 404
        with pytest.raises(UnreachableError, match="in use"):
            async with serving(app(), url.removeprefix("http://")):
                pass
    with pytest.raises(OSError, match="connect"):
        await dialled(url)
