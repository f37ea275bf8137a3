"""`DirectoryDriver`: drives a `Directory` by the loop: its time, and the streams `federation` of
links (section 19). What is decided is decided there.
"""

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import anyio

from parley._crypto.identity import NodeId
from parley._node.errors import ConfigError, ParleyError, PeerClosedError, StreamResetError
from parley._node.federation.directory import Directory
from parley._node.logs import RateLimitedLogger, one_line
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import CARDS, FEDERATION, HAVE, CloseCode
from parley._node.protocol.errors import LocalProtocolError, RemoteProtocolError
from parley._node.remote.stream import Stream
from parley._node.transport.backend import Backend
from parley._node.transport.conditions import Condition, pause
from parley._node.transport.loop import Timer

logger = logging.getLogger("parley.federation")

# Seconds after which a stream that was reset is followed by a new one.
AGAIN: Final = 10.0


class DirectoryDriver:
    """Drives `directory`; `wall_ms` is the time of day in milliseconds since 1970, `addresses` what
    the card says of where we listen. `changes` is notified when something in it may have changed.
    """

    def __init__(
        self, directory: Directory, wall_ms: Callable[[], int], addresses: Callable[[], list[str]]
    ) -> None:
        self.directory = directory
        self._wall_ms = wall_ms
        self._addresses = addresses
        self._announced: list[str] = []
        self.changes = Condition(lambda: self._running().waiter())
        self._loop: Backend | None = None
        self._timer: Timer | None = None
        self._senders: dict[NodeId, Condition] = {}
        self._streams: dict[NodeId, Stream] = {}
        self._clocks = RateLimitedLogger()
        self._refused = RateLimitedLogger()

    def begin(self, loop: Backend) -> None:
        """It lives in this loop from now on."""
        self._loop = loop

    def end(self) -> None:
        """No timer is left, and nobody waits."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
        self.changes.notify()

    def change_members(self, members: Iterable[NodeId], carry: Iterable[NodeId]) -> None:
        """As the directory's; cards are exchanged on new streams from then on."""
        if self._loop is not None:
            self.directory.change_members(members, carry, *self._now(self._loop))
            for stream in list(self._streams.values()):
                stream.reset()
            self._stir()

    # Links.

    def link_up(self, neighbour: NodeId) -> None:
        """A link is open."""
        if self._loop is not None:
            self._announce()
            self.directory.link_up(neighbour, *self._now(self._loop))
            self._stir()

    def link_down(self, neighbour: NodeId) -> None:
        """It is closed."""
        if self._loop is not None:
            self.directory.link_down(neighbour, *self._now(self._loop))
            self._stir()

    async def keep_exchanging(self, neighbour: NodeId, peer: Peer) -> None:
        """Have a stream `federation` on a link that was dialled here, and another one after each
        that ended, for as long as the link is open."""
        while self._loop is not None and peer.is_open:
            with suppress(PeerClosedError, LocalProtocolError):
                await self.exchange(neighbour, peer.streams.open_federation())
            if self._loop is not None:
                await pause(self._loop, AGAIN)

    async def exchange(self, neighbour: NodeId, stream: Stream) -> None:
        """Exchange cards on a stream until it is over. A stream that breaks the rules is reset,
        and so is a second stream of a session while the first is open."""
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

    # Inside.

    async def _receive(self, neighbour: NodeId, stream: Stream) -> None:
        try:
            async for event in stream.events():
                loop = self._loop
                if loop is None:
                    return
                if event.subcategory not in (HAVE, CARDS):
                    stream.live.core.count_dropped()
                    continue
                now, now_ms = self._now(loop)
                wrong = self.directory.receive(
                    neighbour, event.subcategory, event.payload, now, now_ms
                )
                for origin in wrong:
                    self._log_clock(origin, now)
                self._stir()
        except RemoteProtocolError as error:
            self._log_refused("cards from %s: %s", neighbour, error.reason)
            stream.reset(error.code)
        except StreamResetError as error:
            self._log_refused("no cards are exchanged with %s: %s", neighbour, error)
        except (PeerClosedError, anyio.ClosedResourceError):
            pass  # the link is down, or another stream took its place

    async def _send(self, neighbour: NodeId, stream: Stream, changes: Condition) -> None:
        with suppress(StreamResetError, PeerClosedError, anyio.ClosedResourceError):
            while self._senders.get(neighbour) is changes:  # else it is another stream's to send
                event = self.directory.next_event(neighbour)
                if event is None:
                    await changes.until(lambda: neighbour in self.directory.ready())
                else:
                    await stream.send_event(FEDERATION, event.subcategory, payload=event.payload)

    def _stir(self) -> None:
        """Something has changed: have sent what is to be sent, and set the timer."""
        self.changes.notify()
        for neighbour in self.directory.ready():
            sender = self._senders.get(neighbour)
            if sender is not None:
                sender.notify()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self.directory.next_deadline()
        if deadline is not None and self._loop is not None:
            self._timer = self._loop.at(deadline, self._due)

    def _due(self) -> None:
        if self._loop is not None:
            self._announce()
            self.directory.handle_deadline(*self._now(self._loop))
            self._stir()

    def _announce(self) -> None:
        """Have our card say where we listen now."""
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
