"""Following a stream: no event is missed between two waits, or while the store is unavailable."""

from typing import Any, cast

import pytest

from parley._node.bus.errors import BusRefusedError, BusUnavailableError
from parley._node.bus.event import History
from parley._node.bus.identifiers import AFTER_ALL, BEFORE_ALL
from parley._node.bus.model import StoredEvent, StreamInfo
from parley._node.bus.store import LazyStore, Store
from parley._node.transport.backend import Backend
from tests.node.network import task_scope

pytestmark = pytest.mark.anyio

NAME = "shop.ordered"


class Stub:
    """A store with one stream, in which an event arrives after the first wait.

    The next `failing` responses are lost.
    """

    def __init__(self, last: str | None, *, refuses: bool = False) -> None:
        self.last = last
        self.refuses = refuses
        self.failing = 0
        self.asked: list[str] = []

    async def open(self, loop: Backend) -> None:
        """Nothing to open."""

    async def streams(self) -> list[StreamInfo]:
        if self.refuses:
            raise BusRefusedError("no")
        return [
            StreamInfo("shop.paid", 1, 1, "9-9", "9-9"),
            StreamInfo(NAME, 1, 1, None, self.last),
        ]

    async def history(self, stream: str, after: str, *rest: Any) -> list[StoredEvent]:
        if self.failing:
            self.failing -= 1
            raise BusUnavailableError("no answer")
        self.asked.append(after)
        return [] if len(self.asked) == 1 else [StoredEvent("7-1", NAME, "{}")]


@pytest.mark.parametrize(
    ("stub", "places"),
    [
        (Stub("5-0"), ["5-0", "5-0", "7-1"]),
        (Stub(None), [BEFORE_ALL, BEFORE_ALL, "7-1"]),
        (Stub("5-0", refuses=True), [AFTER_ALL, AFTER_ALL, "7-1"]),
    ],
)
async def test_new_is_resolved_to_one_position(stub: Stub, places: list[str]) -> None:
    stub.asked = []
    async with task_scope() as loop:
        events = history(stub, loop, AFTER_ALL, follow=True)
        assert (await anext(events)).id == "7-1"
        stub.failing = 2
        assert (await anext(events)).id == "7-1"
    assert stub.asked == places
    assert not stub.failing


@pytest.mark.parametrize("follow", [True, False])
async def test_first_error_of_the_store_is_raised(follow: bool) -> None:
    stub = Stub(None)
    stub.failing = 1
    async with task_scope() as loop:
        with pytest.raises(BusUnavailableError):
            await anext(history(stub, loop, BEFORE_ALL, follow=follow))
        events = history(stub, loop, BEFORE_ALL, follow=False)
        assert [event.id async for event in events] == []
        assert (await anext(events)).id == "7-1"
        stub.failing = 1
        with pytest.raises(BusUnavailableError):
            await anext(events)


def history(stub: Stub, loop: Backend, after: str, *, follow: bool) -> History:
    return History(LazyStore(cast("Store", stub), lambda: loop), NAME, after, None, follow=follow)
