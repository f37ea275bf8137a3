"""An HTTP server for one ASGI application, in the node's event loop on asyncio or trio.

Hypercorn, the other server for both loops, cannot keep these limits: it doesn't limit the number of
connections or the time of a write, it answers a head above the limit if it arrives in one piece and
a request with two framings, and on trio a connection that is open at the end raises from `serve`.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
from anyio.abc import SocketAttribute, SocketListener, SocketStream
from starlette.types import ASGIApp

from parley._node.fair_slots import FairSlots
from parley._node.logs import LogRation
from parley._node.transport.address import Address
from parley._node.transport.sockets import listen_error
from parley._node.transport.task_scope import own_task_group
from parley._node.trust.admission import address_key
from parley._node.web.exchange import HttpConnection
from parley._node.web.limits import WebLimits

logger = logging.getLogger("parley.web")

AGAIN: Final = 1.0  # seconds to wait after a failed accept


@asynccontextmanager
async def serving(
    app: ASGIApp, address: str, *, limits: WebLimits | None = None
) -> AsyncIterator[str]:
    """Serve `app` on `HOST:PORT` over HTTP/1.1 inside the block, and yield the URL, such as
    `http://127.0.0.1:9464`. Leaving the block cancels the requests in progress.

    The server doesn't use ASGI's `lifespan`: an application runs while its node runs.

    Raises:
        AddressError: the address is malformed. UnreachableError: the server cannot listen on it.
    """
    place, limits = Address.parse_web(address), limits or WebLimits()
    try:
        listener = await anyio.create_tcp_listener(local_host=place.host, local_port=place.port)
    except OSError as error:
        raise listen_error(place, error) from error
    port: int = listener.extra(SocketAttribute.local_port)  # noqa: S610 - nothing of Django
    slots: FairSlots[HttpConnection] = FairSlots(lambda one: one.waiting_since, idle=0.0)
    turns = anyio.Lock()
    # Clients cause these lines before they have authenticated.
    full, bugs, not_accepted, failures = LogRation(), LogRation(), LogRation(), LogRation()

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
            except (OSError, anyio.BrokenResourceError):  # such as: too many open files
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
