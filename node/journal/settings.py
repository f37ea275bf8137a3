"""What `Journal.open` is told, checked: sizes, ages, policies, and for whom it is sealed.

One rule: every number has its unit and its least value here. Reads no files.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Literal, NamedTuple, get_args

from crypto.auditor import AUDITOR_KEY_SIZE, AuditorKey
from crypto.errors import InvalidKeyError
from node.errors import ConfigError

Fsync = Literal["always", "interval", "never"]
Clock = Callable[[], int]  # ns since the epoch, UTC
OnFailure = Literal["alarm", "stop"]
Auditor = AuditorKey | bytes | str

SEGMENT_SIZE: Final = 64 * 2**20
SEGMENT_AGE: Final = 3600.0
BUFFER_SIZE: Final = 8 * 2**20
LEAST_SEGMENT: Final = 4096
LEAST_BUFFER: Final = 64 * 1024


class JournalSettings(NamedTuple):
    """What `Journal.open` was told."""

    directory: Path
    auditors: tuple[AuditorKey, ...]
    segment_size: int
    segment_age: float
    buffer_size: int
    fsync: Fsync
    fsync_interval: float
    on_failure: OnFailure
    clock: Clock

    def check(self) -> None:
        """Raises ConfigError."""
        for name, least in (("segment_size", LEAST_SEGMENT), ("buffer_size", LEAST_BUFFER)):
            if not getattr(self, name) >= least:
                raise ConfigError(f"{name} must be {least:,} bytes or more")
        for name in ("segment_age", "fsync_interval"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(f"{name} must be seconds above 0")
        for name, values in (("fsync", get_args(Fsync)), ("on_failure", get_args(OnFailure))):
            if getattr(self, name) not in values:
                raise ConfigError(f"{name} must be one of {', '.join(values)}")


def parse_auditors(given: Auditor | Iterable[Auditor]) -> tuple[AuditorKey, ...]:
    """The keys, each once; raises ConfigError for none, InvalidKeyError."""
    # Bytes and text are iterable too, and one key.
    several = [given] if isinstance(given, (bytes, str)) else list(given)
    keys = tuple(dict.fromkeys(_auditor(one) for one in several))
    if not keys:
        raise ConfigError("a journal needs an auditor's key")
    return keys


def _auditor(given: Auditor) -> AuditorKey:
    if isinstance(given, str):
        return AuditorKey.parse(given)
    if not isinstance(given, bytes):
        raise InvalidKeyError(f"an auditor's key is text or {AUDITOR_KEY_SIZE} bytes")
    return AuditorKey(given)
