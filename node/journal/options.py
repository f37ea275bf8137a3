"""The checked options of `Journal.open`: sizes, ages, policies and auditors."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, TypedDict

from msgspec import Meta

from parley._crypto.auditor import AUDITOR_KEY_SIZE, AuditorKey
from parley._crypto.errors import InvalidKeyError
from parley._node.errors import ConfigError
from parley._node.protocol.config_types import Seconds, check_types

Fsync = Literal["always", "interval", "never"]
Clock = Callable[[], int]  # Nanoseconds since the epoch, UTC.
OnFailure = Literal["alarm", "stop"]
Auditor = AuditorKey | bytes | str

SEGMENT_SIZE: Final = 64 * 2**20
SEGMENT_AGE: Final = 3600.0
BUFFER_SIZE: Final = 8 * 2**20
LEAST_BUFFER_SIZE: Final = 64 * 1024


class WriteOptions(TypedDict, total=False):
    """How a journal is written.

    Attributes:
        segment_size: bytes after which a new segment begins; default 64 MiB.
        segment_age: seconds after which a new segment begins; default 3,600.
        buffer_size: the maximum number of bytes waiting to be written; default 8 MiB.
        fsync: when written records are flushed to the disk: "always", "interval" (the default) or
            "never".
        fsync_interval: seconds between two flushes; default 1.
    """

    segment_size: int
    segment_age: float
    buffer_size: int
    fsync: Fsync
    fsync_interval: float


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """The options of a journal. Raises ConfigError for a wrong type or a value out of range."""

    directory: Path
    auditors: tuple[AuditorKey, ...]
    segment_size: Annotated[int, Meta(ge=4096)] = SEGMENT_SIZE
    segment_age: Seconds = SEGMENT_AGE
    buffer_size: Annotated[int, Meta(ge=LEAST_BUFFER_SIZE)] = BUFFER_SIZE
    fsync: Fsync = "interval"
    fsync_interval: Seconds = 1.0
    on_failure: OnFailure = "alarm"
    clock: Clock = time.time_ns

    def __post_init__(self) -> None:
        check_types(self, ConfigError)


def parse_auditors(given: Auditor | Iterable[Auditor]) -> tuple[AuditorKey, ...]:
    """Parse auditors' keys and drop duplicates.

    Raises ConfigError if there is no key, and InvalidKeyError if one is malformed.
    """
    # Bytes and text are iterable as well, but each is one key.
    if isinstance(given, (bytes, str)) or not isinstance(given, Iterable):
        given = [given]
    keys = tuple(dict.fromkeys(_auditor(one) for one in given))
    if not keys:
        raise ConfigError(
            f"invalid auditors {given!r}: at least one auditor's key is required; create one "
            "with `parley journal keygen`"
        )
    return keys


def _auditor(given: Auditor) -> AuditorKey:
    if isinstance(given, str):
        return AuditorKey.parse(given)
    if not isinstance(given, bytes):
        raise InvalidKeyError(
            f"invalid auditor's key: expected text or {AUDITOR_KEY_SIZE} bytes, "
            f"not {type(given).__name__}"
        )
    return AuditorKey(given)
