"""The true state of a simulated federation: which servers can reach each other, and in how many
hops.

It imports none of the code under test.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

LONGEST: Final = 8  # servers in a path, including its ends


@dataclass(frozen=True, slots=True)
class Truth:
    """The state of the links.

    `linked` has the neighbours of each server with an open link, and `carries` those for which it
    relays tunnels. Servers are numbers.
    """

    linked: Mapping[int, Sequence[int]]
    carries: Mapping[int, frozenset[int]]

    def parts(self) -> list[frozenset[int]]:
        """Return the connected components."""
        found: list[frozenset[int]] = []
        left = set(self.linked)
        while left:
            part = {left.pop()}
            edge = list(part)
            while edge:
                new = set(self.linked[edge.pop()]) - part
                part |= new
                edge.extend(new)
            left -= part
            found.append(frozenset(part))
        return found

    def depth(self) -> int:
        """Return the number of links to the farthest server that the first can reach."""
        reached, level, depth = {0}, {0}, -1
        while level:
            depth += 1
            level = {near for server in level for near in self.linked[server]} - reached
            reached |= level
        return depth

    def distances(self, origin: int) -> dict[int, int]:
        """Return the number of servers on the shortest path to each target, including both ends."""
        lengths = {origin: 1}
        seen: set[tuple[int, int]] = set()
        queue: deque[tuple[int, int | None, int]] = deque([(origin, None, 1)])
        while queue:
            server, before, length = queue.popleft()
            if length == LONGEST or not (before is None or before in self.carries[server]):
                continue
            for then in self.linked[server]:
                if then != origin and (then, server) not in seen:
                    seen.add((then, server))
                    lengths.setdefault(then, length + 1)
                    queue.append((then, server, length + 1))
        return lengths

    def fault(self, path: Sequence[int], origin: int, target: int) -> str | None:
        """Return the error in a path, or None."""
        if path[0] != origin or path[-1] != target:
            return "it leads elsewhere"
        if len(set(path)) < len(path):
            return "it has a server twice"
        for one, other in pairwise(path):
            if other not in self.linked[one]:
                return f"there is no link from {one} to {other}"
        for before, server in pairwise(path[:-1]):
            if before not in self.carries[server]:
                return f"{server} does not carry for {before}"
        return None
