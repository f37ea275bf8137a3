"""The tries of one server to open a tunnel: at most three, each by another path (section 19)."""

from collections.abc import Sequence

from parley._crypto.identity import NodeId
from parley._node.federation.limits import ATTEMPTS
from parley._node.federation.paths import Obstacle, Path, PathFinder, obstacles
from parley._node.protocol.codes import ResultCode


class Attempts:
    """The tries to reach `to`: a server, or a home and a node that has its account there. `dialler`
    is the account that dials, None for this server itself.

    Each has `timeout` seconds, a third of those that there are in all. When there is no further
    path, `code` and `hop` are what the last one failed with: 28 if there was no path at all. Where
    nothing leads around what others found, the first try goes by the best path all the same.
    """

    __slots__ = ("_dialler", "_finder", "_left", "_path", "_to", "code", "hop", "timeout")

    def __init__(
        self,
        finder: PathFinder,
        to: Sequence[NodeId],
        timeout: float,
        dialler: NodeId | None = None,
    ) -> None:
        self._finder = finder
        self._to = tuple(to)
        self._dialler = dialler
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
        path = self._finder.path_around(self._to, now, self._dialler)
        if path is None and self._left == ATTEMPTS:
            path = self._finder.path(self._to)
        self._left -= 1
        self._path = path or ()
        return path

    def failed(self, code: int, hop: int | None, now: float) -> None:
        """Record that the Dial by that path was refused by the server at index `hop` of it.

        A `hop` of None stands for this server: 28 its own link is down, 17 the next server did not
        answer although it had the time, 19 its link is full. Code 0: the Dial was accepted, but no
        handshake with the target succeeded.
        """
        self.code, self.hop = code, hop
        named = obstacles(self._path, code, hop)
        blamed = [one for one in named if not self._has_to_be(one)]
        shared = not self._can_be_caused(code, hop)
        for obstacle in blamed:
            if shared:
                self._finder.avoided.add(obstacle, now)
            else:
                route = (self._dialler, self._to)
                self._finder.avoided_by_route.add((route, obstacle), now)
        if not blamed:
            self._left = 0

    def _can_be_caused(self, code: int, hop: int | None) -> bool:
        """Whether the dialling account or a target account can cause this failure alone: the first
        chooses the deadline, which can be too short for the path, the other can be silent."""
        if code == ResultCode.DEADLINE_EXCEEDED:
            return hop is not None or len(self._to) == 2
        return code == ResultCode.ACCEPTED and len(self._to) == 2

    def _has_to_be(self, obstacle: Obstacle) -> bool:
        """Whether all paths have it: the target, its home, or the step between the two. An account
        may log in again at any moment, and its home is there for others."""
        if isinstance(obstacle, tuple):
            return len(self._to) == 2 and self._to[1] in obstacle
        return obstacle in self._to
