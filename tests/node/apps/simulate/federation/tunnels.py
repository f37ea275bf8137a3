"""A tunnel of a simulated federation: one Dial, and the servers at which it is counted."""

from typing import TYPE_CHECKING, Final

from parley._crypto.identity import NodeId
from parley._node.federation.dials import Dials, Tunnel
from parley._node.federation.paths import Path

if TYPE_CHECKING:
    from tests.node.apps.simulate.federation.world import FederationWorld

# Seconds that one is used, on average; and until servers on its way see that it is over.
USED: Final = 20.0
_ENDED: Final = 1.0


class SimulatedTunnel:
    """One try by one path. It carries nothing: what is looked at is how it comes about."""

    def __init__(self, world: "FederationWorld", path: Path) -> None:
        self._world = world
        self._joints: list[tuple[Dials, Tunnel]] = []
        self._over = False
        self.path = path
        self.trace = world.draws.randbytes(16)

    def joined(self, dials: Dials, before: NodeId | None, after: NodeId | None) -> None:
        """A server on its way counts it from now on."""
        self._joints.append((dials, dials.begin(before, after, self.path)))
        if self._over:
            self.end_later(0.0)

    def end_later(self, seconds: float) -> None:
        """End it in so many seconds: servers learn of it a moment later."""
        self._world.agenda.after(seconds + _ENDED, self._end)

    def _end(self) -> None:
        self._over = True
        for dials, tunnel in self._joints:
            dials.end(tunnel)
        self._joints.clear()
