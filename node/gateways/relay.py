"""`Relay`: a server of the event relay, on loopback and Unix sockets.

One rule: no client can delay another: nothing waits for one that does not read, which is
dropped and counted. Knows no node; `Bridge` joins it to one.
"""

import logging
from collections.abc import Callable
from types import TracebackType
from typing import Any, ClassVar, Self
from uuid import UUID

import anyio

from node.dialects.limits import RelayLimits
from node.dialects.relay.connection import RelayConnection
from node.dialects.relay.router import Member, Router
from node.errors import ConfigError, ParleyError
from node.guest import Guest
from node.protocol.codes import CloseCode
from node.protocol.limits import CLOSE_LINGER
from node.protocol.reports import ConnectionEnded
from node.transport.backend import Backend
from node.transport.driver import Driver
from node.transport.gateway import Gateway
from node.transport.ground import Ground
from node.waiting import Changes

logger = logging.getLogger("parley.gateway")

# For what is queued to be written, and for clients to hang up.
CLOSE_TIMEOUT = CLOSE_LINGER + 1.0


class Relay:
    """An event relay: lives as long as its `async with`, with or without a node.

    `feedback` says whether a sender is told (code 5) that its target is not connected.
    A client for which more than `limits.write_buffer` bytes wait is dropped.
    """

    def __init__(self, *, limits: RelayLimits | None = None, feedback: bool = True) -> None:
        self.limits = limits or RelayLimits()
        self._router = Router(feedback=feedback)
        self._ground = Ground("the relay")
        self._gateway: Gateway | None = None
        self._guests: dict[Driver, RelayGuest] = {}
        self._changes = Changes(lambda: self.backend.waiter())

    def __repr__(self) -> str:
        return f"<Relay, {len(self.clients)} clients>"

    def __contains__(self, uuid: UUID) -> bool:
        """Whether somebody is connected as `uuid`."""
        return uuid.bytes in self._router.members

    @property
    def backend(self) -> Backend:
        """The event loop it lives in; ParleyError outside of its `async with`."""
        return self._ground.backend

    @property
    def clients(self) -> list[UUID]:
        """Who is connected and has said its UUID; bridges are, too."""
        return [UUID(bytes=uuid) for uuid in self._router.members]

    @property
    def addresses(self) -> list[str]:
        """What it listens on."""
        return self._gateway.addresses if self._gateway is not None else []

    @property
    def dropped(self) -> int:
        """How many clients were dropped because they did not read."""
        return self._router.dropped

    @property
    def undeliverable(self) -> int:
        """How many messages were for targets that were not connected."""
        return self._router.undeliverable

    @property
    def turned_away(self) -> int:
        """How many connections `limits.clients` kept out."""
        return self._gateway.turned_away if self._gateway is not None else 0

    async def listen(self, address: str, *, allow_insecure: bool = False) -> str:
        """Listen on `tcp://host:port` (port 0: any) or `unix:///path`.

        Returns:
            The address to dial.

        Raises:
            InsecureAddressError: others than this machine could reach it, where all is in
                the clear, and `allow_insecure` is not given. AddressError: not an address.
            UnreachableError: it cannot be listened on. ParleyError: it is not running.
        """
        if self._gateway is None:
            raise ParleyError("the relay is not running: use `async with`")
        return await self._gateway.listen(address, allow_insecure=allow_insecure)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition on the clients; it is looked at whenever one came or went."""
        await self._changes.until(condition)

    # For members without a connection, such as bridges.

    def join(self, uuid: UUID, member: Member) -> Callable[[], None]:
        """Have `member` take part as `uuid`; what is returned takes it out again.

        Raises:
            ConfigError: the UUID is taken, or is none that a client may have.
        """
        try:
            self._router.join(uuid.bytes, member)
        except ValueError as error:
            raise ConfigError(f"{uuid} cannot take part: {error}") from error
        self._changes.notify()

        def leave() -> None:
            self._router.leave(uuid.bytes, member)
            self._changes.notify()

        return leave

    def broadcast(self, sender: UUID, message: bytes) -> None:
        """Hand a whole message to all clients but the sender."""
        self._router.broadcast(sender.bytes, [message], len(message), self.backend.now())

    # Life.

    async def __aenter__(self) -> Self:
        backend = await self._ground.enter()
        self._gateway = Gateway(backend, self._accept, self.limits.clients)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        try:
            with anyio.CancelScope(shield=True):
                await self._shut_down(hasty=exc_type is not None)
        finally:
            self._gateway = None
            await self._ground.leave()

    async def _shut_down(self, *, hasty: bool) -> None:
        if self._gateway is not None:
            await self._gateway.stop_listening()
        for guest in list(self._guests.values()):
            if hasty:
                guest.drop()
            else:
                guest.begin_close()
        with anyio.move_on_after(CLOSE_TIMEOUT):
            await self._changes.until(lambda: not self._guests)

    # Inside.

    def _accept(self, name: str) -> Driver:
        core = RelayConnection(self._router, self.limits, self.backend.now())
        guest = RelayGuest(core, self.backend, name, self._changed, self._gone)
        core.shell = guest.driver
        self._guests[guest.driver] = guest
        return guest.driver

    def _changed(self) -> None:
        self._changes.notify()

    def _gone(self, guest: Guest) -> None:
        self._guests.pop(guest.driver, None)
        if self._gateway is not None:
            self._gateway.left(guest.driver)
        self._changes.notify()


class RelayGuest(Guest):
    """A client, as the relay's shell sees it. `changed` is told when it is let in or ends."""

    dialect: ClassVar[str] = "the event relay"
    turn_size: ClassVar[int] = 64 * 1024  # a message costs it a tenth of a call

    def __init__(
        self,
        core: RelayConnection,
        backend: Backend,
        name: str,
        changed: Callable[[], None],
        on_gone: Callable[[Guest], None],
    ) -> None:
        super().__init__(core, backend, name, on_gone=on_gone)
        self._client = core
        self._changed = changed

    def begin_close(self) -> None:
        """End it once what is queued is written, without waiting for that."""
        self._client.close(self.backend.now(), CloseCode.GOING_AWAY)
        self.driver.settle()

    def _take(self, report: Any, now: float) -> None:
        self.name = f"{UUID(bytes=self._client.uuid)} from {self.name}"
        logger.info("%s is connected", self)
        self._changed()

    def _lost(self, ended: ConnectionEnded) -> None:
        if ended.code == CloseCode.OVERLOADED:
            logger.warning("%s was dropped: it does not read", self)
        self._changed()
