"""Sets that keep the order of insertion.

The order of Python's sets depends on memory addresses, and so would the order of events at the same
simulated time.
"""

import sys
from collections.abc import Iterable, Iterator, MutableSet
from contextlib import contextmanager
from typing import Any

import pytest

# The modules whose sets are iterated while nodes run.
PACKAGES = ("parley._node.", "anyio.")


class OrderedSet(MutableSet[Any]):
    """A set with the methods that nodes and anyio use."""

    def __init__(self, items: Iterable[Any] = ()) -> None:
        self._items = dict.fromkeys(items)

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"OrderedSet({list(self._items)})"

    def add(self, value: Any) -> None:
        self._items[value] = None

    def discard(self, value: Any) -> None:
        self._items.pop(value, None)

    def clear(self) -> None:
        self._items.clear()

    def update(self, *others: Iterable[Any]) -> None:
        for other in others:
            self._items.update(dict.fromkeys(other))

    def difference_update(self, *others: Iterable[Any]) -> None:
        for other in others:
            self -= OrderedSet(other)

    def copy(self) -> "OrderedSet":
        return OrderedSet(self._items)


@contextmanager
def ordered_sets() -> Iterator[None]:
    """Replace `set()` by ordered sets in all loaded modules of these packages."""
    with pytest.MonkeyPatch.context() as patch:
        for name, module in list(sys.modules.items()):
            if name.startswith(PACKAGES):
                patch.setattr(module, "set", OrderedSet, raising=False)
        yield
