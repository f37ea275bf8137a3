"""Opening tunnels from a server: by one path, or by up to three in turn (section 19)."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import anyio

from parley._crypto.identity import NodeId
from parley._node.errors import TunnelRefusedError
from parley._node.federation.dials import Decision, Here, Onward, Originate, Refused, Tunnel
from parley._node.federation.directory import Directory
from parley._node.federation.limits import ANSWER_ALLOWANCE, LEAST_AWAITED
from parley._node.federation.paths import Path
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import CloseCode, ResultCode
from parley._node.remote.tunnel_stream import TunnelStream
from parley._node.tunnels.dial import dial_tunnel
from parley._node.tunnels.policy import IncomingDial
from parley._node.tunnels.tunnel_transport import TunnelOutlet


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
        path: Path,
        after: NodeId,
        *,
        before: NodeId | None = None,
        trace: bytes,
        timeout: float,
    ) -> TunnelOutlet:
        """Open one by `path`, to the server or account `after` there. `before` is the neighbour for
        whom; None: for ourselves.

        Raises:
            TunnelRefusedError: it is not there. Without a hop if the link with `after` is to
                blame: 17 then means that `after` was silent although it had the time to answer.
                Where the time was too short, or this server has no room, `hop` is its own index.
        """
        dials = self._directory.dials
        peer = self._neighbour(after)
        if peer is None:
            raise TunnelRefusedError(ResultCode.UNREACHABLE)
        if not dials.make_room(after, path, self._now(), before=before, to=True):
            raise TunnelRefusedError(ResultCode.OVERLOADED, path.index(after) - 1)
        counted, scope = dials.begin(before, after, path), anyio.CancelScope()
        begun = self._now()
        counted.idle_since, counted.close = lambda: begun, scope.cancel
        peer.live.measure_round_trip()
        expected = peer.live.round_trip.estimate
        tunnel = None
        try:
            with scope:
                tunnel = await dial_tunnel(peer, path=path, trace=trace, timeout=timeout)
        except BaseException as error:
            dials.end(counted)
            if isinstance(error, TunnelRefusedError):
                if error.hop is not None:
                    raise passed_on(error, path, path.index(after)) from error
                # A round trip above the estimate explains why no answer came in time.
                excused = peer.live.round_trip.latest > expected
                silent = not excused and self._was_silent(path, after, timeout - expected)
                if error.code == ResultCode.DEADLINE_EXCEEDED and not silent:
                    raise TunnelRefusedError(error.code, path.index(after) - 1) from error
            raise
        if tunnel is None or scope.cancel_called:  # it made way for another one
            if tunnel is not None:
                tunnel.stream.end(CloseCode.OVERLOADED)
            raise TunnelRefusedError(ResultCode.OVERLOADED, path.index(after) - 1)
        count_idle(counted, tunnel.stream)
        tunnel.on_closed = partial(dials.end, counted)
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
        attempts = self._directory.attempts(to, timeout, before)
        while (path := attempts.next(self._now())) is not None:
            try:
                tunnel = await self.along(
                    path, path[1], before=before, trace=trace, timeout=attempts.timeout
                )
            except TunnelRefusedError as error:
                attempts.failed(error.code, error.hop, self._now())
                continue
            # What is in the tunnel of somebody else is not seen here, and nobody is blamed for it.
            tunnel.blame = lambda: attempts.failed(ResultCode.ACCEPTED, None, self._now())
            return tunnel
        raise TunnelRefusedError(attempts.code, attempts.hop or 0)

    def _was_silent(self, path: Path, after: NodeId, waited: float) -> bool:
        """Whether `after` is to blame for not answering within `waited` seconds, besides the round
        trip. An account at the end of the path can keep all servers waiting for as long as it
        likes, so that their answers and our deadline race each other."""
        if waited < LEAST_AWAITED:
            return False
        return after == path[-1] or not self._directory.leads_to_account(path)


def count_idle(tunnel: Tunnel, stream: TunnelStream) -> None:
    """Let an open tunnel, one of whose hops is `stream`, make way once it is idle."""
    stream.active_at = stream.live.backend.now()
    tunnel.idle_since = lambda: stream.active_at
    tunnel.close = partial(stream.end, CloseCode.OVERLOADED)


def passed_on(error: TunnelRefusedError, path: Path, after: int) -> TunnelRefusedError:
    """The Answer of the server at index `after`, with a hop that it can speak for: its own or one
    behind it. Anything else counts as its own. The last of the path has no next step that could be
    missing (28), so that the step to it is."""
    last = len(path) - 1
    if error.code == ResultCode.UNREACHABLE:
        last -= 1
    hop = error.hop if error.hop is not None and after <= error.hop <= last else min(after, last)
    return TunnelRefusedError(error.code, hop, error.text)


class ServerSwitch:
    """Asks `directory`, and has `opener` open what leads on; `now` is the loop's clock."""

    def __init__(self, directory: Directory, opener: Opener, now: Callable[[], float]) -> None:
        self._dials = directory.dials
        self._opener = opener
        self._now = now

    @asynccontextmanager
    async def decide(self, dial: IncomingDial) -> AsyncIterator[TunnelOutlet | None]:
        """Enter for the tunnel onward, or for None: it ends here."""
        neighbour = dial.neighbour
        decision = self._judge(dial)
        if isinstance(decision, Refused):
            raise TunnelRefusedError(decision.code, decision.hop)
        if not isinstance(decision, Here):
            yield await self._open(neighbour, decision)
            return
        tunnel = self._dials.begin(neighbour, None, decision.path)
        if dial.stream is not None:
            count_idle(tunnel, dial.stream)
        try:
            yield None
        finally:
            self._dials.end(tunnel)

    def _judge(self, dial: IncomingDial) -> Decision:
        return self._dials.decide(
            dial.neighbour,
            dial.trace,
            dial.deadline,
            self._now(),
            path=dial.path or (),
            to=dial.to or (),
        )

    async def _open(self, neighbour: NodeId, decision: Onward | Originate) -> TunnelOutlet:
        timeout = decision.deadline + ANSWER_ALLOWANCE - self._now()
        trace = decision.trace
        if isinstance(decision, Onward):
            try:
                return await self._opener.along(
                    decision.path, decision.after, before=neighbour, trace=trace, timeout=timeout
                )
            except TunnelRefusedError as error:
                if error.hop is not None:
                    raise
                raise TunnelRefusedError(ResultCode.UNREACHABLE) from error
        return await self._opener.to(decision.to, before=neighbour, trace=trace, timeout=timeout)
