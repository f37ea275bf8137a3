"""The HTTP server: ASGI on both loops, limits of size and time, and shutdown."""

import logging
import socket
import struct
from contextlib import AsyncExitStack, suppress
from typing import Any, cast

import anyio
import anyio.lowlevel
import httpx2
import pytest
from anyio.abc import SocketListener, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.stapled import StapledByteStream
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from parley._node.errors import AddressError, UnreachableError
from parley._node.logs import LINES, RateLimitedLogger
from parley._node.web.http_server import HttpConnection, WebLimits, serve_asgi
from tests.node.network import PATIENCE
from tests.sweep import sweep


async def echo(request: Request) -> Response:
    return PlainTextResponse(await request.body(), headers={"x-path": request.url.path})


async def fail(request: Request) -> Response:
    raise RuntimeError("of the application")


def app(*more: Route) -> ASGIApp:
    return Starlette(
        routes=[Route("/echo", echo, methods=["GET", "POST"]), Route("/f", fail), *more]
    )


async def dialled(url: str) -> SocketStream:
    return await anyio.connect_tcp("127.0.0.1", int(url.rpartition(":")[2]))


async def rest(stream: SocketStream) -> bytes:
    """Read everything up to the end."""
    came = b""
    try:
        while True:
            came += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return came


async def said(url: str, *pieces: bytes) -> bytes:
    """Return the complete response to raw bytes."""
    async with await dialled(url) as stream:
        for piece in pieces:
            await stream.send(piece)
        return await rest(stream)


async def test_requests_are_answered_one_after_the_other_on_one_connection(
    anyio_backend: Any,
) -> None:
    async with serve_asgi(app(), "127.0.0.1:0") as url, httpx2.AsyncClient(base_url=url) as client:
        for number in range(3):
            answer = await client.post("/echo?x=1", content=b"x" * number)
            assert (answer.status_code, answer.content) == (200, b"x" * number)
            assert answer.reason_phrase == "OK"
        assert (await client.head("/echo")).headers["x-path"] == "/echo"
        assert (await client.get("/nothing")).status_code == 404
        with pytest.raises(UnreachableError, match="in use"):
            async with serve_asgi(app(), url.removeprefix("http://")):
                pass
    with pytest.raises(OSError, match="connect"):
        await dialled(url)


async def test_flood_of_requests_does_not_block_other_clients(anyio_backend: Any) -> None:
    """Other clients get a response after a few requests of each connection of the flood."""
    flooding, requests = 40, 100
    answered = 0

    async def count(request: Request) -> Response:
        nonlocal answered
        answered += 1
        return PlainTextResponse("")

    async def flood(url: str) -> None:
        await said(url, b"GET /count HTTP/1.1\r\nHost: x\r\n\r\n" * requests)

    async with (
        serve_asgi(app(Route("/count", count)), "127.0.0.1:0") as url,
        anyio.create_task_group() as tasks,
    ):
        for _ in range(flooding):
            tasks.start_soon(flood, url)
        while answered < flooding:
            await anyio.lowlevel.checkpoint()
        before = answered
        good = b"GET /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        assert (await said(url, good)).startswith(b"HTTP/1.1 200")
        assert answered - before < 10 * flooding
        tasks.cancel_scope.cancel()


