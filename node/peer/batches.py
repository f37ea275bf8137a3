"""`Batches`: the notes of a subscription in lists of those that came together."""

from collections.abc import Awaitable, Callable
from typing import Generic, Self

from parley._node.data_types import D


class Batches(Generic[D]):
    """The batches of a subscription, each by `next_batch`. Not a generator: a reader may stop
    early."""

    __slots__ = ("_next_batch",)

    def __init__(self, next_batch: Callable[[], Awaitable[list[D]]]) -> None:
        self._next_batch = next_batch

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[D]:
        """Raises as reading the subscription does."""
        batch = await self._next_batch()
        if not batch:
            raise StopAsyncIteration
        return batch
