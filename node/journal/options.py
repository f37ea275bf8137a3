"""The checked options of `Journal.open`: sizes, ages, policies and auditors."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from msgspec import Meta

from parley._crypto.auditor import AUDITOR_KEY_SIZE, AuditorKey
from parley._crypto.errors import InvalidKeyError
from parley._node.errors import ConfigError
from parley._node.protocol.config_types import Seconds, check_types

Fsync = Literal["always", "interval", "never"]
Clock = Callable[[], int]  # ns since the epoch, UTC
OnFailure = Literal["alarm", "stop"]
Auditor = AuditorKey | bytes | str

SEGMENT_SIZE: Final = 64 * 2**20
SEGMENT_AGE: Final = 3600.0
BUFFER_SIZE: Final = 8 * 2**20
LEAST_BUFFER_SIZE: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """The options of a journal; raises ConfigError for a wrong type or a value out of range."""

    directory: Path
    auditors: tuple[AuditorKey, ...]
    segment_size: Annotated[int, Meta(ge=4096)]
    segment_age: Seconds
    buffer_size: Annotated[int, Meta(ge=LEAST_BUFFER_SIZE)]
    fsync: Fsync
    fsync_interval: Seconds
    on_failure: OnFailure
    clock: Clock

    def __post_init__(self) -> None:
        check_types(self, ConfigError)


def parse_auditors(given: Auditor | Iterable[Auditor]) -> tuple[AuditorKey, ...]:
    """Parse keys and drop duplicates; raises ConfigError without any, InvalidKeyError."""
    # Bytes and text are iterable too, but each is one key.
    if isinstance(given, (bytes, str)) or not isinstance(given, Iterable):
        given = [given]
    keys = tuple(dict.fromkeys(_auditor(one) for one in given))
    if not keys:
        raise ConfigError(
            f"auditors is {given!r}; a journal needs at least one auditor's key, from "
            "`parley journal keygen`"
        )
    return keys


def _auditor(given: Auditor) -> AuditorKey:
    if isinstance(given, str):
        return AuditorKey.parse(given)
    if not isinstance(given, bytes):
        raise InvalidKeyError(f"an auditor's key is text or {AUDITOR_KEY_SIZE} bytes")
    return AuditorKey(given)
