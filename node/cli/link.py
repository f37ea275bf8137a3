"""The self-reconnecting connection of a command, and reports about its state.

A session that resumes over another transport loses no data. If the session has ended, the command
starts over in a new session.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, NoReturn, Protocol

import anyio
import anyio.lowlevel

from parley._node.cli.options import NodeOptions
from parley._node.cli.output import Output
from parley._node.cli.run import handshake_hint, peer_fields, remark_successor
from parley._node.cli.standard_io import PacedOutput
from parley._node.errors import PeerClosedError
from parley._node.logs import one_line
from parley._node.node import Node
from parley._node.peer.link import Link
from parley._node.peer.peer import Peer
from parley._node.peer.reconnecting import is_lasting
from parley._node.protocol.codes import CloseCode
from parley._node.transport.conditions import Condition

# The logger of links, which logs each failed dial.
_log: Final = logging.getLogger("parley.link")
# Iterations of the event loop to wait before a loss is reported, in case the command is closing.
_TURNS: Final = 20


Drained = Callable[[], Awaitable[object]]


class Report(Protocol):
    """Reports a change as a line of text or a JSON line with its kind and fields."""

    async def __call__(self, text: str, kind: str, /, **fields: Any) -> None: ...


def report_remarks(out: Output, pace: PacedOutput) -> Report:
    """Return a function that reports on standard error, unless the log has already done so. JSON
    lines go through `pace`, so that they don't interleave with other output.
    """

    async def report(text: str, kind: str, /, **fields: Any) -> None:
        if out.as_json:
            await pace.print(out.line(text, kind, **fields))
        elif text and not (kind == "disconnected" and _log.isEnabledFor(logging.WARNING)):
            out.remark(text)

    return report


@asynccontextmanager
async def open_link(
    node: Node,
    options: NodeOptions,
    out: Output,
    address: str,
    report: Report,
    *,
    wanted: Callable[[], bool] = lambda: True,
    give_up_after: float | None = None,
    drained: Drained = anyio.lowlevel.checkpoint,
) -> AsyncIterator[Link]:
    """Open a link of `node` to `address` and report changes of its state.

    See `LinkReporter` for `wanted`, `give_up_after` and `drained`.

    Raises:
        AddressError, ConfigError, and the errors of `Node.connect`: the first connect failed.
        The errors of `LinkReporter.follow`: afterwards.
    """
    async with node.link(address, trust=options.dialling_trust(address)) as link:
        with handshake_hint(), _silent_log():
            peer = await link.ready(attempts=1)
        remark_successor(out, address, peer)
        out.event("connected", **peer_fields(peer))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                LinkReporter(link, report, wanted, give_up_after, drained).follow, peer
            )
            yield link
            tasks.cancel_scope.cancel()


@contextmanager
def _silent_log() -> Iterator[None]:
    """Disable the link's log, which would announce a retry although the command is ending."""
    _log.disabled = True
    try:
        yield
    finally:
        _log.disabled = False


class LinkReporter:
    """Reports the state of a link after its first connection.

    The kinds are `suspended` (the session lost its transport and may resume), `resumed`,
    `disconnected` (the session ended, or a later connect failed) and `connected` (a new session).
    After `patience` seconds without a connection it raises the reason; None waits forever. Before
    that it waits for `drained`, until all received data is processed.

    While `wanted` returns False, losses are ignored: a publisher may close the connection before
    all data is printed.
    """

    def __init__(
        self,
        link: Link,
        report: Report,
        wanted: Callable[[], bool] = lambda: True,
        patience: float | None = None,
        drained: Drained = anyio.lowlevel.checkpoint,
    ) -> None:
        self._link = link
        self._report = report
        self._wanted = wanted
        self._patience = patience
        self._drained = drained
        self._since: float | None = None  # when the connection was lost; None while connected
        self._why: Exception = PeerClosedError(CloseCode.CONNECTION_LOST)

    async def follow(self, peer: Peer) -> None:
        """Report until the link has ended. `peer` is the peer of the first session.

        Raises:
            NotTrustedError, HandshakeError: retrying cannot help (`is_lasting`).
            PeerClosedError, UnreachableError, HandshakeError: it was disconnected for too long.
        """
        following: Peer | None = peer
        while following is not None:
            await self._follow_session(following)
            following = await self._next()

    async def _follow_session(self, peer: Peer) -> None:
        live, told = peer.live, 0

        def is_new() -> bool:
            is_lost = peer.is_suspended and self._since is None
            return is_lost or peer.resumes > told or not peer.is_open

        while peer.is_open:
            if peer.resumes > told:
                await self._report_suspended(peer)  # a short suspension that was not noticed
                told, seconds, self._since = peer.resumes, live.suspended_for, None
                text = f"connection restored after {seconds:.1f} s; no data was lost"
                await self._report(text, "resumed", number=told, seconds=seconds)
            if peer.is_suspended:
                await self._report_suspended(peer)
            await self._until(live.changes, is_new)
        self._why = peer.closed_error()

    async def _report_suspended(self, peer: Peer) -> None:
        if self._since is None:
            why = one_line(peer.live.suspended_by)
            self._why = PeerClosedError(CloseCode.CONNECTION_LOST, why)
            await self._mark_lost()
            text = f"connection lost: {why}; reconnecting"
            await self._report(text, "suspended", text=why)

    async def _mark_lost(self) -> float:
        """Mark the connection as lost, and return the time of the loss."""
        since = self._since
        if since is None:
            since = anyio.current_time()
            for _ in range(_TURNS):
                await anyio.lowlevel.checkpoint()
        if not self._wanted():
            await anyio.sleep_forever()
        if self._patience == 0:
            await self._give_up()
        self._since = since
        return since

    async def _next(self) -> Peer | None:
        """Return the peer of the next session; None if the link has ended."""
        link, told = self._link, 0

        def is_new() -> bool:
            return link.peer is not None or link.is_over or link.attempts != told

        since = await self._mark_lost()
        while (peer := link.peer) is None:
            if link.is_over:
                return None
            if link.attempts != told and link.error is not None:
                told, self._why = link.attempts, link.error
                if is_lasting(self._why):
                    await self._give_up()
                why = one_line(str(self._why))
                text = f"{why}; retrying in {link.pause:.1f} s"
                await self._report(text, "disconnected", text=why, again_in=link.pause)
            await self._until(link.changes, is_new)
        seconds, self._since = anyio.current_time() - since, None
        text = f"reconnected after {seconds:.1f} s, in a new session"
        await self._report(text, "connected", **peer_fields(peer), seconds=seconds)
        return peer

    async def _until(self, changes: Condition, condition: Callable[[], bool]) -> None:
        """Wait for `condition`; give up when `patience` is exhausted."""
        left = None
        if self._patience is not None and self._since is not None:
            left = self._since + self._patience - anyio.current_time()
        with anyio.move_on_after(left) as waiting:
            await changes.until(condition)
        if waiting.cancelled_caught:
            await self._give_up()

    async def _give_up(self) -> NoReturn:
        """Raise the reason for the loss, after all received data is processed."""
        await self._drained()
        if not self._wanted():
            await anyio.sleep_forever()
        raise self._why
