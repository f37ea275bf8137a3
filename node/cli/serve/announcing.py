"""Whether `parley serve` is announced on the local network."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from parley._node.cli.output import Output
from parley._node.discovery.discovery import announce
from parley._node.node import Node
from parley._node.settings import ServeSettings


@asynccontextmanager
async def announced(
    node: Node, settings: ServeSettings, out: Output, *, server: bool
) -> AsyncIterator[None]:
    """Announce the node, if that is wanted; raises as `announce`."""
    if not settings.announce:
        yield
        return
    async with announce(node, name=settings.announce_name, server=server):
        out.say("announced on the local network")
        yield
