"""A node that meets itself: a session of its own in memory, with everything a peer's session has.

No node proves its own id to itself, since an answer with one's own key is what a mirror would give
(section 4). So the end that asks has an identity for the occasion, and what this is known to be,
the node itself, is written into the session once both ends are there: they are made here together.
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

# Where such a session comes from, for the log.
LOCAL_NAME: Final = "local"


async def open_local(peer: Peer, back: Peer, identity: PublicIdentity) -> None:
    """Join the two ends of a node's session with itself, whose `identity` both are to have;
    nothing of it is left if that fails."""
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
        assert end.live.agreed is not None  # they are open
        end.live.handshake_completed(replace(end.live.agreed, identity=identity))
