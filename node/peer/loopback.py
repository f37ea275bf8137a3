"""A node's connection to itself: an in-memory session with all features of a peer's session.

A node never accepts its own key as its peer's identity, because an attacker could simply reflect
its messages (section 4). Therefore the dialling end uses a temporary identity. Both ends are
created here, so they are known to be this node, and its identity is set once both are open.
"""

from dataclasses import replace
from typing import Final

import anyio

from parley._crypto.identity import PublicIdentity
from parley._node.errors import ungrouped
from parley._node.peer.dial import open_over
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import CloseCode
from parley._node.transport.memory import memory_pair

# The peer's name in the log.
LOCAL_NAME: Final = "local"


async def open_local(peer: Peer, back: Peer, identity: PublicIdentity) -> None:
    """Connect the two ends of a node's session with itself; both get `identity`.

    If that fails, both ends are closed.
    """
    ours, theirs = memory_pair()
    try:
        with ungrouped():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(open_over, back, theirs)
                tasks.start_soon(open_over, peer, ours)
    except BaseException:
        peer.live.drop(CloseCode.GOING_AWAY)
        back.live.drop(CloseCode.GOING_AWAY)
        raise
    for end in (peer, back):
        assert end.live.agreed is not None  # Set, because both ends are open.
        end.live.handshake_completed(replace(end.live.agreed, identity=identity))
