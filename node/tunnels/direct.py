"""From a tunnel to the same network: a session that could go directly does, as soon as one of the
direct addresses answers, and comes back to a tunnel when none does any more (section 19).
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from parley._node.backoff import Pauses
from parley._node.errors import PeerClosedError, UnreachableError
from parley._node.links.places import Places
from parley._node.links.redial import random_fraction
from parley._node.peer.peer import Peer
from parley._node.remote.redialling import Dial
from parley._node.transport.address import Address
from parley._node.transport.backend import Backend
from parley._node.transport.driver import Driver
from parley._node.transport.waiting import pause_until

# Between two attempts to leave a tunnel, which cost a question to the local network each.
PAUSES: Final = Pauses(first=5.0, longest=300.0)


def direct_dial(places: Places, loop: Backend) -> Dial:
    """How a node is dialled at its direct addresses, and at what is found then: in turn."""

    async def dial(accept: Callable[[], Driver | None]) -> None:
        failed: UnreachableError | None = None
        for text in await places.found():
            try:
                await loop.connect(Address.parse(text), accept)
                return
            except UnreachableError as error:
                failed = error
        raise failed or UnreachableError(f"{places}: no address was found")

    return dial


async def keep_direct(peer: Peer, by: int, draw: Callable[[], float] = random_fraction) -> None:
    """Whenever the session of `peer` has come through a tunnel, try the dial of the number `by`: at
    once, and after growing pauses; until it has ended. One that goes back to a tunnel within 10
    seconds counts as an attempt that failed."""
    live, loop = peer.live, peer.backend
    redialling = live.redialling
    if redialling is None or live.core.resumption is None:
        return

    with suppress(PeerClosedError):
        await peer.ping()  # a session can move once the other side has said something in it

    def is_over() -> bool:
        return live.ended is not None

    def is_tunnelled() -> bool:
        return bool(live.path) and not live.is_parted

    failures, tried = 0, 0.0
    while True:
        await live.changes.until(lambda: is_tunnelled() or is_over())
        if failures and loop.now() - tried >= PAUSES.steady:
            failures = 0
        if failures:
            seconds = PAUSES.after(failures, draw())
            await pause_until(loop, seconds, live.changes, lambda: is_over() or not is_tunnelled())
        if is_over():
            return
        if is_tunnelled():
            redialling.now(by)
            failures, tried = failures + 1, loop.now()