async def test_connections_that_are_reset_leave_the_server_running(
    anyio_backend: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The remote address of such a connection is unknown when it is accepted."""
    async with serve_asgi(app(), "127.0.0.1:0") as url, httpx2.AsyncClient(base_url=url) as client:
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with anyio.fail_after(PATIENCE):
            assert (await client.get("/echo")).status_code == 200
    assert caplog.records == []


@pytest.mark.parametrize("address", ["unix:///tmp/x", "127.0.0.1", "tcp://[::1]:0#nothing"])
async def test_it_is_served_on_a_host_and_port(anyio_backend: Any, address: str) -> None:
    with pytest.raises(AddressError):
        async with serve_asgi(app(), address):
            pass


async def test_requests_that_came_at_once_are_answered_in_their_order(anyio_backend: Any) -> None:
    one = b"GET /echo HTTP/1.1\r\nhost: x\r\n\r\n"
    last = b"GET /nothing HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    async with serve_asgi(app(), "127.0.0.1:0") as url:
        came = await said(url, one + one + last)
    assert came.count(b"HTTP/1.1 200 OK") == 2
    assert came.rindex(b"HTTP/1.1 200") < came.index(b"HTTP/1.1 404")


async def test_expect_100_continue(anyio_backend: Any) -> None:
    head = b"POST /echo HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n"
    async with serve_asgi(app(), "127.0.0.1:0") as url, await dialled(url) as stream:
        await stream.send(head)
        assert (await stream.receive()).startswith(b"HTTP/1.1 100")
        await stream.send(b"hi")
        assert (await stream.receive()).endswith(b"hi")


async def test_many_small_chunks_let_other_tasks_run(anyio_backend: Any) -> None:
    chunks, turns, seen = 2_000, 0, list[int]()
    send, receive = anyio.create_memory_object_stream[bytes](1)
    answers, answered = anyio.create_memory_object_stream[bytes](10)
    stream: Any = StapledByteStream(cast(Any, answers), BufferedByteReceiveStream(receive))

    async def count(scope: Any, receive: Any, send: Any) -> None:
        seen.append(turns)
        await PlainTextResponse("")(scope, receive, send)

    async def serve() -> None:
        await HttpConnection(stream, count, WebLimits(), RateLimitedLogger(), anyio.Lock()).serve()
        tasks.cancel_scope.cancel()

    head = b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    send.send_nowait(head + b"1\r\nx\r\n" * chunks + b"0\r\n\r\n")
    async with send, answered, stream, anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1
    assert seen[0] > chunks / 2


async def test_a_body_that_is_too_long_is_refused_before_it_is_sent(anyio_backend: Any) -> None:
    head = b"POST /echo HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 11\r\n\r\n"
    async with serve_asgi(app(), "127.0.0.1:0", limits=WebLimits(body=10)) as url:
        assert (await said(url, head)).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    ("pieces", "status"),
    [
        ((b"no HTTP at all\r\n\r\n",), b"400"),
        ((b"GET http://x/ HTTP/1.1\r\nhost: x\r\n\r\n",), b"400"),
        ((b"GET /echo HTTP/1.1\r\nhost: x\r\nx: " + b"x" * 2_000,), b"431"),
        ((b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 11\r\n\r\n" + b"x" * 11,), b"413"),
        ((b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nx",), b"408"),
        ((b"GET /f HTTP/1.1\r\nhost: x\r\n\r\n",), b"500"),
    ],
)
async def test_invalid_request_is_refused_and_ends_the_connection(
    anyio_backend: Any,
    caplog: pytest.LogCaptureFixture,
    pieces: tuple[bytes, ...],
    status: bytes,
) -> None:
    limits = WebLimits(head=1_000, body=10, idle=0.05 if status == b"408" else 30.0)
    caplog.set_level(logging.CRITICAL, "parley.web")
    async with serve_asgi(app(), "127.0.0.1:0", limits=limits) as url:
        assert (await said(url, *pieces)).startswith(b"HTTP/1.1 " + status)


async def test_a_refusal_has_a_body_unless_it_answers_a_head(
    anyio_backend: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "parley.web")
    head = b"HEAD /%b HTTP/1.1\r\nhost: x\r\n\r\n"
    async with serve_asgi(app(), "127.0.0.1:0") as url:
        told = await said(url, head % b"f")
        assert told.startswith(b"HTTP/1.1 500 ")
        assert told.endswith(b"\r\n\r\n")
        told = await said(url, head % b"echo" + b"no HTTP at all\r\n\r\n")
        first, second = told.split(b"HTTP/1.1 ")[1:]
        assert first.startswith(b"200 ")
        assert first.endswith(b"\r\n\r\n")
        assert second.endswith(b"\r\n\r\n400 Bad Request\n")


async def test_client_cannot_occupy_all_connections(
    anyio_backend: Any, caplog: pytest.LogCaptureFixture
) -> None:
    limits = WebLimits(connections=8)
    request = b"GET /echo HTTP/1.1\r\nhost: x\r\n\r\n"
    async with (
        serve_asgi(app(), "127.0.0.1:0", limits=limits) as url,
        await dialled(url) as first,
        AsyncExitStack() as stack,
    ):
        await first.send(request)
        await first.receive()
        begun = [b"", b"GET /ec", b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nx"]
        silent = [await stack.enter_async_context(await dialled(url)) for _ in range(24)]
        for number, stream in enumerate(silent):
            with suppress(anyio.BrokenResourceError):  # Already evicted.
                await stream.send(begun[number % 3] or b"G")
        assert (await said(url, request.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")))[
            :12
        ] == b"HTTP/1.1 200"
        with anyio.fail_after(10):
            assert await rest(first) == b""  # It had waited longest.
    full = [one for one in caplog.records if vars(one).get("event") == "web.full"]
    assert len(full) >= 1


async def test_a_request_that_is_being_answered_is_not_evicted(anyio_backend: Any) -> None:
    begun, go_on = anyio.Event(), anyio.Event()

    async def slow(request: Request) -> Response:
        begun.set()
        await go_on.wait()
        return PlainTextResponse("done")

    limits = WebLimits(connections=1)
    close = b"GET /slow HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    async with (
        serve_asgi(app(Route("/slow", slow)), "127.0.0.1:0", limits=limits) as url,
        await dialled(url) as first,
    ):
        await first.send(close)
        with anyio.fail_after(10):
            await begun.wait()
        assert await said(url) == b""
        go_on.set()
        assert (await rest(first)).endswith(b"done")


@sweep("size", [15_000, 16_384, 16_385, 20_000, 32_700, 40_000])
@sweep("first", [b"", b"GET /echo HTTP/1.1\r\nhost: x\r\n\r\n"])
async def test_a_head_has_16_kib_in_whatever_pieces_it_comes(
    anyio_backend: Any, size: int, first: bytes
) -> None:
    head = b"GET /echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx: %s\r\n\r\n"
    head %= b"x" * (size - len(head % b""))
    async with serve_asgi(app(), "127.0.0.1:0") as url:
        came = await said(url, first + head[:16_383], head[16_383:])
    assert came[came.rindex(b"HTTP/1.1 ") :][9:12] == (b"200" if size <= 16_384 else b"431")


async def test_two_lengths_of_a_body_are_answered_and_end_the_connection(
    anyio_backend: Any,
) -> None:
    smuggling = (
        b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n"
        b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    )
    next_one = b"GET /echo HTTP/1.1\r\nhost: x\r\n\r\n"
    async with serve_asgi(app(), "127.0.0.1:0") as url:
        came = await said(url, smuggling + next_one)
    assert came.startswith(b"HTTP/1.1 400 ")
    assert came.count(b"HTTP/1.1") == 1


async def test_clients_cause_a_bounded_number_of_log_lines(
    anyio_backend: Any, caplog: pytest.LogCaptureFixture
) -> None:
    request = b"GET /f HTTP/1.1\r\nhost: x\r\n\r\n"
    async with serve_asgi(app(), "127.0.0.1:0") as url:
        for _ in range(LINES + 20):
            assert (await said(url, request)).startswith(b"HTTP/1.1 500")
    # The rate limit adds one line per second.
    assert LINES <= len(caplog.records) < LINES + 20


async def test_silent_client_is_disconnected(anyio_backend: Any) -> None:
    limits = WebLimits(idle=0.05)
    async with serve_asgi(app(), "127.0.0.1:0", limits=limits) as url:
        assert await said(url) == b""


async def test_client_that_does_not_read_is_disconnected(anyio_backend: Any) -> None:
    over = anyio.Event()

    async def flood(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while True:
                part = {"type": "http.response.body", "body": b"x" * 262_144, "more_body": True}
                await send(part)
        finally:
            over.set()

    limits = WebLimits(write=0.1)
    async with serve_asgi(flood, "127.0.0.1:0", limits=limits) as url, await dialled(url) as stream:
        await stream.send(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        with anyio.fail_after(10):
            await over.wait()


async def test_an_answer_in_parts_ends_with_its_reader_or_with_the_server(
    anyio_backend: Any,
) -> None:
    left = [anyio.Event(), anyio.Event()]

    async def parts(request: Request) -> Response:
        async def body() -> Any:
            over = left[len(request.query_params)]
            try:
                yield b"begins"
                await anyio.sleep_forever()
            finally:
                over.set()

        return StreamingResponse(body())

    async with serve_asgi(app(Route("/parts", parts)), "127.0.0.1:0") as url:
        async with await dialled(url) as stream:
            await stream.send(b"GET /parts HTTP/1.1\r\nhost: x\r\n\r\n")
            while b"begins" not in await stream.receive():
                pass
        with anyio.fail_after(10):
            await left[0].wait()
        other = await dialled(url)
        await other.send(b"GET /parts?x=1 HTTP/1.1\r\nhost: x\r\n\r\n")
        while b"begins" not in await other.receive():
            pass
    assert left[1].is_set()
    await other.aclose()


async def test_exception_inside_the_block_propagates(anyio_backend: Any) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with serve_asgi(app(), "127.0.0.1:0"):
            raise KeyError("mine")


async def test_slow_body_has_the_same_time_limit(
    anyio_backend: Any,
) -> None:
    head = b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n"
    async with (
        serve_asgi(app(), "127.0.0.1:0", limits=WebLimits(idle=0.3)) as url,
        await dialled(url) as stream,
        anyio.create_task_group() as tasks,
    ):

        async def trickle() -> None:
            await stream.send(head)
            while True:
                await stream.send(b"x")
                await anyio.sleep(0.1)

        tasks.start_soon(trickle)
        with anyio.fail_after(5):
            came = await stream.receive()
        tasks.cancel_scope.cancel()
    assert came.startswith(b"HTTP/1.1 408")


async def test_a_system_without_more_files_does_not_end_the_server(
    anyio_backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parley._node.web.http_server.AGAIN", 0.01, raising=False)
    listening, failures = anyio.create_tcp_listener, [OSError(24, "Too many open files")]

    async def listen(**options: Any) -> Any:
        made = await listening(**options)
        for one in made.listeners:
            assert isinstance(one, SocketListener)
            accept = one.accept

            async def fails_once(accept: Any = accept) -> SocketStream:
                if failures:
                    raise failures.pop()
                stream: SocketStream = await accept()
                return stream

            monkeypatch.setattr(one, "accept", fails_once)
        return made

    monkeypatch.setattr(anyio, "create_tcp_listener", listen)
    async with serve_asgi(app(), "127.0.0.1:0") as url:
        assert b" 200 " in await said(
            url, b"GET /echo HTTP/1.1\r\nconnection: close\r\nhost: x\r\n\r\n"
        )
    assert not failures
