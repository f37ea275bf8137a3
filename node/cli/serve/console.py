"""The console of `parley serve`: its option, and its announcement."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from parley._node.cli.output import Output
from parley._node.errors import ConfigError
from parley._node.logs import needs_extra
from parley._node.node import Node
from parley._node.server.federation import Federation
from parley._node.settings import Settings
from parley._node.trust.known_peers import KnownPeers, default_known_peers
from parley._node.trust.policies import known_peers_of


@asynccontextmanager
async def watched(
    node: Node, settings: Settings, federation: Federation | None, out: Output
) -> AsyncIterator[None]:
    """While it lasts, serve the console at the address of the settings, if they name one.

    Raises:
        ConfigError: what it needs is not installed. InsecureAddressError: others could reach it.
        UnreachableError: it cannot be listened on.
    """
    if settings.serve.console is None:
        yield
        return
    try:
        # Here: what it needs is an extra, and slow to load.
        from parley._node.cli.doctor.running import findings
        from parley._node.web.console.console import Console
        from parley._node.web.console.serving import serving_console
    except ModuleNotFoundError as error:
        raise ConfigError(needs_extra("the console", "console")) from error
    console = Console(
        node,
        federation=federation,
        known_peers=known_peers_of(node.trust) or KnownPeers(default_known_peers()),
        findings=partial(findings, settings),
        on_drain=partial(os.kill, os.getpid(), signal.SIGTERM),
    )
    async with serving_console(console, settings.serve.console) as served:
        with served.found_in(consoles()):
            link = served.link()
            out.say(f"the console, to look, once: {link}")
            out.event("console", url=served.url, link=link)
            yield


def consoles() -> Path:
    """Where consoles say how they are reached; ConfigError without a home."""
    return default_known_peers().parent / "consoles"
