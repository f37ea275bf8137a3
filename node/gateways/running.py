"""The loop of what runs beside a node or without one: gateways, clients, a relay.

One rule: it lives as long as its `async with`, and leaves neither task nor socket.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from node.transport.backend import Backend, current_backend


@asynccontextmanager
async def own_backend() -> AsyncIterator[Backend]:
    """A backend of one's own in the running loop; leaving closes what it made."""
    async with anyio.create_task_group() as task_group:
        backend = current_backend(task_group)
        try:
            yield backend
        finally:
            # Also when we are being cancelled: sockets and tasks are ours to close.
            with anyio.CancelScope(shield=True):
                await backend.aclose()
