"""What a node decides about a Dial: `Switch`, of which a server has one and an account another."""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from parley._crypto.identity import NodeId
from parley._node.streams.tunnel_stream import TunnelStream
from parley._node.tunnels.outlet import TunnelOutlet


@dataclass(frozen=True, slots=True)
class IncomingDial:
    """A Dial that came from `neighbour`, who is proven. It has either `path`, of 2 to 8 ids, or is
    for `to`, one or two ids; `trace` is its 16 bytes, `deadline` a time of the loop's clock.
    `stream` is the stream of the Dial, which becomes a hop of the tunnel."""

    neighbour: NodeId
    path: tuple[NodeId, ...] | None
    to: tuple[NodeId, ...] | None
    trace: bytes
    deadline: float
    stream: TunnelStream | None = None


class Switch(Protocol):
    """Decides about each Dial; what it counts, it counts for as long as the tunnel is open."""

    def decide(self, dial: IncomingDial) -> AbstractAsyncContextManager[TunnelOutlet | None]:
        """Enter for the tunnel onward, which is open, to be joined and closed by whoever entered;
        None for a tunnel that ends here, with a path whose last id is this node's. It is left when
        the tunnel is over, and cancelled when nobody waits for it any more.

        Raises:
            TunnelRefusedError: on entering: there will be none. Without a hop it is answered as
                this node's.
        """
