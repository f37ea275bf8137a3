"""How many entries to ask Redis for at a time, so that what one answer holds in memory is bounded.

One rule: the entries of a stream that came last say how large the next ones may be; what nobody
has seen yet is taken to be large. Sends nothing.
"""

from collections.abc import Iterable, Sequence
from typing import Final

# Bytes of entries that one answer is to have, about.
HANDFUL: Final = 2**20
# Entries of one answer, however small the last ones were: the next ones may be large.
MOST: Final = 256
# Bytes that an entry of a stream has that was not read yet.
FIRST: Final = 16 * 2**10
# Streams of which that is remembered; then the oldest are forgotten.
REMEMBERED: Final = 1_000


class Portions:
    """What one store knows of its streams' entries, by their keys."""

    __slots__ = ("_longest",)

    def __init__(self) -> None:
        self._longest: dict[str, int] = {}

    def count(self, key: str, wanted: int) -> int:
        """How many entries to ask for where `wanted` may come."""
        return max(1, min(wanted, MOST, HANDFUL // self._longest.get(key, FIRST)))

    def saw(self, key: str, entries: Iterable[Sequence[bytes]]) -> None:
        """The fields of entries that came."""
        longest = max((sum(map(len, fields)) for fields in entries), default=0)
        if not longest:
            return
        # Small ones after a large one: twice as many each time.
        before = self._longest.pop(key, longest)
        self._longest[key] = max(longest, before // 2)
        if len(self._longest) > REMEMBERED:
            del self._longest[next(iter(self._longest))]
