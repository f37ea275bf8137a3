"""Converts errors of Redis and coredis to errors of the bus.

The texts of Redis are included, because they contain no secrets.
"""

import re
from typing import Final

from anyio import BrokenResourceError, EndOfStream
from coredis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ProtocolError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    StreamConsumerGroupError,
    StreamDuplicateConsumerGroupError,
    UnknownCommandError,
    WrongTypeError,
)
from coredis.exceptions import ConnectionError as LostConnectionError

from parley._node.bus.errors import (
    BusDamagedError,
    BusError,
    BusFullError,
    BusRefusedError,
    BusUnavailableError,
)
from parley._node.errors import ConfigError, UnreachableError

# The oldest supported version of Redis, which introduced MINID for streams and exclusive ranges.
OLDEST: Final = (6, 2)

# Error texts for which coredis has no type, and those of an old Redis at the end of a script. The
# first match applies.
_WORDS: Final[tuple[tuple[str, type[BusError]], ...]] = (
    ("OOM ", BusFullError),
    ("No space left", BusFullError),
    ("MISCONF", BusUnavailableError),
    ("LOADING", BusUnavailableError),
    ("MASTERDOWN", BusUnavailableError),
    ("READONLY", BusUnavailableError),
    ("NOREPLICAS", BusUnavailableError),
    ("BUSY ", BusUnavailableError),
    ("max number of clients", BusUnavailableError),
    ("WRONGTYPE", BusDamagedError),
    ("NOAUTH", BusRefusedError),
    ("WRONGPASS", BusRefusedError),
    ("NOPERM", BusRefusedError),
    ("invalid password", BusRefusedError),
    ("The user executing the script", BusRefusedError),
)
# Redis adds this to an error in a script.
_WHERE: Final = re.compile(r" script: [0-9a-f]{40}, on @.*", re.DOTALL)
_MISSING: Final = ("NOGROUP", "no longer exists", "no such key", "requires the key to exist")
_TYPES: Final[tuple[tuple[type[RedisError], type[BusError]], ...]] = (
    (AuthenticationError, BusRefusedError),
    (AuthorizationError, BusRefusedError),
    (WrongTypeError, BusDamagedError),
    (BusyLoadingError, BusUnavailableError),
    (ReadOnlyError, BusUnavailableError),
    (LostConnectionError, BusUnavailableError),
)
# Transport errors; the last two occur during the TLS handshake.
_LOST: Final = (OSError, UnreachableError, EndOfStream, BrokenResourceError)


def bus_error(error: BaseException) -> BusError:
    """Return the bus's error for an error of coredis; raise it `from error`."""
    if isinstance(error, BusError):
        return error
    if type(error) is LostConnectionError and error.__cause__ is not None:
        return bus_error(error.__cause__)  # Raised by coredis when it cannot connect.
    text = _WHERE.sub("", str(error).removeprefix("-")) or "no answer"
    if isinstance(error, ResponseError):
        for word, kind in _WORDS:
            if word in text:
                return kind(f"Redis: {text}")
    for raised, kind in _TYPES:
        if isinstance(error, raised):
            return kind(f"Redis: {text}")
    if isinstance(error, _LOST):
        return BusUnavailableError(f"Redis: {text}")
    return BusDamagedError(f"Redis: {text}")


def is_no_answer(answer: BaseException) -> bool:
    """Return whether the server did not respond, not even with an error."""
    if isinstance(answer, RedisError):
        return isinstance(answer, LostConnectionError) and not isinstance(answer, BusyLoadingError)
    return True


def is_missing_group(error: BaseException) -> bool:
    """Return whether the error means that a group or its stream does not exist."""
    text = str(error)
    return (
        isinstance(error, StreamConsumerGroupError)
        and not isinstance(error, StreamDuplicateConsumerGroupError)
    ) or (isinstance(error, ResponseError) and any(word in text for word in _MISSING))


def is_too_old(error: BaseException) -> bool:
    """Return whether a server older than Redis 6 rejected the first command."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, (UnknownCommandError, ProtocolError)):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def check_version(version: str | None) -> None:
    """Raise ConfigError for a server older than `OLDEST`."""
    parts = (version or "").split(".")
    numbers = tuple(int(part) for part in parts[:2] if part.isdecimal())
    if numbers < OLDEST:
        raise too_old(version)


def too_old(version: str | None) -> ConfigError:
    """Return the error for a server that is too old; `version` is None if it is unknown."""
    wanted = ".".join(map(str, OLDEST))
    found = f"Redis {version}" if version else "this Redis"
    return ConfigError(f"cannot use {found}: it is too old; use {wanted} or newer")
