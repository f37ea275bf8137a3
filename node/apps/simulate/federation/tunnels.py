"""A tunnel of a simulated federation: a Dial on its way, what it is counted at, and its end."""

from typing import TYPE_CHECKING, Final

from crypto.identity import NodeId
from node.apps.simulate.federation.links import Answered
from node.protocol.codes import ResultCode

if TYPE_CHECKING:
    from node.apps.simulate.federation.servers import SimulatedServer
    from node.apps.simulate.federation.world import FederationWorld

# Seconds that one is used, on average; and until servers on its way see that it is over.
USED: Final = 20.0
_ENDED: Final = 1.0


class SimulatedTunnel:
    """One try by one path. It carries nothing: what is looked at is how it comes about."""

    def __init__(
        self, world: "FederationWorld", origin: "SimulatedServer", path: tuple[NodeId, ...]
    ) -> None:
        self._world = world
        self._origin = origin
        self._joints: list[tuple[SimulatedServer, int, NodeId | None, NodeId | None]] = []
        self._over = False
        self.path = path
        self.trace = world.draws.randbytes(16)
        world.dials.began(self.trace, origin.number)

    def open(self, timeout: float, done: Answered) -> None:
        """Send the Dial out; `done` is told of its answer, or that none came in `timeout` seconds.
        """
        world, after = self._world, self.path[1]

        def answered(code: int, hop: int | None) -> None:
            world.note("answer", self._origin.number, code, self.trace)
            used = world.draws.expovariate(1 / USED) if not code else 0.0
            world.agenda.after(used + _ENDED, self._end)
            done(code, hop)

        self.joined(self._origin, None, after)
        answer = world.once(timeout, answered, ResultCode.DEADLINE_EXCEEDED, None)
        self._origin.forward(self, after, timeout, answer)

    def joined(
        self, server: "SimulatedServer", before: NodeId | None, after: NodeId | None
    ) -> None:
        """A server on its way counts it from now on."""
        server.core.dials.begin(before, after)
        self._joints.append((server, server.boots, before, after))
        if self._over:
            self._world.agenda.after(_ENDED, self._end)

    def _end(self) -> None:
        self._over = True
        for server, boots, before, after in self._joints:
            if server.directory is not None and server.boots == boots:
                server.directory.dials.end(before, after)
        self._joints.clear()
