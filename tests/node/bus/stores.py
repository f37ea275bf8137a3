"""Stores for tests: opened in their own loop, and always closed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from parley._node.bus.store import Store
from tests.node.network import task_scope

AnyStore = TypeVar("AnyStore", bound=Store)


@asynccontextmanager
async def opened(store: AnyStore) -> AsyncIterator[AnyStore]:
    """Yield the opened store."""
    async with task_scope() as backend:
        await store.open(backend)
        try:
            yield store
        finally:
            await store.aclose()
