"""Run the coroutine of a command: logging, event loop and signals."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import anyio

from parley._crypto.identity import Identity
from parley._node.cli.logging_setup import set_up_logging
from parley._node.cli.options import NodeOptions
from parley._node.cli.output import Output, ignore_lost_output
from parley._node.cli.signals import (
    Hangup,
    run_until_interrupted,
    run_with_hangup,
    running_command,
)
from parley._node.errors import ConfigError, HandshakeError
from parley._node.logs import needs_extra
from parley._node.node import Node
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import CloseCode
from parley._node.settings import ServeSettings
from parley._node.transport.address import Address
from parley._node.trust.policies import AcceptHook, TrustPolicy

if TYPE_CHECKING:
    from parley._node.journal.journal import Journal

Command = Callable[[NodeOptions, Output], Awaitable[None]]


class Uvloop(Enum):
    """Whether a command can use uvloop."""

    DEFAULT = "if it is installed"
    NOT_WORTHWHILE = "a short command ends before uvloop makes up for its import"
    IMPOSSIBLE = "uvloop would make standard files non-blocking for all programs that share them"


def run(
    options: NodeOptions,
    command: Command,
    *,
    log_level: str = "error",
    handles_signals: bool = False,
    uvloop: Uvloop = Uvloop.DEFAULT,
) -> None:
    """Run `command` until it returns.

    SIGINT, SIGTERM and SIGHUP cancel it, unless it handles them itself (`handles_signals`).
    `log_level` is the default if no level is given.

    Raises:
        ConfigError: an unknown loop, log level or log format.
        InterruptedCommandError: a signal.
    """
    set_up_logging(options.log_level or log_level, options.log_format or "text")
    start: Callable[[], Awaitable[None]] = partial(command, options, Output(options.as_json))
    if not handles_signals:
        start = partial(run_until_interrupted, start)
    wanted = options.uvloop
    if uvloop is Uvloop.IMPOSSIBLE:
        if wanted:
            raise ConfigError(
                "cannot use --uvloop with this command: uvloop cannot wait for standard input or "
                "output if it is a file; leave --uvloop out"
            )
        wanted = False
    elif uvloop is Uvloop.NOT_WORTHWHILE and wanted is None:
        wanted = False
    _run_loop(options.loop, wanted, start)


def run_server(
    options: NodeOptions, command: Command, serve: ServeSettings, hangup: Hangup
) -> None:
    """Run the `command` of a server, which handles SIGINT and SIGTERM itself; SIGHUP runs `hangup`.

    Raises:
        ConfigError: an unknown loop, log level or log format.
    """
    set_up_logging(
        options.log_level or serve.log_level,
        options.log_format or serve.log_format,
        access=serve.access_log,
        requests=serve.log_requests,
        follow=serve.follows_successors,
    )
    out = Output(options.as_json, follow=serve.follows_successors)
    start = partial(command, options, out)
    _run_loop(options.loop, options.uvloop, partial(run_with_hangup, start, hangup))


def _run_loop(loop: str, uvloop: bool | None, start: Callable[[], Awaitable[None]]) -> None:
    with running_command():
        anyio.run(start, **event_loop(loop, uvloop))


def event_loop(name: str, uvloop: bool | None = None) -> dict[str, Any]:
    """Return the arguments of `anyio.run` for asyncio, by default with uvloop, or for trio.

    Raises:
        ConfigError: the loop is unknown or not installed.
    """
    if name not in ("asyncio", "trio"):
        raise ConfigError(f"invalid --loop {name!r}: expected asyncio or trio")
    wanted, extra = ("trio", "trio") if name == "trio" else ("uvloop", "fast")
    there = find_spec(wanted) is not None
    if not there and (uvloop or wanted == "trio"):
        raise ConfigError(needs_extra(f"the event loop {wanted}", extra))
    if name == "trio":
        if uvloop:
            raise ConfigError(
                "cannot use --uvloop with --loop trio: uvloop is for asyncio only; leave one of "
                "the options out"
            )
        return {"backend": name}
    use_uvloop = there if uvloop is None else uvloop
    return {"backend": name, "backend_options": {"use_uvloop": use_uvloop}}


def make_node(
    options: NodeOptions,
    trust: TrustPolicy | None = None,
    journal: "Journal | None" = None,
    *,
    identity: Identity | None = None,
) -> Node:
    """Return a node with the settings of the options, and with their identity or another one."""
    return Node(
        options.identity() if identity is None else identity,
        config=options.config,
        trust=trust,
        journal=journal,
        statements=options.statements(),
        watch=options.watched_ids(),
    )


async def dial(node: Node, address: str, trust: TrustPolicy | AcceptHook) -> Peer:
    """Connect to `address`; raises the errors of `Node.connect`, with a hint if the node never
    answers.
    """
    with handshake_hint():
        return await node.connect(address, trust=trust)


def remark_successor(out: Output, address: str, peer: Peer) -> None:
    """Print a remark if the node ID in an address has ended, and its successor was reached."""
    dialled = Address.parse(address).node_id
    if dialled is not None and peer.node_id not in (None, dialled):
        text = f"the node ID {dialled} has ended: connected to its successor {peer.node_id}"
        out.remark(out.petnames.in_text(text))


def require_other_node(node: Node, *addresses: str) -> None:
    """Raise ConfigError if an address has the node ID of `node` itself.

    This happens if two servers of one user share a key. Such servers can never connect.
    """
    for address in addresses:
        if Address.parse(address).node_id == node.node_id:
            raise ConfigError(
                f"cannot connect to {address!r}: it has the node ID of this node; give one of "
                "the two another key (parley id new FILE, then --identity FILE)"
            )


@contextmanager
def handshake_hint() -> Iterator[None]:
    """Add a hint to the error if the other side doesn't respond during the handshake."""
    try:
        yield
    except HandshakeError as error:
        if error.code != CloseCode.CONNECTION_LOST:
            raise
        # A node with a network key doesn't respond to nodes without it.
        hint = "it may use another network key or another protocol"
        raise HandshakeError(error.code, f"{error.text}: {hint}") from error


def peer_fields(peer: Peer) -> dict[str, Any]:
    """Return a peer's identity and the negotiated suite, for JSON and tables."""
    return {
        "node_id": str(peer.node_id) if peer.node_id else None,
        "role": peer.role,
        "encrypted": peer.encrypted,
        "suite": peer.suite.names() if peer.suite else None,
    }


def report_closed(out: Output, signal_name: str, **fields: Any) -> None:
    """Print the last lines of a command that was ended by a signal."""
    with ignore_lost_output():
        out.print(f"closed on {signal_name}")
        out.done(signal=signal_name, **fields)
