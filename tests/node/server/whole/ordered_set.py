"""Sets that keep the order in which things were added. Those of Python have one that depends on
where objects lie in memory, and so would what happens at the same simulated moment.
"""

import sys
from collections.abc import Iterable, Iterator, MutableSet
from contextlib import contextmanager
from typing import Any

import pytest

# Whose sets are iterated while nodes run.
PACKAGES = ("parley._node.", "anyio.")


class OrderedSet(MutableSet[Any]):
    """As `set`, as far as nodes and anyio use it."""

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
    """Have `set()` make them, in all modules of these packages that are there by now."""
    with pytest.MonkeyPatch.context() as patch:
        for name, module in list(sys.modules.items()):
            if name.startswith(PACKAGES):
                patch.setattr(module, "set", OrderedSet, raising=False)
        yield
