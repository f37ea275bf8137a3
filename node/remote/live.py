"""`LiveConnection`: one native connection, for everything that speaks on it.

It joins the core, the driver and the loop with the facts of the handshake and of the end.
Whatever is queued in the core is flushed by the driver; nothing here asks for that.
"""

from collections.abc import Callable

from crypto.identity import NodeId
from node.config import NodeConfig
from node.errors import NotTrustedError, PeerClosedError, handshake_error
from node.protocol.codes import CloseCode, Supercategory
from node.protocol.connection import Connection
from node.protocol.errors import ConnectionClosedError
from node.protocol.handshake import Agreed
from node.protocol.limits import Limits
from node.protocol.reports import ConnectionEnded
from node.protocol.states import State
from node.remote.remote import Remote
from node.transport.backend import Backend
from node.transport.driver import Driver
from node.transport.loop import Waiter
from node.transport.waiting import Changes, left_after


class LiveConnection:
    """One connection, from its first byte to its last.

    Attributes:
        remote: the other node, as handlers see it.
        name: the address dialled, or where the connection came from, for the log.
        agreed: what the handshake agreed on, once it is over.
        supercategory: that of what the other side sends, from then on.
        ended: how the connection ended, once it has.
        refused: why we do not trust the other side, in the policy's own words.
        gone: whether its transport is closed.
        draining: whether nothing new is taken, since it will be closed.
        rekeys: the number of the last rekey of each direction (received, sent).
        changes: notified when one of these changed, after `on_change` was called.
    """

    __slots__ = (
        "_pings",
        "agreed",
        "backend",
        "changes",
        "config",
        "core",
        "draining",
        "driver",
        "ended",
        "gone",
        "name",
        "on_change",
        "refused",
        "rekeys",
        "remote",
        "supercategory",
    )

    driver: Driver  # which is made of what speaks on the connection

    def __init__(
        self,
        core: Connection,
        remote: Remote,
        backend: Backend,
        config: NodeConfig,
        name: str,
    ) -> None:
        self.core = core
        self.remote = remote
        self.backend = backend
        self.config = config
        self.name = name
        self.agreed: Agreed | None = None
        self.supercategory = Supercategory.PEER_TO_PEER
        self.ended: ConnectionEnded | None = None
        self.refused: NotTrustedError | None = None
        self.gone = False
        self.draining = False
        self.rekeys = [0, 0]
        self.changes = Changes(backend.waiter)
        self.on_change: Callable[[], None] = lambda: None
        self._pings: dict[int, tuple[Waiter, list[float]]] = {}

    def __repr__(self) -> str:
        return f"<LiveConnection {self.name}>"

    @property
    def node_id(self) -> NodeId | None:
        """The node id that the other side proved; None without encryption."""
        identity = self.agreed.identity if self.agreed else None
        return identity.node_id if identity else None

    @property
    def limits(self) -> Limits:
        """The limits that both sides keep."""
        return self.agreed.limits if self.agreed else self.core.config.limits

    @property
    def is_open(self) -> bool:
        """Whether the handshake is over and the connection is not."""
        return self.agreed is not None and self.ended is None

    def closed_error(self) -> PeerClosedError:
        """Why nothing can be asked any more."""
        if self.ended is None:
            return PeerClosedError(CloseCode.NORMAL, "the connection is closing")
        return PeerClosedError(self.ended.code, self.ended.text)

    def changed(self) -> None:
        """One of its facts changed."""
        self.on_change()
        self.changes.notify()

    async def room(self, timeout: float | None = None) -> float | None:
        """Wait while too much waits to be written; returns what is left of `timeout`.

        Raises:
            CallTimeout: it took longer.
        """
        if self.driver.has_room:
            return timeout
        return await left_after(self.driver.room, timeout, self.backend.now)

    # Stream 0.

    async def ping(self) -> float:
        """As `Peer.ping`."""
        waiter = self.backend.waiter()
        try:
            async_id = self.core.ping(self.backend.now())
        except ConnectionClosedError as error:
            raise self.closed_error() from error
        answer: list[float] = []
        self._pings[async_id] = waiter, answer
        try:
            await waiter.wait()
        finally:
            self._pings.pop(async_id, None)
        if not answer:
            raise self.closed_error()
        return answer[0]

    def pong_received(self, async_id: int, round_trip: float) -> None:
        """A Pong came, after so many seconds."""
        waiting = self._pings.get(async_id)
        if waiting is not None:
            waiting[1].append(round_trip)
            waiting[0].wake()

    async def rekey(self) -> int:
        """As `Peer.rekey`."""
        number = min(self.rekeys) + 1
        try:
            self.core.rekey(self.backend.now())
        except ConnectionClosedError as error:
            raise self.closed_error() from error
        await self.changes.until(lambda: min(self.rekeys) >= number or not self.is_open)
        if min(self.rekeys) < number:
            raise self.closed_error()
        return number

    def update_keys(self) -> None:
        """As `Peer.update_keys`."""
        try:
            self.core.update_keys(self.backend.now())
        except ConnectionClosedError as error:
            raise self.closed_error() from error

    # Its beginning and its end.

    async def opened(self) -> None:
        """Wait for the end of the handshake.

        Raises:
            NotTrustedError: a side refused the other. HandshakeError: they could not agree.
        """
        await self.changes.until(lambda: self.agreed is not None or self.ended is not None)
        ended = self.ended
        if self.agreed is None and ended is not None:
            raise self.refused or handshake_error(ended.code, ended.text, ended.reason)

    async def closed(self) -> ConnectionEnded:
        """Wait for the end of the connection; returns why it ended."""
        while self.ended is None:
            await self.changes.until(lambda: self.ended is not None)
        return self.ended

    def drop(self, code: CloseCode) -> None:
        """End a connection that is not wanted any more: a handshake at once and in silence, an open
        connection with Close."""
        now = self.backend.now()
        if self.core.state is State.FAREWELL:
            self.core.receive_eof(now)  # its farewell was said: it need not linger
        else:
            self.core.close(now, code)
        self.driver.settle()

    def connection_ended(self, ended: ConnectionEnded) -> None:
        """The connection is over: nothing answers any more."""
        self.ended = ended
        for waiter, _ in self._pings.values():
            waiter.wake()
