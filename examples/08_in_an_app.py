"""Use a node in a web application (Starlette or FastAPI).

One endpoint calls a peer, and another forwards a topic to browsers as server-sent events. The node
starts and stops with the application, in its `lifespan`.

Run it with `uv run --group dev python examples/08_in_an_app.py`, or pass `create_app` to an ASGI
server.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from parley import Call, CallRefused, CallTimeout, Identity, Node, ParleyError, Peer

try:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response, StreamingResponse
    from starlette.routing import Route
    from starlette.testclient import TestClient
except (ImportError, RuntimeError) as error:  # RuntimeError: the test client needs httpx2
    raise SystemExit(f"This example needs the packages starlette and httpx2: {error}") from None

NOT_SOLD = 64
PAUSE = 0.1  # seconds before reconnecting to the shop


class Shop:
    """The node that the application depends on. It may be temporarily unreachable."""

    def __init__(self, node: Node, address: str) -> None:
        self.node, self.address = node, address
        self.browsers: set[MemoryObjectSendStream[object]] = set()
        self._dialling = anyio.Lock()
        self._peer: Peer | None = None

    async def peer(self) -> Peer:
        async with self._dialling:  # only one request dials; the others wait for it
            if self._peer is None or not self._peer.is_open:
                self._peer = await self.node.connect(self.address, timeout=2)
            return self._peer

    async def forward(self) -> None:
        """Forward one subscription to all browsers, and renew it whenever it is lost."""
        while True:
            with suppress(ParleyError):
                async with (await self.peer()).subscribe("prices") as notes:
                    async for note in notes:
                        for browser in self.browsers:
                            with suppress(anyio.WouldBlock):  # a slow browser misses this note
                                browser.send_nowait(note)
            await anyio.sleep(PAUSE)


async def price(request: Request) -> Response:
    peer = await request.app.state.shop.peer()
    return JSONResponse(await peer.call("price", request.path_params["item"], timeout=1))


async def prices(request: Request) -> Response:
    async def events() -> AsyncIterator[str]:
        browsers = request.app.state.shop.browsers
        send, receive = anyio.create_memory_object_stream[object](16)
        with send, receive:
            browsers.add(send)
            try:
                async for note in receive:
                    yield f"data: {json.dumps(note)}\n\n"
            finally:  # the browser has disconnected
                browsers.discard(send)

    return StreamingResponse(events(), media_type="text/event-stream")


async def failed(request: Request, error: Exception) -> Response:
    """Convert errors of the shop into HTTP responses."""
    if isinstance(error, CallRefused) and error.code == NOT_SOLD:
        return JSONResponse({"error": error.data}, 404)
    return JSONResponse({"error": str(error)}, 504 if isinstance(error, CallTimeout) else 502)


def create_app(identity: Identity, address: str) -> Starlette:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        # The node runs while the application does, in the same event loop.
        async with Node(identity) as node, anyio.create_task_group() as tasks:
            app.state.shop = Shop(node, address)
            tasks.start_soon(app.state.shop.forward)
            yield
            for browser in app.state.shop.browsers:
                browser.close()  # ends the browser's event stream
            tasks.cancel_scope.cancel()

    routes = [Route("/price/{item}", price), Route("/prices", prices)]
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers={ParleyError: failed})


def browse(app: Starlette) -> None:
    with TestClient(app) as client:  # starts and stops the application like a server
        for path in ("/price/tea", "/price/gold"):
            answer = client.get(path)
            print(f"GET {path}: {answer.status_code}", answer.json())
        with client.stream("GET", "/prices") as response:
            events = (line for line in response.iter_lines() if line)
            print(f"GET /prices: {response.status_code}", next(events), next(events), sep="\n")


async def sell(call: Call) -> object:
    if call.data != "tea":
        raise CallRefused(NOT_SOLD, "not sold here")
    return {"item": "tea", "price": 2}


async def main() -> None:
    async with Node(Identity.create()) as shop, anyio.create_task_group() as tasks:
        shop.on_call("price")(sell)
        topic = shop.topic("prices")

        async def change_prices() -> None:
            while True:
                await topic.publish({"tea": 2})
                await anyio.sleep(0.01)

        tasks.start_soon(change_prices)
        # A real application loads a key file, so that others can authorise its node ID.
        app = create_app(Identity.create(), await shop.listen("tcp://127.0.0.1:0"))
        await anyio.to_thread.run_sync(browse, app)
        print("the shop has no peers left:", not shop.peers)
        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main)
