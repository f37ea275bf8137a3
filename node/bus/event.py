"""`BusEvent`: an event as an application is handed it, and its word on it.

Of two words only the first counts, and an event that was refused is never taken for acknowledged,
whatever became of the refusal.
"""

from datetime import datetime
from enum import Enum
from typing import Any, Generic, Protocol

from parley._node.bus.body import decode_body
from parley._node.bus.errors import NotPendingError
from parley._node.bus.ids import parse_id
from parley._node.bus.model import StoredEvent
from parley._node.data_types import DataType, E_co
from parley._node.errors import ParleyError


class Word(Enum):
    """The application's word on an event that was handed out."""

    NONE = "none"
    ACK = "ack"
    NACK = "nack"


class Holder(Protocol):
    """The consumer that handed an event out, and takes the application's word on it."""

    @property
    def group(self) -> str:
        """The group it was handed to, as its consumers call it."""

    async def acknowledge(self, event: "BusEvent[Any]") -> None:
        """Record that it is done."""

    async def refuse(self, event: "BusEvent[Any]", delay: float, reason: str) -> None:
        """Record that it failed."""


class BusEvent(Generic[E_co]):
    """An event of a bus. The data of a `BusEvent[Order]` is an Order.

    `attempt` is how often the group was handed it, this time included: 1 at first; 0 for an event
    of `Bus.history`, which needs no acknowledgement."""

    __slots__ = ("_data", "_holder", "_returns", "attempt", "stored", "word")

    def __init__(
        self,
        stored: StoredEvent,
        attempt: int = 0,
        holder: Holder | None = None,
        data: Any = None,
        returns: DataType[Any] | None = None,
    ) -> None:
        self.stored = stored
        self.attempt = attempt
        self.word = Word.NONE
        self._holder = holder
        self._data = data
        self._returns = returns

    def __repr__(self) -> str:
        return f"<BusEvent {self.stored.name} {self.stored.id}, attempt {self.attempt}>"

    @property
    def id(self) -> str:
        """MILLISECONDS-NUMBER; later events of its stream have greater ones."""
        return self.stored.id

    @property
    def name(self) -> str:
        """API.EVENT."""
        return self.stored.name

    @property
    def body(self) -> str:
        """The data as it is stored: JSON."""
        return self.stored.body

    @property
    def data(self) -> E_co:
        """What was published.

        Raises:
            InvalidEventError: it is not a JSON object; only for an event of `Bus.history`.
            MalformedDataError: it does not fit `returns=`; only for an event of `Bus.history`.
        """
        if self._data is None:
            plain = decode_body(self.stored.body)
            self._data = plain if self._returns is None else self._returns.read(plain)
        data: E_co = self._data
        return data

    @property
    def version(self) -> int:
        """The version of the data, as its publisher gave it; 1 by default."""
        return self.stored.version

    @property
    def idempotency_key(self) -> str | None:
        """The key that it was published with; on Redis each event has one."""
        return self.stored.key

    @property
    def published_at(self) -> datetime:
        """When it was stored, by the store's clock, in milliseconds (UTC)."""
        return parse_id(self.stored.id).published_at

    @property
    def group(self) -> str | None:
        """The group that it was handed to; None for an event of `Bus.history`."""
        return self._holder.group if self._holder is not None else None

    async def ack(self) -> None:
        """It is done: recorded when this returns, however long the store takes to answer. A second
        time is fine.

        Raises:
            NotPendingError: it was refused before, or it went to another consumer, which is done
                with it. BusClosedError: the bus, or its consumer, was closed; it may have been
                recorded. BusError: it could not be recorded, and waiting does not help.
        """
        if self.word is Word.ACK:
            return
        if self.word is Word.NACK:
            raise NotPendingError(f"{self.stored.id} was refused before")
        await self._held().acknowledge(self)

    async def nack(self, delay: float = 0.0, reason: str = "") -> None:
        """It failed: the group is handed it again in `delay` seconds, or, after the last of its
        attempts, it goes to the dead letters, with `reason` in its history. Waits as `ack` does.

        Raises:
            NotPendingError: it was acknowledged before, or went to another consumer.
            BusError: it could not be recorded; it comes again once it was idle for long.
        """
        if self.word is Word.ACK:
            raise NotPendingError(f"{self.stored.id} was acknowledged before")
        await self._held().refuse(self, delay, reason)

    def _held(self) -> Holder:
        if self._holder is None:
            raise ParleyError(
                f"cannot acknowledge or refuse the event {self.stored.id}: it was read from the "
                "history, and not delivered to a group"
            )
        return self._holder
