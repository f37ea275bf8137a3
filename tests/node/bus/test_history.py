"""What is yet to come of a stream: nothing is missed between two waits."""

from typing import Any, cast

import pytest

from node.bus.errors import BusRefusedError
from node.bus.history import History
from node.bus.ids import AFTER_ALL, BEFORE_ALL
from node.bus.model import StoredEvent, StreamInfo
from node.bus.store import Store

pytestmark = pytest.mark.anyio

NAME = "shop.ordered"


class Stub:
    """A store with one stream, in which an event comes after the first wait."""

    def __init__(self, last: str | None, *, refuses: bool = False) -> None:
        self.last = last
        self.refuses = refuses
        self.asked: list[str] = []

    async def streams(self) -> list[StreamInfo]:
        if self.refuses:
            raise BusRefusedError("no")
        return [
            StreamInfo("shop.paid", 1, 1, "9-9", "9-9"),
            StreamInfo(NAME, 1, 1, None, self.last),
        ]

    async def history(self, stream: str, after: str, *rest: Any) -> list[StoredEvent]:
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
async def test_from_now_on_is_one_place(stub: Stub, places: list[str]) -> None:
    store, stub.asked = cast("Store", stub), []

    async def opened() -> Store:
        return store

    events = aiter(History(opened, NAME, AFTER_ALL, None, follow=True))
    assert [(await anext(events)).id for _ in range(2)] == ["7-1", "7-1"]
    assert stub.asked == places
