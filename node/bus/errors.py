"""What can go wrong with a bus.

    BusError                     (a ParleyError)
      InvalidEventError          a name, key or data that no event may have  (also ValueError)
        SchemaViolationError     the data is not what the event's schema says
      BusClosedError             the bus, its node or its connection is closed
      BusUnavailableError        nothing is known of the outcome: no answer  (also OSError)
      BusBusyError               another process holds the database for too long
      BusFullError               no room, or it cannot be written; nothing was stored
      BusDamagedError            what is stored is damaged, or is not a bus
      BusRefusedError            the node that offers the bus does not allow it
      NotPendingError            it is not (any more) this group's to acknowledge

Every error of a store is one of these; what SQLite, Redis or the connection said is its cause.
"""

import logging

from parley._node.errors import ParleyError

logger = logging.getLogger("parley.bus")


class BusError(ParleyError):
    """The root of the bus's errors."""


class InvalidEventError(BusError, ValueError):
    """A name, key or data that no event may have. Nothing was stored."""


class SchemaViolationError(InvalidEventError):
    """The data is not what the event's schema says. `path` leads to what is wrong."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(f"{name}: {path or 'the data'}: {text}")
        self.name = name
        self.path = path


class BusClosedError(BusError):
    """The bus, or the node or connection it belongs to, is closed. Later requests are not done;
    those under way may have been."""


class BusUnavailableError(BusError, OSError):
    """No answer came: a server or node cannot be reached. What was asked may have been done;
    publishing again with the same idempotency key is safe."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class BusBusyError(BusError):
    """Another process held the database for longer than `busy_timeout`. Nothing was done."""


class BusFullError(BusError):
    """No room: the disk is full, a limit is reached, or the file cannot be written at all. Nothing
    was stored or changed."""


class BusDamagedError(BusError):
    """What is stored cannot be read, or is not a bus. Nothing was changed."""


class BusRefusedError(BusError):
    """The node that offers the bus does not allow it."""


class NotPendingError(BusError):
    """The event is not, or not any more, this group's to acknowledge: it was acknowledged,
    set aside or trimmed."""


def as_bus_error(error: Exception) -> BusError:
    """The error that ends a consumer; a bug of a store is logged here."""
    if isinstance(error, BusError):
        return error
    if isinstance(error, ParleyError):  # a setting is wrong
        return BusError(str(error))
    logger.error("a store failed", exc_info=error, extra={"event": "bus.bug"})
    wrapped = BusError("the store failed; see the log for the traceback")
    wrapped.__cause__ = error
    return wrapped
