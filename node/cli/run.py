"""Runs a command's coroutine: logging, event loop, and its end in an exit code.

One rule: a command either returns, or raises what `exits.failure` knows.
"""

import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Any

import anyio

from node.cli.options import Common
from node.cli.output import Output, set_up_logging
from node.errors import ConfigError
from node.node import Node
from node.peer import Peer
from node.trust import TrustPolicy


def run(
    common: Common,
    command: Callable[[Common, Output], Awaitable[None]],
    *,
    log_level: str = "error",
) -> None:
    """Run `command` on asyncio, with uvloop where it is installed or asked for.

    `log_level` holds where the options name none.

    Raises:
        ConfigError: uvloop or a log level that is not there.
    """
    level = common.log_level or log_level
    if level.lower() not in ("debug", "info", "warning", "error"):
        raise ConfigError(f"--log-level {level}: debug, info, warning or error")
    set_up_logging(level)
    there = find_spec("uvloop") is not None
    if common.uvloop and not there:
        raise ConfigError("uvloop is not installed: pip install 'parley-node[uvloop]'")
    use_uvloop = there if common.uvloop is None else common.uvloop
    anyio.run(command, common, Output(common.as_json), backend_options={"use_uvloop": use_uvloop})


def make_node(common: Common, trust: TrustPolicy | None = None) -> Node:
    """A node as the options have it."""
    return Node(common.identity(), config=common.config(), trust=trust)


@asynccontextmanager
async def dialled(common: Common, out: Output, address: str) -> AsyncIterator[Peer]:
    """A peer at `address`; leaving closes it and the node."""
    async with make_node(common) as node:
        peer = await node.connect(address, trust=common.dialling_trust())
        out.event("connected", **described(peer))
        yield peer
        await peer.close()


def described(peer: Peer) -> dict[str, Any]:
    """Who a peer is and what was agreed, for JSON and tables."""
    return {
        "node_id": str(peer.node_id) if peer.node_id else None,
        "role": peer.role,
        "encrypted": peer.encrypted,
        "suite": peer.suite.names() if peer.suite else None,
    }


async def until_asked_to_end() -> str:
    """Wait for SIGINT or SIGTERM; returns its name."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for number in signals:
            return number.name
    raise ConfigError("signals cannot be received here")
