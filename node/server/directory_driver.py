"""`DirectoryDriver`: runs a sans-I/O `Directory` with the loop's time and the `federation` streams
of links (docs/protocol.md sections 19 and 22).
"""

import logging
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from typing import Final

import anyio

from parley._crypto.errors import StatementError
from parley._crypto.identity import NodeId
from parley._node.errors import ConfigError, ParleyError, PeerClosedError, StreamResetError
from parley._node.federation.directory import Directory
from parley._node.logs import RateLimitedLogger, one_line
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import CARDS, FEDERATION, HAVE, STATEMENTS, CloseCode
from parley._node.protocol.errors import LocalError, RemoteProtocolError
from parley._node.remote.stream import Stream
from parley._node.server.links import ServerLink
from parley._node.transport.backend import Backend
from parley._node.transport.conditions import Condition, pause
from parley._node.transport.loop import Runner, Timer
from parley._node.trust.key_statements import KeyStatements
from parley._node.trust.statement_table import StatementTable
from parley._node.trust.watched_file import in_thread

logger = logging.getLogger("parley.federation")

# Seconds between the end of a stream and the next one.
REOPEN_PAUSE: Final = 10.0


class DirectoryDriver:
    """Runs `directory`, and observes the links of the server.

    `wall_ms` is the time of day in milliseconds since 1970; `addresses` returns those at which the
    node listens, for its card. `changes` is notified when the directory may have changed.

    Those of the `statements` that are connected with an ID in `named` are exchanged with members.
    `offer` stores those of a member's statements that are valid, until a function returns False
    after a wrong signature. It is called in a thread.
    """

    def __init__(
        self,
        directory: Directory,
        wall_ms: Callable[[], int],
        addresses: Callable[[], list[str]],
        statements: KeyStatements,
        named: Callable[[], Collection[NodeId]],
        offer: Callable[[list[bytes], Callable[[], bool]], StatementError | None],
    ) -> None:
        self.directory = directory
        self._wall_ms = wall_ms
        self._addresses = addresses
        self._statements = statements
        self._named = named
        self._offer_all = offer
        self._shared: StatementTable | None = None  # the table whose statements are exchanged
        self._threads = anyio.CapacityLimiter(1)
        self._announced: list[str] = []
        self.changes = Condition(lambda: self._running().waiter())
        self._loop: Backend | None = None
        self._timer: Timer | None = None
        self._senders: dict[NodeId, Condition] = {}
        self._streams: dict[NodeId, Stream] = {}
        self._exchanges: dict[ServerLink, Runner] = {}
        self._clocks = RateLimitedLogger()
        self._refused = RateLimitedLogger()

    def start(self, loop: Backend) -> None:
        """Run on this loop."""
        self._loop = loop
        self._statements.listeners.append(self._statements_changed)
        self.share_statements()

    def stop(self) -> None:
        """Cancel the timer and wake all waiters."""
        if self._loop is not None:
            self._statements.listeners.remove(self._statements_changed)
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
        self.changes.notify()

    def change_members(self, members: Iterable[NodeId], carry: Iterable[NodeId]) -> None:
        """Change the directory's members; if there is a new one, exchange cards on new streams."""
        if self._loop is not None:
            if self.directory.change_members(members, carry, *self._now(self._loop)):
                for stream in list(self._streams.values()):
                    stream.reset()
            self._update()

    def link_up(self, link: ServerLink, peer: Peer) -> None:
        """Exchange cards on a new link, if it was dialled here."""
        if self._loop is None:
            return
        peer.live.measure_round_trip()
        self._announce()
        self.directory.link_up(link.node_id, *self._now(self._loop))
        self._update()
        if peer.core.initiator:
            self._exchanges[link] = self._loop.spawn(self._keep_exchanging, link.node_id, peer)

    def link_down(self, link: ServerLink, peer: Peer) -> None:
        """Stop exchanging cards on a link."""
        runner = self._exchanges.pop(link, None)
        if runner is not None:
            runner.cancel()
        if self._loop is not None:
            self.directory.link_down(link.node_id, *self._now(self._loop))
            self._update()

    async def _keep_exchanging(self, neighbour: NodeId, peer: Peer) -> None:
        """Keep a `federation` stream open while the link is."""
        while self._loop is not None and peer.is_open:
            with suppress(PeerClosedError, LocalError):
                await self.exchange(neighbour, peer.streams.open_federation())
            if self._loop is not None:
                await pause(self._loop, REOPEN_PAUSE)

    async def exchange(self, neighbour: NodeId, stream: Stream) -> None:
        """Exchange cards on a stream until its end. A stream that violates the protocol is reset,
        as is a second stream of a session while the first is open."""
        before = self._streams.get(neighbour)
        if before is not None:
            if before.live is stream.live and not before.has_ended:
                stream.reset(CloseCode.REFUSED)
                return
            before.reset()
        changes = self._senders[neighbour] = Condition(stream.live.backend.waiter)
        self._streams[neighbour] = stream
        self.directory.begin_exchange(neighbour)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._send, neighbour, stream, changes)
                await self._receive(neighbour, stream)
                tasks.cancel_scope.cancel()
        finally:
            if self._senders.get(neighbour) is changes:
                del self._senders[neighbour], self._streams[neighbour]
                self.directory.end_exchange(neighbour)

    async def _receive(self, neighbour: NodeId, stream: Stream) -> None:
        try:
            async for event in stream.events():
                loop = self._loop
                if loop is None:
                    return
                now, now_ms = self._now(loop)
                if event.subcategory == STATEMENTS:
                    found = self.directory.receive_statements(neighbour, event.payload, now)
                    if found is None:
                        stream.live.core.count_dropped()
                    else:
                        await self._offer(neighbour, found, now)
                    continue
                if event.subcategory not in (HAVE, CARDS):
                    stream.live.core.count_dropped()
                    continue
                wrong = self.directory.receive(
                    neighbour, event.subcategory, event.payload, now, now_ms
                )
                for origin in wrong:
                    self._log_clock(origin, now)
                self._update()
        except RemoteProtocolError as error:
            self._log_refused("cards from %s: %s", neighbour, error.reason)
            stream.reset(error.code)
        except StreamResetError as error:
            self._log_refused("no cards are exchanged with %s: %s", neighbour, error)
        except (PeerClosedError, anyio.ClosedResourceError):
            pass  # the link is down, or another stream took over

    async def _send(self, neighbour: NodeId, stream: Stream, changes: Condition) -> None:
        with suppress(StreamResetError, PeerClosedError, anyio.ClosedResourceError):
            while self._senders.get(neighbour) is changes:  # else another stream took over
                loop = self._loop
                if loop is None:
                    return
                event = self.directory.next_event(neighbour, loop.now())
                if event is None:
                    self._set_timer()
                    await changes.until(lambda: self._is_ready(neighbour))
                else:
                    await stream.send_event(FEDERATION, event.subcategory, payload=event.payload)

    def _update(self) -> None:
        """Wake the senders that have events to send, and set the timer."""
        self.changes.notify()
        loop = self._loop
        for neighbour in () if loop is None else self.directory.ready(loop.now()):
            sender = self._senders.get(neighbour)
            if sender is not None:
                sender.notify()
        self._set_timer()

    def _set_timer(self) -> None:
        loop = self._loop
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = None if loop is None else self.directory.next_deadline(loop.now())
        if deadline is not None and loop is not None:
            self._timer = loop.call_at(deadline, self._handle_deadline)

    def _is_ready(self, neighbour: NodeId) -> bool:
        loop = self._loop
        return loop is not None and neighbour in self.directory.ready(loop.now())

    # Key statements (section 22).

    def share_statements(self) -> None:
        """Exchange the statements that are stored now with members."""
        if self._loop is not None:
            self._shared = self._statements.table
            statements = self._shared.of_members(self._named())
            self.directory.share_statements(statements, *self._now(self._loop))
            self._update()

    def _statements_changed(self) -> None:
        """Share the statements; called in any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._share_news)

    def _share_news(self) -> None:
        if self._shared is not self._statements.table:
            self.share_statements()

    async def _offer(self, neighbour: NodeId, statements: list[bytes], now: float) -> None:
        """Store the statements of a member that are valid and about IDs on record."""
        goes_on = partial(self.directory.count_wrong_signature, neighbour, now)
        failed = await in_thread(self._threads, partial(self._offer_all, statements, goes_on))
        self._share_news()
        if failed is not None and self._loop is not None:
            self._refused.log(
                logger,
                logging.WARNING,
                self._loop.now(),
                "a key statement from %s was dropped: %s",
                neighbour,
                one_line(str(failed)),
                extra={"event": "federation.statement-refused", "peer": neighbour},
            )

    def _handle_deadline(self) -> None:
        if self._loop is not None:
            self._announce()
            self.directory.handle_deadline(*self._now(self._loop))
            self._update()

    def _announce(self) -> None:
        """Put the current addresses into our card."""
        addresses = self._addresses()
        if self._loop is not None and addresses != self._announced:
            self._announced = addresses
            try:
                self.directory.announce(addresses, *self._now(self._loop))
            except ConfigError as error:
                logger.warning(
                    "addresses are left out of our card: %s",
                    error,
                    extra={"event": "federation.card-full"},
                )

    def _log_refused(self, text: str, neighbour: NodeId, why: object) -> None:
        if self._loop is not None:
            now = self._loop.now()
            self._refused.log(
                logger,
                logging.WARNING,
                now,
                text,
                neighbour,
                one_line(str(why)),
                extra={"event": "federation.cards-refused", "peer": neighbour},
            )

    def _log_clock(self, origin: NodeId, now: float) -> None:
        ahead = self.directory.cards.clocks.get(origin, 0) / 1000
        text = "a card of %s was refused: its clock, or ours, is wrong by %.0f s"
        self._clocks.log(
            logger,
            logging.WARNING,
            now,
            text,
            origin,
            ahead,
            extra={"event": "federation.clock-wrong", "peer": origin, "ahead": ahead},
        )

    def _running(self) -> Backend:
        if self._loop is None:
            raise ParleyError("the federation is not running: use `async with`")
        return self._loop

    def _now(self, loop: Backend) -> tuple[float, int]:
        return loop.now(), self._wall_ms()
