"""A node that a command keeps reachable: its comings and goings are lines on the screen, and not
the end.
"""

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from node.cli.options import NodeOptions
from node.cli.output import Output
from node.cli.run import described, hinting
from node.links.link import Link
from node.node import Node
from node.peer.peer import Peer


@asynccontextmanager
async def kept_reachable(
    node: Node, options: NodeOptions, out: Output, address: str
) -> AsyncIterator[Link]:
    """A link of `node` that is up. Whenever there is no connection any more, and one again, that is
    an event, `disconnected` and `connected`, and a line on standard error; reasons are in the log.
    Raises as `Node.connect` if the first connection cannot be made."""
    lost = False

    def say_connected(peer: Peer) -> None:
        nonlocal lost
        out.event("connected", **described(peer))
        if lost:
            out.remark("connected again")
        lost = False

    def say_lost(why: str, seconds: float) -> None:
        nonlocal lost
        if not lost:
            out.event("disconnected", text=why, again_in=seconds)
        lost = True

    async def watch(peer: Peer) -> None:
        """A session may lose its transport and get another, as often as it likes."""
        changes = peer.live.changes
        while peer.is_open:
            await changes.until(lambda: peer.is_parted or not peer.is_open)
            if peer.is_parted:
                why = "the connection was lost"
                say_lost(why, 0.0)
                out.remark(f"{why}; connecting again")
                await changes.until(lambda: not peer.is_parted)
                if peer.is_open:
                    say_connected(peer)

    async with node.link(address, trust=options.dialling_trust(address)) as link:
        link.on_up(say_connected)
        link.on_up(watch)
        link.on_down(lambda why: say_lost(f"the connection ended: {why}", link.pause))
        with hinting(), _silent_links():
            await link.ready(attempts=1)
        yield link


@contextmanager
def _silent_links() -> Iterator[None]:
    """What ends the command is not a line of the log as well, which says that it goes on."""
    log = logging.getLogger("parley.link")
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = False
