"""`LinkStore`: the bus of another node as a `Store`, used across the sessions of a link.

Requests wait for a connection. The result of a request is unknown if its session ends; the request
is retried where that is safe (`node.bus.store_retry`). Consumers keep their identity: the next
session redelivers the events that they hold, so that they can be acknowledged there.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import anyio

from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusBusyError, BusClosedError, BusUnavailableError
from parley._node.bus.model import Delivery
from parley._node.bus.remote import limits
from parley._node.bus.remote.executor import ConsumerKey
from parley._node.bus.remote.store import ClientBuses, RemoteStore
from parley._node.errors import CallTimeout, PeerClosedError
from parley._node.peer.link_subscription import LinkSessions
from parley._node.peer.peer import Peer
from parley._node.protocol.errors import LocalError
from parley._node.transport.backend import Backend

P = ParamSpec("P")
T = TypeVar("T")

_CLOSED: Final = "the bus is closed"

# How many events are recovered per request. More would not fit into one answer.
AT_ONCE: Final = 100
# The most recovered events that wait here for one consumer; others stay at the remote bus.
MOST_AGAIN: Final = 1_000


class _Seat:
    """One consumer: the events that it holds, and its state in the session of `remote`."""

    __slots__ = ("after", "again", "held", "lock", "missing", "owning", "remote")

    def __init__(self) -> None:
        self.after = ""
        self.remote: RemoteStore | None = (
            None  # The store in whose session the consumer has joined.
        )
        self.held: dict[str, None] = {}  # IDs of unacknowledged events.
        self.missing: set[str] = set()  # The held events that this session has not redelivered yet.
        self.again: list[Delivery] = []  # Redelivered events that the consumer does not hold.
        self.owning = False  # Whether earlier sessions may have delivered more events.
        self.lock = anyio.Lock(fast_acquire=True)

    def rejoined(self, remote: RemoteStore) -> None:
        """Record that the consumer has joined in another session."""
        self.remote = remote
        self.missing, self.owning = set(self.held), True
        self.again.clear()  # The new session delivers them again.


def _asks(
    method: Callable[Concatenate[RemoteStore, P], Awaitable[T]],
) -> Callable[Concatenate["LinkStore", P], Coroutine[Any, Any, T]]:
    """Return a method that calls `method` on the store of the current session."""

    async def ask(self: "LinkStore", /, *arguments: P.args, **options: P.kwargs) -> T:
        return await self._await_answer(method(await self._session(), *arguments, **options))

    return ask


class LinkStore:
    """The bus offered by the node at the other end of a link.

    `open` does not wait for a connection. A request waits for `BusConfig.timeout` seconds and then
    raises BusUnavailableError.
    """

    def __init__(self, link: LinkSessions, config: BusConfig) -> None:
        self._link = link
        self.config = config
        self._closed = False
        self._peer: Peer | None = None
        self._remote: RemoteStore | None = None  # The store in that peer's session.
        self._seats: dict[ConsumerKey, _Seat] = {}
        self._waits: set[anyio.CancelScope] = set()

    def __repr__(self) -> str:
        return f"<LinkStore of {self._link!r}>"

    async def open(self, loop: Backend) -> None:
        """Do nothing: sessions are opened when they are needed."""

    async def aclose(self) -> None:
        """Close the store; waiting requests raise BusClosedError."""
        self._closed = True
        for scope in self._waits:
            scope.cancel()
        if self._remote is not None:
            await self._remote.aclose()

    publish = _asks(RemoteStore.publish)

    # Consuming.

    async def join(self, stream: str, group: str, consumer: str, after: str) -> None:
        place = stream, group, consumer
        if place not in self._seats and len(self._seats) >= limits.CONSUMERS:
            raise BusBusyError(
                f"cannot add consumer {consumer!r}: the bus has {limits.CONSUMERS:,} consumers "
                "already"
            )
        seat = self._seats.setdefault(place, _Seat())
        async with seat.lock:
            seat.after = after
            # A consumer that joins holds no events; it requests its pending events itself.
            seat.held.clear()
            remote = await self._session()
            await self._await_answer(remote.join(*place, after))
            if seat.remote is not remote:
                seat.rejoined(remote)
            seat.missing.clear()
            seat.owning = False

    async def read(
        self, stream: str, group: str, consumer: str, count: int, wait: float
    ) -> list[Delivery]:
        place = stream, group, consumer
        return await self._hand_out(place, count, lambda on: on.read(*place, count, wait))

    async def recover_pending(
        self, stream: str, group: str, consumer: str, count: int
    ) -> list[Delivery]:
        place = stream, group, consumer
        return await self._hand_out(place, count, lambda on: on.recover_pending(*place, count))

    async def claim(
        self, stream: str, group: str, consumer: str, count: int, idle: float
    ) -> list[Delivery]:
        place = stream, group, consumer
        return await self._hand_out(place, count, lambda on: on.claim(*place, count, idle))

    async def touch(self, stream: str, group: str, consumer: str, ids: Sequence[str]) -> None:
        place = stream, group, consumer
        remote = await self._seated(place)
        await self._await_answer(remote.touch(*place, ids))

    async def ack(self, stream: str, group: str, ids: Sequence[str]) -> int:
        # `ack` does not name consumers, but each session only acknowledges events that it
        # delivered.
        holders = [
            place
            for place, seat in self._seats.items()
            if place[:2] == (stream, group) and not seat.held.keys().isdisjoint(ids)
        ]
        remote = await self._session()
        for place in holders:
            remote = await self._seated(place)
        count = await self._await_answer(remote.ack(stream, group, ids))
        for place in holders:
            self._settle(place, ids)
        return count

    async def nack(
        self, stream: str, group: str, consumer: str, id: str, delay: float, error: str
    ) -> bool:
        place = stream, group, consumer
        remote = await self._seated(place)
        was_pending = await self._await_answer(remote.nack(*place, id, delay, error))
        self._settle(place, [id])
        return was_pending

    async def release(self, stream: str, group: str, consumer: str, ids: Sequence[str]) -> None:
        place = stream, group, consumer
        remote = await self._seated(place)
        await self._await_answer(remote.release(*place, ids))
        self._settle(place, ids)

    async def bury(self, stream: str, group: str, consumer: str, id: str, error: str) -> str | None:
        place = stream, group, consumer
        remote = await self._seated(place)
        letter = await self._await_answer(remote.bury(*place, id, error))
        self._settle(place, [id])
        return letter

    # Inspection and maintenance.

    streams = _asks(RemoteStore.streams)
    groups = _asks(RemoteStore.groups)
    consumers = _asks(RemoteStore.consumers)
    pending = _asks(RemoteStore.pending)
    history = _asks(RemoteStore.history)
    rewind = _asks(RemoteStore.rewind)
    redeliver = _asks(RemoteStore.redeliver)
    trim = _asks(RemoteStore.trim)
    drop = _asks(RemoteStore.drop)
    remove_consumers = _asks(RemoteStore.remove_consumers)
    remove_group = _asks(RemoteStore.remove_group)

    # Sessions and their stores.

    async def _session(self) -> RemoteStore:
        """Return the store of the current session, after waiting for a connection."""
        timeout = self.config.timeout
        with anyio.CancelScope() as scope:
            self._waits.add(scope)
            try:
                self._require_open()
                peer, _ = await self._link.connected(timeout)
                return await self._over(peer)
            except CallTimeout as error:
                text = f"no connection in {timeout:g} s: {error.__cause__}"
                raise BusUnavailableError(text) from error
            except PeerClosedError as error:
                raise BusClosedError(str(error)) from error
            except LocalError as error:
                raise BusBusyError(str(error)) from error
            finally:
                self._waits.discard(scope)
        raise BusClosedError(_CLOSED)

    async def _over(self, peer: Peer) -> RemoteStore:
        if self._remote is None or self._peer is not peer:
            remote = RemoteStore(peer.live, peer.streams, self.config)
            await self._await_answer(remote.open(self._link.backend))
            self._peer, self._remote = peer, remote
        return self._remote

    async def _await_answer(self, answer: Awaitable[T]) -> T:
        """Await an answer. The end of a session does not close the bus, so it raises another
        error.
        """
        try:
            return await answer
        except BusClosedError as error:
            if self._closed or self._link.is_over:
                raise
            raise BusUnavailableError(str(error)) from error

    def _require_open(self) -> None:
        if self._closed:
            raise BusClosedError(_CLOSED)

    # The state of consumers.

    async def _seated(self, place: ConsumerKey) -> RemoteStore:
        """Return the current store, after the consumer has joined and recovered the events that it
        holds.

        Held events that cannot be recovered have been given to other consumers.
        """
        seat = self._seats[place]
        async with seat.lock:
            remote = await self._session()
            if seat.remote is not remote:
                await self._await_answer(remote.join(*place, seat.after))
                seat.rejoined(remote)
            while seat.missing and seat.owning and len(seat.again) < MOST_AGAIN:
                await self._own(seat, place, remote)
            self._settle(place, seat.missing)
            seat.missing.clear()
            return remote

    async def _hand_out(
        self,
        place: ConsumerKey,
        count: int,
        ask: Callable[[RemoteStore], Awaitable[list[Delivery]]],
    ) -> list[Delivery]:
        remote, seat = await self._seated(place), self._seats[place]
        if seat.owning and not seat.again:
            await self._own(seat, place, remote)
        if seat.again:
            found, seat.again = seat.again[:count], seat.again[count:]
        else:
            found = await self._await_answer(ask(remote))
        seat.held.update((delivery.event.id, None) for delivery in found)
        return found

    async def _own(self, seat: _Seat, place: ConsumerKey, remote: RemoteStore) -> None:
        """Recover more events that earlier sessions delivered."""
        found = await self._await_answer(remote.recover_pending(*place, AT_ONCE))
        seat.owning = bool(found)
        for delivery in found:
            if delivery.event.id in seat.missing:
                seat.missing.remove(delivery.event.id)
            else:
                seat.again.append(delivery)

    def _settle(self, place: ConsumerKey, ids: Iterable[str]) -> None:
        held = self._seats[place].held
        for id in ids:
            held.pop(id, None)


def link_buses(link: LinkSessions) -> ClientBuses:
    """Return the buses of a link, which are closed with it."""

    async def over() -> str:
        return str(await link.over())

    return ClientBuses(link.backend, lambda config: LinkStore(link, config), over)
