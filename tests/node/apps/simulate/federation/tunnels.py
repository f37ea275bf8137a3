"""A tunnel of a simulated federation: one Dial, and the servers at which it counts."""

from typing import TYPE_CHECKING, Final

from parley._crypto.identity import NodeId
from parley._node.federation.dials import Dials, Tunnel
from parley._node.federation.paths import Path

if TYPE_CHECKING:
    from tests.node.apps.simulate.federation.world import FederationWorld

# Average seconds of use, and seconds until the servers on its path notice its end.
USED: Final = 20.0
_ENDED: Final = 1.0


class SimulatedTunnel:
    """An attempt along one path. It transfers no data; only its opening is tested."""

    def __init__(self, world: "FederationWorld", path: Path) -> None:
        self._world = world
        self._joints: list[tuple[Dials, Tunnel]] = []
        self._over = False
        self.path = path
        self.trace = world.draws.randbytes(16)

    def joined(self, dials: Dials, before: NodeId | None, after: NodeId | None) -> None:
        """Count it at a server on its path."""
        self._joints.append((dials, dials.begin(before, after, self.path)))
        if self._over:
            self.end_later(0.0)

    def end_later(self, seconds: float) -> None:
        """End it in so many seconds; the servers notice a moment later."""
        self._world.agenda.after(seconds + _ENDED, self._end)

    def _end(self) -> None:
        self._over = True
        for dials, tunnel in self._joints:
            dials.end(tunnel)
        self._joints.clear()
