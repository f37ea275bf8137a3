"""Whether `parley serve` is announced on the local network."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import typer

from parley._node.cli.output import Output
from parley._node.discovery.discovery import announce
from parley._node.node import Node
from parley._node.settings import ServeSettings

Announce = Annotated[
    bool | None,
    typer.Option(
        "--announce/--no-announce",
        help="Be found on the local network: everybody there can read id, addresses and name.",
    ),
]
AnnounceName = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="What the node calls itself there, at most 63 bytes."),
]


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
