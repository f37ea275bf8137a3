"""The options of `Journal.open`, checked: sizes, ages, policies and auditors."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from parley._crypto.auditor import AUDITOR_KEY_SIZE, AuditorKey
from parley._crypto.errors import InvalidKeyError
from parley._node.config import Range, require_in_range
from parley._node.errors import ConfigError
from parley._node.protocol.typed import check_types

Fsync = Literal["always", "interval", "never"]
Clock = Callable[[], int]  # ns since the epoch, UTC
OnFailure = Literal["alarm", "stop"]
Auditor = AuditorKey | bytes | str

SEGMENT_SIZE: Final = 64 * 2**20
SEGMENT_AGE: Final = 3600.0
BUFFER_SIZE: Final = 8 * 2**20
_RANGES: Final[Mapping[str, Range]] = {
    "segment_size": Range(4096),
    "segment_age": Range(0, above=True),
    "buffer_size": Range(64 * 1024),
    "fsync_interval": Range(0, above=True),
}


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """The options of a journal, as `Journal.open` was given them.

    Raises:
        ConfigError: a value is of another type, or outside its range.
    """

    directory: Path
    auditors: tuple[AuditorKey, ...]
    segment_size: int
    segment_age: float
    buffer_size: int
    fsync: Fsync
    fsync_interval: float
    on_failure: OnFailure
    clock: Clock

    def __post_init__(self) -> None:
        check_types(self, ConfigError)
        for name, allowed in _RANGES.items():
            require_in_range(name, getattr(self, name), allowed)


def parse_auditors(given: Auditor | Iterable[Auditor]) -> tuple[AuditorKey, ...]:
    """The keys, each once; raises ConfigError without any, InvalidKeyError."""
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
