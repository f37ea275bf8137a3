"""One SimProto connection, as used by this side's calls and subscriptions."""

from dataclasses import dataclass

from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.simproto.core import SimProtoCore
from parley._node.dialects.simproto.sim import Sim
from parley._node.dialects.values import RESTS, Rest
from parley._node.errors import ConfigError
from parley._node.gateways.guest import Guest
from parley._node.registrar import Registrar
from parley._node.transport.conditions import wait_within


@dataclass(frozen=True, slots=True)
class SimProtoOptions:
    """The limits of one side, the registrar of its handlers and topics, and the format of values.

    `values` is the format of values that are neither bytes nor text.

    Raises:
        ConfigError: `values` is not one of the three formats.
    """

    limits: DialectLimits
    registrar: Registrar
    values: Rest

    def __post_init__(self) -> None:
        if self.values not in RESTS:
            text = f"invalid values {self.values!r}: expected {', '.join(RESTS)}"
            raise ConfigError(text)


@dataclass(frozen=True, slots=True)
class SimProtoConnection:
    """A connection to `guest`: its core, its sim layer, and the format of values."""

    guest: Guest
    core: SimProtoCore
    sim: Sim
    values: Rest

    @property
    def can_send(self) -> bool:
        """Whether a request can be sent without waiting."""
        return self.guest.driver.can_send and self.core.free_dialogs > 0

    async def wait_writable(self, timeout: float | None) -> float | None:
        """Wait until a request can be sent, and return the rest of `timeout`.

        Raises:
            CallTimeout: the wait took longer than `timeout`.
        """
        return await wait_within(self._room, timeout, self.guest.backend.now)

    async def _room(self) -> None:
        driver, turns = self.guest.driver, self.sim.room
        while self.guest.is_open and not self.can_send:
            if not driver.can_send:
                await driver.wait_writable()
                continue
            waiter = self.guest.backend.waiter()
            wake = waiter.wake
            turns.wait(wake)
            try:
                await waiter
            except BaseException:
                turns.leave(wake)
                raise
