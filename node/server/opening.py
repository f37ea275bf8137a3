"""Opening tunnels from a server: by one path, or by up to three in turn (section 19)."""

from collections.abc import Callable, Sequence
from functools import partial

from crypto.identity import NodeId
from node.errors import TunnelRefusedError
from node.federation.directory import Directory
from node.federation.limits import LEAST_AWAITED
from node.peer.peer import Peer
from node.protocol.codes import ResultCode
from node.tunnels.dialling import dial_tunnel
from node.tunnels.outlet import TunnelOutlet


class Opener:
    """Opens tunnels over the links of a server and the sessions of its accounts: `neighbour` gives
    the one with a node, if it is open; `now` is the loop's clock. Each counts, at the neighbours it
    has, until it is closed."""

    def __init__(
        self,
        directory: Directory,
        neighbour: Callable[[NodeId], Peer | None],
        now: Callable[[], float],
    ) -> None:
        self._directory = directory
        self._neighbour = neighbour
        self._now = now

    async def along(
        self,
        path: Sequence[NodeId],
        after: NodeId,
        *,
        before: NodeId | None = None,
        trace: bytes,
        timeout: float,
    ) -> TunnelOutlet:
        """Open one by `path`, to the server or account `after` there. `before` is the neighbour for
        whom; None: for ourselves.

        Raises:
            TunnelRefusedError: it is not there; without a hop if that is from us.
        """
        dials = self._directory.dials
        peer = self._neighbour(after)
        if peer is None:
            raise TunnelRefusedError(ResultCode.UNREACHABLE)
        if not dials.has_room(after, to=True):
            raise TunnelRefusedError(ResultCode.OVERLOADED)
        dials.begin(before, after)
        try:
            tunnel = await dial_tunnel(peer, path=path, trace=trace, timeout=timeout)
        except BaseException as error:
            dials.end(before, after)
            if before is not None and isinstance(error, TunnelRefusedError):
                raise _passed_on(error, path.index(after), timeout) from error
            raise
        tunnel.on_closed = partial(dials.end, before, after)
        return tunnel

    async def to(
        self,
        to: Sequence[NodeId],
        *,
        before: NodeId | None = None,
        trace: bytes,
        timeout: float,
    ) -> TunnelOutlet:
        """Open one to a server, or to [home, node], by up to three paths that begin here, each with
        a third of `timeout`.

        Raises:
            TunnelRefusedError: no path leads there; what the last one said, 28 if there was none.
        """
        attempts = self._directory.attempts(to, timeout)
        while (path := attempts.next(self._now())) is not None:
            try:
                tunnel = await self.along(
                    path, path[1], before=before, trace=trace, timeout=attempts.timeout
                )
            except TunnelRefusedError as error:
                attempts.failed(error.code, error.hop or 0, self._now())
                continue
            # What is in the tunnel of somebody else is not seen here, and nobody is blamed for it.
            tunnel.blame = lambda: attempts.failed(ResultCode.ACCEPTED, None, self._now())
            return tunnel
        raise TunnelRefusedError(attempts.code, attempts.hop)


def _passed_on(error: TunnelRefusedError, after: int, timeout: float) -> TunnelRefusedError:
    """What is answered when the server at index `after` did not open it in `timeout` seconds.

    It speaks of itself and of those behind it: whoever else it names, it is to blame. If it gave no
    answer, it is that link which is not there, and not we who are to be gone around; unless there
    was hardly time for one.
    """
    if error.hop is not None:
        return error if error.hop >= after else TunnelRefusedError(error.code, after, error.text)
    if error.code == ResultCode.DEADLINE_EXCEEDED and timeout < LEAST_AWAITED:
        return error
    return TunnelRefusedError(ResultCode.UNREACHABLE)
