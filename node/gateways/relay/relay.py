"""The server of the event relay, on loopback and Unix sockets."""

import logging
from collections.abc import Callable
from typing import Any, ClassVar
from uuid import UUID

from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.relay.connection import RelayConnection
from parley._node.dialects.relay.router import RelayMember, Router
from parley._node.errors import ConfigError
from parley._node.gateways.guest import Guest
from parley._node.gateways.server import DialectServer
from parley._node.logs import RateLimitedLogger
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.reports import ConnectionEnded
from parley._node.remote import access_log as access
from parley._node.transport.backend import Backend
from parley._node.transport.task_scope import TaskScope

logger = logging.getLogger("parley.gateway")


class Relay(DialectServer["RelayGuest"]):
    """An event relay that runs during its `async with` block, with or without a node.

    `feedback` says whether a sender gets an error (code 5) if its target isn't connected. Senders
    wait for a slow client; a client that leaves more than `limits.write_buffer` bytes unread is
    dropped.

    Example:

        from parley.dialects import Relay, RelayClient

        async with Relay() as relay:
            address = await relay.listen("tcp://127.0.0.1:0")
            async with RelayClient(address) as client:
                await relay.until(lambda: client.uuid in relay)
    """

    def __init__(self, *, limits: DialectLimits | None = None, feedback: bool = True) -> None:
        self.limits = limits or DialectLimits()
        self._router = Router(feedback=feedback)
        self._scope = TaskScope("the relay")
        self._drops = RateLimitedLogger()
        super().__init__("the relay", self.limits.clients, self.limits.memory)

    def __repr__(self) -> str:
        return f"<Relay, {len(self.clients)} clients>"

    def __contains__(self, uuid: UUID) -> bool:
        """Return whether a client is connected as `uuid`."""
        return uuid.bytes in self._router.members

    @property
    def backend(self) -> Backend:
        """The event loop; raises ParleyError outside of the `async with` block."""
        return self._scope.backend

    @property
    def clients(self) -> list[UUID]:
        """The UUIDs of connected clients and bridges."""
        return [UUID(bytes=uuid) for uuid in self._router.members]

    @property
    def dropped(self) -> int:
        """Number of clients that were dropped because they did not read."""
        return self._router.dropped

    @property
    def undeliverable(self) -> int:
        """Number of messages whose target was not connected."""
        return self._router.undeliverable

    # For members without a connection: bridges.

    def join(self, uuid: UUID, member: RelayMember) -> Callable[[], None]:
        """Add `member` as `uuid`, and return a function that removes it.

        Raises:
            ConfigError: the UUID is in use, or reserved.
        """
        try:
            self._router.join(uuid.bytes, member)
        except ValueError as error:
            raise ConfigError(f"cannot join the relay as {uuid}: {error}") from error
        self._changes.notify()

        def leave() -> None:
            self._router.leave(uuid.bytes, member)
            self._changes.notify()

        return leave

    def broadcast(self, sender: UUID, message: bytes) -> None:
        """Send a whole message to all clients except the sender."""
        self._router.broadcast(sender.bytes, [message], len(message), self.backend.now())

    # Internals.

    async def _enter(self) -> Backend:
        return await self._scope.enter()

    async def _leave(self) -> None:
        await self._scope.leave()

    def _new_guest(self, name: str) -> "RelayGuest":
        core = RelayConnection(self._router, self.limits, self.backend.now(), self.account)
        changed, drops = self._changes.notify, self._drops
        guest = RelayGuest(core, self.backend, name, changed, self._gone, drops)
        core.driver = guest.driver
        return guest


class RelayGuest(Guest):
    """A client of the relay.

    `changed` is called when the client is accepted and when its connection ends. `drops`
    rate-limits the log lines about clients that don't read.
    """

    dialect: ClassVar[str] = "the event relay"
    turn_size: ClassVar[int] = (
        64 * 1024
    )  # a message costs the relay a tenth of what a call costs a gateway

    def __init__(
        self,
        core: RelayConnection,
        backend: Backend,
        name: str,
        changed: Callable[[], None],
        on_gone: Callable[[Guest], None],
        drops: RateLimitedLogger,
    ) -> None:
        super().__init__(core, backend, name, on_gone=on_gone)
        self._client = core
        self._drops = drops
        self._changed = changed

    def _take(self, report: Any, now: float) -> None:
        self.name = f"{UUID(bytes=self._client.uuid)} from {self.name}"
        access.logger.info(
            "%s connected", self, extra={"event": "guest.opened", **access.party(self)}
        )
        self._changed()

    def _lost(self, ended: ConnectionEnded) -> None:
        if ended.code == CloseCode.OVERLOADED:
            self._drops.log(
                logger,
                logging.WARNING,
                self.backend.now(),
                "dropped %s: it does not read its messages",
                self,
                extra={"event": "relay.dropped"},
            )
        self._changed()
