"""Runs a command's coroutine: logging, event loop, signals, and its end as an exit code.

A command either returns, or raises an error that `exits.failure` knows.
"""

import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self

import anyio

from parley._node.cli.ending import end_within, longest_end, running_command
from parley._node.cli.exit_codes import Interrupted
from parley._node.cli.logging_setup import set_up_logging
from parley._node.cli.options import NodeOptions
from parley._node.cli.output import Output, unread
from parley._node.errors import ConfigError, HandshakeError
from parley._node.logs import needs_extra
from parley._node.node import Node
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import CloseCode
from parley._node.transport.address import Address
from parley._node.trust.policies import AcceptHook, TrustPolicy

if TYPE_CHECKING:
    from parley._node.journal.journal import Journal

logger = logging.getLogger("parley")

# What SIGHUP does.
Hangup = Callable[[], Awaitable[None]]


def run(
    options: NodeOptions,
    command: Callable[[NodeOptions, Output], Awaitable[None]],
    *,
    log_level: str = "error",
    access_log: bool = False,
    log_requests: bool = False,
    serves: bool = False,
    hangup: Hangup | None = None,
    signals_are_its_own: bool = False,
    waits_on_files: bool = False,
    is_brief: bool = False,
) -> None:
    """Run `command` on the event loop that the options name.

    `log_level` holds where the options name none; with `access_log` the access log is there
    whatever the level. SIGINT, SIGTERM and SIGHUP interrupt the command,
    unless `signals_are_its_own`; where it `serves`, they are too, and SIGHUP does what
    `hangup` does, or is ignored.
    `waits_on_files` says that it waits for its standard files, which uvloop would make
    non-blocking for everybody who shares them, as a shell does. One that `is_brief` is over before
    uvloop would have made up for its import.

    Raises:
        ConfigError: an unknown loop, log level or format of logs. Interrupted: by a signal.
    """
    level, form = options.log_level or log_level, options.log_format or "text"
    set_up_logging(level, form, access=access_log, requests=log_requests)
    uvloop = options.uvloop
    if waits_on_files:
        if uvloop:
            raise ConfigError(
                "cannot use --uvloop with this command: uvloop cannot wait for standard input or "
                "output if it is a file; leave --uvloop out"
            )
        uvloop = False
    if is_brief and uvloop is None:
        uvloop = False
    start: Callable[[], Awaitable[None]] = partial(command, options, Output(options.as_json))
    if serves:
        start = partial(surviving_hangups, start, hangup)
    elif not signals_are_its_own:
        start = partial(until_interrupted, start)
    with running_command():
        anyio.run(start, **event_loop(options.loop, uvloop))


def event_loop(name: str, uvloop: bool | None = None) -> dict[str, Any]:
    """What `anyio.run` has to be told: asyncio, with uvloop where it is there, or trio.

    Raises:
        ConfigError: it is not installed, or there is no such loop.
    """
    if name not in ("asyncio", "trio"):
        raise ConfigError(f"--loop {name}: asyncio or trio")
    wanted, extra = ("trio", "trio") if name == "trio" else ("uvloop", "fast")
    there = find_spec(wanted) is not None
    if not there and (uvloop or wanted == "trio"):
        raise ConfigError(needs_extra(f"what runs on {wanted}", extra))
    if name == "trio":
        if uvloop:
            raise ConfigError(
                "cannot use --uvloop with --loop trio: uvloop is for asyncio; leave one of the "
                "options out"
            )
        return {"backend": name}
    use_uvloop = there if uvloop is None else uvloop
    return {"backend": name, "backend_options": {"use_uvloop": use_uvloop}}


def make_node(
    options: NodeOptions, trust: TrustPolicy | None = None, journal: "Journal | None" = None
) -> Node:
    """A node as the options have it."""
    return Node(options.identity(), config=options.config(), trust=trust, journal=journal)


