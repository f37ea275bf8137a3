"""`ServerSwitch`: what becomes of the Dials that come to a server: its `Directory` judges, and what
it says is done.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from parley._crypto.identity import NodeId
from parley._node.errors import TunnelRefusedError
from parley._node.federation.dials import Decision, Here, Onward, Originate, Refused
from parley._node.federation.directory import Directory
from parley._node.federation.limits import ANSWER_ALLOWANCE
from parley._node.protocol.codes import ResultCode
from parley._node.server.opening import Opener, count_idle
from parley._node.tunnels.outlet import TunnelOutlet
from parley._node.tunnels.switch import IncomingDial


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
