"""The tries of one server to open a tunnel: at most three, each by another path (section 19)."""

from collections.abc import Sequence

from crypto.identity import NodeId
from node.federation.limits import ATTEMPTS, LEAST_BLAMED
from node.federation.paths import Obstacle, Path, PathFinder, obstacles
from node.protocol.codes import ResultCode


class Attempts:
    """The tries to reach `to`: a server, or a home and a node that has its account there.

    Each has `timeout` seconds, a third of those that there are in all. When there is no further
    path, `code` and `hop` are what the last one failed with: 28 if there was no path at all. Where
    nothing leads around what others found, the first try goes by the best path all the same.
    """

    __slots__ = ("_finder", "_left", "_path", "_to", "code", "hop", "timeout")

    def __init__(self, finder: PathFinder, to: Sequence[NodeId], timeout: float) -> None:
        self._finder = finder
        self._to = tuple(to)
        self._left = ATTEMPTS
        self._path: Path = ()
        self.timeout = timeout / ATTEMPTS
        self.code: int = ResultCode.UNREACHABLE
        self.hop: int | None = 0

    def next(self, now: float) -> Path | None:
        """The path to try next; None if there is nothing left to try. One that goes around what is
        avoided, but of the first any: others must not be able to say that all is to be avoided."""
        if not self._left:
            return None
        path = self._finder.path_around(self._to, now)
        if path is None and self._left == ATTEMPTS:
            path = self._finder.path(self._to)
        self._left -= 1
        self._path = path or ()
        return path

    def failed(self, code: int, hop: int | None, now: float) -> None:
        """The Dial by that path was refused by the server at index `hop` of it; or this server
        itself gave up (28 its own link is down, 17 no answer in time, 19 no room on its link); or
        it was accepted, and what came by it was not from the target, or nothing (0).

        Nobody is blamed for being late where the time was short: an account chooses that of its
        Dials, and what they avoid all others go around."""
        self.code, self.hop = code, hop
        hasty = code == ResultCode.DEADLINE_EXCEEDED and self.timeout < LEAST_BLAMED
        named = [] if hasty else obstacles(self._path, code, hop)
        blamed = [one for one in named if not self._has_to_be(one)]
        for obstacle in blamed:
            self._finder.avoided.add(obstacle, now)
        if not blamed:
            self._left = 0

    def _has_to_be(self, obstacle: Obstacle) -> bool:
        """Whether all paths have it: the target, its home, or the step between the two. An account
        may log in again at any moment, and its home is there for others."""
        if isinstance(obstacle, tuple):
            return len(self._to) == 2 and self._to[1] in obstacle
        return obstacle in self._to
