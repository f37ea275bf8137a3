"""The errors of a bus.

    BusError                     (a ParleyError)
      InvalidEventError          an invalid name, key or data  (also a ValueError)
        SchemaViolationError     the data violates the event's schema
      BusClosedError             the bus, its node or its connection is closed
      BusUnavailableError        no response; the outcome is unknown  (also an OSError)
      BusBusyError               another process locks the database for too long
      BusFullError               no space, or not writable; nothing was stored
      BusDamagedError            the stored data is damaged, or is not a bus
      BusRefusedError            the node that offers the bus does not allow the request
      NotPendingError            the event is not pending in this group

Every error of a store is one of these. Its cause is the original error of SQLite, Redis or the
connection.
"""

import logging

from parley._node.errors import ParleyError

logger = logging.getLogger("parley.bus")


class BusError(ParleyError):
    """The base class of the bus's errors."""


class InvalidEventError(BusError, ValueError):
    """An invalid name, key or data of an event. Nothing was stored."""


class SchemaViolationError(InvalidEventError):
    """The data violates the event's schema. `path` is the JSON path of the invalid value."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(f"{name}: {path or 'the data'}: {text}")
        self.name = name
        self.path = path


class BusClosedError(BusError):
    """The bus, or the node or connection that it belongs to, is closed.

    Requests made after that have no effect. Requests in progress at the time may have succeeded.
    """


class BusUnavailableError(BusError, OSError):
    """A server or node cannot be reached or did not answer.

    The operation may have been done. Publishing again with the same idempotency key is safe.
    """

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class BusBusyError(BusError):
    """Another process locked the database for longer than `busy_timeout`. Nothing was done."""


class BusFullError(BusError):
    """The disk is full, a limit is reached, or the file isn't writable. Nothing was changed."""


class BusDamagedError(BusError):
    """The stored data cannot be read, or the file is not a bus. Nothing was changed."""


class BusRefusedError(BusError):
    """The node that offers the bus does not allow the request."""


class NotPendingError(BusError):
    """The event isn't pending in this group: acknowledged, made a dead letter, or deleted."""


def as_bus_error(error: Exception) -> BusError:
    """Return the error that ends a consumer; log an error that only a bug can cause."""
    if isinstance(error, BusError):
        return error
    if isinstance(error, ParleyError):  # A setting is invalid.
        return BusError(str(error))
    logger.error("a store failed", exc_info=error, extra={"event": "bus.bug"})
    wrapped = BusError("the store failed; see the log for the traceback")
    wrapped.__cause__ = error
    return wrapped