async def meet(node: Node, address: str, trust: TrustPolicy | AcceptHook) -> Peer:
    """Dial `address`; raises as `Node.connect`, with a hint where there is only silence."""
    with hinting():
        return await node.connect(address, trust=trust)


def require_other(node: Node, *addresses: str) -> None:
    """Raise ConfigError if one of the addresses has the id of `node` itself, which would dial it
    for ever in vain. So it is with two servers of one person, unless one has a key of its own."""
    for address in addresses:
        if Address.parse(address).node_id == node.node_id:
            raise ConfigError(
                f"{address} has the id of this node: give one of the two a key of its own "
                "(parley id new FILE, then --identity FILE)"
            )


@contextmanager
def hinting() -> Iterator[None]:
    """A handshake that meets only silence raises its error with a hint."""
    try:
        yield
    except HandshakeError as error:
        if error.code != CloseCode.CONNECTION_LOST:
            raise
        # A node with a network key is silent towards nodes without it.
        hint = "it may have another network key, or speak another protocol"
        raise HandshakeError(error.code, f"{error.text}: {hint}") from error


def described(peer: Peer) -> dict[str, Any]:
    """Who a peer is and what was agreed, for JSON and tables."""
    return {
        "node_id": str(peer.node_id) if peer.node_id else None,
        "role": peer.role,
        "encrypted": peer.encrypted,
        "suite": peer.suite.names() if peer.suite else None,
    }


async def until_interrupted(command: Callable[..., Awaitable[None]], *args: Any) -> None:
    """Run `command`; SIGINT, SIGTERM or SIGHUP cancels it, so that its peers are told.

    Raises:
        Interrupted: it was cancelled.
    """
    caught = await until_signalled(command, *args)
    if caught is not None:
        raise Interrupted(caught)


async def until_signalled(
    command: Callable[..., Awaitable[None]], *args: Any
) -> signal.Signals | None:
    """The same for a command that a signal ends in order: returns the one that came, if any did."""
    caught: list[signal.Signals] = []

    async def watch() -> None:
        caught.append(await anext(signals))
        tasks.cancel_scope.cancel()

    with ending_signals() as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await command(*args)
            tasks.cancel_scope.cancel()
    return caught[0] if caught else None


async def surviving_hangups(
    command: Callable[[], Awaitable[None]], hangup: Hangup | None = None
) -> None:
    """Run `command`, which SIGHUP does not end, not while it closes either. It does what `hangup`
    does, which raises nothing, one after the other."""

    async def watch() -> None:
        async for _ in signals:
            if hangup is not None:
                await hangup()
                continue
            text = "SIGHUP is ignored: restart this process to have its settings read anew"
            logger.warning(text, extra={"event": "reload.ignored"})

    with anyio.open_signal_receiver(signal.SIGHUP) as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await command()
            tasks.cancel_scope.cancel()


@contextmanager
def ending_signals(seconds: float | None = None) -> Iterator[AsyncIterator[signal.Signals]]:
    """Have SIGINT and SIGTERM brought here instead of ending the process; SIGHUP too, unless a
    server reloads on it or it is ignored, as under nohup.

    After the first one the process ends within `seconds`, by default what a node takes at most.
    """
    ends = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        ends.append(signal.SIGHUP)
    with anyio.open_signal_receiver(*ends) as signals:
        yield _Arming(signals, longest_end() if seconds is None else seconds)


class _Arming:
    """Signals, the first of which bounds the time until the process ends."""

    def __init__(self, signals: AsyncIterator[signal.Signals], seconds: float) -> None:
        self._signals = signals
        self._seconds = seconds

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> signal.Signals:
        number = await anext(self._signals)
        end_within(self._seconds, 128 + number)
        return number


def say_closed(out: Output, signal_name: str, **fields: Any) -> None:
    """The last lines of a command that a signal ended in order."""
    with unread():
        out.say(f"closed on {signal_name}")
        out.done(signal=signal_name, **fields)
