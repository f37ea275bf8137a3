"""`TunnelDialer`, which opens a server's tunnels, by one path or up to three in turn; and
`ServerDialPolicy`, which decides about the Dials that the server receives (docs/protocol.md
section 19).
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import anyio

from parley._crypto.identity import NodeId
from parley._node.errors import TunnelRefusedError
from parley._node.federation.dials import DeliverLocally, Forward, Originate, Refuse, Tunnel
from parley._node.federation.directory import Directory
from parley._node.federation.limits import ANSWER_ALLOWANCE, LEAST_AWAITED
from parley._node.federation.paths import Path
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import CloseCode, ResultCode
from parley._node.remote.tunnel_stream import TunnelStream
from parley._node.tunnels.dial import dial_tunnel
from parley._node.tunnels.policy import IncomingDial
from parley._node.tunnels.tunnel_transport import TunnelTransport


class TunnelDialer:
    """Opens tunnels over the links of a server and the sessions of its accounts. `neighbour`
    returns the open session with a node; `now` is the loop's clock. Each tunnel counts for the
    neighbours that it joins until it is closed."""

    def __init__(
        self,
        directory: Directory,
        neighbour: Callable[[NodeId], Peer | None],
        now: Callable[[], float],
    ) -> None:
        self._directory = directory
        self._neighbour = neighbour
        self._now = now

    async def dial_along(
        self,
        path: Path,
        after: NodeId,
        *,
        before: NodeId | None = None,
        trace: bytes,
        timeout: float,
    ) -> TunnelTransport:
        """Open a tunnel along `path`, whose next node is `after`, for the neighbour `before`, or
        for this node if it is None.

        Raises:
            TunnelRefusedError: the tunnel was refused. It has no hop if the link with `after` is to
                blame: 17 then means that `after` was silent although it had time to answer. If the
                time was too short, or this server is at a limit, `hop` is its own index.
        """
        dials = self._directory.dials
        peer = self._neighbour(after)
        if peer is None:
            raise TunnelRefusedError(ResultCode.UNREACHABLE)
        if not dials.reserve_capacity(after, path, self._now(), before=before, to=True):
            raise TunnelRefusedError(ResultCode.OVERLOADED, path.index(after) - 1)
        counted, scope = dials.begin(before, after, path), anyio.CancelScope()
        begun = self._now()
        counted.allow_eviction(lambda: begun, scope.cancel)
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
                    raise forwarded(error, path, path.index(after)) from error
                # A round trip above the estimate explains why no answer came in time.
                excused = peer.live.round_trip.latest > expected
                silent = not excused and self._was_silent(path, after, timeout - expected)
                if error.code == ResultCode.DEADLINE_EXCEEDED and not silent:
                    raise TunnelRefusedError(error.code, path.index(after) - 1) from error
            raise
        if tunnel is None or scope.cancel_called:  # evicted for another one
            if tunnel is not None:
                tunnel.stream.end(CloseCode.OVERLOADED)
            raise TunnelRefusedError(ResultCode.OVERLOADED, path.index(after) - 1)
        track_idle(counted, tunnel.stream)
        tunnel.add_closed_callback(partial(dials.end, counted))
        return tunnel

    async def dial(
        self,
        to: Sequence[NodeId],
        *,
        before: NodeId | None = None,
        trace: bytes,
        timeout: float,
    ) -> TunnelTransport:
        """Open a tunnel to a server, or to [home, node], along up to three paths in turn, each with
        a third of `timeout`.

        Raises:
            TunnelRefusedError: with the last refusal, or 28 if there is no path.
        """
        attempts = self._directory.attempts(to, timeout, before)
        while (path := attempts.next(self._now())) is not None:
            try:
                tunnel = await self.dial_along(
                    path, path[1], before=before, trace=trace, timeout=attempts.timeout
                )
            except TunnelRefusedError as error:
                attempts.failed(error.code, error.hop, self._now())
                continue
            # The driver of our own tunnel reports wrong contents; those of others aren't visible.
            tunnel.set_blame(lambda: attempts.failed(ResultCode.ACCEPTED, None, self._now()))
            return tunnel
        raise TunnelRefusedError(attempts.code, attempts.hop or 0)

    def _was_silent(self, path: Path, after: NodeId, waited: float) -> bool:
        """Whether `after` is to blame for not answering within `waited` seconds plus the round
        trip. An account at the end of the path can delay all servers on it, so that their answers
        race our deadline."""
        if waited < LEAST_AWAITED:
            return False
        return after == path[-1] or not self._directory.leads_to_account(path)


def track_idle(tunnel: Tunnel, stream: TunnelStream) -> None:
    """Let an open tunnel with the hop `stream` be evicted once it is idle."""
    stream.active_at = stream.live.backend.now()
    tunnel.allow_eviction(lambda: stream.active_at, partial(stream.end, CloseCode.OVERLOADED))


def forwarded(error: TunnelRefusedError, path: Path, after: int) -> TunnelRefusedError:
    """Return the refusal of the server at index `after`, with a hop that it can report: its own or
    a later one. Any other counts as its own. The last node of a path has no next hop that could be
    unreachable (28), so that code is for the hop before."""
    last = len(path) - 1
    if error.code == ResultCode.UNREACHABLE:
        last -= 1
    hop = error.hop if error.hop is not None and after <= error.hop <= last else min(after, last)
    return TunnelRefusedError(error.code, hop, error.text)


class ServerDialPolicy:
    """Applies the decisions of `directory` to Dials, and opens onward tunnels with `dialer`; `now`
    is the loop's clock."""

    def __init__(
        self, directory: Directory, dialer: TunnelDialer, now: Callable[[], float]
    ) -> None:
        self._dials = directory.dials
        self._dialer = dialer
        self._now = now

    @asynccontextmanager
    async def decide(self, dial: IncomingDial) -> AsyncIterator[TunnelTransport | None]:
        """As `DialPolicy.decide`."""
        neighbour = dial.neighbour
        decision = self._dials.decide(
            neighbour,
            dial.trace,
            dial.deadline,
            self._now(),
            path=dial.path or (),
            to=dial.to or (),
        )
        if isinstance(decision, Refuse):
            raise TunnelRefusedError(decision.code, decision.hop)
        if not isinstance(decision, DeliverLocally):
            yield await self._open(neighbour, decision)
            return
        tunnel = self._dials.begin(neighbour, None, decision.path)
        if dial.stream is not None:
            track_idle(tunnel, dial.stream)
        try:
            yield None
        finally:
            self._dials.end(tunnel)

    async def _open(self, neighbour: NodeId, decision: Forward | Originate) -> TunnelTransport:
        timeout = decision.deadline + ANSWER_ALLOWANCE - self._now()
        trace = decision.trace
        if isinstance(decision, Originate):
            return await self._dialer.dial(
                decision.to, before=neighbour, trace=trace, timeout=timeout
            )
        try:
            return await self._dialer.dial_along(
                decision.path, decision.after, before=neighbour, trace=trace, timeout=timeout
            )
        except TunnelRefusedError as error:
            if error.hop is not None:
                raise
            raise TunnelRefusedError(ResultCode.UNREACHABLE) from error
